//! The five known-answer files of the handshake binding §8. Each has three legs:
//! the primitive against published values (anchor), an independent
//! recomputation (oracle), and the library (implementation).

use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, ML_KEM_768};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use npamp_relay::crypto::cert_verify::{self, Role};
use npamp_relay::crypto::finished::FinishedKey;
use npamp_relay::crypto::hkdf::{self, Secret};
use npamp_relay::crypto::kem::{
    self, Decapsulator, Encapsulation, KeyMaterial, SharedSecret, x25519_agree, x25519_public,
};
use npamp_relay::crypto::{
    CryptoError, Direction, HandshakeSecret, Hash, Identity, MasterSecret, SignatureScheme, Suite,
    Transcript, TranscriptHash,
};
use npamp_relay::wire::{ChannelId, FrameType, Tlv};
use zeroize::Zeroizing;

use crate::oracle;
use crate::support::{array, code_point, json, octets};

/// Handshake binding §4.
#[test]
fn kem_wire() {
    let Some(file) = json("kem-wire-kat.json") else {
        return;
    };
    let keygen = &file["mlkem768_keygen"];
    let seed = [octets(&keygen["d"]), octets(&keygen["z"])].concat();
    let seed: [u8; 64] = seed.try_into().unwrap();
    let ek = octets(&keygen["ek"]);
    let x25519 = &file["x25519_rfc7748_6_1"];
    let (alice, bob): ([u8; 32], [u8; 32]) = (
        array(&x25519["alice_private"]),
        array(&x25519["bob_private"]),
    );
    let (alice_public, bob_public) = (
        octets(&x25519["alice_public"]),
        octets(&x25519["bob_public"]),
    );
    let x25519_secret = octets(&x25519["shared_secret"]);

    // Anchor: ML-KEM key generation against NIST, X25519 against RFC 7748 §6.1.
    let pair = libcrux_ml_kem::mlkem768::generate_key_pair(seed);
    assert_eq!(pair.pk()[..], ek);
    assert_eq!(x25519_public(&alice)[..], alice_public);
    assert_eq!(x25519_public(&bob)[..], bob_public);
    assert_eq!(
        x25519_agree(&alice, &bob_public).unwrap()[..],
        x25519_secret
    );
    assert_eq!(
        x25519_agree(&bob, &alice_public).unwrap()[..],
        x25519_secret
    );

    // Oracle: the share put together by hand, ML-KEM first; and an independent
    // ML-KEM decapsulates what is encapsulated to the NIST key.
    let share = [ek, alice_public].concat();
    assert_eq!(share.len(), 1216);
    let (mlkem_ciphertext, mlkem_secret) =
        libcrux_ml_kem::mlkem768::encapsulate(pair.public_key(), [0x5a; 32]);
    let other = DecapsulationKey::new(&ML_KEM_768, pair.sk()).unwrap();
    let decapsulated = other
        .decapsulate(Ciphertext::from(&mlkem_ciphertext.as_slice()[..]))
        .unwrap();
    assert_eq!(decapsulated.as_ref(), mlkem_secret);

    // Implementation: share, ciphertext and combined secret in that order.
    let decapsulator = Decapsulator::new(&KeyMaterial {
        mlkem_seed: Zeroizing::new(seed),
        x25519_private: Zeroizing::new(alice),
    });
    assert_eq!(decapsulator.share()[..], share);
    let (ciphertext, secret) = kem::encapsulate(
        &share,
        &Encapsulation::Random {
            mlkem_message: Zeroizing::new([0x5a; 32]),
            x25519_private: Zeroizing::new(bob),
        },
    )
    .unwrap();
    assert_eq!(ciphertext.len(), 1120);
    assert_eq!(
        ciphertext[..],
        [&mlkem_ciphertext.as_slice()[..], &bob_public].concat()
    );
    let combined = [&mlkem_secret[..], &x25519_secret].concat();
    assert_eq!(secret.expose()[..], combined);
    assert_eq!(
        decapsulator.decapsulate(&ciphertext[..]).unwrap().expose()[..],
        combined
    );
    // A ciphertext laid out the other way round gives another secret.
    let swapped = [&bob_public, &mlkem_ciphertext.as_slice()[..]].concat();
    assert!(
        decapsulator
            .decapsulate(&swapped)
            .map_or(true, |secret| secret.expose()[..] != combined)
    );
    let layout = &file["wire_layout"];
    assert_eq!(layout["kem_share_len"], kem::SHARE_LEN);
    assert_eq!(layout["kem_ciphertext_len"], kem::CIPHERTEXT_LEN);
}

/// Handshake binding §5.
#[test]
fn key_schedule() {
    let Some(file) = json("key-schedule-kat.json") else {
        return;
    };
    // Anchor: the oracle's HKDF against RFC 5869, its Expand-Label against RFC 8448.
    let rfc5869 = &file["rfc5869_tc1"];
    let prk = oracle::extract(&octets(&rfc5869["salt"]), &octets(&rfc5869["ikm"]));
    let info = octets(&rfc5869["info"]);
    assert_eq!(prk[..], octets(&rfc5869["prk"]));
    assert_eq!(oracle::expand(&prk, &info, 42), octets(&rfc5869["okm"]));
    let rfc8448 = &file["rfc8448_expand_label"];
    let secret = octets(&rfc8448["client_handshake_traffic_secret"]);
    let tls = |label, length| oracle::expand_label("tls13 ", &secret, label, b"", length);
    assert_eq!(tls("key", 16), octets(&rfc8448["write_key"]));
    assert_eq!(tls("iv", 12), octets(&rfc8448["write_iv"]));
    assert_eq!(tls("finished", 32), octets(&rfc8448["finished_key"]));
    // The library's HKDF meets the same anchor.
    let ours = hkdf::extract(
        Hash::Sha256,
        Some(&octets(&rfc5869["salt"])),
        &octets(&rfc5869["ikm"]),
    );
    assert_eq!(ours.expose(), prk);
    let mut okm = [0; 42];
    hkdf::expand(Hash::Sha256, &prk, &info, &mut okm).unwrap();
    assert_eq!(okm[..], octets(&rfc5869["okm"]));

    // Oracle: the whole ladder with the proven Expand-Label.
    let inputs = &file["npamp_inputs"];
    let mlkem: [u8; 32] = array(&inputs["ikm_mlkem_ss"]);
    let x25519: [u8; 32] = array(&inputs["ikm_x25519_ss"]);
    let (th_kem, th_ccv) = (octets(&inputs["th_kem"]), octets(&inputs["th_ccv"]));
    let handshake = oracle::extract(&[0; 32], &[mlkem, x25519].concat());
    let c_hs = oracle::npamp(&handshake, "c hs", &th_kem, 32);
    let s_hs = oracle::npamp(&handshake, "s hs", &th_kem, 32);
    let master = oracle::npamp(&handshake, "master", &th_ccv, 32);
    let traffic = |parent: &[u8], direction: u8| {
        let mut context = vec![direction];
        context.extend_from_slice(&0u64.to_be_bytes());
        context.extend_from_slice(&1u16.to_be_bytes());
        context.extend_from_slice(&0u16.to_be_bytes());
        let secret = oracle::npamp(parent, "traffic", &context, 32);
        (
            oracle::npamp(&secret, "key", b"", 32),
            oracle::npamp(&secret, "iv", b"", 12),
        )
    };

    // Implementation.
    let point = |octets: &[u8]| TranscriptHash::from_octets(octets).unwrap();
    let ours = HandshakeSecret::extract(Hash::Sha256, &SharedSecret::from_parts(&mlkem, &x25519));
    assert_eq!(ours.expose(), handshake);
    let (client, server) = ours.traffic_secrets(&point(&th_kem));
    assert_eq!((client.expose(), server.expose()), (&c_hs[..], &s_hs[..]));
    for (ours, parent, direction) in [(&client, &c_hs, 0), (&server, &s_hs, 1)] {
        assert_eq!(
            ours.finished_key().expose(),
            oracle::npamp(parent, "finished", b"", 32)
        );
        let key_iv = ours.traffic_secret(Suite::Aes256Gcm).key_iv();
        let (key, iv) = traffic(parent, direction);
        assert_eq!((&key_iv.key[..], &key_iv.iv[..]), (&key[..], &iv[..]));
    }
    let ours: MasterSecret = ours.into_master(&point(&th_ccv));
    assert_eq!(ours.expose(), master);
    for (direction, octet) in [
        (Direction::InitiatorToResponder, 0),
        (Direction::ResponderToInitiator, 1),
    ] {
        let key_iv = ours
            .traffic_secret(direction, 0, Suite::Aes256Gcm, ChannelId::CONTROL)
            .key_iv();
        let (key, iv) = traffic(&master, octet);
        assert_eq!((&key_iv.key[..], &key_iv.iv[..]), (&key[..], &iv[..]));
    }
}

/// Handshake binding §3.
#[test]
fn transcript() {
    let Some(file) = json("transcript-kat.json") else {
        return;
    };
    // Anchor: SHA-256 against FIPS 180-4.
    let anchor = &file["fips180_4_sha256_abc"];
    assert_eq!(anchor["input_ascii"], "abc");
    assert_eq!(oracle::sha256(b"abc")[..], octets(&anchor["digest"]));

    // Where each point lies: frame index, TLVs of that frame absorbed.
    let points = [
        ("th_kem", 1, 5),
        ("th_sid", 2, 1),
        ("th_scv", 2, 2),
        ("th_cid", 3, 1),
        ("th_ccv", 3, 2),
    ];
    let expected = &file["expected_transcript_points"];
    let mut by_hand = Vec::new();
    let mut ours = Transcript::new();
    ours.select(Hash::Sha256);
    let mut seen = 0;
    for (frame_index, frame) in file["frames"].as_array().unwrap().iter().enumerate() {
        let frame_type = code_point(&frame["frame_type"]);
        by_hand.extend_from_slice(&frame_type.to_be_bytes());
        ours.add_frame_type(FrameType(frame_type));
        for (tlv_index, tlv) in frame["tlvs"].as_array().unwrap().iter().enumerate() {
            let (tag, value) = (code_point(&tlv["type"]), octets(&tlv["value"]));
            by_hand.extend_from_slice(&oracle::tlv(tag, &value));
            ours.add_tlv(&Tlv { tag, value: &value });
            for (name, frame, tlvs) in points {
                if (frame, tlvs) == (frame_index, tlv_index + 1) {
                    let expected = octets(&expected[name]);
                    assert_eq!(oracle::sha256(&by_hand)[..], expected, "oracle {name}");
                    assert_eq!(ours.point().as_ref(), expected, "{name}");
                    seen += 1;
                }
            }
        }
    }
    assert_eq!(seen, points.len());
}

/// Handshake binding §6.2.
#[test]
fn finished() {
    let Some(file) = json("finished-kat.json") else {
        return;
    };
    // Anchor: HMAC-SHA-256 against RFC 4231.
    for case in ["tc1", "tc2"] {
        let case = &file["rfc4231_hmac_sha256"][case];
        let mac = oracle::hmac(&octets(&case["key"]), &octets(&case["data"]));
        assert_eq!(mac[..], octets(&case["hmac_sha256"]));
    }
    let inputs = &file["npamp_inputs"];
    for (role, point, other_point) in [
        ("server", "th_scv", "th_ccv"),
        ("client", "th_ccv", "th_scv"),
    ] {
        let key = octets(&inputs[format!("finished_key_{role}")]);
        let point = octets(&inputs[point]);
        let expected = octets(&file["expected"][format!("verify_data_{role}")]);
        // Oracle.
        assert_eq!(oracle::hmac(&key, &point)[..], expected, "{role}");
        // Implementation, accepting and rejecting.
        let key = FinishedKey::new(Secret::new(Hash::Sha256, &key).unwrap());
        let point = TranscriptHash::from_octets(&point).unwrap();
        assert_eq!(key.verify_data(&point), expected, "{role}");
        assert_eq!(key.verify(&expected, &point), Ok(()));
        let other = TranscriptHash::from_octets(&octets(&inputs[other_point])).unwrap();
        assert_eq!(key.verify(&expected, &other), Err(CryptoError::Finished));
    }
}

/// Handshake binding §6.1.
#[test]
fn cert_verify() {
    let Some(file) = json("certverify-kat.json") else {
        return;
    };
    // Anchor: Ed25519 against RFC 8032 §7.1, the library's and an independent one.
    for case in ["test1", "test2"] {
        let case = &file["rfc8032_ed25519"][case];
        let seed: [u8; 32] = array(&case["seed"]);
        let (message, signature) = (octets(&case["message"]), octets(&case["signature"]));
        let identity = Identity::from_seed(&seed);
        assert_eq!(
            identity.public().as_octets()[..],
            octets(&case["public_key"])
        );
        assert_eq!(identity.sign(&message)[..], signature);
        let other = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
        assert_eq!(other.public_key().as_ref(), octets(&case["public_key"]));
        assert_eq!(other.sign(&message).as_ref(), signature);
    }
    let inputs = &file["npamp_inputs"];
    let expected = &file["expected"];
    let scheme = SignatureScheme::Ed25519;
    for (name, role, wrong_role, point, wrong_point) in [
        ("server", Role::Server, Role::Client, "th_sid", "th_cid"),
        ("client", Role::Client, Role::Server, "th_cid", "th_sid"),
    ] {
        let seed: [u8; 32] = array(&inputs[format!("{name}_seed")]);
        let point = octets(&inputs[point]);
        let value = octets(&expected[format!("certverify_value_{name}")]);
        // Oracle: signing input by hand, signed by the independent Ed25519.
        let mut input = vec![0x20; 64];
        input.extend_from_slice(file["contexts"][name].as_str().unwrap().as_bytes());
        input.push(0);
        input.extend_from_slice(&point);
        assert_eq!(input, octets(&expected[format!("signing_input_{name}")]));
        let signature = Ed25519KeyPair::from_seed_unchecked(&seed)
            .unwrap()
            .sign(&input);
        assert_eq!(
            signature.as_ref(),
            octets(&expected[format!("signature_{name}")])
        );
        assert_eq!(value, [&[0x08, 0x07], signature.as_ref()].concat());
        // Implementation, accepting and rejecting.
        let identity = Identity::from_seed(&seed);
        let public = identity.public();
        assert_eq!(
            public.as_octets()[..],
            octets(&inputs[format!("{name}_pub")])
        );
        let point = TranscriptHash::from_octets(&point).unwrap();
        assert_eq!(cert_verify::signing_input(role, &point), input);
        assert_eq!(cert_verify::sign(&identity, role, &point)[..], value);
        assert_eq!(
            cert_verify::verify(&value, scheme, role, &point, &public),
            Ok(())
        );
        assert_eq!(
            cert_verify::verify(&value, scheme, wrong_role, &point, &public),
            Err(CryptoError::CertVerify)
        );
        let wrong = TranscriptHash::from_octets(&octets(&inputs[wrong_point])).unwrap();
        assert_eq!(
            cert_verify::verify(&value, scheme, role, &wrong, &public),
            Err(CryptoError::CertVerify)
        );
    }
}
