//! The association under test against a puppet that seals frames at any place
//! of any epoch and keeps no rule of its own.

use npamp_relay::association::{
    Association, AssociationConfig, AssociationError, CloseReason, DropReason, Event, Failure,
    Hello, HelloMode, Peer, SendError,
};
use npamp_relay::crypto::{Identity, SeededRandom, TAG_LEN};
use npamp_relay::handshake::{
    Established, HandshakeError, Initiator, InitiatorConfig, PeerPolicy, Progress, Responder,
    ResponderConfig, Side,
};
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Deframer, Flags, FrameType, Header, HeaderError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const CONTROL: ChannelId = ChannelId::CONTROL;
pub const BRIDGE: ChannelId = ChannelId::BRIDGE;
pub const DISCOVERY: ChannelId = ChannelId::DISCOVERY;

/// Both ends of a real handshake.
pub fn established() -> (Established, Established) {
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

pub fn each_frame(
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

pub fn config(hello: HelloMode) -> AssociationConfig {
    AssociationConfig::new(hello)
}

/// An event that outlives the octets it came in.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
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
pub struct Space {
    pub epoch: u64,
    pub sequence: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Got {
    pub channel: ChannelId,
    pub frame_type: FrameType,
    pub sequence: u64,
    pub payload: Vec<u8>,
}

/// The other end, which keeps no rule of its own.
pub struct Puppet {
    pub established: Established,
    pub sending: BTreeMap<ChannelId, Space>,
    pub receiving: BTreeMap<ChannelId, Space>,
}

impl Puppet {
    /// A sealed frame at any place of any epoch.
    pub fn seal_at(
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
    pub fn seal_flagged(
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

    pub fn seal(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) -> Vec<u8> {
        self.seal_flagged(channel, frame_type, Flags::NONE, payload)
    }

    pub fn next_epoch(&mut self, channel: ChannelId) {
        let space = self.sending.entry(channel).or_default();
        *space = Space {
            epoch: space.epoch + 1,
            sequence: 0,
        };
    }

    pub fn key_update(&mut self, channel: ChannelId) -> Vec<u8> {
        let epoch = self.sending.entry(channel).or_default().epoch + 1;
        let frame = self.seal(channel, FrameType::KEY_UPDATE, &marker(epoch));
        self.next_epoch(channel);
        frame
    }

    /// Opens frames of the association, which must be in perfect order.
    pub fn read(&mut self, mut octets: Vec<u8>) -> Vec<Got> {
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

pub fn marker(epoch: u64) -> Vec<u8> {
    [&[0, 0x17, 0, 8][..], &epoch.to_be_bytes()].concat()
}

pub fn hello_payload(version: u64, protocols: &[u64]) -> Vec<u8> {
    Hello {
        version,
        protocols: protocols.to_vec(),
        params: Vec::new(),
    }
    .encode(0xf00f)
}

/// The association under test and the puppet.
pub struct Rig {
    pub association: Association,
    pub puppet: Puppet,
    pub now: Instant,
}

pub type Outcome = (Result<(), AssociationError>, Vec<Seen>);

impl Rig {
    pub fn new(side: Side, config: AssociationConfig) -> Self {
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
    pub fn ready_with(config: AssociationConfig) -> Self {
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

    pub fn ready() -> Self {
        Self::ready_with(config(HelloMode::Required))
    }

    pub fn deliver(&mut self, mut octets: Vec<u8>) -> Outcome {
        let mut seen = Vec::new();
        let result = self
            .association
            .handle_octets(&mut octets, self.now, &mut |event| seen.push(event.into()));
        (result, seen)
    }

    pub fn send(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) -> Outcome {
        let octets = self.puppet.seal(channel, frame_type, payload);
        self.deliver(octets)
    }

    pub fn transmit(&mut self) -> Vec<Got> {
        let mut out = Vec::new();
        let frames = self
            .association
            .poll_transmit(&mut out, usize::MAX, self.now);
        let got = self.puppet.read(out);
        assert_eq!(got.len(), frames);
        got
    }

    pub fn types(&mut self) -> Vec<(ChannelId, FrameType)> {
        let frames = self.transmit();
        frames.iter().map(|f| (f.channel, f.frame_type)).collect()
    }

    pub fn advance(&mut self, by: Duration) -> Outcome {
        self.now += by;
        let mut seen = Vec::new();
        let result = self
            .association
            .handle_timeout(self.now, &mut |event| seen.push(event.into()));
        (result, seen)
    }

    /// Runs the clock to the next deadline.
    pub fn advance_to_timeout(&mut self) -> Outcome {
        let due = self.association.poll_timeout().expect("a deadline");
        self.advance(due - self.now)
    }

    /// The association has failed for `failure`, told it once, and says goodbye.
    pub fn assert_failed(&mut self, (result, seen): Outcome, failure: Failure) {
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

    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.association.stats().dropped.get(reason)
    }
}

pub fn queue(rig: &mut Rig, payload: &[u8]) {
    rig.association
        .send(
            BRIDGE,
            FrameType::BRIDGE_NOTIFY,
            Flags::NONE,
            payload.to_vec(),
        )
        .unwrap();
}

pub fn error_codes(frames: &[Got]) -> Vec<u16> {
    frames
        .iter()
        .filter(|frame| frame.frame_type == FrameType::ERROR)
        .map(|frame| u16::from_be_bytes([frame.payload[0], frame.payload[1]]))
        .collect()
}
