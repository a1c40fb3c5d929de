//! Arguments, one file a command. Everything that can be judged without touching
//! a file or a socket is judged here, so that it ends with status 2 and the usage.

mod respond;
mod run;
mod values;

pub use respond::{ReplyArguments, RespondArguments};
pub use run::{Arrivals, RunArguments, Scenario};
pub use values::BULK_OCTETS_MIN;
#[cfg(test)]
pub use values::MESSAGE_OCTETS_MIN;
pub use values::{message_octets, rate, seconds, seconds_or_zero};

use crate::compare::CompareArguments;
use crate::compare::child::ChildArguments;
use crate::http::agent::AgentArguments;
use crate::page::PageArguments;
use clap::{Parser, Subcommand};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "npamp-loadgen",
    version,
    about = "Open-loop load for N-PAMP peers that carry A2A"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Send requests at a given rate and measure the answers
    Run(Box<RunArguments>),
    /// Answer requests, natively, without an agent
    Respond(RespondArguments),
    /// Answer requests over HTTP at once, as an agent behind an egress
    Agent(AgentArguments),
    /// Run the relay and what it is held against side by side
    Compare(Box<CompareArguments>),
    /// Make a page of what run or compare found
    Report(PageArguments),
    /// Become another program that ends with its parent
    #[command(hide = true)]
    Child(ChildArguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
