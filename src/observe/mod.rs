//! observe
#![forbid(unsafe_code)]
