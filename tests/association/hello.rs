//! NPAMP-HELLO, required and optional.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::handshake::Side;
use npamp_relay::limits;
use npamp_relay::wire::{Flags, FrameType};
use std::time::Duration;

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

/// A HELLO beyond the bound of Control payloads is malformed, not merely dropped.
#[test]
fn oversize_hello_closes() {
    let mut rig = Rig::new(Side::Responder, config(HelloMode::Required));
    let payload = vec![0; limits::CONTROL_PAYLOAD_OCTETS_MAX + 1];
    let outcome = rig.send(CONTROL, FrameType::HELLO, &payload);
    rig.assert_failed(outcome, Failure::HelloMalformed);
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
