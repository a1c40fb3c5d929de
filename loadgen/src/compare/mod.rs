//! `compare`: what is ours and what it is held against, side by side in one run.
//! Contestants of a case take turns, so that what disturbs the machine disturbs
//! them all, and ratios are of turns that followed one another.

mod arguments;
mod chains;
pub mod child;
mod echo;
mod grpc;
mod http;
mod native;
pub mod result;
mod table;
mod tally;
mod unary;

pub use arguments::{CompareArguments, Part};

use crate::machine::Machine;
use result::{Asked, Comparison, Outcome, Rounds, SCHEMA};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Whether the user wants an end.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// SIGINT and SIGTERM say so.
    fn new() -> Result<Self, Box<dyn Error>> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, flag.clone())?;
        }
        Ok(Self(flag))
    }

    fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        Ok(())
    }
}

/// Runs every contestant `count` times, in turns, another one first each time.
fn rounds(
    count: u64,
    names: &[String],
    interrupt: &Interrupt,
    mut run: impl FnMut(usize) -> Result<Outcome, String>,
) -> Result<Vec<Rounds>, String> {
    let mut all: Vec<Rounds> = names
        .iter()
        .map(|name| Rounds {
            name: name.clone(),
            outcomes: Vec::new(),
        })
        .collect();
    for round in 0..usize::try_from(count).unwrap_or(usize::MAX) {
        for turn in 0..all.len() {
            interrupt.check()?;
            let which = (round + turn) % all.len();
            let outcome = run(which);
            // A turn that a signal cut short says something else.
            interrupt.check()?;
            all[which].outcomes.push(outcome?);
        }
    }
    Ok(all)
}

/// Compares and reports. True when no round had an error.
pub fn compare(arguments: &CompareArguments) -> Result<bool, Box<dyn Error>> {
    let interrupt = Interrupt::new()?;
    let mut found = Comparison {
        schema: SCHEMA.to_owned(),
        tool: env!("CARGO_PKG_NAME").to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: std::env::args().collect(),
        finished_unix_s: 0,
        machine: Machine::read(),
        asked: Asked {
            rounds: usize::try_from(arguments.rounds)?,
            duration_s: arguments.duration.as_secs_f64(),
            warmup_s: arguments.warmup.as_secs_f64(),
            payload_octets: arguments.payload,
            event_octets: arguments.event_octets,
            events: arguments.events,
        },
        programs: BTreeMap::new(),
        skipped: BTreeMap::new(),
        cases: Vec::new(),
        clean: false,
    };
    if arguments.has(Part::Native) {
        native::compare(arguments, &interrupt, &mut found)?;
    }
    if arguments.has(Part::Http) {
        http::compare(arguments, &interrupt, &mut found)?;
    }
    found.finished_unix_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    found.clean = found
        .cases
        .iter()
        .flat_map(|case| &case.contestants)
        .all(|contestant| contestant.errors == 0);
    crate::report::write(&found, &found.table(), arguments.json.as_deref())?;
    Ok(found.clean)
}
