//! The `npamp-loadgen` command: an open-loop load generator for N-PAMP peers
//! that carry A2A, and the native responder to try it against.
//!
//! Exit status: 0 when everything asked for was measured without an error, 1
//! when not, 2 when the arguments are wrong.
#![deny(unsafe_code)] // `heap` alone may, for what the C library says of memory
#![allow(clippy::disallowed_methods)] // a home of the clock and of threads, as the engine is

mod args;
mod compare;
mod connector;
mod dialler;
mod drive;
mod files;
mod gate;
mod generator;
mod heap;
mod histogram;
mod http;
mod kind;
mod machine;
mod measurement;
mod message;
mod observer;
mod page;
mod process;
mod progress;
mod report;
mod respond;
mod responder;
mod run;
mod schedule;
mod series;
mod session;
mod sweep;
mod trust;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = args::Arguments::parse();
    let outcome = match arguments.command {
        args::Command::Run(arguments) => run::run(&arguments),
        args::Command::Agent(arguments) => http::agent::agent(&arguments),
        args::Command::Child(arguments) => compare::child::child(&arguments),
        args::Command::Compare(arguments) => compare::compare(&arguments),
        args::Command::Report(arguments) => page::page(&arguments),
        args::Command::Respond(arguments) => respond::respond(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("npamp-loadgen: {error}");
            ExitCode::FAILURE
        }
    }
}
