//! engine
#![allow(unsafe_code)]
