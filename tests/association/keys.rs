//! Key update, from either side.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::crypto::UpdateBounds;
use npamp_relay::wire::{Flags, FrameType};
use std::time::Duration;

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

/// An epoch past its age seals nothing but KEY_UPDATE, also when the timer came late.
#[test]
fn age_is_checked_at_the_seal() {
    let mut rig = Rig::ready();
    queue(&mut rig, b"x");
    rig.transmit();
    queue(&mut rig, b"y");
    rig.now += Duration::from_secs(24 * 3600);
    assert_eq!(
        rig.types(),
        [
            (BRIDGE, FrameType::KEY_UPDATE),
            (BRIDGE, FrameType::BRIDGE_NOTIFY)
        ]
    );
}
