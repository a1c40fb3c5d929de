//! The association itself: what its owner calls, what it seals when, its
//! deadlines and its end. `receive` judges frames, `greeting` does HELLO. It
//! keeps no received frame beyond the call that brought it.
//!
//! Serves the N-PAMP draft, Reserved Frame Types, CLOSE Frame, Channel
//! Architecture, Replay; NPAMP-HELLO §3–§6; rulings R1–R6, R21, R24.

mod batch;
mod greeting;
mod receive;

use self::batch::Waiting;
use self::greeting::Greeting;
use super::channel::{Channel, KeySource, Unsealed};
use super::config::{AssociationConfig, HelloMode};
use super::error::{AssociationError, Code, DropReason, SendError};
use super::event::{AssociationStats, CloseReason, Event};
use super::outbound::{Outbound, Own};
use super::phase::{Move, Phase};
use super::report;
use crate::crypto::{IdentityPublic, Random, TAG_LEN, UpdateBounds};
use crate::handshake::{Established, Side};
use crate::limits;
use crate::wire::{ChannelId, Deframer, Flags, FrameType, Header};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First and number of the GREASE code points (N-PAMP draft, Reserved Channel-ID Range).
const GREASE_FIRST: u16 = 0xf000;
const GREASE_COUNT: u16 = 0x0fff;

/// An established association.
///
/// Dropping it, or sealing its last frame, zeroizes every key it holds.
pub struct Association {
    deframer: Deframer,
    machine: Machine,
}

struct Machine {
    config: Arc<AssociationConfig>,
    identity: IdentityPublic,
    side: Side,
    bounds: UpdateBounds,
    /// Gone once the last frame is sealed.
    keys: Option<KeySource>,
    channels: Vec<Channel>,
    outbound: Outbound,
    phase: Phase,
    failure: Option<AssociationError>,
    hello: Greeting,
    /// Latest `now` that any call brought.
    clock: Instant,
    /// When the last octet arrived.
    heard: Instant,
    hello_due: Instant,
    /// By when an octet must arrive, while a probe is out.
    probe_due: Option<Instant>,
    /// By when CLOSE_ACK must arrive; set by the first call after `close` that
    /// knows the time.
    close_due: Option<Instant>,
    probes: u64,
    tag_failures: u32,
    stats: AssociationStats,
}

impl Association {
    /// Takes over an established handshake. The initiator's HELLO is queued at
    /// once. `grease` picks the GREASE value; nothing of security rests on it.
    pub fn new(
        established: Established,
        config: Arc<AssociationConfig>,
        grease: &mut dyn Random,
        now: Instant,
    ) -> Self {
        let Established {
            side,
            profile,
            suite,
            master,
            peer,
        } = established;
        let mut octets = [0; 2];
        grease.fill(&mut octets);
        let grease = GREASE_FIRST + u16::from_be_bytes(octets) % GREASE_COUNT;
        let mut channels = vec![Channel::new(ChannelId::CONTROL)];
        for &id in &config.channels {
            if channels.iter().all(|channel| channel.id != id) {
                channels.push(Channel::new(id));
            }
        }
        let mut machine = Machine {
            bounds: config
                .update_bounds
                .unwrap_or(profile.parameters().update_bounds),
            identity: peer,
            side,
            keys: Some(KeySource {
                master,
                suite,
                side,
            }),
            channels,
            outbound: Outbound::new(config.queue_octets_max),
            phase: Phase::AwaitHello,
            failure: None,
            hello: Greeting {
                grease: u64::from(grease),
                ..Greeting::default()
            },
            clock: now,
            heard: now,
            hello_due: now + config.hello_time,
            probe_due: None,
            close_due: None,
            probes: 0,
            tag_failures: 0,
            stats: AssociationStats::default(),
            config,
        };
        if side == Side::Initiator {
            machine.queue_hello();
        }
        Self {
            deframer: Deframer::new(machine.config.frame_octets_max),
            machine,
        }
    }

    /// Takes received octets: deframes, opens in place, and reports what came.
    ///
    /// # Errors
    /// The association failed, now or before. [`Event::Closed`] was reported;
    /// transmit what [`Association::poll_transmit`] gives, then drop the link.
    pub fn handle_octets(
        &mut self,
        octets: &mut [u8],
        now: Instant,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), AssociationError> {
        let Self { deframer, machine } = self;
        machine.tick(now);
        if let Some(failure) = &machine.failure {
            return Err(failure.clone());
        }
        if machine.phase == Phase::Ended || octets.is_empty() {
            return Ok(());
        }
        machine.stats.octets_received += octets.len() as u64;
        machine.heard = now;
        machine.probe_due = None;
        let result = machine.handle_frames(deframer, octets, on_event);
        match result {
            Err(error) if machine.failure.is_none() && machine.phase != Phase::Ended => {
                // A header error: the deframer's own, so the machine does not know yet.
                Err(machine.fail(error, on_event))
            }
            // Octets behind an orderly CLOSE that do not even frame concern nobody.
            Err(_) if machine.failure.is_none() => Ok(()),
            result => result,
        }
    }

    /// Queues a frame, unsealed. `flags` may hold URG; ENC is understood.
    ///
    /// # Errors
    /// Nothing was queued, see [`SendError`].
    pub fn send(
        &mut self,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: Vec<u8>,
    ) -> Result<(), SendError> {
        let machine = &mut self.machine;
        match machine.phase {
            Phase::AwaitHello => return Err(SendError::NotReady),
            Phase::Ready => {}
            Phase::Closing | Phase::Ended => return Err(SendError::Closed),
        }
        if channel == ChannelId::CONTROL || !frame_type.is_channel_specific() {
            return Err(SendError::FrameTypeReserved);
        }
        if flags.0 & !(Flags::URG.0 | Flags::ENC.0) != 0 {
            return Err(SendError::FlagUnsupported);
        }
        if !machine
            .channel(channel)
            .is_some_and(|channel| channel.peer_takes)
        {
            return Err(SendError::ChannelUnadvertised);
        }
        if payload.len() + Header::LEN + TAG_LEN > machine.config.frame_octets_max {
            return Err(SendError::FrameTooLarge);
        }
        machine.outbound.push(Unsealed {
            channel,
            frame_type,
            flags,
            payload,
        })
    }

    /// Queues an ERROR on `channel` about what the peer sent there (ruling R26).
    /// `false`, and nothing was queued, when the association is not in use, the
    /// peer does not take the channel, or as many ERRORs wait as may.
    pub fn report(&mut self, channel: ChannelId, code: impl Into<Code>, text: &str) -> bool {
        let machine = &mut self.machine;
        machine.phase == Phase::Ready
            && machine
                .channel(channel)
                .is_some_and(|channel| channel.peer_takes)
            && machine.outbound.push_own(
                Own::Error,
                channel,
                FrameType::ERROR,
                report::body(code.into(), text),
            )
    }

    /// Seals waiting frames onto `out`: the association's own first, then URG,
    /// then one of each channel in turn. Stops once `out` grew by `octets_max`
    /// or more; a frame is never split. Gives the number of frames sealed.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, octets_max: usize, now: Instant) -> usize {
        self.machine.tick(now);
        self.machine.transmit(out, octets_max, now)
    }

    /// Octets that wait to be sealed, headers and tags included.
    pub fn queued_octets(&self) -> usize {
        self.machine.outbound.octets()
    }

    /// Octets of a frame that has not arrived whole.
    pub fn held_octets(&self) -> usize {
        self.deframer.held_octets()
    }

    /// When [`Association::handle_timeout`] is due next, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.machine.timeout()
    }

    /// Does what is due. Call [`Association::poll_transmit`] afterwards.
    ///
    /// # Errors
    /// As for [`Association::handle_octets`].
    pub fn handle_timeout(
        &mut self,
        now: Instant,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), AssociationError> {
        self.machine.tick(now);
        self.machine.handle_timeout(now, on_event)
    }

    /// Closes: drops what waits and sends CLOSE, then nothing more.
    /// [`Event::Closed`] follows with the CLOSE_ACK or after the close time. Who
    /// wants the queue to go out first waits for [`Association::queued_octets`]
    /// to reach zero. Does nothing on an association that is closing or over.
    pub fn close(&mut self, code: impl Into<Code>, text: &str) {
        let machine = &mut self.machine;
        if machine.phase.step(Move::Close).is_ok() {
            let close = own_frame(FrameType::CLOSE, report::body(code.into(), text));
            machine.outbound.end([close]);
        }
    }

    /// Whether the association is over: [`Event::Closed`] was reported. The last
    /// frames may still wait in [`Association::poll_transmit`].
    pub fn is_closed(&self) -> bool {
        self.machine.phase == Phase::Ended
    }

    /// Begins a new epoch of `channel` in our direction, before the next frame.
    pub fn update_keys(&mut self, channel: ChannelId) {
        if let Some(channel) = self.machine.channel(channel) {
            channel.request_update();
        }
    }

    /// Which side of the handshake this is.
    pub fn side(&self) -> Side {
        self.machine.side
    }

    /// What was counted.
    pub fn stats(&self) -> &AssociationStats {
        &self.machine.stats
    }
}

impl std::fmt::Debug for Association {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Association")
            .field("phase", &self.machine.phase)
            .field("queued_octets", &self.machine.outbound.octets())
            .finish_non_exhaustive()
    }
}

/// The owner's ear.
type OnEvent<'e> = &'e mut dyn FnMut(Event<'_>);

impl Machine {
    fn channel(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.channels.iter_mut().find(|channel| channel.id == id)
    }

    /// Every call that knows the time comes through here.
    fn tick(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        if self.phase == Phase::Closing && self.close_due.is_none() {
            self.close_due = Some(now + self.config.close_time);
        }
    }

    // Answers, drops and ends

    fn queue_own(&mut self, frame_type: FrameType, payload: Vec<u8>) {
        self.outbound
            .push_own(Own::Initiative, ChannelId::CONTROL, frame_type, payload);
    }

    fn reply(
        &mut self,
        channel: ChannelId,
        frame_type: FrameType,
        payload: Vec<u8>,
        on_event: OnEvent<'_>,
    ) {
        // After CLOSE nothing but CLOSE goes out, and that is no flood.
        if self.phase != Phase::Closing
            && !self
                .outbound
                .push_own(Own::Reply, channel, frame_type, payload)
        {
            self.drop_frame(DropReason::ReplyFlood, on_event);
        }
    }

    fn drop_frame(&mut self, reason: DropReason, on_event: OnEvent<'_>) {
        self.stats.dropped.count(reason);
        on_event(Event::Dropped(reason));
    }

    /// Drops a frame and tells the peer. Errors are never answered.
    fn refuse(&mut self, header: &Header, reason: DropReason, on_event: OnEvent<'_>) {
        self.drop_frame(reason, on_event);
        if header.frame_type == FrameType::ERROR {
            return;
        }
        let (code, what) = match reason {
            DropReason::FlagUnsupported => (Code::UNSUPPORTED, "FRAG and COMP are not supported"),
            DropReason::PingOversize => (Code::OVERSIZE, "PING is too long to be echoed"),
            DropReason::ControlOversize => (Code::OVERSIZE, "Control frame is too long"),
            DropReason::HandshakeFrame => (Code::PROTOCOL, "the handshake is over"),
            DropReason::HelloDoneUnexpected => (Code::PROTOCOL, "HELLO_DONE is not due"),
            _ => (Code::UNSUPPORTED, "frame type is not supported"),
        };
        let text = format!("{what} (frame type {})", header.frame_type);
        let body = report::body(code, &text);
        self.outbound
            .push_own(Own::Error, header.channel, FrameType::ERROR, body);
    }

    /// Ruling R24: dropped, counted, and borne only so often.
    fn unauthentic(
        &mut self,
        reason: DropReason,
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        self.stats.security_events += 1;
        self.tag_failures += 1;
        self.drop_frame(reason, on_event);
        if self.tag_failures > limits::TAG_FAILURES_MAX {
            return Err(self.fail(AssociationError::TagFailures, on_event));
        }
        Ok(())
    }

    fn fail(&mut self, error: AssociationError, on_event: OnEvent<'_>) -> AssociationError {
        let code = error.code();
        let text = error.to_string();
        let close = own_frame(FrameType::CLOSE, report::body(code, &text));
        let report = error
            .reports()
            .then(|| own_frame(FrameType::ERROR, report::body(code, &text)));
        // Nothing follows a CLOSE of ours that is out already.
        let last: Vec<Unsealed> = match self.phase {
            Phase::Closing if self.outbound.is_empty() => Vec::new(),
            Phase::Closing => vec![close],
            _ => report.into_iter().chain([close]).collect(),
        };
        self.failure = Some(error.clone());
        self.end(
            Move::Failed,
            last,
            CloseReason::Failed(error.clone()),
            on_event,
        );
        error
    }

    fn end(
        &mut self,
        by: Move,
        last: impl IntoIterator<Item = Unsealed>,
        reason: CloseReason,
        on_event: OnEvent<'_>,
    ) {
        if self.phase.step(by).is_ok() {
            self.outbound.end(last);
            if self.outbound.is_empty() {
                self.wipe();
            }
            on_event(Event::Closed(reason));
        }
    }

    /// Drops, and thereby zeroizes, every key.
    fn wipe(&mut self) {
        self.keys = None;
        self.channels = Vec::new();
    }

    // Sending

    fn transmit(&mut self, out: &mut Vec<u8>, octets_max: usize, now: Instant) -> usize {
        let start = out.len();
        let frames_before = self.stats.frames_sealed;
        let open = matches!(self.phase, Phase::AwaitHello | Phase::Ready);
        let Some(keys) = &self.keys else {
            return 0;
        };
        let channels = &mut self.channels[..];
        let mut waiting = Waiting::new(start);
        while out.len() - start < octets_max {
            let requested = channels
                .iter()
                .position(|channel| open && channel.update_requested());
            let frame = match requested {
                Some(_) => None,
                None => self.outbound.pop(),
            };
            let at = match &frame {
                Some(frame) => channels
                    .iter()
                    .position(|channel| channel.id == frame.channel),
                None => requested,
            };
            let Some(at) = at else {
                if frame.is_some() {
                    continue;
                }
                break;
            };
            let due = frame.as_ref().is_none_or(|frame| {
                open && channels[at].update_due(frame.payload.len(), &self.bounds, now)
            });
            if due {
                let header = channels[at].append_update(keys, now, out);
                waiting.push(channels, at, header, out);
                waiting.seal(channels, out);
                channels[at].next_epoch();
                self.stats.key_updates_sent += 1;
                self.stats.frames_sealed += 1;
            }
            if let Some(frame) = frame {
                let header = channels[at].append(keys, &frame, now, out);
                waiting.push(channels, at, header, out);
                self.stats.frames_sealed += 1;
            }
        }
        waiting.seal(channels, out);
        self.stats.octets_sealed += (out.len() - start) as u64;
        if self.phase == Phase::Ended && self.outbound.is_empty() {
            self.wipe();
        }
        (self.stats.frames_sealed - frames_before) as usize
    }

    // Time

    fn timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Ended => None,
            // Without a deadline yet: due at once, to get one.
            Phase::Closing => Some(self.close_due.unwrap_or(self.clock)),
            Phase::AwaitHello => Some(self.hello_due),
            Phase::Ready => {
                let probe = self.probed().then(|| {
                    self.probe_due
                        .unwrap_or(self.heard + self.config.idle_probe_time)
                });
                let updates = self
                    .channels
                    .iter()
                    .filter(|channel| !channel.update_requested())
                    .filter_map(|channel| channel.update_time(&self.bounds));
                probe.into_iter().chain(updates).min()
            }
        }
    }

    /// A peer without HELLO is not probed, see [`HelloMode::Optional`].
    fn probed(&self) -> bool {
        self.hello.agreed && self.config.idle_probe_time > Duration::ZERO
    }

    fn handle_timeout(
        &mut self,
        now: Instant,
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        match self.phase {
            Phase::Ended => {}
            Phase::Closing => {
                if self.close_due.is_some_and(|due| now >= due) {
                    self.end(Move::CloseTimedOut, [], CloseReason::LocalTimeout, on_event);
                }
            }
            Phase::AwaitHello => {
                if now >= self.hello_due {
                    match self.config.hello {
                        HelloMode::Required => {
                            return Err(self.fail(AssociationError::HelloTimeout, on_event));
                        }
                        HelloMode::Optional => self.forgo_hello(on_event),
                    }
                }
            }
            Phase::Ready => {
                if self.probed() {
                    if self.probe_due.is_some_and(|due| now >= due) {
                        return Err(self.fail(AssociationError::PeerDead, on_event));
                    }
                    if self.probe_due.is_none() && now >= self.heard + self.config.idle_probe_time {
                        self.probes += 1;
                        self.stats.probes += 1;
                        self.probe_due = Some(now + self.config.probe_timeout);
                        self.queue_own(FrameType::PING, self.probes.to_be_bytes().to_vec());
                    }
                }
                for channel in &mut self.channels {
                    if channel
                        .update_time(&self.bounds)
                        .is_some_and(|due| now >= due)
                    {
                        channel.request_update();
                    }
                }
            }
        }
        Ok(())
    }
}

fn own_frame(frame_type: FrameType, payload: Vec<u8>) -> Unsealed {
    Unsealed {
        channel: ChannelId::CONTROL,
        frame_type,
        flags: Flags::NONE,
        payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Hash, MasterSecret, Profile, SeededRandom, Suite};

    /// Handshake binding, Forward secrecy and key erasure: no key outlives the last frame.
    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "a virtual clock starts somewhere"
    )]
    fn keys_are_gone_with_the_last_frame() {
        let now = Instant::now();
        let established = Established {
            side: Side::Responder,
            profile: Profile::Standard,
            suite: Suite::Aes256Gcm,
            master: MasterSecret::from_octets(Hash::Sha256, &[1; 32]).unwrap(),
            peer: IdentityPublic::from_octets([2; 32]),
        };
        let config = Arc::new(AssociationConfig::new(HelloMode::Required));
        let random = &mut SeededRandom::new(1);
        let mut association = Association::new(established, config, random, now);
        let late = now + limits::HANDSHAKE_TIME;
        association
            .handle_timeout(late, &mut |_| ())
            .expect_err("no HELLO came");
        assert!(association.machine.keys.is_some(), "CLOSE is to be sealed");
        assert_eq!(association.poll_transmit(&mut Vec::new(), 1, late), 1);
        assert!(association.machine.keys.is_none());
        assert!(association.machine.channels.is_empty());
    }
}
