//! handshake
#![forbid(unsafe_code)]
