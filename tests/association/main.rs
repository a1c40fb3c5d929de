//! Associations on a virtual clock: one against a puppet that may send
//! anything, and two against each other under random traffic.

use npamp_relay::association::{
    Association, AssociationConfig, AssociationError, CloseReason, Code, DropReason, Event,
    Failure, Hello, HelloMode, ParamValue, Peer, SendError,
};
use npamp_relay::crypto::{Identity, SeededRandom, TAG_LEN, UpdateBounds};
use npamp_relay::handshake::{
    Established, HandshakeError, Initiator, InitiatorConfig, PeerPolicy, Progress, Responder,
    ResponderConfig, Side,
};
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Deframer, Flags, FrameType, Header, HeaderError};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONTROL: ChannelId = ChannelId::CONTROL;
const BRIDGE: ChannelId = ChannelId::BRIDGE;
const DISCOVERY: ChannelId = ChannelId::DISCOVERY;

/// Both ends of a real handshake.
fn established() -> (Established, Established) {
    let mut random = SeededRandom::new(3);
    let [ours, theirs] = [1, 2].map(|seed| Arc::new(Identity::from_seed(&[seed; 32])));
    let peers = PeerPolicy::only(ours.public());
    let pinned = Some(theirs.public());
    let mut initiator = Initiator::new(InitiatorConfig::new(ours, pinned), &mut random);
    let mut responder = Responder::new(ResponderConfig::new(theirs, peers), &mut random);
    let mut done = (None, None);
    for _ in 0..2 {
        let mut octets = Vec::new();
        initiator.poll_transmit(&mut octets);
        let established = each_frame(&mut octets, |header, payload| {
            responder.handle_frame(header, payload)
        });
        done.1 = established.or(done.1);
        let mut octets = Vec::new();
        responder.poll_transmit(&mut octets);
        let established = each_frame(&mut octets, |header, payload| {
            initiator.handle_frame(header, payload)
        });
        done.0 = established.or(done.0);
    }
    (*done.0.unwrap(), *done.1.unwrap())
}

fn each_frame(
    octets: &mut [u8],
    mut handle: impl FnMut(&Header, &mut [u8]) -> Result<Progress, HandshakeError>,
) -> Option<Box<Established>> {
    let mut done = None;
    Deframer::new(limits::FRAME_OCTETS_MAX)
        .push(octets, |header, payload| {
            if let Progress::Done(established) = handle(&header, payload).unwrap() {
                done = Some(established);
            }
            Ok::<(), HeaderError>(())
        })
        .unwrap();
    done
}

fn config(hello: HelloMode) -> AssociationConfig {
    AssociationConfig::new(hello)
}

/// An event that outlives the octets it came in.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Ready(Peer),
    Frame(ChannelId, FrameType, Vec<u8>),
    PeerError(u16, String),
    Closed(CloseReason),
    Dropped(DropReason),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Ready(peer) => Self::Ready(peer),
            Event::Frame {
                channel,
                frame_type,
                payload,
            } => Self::Frame(channel, frame_type, payload.to_vec()),
            Event::PeerError { code, text } => Self::PeerError(code, text.to_owned()),
            Event::Closed(reason) => Self::Closed(reason),
            Event::Dropped(reason) => Self::Dropped(reason),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Space {
    epoch: u64,
    sequence: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Got {
    channel: ChannelId,
    frame_type: FrameType,
    sequence: u64,
    payload: Vec<u8>,
}

/// The other end, which keeps no rule of its own.
struct Puppet {
    established: Established,
    sending: BTreeMap<ChannelId, Space>,
    receiving: BTreeMap<ChannelId, Space>,
}

impl Puppet {
    /// A sealed frame at any place of any epoch.
    fn seal_at(
        &self,
        at: Space,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: &[u8],
    ) -> Vec<u8> {
        let key = self.established.master.traffic_key(
            self.established.side.send_direction(),
            at.epoch,
            self.established.suite,
            channel,
        );
        let header = Header {
            flags: flags | Flags::ENC,
            frame_type,
            channel,
            sequence: at.sequence,
            payload_length: (payload.len() + TAG_LEN) as u32,
        };
        let mut frame = vec![0; Header::LEN];
        frame.extend_from_slice(payload);
        frame.resize(frame.len() + TAG_LEN, 0);
        key.seal(&header, &mut frame);
        frame
    }

    /// The next frame of a channel.
    fn seal_flagged(
        &mut self,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: &[u8],
    ) -> Vec<u8> {
        let at = *self.sending.entry(channel).or_default();
        self.sending.entry(channel).or_default().sequence += 1;
        self.seal_at(at, channel, frame_type, flags, payload)
    }

    fn seal(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) -> Vec<u8> {
        self.seal_flagged(channel, frame_type, Flags::NONE, payload)
    }

    fn next_epoch(&mut self, channel: ChannelId) {
        let space = self.sending.entry(channel).or_default();
        *space = Space {
            epoch: space.epoch + 1,
            sequence: 0,
        };
    }

    fn key_update(&mut self, channel: ChannelId) -> Vec<u8> {
        let epoch = self.sending.entry(channel).or_default().epoch + 1;
        let frame = self.seal(channel, FrameType::KEY_UPDATE, &marker(epoch));
        self.next_epoch(channel);
        frame
    }

    /// Opens frames of the association, which must be in perfect order.
    fn read(&mut self, mut octets: Vec<u8>) -> Vec<Got> {
        let direction = self.established.side.receive_direction();
        let mut frames = Vec::new();
        Deframer::new(limits::FRAME_OCTETS_MAX)
            .push(&mut octets, |header, payload| {
                let space = self.receiving.entry(header.channel).or_default();
                assert_eq!(header.sequence, space.sequence, "sequence without a gap");
                let key = self.established.master.traffic_key(
                    direction,
                    space.epoch,
                    self.established.suite,
                    header.channel,
                );
                let payload = key.open(&header, payload).expect("authentic").to_vec();
                space.sequence += 1;
                if header.frame_type == FrameType::KEY_UPDATE {
                    assert_eq!(payload, marker(space.epoch + 1));
                    *space = Space {
                        epoch: space.epoch + 1,
                        sequence: 0,
                    };
                }
                frames.push(Got {
                    channel: header.channel,
                    frame_type: header.frame_type,
                    sequence: header.sequence,
                    payload,
                });
                Ok::<(), HeaderError>(())
            })
            .expect("well-formed headers");
        frames
    }
}

fn marker(epoch: u64) -> Vec<u8> {
    [&[0, 0x17, 0, 8][..], &epoch.to_be_bytes()].concat()
}

fn hello_payload(version: u64, protocols: &[u64]) -> Vec<u8> {
    Hello {
        version,
        protocols: protocols.to_vec(),
        params: Vec::new(),
    }
    .encode(0xf00f)
}

/// The association under test and the puppet.
struct Rig {
    association: Association,
    puppet: Puppet,
    now: Instant,
}

type Outcome = (Result<(), AssociationError>, Vec<Seen>);

impl Rig {
    fn new(side: Side, config: AssociationConfig) -> Self {
        let (initiator, responder) = established();
        let (ours, theirs) = match side {
            Side::Initiator => (initiator, responder),
            Side::Responder => (responder, initiator),
        };
        let now = Instant::now();
        Self {
            association: Association::new(ours, Arc::new(config), &mut SeededRandom::new(7), now),
            puppet: Puppet {
                established: theirs,
                sending: BTreeMap::new(),
                receiving: BTreeMap::new(),
            },
            now,
        }
    }

    /// A responder that has exchanged HELLO with the puppet.
    fn ready_with(config: AssociationConfig) -> Self {
        let mut rig = Self::new(Side::Responder, config);
        let hello = hello_payload(1, &[0x02, 0x0d, 0x10, 0]);
        let (result, seen) = rig.send(CONTROL, FrameType::HELLO, &hello);
        assert!(result.is_ok());
        assert!(matches!(&seen[..], [Seen::Ready(_)]), "{seen:?}");
        assert_eq!(
            rig.types(),
            [
                (CONTROL, FrameType::HELLO),
                (CONTROL, FrameType::HELLO_DONE)
            ]
        );
        rig
    }

    fn ready() -> Self {
        Self::ready_with(config(HelloMode::Required))
    }

    fn deliver(&mut self, mut octets: Vec<u8>) -> Outcome {
        let mut seen = Vec::new();
        let result = self
            .association
            .handle_octets(&mut octets, self.now, &mut |event| seen.push(event.into()));
        (result, seen)
    }

    fn send(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) -> Outcome {
        let octets = self.puppet.seal(channel, frame_type, payload);
        self.deliver(octets)
    }

    fn transmit(&mut self) -> Vec<Got> {
        let mut out = Vec::new();
        let frames = self
            .association
            .poll_transmit(&mut out, usize::MAX, self.now);
        let got = self.puppet.read(out);
        assert_eq!(got.len(), frames);
        got
    }

    fn types(&mut self) -> Vec<(ChannelId, FrameType)> {
        let frames = self.transmit();
        frames.iter().map(|f| (f.channel, f.frame_type)).collect()
    }

    fn advance(&mut self, by: Duration) -> Outcome {
        self.now += by;
        let mut seen = Vec::new();
        let result = self
            .association
            .handle_timeout(self.now, &mut |event| seen.push(event.into()));
        (result, seen)
    }

    /// Runs the clock to the next deadline.
    fn advance_to_timeout(&mut self) -> Outcome {
        let due = self.association.poll_timeout().expect("a deadline");
        self.advance(due - self.now)
    }

    /// The association has failed for `failure`, told it once, and says goodbye.
    fn assert_failed(&mut self, (result, seen): Outcome, failure: Failure) {
        let error = result.expect_err("fatal");
        assert_eq!(error.reason(), failure);
        assert_eq!(
            seen.last(),
            Some(&Seen::Closed(CloseReason::Failed(error.clone())))
        );
        assert!(self.association.is_closed());
        assert_eq!(self.association.poll_timeout(), None);
        let silent = matches!(failure, Failure::HelloTimeout | Failure::PeerDead);
        let all = self.transmit();
        let last: Vec<_> = all.iter().rev().take(if silent { 1 } else { 2 }).collect();
        assert_eq!(last[0].frame_type, FrameType::CLOSE);
        assert_eq!(last[0].payload[..2], error.code().0.to_be_bytes());
        if !silent {
            assert_eq!(last[1].frame_type, FrameType::ERROR);
        }
        // The error sticks, and nothing follows the CLOSE.
        assert_eq!(self.deliver(vec![0; 4]), (Err(error), vec![]));
        assert_eq!(
            self.association
                .send(BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, vec![]),
            Err(SendError::Closed)
        );
        assert_eq!(self.transmit(), []);
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.association.stats().dropped.get(reason)
    }
}

fn queue(rig: &mut Rig, payload: &[u8]) {
    rig.association
        .send(
            BRIDGE,
            FrameType::BRIDGE_NOTIFY,
            Flags::NONE,
            payload.to_vec(),
        )
        .unwrap();
}

fn error_codes(frames: &[Got]) -> Vec<u16> {
    frames
        .iter()
        .filter(|frame| frame.frame_type == FrameType::ERROR)
        .map(|frame| u16::from_be_bytes([frame.payload[0], frame.payload[1]]))
        .collect()
}

// HELLO

/// NPAMP-HELLO §3, §9.1: exactly one HELLO as first Control frame, then
/// HELLO_DONE; ruling R5: initiator first, version 1, one list; §4: GREASE.
#[test]
fn initiator_says_hello_first() {
    let mut config = config(HelloMode::Required);
    config.params = vec![("server-name".into(), ParamValue::Text("a.example".into()))];
    let mut rig = Rig::new(Side::Initiator, config);
    let frames = rig.transmit();
    assert_eq!(frames.len(), 2);
    assert_eq!(
        (frames[0].frame_type, frames[0].sequence),
        (FrameType::HELLO, 0)
    );
    assert_eq!(
        (frames[1].frame_type, frames[1].sequence),
        (FrameType::HELLO_DONE, 1)
    );
    let hello = Hello::decode(&frames[0].payload).unwrap();
    assert_eq!(hello.version, 1);
    assert_eq!(hello.protocols, [0x02, 0x0d, 0x10, 0x00]);
    assert_eq!(
        hello.param("server-name"),
        Some(&ParamValue::Text("a.example".into()))
    );
    // Key 3 comes last: an array of one value in 0xF000–0xFFFE.
    let grease = &frames[0].payload[frames[0].payload.len() - 5..];
    assert_eq!(grease[..3], [3, 0x81, 0x19]);
    assert!((0xf0..=0xff).contains(&grease[3]) && grease[3..] != [0xff, 0xff]);
    assert_eq!(
        rig.association
            .send(BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, vec![]),
        Err(SendError::NotReady)
    );

    let answer = hello_payload(1, &[0x10, 0x02, 0x77]);
    let (result, seen) = rig.send(CONTROL, FrameType::HELLO, &answer);
    result.unwrap();
    let [Seen::Ready(peer)] = &seen[..] else {
        panic!("{seen:?}")
    };
    // NPAMP-HELLO §5: the initiator's order.
    assert_eq!(peer.selected, [0x02, 0x10]);
    assert!(peer.selects(0x02) && !peer.selects(0x0d));
    assert_eq!(peer.hello.as_ref().unwrap().protocols, [0x10, 0x02, 0x77]);
    rig.send(CONTROL, FrameType::HELLO_DONE, &[]).0.unwrap();
    assert_eq!(rig.transmit(), [], "no second HELLO");
}

/// Ruling R5: the responder answers after reading.
#[test]
fn responder_answers_after_reading() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    assert_eq!(rig.transmit(), []);
    let (_, seen) = rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[0x0d, 0x02]));
    let [Seen::Ready(peer)] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(peer.selected, [0x0d, 0x02]);
    assert_eq!(
        rig.types(),
        [
            (CONTROL, FrameType::HELLO),
            (CONTROL, FrameType::HELLO_DONE)
        ]
    );
}

/// NPAMP-HELLO §9: a set without overlap selects nothing, and is no error.
#[test]
fn empty_selection() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    let (result, seen) = rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[0x01]));
    result.unwrap();
    assert!(matches!(&seen[..], [Seen::Ready(peer)] if peer.selected.is_empty()));
    // N-PAMP draft, Channel Architecture: nothing goes to a channel that the peer did not advertise.
    assert_eq!(
        rig.association
            .send(BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, vec![]),
        Err(SendError::ChannelUnadvertised)
    );
}

/// NPAMP-HELLO §6: a higher proposal is answered with ours, anything else closes.
#[test]
fn version_negotiation() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    rig.send(CONTROL, FrameType::HELLO, &hello_payload(9, &[2]))
        .0
        .unwrap();
    let frames = rig.transmit();
    assert_eq!(Hello::decode(&frames[0].payload).unwrap().version, 1);

    for (side, version) in [
        (Side::Responder, 0),
        (Side::Initiator, 0),
        (Side::Initiator, 2),
    ] {
        let mut rig = Rig::new(side, config(HelloMode::Required));
        let outcome = rig.send(CONTROL, FrameType::HELLO, &hello_payload(version, &[2]));
        rig.assert_failed(outcome, Failure::HelloVersion);
    }
}

/// NPAMP-HELLO §4: a negative key, or no HELLO at all, closes; in both modes.
#[test]
fn malformed_hello_closes() {
    for mode in [HelloMode::Required, HelloMode::Optional] {
        for payload in [&[0xa3, 0, 1, 1, 0x80, 0x20, 0][..], &[0xa0], b"ack", &[]] {
            let mut rig = Rig::new(Side::Responder, config(mode));
            let outcome = rig.send(CONTROL, FrameType::HELLO, payload);
            rig.assert_failed(outcome, Failure::HelloMalformed);
        }
    }
}

/// NPAMP-HELLO §3: exactly one HELLO, and nothing advertised after HELLO_DONE.
#[test]
fn second_hello_closes() {
    let mut rig = Rig::ready();
    let outcome = rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[2]));
    rig.assert_failed(outcome, Failure::HelloRepeated);

    let mut rig = Rig::ready();
    rig.send(CONTROL, FrameType::HELLO_DONE, &[]).0.unwrap();
    let outcome = rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[2]));
    rig.assert_failed(outcome, Failure::HelloRepeated);
}

#[test]
fn second_hello_done_is_refused() {
    let mut rig = Rig::ready();
    rig.send(CONTROL, FrameType::HELLO_DONE, &[]).0.unwrap();
    let (result, seen) = rig.send(CONTROL, FrameType::HELLO_DONE, &[]);
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::HelloDoneUnexpected)]);
    assert_eq!(error_codes(&rig.transmit()), [Code::PROTOCOL.0]);
}

/// Ruling R6: required HELLO closes on anything before it.
#[test]
fn required_hello_admits_nothing_before_it() {
    for side in [Side::Initiator, Side::Responder] {
        for (channel, frame_type) in [
            (BRIDGE, FrameType::BRIDGE_REQUEST),
            (CONTROL, FrameType::HELLO_DONE),
            (CONTROL, FrameType(0x0200)),
        ] {
            let mut rig = Rig::new(side, config(HelloMode::Required));
            let outcome = rig.send(channel, frame_type, &[]);
            rig.assert_failed(outcome, Failure::HelloMissing);
        }
    }
}

/// NPAMP-CH-0000 §3.1: the all-channel types are no application frames.
#[test]
fn ping_may_come_before_hello() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    rig.send(CONTROL, FrameType::PING, b"x").0.unwrap();
    assert_eq!(rig.types(), [(CONTROL, FrameType::PONG)]);
    let hello = hello_payload(1, &[2]);
    let (_, seen) = rig.send(CONTROL, FrameType::HELLO, &hello);
    assert!(matches!(&seen[..], [Seen::Ready(_)]));
}

#[test]
fn hello_timeout() {
    for side in [Side::Initiator, Side::Responder] {
        let mut rig = Rig::new(side, config(HelloMode::Required));
        let (result, seen) = rig.advance(limits::HANDSHAKE_TIME * 99 / 100);
        assert!(result.is_ok() && seen.is_empty());
        let outcome = rig.advance_to_timeout();
        rig.assert_failed(outcome, Failure::HelloTimeout);
    }
}

/// NPAMP-HELLO §9: an altered HELLO does not authenticate, and its absence is noticed.
#[test]
fn stripped_hello_is_noticed() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    let mut octets = rig
        .puppet
        .seal(CONTROL, FrameType::HELLO, &hello_payload(1, &[2]));
    octets[40] ^= 1;
    let (result, seen) = rig.deliver(octets);
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
    let outcome = rig.advance_to_timeout();
    rig.assert_failed(outcome, Failure::HelloTimeout);
}

/// Ruling R6: Bridge first is accepted where HELLO is optional, with Control and Bridge only.
#[test]
fn optional_hello_admits_bridge_first() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Optional));
    // Discovery was not agreed on, whatever we offer.
    let (_, seen) = rig.send(BRIDGE, FrameType::BRIDGE_REQUEST, b"q");
    let [
        Seen::Ready(peer),
        Seen::Frame(BRIDGE, FrameType::BRIDGE_REQUEST, payload),
    ] = &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert_eq!(payload, b"q");
    assert_eq!(peer.hello, None);
    assert_eq!(peer.selected, [0x02, 0x0d, 0x00]);
    let (_, seen) = rig.send(DISCOVERY, FrameType::BRIDGE_REQUEST, b"q");
    assert_eq!(seen, [Seen::Dropped(DropReason::ChannelUnadvertised)]);
    assert_eq!(
        rig.association
            .send(DISCOVERY, FrameType::BRIDGE_REQUEST, Flags::NONE, vec![]),
        Err(SendError::ChannelUnadvertised)
    );
    queue(&mut rig, b"r");
    assert_eq!(rig.types(), [(BRIDGE, FrameType::BRIDGE_NOTIFY)]);
    // A HELLO now comes too late; it is passed over.
    let (result, seen) = rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[2]));
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::HelloLate)]);
    // The reference SDK does not answer PING by itself: no probe, ever.
    assert_eq!(
        rig.association.poll_timeout(),
        Some(rig.now + Duration::from_secs(24 * 3600))
    );
}

/// Ruling R6: so are silence and a Control frame that is not HELLO, for either side.
#[test]
fn optional_hello_admits_silence_and_other_control_frames() {
    for side in [Side::Initiator, Side::Responder] {
        let mut rig = Rig::new(side, config(HelloMode::Optional));
        let hellos = rig.types().len();
        assert_eq!(hellos, if side == Side::Initiator { 2 } else { 0 });
        let (result, seen) = rig.advance_to_timeout();
        result.unwrap();
        assert!(matches!(&seen[..], [Seen::Ready(peer)] if peer.hello.is_none()));

        let mut rig = Rig::new(side, config(HelloMode::Optional));
        rig.types();
        let (result, seen) = rig.send(CONTROL, FrameType(0x0200), b"?");
        result.unwrap();
        assert!(
            matches!(
                &seen[..],
                [Seen::Ready(_), Seen::Dropped(DropReason::FrameTypeUnknown)]
            ),
            "{seen:?}"
        );
        queue(&mut rig, b"r");
    }
}

/// A peer that does send HELLO is met in full even where it is optional.
#[test]
fn optional_hello_is_used_when_it_comes() {
    let rig = Rig::ready_with(config(HelloMode::Optional));
    assert_eq!(
        rig.association.poll_timeout(),
        Some(rig.now + limits::IDLE_PROBE_TIME)
    );
}

// Sequences, keys, headers

/// N-PAMP draft, Channel Architecture: independent sequence spaces from 0; ruling R3.
#[test]
fn channels_have_their_own_sequences() {
    let mut rig = Rig::ready();
    for channel in [BRIDGE, DISCOVERY, BRIDGE] {
        let (_, seen) = rig.send(channel, FrameType::BRIDGE_NOTIFY, b"n");
        assert_eq!(
            seen,
            [Seen::Frame(channel, FrameType::BRIDGE_NOTIFY, b"n".into())]
        );
    }
    queue(&mut rig, b"a");
    queue(&mut rig, b"b");
    let sequences: Vec<_> = rig.transmit().iter().map(|f| f.sequence).collect();
    assert_eq!(sequences, [0, 1]);
}

/// N-PAMP draft, Replay; ruling R24: a repeated frame is dropped and counted.
#[test]
fn replay_is_dropped() {
    let mut rig = Rig::ready();
    let frame = rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"once");
    rig.deliver(frame.clone()).0.unwrap();
    let (result, seen) = rig.deliver(frame);
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::Replay)]);
    assert_eq!(rig.association.stats().security_events, 1);
    let (_, seen) = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"twice");
    assert!(matches!(&seen[..], [Seen::Frame(..)]));
}

/// Ruling R24: a sequence beyond the expected one means that frames are missing.
#[test]
fn gap_closes() {
    let mut rig = Rig::ready();
    let _lost = rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"lost");
    let outcome = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"next");
    assert_eq!(
        outcome.0,
        Err(AssociationError::Gap {
            channel: BRIDGE,
            expected: 0,
            received: 1
        })
    );
    rig.assert_failed(outcome, Failure::Gap);
}

/// Ruling R24: a tag failure is dropped and counted, and does not advance the
/// sequence; a forged sequence is no gap. More than eight close.
#[test]
fn tag_failures_are_borne_up_to_a_bound() {
    let mut rig = Rig::ready();
    let good = rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"good");
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    let ahead = Space {
        epoch: 3,
        sequence: 77,
    };
    let far = rig
        .puppet
        .seal_at(ahead, BRIDGE, FrameType::CLOSE, Flags::NONE, b"");
    for forged in std::iter::repeat_n(bad.clone(), 7).chain([far]) {
        let (result, seen) = rig.deliver(forged);
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
    }
    let (_, seen) = rig.deliver(good);
    assert!(matches!(&seen[..], [Seen::Frame(..)]), "{seen:?}");
    assert_eq!(rig.association.stats().security_events, 8);
    let ninth = Space {
        epoch: 9,
        sequence: 1,
    };
    let ninth = rig
        .puppet
        .seal_at(ninth, BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, b"");
    let outcome = rig.deliver(ninth);
    rig.assert_failed(outcome, Failure::TagFailures);
}

/// N-PAMP draft, CLOSE Frame: an unauthenticated CLOSE is dropped and counted.
#[test]
fn unencrypted_frames_are_dropped() {
    let mut rig = Rig::ready();
    let header = Header {
        flags: Flags::NONE,
        frame_type: FrameType::CLOSE,
        channel: CONTROL,
        sequence: 1,
        payload_length: 0,
    };
    let (result, seen) = rig.deliver(header.encode().to_vec());
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::NotEncrypted)]);
    assert_eq!(rig.association.stats().security_events, 1);
    // ENC without room for a tag is no better.
    let header = Header {
        flags: Flags::ENC,
        ..header
    };
    let (_, seen) = rig.deliver(header.encode().to_vec());
    assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
    assert!(!rig.association.is_closed());
    assert_eq!(rig.transmit(), []);
}

/// N-PAMP draft, Channel Architecture: frames on unadvertised channels are
/// dropped, CLOSE among them; Reserved Channel-ID Range: GREASE is ignored.
#[test]
fn unadvertised_and_grease_channels_are_dropped() {
    let mut rig = Rig::ready();
    let cases = [
        (ChannelId::MEMORY, DropReason::ChannelUnadvertised),
        (ChannelId(0x0014), DropReason::ChannelUnadvertised),
        (ChannelId(0xf000), DropReason::ChannelGrease),
        (ChannelId(0xfffe), DropReason::ChannelGrease),
    ];
    for (channel, reason) in cases {
        let (result, seen) = rig.send(channel, FrameType::CLOSE, b"");
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(reason)]);
    }
    assert_eq!(rig.dropped(DropReason::ChannelUnadvertised), 2);
    assert_eq!(rig.transmit(), []);
}

/// N-PAMP draft, Frame Header: what is no header ends the association.
#[test]
fn header_errors_close() {
    type Spoil = fn(&mut Header, &mut Vec<u8>);
    let spoils: [(Spoil, HeaderError); 4] = [
        (|_, octets| octets[30] = 1, HeaderError::Reserved),
        (|_, octets| octets[22] ^= 1, HeaderError::Crc),
        (
            |header, octets| {
                header.channel = ChannelId::FORBIDDEN;
                octets[..36].copy_from_slice(&header.encode());
            },
            HeaderError::ChannelForbidden,
        ),
        (
            |header, octets| {
                header.frame_type = FrameType(0);
                octets[..36].copy_from_slice(&header.encode());
            },
            HeaderError::FrameTypeZero,
        ),
    ];
    for (spoil, error) in spoils {
        let mut rig = Rig::ready();
        let mut octets = rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"x");
        let mut header = Header::decode(&octets).unwrap();
        spoil(&mut header, &mut octets);
        let outcome = rig.deliver(octets);
        assert_eq!(outcome.0, Err(AssociationError::Header(error)));
        rig.assert_failed(outcome, Failure::Header);
    }
    let mut config = config(HelloMode::Required);
    config.frame_octets_max = 1000;
    let mut rig = Rig::ready_with(config);
    let outcome = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, &[0; 1000]);
    rig.assert_failed(outcome, Failure::Header);
}

// Flags and frame types

/// Ruling R21: FRAG and COMP are opened, answered with ERROR, counted; life goes on.
#[test]
fn fragments_and_compression_are_refused() {
    for flag in [Flags::FRAG, Flags::COMP] {
        let mut rig = Rig::ready();
        let octets = rig
            .puppet
            .seal_flagged(BRIDGE, FrameType::BRIDGE_NOTIFY, flag, b"part");
        let (result, seen) = rig.deliver(octets);
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::FlagUnsupported)]);
        let frames = rig.transmit();
        assert_eq!(
            (frames[0].channel, frames[0].frame_type),
            (BRIDGE, FrameType::ERROR)
        );
        assert_eq!(error_codes(&frames), [Code::UNSUPPORTED.0]);
        // The sequence was spent.
        let (_, seen) = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"whole");
        assert!(matches!(&seen[..], [Seen::Frame(..)]));
        // Errors are never answered, not even odd ones.
        let octets = rig.puppet.seal_flagged(BRIDGE, FrameType::ERROR, flag, b"");
        rig.deliver(octets).0.unwrap();
        assert_eq!(rig.transmit(), []);
    }
}

/// N-PAMP draft, Reserved Frame Types: unknown types are values, not ends.
#[test]
fn unknown_frame_types_are_refused() {
    let cases = [
        (BRIDGE, 0x000b),
        (BRIDGE, 0x002f),
        (BRIDGE, 0x0030),
        (CONTROL, 0x0080),
        (CONTROL, 0x00ff),
        (CONTROL, 0x0112),
        (CONTROL, 0xffff),
    ];
    let mut rig = Rig::ready();
    for (channel, frame_type) in cases {
        let (result, seen) = rig.send(channel, FrameType(frame_type), b"");
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::FrameTypeUnknown)]);
        assert_eq!(error_codes(&rig.transmit()), [Code::UNSUPPORTED.0]);
    }
    for frame_type in [0x0100, 0x0101, 0x0102, 0x0103] {
        let (result, seen) = rig.send(CONTROL, FrameType(frame_type), b"");
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::HandshakeFrame)]);
        assert_eq!(error_codes(&rig.transmit()), [Code::PROTOCOL.0]);
    }
    // A channel's own types are its owner's to judge.
    let (_, seen) = rig.send(BRIDGE, FrameType(0x0fff), b"");
    assert!(matches!(
        &seen[..],
        [Seen::Frame(BRIDGE, FrameType(0x0fff), _)]
    ));
}

/// Ruling R21: never used, ignored and counted.
#[test]
fn path_and_flow_frames_are_ignored() {
    let mut rig = Rig::ready();
    for frame_type in [
        FrameType::PATH_CHALLENGE,
        FrameType::PATH_RESPONSE,
        FrameType::FLOW_UPDATE,
    ] {
        let (result, seen) = rig.send(CONTROL, frame_type, b"");
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::PathOrFlow)]);
    }
    assert_eq!(rig.transmit(), []);
}

/// Ruling R21: a ratchet that cannot be followed must not be ignored.
#[test]
fn master_ratchet_closes() {
    for frame_type in 0x0104..=0x0107 {
        let mut rig = Rig::ready();
        let outcome = rig.send(CONTROL, FrameType(frame_type), b"");
        rig.assert_failed(outcome, Failure::RatchetUnsupported);
        // On another channel the number means something else.
        let mut rig = Rig::ready();
        let (result, seen) = rig.send(BRIDGE, FrameType(frame_type), b"");
        assert!(result.is_ok() && matches!(&seen[..], [Seen::Frame(..)]));
    }
}

#[test]
fn errors_to_a_noisy_peer_are_bounded() {
    let mut rig = Rig::ready();
    for _ in 0..3 * limits::ERRORS_QUEUED_MAX {
        rig.send(CONTROL, FrameType(0x0020), b"").0.unwrap();
    }
    assert_eq!(rig.transmit().len(), limits::ERRORS_QUEUED_MAX);
    let oversize = vec![0; limits::CONTROL_PAYLOAD_OCTETS_MAX + 1];
    let (_, seen) = rig.send(CONTROL, FrameType(0x0300), &oversize);
    assert_eq!(seen, [Seen::Dropped(DropReason::ControlOversize)]);
}

// Key update

/// Ruling R4: last frame of its epoch, marker epoch + 1, sequence from 0, ACK.
#[test]
fn key_update_of_the_peer() {
    let mut rig = Rig::ready();
    for epoch in 1..4 {
        rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"old")
            .0
            .unwrap();
        let update = rig.puppet.key_update(BRIDGE);
        let (result, seen) = rig.deliver(update);
        result.unwrap();
        assert_eq!(seen, []);
        let (_, seen) = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"new");
        assert!(matches!(&seen[..], [Seen::Frame(..)]), "{seen:?}");
        let frames = rig.transmit();
        assert_eq!(frames.len(), 1);
        assert_eq!(
            (frames[0].channel, frames[0].frame_type),
            (BRIDGE, FrameType::KEY_UPDATE_ACK)
        );
        assert_eq!(frames[0].payload, marker(epoch));
    }
    assert_eq!(rig.association.stats().key_updates_received, 3);
    // The keys of the past are gone: its frames no longer authenticate.
    let past = Space {
        epoch: 2,
        sequence: 9,
    };
    let past = rig
        .puppet
        .seal_at(past, BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, b"");
    let (_, seen) = rig.deliver(past);
    assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
}

#[test]
fn key_updates_are_per_channel() {
    let mut rig = Rig::ready();
    let update = rig.puppet.key_update(BRIDGE);
    rig.deliver(update).0.unwrap();
    let (_, seen) = rig.send(DISCOVERY, FrameType::BRIDGE_NOTIFY, b"still epoch 0");
    assert!(matches!(&seen[..], [Seen::Frame(..)]));
    let (result, _) = rig.send(CONTROL, FrameType::PING, b"");
    result.unwrap();
}

#[test]
fn wrong_key_update_marker_closes() {
    for payload in [marker(0), marker(2), vec![], vec![0, 0x17, 0, 0], {
        let mut two = marker(1);
        two.extend(marker(1));
        two
    }] {
        let mut rig = Rig::ready();
        let outcome = rig.send(BRIDGE, FrameType::KEY_UPDATE, &payload);
        rig.assert_failed(outcome, Failure::KeyUpdateMarker);
    }
}

/// N-PAMP draft, Forward Secrecy and Key Update: within bounds of frames, octets and time.
#[test]
fn own_key_updates_keep_the_bounds() {
    let bounds = UpdateBounds {
        frames: 10,
        octets: 1000,
        age: Duration::from_secs(60),
    };
    let mut config = config(HelloMode::Required);
    config.update_bounds = Some(bounds);
    config.idle_probe_time = Duration::ZERO;
    let mut rig = Rig::ready_with(config);

    for _ in 0..40 {
        queue(&mut rig, b"x");
    }
    let frames = rig.transmit();
    let of_epoch: Vec<_> = frames
        .split_inclusive(|frame| frame.frame_type == FrameType::KEY_UPDATE)
        .map(<[Got]>::len)
        .collect();
    assert!(of_epoch.len() > 3 && of_epoch.iter().all(|&n| n as u64 <= bounds.frames));
    assert!(
        frames
            .windows(2)
            .all(|pair| pair[0].frame_type != FrameType::KEY_UPDATE || pair[1].sequence == 0)
    );

    for _ in 0..10 {
        queue(&mut rig, &[0; 300]);
    }
    for epoch in rig
        .transmit()
        .split(|frame| frame.frame_type == FrameType::KEY_UPDATE)
    {
        let octets: usize = epoch.iter().map(|frame| frame.payload.len()).sum();
        assert!(octets as u64 <= bounds.octets);
    }

    // By age: a used epoch ends once, also without further traffic.
    queue(&mut rig, b"x");
    rig.transmit();
    rig.advance(bounds.age).0.unwrap();
    let types = rig.types();
    assert!(
        types.contains(&(BRIDGE, FrameType::KEY_UPDATE)),
        "{types:?}"
    );
    assert_eq!(rig.association.poll_timeout(), None);
    rig.advance(10 * bounds.age).0.unwrap();
    assert_eq!(rig.transmit(), []);
}

#[test]
fn key_update_on_request() {
    let mut rig = Rig::ready();
    queue(&mut rig, b"a");
    rig.association.update_keys(BRIDGE);
    assert_eq!(
        rig.types(),
        [
            (BRIDGE, FrameType::KEY_UPDATE),
            (BRIDGE, FrameType::BRIDGE_NOTIFY)
        ]
    );
    rig.association.update_keys(CONTROL);
    assert_eq!(rig.types(), [(CONTROL, FrameType::KEY_UPDATE)]);
    let (_, seen) = rig.send(BRIDGE, FrameType::KEY_UPDATE_ACK, &marker(1));
    assert_eq!(seen, [], "the ACK is informational");
    assert_eq!(rig.association.stats().key_updates_sent, 2);
}

// Liveness

/// Ruling R21: PONG echoes PING's payload on its channel.
#[test]
fn ping_is_echoed_on_its_channel() {
    let mut rig = Rig::ready();
    for channel in [CONTROL, BRIDGE, DISCOVERY] {
        rig.send(channel, FrameType::PING, b"echo").0.unwrap();
        let frames = rig.transmit();
        assert_eq!(
            (frames[0].channel, frames[0].frame_type),
            (channel, FrameType::PONG)
        );
        assert_eq!(frames[0].payload, b"echo");
    }
    let long = vec![0; limits::PING_PAYLOAD_OCTETS_MAX + 1];
    let (_, seen) = rig.send(CONTROL, FrameType::PING, &long);
    assert_eq!(seen, [Seen::Dropped(DropReason::PingOversize)]);
    assert_eq!(error_codes(&rig.transmit()), [Code::OVERSIZE.0]);
}

#[test]
fn ping_flood_is_bounded() {
    let mut rig = Rig::ready();
    for _ in 0..limits::REPLIES_QUEUED_MAX + 5 {
        rig.send(CONTROL, FrameType::PING, &[0; 1024]).0.unwrap();
    }
    assert_eq!(rig.dropped(DropReason::ReplyFlood), 5);
    assert_eq!(rig.transmit().len(), limits::REPLIES_QUEUED_MAX);
}

#[test]
fn idle_peer_is_probed_and_found_dead() {
    let mut rig = Rig::ready();
    rig.advance(limits::IDLE_PROBE_TIME * 9 / 10).0.unwrap();
    assert_eq!(rig.transmit(), []);
    rig.advance_to_timeout().0.unwrap();
    let frames = rig.transmit();
    assert_eq!(
        (frames[0].channel, frames[0].frame_type),
        (CONTROL, FrameType::PING)
    );
    let (_, seen) = rig.send(CONTROL, FrameType::PONG, &frames[0].payload);
    assert_eq!(seen, []);

    // A single octet of a frame is a sign of life too.
    rig.advance(limits::IDLE_PROBE_TIME).0.unwrap();
    assert_eq!(rig.types(), [(CONTROL, FrameType::PING)]);
    rig.advance(limits::PROBE_TIMEOUT * 9 / 10).0.unwrap();
    let octets = rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"slow");
    rig.deliver(octets[..1].to_vec()).0.unwrap();
    rig.advance(Duration::from_secs(1)).0.unwrap();
    rig.deliver(octets[1..].to_vec()).0.unwrap();

    rig.advance(limits::IDLE_PROBE_TIME).0.unwrap();
    assert_eq!(rig.types(), [(CONTROL, FrameType::PING)]);
    let outcome = rig.advance_to_timeout();
    assert_eq!(rig.association.stats().probes, 3);
    rig.assert_failed(outcome, Failure::PeerDead);
}

#[test]
fn unasked_pong_is_dropped() {
    let mut rig = Rig::ready();
    for payload in [&b"what"[..], &1u64.to_be_bytes()] {
        let (_, seen) = rig.send(CONTROL, FrameType::PONG, payload);
        assert_eq!(seen, [Seen::Dropped(DropReason::PongUnexpected)]);
    }
}

// Close and error

/// N-PAMP draft, Authenticated Close; ruling R21: on any channel, body never required.
#[test]
fn close_of_the_peer() {
    let bodies: [(&[u8], u16, &str); 4] = [
        (b"", 0, ""),
        (b"\x07", 0, ""),
        (b"\x00\x07bye", 7, "bye"),
        (b"\x01\x00\xff", 256, "\u{fffd}"),
    ];
    for (body, code, text) in bodies {
        let mut rig = Rig::ready();
        queue(&mut rig, b"never sent");
        let mut octets = rig.puppet.seal(BRIDGE, FrameType::CLOSE, body);
        octets.extend(rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, b"after"));
        octets.extend([0xff; 50]);
        let (result, seen) = rig.deliver(octets);
        result.unwrap();
        assert_eq!(
            seen,
            [Seen::Closed(CloseReason::Peer {
                code,
                text: text.into()
            })]
        );
        assert_eq!(rig.types(), [(BRIDGE, FrameType::CLOSE_ACK)]);
        assert_eq!(rig.dropped(DropReason::AfterClose), 1);
        assert!(rig.association.is_closed());
        assert_eq!(rig.association.queued_octets(), 0);
        assert_eq!(rig.association.poll_timeout(), None);
        rig.association.close(Code::ORDERLY, "too late");
        assert_eq!(rig.transmit(), []);
    }
}

/// N-PAMP draft, CLOSE Frame: a forged CLOSE changes nothing.
#[test]
fn forged_close_is_dropped() {
    let mut rig = Rig::ready();
    let mut octets = rig.puppet.seal(CONTROL, FrameType::CLOSE, b"\0\0");
    octets[37] ^= 0x80;
    let (result, seen) = rig.deliver(octets);
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
    assert_eq!(rig.association.stats().security_events, 1);
    assert!(!rig.association.is_closed());
}

#[test]
fn own_close() {
    let mut rig = Rig::ready();
    queue(&mut rig, b"dropped");
    rig.association.close(Code::ORDERLY, "bye");
    assert!(!rig.association.is_closed());
    assert_eq!(
        rig.association
            .send(BRIDGE, FrameType::BRIDGE_NOTIFY, Flags::NONE, vec![]),
        Err(SendError::Closed)
    );
    let frames = rig.transmit();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].frame_type, FrameType::CLOSE);
    assert_eq!(frames[0].payload, b"\0\0bye");
    // What was under way still arrives, unanswered; keys still follow.
    let (_, seen) = rig.send(BRIDGE, FrameType::BRIDGE_NOTIFY, b"late");
    assert_eq!(seen, [Seen::Dropped(DropReason::AfterClose)]);
    let update = rig.puppet.key_update(CONTROL);
    rig.deliver(update).0.unwrap();
    let (_, seen) = rig.send(CONTROL, FrameType::PING, b"");
    assert_eq!(seen, []);
    assert_eq!(rig.transmit(), []);
    let (_, seen) = rig.send(CONTROL, FrameType::CLOSE_ACK, b"");
    assert_eq!(seen, [Seen::Closed(CloseReason::Local)]);
    assert!(rig.association.is_closed());
    assert_eq!(rig.transmit(), []);
}

#[test]
fn own_close_without_answer() {
    let mut rig = Rig::ready();
    rig.advance(Duration::from_secs(15)).0.unwrap();
    rig.association.close(7u16, &"é".repeat(400));
    // The deadline counts from the first call that knows the time.
    rig.now += Duration::from_secs(1);
    let frames = rig.transmit();
    assert!(frames[0].payload.len() <= 2 + limits::ERROR_TEXT_OCTETS_MAX);
    assert!(std::str::from_utf8(&frames[0].payload[2..]).is_ok());
    assert_eq!(
        rig.association.poll_timeout(),
        Some(rig.now + limits::CLOSE_TIME)
    );
    let (result, seen) = rig.advance_to_timeout();
    result.unwrap();
    assert_eq!(seen, [Seen::Closed(CloseReason::LocalTimeout)]);
}

/// A fault while closing: the peer hears one CLOSE, whenever it was sealed.
#[test]
fn fault_while_closing() {
    for sealed_before in [true, false] {
        let mut rig = Rig::ready();
        rig.association.close(Code::ORDERLY, "");
        let mut types = Vec::new();
        if sealed_before {
            types.extend(rig.types());
        }
        let (result, seen) = rig.send(BRIDGE, FrameType::KEY_UPDATE, b"");
        let error = AssociationError::KeyUpdateMarker(BRIDGE);
        assert_eq!(result, Err(error.clone()));
        assert_eq!(seen, [Seen::Closed(CloseReason::Failed(error))]);
        types.extend(rig.types());
        assert_eq!(types, [(CONTROL, FrameType::CLOSE)]);
    }
}

#[test]
fn closes_that_cross() {
    let mut rig = Rig::ready();
    rig.association.close(Code::ORDERLY, "");
    assert_eq!(rig.types(), [(CONTROL, FrameType::CLOSE)]);
    let (_, seen) = rig.send(CONTROL, FrameType::CLOSE, b"");
    assert_eq!(seen, [Seen::Closed(CloseReason::Local)]);
    assert_eq!(rig.types(), [(CONTROL, FrameType::CLOSE_ACK)]);
}

#[test]
fn unasked_close_ack_is_dropped() {
    let mut rig = Rig::ready();
    let (result, seen) = rig.send(CONTROL, FrameType::CLOSE_ACK, b"");
    result.unwrap();
    assert_eq!(seen, [Seen::Dropped(DropReason::CloseAckUnexpected)]);
}

#[test]
fn close_before_hello() {
    let mut rig = Rig::new(Side::Initiator, config(HelloMode::Required));
    rig.association.close(Code::ORDERLY, "");
    assert_eq!(rig.types(), [(CONTROL, FrameType::CLOSE)]);
}

/// Ruling R21, R26: surfaced, counted, never answered.
#[test]
fn error_of_the_peer() {
    let mut rig = Rig::ready();
    let (_, seen) = rig.send(BRIDGE, FrameType::ERROR, b"\x00\x09what");
    assert_eq!(seen, [Seen::PeerError(9, "what".into())]);
    let (_, seen) = rig.send(CONTROL, FrameType::ERROR, b"");
    assert_eq!(seen, [Seen::PeerError(0, String::new())]);
    assert_eq!(rig.association.stats().peer_errors, 2);
    assert_eq!(rig.transmit(), []);
}

// Sending

#[test]
fn send_keeps_the_rules() {
    let mut config = config(HelloMode::Required);
    config.frame_octets_max = 1000;
    config.queue_octets_max = 2500;
    let mut rig = Rig::ready_with(config);
    let mut send = |channel, frame_type, flags, octets: usize| {
        rig.association
            .send(channel, frame_type, flags, vec![0; octets])
    };
    let notify = FrameType::BRIDGE_NOTIFY;
    let cases = [
        (
            CONTROL,
            notify,
            Flags::NONE,
            0,
            SendError::FrameTypeReserved,
        ),
        (
            BRIDGE,
            FrameType::PING,
            Flags::NONE,
            0,
            SendError::FrameTypeReserved,
        ),
        (
            ChannelId::MEMORY,
            notify,
            Flags::NONE,
            0,
            SendError::ChannelUnadvertised,
        ),
        (BRIDGE, notify, Flags::FRAG, 0, SendError::FlagUnsupported),
        (BRIDGE, notify, Flags::COMP, 0, SendError::FlagUnsupported),
        (BRIDGE, notify, Flags::NONE, 949, SendError::FrameTooLarge),
    ];
    for (channel, frame_type, flags, octets, error) in cases {
        assert_eq!(send(channel, frame_type, flags, octets), Err(error));
    }
    assert_eq!(send(BRIDGE, notify, Flags::NONE, 948), Ok(()));
    assert_eq!(send(BRIDGE, notify, Flags::NONE, 948), Ok(()));
    assert_eq!(send(BRIDGE, notify, Flags::NONE, 948), Err(SendError::Full));
    assert_eq!(send(BRIDGE, notify, Flags::URG, 1), Ok(()));
    assert_eq!(rig.association.queued_octets(), 2000 + 53);

    // Sealed late: URG and the association's own overtake; frames stay whole.
    rig.send(CONTROL, FrameType::PING, b"").0.unwrap();
    let mut out = Vec::new();
    let sealed = rig.association.poll_transmit(&mut out, 60, rig.now);
    assert_eq!(sealed, 2);
    let got = rig.puppet.read(out);
    assert_eq!(
        (got[0].channel, got[0].frame_type),
        (CONTROL, FrameType::PONG)
    );
    assert_eq!(got[1].payload.len(), 1);
    let mut out = vec![0xee];
    assert_eq!(rig.association.poll_transmit(&mut out, 1, rig.now), 1);
    assert_eq!((out[0], out.len()), (0xee, 1001));
    rig.puppet.read(out.split_off(1));
    assert_eq!(rig.association.poll_transmit(&mut out, 0, rig.now), 0);
    assert_eq!(rig.association.queued_octets(), 1000);
}

// Two associations

/// What one side does next under random traffic.
#[derive(Debug, Clone)]
enum Act {
    Send {
        from_initiator: bool,
        discovery: bool,
        urgent: bool,
        octets: usize,
    },
    UpdateKeys {
        from_initiator: bool,
        channel: u8,
    },
    /// Moves some sealed octets, in chunks of this size.
    Carry {
        from_initiator: bool,
        octets_max: usize,
        chunk: usize,
    },
    /// Lets time pass, so that probes and updates by age happen.
    Wait {
        seconds: u64,
    },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), prop_oneof![0usize..40, 0usize..3000])
            .prop_map(|(from_initiator, discovery, urgent, octets)| Act::Send { from_initiator, discovery, urgent, octets }),
        1 => (any::<bool>(), 0u8..3).prop_map(|(from_initiator, channel)| Act::UpdateKeys { from_initiator, channel }),
        4 => (any::<bool>(), 1usize..6000, 1usize..700)
            .prop_map(|(from_initiator, octets_max, chunk)| Act::Carry { from_initiator, octets_max, chunk }),
        1 => (1u64..25).prop_map(|seconds| Act::Wait { seconds }),
    ]
}

type Inbox = BTreeMap<(ChannelId, bool), Vec<Vec<u8>>>;

struct End {
    association: Association,
    /// Sealed octets that the link still holds.
    link: Vec<u8>,
    sent: Inbox,
    received: Inbox,
    ready: bool,
}

struct Pair {
    ends: [End; 2],
    now: Instant,
    sent: u32,
}

impl Pair {
    fn new(config: &Arc<AssociationConfig>) -> Self {
        let now = Instant::now();
        let (initiator, responder) = established();
        let ends = [initiator, responder].map(|established| End {
            association: Association::new(
                established,
                config.clone(),
                &mut SeededRandom::new(1),
                now,
            ),
            link: Vec::new(),
            sent: Inbox::new(),
            received: Inbox::new(),
            ready: false,
        });
        Self { ends, now, sent: 0 }
    }

    fn carry(&mut self, from: usize, octets_max: usize, chunk: usize) -> bool {
        let mut out = Vec::new();
        let sender = &mut self.ends[from];
        sender
            .association
            .poll_transmit(&mut out, octets_max, self.now);
        sender.link.extend(out);
        let taken = sender.link.len().min(octets_max);
        let octets: Vec<u8> = sender.link.drain(..taken).collect();
        let receiver = &mut self.ends[1 - from];
        for chunk in octets.chunks(chunk) {
            let (received, ready) = (&mut receiver.received, &mut receiver.ready);
            receiver
                .association
                .handle_octets(
                    &mut chunk.to_vec(),
                    self.now,
                    &mut |event| match Seen::from(event) {
                        Seen::Ready(peer) => {
                            assert!(!std::mem::replace(ready, true) && peer.hello.is_some());
                        }
                        Seen::Frame(channel, FrameType::BRIDGE_NOTIFY, payload) => {
                            let urgent = payload[0] == 1;
                            received.entry((channel, urgent)).or_default().push(payload);
                        }
                        other => panic!("nothing else happens: {other:?}"),
                    },
                )
                .expect("nothing fails");
        }
        !octets.is_empty()
    }

    fn settle(&mut self, chunk: usize) {
        for _ in 0..10_000 {
            let there = self.carry(0, 100_000, chunk);
            let back = self.carry(1, 100_000, chunk);
            if !there && !back {
                return;
            }
        }
        panic!("traffic never ends");
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Send {
                from_initiator,
                discovery,
                urgent,
                octets,
            } => {
                let end = &mut self.ends[usize::from(!from_initiator)];
                let channel = if discovery { DISCOVERY } else { BRIDGE };
                self.sent += 1;
                let mut payload = vec![u8::from(urgent)];
                payload.extend(self.sent.to_be_bytes());
                payload.resize(5 + octets, self.sent as u8);
                let flags = if urgent { Flags::URG } else { Flags::NONE };
                end.association
                    .send(channel, FrameType::BRIDGE_NOTIFY, flags, payload.clone())
                    .unwrap();
                end.sent.entry((channel, urgent)).or_default().push(payload);
            }
            Act::UpdateKeys {
                from_initiator,
                channel,
            } => {
                let channel = [CONTROL, BRIDGE, DISCOVERY][usize::from(channel)];
                self.ends[usize::from(!from_initiator)]
                    .association
                    .update_keys(channel);
            }
            Act::Carry {
                from_initiator,
                octets_max,
                chunk,
            } => {
                self.carry(usize::from(!from_initiator), octets_max, chunk);
            }
            Act::Wait { seconds } => {
                for _ in 0..seconds {
                    self.now += Duration::from_secs(1);
                    for end in 0..2 {
                        self.ends[end]
                            .association
                            .handle_timeout(self.now, &mut |event| panic!("{event:?}"))
                            .unwrap();
                    }
                    // Fast enough for a PING behind a full link to be answered in time.
                    self.carry(0, 50_000, 999);
                    self.carry(1, 50_000, 999);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// N-PAMP draft, Channel Architecture: whatever the traffic, the chunks and
    /// the key updates, everything arrives once and in order per channel.
    #[test]
    fn everything_arrives_once_in_order(acts in prop::collection::vec(act(), 1..120), chunk in 1usize..400) {
        let mut config = config(HelloMode::Required);
        config.update_bounds = Some(UpdateBounds {
            frames: 12,
            octets: 8000,
            age: Duration::from_secs(30),
        });
        let mut pair = Pair::new(&Arc::new(config));
        pair.settle(chunk);
        prop_assert!(pair.ends.iter().all(|end| end.ready));
        for act in &acts {
            pair.act(act);
        }
        pair.settle(chunk);
        let [initiator, responder] = &pair.ends;
        prop_assert_eq!(&initiator.sent, &responder.received);
        prop_assert_eq!(&responder.sent, &initiator.received);
        for end in &pair.ends {
            prop_assert_eq!(end.association.queued_octets(), 0);
            prop_assert_eq!(end.association.held_octets(), 0);
            prop_assert_eq!(end.association.stats().dropped.total(), 0);
        }

        // And it ends well.
        pair.ends[0].association.close(Code::ORDERLY, "done");
        let mut reasons = Vec::new();
        for from in [0, 1] {
            let mut out = Vec::new();
            pair.ends[from].association.poll_transmit(&mut out, usize::MAX, pair.now);
            pair.ends[1 - from]
                .association
                .handle_octets(&mut out, pair.now, &mut |event| reasons.push(Seen::from(event)))
                .unwrap();
        }
        prop_assert_eq!(reasons, [
            Seen::Closed(CloseReason::Peer { code: 0, text: "done".into() }),
            Seen::Closed(CloseReason::Local),
        ]);
    }
}
