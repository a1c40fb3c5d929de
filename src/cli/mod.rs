//! cli
#![forbid(unsafe_code)]
