//! wire
#![forbid(unsafe_code)]
