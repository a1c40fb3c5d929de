//! The scenario *connect*: dials when the schedule says, whatever became of
//! earlier dials, and times each association from the moment its dial was
//! *meant* to be made until it is ready: TCP, TLS, the N-PAMP handshake, HELLO.
//! Then it makes one exchange on it if asked, and closes it.

use crate::dialler::Dialler;
use crate::drive::{Pace, Work};
use crate::gate::{Gate, LOOK_TIME};
use crate::generator::{Plan, Verdict, judge};
use crate::kind::Kind;
use crate::measurement::Measurement;
use crate::message::{self, SEND, Template};
use crate::progress::Progress;
use crate::schedule::Schedule;
use crate::series::Series;
use npamp_relay::association::Event;
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::payload;
use npamp_relay::bridge::stream::Consumer;
use npamp_relay::engine::clock::now;
use npamp_relay::engine::control::{Origin, Outcome};
use npamp_relay::engine::shard::{Down, Handler, LinkId, LinkInfo, Shard};
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Dials made before what has arrived is looked at.
const DIALS_A_ROUND: usize = 64;
/// How often a sleeping thread looks whether the user has seen enough.
const INTERRUPT_LOOK_TIME: Duration = Duration::from_millis(100);

struct Pending {
    intended: Instant,
    measured: bool,
    give_up: Instant,
}

enum Phase {
    Begin,
    Running { end: Instant },
    Draining { give_up: Instant },
    Closing { give_up: Instant },
}

/// See the module.
pub struct Connector {
    plan: Plan,
    dialler: Dialler,
    exchange: bool,
    gate: Arc<Gate>,
    progress: Arc<Progress>,
    phase: Phase,
    start: Option<Instant>,
    schedule: Option<Schedule>,
    /// By token; in the order of their dials, which is that of their ends at the latest.
    pending: BTreeMap<u64, Pending>,
    links: HashMap<LinkId, u64>,
    /// Associations that are ready and get their request in the next round.
    to_ask: Vec<(LinkId, u64)>,
    to_close: Vec<LinkId>,
    token: u64,
    freed: Option<Instant>,
    template: Template,
    object: Vec<u8>,
    /// What was measured.
    pub measurement: Measurement,
}

impl Connector {
    /// Begins when the other threads do.
    pub fn new(
        plan: Plan,
        dialler: Dialler,
        exchange: bool,
        gate: Arc<Gate>,
        progress: Arc<Progress>,
    ) -> Self {
        gate.arrive();
        Self {
            template: Template::request(SEND, "connect", plan.payload),
            plan,
            dialler,
            exchange,
            gate,
            progress,
            phase: Phase::Begin,
            start: None,
            schedule: None,
            pending: BTreeMap::new(),
            links: HashMap::new(),
            to_ask: Vec::new(),
            to_close: Vec::new(),
            token: 0,
            freed: None,
            object: Vec::new(),
            measurement: Measurement::default(),
        }
    }

    fn begin(&mut self, start: Instant) {
        let plan = &self.plan;
        let time = plan.warmup + plan.duration;
        let (begin, end) = (start + plan.warmup, start + time);
        self.schedule = Some(Schedule::new(
            plan.arrivals,
            plan.rate,
            start,
            time,
            plan.seed,
            plan.share,
        ));
        self.start = Some(start);
        self.measurement.begin = Some(begin);
        self.measurement.end = Some(end);
        self.measurement.series = Some(Series::new(begin, plan.duration));
        self.phase = Phase::Running { end };
    }

    fn take(&mut self, token: u64, at: Instant) -> Option<Pending> {
        let pending = self.pending.remove(&token)?;
        if self.pending.len() + 1 == self.plan.concurrency_max {
            self.freed = Some(at);
        }
        Some(pending)
    }

    fn fail(&mut self, token: u64, kind: &str, text: impl Into<String>) {
        if let Some(pending) = self.take(token, now()) {
            Progress::count(&self.progress.errors, 1);
            if pending.measured {
                self.measurement.error(kind, text);
            } else {
                self.measurement.error(&format!("warmup_{kind}"), text);
            }
        }
    }

    fn complete(&mut self, link: LinkId, token: u64, at: Instant) {
        self.to_close.push(link);
        let Some(pending) = self.take(token, at) else {
            return;
        };
        Progress::count(&self.progress.completed, 1);
        let time = at.saturating_duration_since(pending.intended);
        self.measurement.completed_at(at, time);
        if pending.measured {
            self.measurement.completion.record(time);
            let counts = self.measurement.of(Kind::Unary);
            counts.completed += 1;
            if self.exchange {
                counts.reply.record(time);
            }
        }
    }

    /// Dials what is due. True when it dialled, and when the next is due.
    fn serve(&mut self) -> (bool, Option<Instant>) {
        for dialled in 0..DIALS_A_ROUND {
            let Some(intended) = self.schedule.as_ref().and_then(Schedule::peek) else {
                return (dialled > 0, None);
            };
            let at = now();
            if intended > at {
                return (dialled > 0, Some(intended));
            }
            if self.pending.len() >= self.plan.concurrency_max {
                return (dialled > 0, None);
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.take();
            }
            self.token += 1;
            let measured = self
                .measurement
                .begin
                .is_some_and(|begin| intended >= begin);
            let possible = self.freed.map_or(intended, |freed| freed.max(intended));
            let lag = at.saturating_duration_since(possible);
            Progress::count(&self.progress.sent, 1);
            self.measurement.sent_at(at);
            if measured {
                let counts = self.measurement.of(Kind::Unary);
                counts.scheduled += 1;
                counts.sent += 1;
                self.measurement.lag.record(lag);
                self.measurement.wait.record(possible - intended);
                self.measurement.late_sends += u64::from(lag > self.plan.lag_max);
            }
            let give_up = at + self.plan.timeout;
            self.pending.insert(
                self.token,
                Pending {
                    intended,
                    measured,
                    give_up,
                },
            );
            // Of a control thread that has ended nothing comes, so it times out.
            self.dialler.dial(self.token, 0);
        }
        (true, None)
    }

    /// Gives up what takes too long. When the next is due.
    fn expire(&mut self, at: Instant) -> Option<Instant> {
        while let Some((&token, pending)) = self.pending.first_key_value() {
            if pending.give_up > at {
                return Some(pending.give_up);
            }
            let text = format!("no association within {:?}", self.plan.timeout);
            self.fail(token, "timed_out", text);
        }
        None
    }

    fn drop_schedule(&mut self) {
        let Some(mut schedule) = self.schedule.take() else {
            return;
        };
        let (mut measured, mut warmup) = (0, 0);
        while let Some(intended) = schedule.peek() {
            schedule.take();
            if self
                .measurement
                .begin
                .is_some_and(|begin| intended >= begin)
            {
                measured += 1;
            } else {
                warmup += 1;
            }
        }
        self.measurement.of(Kind::Unary).scheduled += measured;
        let text = "still waiting for the concurrency bound";
        self.measurement.errors_of("not_sent", text, measured);
        self.measurement.errors_of("warmup_not_sent", text, warmup);
        Progress::count(&self.progress.errors, measured + warmup);
    }

    fn ask_and_close(&mut self, shard: &mut Shard) -> bool {
        let worked = !self.to_ask.is_empty() || !self.to_close.is_empty();
        for (link, token) in std::mem::take(&mut self.to_ask) {
            self.template.write(&token.to_string(), &mut self.object);
            let sent = message::request(SEND, &token.to_be_bytes(), &self.object)
                .map_err(|error| error.to_string())
                .and_then(|payload| {
                    let frame_type = FrameType(MessageKind::Request.frame_type());
                    shard
                        .send(link, ChannelId::BRIDGE, frame_type, Flags::NONE, payload)
                        .map_err(|error| error.to_string())
                });
            match sent {
                Ok(()) => {
                    if self.pending.get(&token).is_some_and(|dial| dial.measured) {
                        let octets = self.object.len() as u64;
                        self.measurement.of(Kind::Unary).octets_sent += octets;
                    }
                }
                Err(text) => {
                    self.fail(token, "send_refused", text);
                    self.to_close.push(link);
                }
            }
        }
        for link in self.to_close.drain(..) {
            shard.close(link, 0, "done");
        }
        worked
    }
}

impl Handler for Connector {
    fn up(&mut self, link: LinkId, info: &LinkInfo) {
        if let Origin::Dialled { token } = info.origin {
            self.links.insert(link, token);
        }
    }

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        let Some(&token) = self.links.get(&link) else {
            return;
        };
        match event {
            Event::Ready(_) => {
                let at = now();
                let Some(pending) = self.pending.get(&token) else {
                    self.to_close.push(link);
                    return;
                };
                if pending.measured {
                    let time = at.saturating_duration_since(pending.intended);
                    self.measurement.ready.record(time);
                }
                if self.exchange {
                    self.to_ask.push((link, token));
                } else {
                    self.complete(link, token, at);
                }
            }
            Event::Frame {
                frame_type,
                payload: octets,
                ..
            } => {
                let verdict = payload::decode(frame_type.0, octets)
                    .map_err(|error| ("frame_malformed".to_owned(), error.to_string()))
                    .and_then(|frame| {
                        let octets = frame.foreign.len() as u64;
                        judge(Kind::Unary, token, &mut Consumer::default(), 0, &frame)
                            .map(|verdict| (verdict, octets))
                    });
                match verdict {
                    Ok((Verdict::Reply, octets)) => {
                        if self.pending.get(&token).is_some_and(|dial| dial.measured) {
                            self.measurement.of(Kind::Unary).octets_received += octets;
                        }
                        self.complete(link, token, now());
                    }
                    Ok(_) => {}
                    Err((kind, text)) => {
                        self.fail(token, &kind, text);
                        self.to_close.push(link);
                    }
                }
            }
            Event::PeerError { code, text } => {
                self.fail(token, "peer_error", format!("code {code}: {text}"));
            }
            Event::Dropped(_) | Event::Closed(_) => {}
        }
    }

    fn down(&mut self, link: LinkId, reason: &Down) {
        if let Some(token) = self.links.remove(&link) {
            self.fail(token, "association_lost", reason.to_string());
        }
    }
}

impl Work for Connector {
    fn outcome(&mut self, outcome: Outcome, shard: &mut Shard) {
        match outcome {
            Outcome::Joined(handed) => {
                let origin = handed.origin;
                if shard.adopt(*handed, self).is_none()
                    && let Origin::Dialled { token } = origin
                {
                    self.fail(token, "no_room", "no room for another association");
                }
            }
            Outcome::DialFailed { token, error, .. } => {
                self.fail(token, "dial_failed", error.to_string());
            }
        }
    }

    fn work(&mut self, shard: &mut Shard) -> Pace {
        let at = now();
        if let Some(start) = self.start {
            let elapsed = u64::try_from((at - start).as_nanos()).unwrap_or(u64::MAX);
            let shown = elapsed.saturating_add(1);
            self.progress.elapsed.store(shown, Ordering::Relaxed);
        }
        let asked = self.ask_and_close(shard);
        let expiry = self.expire(at);
        if self.gate.is_interrupted()
            && !self.measurement.interrupted
            && matches!(self.phase, Phase::Begin | Phase::Running { .. })
        {
            self.measurement.interrupt(at);
            self.schedule = None;
            let give_up = at + Duration::from_secs(1).min(self.plan.timeout);
            self.phase = Phase::Draining { give_up };
        }
        let look = at + INTERRUPT_LOOK_TIME;
        match self.phase {
            Phase::Begin => match self.gate.start() {
                Some(start) if start <= at => {
                    self.begin(start);
                    Pace::AGAIN
                }
                _ => Pace::until(at + LOOK_TIME),
            },
            Phase::Running { end } => {
                let (dialled, due) = self.serve();
                let exhausted = self
                    .schedule
                    .as_ref()
                    .is_none_or(|schedule| schedule.peek().is_none());
                if exhausted || at >= end + self.plan.timeout {
                    self.drop_schedule();
                    let give_up = now() + self.plan.timeout;
                    self.phase = Phase::Draining { give_up };
                    return Pace::AGAIN;
                }
                Pace {
                    worked: asked || dialled,
                    wake_at: [expiry, due, Some(look)].into_iter().flatten().min(),
                    done: false,
                }
            }
            Phase::Draining { give_up } => {
                if at >= give_up {
                    let kind = if self.measurement.interrupted {
                        "interrupted"
                    } else {
                        "timed_out"
                    };
                    let left: Vec<u64> = self.pending.keys().copied().collect();
                    for token in left {
                        self.fail(token, kind, "not completed when the run ended");
                    }
                }
                if self.pending.is_empty() {
                    self.to_close.extend(self.links.keys().copied());
                    let give_up = now() + 2 * limits::CLOSE_TIME;
                    self.phase = Phase::Closing { give_up };
                    return Pace::AGAIN;
                }
                Pace {
                    worked: asked,
                    wake_at: [expiry, Some(give_up), Some(look)]
                        .into_iter()
                        .flatten()
                        .min(),
                    done: false,
                }
            }
            Phase::Closing { give_up } => Pace {
                worked: asked,
                wake_at: Some(give_up),
                done: shard.links() == 0 || at >= give_up,
            },
        }
    }
}
