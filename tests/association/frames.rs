//! Sequences, authenticity, headers, flags and frame types.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::limits;
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header, HeaderError};

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
