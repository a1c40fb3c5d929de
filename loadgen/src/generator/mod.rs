//! The generator: dials, then sends what the schedule asks for when it asks for
//! it, whatever became of earlier requests, and times every answer from the
//! moment its request was *meant* to be sent. So a stall of the peer shows as
//! the latency that callers would have seen (no coordinated omission).
//!
//! When the concurrency bound is reached the schedule goes on: requests wait in
//! it, and their wait counts.

mod holder;
mod judge;
mod plan;

pub use holder::Holder;
pub use judge::check_reply;
pub use judge::{Verdict, judge};
pub use plan::Plan;

use crate::drive::{Pace, Work};
use crate::gate::{Gate, LOOK_TIME};
use crate::kind::{Kind, Sequence};
use crate::measurement::Measurement;
use crate::message::{self, SEND, STREAM, Template};
use crate::progress::Progress;
use crate::schedule::Schedule;
use crate::series::Series;
use holder::Step;
use judge::Failure;
use npamp_relay::association::Event;
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::stream::Consumer;
use npamp_relay::engine::clock::{SystemRandom, now};
use npamp_relay::engine::control::{Origin, Outcome};
use npamp_relay::engine::shard::{Down, Handler, LinkId, LinkInfo, Shard};
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Requests sent before what has arrived is looked at.
const REQUESTS_A_ROUND: usize = 64;
/// Time for all handshakes: connecting, shaking hands, HELLO.
const CONNECT_TIME: Duration = Duration::from_secs(12);
/// Time for other threads to open what they hold.
const OTHERS_TIME: Duration = Duration::from_secs(3600);
/// Octets of a correlation_id: run, number, slot.
const CORRELATION_OCTETS: usize = 20;
/// How often a sleeping thread looks whether the user has seen enough.
const INTERRUPT_LOOK_TIME: Duration = Duration::from_millis(100);
/// How long answers are still awaited once the user has seen enough.
const INTERRUPTED_TIME: Duration = Duration::from_secs(1);

struct Exchange {
    kind: Kind,
    number: u64,
    link: LinkId,
    intended: Instant,
    heard: Instant,
    stream: Consumer,
    events: u64,
    measured: bool,
}

enum Phase {
    Connecting {
        give_up: Instant,
    },
    /// Opens what is only held.
    Opening,
    /// Ready; other threads may not be.
    Waiting {
        give_up: Instant,
    },
    Running {
        end: Instant,
    },
    Draining {
        give_up: Instant,
    },
    Closing {
        give_up: Instant,
    },
}

struct Line {
    link: LinkId,
    ready: bool,
}

/// See the module.
pub struct Generator {
    plan: Plan,
    phase: Phase,
    schedule: Option<Schedule>,
    start: Option<Instant>,
    lines: Vec<Line>,
    next_line: usize,
    exchanges: Vec<Option<Exchange>>,
    free: Vec<usize>,
    outstanding: usize,
    /// When each exchange is to be looked at, by slot and number; at most one entry an exchange.
    expiry: VecDeque<(Instant, usize, u64)>,
    /// The last time a slot became free while none was.
    freed: Option<Instant>,
    number: u64,
    run: [u8; 8],
    sequence: Sequence,
    /// By [`Kind::index`].
    templates: [Template; 3],
    object: Vec<u8>,
    gate: Arc<Gate>,
    holder: Option<Holder>,
    /// No association had room for a request that was due.
    blocked: bool,
    progress: Arc<Progress>,
    /// What was measured.
    pub measurement: Measurement,
}

impl Generator {
    /// Waits for `plan.connections` associations, then begins.
    pub fn new(
        plan: Plan,
        holder: Option<Holder>,
        gate: Arc<Gate>,
        progress: Arc<Progress>,
    ) -> Self {
        let mut run = [0; 8];
        npamp_relay::crypto::Random::fill(&mut SystemRandom, &mut run);
        let name = format!("{:016x}", u64::from_be_bytes(run));
        Self {
            phase: Phase::Connecting {
                give_up: now() + CONNECT_TIME,
            },
            schedule: None,
            start: None,
            lines: Vec::with_capacity(plan.connections),
            next_line: 0,
            exchanges: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            expiry: VecDeque::new(),
            freed: None,
            number: 0,
            run,
            sequence: Sequence::new(plan.mix),
            templates: [
                Template::request(SEND, &name, plan.payload),
                Template::request(STREAM, &name, plan.payload),
                Template::request(SEND, &name, plan.bulk_payload),
            ],
            object: Vec::new(),
            gate,
            holder,
            blocked: false,
            progress,
            measurement: Measurement::default(),
            plan,
        }
    }

    fn abort(&mut self, reason: String) {
        self.measurement.aborted.get_or_insert(reason);
        self.gate.fail();
    }

    fn begin(&mut self, start: Instant) {
        let time = self.plan.warmup + self.plan.duration;
        let Plan {
            arrivals,
            rate,
            seed,
            share,
            warmup,
            ..
        } = self.plan;
        self.schedule = Some(Schedule::new(arrivals, rate, start, time, seed, share));
        self.start = Some(start);
        self.measurement.begin = Some(start + warmup);
        self.measurement.end = Some(start + time);
        self.measurement.series = Some(Series::new(start + warmup, self.plan.duration));
        self.phase = Phase::Running { end: start + time };
    }

    fn is_measured(&self, intended: Instant) -> bool {
        self.measurement
            .begin
            .is_some_and(|begin| intended >= begin)
    }

    fn correlation_id(&self, number: u64, slot: usize) -> [u8; CORRELATION_OCTETS] {
        let mut octets = [0; CORRELATION_OCTETS];
        octets[..8].copy_from_slice(&self.run);
        octets[8..16].copy_from_slice(&number.to_be_bytes());
        octets[16..].copy_from_slice(&(slot as u32).to_be_bytes());
        octets
    }

    /// The slot that a correlation_id of ours names, while its exchange is under way.
    fn find(&self, link: LinkId, correlation_id: &[u8]) -> Option<usize> {
        let octets = <&[u8; CORRELATION_OCTETS]>::try_from(correlation_id).ok()?;
        let (run, rest) = octets.split_at(8);
        let (number, slot) = rest.split_at(8);
        let slot = u32::from_be_bytes(slot.try_into().ok()?) as usize;
        let exchange = self.exchanges.get(slot)?.as_ref()?;
        (run == self.run && exchange.number.to_be_bytes() == number && exchange.link == link)
            .then_some(slot)
    }

    /// The next association, in turn, that has room; none when each holds as much as a relay would let it.
    fn pick(&mut self, shard: &mut Shard) -> Option<LinkId> {
        for _ in 0..self.lines.len() {
            self.next_line = (self.next_line + 1) % self.lines.len();
            let link = self.lines[self.next_line].link;
            let queued = shard.queued_octets(link).unwrap_or(0);
            if queued < limits::OUTBOUND_QUEUE_HIGH_OCTETS {
                return Some(link);
            }
        }
        None
    }

    /// Sends the request that was meant for `intended`. False when no association has room.
    fn send(&mut self, intended: Instant, shard: &mut Shard) -> bool {
        let Some(link) = self.pick(shard) else {
            self.blocked = true;
            return false;
        };
        let kind = self.sequence.next_kind();
        self.number += 1;
        let number = self.number;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.exchanges.push(None);
            self.exchanges.len() - 1
        });
        let correlation_id = self.correlation_id(number, slot);
        self.templates[kind.index()].write(&number.to_string(), &mut self.object);
        let method = if kind == Kind::Stream { STREAM } else { SEND };
        let sent = message::request(method, &correlation_id, &self.object)
            .map_err(|error| error.to_string())
            .and_then(|payload| {
                let frame_type = FrameType(MessageKind::Request.frame_type());
                shard
                    .send(link, ChannelId::BRIDGE, frame_type, Flags::NONE, payload)
                    .map_err(|error| error.to_string())
            });
        let at = now();
        if std::mem::take(&mut self.blocked) {
            self.freed = Some(at);
        }
        let measured = self.is_measured(intended);
        // A request that waited for the bound could not be sent before a slot was freed.
        let possible = self.freed.map_or(intended, |freed| freed.max(intended));
        let lag = at.saturating_duration_since(possible);
        if measured {
            self.measurement.of(kind).scheduled += 1;
            self.measurement.lag.record(lag);
            self.measurement.wait.record(possible - intended);
            self.measurement.late_sends += u64::from(lag > self.plan.lag_max);
        }
        if let Err(text) = sent {
            self.free.push(slot);
            self.count_error(measured, "send_refused", text);
            return true;
        }
        Progress::count(&self.progress.sent, 1);
        self.measurement.sent_at(at);
        if measured {
            let octets = self.object.len() as u64;
            let counts = self.measurement.of(kind);
            counts.sent += 1;
            counts.octets_sent += octets;
        }
        self.outstanding += 1;
        self.expiry
            .push_back((at + self.plan.timeout, slot, number));
        let stream = Consumer::default();
        self.exchanges[slot] = Some(Exchange {
            kind,
            number,
            link,
            intended,
            heard: at,
            stream,
            events: 0,
            measured,
        });
        true
    }

    fn count_error(&mut self, measured: bool, kind: &str, text: impl Into<String>) {
        Progress::count(&self.progress.errors, 1);
        // An error in the warm-up is an error all the same.
        let kind = if measured {
            kind.to_owned()
        } else {
            format!("warmup_{kind}")
        };
        self.measurement.error(&kind, text);
    }

    /// Frees a slot.
    fn take(&mut self, slot: usize, at: Instant) -> Option<Exchange> {
        let exchange = self.exchanges.get_mut(slot)?.take()?;
        if self.outstanding == self.plan.concurrency_max {
            self.freed = Some(at);
        }
        self.outstanding -= 1;
        self.free.push(slot);
        Some(exchange)
    }

    fn fail(&mut self, slot: usize, at: Instant, kind: &str, text: impl Into<String>) {
        if let Some(exchange) = self.take(slot, at) {
            self.count_error(exchange.measured, kind, text);
        }
    }

    fn complete(&mut self, slot: usize, at: Instant) {
        let Some(exchange) = self.take(slot, at) else {
            return;
        };
        Progress::count(&self.progress.completed, 1);
        let time = at.saturating_duration_since(exchange.intended);
        self.measurement.completed_at(at, time);
        if exchange.measured {
            self.measurement.completion.record(time);
            let counts = self.measurement.of(exchange.kind);
            counts.completed += 1;
            match exchange.kind {
                Kind::Unary | Kind::Bulk => counts.reply.record(time),
                Kind::Stream => counts.stream_end.record(time),
            }
        }
    }

    fn frame(&mut self, link: LinkId, channel: ChannelId, frame_type: FrameType, octets: &[u8]) {
        let at = now();
        let decoded = match payload::decode(frame_type.0, octets) {
            Ok(decoded) if channel == ChannelId::BRIDGE => decoded,
            Ok(_) => {
                return self.count_error(
                    true,
                    "frame_unexpected",
                    format!("a frame on channel {:#06x}", channel.0),
                );
            }
            Err(error) => return self.count_error(true, "frame_malformed", error.to_string()),
        };
        let Some(slot) = self.find(link, decoded.envelope.correlation_id) else {
            // Belongs to an exchange that was given up, or to none.
            self.measurement.late_replies += 1;
            return;
        };
        match self.judge(slot, at, &decoded) {
            Ok(true) => self.complete(slot, at),
            Ok(false) => {}
            Err((kind, text)) => self.fail(slot, at, &kind, text),
        }
    }

    /// Whether a frame completes its exchange, or what is wrong with it.
    fn judge(&mut self, slot: usize, at: Instant, frame: &Payload<'_>) -> Result<bool, Failure> {
        let Some(exchange) = self.exchanges[slot].as_mut() else {
            return Ok(false);
        };
        let heard = std::mem::replace(&mut exchange.heard, at);
        let verdict = judge(
            exchange.kind,
            exchange.number,
            &mut exchange.stream,
            exchange.events,
            frame,
        )?;
        let octets = frame.foreign.len() as u64;
        if self.measurement.is_within(at) {
            self.measurement.octets_received_within += octets;
        }
        let (kind, measured) = (exchange.kind, exchange.measured);
        if measured {
            self.measurement.of(kind).octets_received += octets;
        }
        let Verdict::Event { end } = verdict else {
            return Ok(true);
        };
        exchange.events += 1;
        self.measurement.event_at(at);
        if measured {
            let (first, intended) = (exchange.events == 1, exchange.intended);
            let counts = self.measurement.of(kind);
            counts.events += 1;
            if first {
                counts
                    .first_event
                    .record(at.saturating_duration_since(intended));
            } else {
                counts.gap.record(at.saturating_duration_since(heard));
            }
        }
        Ok(end)
    }

    /// Gives up exchanges that have been silent for too long. When the next one is due.
    fn expire(&mut self, at: Instant) -> Option<Instant> {
        while let Some(&(due, slot, number)) = self.expiry.front() {
            let exchange = self.exchanges[slot]
                .as_ref()
                .filter(|exchange| exchange.number == number);
            match exchange {
                None => {}
                Some(_) if due > at => return Some(due),
                Some(exchange) if exchange.heard + self.plan.timeout > at => {
                    // Heard of meanwhile. The order of the queue is no longer exact; a look comes late by at most a timeout.
                    self.expiry
                        .push_back((exchange.heard + self.plan.timeout, slot, number));
                }
                Some(_) => {
                    let text = format!("nothing heard for {:?}", self.plan.timeout);
                    self.fail(slot, at, "timed_out", text);
                }
            }
            self.expiry.pop_front();
        }
        None
    }

    fn fail_all(&mut self, link: Option<LinkId>, kind: &str, text: &str) {
        let at = now();
        for slot in 0..self.exchanges.len() {
            let hit = self.exchanges[slot]
                .as_ref()
                .is_some_and(|exchange| link.is_none_or(|link| exchange.link == link));
            if hit {
                self.fail(slot, at, kind, text);
            }
        }
    }

    /// Serves the schedule. True when it sent something, and when it is due next.
    fn serve(&mut self, shard: &mut Shard) -> (bool, Option<Instant>) {
        let mut sent = 0;
        while sent < REQUESTS_A_ROUND {
            let Some(intended) = self.schedule.as_ref().and_then(Schedule::peek) else {
                break;
            };
            if intended > now() || self.lines.is_empty() {
                return (sent > 0, Some(intended));
            }
            if self.outstanding >= self.plan.concurrency_max {
                return (sent > 0, None);
            }
            if !self.send(intended, shard) {
                return (sent > 0, None);
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.take();
            }
            sent += 1;
        }
        (sent > 0, None)
    }

    /// Counts what the schedule still held as not sent.
    fn give_up_schedule(&mut self, text: &str) {
        let Some(mut schedule) = self.schedule.take() else {
            return;
        };
        let (mut measured, mut warmup) = (0, 0);
        while let Some(intended) = schedule.peek() {
            schedule.take();
            let kind = self.sequence.next_kind();
            if self.is_measured(intended) {
                measured += 1;
                self.measurement.of(kind).scheduled += 1;
            } else {
                warmup += 1;
            }
        }
        self.measurement.errors_of("not_sent", text, measured);
        self.measurement.errors_of("warmup_not_sent", text, warmup);
        Progress::count(&self.progress.errors, measured + warmup);
    }

    fn close(&mut self, shard: &mut Shard) {
        for line in &self.lines {
            shard.close(line.link, 0, "done");
        }
        for link in self.holder.iter().flat_map(Holder::links) {
            shard.close(link, 0, "done");
        }
        self.phase = Phase::Closing {
            give_up: now() + limits::CLOSE_TIME + limits::CLOSE_TIME,
        };
    }

    fn not_ready(&self) -> String {
        let ready = self.lines.iter().filter(|line| line.ready).count();
        format!(
            "{}: only {ready} of {} associations were ready within {} s",
            self.plan.target,
            self.plan.connections,
            CONNECT_TIME.as_secs()
        )
    }
}

impl Handler for Generator {
    fn up(&mut self, link: LinkId, info: &LinkInfo) {
        if let (Some(holder), Origin::Dialled { token }) = (&mut self.holder, info.origin)
            && holder.is_mine(token)
        {
            holder.up(link);
            return;
        }
        self.lines.push(Line { link, ready: false });
    }

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        match event {
            Event::Ready(_) => {
                if let Some(line) = self.lines.iter_mut().find(|line| line.link == link) {
                    line.ready = true;
                } else if let Some(holder) = &mut self.holder {
                    holder.ready(link, now());
                }
            }
            Event::Frame {
                channel,
                frame_type,
                payload,
            } => self.frame(link, channel, frame_type, payload),
            Event::PeerError { code, text } => {
                self.count_error(true, "peer_error", format!("code {code}: {text}"));
            }
            Event::Dropped(reason) => {
                let label = npamp_relay::stats::Reason::label(reason);
                self.count_error(true, "frame_dropped", label);
            }
            Event::Closed(_) => {}
        }
    }

    fn down(&mut self, link: LinkId, reason: &Down) {
        if self.holder.as_mut().is_some_and(|holder| holder.down(link)) {
            match self.phase {
                Phase::Closing { .. } => {}
                Phase::Connecting { .. } | Phase::Opening => self.abort(format!(
                    "{}: an association was lost while others were opened: {reason}",
                    self.plan.target
                )),
                _ => self.count_error(true, "idle_association_down", reason.to_string()),
            }
            return;
        }
        let was_ready = self
            .lines
            .iter()
            .any(|line| line.link == link && line.ready);
        self.lines.retain(|line| line.link != link);
        match self.phase {
            Phase::Closing { .. } => {}
            Phase::Connecting { .. } | Phase::Waiting { .. } if !was_ready => self.abort(format!(
                "{}: {reason} before the association was ready; does it allow our identity {}?",
                self.plan.target, self.plan.identity
            )),
            _ => {
                self.fail_all(Some(link), "association_lost", &reason.to_string());
                if self.lines.is_empty() {
                    self.abort(format!(
                        "{}: every association is lost; the last one: {reason}",
                        self.plan.target
                    ));
                } else {
                    self.count_error(true, "association_down", reason.to_string());
                }
            }
        }
    }
}

impl Work for Generator {
    fn outcome(&mut self, outcome: Outcome, shard: &mut Shard) {
        match outcome {
            Outcome::Joined(handed) => {
                if shard.adopt(*handed, self).is_none() {
                    self.abort("no room for another association".into());
                }
            }
            Outcome::DialFailed { error, .. } => {
                let text = format!("no association with {}: {error}", self.plan.target);
                self.abort(text);
            }
        }
    }

    fn work(&mut self, shard: &mut Shard) -> Pace {
        let at = now();
        if let Some(start) = self.start {
            let elapsed = u64::try_from((at - start).as_nanos()).unwrap_or(u64::MAX);
            self.progress
                .elapsed
                .store(elapsed.saturating_add(1), Ordering::Relaxed);
        }
        let closing = matches!(self.phase, Phase::Closing { .. });
        if self.measurement.aborted.is_some() && !closing {
            self.give_up_schedule("the run ended early");
            self.fail_all(None, "association_lost", "the run ended early");
            self.close(shard);
            return Pace::AGAIN;
        }
        let draining = matches!(self.phase, Phase::Draining { .. });
        if self.gate.is_interrupted() && !self.measurement.interrupted && !closing {
            self.measurement.interrupt(at);
            self.schedule = None;
            if !draining {
                self.phase = Phase::Draining {
                    give_up: at + INTERRUPTED_TIME.min(self.plan.timeout),
                };
            }
            return Pace::AGAIN;
        }
        match self.phase {
            Phase::Connecting { give_up } => {
                let ready = self.lines.iter().filter(|line| line.ready).count();
                if ready == self.plan.connections {
                    let holds = self.holder.as_ref().is_some_and(Holder::is_wanted);
                    if holds {
                        self.gate.open();
                        self.phase = Phase::Opening;
                    } else {
                        self.gate.arrive();
                        self.phase = Phase::Waiting { give_up };
                    }
                    return Pace::AGAIN;
                }
                if at >= give_up {
                    self.abort(self.not_ready());
                    return Pace::AGAIN;
                }
                if self.gate.has_failed() {
                    self.close(shard);
                }
                Pace::until(give_up.min(at + LOOK_TIME))
            }
            Phase::Opening => match self.holder.as_mut().map(|holder| holder.open(at)) {
                Some(Step::Until(_)) if self.gate.has_failed() => {
                    self.close(shard);
                    Pace::AGAIN
                }
                Some(Step::Until(due)) => Pace::until(due),
                Some(Step::Stuck(text)) => {
                    self.abort(format!("{}: {text}", self.plan.target));
                    Pace::AGAIN
                }
                Some(Step::Done) | None => {
                    self.gate.arrive();
                    // Other threads open theirs, and say so when they cannot.
                    self.phase = Phase::Waiting {
                        give_up: at + OTHERS_TIME,
                    };
                    Pace::AGAIN
                }
            },
            Phase::Waiting { give_up } => match self.gate.start() {
                Some(start) if start <= at => {
                    self.begin(start);
                    Pace::AGAIN
                }
                Some(start) => Pace::until(start),
                // Another thread's handshakes failed, and it says why.
                None if self.gate.has_failed() || at >= give_up + CONNECT_TIME => {
                    self.close(shard);
                    Pace::AGAIN
                }
                None => Pace::until(at + LOOK_TIME),
            },
            Phase::Running { end } => {
                let expiry = self.expire(at);
                let (worked, due) = self.serve(shard);
                let exhausted = self
                    .schedule
                    .as_ref()
                    .is_none_or(|schedule| schedule.peek().is_none());
                let give_up = end + self.plan.timeout;
                if exhausted {
                    self.phase = Phase::Draining {
                        give_up: now() + self.plan.timeout,
                    };
                } else if at >= give_up {
                    self.give_up_schedule("still waiting for the concurrency bound");
                    self.phase = Phase::Draining {
                        give_up: now() + self.plan.timeout,
                    };
                }
                // Also looks whether the user has seen enough.
                let look = at + INTERRUPT_LOOK_TIME;
                let wake_at = [expiry, due, Some(give_up), Some(look)]
                    .into_iter()
                    .flatten()
                    .min();
                Pace {
                    worked: worked || exhausted,
                    wake_at,
                    done: false,
                }
            }
            Phase::Draining { give_up } => {
                let expiry = self.expire(at);
                // A stream that goes on is waited for only as long as an exchange may be silent.
                if self.outstanding > 0 && at >= give_up {
                    let kind = if self.measurement.interrupted {
                        "interrupted"
                    } else {
                        "timed_out"
                    };
                    self.fail_all(None, kind, "not completed when the run ended");
                }
                let done = self.outstanding == 0;
                if done {
                    self.close(shard);
                }
                let look = at + INTERRUPT_LOOK_TIME;
                let wake_at = [expiry, Some(give_up), Some(look)]
                    .into_iter()
                    .flatten()
                    .min();
                Pace {
                    worked: done,
                    wake_at,
                    done: false,
                }
            }
            Phase::Closing { give_up } => Pace {
                worked: false,
                wake_at: Some(give_up),
                done: shard.links() == 0 || at >= give_up,
            },
        }
    }
}
