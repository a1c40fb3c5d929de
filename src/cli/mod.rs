//! The command line: arguments, configuration, and what each command prints.
//!
//! It decides nothing about traffic; it makes plain values of what people wrote
//! and hands them to the relay. Exit codes: 0 done, 1 failed, 2 not understood.
#![forbid(unsafe_code)]

pub mod args;
pub mod call;
pub mod check;
pub mod config;
pub mod conformance_adapter;
pub mod demo;
mod discover;
pub mod identity;
mod run;
mod serve;

pub use run::main;

/// Why a command failed, in words for whoever typed it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CliError(pub String);
