//! Runs the command that was asked for.

use super::args::{Arguments, Command, IdentityCommand};
use super::{CliError, check, conformance_adapter, identity, serve};
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

/// The command failed.
const FAILED: u8 = 1;

/// Reads the arguments of this process, runs the command, prints, and gives the
/// exit code: 0 done, 1 failed, 2 not understood (clap's, which exits by itself).
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(output) => print(&output),
        Err(CliError(message)) => {
            // Standard error may be closed; there is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "{message}");
            ExitCode::from(FAILED)
        }
    }
}

fn run(command: Command) -> Result<String, CliError> {
    match command {
        Command::Check(args) => {
            check::check(&args.config).map_err(|errors| CliError(errors.to_string()))
        }
        Command::Identity(IdentityCommand::New { out }) => {
            identity::new(&out).map(|public| public + "\n")
        }
        Command::Identity(IdentityCommand::Show { file }) => {
            identity::show(&file).map(|public| public + "\n")
        }
        Command::Run(args) => serve::run(&args.config).map(|()| String::new()),
        Command::Demo(args) => serve::demo(&args).map(|()| String::new()),
        Command::Call(args) => serve::call(&args).map(|()| String::new()),
        Command::ConformanceAdapter => {
            conformance_adapter::run(std::io::stdin().lock(), std::io::stdout().lock())
                .map(|()| String::new())
                .map_err(|e| CliError(format!("the conformance runner went away: {e}")))
        }
    }
}

/// A reader that goes away early, such as `head`, is no failure of ours.
fn print(output: &str) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(output.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(FAILED),
        _ => ExitCode::SUCCESS,
    }
}
