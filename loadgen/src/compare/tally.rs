//! What an echo's client counts: when each message was meant to be sent, and
//! what came back of it. Replies come in the order of requests on a connection.

use super::native::{Load, Plan};
use super::result::Outcome;
use crate::args::Arrivals;
use crate::histogram::Times;
use crate::schedule::{Schedule, Share};
use npamp_relay::engine::clock::now;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Time for what is under way at the end.
const PATIENCE: Duration = Duration::from_secs(2);
/// Exchanges under way at most at a given rate, as `run` has it.
const OUTSTANDING_MAX: usize = 1024;

/// See the module.
pub struct Tally {
    plan: Plan,
    schedule: Option<Schedule>,
    most: usize,
    begin: Instant,
    end: Instant,
    /// By connection, oldest first: number and intended time.
    under_way: Vec<VecDeque<(u64, Instant)>>,
    outstanding: usize,
    number: u64,
    times: Times,
    completed: u64,
    errors: u64,
    example: String,
}

impl Tally {
    /// Begins now.
    pub fn new(plan: Plan) -> Self {
        let start = now();
        let (schedule, most) = match plan.load {
            Load::Rate(rate) => (
                Some(Schedule::new(
                    Arrivals::Constant,
                    rate,
                    start,
                    plan.warmup + plan.duration,
                    None,
                    Share::WHOLE,
                )),
                OUTSTANDING_MAX,
            ),
            Load::Outstanding(most) => (None, most),
        };
        Self {
            schedule,
            most,
            begin: start + plan.warmup,
            end: start + plan.warmup + plan.duration,
            under_way: vec![VecDeque::new(); plan.connections],
            outstanding: 0,
            number: 0,
            times: Times::default(),
            completed: 0,
            errors: 0,
            example: String::new(),
            plan,
        }
    }

    /// When the next message is due; none for now, or ever.
    pub fn due(&self) -> Option<Instant> {
        if self.outstanding >= self.most {
            return None;
        }
        if let Some(schedule) = &self.schedule {
            return schedule.peek();
        }
        let at = now();
        (at < self.end).then_some(at)
    }

    /// The next message, if one is due: its connection and its number.
    pub fn take(&mut self) -> Option<(usize, u64)> {
        let intended = self.due().filter(|&due| due <= now())?;
        if let Some(schedule) = &mut self.schedule {
            schedule.take();
        }
        self.number += 1;
        self.outstanding += 1;
        let connection = usize::try_from(self.number).unwrap_or_default() % self.plan.connections;
        self.under_way[connection].push_back((self.number, intended));
        Some((connection, self.number))
    }

    /// A message came back.
    pub fn reply(&mut self, connection: usize, number: u64) {
        let at = now();
        match self.under_way[connection].pop_front() {
            Some((sent, intended)) if sent == number => {
                self.outstanding -= 1;
                if self.begin <= at && at < self.end {
                    self.completed += 1;
                }
                if self.begin <= intended {
                    self.times.record(at.saturating_duration_since(intended));
                }
            }
            other => {
                self.errors += 1;
                self.example = format!("message {number} came where {other:?} was due");
            }
        }
    }

    /// Whether nothing more will happen.
    pub fn is_done(&self) -> bool {
        let at = now();
        at >= self.end + PATIENCE || (at >= self.end && self.outstanding == 0)
    }

    /// When to look up even if nothing arrives.
    pub fn wake_at(&self) -> Instant {
        let last = if now() < self.end {
            self.end
        } else {
            self.end + PATIENCE
        };
        self.due().map_or(last, |due| due.min(last))
    }

    /// The outcome.
    pub fn finish(mut self) -> Outcome {
        if self.outstanding > 0 {
            self.errors += self.outstanding as u64;
            self.example = "not answered in time".into();
        }
        Outcome::of(
            self.completed,
            self.plan.duration,
            self.times,
            self.errors,
            self.example,
        )
    }
}

/// Cores of an echo's client and server, as `run` has them for its generator and its responder.
pub fn apart() -> (Option<usize>, Option<usize>) {
    let cores = npamp_relay::engine::cores::available();
    match (cores.first(), cores.last()) {
        (Some(&near), Some(&far)) if near != far => (Some(near), Some(far)),
        _ => (None, None),
    }
}

/// A message: its number and filling.
pub fn write(number: u64, octets: usize, out: &mut Vec<u8>) {
    let end = out.len() + octets;
    out.extend_from_slice(&number.to_be_bytes());
    out.resize(end, b'x');
}

/// The number of a message; none when it is no message.
pub fn read(message: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*message.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(load: Load) -> Plan {
        Plan {
            load,
            connections: 2,
            octets: 300,
            warmup: Duration::ZERO,
            duration: Duration::from_millis(50),
        }
    }

    #[test]
    fn replies_in_order_are_counted_and_others_are_errors() {
        let mut tally = Tally::new(plan(Load::Outstanding(3)));
        let sent: Vec<_> = std::iter::from_fn(|| tally.take()).collect();
        assert_eq!(sent, [(1, 1), (0, 2), (1, 3)]);
        tally.reply(1, 1);
        tally.reply(0, 2);
        assert_eq!(tally.take(), Some((0, 4)));
        tally.reply(1, 4);
        let outcome = tally.finish();
        assert_eq!(outcome.times.summary().count, 2);
        // One came out of order, and two are still under way.
        assert_eq!(outcome.errors, 3);
    }

    #[test]
    fn a_rate_is_kept_whatever_comes_back() {
        let mut tally = Tally::new(plan(Load::Rate(1000.0)));
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(std::iter::from_fn(|| tally.take()).count(), 50);
        assert!(!tally.is_done());
    }

    #[test]
    fn messages_bear_their_number() {
        let mut out = Vec::new();
        write(7, 300, &mut out);
        assert_eq!((out.len(), read(&out)), (300, Some(7)));
        assert_eq!(read(b"short"), None);
    }
}
