//! The cleartext flights: TLV order and set, extensions, negotiation.

use super::client::Client;
use super::*;

/// Handshake binding §1: the TLVs of CLIENT_HELLO, their order and their set.
#[test]
fn client_hello_tlvs() {
    let (client_hello, ..) = recorded();
    let good = tlvs_of(&client_hello);
    let send =
        |tlvs: &[(u16, Vec<u8>)]| refused(&mut responder(), &hello(FrameType::CLIENT_HELLO, tlvs));
    for at in 0..good.len() {
        let mut missing = good.clone();
        let (tag, _) = missing.remove(at);
        assert_eq!(
            send(&missing),
            match good.get(at + 1) {
                Some((got, _)) => HandshakeError::TlvOrder {
                    expected: tag,
                    got: *got
                },
                None => HandshakeError::TlvMissing(tag),
            }
        );
        let mut repeated = good.clone();
        repeated.insert(at, good[at].clone());
        assert!(matches!(
            send(&repeated),
            HandshakeError::TlvOrder { got, .. } | HandshakeError::TlvUnexpected(got) if got == tag
        ));
        if at + 1 < good.len() {
            let mut swapped = good.clone();
            swapped.swap(at, at + 1);
            assert_eq!(
                send(&swapped),
                HandshakeError::TlvOrder {
                    expected: tag,
                    got: good[at + 1].0
                }
            );
        }
    }
    let mut foreign = good.clone();
    foreign.push((tag::KEY_UPDATE_MARKER, vec![0; 8]));
    assert_eq!(
        send(&foreign),
        HandshakeError::TlvUnexpected(tag::KEY_UPDATE_MARKER)
    );
    for (at, value) in [
        (0, vec![]),
        (1, vec![]),
        (1, vec![0x11]),
        (2, vec![0x08, 0x07, 0x08]),
        (3, vec![]),
    ] {
        let mut malformed = good.clone();
        malformed[at].1 = value;
        assert_eq!(send(&malformed), HandshakeError::TlvValue(good[at].0));
    }
    let mut short_share = good.clone();
    short_share[4].1.pop();
    assert_eq!(
        send(&short_share),
        HandshakeError::Kem(CryptoError::KemShareLength)
    );
    let mut low_order = good;
    low_order[4].1[kem::ENCAPSULATION_KEY_LEN..].fill(0);
    assert_eq!(send(&low_order), HandshakeError::Kem(CryptoError::LowOrder));
}

/// Draft §Extension TLVs in a hello: critical rejects; the others are passed
/// over and, being on the wire, absorbed.
#[test]
fn unknown_tlvs_in_client_hello() {
    let (client_hello, ..) = recorded();
    let mut critical = tlvs_of(&client_hello);
    critical.insert(2, (0x9000, vec![1]));
    assert_eq!(
        refused(&mut responder(), &hello(FrameType::CLIENT_HELLO, &critical)),
        HandshakeError::Tlv(TlvError::UnknownCritical(0x9000))
    );

    // A client of another make that sends an extension and absorbs it.
    for extension_at in 0..=5 {
        let mut client = Client::new();
        client.hello.insert(extension_at, (0x7abc, vec![1, 2, 3]));
        let mut responder = responder();
        client.finish(&mut responder, |_| ());
        // And one that sends it without absorbing it: transcripts differ.
        let mut client = Client::new();
        let honest = client.hello.clone();
        client.hello.insert(extension_at, (0x7abc, vec![1, 2, 3]));
        let mut responder = self::responder();
        responder
            .feed(&hello(FrameType::CLIENT_HELLO, &client.hello))
            .unwrap();
        client.hello = honest;
        let server = responder.transmit();
        assert!(client.read_server_auth(&server).is_err());
    }
}

/// Draft §Profile Negotiation, handshake binding §2: only what is built is
/// selected, in the client's order where the server takes several.
#[test]
fn negotiation() {
    let (client_hello, ..) = recorded();
    let good = tlvs_of(&client_hello);
    let answer = |at: usize, value: Vec<u8>| {
        let mut offer = good.clone();
        offer[at].1 = value;
        let mut responder = responder();
        responder
            .feed(&hello(FrameType::CLIENT_HELLO, &offer))
            .map(|_| tlvs_of(&responder.transmit()))
    };
    // High and Sovereign are not built: offered alone they are refused, offered
    // with Standard they are not selected.
    assert_eq!(answer(0, vec![2]), Err(HandshakeError::NoCommonProfile));
    assert_eq!(answer(0, vec![3]), Err(HandshakeError::NoCommonProfile));
    assert_eq!(
        answer(0, vec![0, 4, 0xff]),
        Err(HandshakeError::NoCommonProfile)
    );
    assert_eq!(answer(0, vec![3, 2, 1]).unwrap()[0].1, [1]);
    assert_eq!(
        answer(1, vec![0x11, 0xed]),
        Err(HandshakeError::NoCommonKem)
    );
    assert_eq!(
        answer(1, vec![0x11, 0xed, 0x11, 0xec]).unwrap()[1].1,
        [0x11, 0xec]
    );
    assert_eq!(
        answer(2, vec![0x09, 0x05]),
        Err(HandshakeError::NoCommonSignature)
    );
    assert_eq!(
        answer(2, vec![0x09, 0x05, 0x08, 0x07]).unwrap()[2].1,
        [0x08, 0x07]
    );
    assert_eq!(
        answer(3, vec![0x00, 0x09]),
        Err(HandshakeError::NoCommonSuite)
    );
    assert_eq!(answer(3, vec![0, 9, 0, 2, 0, 1]).unwrap()[3].1, [0, 2]);
    assert_eq!(answer(3, vec![0, 1, 0, 2]).unwrap()[3].1, [0, 1]);
}

#[test]
fn suite_policy() {
    for suite in Suite::ALL {
        let (ours, theirs) = run(
            &mut initiator_with(|config| config.suites = vec![suite]),
            &mut responder(),
        )
        .unwrap();
        assert_eq!((ours.suite, theirs.suite), (suite, suite));
        let (ours, _) = run(
            &mut initiator(),
            &mut responder_with(|config| config.suites = vec![suite]),
        )
        .unwrap();
        assert_eq!(ours.suite, suite);
    }
    assert_eq!(
        run(
            &mut initiator_with(|config| config.suites = vec![Suite::Aes256Gcm]),
            &mut responder_with(|config| config.suites = vec![Suite::ChaCha20Poly1305]),
        )
        .unwrap_err(),
        HandshakeError::NoCommonSuite
    );
}

/// The draft's "selected from the offered set", at the initiator.
#[test]
fn server_hello_tlvs() {
    let (_, server, _) = recorded();
    let good = tlvs_of(&server);
    let send = |tlvs: &[(u16, Vec<u8>)]| {
        let mut initiator = initiator_with(|config| config.suites = vec![Suite::Aes256Gcm]);
        initiator.transmit();
        refused(&mut initiator, &hello(FrameType::SERVER_HELLO, tlvs))
    };
    let with = |at: usize, value: Vec<u8>| {
        let mut tlvs = good.clone();
        tlvs[at].1 = value;
        send(&tlvs)
    };
    let not_offered = |tag, value| HandshakeError::SelectedNotOffered { tag, value };
    assert_eq!(with(0, vec![2]), not_offered(tag::PROFILE_SELECT, 2));
    assert_eq!(with(0, vec![3]), not_offered(tag::PROFILE_SELECT, 3));
    assert_eq!(
        with(1, vec![0x11, 0xed]),
        not_offered(tag::KEM_SELECT, 0x11ed)
    );
    assert_eq!(
        with(2, vec![0x09, 0x05]),
        not_offered(tag::SIG_SELECT, 0x0905)
    );
    assert_eq!(with(3, vec![0, 2]), not_offered(tag::AEAD_SELECT, 2));
    assert_eq!(with(3, vec![0, 9]), not_offered(tag::AEAD_SELECT, 9));
    assert_eq!(
        with(0, vec![]),
        HandshakeError::TlvValue(tag::PROFILE_SELECT)
    );
    assert_eq!(
        with(1, vec![0x11]),
        HandshakeError::TlvValue(tag::KEM_SELECT)
    );
    assert_eq!(
        with(2, vec![0; 4]),
        HandshakeError::TlvValue(tag::SIG_SELECT)
    );
    assert_eq!(
        with(3, vec![0, 1, 0, 2]),
        HandshakeError::TlvValue(tag::AEAD_SELECT)
    );
    assert_eq!(
        with(4, vec![0; 1119]),
        HandshakeError::Kem(CryptoError::KemCiphertextLength)
    );
    let mut low_order = good.clone();
    low_order[4].1[kem::MLKEM_CIPHERTEXT_LEN..].fill(0);
    assert_eq!(send(&low_order), HandshakeError::Kem(CryptoError::LowOrder));
    let mut critical = good.clone();
    critical.push((0x8000, vec![]));
    assert_eq!(
        send(&critical),
        HandshakeError::Tlv(TlvError::UnknownCritical(0x8000))
    );
    for at in 0..4 {
        let mut swapped = good.clone();
        swapped.swap(at, at + 1);
        assert!(matches!(send(&swapped), HandshakeError::TlvOrder { .. }));
        let mut missing = good.clone();
        missing.remove(at);
        assert!(matches!(send(&missing), HandshakeError::TlvOrder { .. }));
        let mut repeated = good.clone();
        repeated.insert(at, good[at].clone());
        assert!(matches!(send(&repeated), HandshakeError::TlvOrder { .. }));
    }
}
