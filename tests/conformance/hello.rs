//! NPAMP-HELLO §9. The association is the real one behind a real handshake; the
//! peer seals what it likes.

use crate::build::*;
use crate::rig::{self, Rig, Seen};
use npamp_relay::association::{DropReason, Failure, HelloMode, ParamValue, Peer, SendError};
use npamp_relay::handshake::Side;
use npamp_relay::wire::{Flags, FrameType};

/// NPAMP-HELLO §3.
const HELLO: u16 = 0x0110;
const HELLO_DONE: u16 = 0x0111;
/// What this relay carries: A2A, Bridge, Discovery, Control (ruling R5).
const OURS: [u64; 4] = [0x02, 0x0d, 0x10, 0x00];

fn rig(side: Side) -> Rig {
    Rig::new(side, rig::config(HelloMode::Required))
}

/// A HELLO of the peer, with entries beyond version and protocols.
fn hello(version: u64, protocols: &[u64], more: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut entries = vec![(uint(0), uint(version)), (uint(1), array(protocols))];
    entries.extend_from_slice(more);
    map(&entries)
}

/// The next frames that the relay sends, as (header octets, payload).
fn sent(rig: &mut Rig) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut octets = Vec::new();
    let count = rig
        .association
        .poll_transmit(&mut octets, usize::MAX, rig.now);
    let mut headers = Vec::new();
    let mut at = 0;
    for _ in 0..count {
        let length = u32::from_be_bytes(octets[at + 17..at + 21].try_into().unwrap());
        headers.push(octets[at..at + 36].to_vec());
        at += 36 + length as usize;
    }
    let frames = rig.puppet.read(octets);
    headers
        .into_iter()
        .zip(frames.into_iter().map(|frame| frame.payload))
        .collect()
}

/// The GREASE value that ends a HELLO, which is the sender's to choose from 0xF000–0xFFFE.
fn grease(payload: &[u8]) -> u64 {
    let value = u16::from_be_bytes(payload[payload.len() - 2..].try_into().unwrap());
    assert!((0xf000..=0xfffe).contains(&value), "{value:#06x}");
    u64::from(value)
}

#[track_caller]
fn compare(what: &str, octets: &[u8], must: &[u8]) {
    assert!(
        octets == must,
        "\n{what}: {}\n   must be {}",
        show(octets),
        show(must)
    );
}

/// The peer says HELLO; what became of it.
#[track_caller]
fn ready(rig: &mut Rig, payload: &[u8]) -> Peer {
    let (result, mut seen) = rig.send(rig::CONTROL, FrameType::HELLO, payload);
    result.unwrap();
    match seen.pop() {
        Some(Seen::Ready(peer)) => peer,
        other => panic!("{other:?} after HELLO {}", show(payload)),
    }
}

/// NPAMP-HELLO §9 (1): HELLO is the first frame on Control, sealed under the keys
/// that Finished established, then HELLO_DONE; exactly one of each side.
#[test]
fn clause_1_one_hello_first() {
    let mut rig = rig(Side::Initiator);
    let frames = sent(&mut rig);
    assert_eq!(frames.len(), 2);
    let payload = &frames[0].1;
    let must = hello(1, &OURS, &[(uint(3), array(&[grease(payload)]))]);
    compare("HELLO", payload, &must);
    // ENC is 0x2; a sealed length counts the tag (ruling R1).
    let length = u32::try_from(must.len()).unwrap() + 16;
    compare(
        "header",
        &frames[0].0,
        &header(2, HELLO, CONTROL, 0, length),
    );
    compare(
        "header",
        &frames[1].0,
        &header(2, HELLO_DONE, CONTROL, 1, 16),
    );
    compare("HELLO_DONE", &frames[1].1, &[]);
    ready(&mut rig, &hello(1, &OURS, &[]));
    assert!(sent(&mut rig).is_empty(), "no second HELLO");
    // A second one of the peer closes; so does one after HELLO_DONE.
    for done in [false, true] {
        let mut rig = self::rig(Side::Responder);
        ready(&mut rig, &hello(1, &OURS, &[]));
        assert_eq!(sent(&mut rig).len(), 2);
        if done {
            rig.send(rig::CONTROL, FrameType::HELLO_DONE, &[])
                .0
                .unwrap();
        }
        let outcome = rig.send(rig::CONTROL, FrameType::HELLO, &hello(1, &OURS, &[]));
        rig.assert_failed(outcome, Failure::HelloRepeated);
    }
    // And anything before it.
    let mut rig = self::rig(Side::Responder);
    let outcome = rig.send(rig::BRIDGE, FrameType(REQUEST), b"x");
    rig.assert_failed(outcome, Failure::HelloMissing);
}

/// NPAMP-HELLO §9 (2): deterministic CBOR; unknown non-negative keys are ignored,
/// unknown negative ones close.
#[test]
fn clause_2_cbor() {
    let nested = map(&[
        (text("a"), array(&[1, 1000, 100_000])),
        (text("b"), text("c")),
    ]);
    for more in [
        vec![(uint(4), nested.clone())],
        vec![(uint(23), uint(1)), (uint(24), text("x"))],
        vec![(uint(u64::MAX), array(&[]))],
        vec![(uint(2), map(&[(text("unknown"), uint(1))]))],
    ] {
        let mut rig = rig(Side::Responder);
        let peer = ready(&mut rig, &hello(1, &OURS, &more));
        assert_eq!(peer.selected, OURS);
    }
    let version = (uint(0), uint(1));
    let protocols = (uint(1), array(&OURS));
    for bad in [
        // Negative keys: −1 and −1000.
        hello(1, &OURS, &[(head(1, 0), uint(0))]),
        hello(1, &OURS, &[(head(1, 999), uint(0))]),
        // A longer head than needed, keys out of order, a key twice, octets behind.
        map(&[(vec![0x18, 0], uint(1)), protocols.clone()]),
        map(&[(uint(0), vec![0x18, 1]), protocols.clone()]),
        map(&[protocols.clone(), version.clone()]),
        map(&[version.clone(), version.clone(), protocols.clone()]),
        [hello(1, &OURS, &[]), vec![0]].concat(),
        // Indefinite length.
        [&[0xbf][..], &hello(1, &OURS, &[])[1..], &[0xff]].concat(),
        // No map, or without what it must have.
        array(&OURS),
        map(&[version]),
        map(&[protocols]),
        Vec::new(),
    ] {
        let mut rig = rig(Side::Responder);
        let outcome = rig.send(rig::CONTROL, FrameType::HELLO, &bad);
        rig.assert_failed(outcome, Failure::HelloMalformed);
    }
}

/// NPAMP-HELLO §9 (3): the intersection, in the initiator's order whichever side we
/// are; without overlap nothing is usable. That carried traffic outside it gets
/// ProtocolUnsupported is shown in `registry`.
#[test]
fn clause_3_selection() {
    let theirs = [0x99, 0x10, 0x00, 0x02];
    let mut initiator = rig(Side::Initiator);
    sent(&mut initiator);
    let peer = ready(&mut initiator, &hello(1, &theirs, &[]));
    assert_eq!(peer.selected, [0x02, 0x10, 0x00]);
    let mut responder = rig(Side::Responder);
    let peer = ready(&mut responder, &hello(1, &theirs, &[]));
    assert_eq!(peer.selected, [0x10, 0x00, 0x02]);

    let mut rig = rig(Side::Responder);
    let peer = ready(&mut rig, &hello(1, &[0x01], &[]));
    assert!(peer.selected.is_empty());
    assert_eq!(
        rig.association
            .send(rig::BRIDGE, FrameType(NOTIFY), Flags::NONE, vec![]),
        Err(SendError::ChannelUnadvertised)
    );
    // Ours came back all the same.
    let frames = sent(&mut rig);
    let must = hello(1, &OURS, &[(uint(3), array(&[grease(&frames[0].1)]))]);
    compare("HELLO", &frames[0].1, &must);
}

/// NPAMP-HELLO §9 (4): a higher proposal is answered with our highest; where there
/// is no common version the association is closed.
#[test]
fn clause_4_versions() {
    for proposed in [1, 2, 255, u64::MAX] {
        let mut rig = rig(Side::Responder);
        ready(&mut rig, &hello(proposed, &OURS, &[]));
        let payload = &sent(&mut rig)[0].1;
        let must = hello(1, &OURS, &[(uint(3), array(&[grease(payload)]))]);
        compare("HELLO", payload, &must);
    }
    for (side, version) in [
        (Side::Responder, 0),
        (Side::Initiator, 0),
        (Side::Initiator, 2),
    ] {
        let mut rig = rig(side);
        sent(&mut rig);
        let outcome = rig.send(rig::CONTROL, FrameType::HELLO, &hello(version, &OURS, &[]));
        rig.assert_failed(outcome, Failure::HelloVersion);
    }
}

/// NPAMP-HELLO §9 (5): an altered HELLO does not authenticate, wherever it is
/// altered, and a stripped one is missed: the association ends.
#[test]
fn clause_5_downgrade() {
    let payload = hello(1, &OURS, &[]);
    for at in [36, 40, 36 + payload.len() - 1, 36 + payload.len() + 15] {
        let mut rig = rig(Side::Responder);
        let mut octets = rig.puppet.seal(rig::CONTROL, FrameType::HELLO, &payload);
        octets[at] ^= 0x01;
        let (result, seen) = rig.deliver(octets);
        result.unwrap();
        assert_eq!(seen, [Seen::Dropped(DropReason::TagFailure)]);
        assert!(sent(&mut rig).is_empty(), "nothing is answered");
        let outcome = rig.advance_to_timeout();
        rig.assert_failed(outcome, Failure::HelloTimeout);
    }
    for side in [Side::Initiator, Side::Responder] {
        let mut rig = rig(side);
        sent(&mut rig);
        let outcome = rig.advance_to_timeout();
        rig.assert_failed(outcome, Failure::HelloTimeout);
    }
}

/// NPAMP-HELLO §9 (6): of itself a HELLO has identifiers only. What the relay adds
/// by deviations R9, R12 and R13 stands in `params` and nowhere else: a tag, the
/// link's server name, and the A2A service parameters; no locator, no descriptor.
#[test]
fn clause_6_identifiers_and_the_recorded_deviation() {
    let mut config = rig::config(HelloMode::Required);
    config.params = vec![
        ("server-name".into(), ParamValue::Text("a.example".into())),
        ("docbind".into(), ParamValue::Uint(0xd0)),
    ];
    let mut rig = Rig::new(Side::Initiator, config);
    let payload = &sent(&mut rig)[0].1;
    // Deterministic order: the shorter key first.
    let params = map(&[
        (text("docbind"), uint(0xd0)),
        (text("server-name"), text("a.example")),
    ]);
    let more = [(uint(2), params), (uint(3), array(&[grease(payload)]))];
    compare("HELLO", payload, &hello(1, &OURS, &more));
}

/// NPAMP-HELLO §9 (7): GREASE is sent, another value each time, and ignored, in its
/// own field and among the protocols.
#[test]
fn clause_7_grease() {
    for greased in [vec![0xf000], vec![0xfffe, 0xf123, 7], vec![]] {
        let mut rig = rig(Side::Responder);
        let protocols = [0xf00f, 0x02, 0xfafa, 0x00];
        let more = [(uint(3), array(&greased))];
        let peer = ready(&mut rig, &hello(1, &protocols, &more));
        assert_eq!(peer.selected, [0x02, 0x00]);
        grease(&sent(&mut rig)[0].1);
    }
}
