//! link
#![forbid(unsafe_code)]
