//! Two associations under random traffic, and one under hostile traffic.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::crypto::{SeededRandom, UpdateBounds};
use npamp_relay::handshake::Side;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// One thing a hostile but authenticated peer does.
#[derive(Debug, Clone)]
enum Blow {
    /// A frame, authentic and in sequence, of any kind.
    Frame {
        channel: ChannelId,
        frame_type: u16,
        flags: u8,
        payload: Vec<u8>,
    },
    /// The same with one bit flipped, spent or not.
    Flipped { channel: ChannelId, bit: usize },
    /// A well-formed greeting.
    Hello,
    /// A well-formed key update.
    KeyUpdate(ChannelId),
    /// Time until the next deadline.
    Deadline,
    /// We close.
    Close,
}

fn blow() -> impl Strategy<Value = Blow> {
    let channel = || {
        prop_oneof![
            Just(CONTROL),
            Just(BRIDGE),
            Just(DISCOVERY),
            Just(ChannelId::MEMORY),
            Just(ChannelId(0xf00f)),
        ]
    };
    let frame_type = prop_oneof![
        4 => 1u16..0x000c,
        2 => 0x0100u16..0x0113,
        1 => 1u16..,
    ];
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0u64..4).prop_map(marker),
        (0u64..4).prop_map(|version| hello_payload(version, &[2, 13])),
    ];
    prop_oneof![
        8 => (channel(), frame_type, prop_oneof![6 => Just(0u8), 1 => 0u8..16], payload)
            .prop_map(|(channel, frame_type, flags, payload)| Blow::Frame { channel, frame_type, flags, payload }),
        1 => (channel(), 0usize..400).prop_map(|(channel, bit)| Blow::Flipped { channel, bit }),
        2 => Just(Blow::Hello),
        1 => channel().prop_map(Blow::KeyUpdate),
        1 => Just(Blow::Deadline),
        1 => Just(Blow::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a peer sends: Ready at most once and before any frame, Closed
    /// once and last, a failure sticks, and what we send stays in perfect order
    /// with nothing after CLOSE but its acknowledgement.
    #[test]
    fn hostile_traffic_breaks_no_promise(
        blows in prop::collection::vec(blow(), 1..40),
        initiator: bool,
        optional: bool,
    ) {
        let side = if initiator { Side::Initiator } else { Side::Responder };
        let mode = if optional { HelloMode::Optional } else { HelloMode::Required };
        let mut rig = Rig::new(side, AssociationConfig::new(mode));
        let (mut ready, mut closed, mut failed) = (false, false, None);
        let mut close_sent = false;
        for blow in blows {
            let (result, seen) = match blow {
                Blow::Frame { channel, frame_type, flags, payload } => {
                    let frame = rig.puppet.seal_flagged(channel, FrameType(frame_type), Flags(flags), &payload);
                    rig.deliver(frame)
                }
                Blow::Flipped { channel, bit } => {
                    let mut frame = rig.puppet.seal(channel, FrameType::BRIDGE_NOTIFY, b"flipped");
                    let bit = bit % (8 * frame.len());
                    frame[bit / 8] ^= 1 << (bit % 8);
                    rig.deliver(frame)
                }
                Blow::Hello => rig.send(CONTROL, FrameType::HELLO, &hello_payload(1, &[2, 13, 16])),
                Blow::KeyUpdate(channel) => {
                    let frame = rig.puppet.key_update(channel);
                    rig.deliver(frame)
                }
                Blow::Deadline => match rig.association.poll_timeout() {
                    Some(_) => rig.advance_to_timeout(),
                    None => continue,
                },
                Blow::Close => {
                    rig.association.close(Code::ORDERLY, "");
                    continue;
                }
            };
            for seen in seen {
                prop_assert!(!closed, "nothing after Closed: {seen:?}");
                match seen {
                    Seen::Ready(_) => prop_assert!(!std::mem::replace(&mut ready, true)),
                    Seen::Frame(channel, frame_type, _) => {
                        prop_assert!(ready && channel != CONTROL && frame_type.is_channel_specific());
                    }
                    Seen::Closed(reason) => {
                        closed = true;
                        if let CloseReason::Failed(error) = reason {
                            failed = Some(error);
                        }
                    }
                    Seen::PeerError(..) | Seen::Dropped(_) => {}
                }
            }
            prop_assert_eq!(result.err(), failed.clone());
            prop_assert_eq!(rig.association.is_closed(), closed);
            // `transmit` asserts sequences, epochs and authenticity.
            for frame in rig.transmit() {
                if frame.frame_type == FrameType::CLOSE {
                    prop_assert!(!std::mem::replace(&mut close_sent, true));
                } else if close_sent {
                    prop_assert_eq!(frame.frame_type, FrameType::CLOSE_ACK);
                }
            }
        }
    }
}
