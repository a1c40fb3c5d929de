//! The golden handshake: the real state machines, fed with the file's inputs,
//! reproduce all four frames octet for octet, and every secret of the ladder.

use std::sync::Arc;

use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, ML_KEM_768};
use npamp_relay::crypto::kem::{Decapsulator, Encapsulation, KeyMaterial};
use npamp_relay::crypto::{
    Direction, HandshakeSecret, Hash, Identity, Suite, Transcript, TranscriptHash,
};
use npamp_relay::handshake::{
    Established, Initiator, InitiatorConfig, PeerPolicy, Progress, Responder, ResponderConfig,
};
use npamp_relay::wire::{ChannelId, FrameType, Header, Tlv, Tlvs};
use serde_json::Value;
use zeroize::Zeroizing;

use crate::oracle;
use crate::support::{array, json, octets};

fn material(inputs: &Value) -> KeyMaterial {
    KeyMaterial {
        mlkem_seed: Zeroizing::new(array(&inputs["mlkem768_seed_dz"])),
        x25519_private: Zeroizing::new(array(&inputs["client_x25519_private"])),
    }
}

fn done(progress: Progress) -> Established {
    match progress {
        Progress::Done(established) => *established,
        Progress::Continue => panic!("the handshake is complete"),
    }
}

fn header_and_payload(frame: &mut [u8]) -> (Header, &mut [u8]) {
    (Header::decode(frame).unwrap(), &mut frame[Header::LEN..])
}

/// Handshake binding §1, §3–§6.
#[test]
fn golden_frames() {
    let Some(file) = json("handshake-flow-kat.json") else {
        return;
    };
    let (inputs, expected) = (&file["inputs"], &file["expected"]);
    let frames = &expected["frames"];
    let client = Arc::new(Identity::from_seed(&array(
        &inputs["client_identity_ed25519_seed"],
    )));
    let server = Arc::new(Identity::from_seed(&array(
        &inputs["server_identity_ed25519_seed"],
    )));

    let mut initiator = Initiator::with_key_material(
        InitiatorConfig {
            identity: client.clone(),
            peer: Some(server.public()),
            suites: vec![Suite::Aes256Gcm],
        },
        &material(inputs),
    );
    let mut responder = Responder::with_encapsulation(
        ResponderConfig::new(server.clone(), PeerPolicy::only(client.public())),
        Encapsulation::Recorded {
            mlkem_ciphertext: Box::new(array(&inputs["mlkem_ciphertext"])),
            mlkem_secret: Zeroizing::new(array(&inputs["mlkem_shared_secret"])),
            x25519_private: Zeroizing::new(array(&inputs["server_x25519_private"])),
        },
    );

    let mut client_hello = Vec::new();
    initiator.poll_transmit(&mut client_hello);
    assert_eq!(client_hello, octets(&frames["client_hello"]));
    let (header, payload) = header_and_payload(&mut client_hello);
    responder.handle_frame(&header, payload).unwrap();

    let mut flight = Vec::new();
    responder.poll_transmit(&mut flight);
    let mut server_hello = octets(&frames["server_hello"]);
    let mut server_auth = flight.split_off(server_hello.len());
    assert_eq!(flight, server_hello);
    assert_eq!(server_auth, octets(&frames["server_auth"]));
    let (header, payload) = header_and_payload(&mut server_hello);
    initiator.handle_frame(&header, payload).unwrap();
    let (header, payload) = header_and_payload(&mut server_auth);
    let ours = done(initiator.handle_frame(&header, payload).unwrap());
    assert_eq!(
        payload[..payload.len() - 16],
        octets(&expected["auth_plaintext"]["server_auth"])
    );

    let mut client_auth = Vec::new();
    initiator.poll_transmit(&mut client_auth);
    assert_eq!(client_auth, octets(&frames["client_auth"]));
    let (header, payload) = header_and_payload(&mut client_auth);
    let theirs = done(responder.handle_frame(&header, payload).unwrap());
    assert_eq!(
        payload[..payload.len() - 16],
        octets(&expected["auth_plaintext"]["client_auth"])
    );

    let secrets = &expected["secrets"];
    for established in [&ours, &theirs] {
        assert_eq!(established.suite, Suite::Aes256Gcm);
        assert_eq!(
            established.master.expose(),
            octets(&secrets["master_secret"])
        );
        for (direction, name) in [
            (Direction::InitiatorToResponder, "app_c2s"),
            (Direction::ResponderToInitiator, "app_s2c"),
        ] {
            let secret = established.master.traffic_secret(
                direction,
                0,
                Suite::Aes256Gcm,
                ChannelId::CONTROL,
            );
            assert_eq!(
                secret.expose(),
                octets(&secrets[format!("{name}_traffic_secret")])
            );
            let key_iv = secret.key_iv();
            assert_eq!(key_iv.key[..], octets(&secrets[format!("{name}_key")]));
            assert_eq!(key_iv.iv[..], octets(&secrets[format!("{name}_iv")]));
        }
    }
    assert_eq!(ours.peer, server.public());
    assert_eq!(theirs.peer, client.public());
}

/// The inner values of the same handshake: KEM, transcript points, ladder,
/// CertVerify and Finished, each against the file and against the oracle.
#[test]
fn golden_values() {
    let Some(file) = json("handshake-flow-kat.json") else {
        return;
    };
    let (inputs, expected) = (&file["inputs"], &file["expected"]);

    // The pinned ciphertext validates itself: two ML-KEM implementations give its secret.
    let decapsulator = Decapsulator::new(&material(inputs));
    assert_eq!(
        decapsulator.share()[..],
        octets(&expected["kem"]["kem_share"])
    );
    let ciphertext = octets(&expected["kem"]["kem_ciphertext"]);
    let shared = decapsulator.decapsulate(&ciphertext).unwrap();
    assert_eq!(shared.expose()[..], octets(&inputs["combined_secret"]));
    let pair = libcrux_ml_kem::mlkem768::generate_key_pair(array(&inputs["mlkem768_seed_dz"]));
    let other = DecapsulationKey::new(&ML_KEM_768, pair.sk()).unwrap();
    let secret = other
        .decapsulate(Ciphertext::from(&octets(&inputs["mlkem_ciphertext"])[..]))
        .unwrap();
    assert_eq!(secret.as_ref(), octets(&inputs["mlkem_shared_secret"]));

    // Transcript, by hand and by the library, from the golden plaintexts.
    let plaintexts = [
        (
            FrameType::CLIENT_HELLO,
            octets(&expected["frames"]["client_hello"])[Header::LEN..].to_vec(),
        ),
        (
            FrameType::SERVER_HELLO,
            octets(&expected["frames"]["server_hello"])[Header::LEN..].to_vec(),
        ),
        (
            FrameType::SERVER_AUTH,
            octets(&expected["auth_plaintext"]["server_auth"]),
        ),
        (
            FrameType::CLIENT_AUTH,
            octets(&expected["auth_plaintext"]["client_auth"]),
        ),
    ];
    let mut by_hand = Vec::new();
    let mut ours = Transcript::new();
    ours.select(Hash::Sha256);
    let mut points = Vec::new();
    for (frame_type, plaintext) in &plaintexts {
        by_hand.extend_from_slice(&frame_type.0.to_be_bytes());
        ours.add_frame_type(*frame_type);
        for tlv in Tlvs::new(plaintext) {
            let Tlv { tag, value } = tlv.unwrap();
            by_hand.extend_from_slice(&oracle::tlv(tag, value));
            ours.add_tlv(&Tlv { tag, value });
            assert_eq!(ours.point().as_ref(), oracle::sha256(&by_hand));
            points.push(ours.point());
        }
    }
    // Five TLVs per hello, three per AUTH frame.
    let [th_kem, th_sid, th_scv, th_cid, th_ccv] = [9, 10, 11, 13, 14].map(|at: usize| points[at]);
    for (name, point) in [
        ("th_kem", th_kem),
        ("th_sid", th_sid),
        ("th_scv", th_scv),
        ("th_cid", th_cid),
        ("th_ccv", th_ccv),
    ] {
        assert_eq!(
            point.as_ref(),
            octets(&expected["transcript"][name]),
            "{name}"
        );
    }

    let secrets = &expected["secrets"];
    let handshake = HandshakeSecret::extract(Hash::Sha256, &shared);
    assert_eq!(handshake.expose(), octets(&secrets["handshake_secret"]));
    let (client, server) = handshake.traffic_secrets(&th_kem);
    let check = |point: &TranscriptHash,
                 secret: &npamp_relay::crypto::HandshakeTrafficSecret,
                 prefix: &str,
                 side: &str| {
        assert_eq!(
            secret.expose(),
            octets(&secrets[format!("{prefix}_secret")])
        );
        let traffic = secret.traffic_secret(Suite::Aes256Gcm);
        assert_eq!(
            traffic.expose(),
            octets(&secrets[format!("{prefix}_traffic_secret")])
        );
        let key_iv = traffic.key_iv();
        assert_eq!(key_iv.key[..], octets(&secrets[format!("{prefix}_key")]));
        assert_eq!(key_iv.iv[..], octets(&secrets[format!("{prefix}_iv")]));
        let finished = secret.finished_key();
        assert_eq!(finished.expose(), octets(&expected["finished_keys"][side]));
        let verify_data = octets(&expected["finished"][side]);
        assert_eq!(finished.verify_data(point), verify_data);
        assert_eq!(
            oracle::hmac(finished.expose(), point.as_ref())[..],
            verify_data
        );
    };
    check(&th_ccv, &client, "c_hs", "client");
    check(&th_scv, &server, "s_hs", "server");
    assert_eq!(
        handshake.into_master(&th_ccv).expose(),
        octets(&secrets["master_secret"])
    );
}
