//! The `npamp-relay` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    npamp_relay::cli::main()
}
