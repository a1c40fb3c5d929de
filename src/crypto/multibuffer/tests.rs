//! Held to `ring`, on every path that this CPU has.

use super::*;
use proptest::prelude::*;

struct Case {
    key: usize,
    nonce: [u8; IV_LEN],
    head: [u8; Header::PREFIX_LEN],
    /// Text, then the tag.
    payload: Vec<u8>,
}

impl Case {
    fn text(&self) -> &[u8] {
        &self.payload[..self.payload.len() - TAG_LEN]
    }
}

fn key_octets(key: usize) -> [u8; KEY_LEN] {
    std::array::from_fn(|i| (i * 31 + key * 77 + 1) as u8)
}

fn case(at: usize, key: usize, length: usize) -> Case {
    Case {
        key,
        nonce: std::array::from_fn(|i| if i < 8 { i as u8 ^ 0x3c } else { at as u8 }),
        head: std::array::from_fn(|i| (i * at + 5) as u8),
        payload: (0..length)
            .map(|i| (i * 13 + at) as u8)
            .chain([0; TAG_LEN])
            .collect(),
    }
}

/// Ciphertext and tag as `ring` makes them.
fn expected(case: &Case) -> Vec<u8> {
    let mut text = case.text().to_vec();
    reference(&key_octets(case.key))
        .unwrap()
        .seal_in_place_append_tag(
            aead::Nonce::assume_unique_for_key(case.nonce),
            aead::Aad::from(case.head),
            &mut text,
        )
        .unwrap();
    text
}

fn work(path: Path, cases: &mut [Case], seals: bool) -> Vec<bool> {
    let keys: Vec<_> = (0..64).map(|key| path.key(&key_octets(key))).collect();
    let mut messages: Vec<_> = cases
        .iter_mut()
        .map(|case| Message {
            nonce: case.nonce,
            head: &case.head,
            payload: &mut case.payload,
            ..Message::place(&keys[case.key])
        })
        .collect();
    if seals {
        path.seal(&mut messages);
    } else {
        path.open(&mut messages);
    }
    messages.iter().map(|message| message.verified).collect()
}

#[test]
fn the_self_test_passes_on_every_path() {
    let paths = Path::supported();
    for path in &paths {
        assert!(path.agrees(), "{}", path.name());
    }
    assert_eq!(Path::best(), paths.first().copied());
}

/// Batches of 1 to 64, so that every way to fill lanes and pipelines occurs.
#[test]
fn every_batch_size() {
    for path in Path::supported() {
        for count in 0..=64 {
            for keys in [1, 64] {
                let mut cases: Vec<_> = (0..count)
                    .map(|at| case(at, at % keys, (at * 37) % 150))
                    .collect();
                let sealed: Vec<_> = cases.iter().map(expected).collect();
                work(path, &mut cases, true);
                for (case, sealed) in cases.iter().zip(&sealed) {
                    assert_eq!(&case.payload, sealed);
                }
            }
        }
    }
}

#[test]
fn keys_show_nothing_and_are_wiped() {
    for path in Path::supported() {
        let mut key = path.key(&key_octets(3));
        assert_eq!(format!("{key:?}"), "Key");
        assert!(key.rounds.as_flattened().iter().any(|&octet| octet != 0));
        key.rounds.zeroize();
        key.powers.zeroize();
        assert!(key.powers.iter().all(|&octet| octet == 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any mix of lengths and keys is sealed as `ring` seals it and opens again.
    #[test]
    fn sealed_as_ring_seals(shape in prop::collection::vec((0usize..64, prop_oneof![0usize..80, 0usize..600, 0usize..6000]), 1..40)) {
        for path in Path::supported() {
            let mut cases: Vec<_> = shape.iter().enumerate().map(|(at, &(key, length))| case(at, key, length)).collect();
            let plain: Vec<_> = cases.iter().map(|case| case.text().to_vec()).collect();
            let sealed: Vec<_> = cases.iter().map(expected).collect();
            work(path, &mut cases, true);
            for (case, sealed) in cases.iter().zip(&sealed) {
                prop_assert_eq!(&case.payload, sealed);
            }
            prop_assert!(work(path, &mut cases, false).into_iter().all(|verified| verified));
            for (case, plain) in cases.iter().zip(&plain) {
                prop_assert_eq!(case.text(), plain);
            }
        }
    }

    /// A change to any part of one frame refuses and zeroes that frame and no other.
    #[test]
    fn every_part_is_authenticated(lengths in prop::collection::vec(0usize..400, 1..24), which: prop::sample::Index, part in 0usize..5, at: prop::sample::Index, bit in 0u8..8) {
        for path in Path::supported() {
            let mut cases: Vec<_> = lengths.iter().enumerate().map(|(at, &length)| case(at, at, length)).collect();
            let plain: Vec<_> = cases.iter().map(|case| case.text().to_vec()).collect();
            work(path, &mut cases, true);
            let bad = which.index(cases.len());
            let change = &mut cases[bad];
            match part {
                0 => change.head[at.index(Header::PREFIX_LEN)] ^= 1 << bit,
                1 => change.nonce[at.index(IV_LEN)] ^= 1 << bit,
                2 => change.key = 63,
                3 => change.payload.truncate(at.index(change.payload.len())),
                _ => { let at = at.index(change.payload.len()); change.payload[at] ^= 1 << bit; }
            }
            for (i, verified) in work(path, &mut cases, false).into_iter().enumerate() {
                prop_assert_eq!(verified, i != bad);
                if i == bad {
                    prop_assert!(cases[i].payload.iter().all(|&octet| octet == 0));
                } else {
                    prop_assert_eq!(cases[i].text(), &plain[i]);
                }
            }
        }
    }
}
