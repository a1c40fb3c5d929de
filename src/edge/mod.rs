//! HTTP edges: ingress for ordinary A2A clients, egress to A2A agents, SSE in
//! both directions, and the one place where failures become HTTP responses.
#![forbid(unsafe_code)]

pub mod settings;
