//! Liveness, close, errors, and what may be sent.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::handshake::Side;
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::time::Duration;

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

/// Ruling R26: the owner's report on a bad bridge frame is an ERROR on its
/// channel, bounded in number, and the association goes on.
#[test]
fn the_owner_reports_bad_frames() {
    let mut rig = Rig::ready();
    assert!(rig.association.report(BRIDGE, 1, "envelope"));
    let frames = rig.transmit();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].channel, BRIDGE);
    assert_eq!(frames[0].frame_type, FrameType::ERROR);
    assert_eq!(frames[0].payload, b"\x00\x01envelope");
    let taken = (0..2 * limits::ERRORS_QUEUED_MAX)
        .filter(|_| rig.association.report(BRIDGE, 1, ""))
        .count();
    assert_eq!(taken, limits::ERRORS_QUEUED_MAX);
    assert!(!rig.association.is_closed());
    rig.association.close(0, "");
    assert!(!rig.association.report(BRIDGE, 1, "late"));
    assert!(!rig.association.report(ChannelId(0x77), 1, "unknown"));
}
