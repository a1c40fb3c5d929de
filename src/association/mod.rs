//! association
#![forbid(unsafe_code)]
