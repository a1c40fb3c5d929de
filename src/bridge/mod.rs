//! bridge
#![forbid(unsafe_code)]
