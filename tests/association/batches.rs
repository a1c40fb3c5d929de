//! Frames that are sealed or opened together: nothing is seen of it.

use crate::rig::*;
use npamp_relay::association::*;
use npamp_relay::wire::FrameType;

fn notify(rig: &mut Rig, text: &[u8]) -> Vec<u8> {
    rig.puppet.seal(BRIDGE, FrameType::BRIDGE_NOTIFY, text)
}

fn frames(seen: &[Seen]) -> usize {
    let frame = |seen: &&Seen| matches!(seen, Seen::Frame(..));
    seen.iter().filter(frame).count()
}

/// N-PAMP draft, Channel Architecture: every length, many to a call, in order.
#[test]
fn many_frames_of_one_call() {
    let mut rig = Rig::ready();
    let texts: Vec<Vec<u8>> = (0..70).map(|i| vec![i as u8; i * i]).collect();
    for text in &texts {
        queue(&mut rig, text);
    }
    let sent: Vec<_> = rig.transmit().into_iter().map(|got| got.payload).collect();
    assert_eq!(sent, texts);
    let octets: Vec<u8> = texts
        .iter()
        .flat_map(|text| notify(&mut rig, text))
        .collect();
    let (result, seen) = rig.deliver(octets);
    result.unwrap();
    assert_eq!(frames(&seen), texts.len());
}

/// Ruling R24: the frames behind a bad one of their channel, opened with it, are
/// a gap as they are one at a time, and nothing of them is left.
#[test]
fn a_bad_frame_among_good_ones() {
    let mut rig = Rig::ready();
    let mut octets = [notify(&mut rig, b"one"), notify(&mut rig, b"two")].concat();
    *octets.last_mut().unwrap() ^= 1;
    octets.extend(
        rig.puppet
            .seal(DISCOVERY, FrameType::BRIDGE_NOTIFY, b"else"),
    );
    let behind = octets.len();
    octets.extend(notify(&mut rig, b"three"));
    octets.extend(notify(&mut rig, b"four"));
    let mut seen = Vec::new();
    let result = rig
        .association
        .handle_octets(&mut octets, rig.now, &mut |event| seen.push(event.into()));
    assert_eq!(frames(&seen), 2);
    assert_eq!(seen[1], Seen::Dropped(DropReason::TagFailure));
    let zeroed = &octets[behind + 36..];
    assert!(
        !zeroed
            .windows(4)
            .any(|octets| octets == b"thre" || octets == b"four")
    );
    rig.assert_failed((result, seen), Failure::Gap);
}

/// Ruling R4: a batch ends with the epoch, in both directions.
#[test]
fn key_update_among_other_frames() {
    let mut rig = Rig::ready();
    let mut octets = [notify(&mut rig, b"old"), notify(&mut rig, b"old")].concat();
    octets.extend(rig.puppet.key_update(BRIDGE));
    octets.extend(notify(&mut rig, b"new"));
    octets.extend(notify(&mut rig, b"new"));
    let (result, seen) = rig.deliver(octets);
    result.unwrap();
    assert_eq!(frames(&seen), 4);
    rig.transmit();
    rig.association.update_keys(BRIDGE);
    for _ in 0..20 {
        queue(&mut rig, b"text");
    }
    let types = rig.types();
    assert_eq!(types.len(), 21);
    assert_eq!(types[0], (BRIDGE, FrameType::KEY_UPDATE));
}

/// N-PAMP draft, CLOSE Frame: what lies behind it is not heard.
#[test]
fn close_among_other_frames() {
    let mut rig = Rig::ready();
    let mut octets = [notify(&mut rig, b"one"), notify(&mut rig, b"two")].concat();
    octets.extend(rig.puppet.seal(CONTROL, FrameType::CLOSE, b""));
    octets.extend(notify(&mut rig, b"three"));
    octets.extend(notify(&mut rig, b"four"));
    let (result, seen) = rig.deliver(octets);
    result.unwrap();
    assert_eq!(frames(&seen), 2);
    assert!(rig.association.is_closed());
    assert_eq!(rig.dropped(DropReason::AfterClose), 2);
}
