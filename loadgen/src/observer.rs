//! The observer: watches a measurement from a thread of its own, so that neither
//! `/proc` nor the terminal is in the way of a send. It reads the responder's
//! memory each second of the measured time, and everyone's CPU time at both ends
//! of it.

use crate::gate::{Gate, Memory};
use crate::measurement::Measurement;
use crate::process::Process;
use crate::progress::{Bar, Progress};
use crate::session::Load;
use npamp_relay::engine::clock::now;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two drawings of the progress bar.
const DRAW_TIME: Duration = Duration::from_millis(100);

/// CPU time of one thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadTime {
    /// As the kernel names it.
    pub name: String,
    /// Of the generator; else of the responder.
    pub is_generator: bool,
    /// Time on a CPU.
    pub cpu: Duration,
}

/// What was observed.
#[derive(Debug, Default)]
pub struct Observation {
    /// Resident octets of the responder's process at the end of each second.
    pub memory: Vec<Option<u64>>,
    /// Between both readings of the CPU times; zero when there were none.
    pub time: Duration,
    /// By thread.
    pub threads: Vec<ThreadTime>,
    /// Memory before and after what is only held was opened.
    pub held: Option<(Memory, Memory)>,
}

type Times = BTreeMap<(Process, u32), (String, u64)>;

/// See the module.
pub struct Observer<'a> {
    process: Option<Process>,
    load: Load,
    gate: &'a Gate,
    progress: &'a Progress,
}

impl<'a> Observer<'a> {
    /// `process` is the responder's, where it is known.
    pub fn new(
        process: Option<Process>,
        load: Load,
        gate: &'a Gate,
        progress: &'a Progress,
    ) -> Self {
        Self {
            process,
            load,
            gate,
            progress,
        }
    }

    fn rss(&self) -> Option<u64> {
        self.process.and_then(Process::rss_octets)
    }

    fn times(&self) -> Times {
        let own = Process::Own;
        [Some(own), self.process.filter(|&process| process != own)]
            .into_iter()
            .flatten()
            .flat_map(|process| {
                process
                    .threads()
                    .into_iter()
                    .map(move |(id, times)| ((process, id), times))
            })
            .collect()
    }

    /// Until each of `threads` has said what it measured.
    pub fn watch(
        &self,
        results: &Receiver<io::Result<Measurement>>,
        threads: usize,
    ) -> io::Result<(Measurement, Observation)> {
        let mut observation = Observation::default();
        let mut before: Option<(Instant, Times)> = None;
        let mut after: Option<(Instant, Times)> = None;
        let mut bar = Bar::new(self.load.warmup + self.load.duration);
        let mut measured: Vec<Measurement> = Vec::new();
        let mut failure = None;
        while measured.len() < threads && failure.is_none() {
            let at = now();
            let mut next = at + DRAW_TIME;
            if let Some(start) = self.gate.start() {
                let begin = start + self.load.warmup;
                let end = begin + self.load.duration;
                let second = Duration::from_secs(1 + observation.memory.len() as u64);
                if at >= begin && before.is_none() {
                    before = Some((now(), self.times()));
                }
                if at >= (begin + second).min(end) && after.is_none() {
                    observation.memory.push(self.rss());
                }
                if (at >= end || self.gate.is_interrupted()) && after.is_none() {
                    after = Some((now(), self.times()));
                }
                for due in [begin, (begin + second).min(end)] {
                    if due > at {
                        next = next.min(due);
                    }
                }
            }
            match results.recv_timeout(next.saturating_duration_since(now())) {
                Ok(Ok(measurement)) => measured.push(measurement),
                Ok(Err(error)) => failure = Some(error),
                Err(RecvTimeoutError::Timeout) => bar.draw(self.progress),
                Err(RecvTimeoutError::Disconnected) => {
                    failure = Some(io::Error::other("the generator panicked"));
                }
            }
        }
        bar.clear();
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some((from, before)) = before {
            let (to, after) = after.unwrap_or_else(|| {
                // The end of the last second: results came before it was noticed.
                observation.memory.push(self.rss());
                (now(), self.times())
            });
            observation.time = to - from;
            observation.threads = difference(&before, &after);
        }
        observation.held = self.gate.held();
        let mut whole = Measurement::default();
        for part in measured {
            whole.merge(part);
        }
        Ok((whole, observation))
    }
}

/// CPU time of the threads that make and answer load: in this process, those named for it.
fn difference(before: &Times, after: &Times) -> Vec<ThreadTime> {
    after
        .iter()
        .filter_map(|((process, id), (name, on_cpu))| {
            let is_generator = *process == Process::Own && name.starts_with("generator");
            let is_responder = *process != Process::Own || name.starts_with("responder");
            let since = before.get(&(*process, *id)).map_or(0, |(_, since)| *since);
            (is_generator || is_responder).then(|| ThreadTime {
                name: name.clone(),
                is_generator,
                cpu: Duration::from_nanos(on_cpu.saturating_sub(since)),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_that_matter() {
        let other = Process::Other(7);
        let times = |factor: u64| {
            Times::from([
                ((Process::Own, 1), ("generator-0".into(), 10 * factor)),
                ((Process::Own, 2), ("responder-0".into(), 20 * factor)),
                ((Process::Own, 3), ("main".into(), 30 * factor)),
                ((other, 4), ("anything".into(), 40 * factor)),
            ])
        };
        let threads = difference(&times(1), &times(3));
        let found: Vec<_> = threads
            .iter()
            .map(|thread| (thread.is_generator, thread.cpu.as_nanos()))
            .collect();
        assert_eq!(found, [(true, 20), (false, 40), (false, 80)]);
    }
}
