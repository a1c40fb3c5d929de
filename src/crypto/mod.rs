//! crypto
#![forbid(unsafe_code)]
