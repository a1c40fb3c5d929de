//! AUTH frames that are sealed with the right key and wrong inside.

use super::client::{AuthParts, Client};
use super::*;

/// Handshake binding §6: an AUTH frame sealed with the right key and wrong inside.
#[test]
fn client_auth_inside() {
    Client::new().finish(&mut responder(), |_| ());
    let with =
        |change: fn(&mut AuthParts)| Client::new().auth(&mut responder(), change).unwrap_err();
    // §6.4: exactly three TLVs in order.
    let order = |expected, got| HandshakeError::TlvOrder { expected, got };
    assert_eq!(
        with(|auth| auth.tlvs.swap(0, 1)),
        order(tag::IDENTITY_KEY, tag::CERT_VERIFY)
    );
    assert_eq!(
        with(|auth| auth.tlvs.swap(1, 2)),
        order(tag::CERT_VERIFY, tag::FINISHED)
    );
    assert_eq!(
        with(|auth| drop(auth.tlvs.remove(1))),
        order(tag::CERT_VERIFY, tag::FINISHED)
    );
    assert_eq!(
        with(|auth| drop(auth.tlvs.pop())),
        HandshakeError::TlvMissing(tag::FINISHED)
    );
    assert_eq!(
        with(|auth| auth.tlvs.clear()),
        HandshakeError::TlvMissing(tag::IDENTITY_KEY)
    );
    assert_eq!(
        with(|auth| auth.tlvs.insert(0, auth.tlvs[0].clone())),
        order(tag::CERT_VERIFY, tag::IDENTITY_KEY)
    );
    assert_eq!(
        with(|auth| auth.tlvs.push((0x7abc, vec![]))),
        HandshakeError::TlvUnexpected(0x7abc)
    );
    assert_eq!(
        with(|auth| auth.tlvs.push((0x8abc, vec![]))),
        HandshakeError::Tlv(TlvError::UnknownCritical(0x8abc))
    );
    // Values.
    assert_eq!(
        with(|auth| auth.tlvs[0].1.truncate(31)),
        HandshakeError::TlvValue(tag::IDENTITY_KEY)
    );
    assert_eq!(
        with(|auth| auth.tlvs[0].1[0] ^= 1),
        HandshakeError::CertVerify(CryptoError::CertVerify)
    );
    // §6.1: the scheme must be the negotiated one.
    assert_eq!(
        with(|auth| auth.tlvs[1].1[1] = 0x08),
        HandshakeError::CertVerify(CryptoError::CertVerifyScheme(0x0808))
    );
    assert_eq!(
        with(|auth| auth.tlvs[1].1.truncate(31)),
        HandshakeError::CertVerify(CryptoError::CertVerifyLength)
    );
    assert_eq!(
        with(|auth| auth.tlvs[1].1[20] ^= 1),
        HandshakeError::CertVerify(CryptoError::CertVerify)
    );
    // §6.2.
    assert_eq!(
        with(|auth| auth.tlvs[2].1[0] ^= 1),
        HandshakeError::Finished
    );
    assert_eq!(
        with(|auth| auth.tlvs[2].1.truncate(31)),
        HandshakeError::Finished
    );
    assert_eq!(
        with(|auth| auth.tlvs[2].1.clear()),
        HandshakeError::Finished
    );
    // The envelope of an AUTH frame, sealed as it says.
    assert_eq!(
        with(|auth| auth.header.sequence = 1),
        HandshakeError::Sequence(1)
    );
}

/// Handshake binding §6.1: a CertVerify of the other role is useless, even from
/// the right key over the right transcript.
#[test]
fn a_server_signature_is_no_client_signature() {
    let client = Client::new();
    let mut responder = responder();
    responder
        .feed(&hello(FrameType::CLIENT_HELLO, &client.hello))
        .unwrap();
    let server = responder.transmit();
    let (mut transcript, _, client_secret) = client.read_server_auth(&server).unwrap();
    let mut sealed = vec![0; Header::LEN];
    let mut add = |tag, value: &[u8], transcript: &mut Transcript| {
        let tlv = Tlv { tag, value };
        tlv.encode(&mut sealed);
        transcript.add_tlv(&tlv);
        transcript.point()
    };
    transcript.add_frame_type(FrameType::CLIENT_AUTH);
    let identity = client_identity();
    let point = add(
        tag::IDENTITY_KEY,
        identity.public().as_octets(),
        &mut transcript,
    );
    let signature = crate::crypto::cert_verify::sign(&identity, Role::Server, &point);
    let point = add(tag::CERT_VERIFY, &signature, &mut transcript);
    let mac = client_secret.finished_key().verify_data(&point);
    add(tag::FINISHED, &mac, &mut transcript);
    sealed.resize(sealed.len() + TAG_LEN, 0);
    let header = super::flight::header(
        FrameType::CLIENT_AUTH,
        Flags::ENC,
        sealed.len() - Header::LEN,
    );
    client_secret
        .traffic_secret(Suite::Aes256Gcm)
        .key_iv()
        .into_traffic_key(Suite::Aes256Gcm)
        .seal(&header, &mut sealed);
    assert_eq!(
        responder.feed(&sealed).unwrap_err(),
        HandshakeError::CertVerify(CryptoError::CertVerify)
    );
}

/// The responder's encapsulation can be a recorded one; both spellings of the
/// same encapsulation give the same flight.
#[test]
fn recorded_encapsulation_is_the_drawn_one() {
    let client = Client::new();
    let mut random = SeededRandom::new(2);
    let Encapsulation::Random {
        mlkem_message,
        x25519_private,
    } = Encapsulation::draw(&mut random)
    else {
        unreachable!()
    };
    let drawn = Encapsulation::Random {
        mlkem_message,
        x25519_private: x25519_private.clone(),
    };
    let (ciphertext, shared) = kem::encapsulate(client.decapsulator.share(), &drawn).unwrap();
    let recorded = Encapsulation::Recorded {
        mlkem_ciphertext: Box::new(*ciphertext.first_chunk().unwrap()),
        mlkem_secret: zeroize::Zeroizing::new(*shared.expose().first_chunk().unwrap()),
        x25519_private,
    };
    let config = || ResponderConfig::new(server_identity(), PeerPolicy::Any);
    let flight = |encapsulation| {
        let mut responder = Responder::with_encapsulation(config(), encapsulation);
        responder
            .feed(&hello(FrameType::CLIENT_HELLO, &client.hello))
            .unwrap();
        responder.transmit()
    };
    assert_eq!(flight(drawn), flight(recorded));
}
