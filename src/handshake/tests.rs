//! The handshake as a whole: negotiation, and every way to tamper with it.

use std::sync::Arc;

use proptest::prelude::*;

use super::auth;
use super::*;
use crate::crypto::cert_verify::Role;
use crate::crypto::kem::{self, Decapsulator, Encapsulation, KeyMaterial};
use crate::crypto::{
    CryptoError, HandshakeSecret, HandshakeTrafficSecret, Hash, Identity, SeededRandom, TAG_LEN,
    Transcript,
};
use crate::wire::tlv::tag;
use crate::wire::{ChannelId, Flags, FrameType, Header, HeaderError, Tlv, TlvError, Tlvs};

fn client_identity() -> Arc<Identity> {
    Arc::new(Identity::from_seed(&[0xc1; 32]))
}

fn server_identity() -> Arc<Identity> {
    Arc::new(Identity::from_seed(&[0x5e; 32]))
}

fn initiator() -> Initiator {
    initiator_with(|_| ())
}

fn initiator_with(change: impl FnOnce(&mut InitiatorConfig)) -> Initiator {
    let mut config = InitiatorConfig::new(client_identity(), Some(server_identity().public()));
    change(&mut config);
    Initiator::new(config, &mut SeededRandom::new(1))
}

fn responder() -> Responder {
    responder_with(|_| ())
}

fn responder_with(change: impl FnOnce(&mut ResponderConfig)) -> Responder {
    let mut config = ResponderConfig::new(
        server_identity(),
        PeerPolicy::only(client_identity().public()),
    );
    change(&mut config);
    Responder::new(config, &mut SeededRandom::new(2))
}

trait Machine {
    fn transmit(&mut self) -> Vec<u8>;
    fn receive(&mut self, header: &Header, payload: &mut [u8]) -> Result<Progress, HandshakeError>;

    /// Feeds whole frames until one completes or fails the handshake.
    fn feed(&mut self, octets: &[u8]) -> Result<Progress, HandshakeError> {
        let mut octets = octets.to_vec();
        let mut rest = &mut octets[..];
        let mut progress = Progress::Continue;
        while !rest.is_empty() {
            let header = Header::decode(rest)?;
            let total = Header::LEN + header.payload_length as usize;
            if rest.len() < total {
                return Err(HeaderError::Truncated.into());
            }
            let (frame, after) = rest.split_at_mut(total);
            progress = self.receive(&header, &mut frame[Header::LEN..])?;
            rest = after;
        }
        Ok(progress)
    }
}

impl Machine for Initiator {
    fn transmit(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.poll_transmit(&mut out);
        out
    }
    fn receive(&mut self, header: &Header, payload: &mut [u8]) -> Result<Progress, HandshakeError> {
        self.handle_frame(header, payload)
    }
}

impl Machine for Responder {
    fn transmit(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.poll_transmit(&mut out);
        out
    }
    fn receive(&mut self, header: &Header, payload: &mut [u8]) -> Result<Progress, HandshakeError> {
        self.handle_frame(header, payload)
    }
}

fn done(progress: Result<Progress, HandshakeError>) -> Established {
    match progress {
        Ok(Progress::Done(established)) => *established,
        other => panic!("expected Done, got {other:?}"),
    }
}

fn run(
    initiator: &mut Initiator,
    responder: &mut Responder,
) -> Result<(Established, Established), HandshakeError> {
    responder.feed(&initiator.transmit())?;
    let ours = match initiator.feed(&responder.transmit())? {
        Progress::Done(established) => *established,
        Progress::Continue => panic!("both server frames were fed"),
    };
    let theirs = done(Ok(responder.feed(&initiator.transmit())?));
    Ok((ours, theirs))
}

/// The three flights of one handshake, as they went over the wire.
fn recorded() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let (mut initiator, mut responder) = (initiator(), responder());
    let client_hello = initiator.transmit();
    responder.feed(&client_hello).unwrap();
    let server = responder.transmit();
    done(initiator.feed(&server));
    let client_auth = initiator.transmit();
    done(responder.feed(&client_auth));
    (client_hello, server, client_auth)
}

fn frame(header: Header, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        payload_length: payload.len() as u32,
        ..header
    };
    let mut out = header.encode().to_vec();
    out.extend_from_slice(payload);
    out
}

fn hello(frame_type: FrameType, tlvs: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (tag, value) in tlvs {
        Tlv { tag: *tag, value }.encode(&mut payload);
    }
    frame(super::flight::header(frame_type, Flags::NONE, 0), &payload)
}

fn tlvs_of(frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let header = Header::decode(frame).unwrap();
    Tlvs::new(&frame[Header::LEN..Header::LEN + header.payload_length as usize])
        .map(|tlv| tlv.map(|tlv| (tlv.tag, tlv.value.to_vec())).unwrap())
        .collect()
}

fn refused(machine: &mut impl Machine, octets: &[u8]) -> HandshakeError {
    let error = machine.feed(octets).unwrap_err();
    // Errors stick, and a failed machine has nothing to send.
    let header = super::flight::header(FrameType::CLIENT_HELLO, Flags::NONE, 0);
    assert_eq!(
        machine.receive(&header, &mut []).unwrap_err(),
        HandshakeError::AlreadyFailed
    );
    error
}

/// Handshake binding §1: four frames, both sides established with one master.
#[test]
fn both_sides_establish() {
    let (mut initiator, mut responder) = (initiator(), responder());
    let (ours, theirs) = run(&mut initiator, &mut responder).unwrap();
    assert_eq!(ours.master.expose(), theirs.master.expose());
    assert_eq!((ours.side, theirs.side), (Side::Initiator, Side::Responder));
    assert_eq!(ours.peer, server_identity().public());
    assert_eq!(theirs.peer, client_identity().public());
    assert_eq!(ours.profile, Profile::Standard);
    assert_eq!(
        (ours.suite, theirs.suite),
        (Suite::Aes256Gcm, Suite::Aes256Gcm)
    );
    assert_eq!(ours.side.send_direction(), theirs.side.receive_direction());
}

/// Handshake binding §1: frame types, Control channel, sequence 0, flags, TLV order.
#[test]
fn frames_are_as_the_table_says() {
    let (client_hello, server, client_auth) = recorded();
    let server_hello_len = Header::LEN + Header::decode(&server).unwrap().payload_length as usize;
    let (server_hello, server_auth) = server.split_at(server_hello_len);
    let table = [
        (&client_hello[..], FrameType::CLIENT_HELLO, Flags::NONE),
        (server_hello, FrameType::SERVER_HELLO, Flags::NONE),
        (server_auth, FrameType::SERVER_AUTH, Flags::ENC),
        (&client_auth[..], FrameType::CLIENT_AUTH, Flags::ENC),
    ];
    for (frame, frame_type, flags) in table {
        let header = Header::decode(frame).unwrap();
        assert_eq!(
            (
                header.frame_type,
                header.flags,
                header.channel,
                header.sequence
            ),
            (frame_type, flags, ChannelId::CONTROL, 0)
        );
        assert_eq!(frame.len(), Header::LEN + header.payload_length as usize);
    }
    let tags = |frame| -> Vec<u16> { tlvs_of(frame).into_iter().map(|(tag, _)| tag).collect() };
    assert_eq!(tags(&client_hello), [0x01, 0x03, 0x05, 0x0c, 0x07]);
    assert_eq!(tags(server_hello), [0x02, 0x04, 0x06, 0x0d, 0x08]);
}

/// Handshake binding §1: the responder is not established before CLIENT_AUTH.
#[test]
fn the_responder_waits_for_client_auth() {
    let (mut initiator, mut responder) = (initiator(), responder());
    assert!(matches!(
        responder.feed(&initiator.transmit()),
        Ok(Progress::Continue)
    ));
}

/// Every octet of every flight, changed one at a time: the handshake fails, and
/// nothing panics. Flights are header and payload; a changed header is refused
/// by its CRC.
#[test]
fn every_changed_octet_fails_the_handshake() {
    let (client_hello, server, client_auth) = recorded();
    for at in 0..client_hello.len() {
        let (mut initiator, mut responder) = (initiator(), responder());
        let mut changed = initiator.transmit();
        changed[at] ^= 0x01;
        let failed =
            responder.feed(&changed).is_err() || initiator.feed(&responder.transmit()).is_err();
        assert!(failed, "CLIENT_HELLO octet {at}");
    }
    for at in 0..server.len() {
        let mut initiator = initiator();
        initiator.transmit();
        let mut changed = server.clone();
        changed[at] ^= 0x01;
        assert!(
            initiator.feed(&changed).is_err(),
            "server flight octet {at}"
        );
    }
    for at in 0..client_auth.len() {
        let mut responder = responder();
        responder.feed(&client_hello).unwrap();
        let mut changed = client_auth.clone();
        changed[at] ^= 0x01;
        assert!(responder.feed(&changed).is_err(), "CLIENT_AUTH octet {at}");
    }
}

type Change = (fn(&mut Header), fn(&HandshakeError) -> bool);

/// As above, with the header's CRC made right again, for each header field:
/// a changed header is refused for what it says.
#[test]
fn every_changed_header_field_fails_the_handshake() {
    let (client_hello, server, client_auth) = recorded();
    let server_hello_len = Header::LEN + Header::decode(&server).unwrap().payload_length as usize;
    let (server_hello, server_auth) = server.split_at(server_hello_len);
    let changes: [Change; 5] = [
        (
            |h| h.flags = h.flags | Flags::URG,
            |e| matches!(e, HandshakeError::Flags(_)),
        ),
        (
            |h| h.flags = Flags(h.flags.0 ^ Flags::ENC.0),
            |e| matches!(e, HandshakeError::Flags(_)),
        ),
        (
            |h| h.frame_type = FrameType::PING,
            |e| matches!(e, HandshakeError::FrameType { .. }),
        ),
        (
            |h| h.channel = ChannelId::BRIDGE,
            |e| *e == HandshakeError::Channel(ChannelId::BRIDGE),
        ),
        (|h| h.sequence = 1, |e| *e == HandshakeError::Sequence(1)),
    ];
    for (change, expected) in changes {
        let rewritten = |frame: &[u8]| {
            let mut header = Header::decode(frame).unwrap();
            change(&mut header);
            self::frame(header, &frame[Header::LEN..])
        };
        let error = refused(&mut responder(), &rewritten(&client_hello));
        assert!(expected(&error), "{error:?}");
        let mut waiting = initiator();
        waiting.transmit();
        let error = refused(&mut waiting, &rewritten(server_hello));
        assert!(expected(&error), "{error:?}");
        let mut waiting = initiator();
        waiting.transmit();
        waiting.feed(server_hello).unwrap();
        let error = refused(&mut waiting, &rewritten(server_auth));
        assert!(expected(&error), "{error:?}");
        let mut waiting = responder();
        waiting.feed(&client_hello).unwrap();
        let error = refused(&mut waiting, &rewritten(&client_auth));
        assert!(expected(&error), "{error:?}");
    }
}

#[test]
fn truncated_and_overlong_payloads() {
    let (client_hello, ..) = recorded();
    let header = Header::decode(&client_hello).unwrap();
    for length in 0..client_hello.len() - Header::LEN {
        let cut = frame(header, &client_hello[Header::LEN..Header::LEN + length]);
        refused(&mut responder(), &cut);
    }
    let long = vec![0; crate::limits::HANDSHAKE_PAYLOAD_OCTETS_MAX + 1];
    assert_eq!(
        refused(&mut responder(), &frame(header, &long)),
        HandshakeError::PayloadLength(long.len())
    );
    // A driver that hands over another length than the header states.
    assert_eq!(
        responder().handle_frame(&header, &mut [0; 3]).unwrap_err(),
        HandshakeError::PayloadLength(3)
    );
}

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
    let mut config = InitiatorConfig::new(client_identity(), None);
    config.suites = vec![Suite::ChaCha20Poly1305];
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

/// Handshake binding §6.3: a stripped or reordered offer is noticed, because
/// the transcripts differ and the AUTH frame does not open.
#[test]
fn downgrade_is_noticed() {
    let (client_hello, ..) = recorded();
    let mut stripped = tlvs_of(&client_hello);
    assert_eq!(stripped[3].1, [0, 1, 0, 2]);
    stripped[3].1 = vec![0, 2];
    let mut responder = responder();
    responder
        .feed(&hello(FrameType::CLIENT_HELLO, &stripped))
        .unwrap();
    let mut initiator = initiator();
    initiator.transmit();
    let error = initiator.feed(&responder.transmit()).unwrap_err();
    assert_eq!(error, HandshakeError::AuthSeal);
    assert_eq!(error.blame(), Blame::Authentication);
}

/// The peer proves an identity that is not permitted: a specific error, on both sides.
#[test]
fn wrong_identity() {
    let other = Arc::new(Identity::from_seed(&[9; 32]));
    let mut responder_of_another = responder_with(|config| config.identity = other.clone());
    let mut waiting = initiator();
    responder_of_another.feed(&waiting.transmit()).unwrap();
    assert_eq!(
        refused(&mut waiting, &responder_of_another.transmit()),
        HandshakeError::IdentityNotAllowed(other.public())
    );
    assert!(
        waiting.transmit().is_empty(),
        "no CLIENT_AUTH to a stranger"
    );

    assert_eq!(
        run(
            &mut initiator_with(|config| config.identity = other.clone()),
            &mut responder()
        )
        .unwrap_err(),
        HandshakeError::IdentityNotAllowed(other.public())
    );
    assert_eq!(
        run(
            &mut initiator(),
            &mut responder_with(|config| config.peers = std::iter::empty().collect())
        )
        .unwrap_err(),
        HandshakeError::IdentityNotAllowed(client_identity().public())
    );
    let (ours, theirs) = run(
        &mut initiator_with(|config| config.peer = None),
        &mut responder_with(|config| {
            config.identity = other.clone();
            config.peers = PeerPolicy::Any;
        }),
    )
    .unwrap();
    assert_eq!(ours.peer, other.public());
    assert_eq!(theirs.peer, client_identity().public());
}

/// A recorded flight does not open in another handshake, and a flight out of
/// turn is refused by its type.
#[test]
fn replay_and_reflection() {
    let (client_hello, server, client_auth) = recorded();
    let config = ResponderConfig::new(server_identity(), PeerPolicy::Any);
    let mut fresh = Responder::new(config, &mut SeededRandom::new(77));
    fresh.feed(&client_hello).unwrap();
    assert_eq!(refused(&mut fresh, &client_auth), HandshakeError::AuthSeal);

    let config = InitiatorConfig::new(client_identity(), None);
    let mut fresh = Initiator::new(config, &mut SeededRandom::new(78));
    fresh.transmit();
    assert_eq!(refused(&mut fresh, &server), HandshakeError::AuthSeal);

    // Its own CLIENT_HELLO reflected, and CLIENT_HELLO twice.
    let mut waiting = initiator();
    let own = waiting.transmit();
    assert!(matches!(
        refused(&mut waiting, &own),
        HandshakeError::FrameType {
            expected: FrameType::SERVER_HELLO,
            got: FrameType::CLIENT_HELLO
        }
    ));
    let mut waiting = responder();
    waiting.feed(&client_hello).unwrap();
    assert!(matches!(
        refused(&mut waiting, &client_hello),
        HandshakeError::FrameType {
            expected: FrameType::CLIENT_AUTH,
            ..
        }
    ));
    // SERVER_AUTH before SERVER_HELLO.
    let server_hello_len = Header::LEN + Header::decode(&server).unwrap().payload_length as usize;
    let mut waiting = initiator();
    waiting.transmit();
    assert!(matches!(
        refused(&mut waiting, &server[server_hello_len..]),
        HandshakeError::FrameType {
            expected: FrameType::SERVER_HELLO,
            ..
        }
    ));
    // After the end.
    let (mut initiator, mut responder) = (self::initiator(), self::responder());
    run(&mut initiator, &mut responder).unwrap();
    assert_eq!(
        responder.feed(&client_auth).unwrap_err(),
        HandshakeError::AlreadyDone
    );
    assert_eq!(
        initiator.feed(&server).unwrap_err(),
        HandshakeError::AlreadyDone
    );
}

/// A client of another make, which can be made to send anything.
struct Client {
    decapsulator: Decapsulator,
    hello: Vec<(u16, Vec<u8>)>,
}

/// What a dishonest client may change before it seals CLIENT_AUTH.
struct AuthParts {
    tlvs: Vec<(u16, Vec<u8>)>,
    header: Header,
}

impl Client {
    fn new() -> Self {
        let decapsulator = Decapsulator::new(&KeyMaterial::draw(&mut SeededRandom::new(5)));
        let hello = vec![
            (tag::PROFILE_OFFER, vec![1]),
            (tag::KEM_OFFER, vec![0x11, 0xec]),
            (tag::SIG_OFFER, vec![0x08, 0x07]),
            (tag::AEAD_OFFER, vec![0, 1]),
            (tag::KEM_SHARE, decapsulator.share().to_vec()),
        ];
        Self {
            decapsulator,
            hello,
        }
    }

    #[allow(clippy::type_complexity)]
    fn read_server_auth(
        &self,
        server: &[u8],
    ) -> Result<(Transcript, HandshakeSecret, HandshakeTrafficSecret), HandshakeError> {
        let mut transcript = Transcript::new();
        transcript.select(Hash::Sha256);
        let mut absorb = |frame_type, tlvs: &[(u16, Vec<u8>)]| {
            transcript.add_frame_type(frame_type);
            for (tag, value) in tlvs {
                transcript.add_tlv(&Tlv { tag: *tag, value });
            }
        };
        let server_tlvs = tlvs_of(server);
        absorb(FrameType::CLIENT_HELLO, &self.hello);
        absorb(FrameType::SERVER_HELLO, &server_tlvs);
        let shared = self.decapsulator.decapsulate(&server_tlvs[4].1).unwrap();
        let handshake = HandshakeSecret::extract(Hash::Sha256, &shared);
        let (client_secret, server_secret) = handshake.traffic_secrets(&transcript.point());
        let hello_len = Header::LEN + Header::decode(server).unwrap().payload_length as usize;
        let mut auth_frame = server[hello_len..].to_vec();
        let header = Header::decode(&auth_frame).unwrap();
        auth::read_auth(
            &header,
            &mut auth_frame[Header::LEN..],
            &auth::Expected {
                role: Role::Server,
                suite: Suite::Aes256Gcm,
                signature: crate::crypto::SignatureScheme::Ed25519,
                secret: &server_secret,
                peers: &PeerPolicy::Any,
            },
            &mut transcript,
        )?;
        Ok((transcript, handshake, client_secret))
    }

    /// Goes through with the handshake, changing the AUTH TLVs before they are
    /// sealed with the right key.
    fn auth(
        &self,
        responder: &mut Responder,
        change: impl FnOnce(&mut AuthParts),
    ) -> Result<Progress, HandshakeError> {
        responder.feed(&hello(FrameType::CLIENT_HELLO, &self.hello))?;
        let server = responder.transmit();
        let (mut transcript, _, client_secret) = self.read_server_auth(&server)?;
        let mut honest = Vec::new();
        auth::write_auth(
            &client_identity(),
            Role::Client,
            Suite::Aes256Gcm,
            &client_secret,
            &mut transcript,
            &mut honest,
        );
        let key = || {
            client_secret
                .traffic_secret(Suite::Aes256Gcm)
                .key_iv()
                .into_traffic_key(Suite::Aes256Gcm)
        };
        let header = Header::decode(&honest).unwrap();
        let plaintext = key().open(&header, &mut honest[Header::LEN..]).unwrap();
        let tlvs = Tlvs::new(plaintext)
            .map(|tlv| tlv.map(|tlv| (tlv.tag, tlv.value.to_vec())).unwrap())
            .collect();
        let mut parts = AuthParts { tlvs, header };
        change(&mut parts);
        let mut sealed = vec![0; Header::LEN];
        for (tag, value) in &parts.tlvs {
            Tlv { tag: *tag, value }.encode(&mut sealed);
        }
        sealed.resize(sealed.len() + TAG_LEN, 0);
        parts.header.payload_length = (sealed.len() - Header::LEN) as u32;
        key().seal(&parts.header, &mut sealed);
        responder.feed(&sealed)
    }

    fn finish(&self, responder: &mut Responder, change: impl FnOnce(&mut AuthParts)) {
        done(self.auth(responder, change));
    }
}

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

#[test]
fn reasons_and_blame() {
    use crate::stats::Reason;
    assert_eq!(HandshakeError::AuthSeal.reason().label(), "auth_seal");
    assert_eq!(HandshakeError::NoCommonKem.blame(), Blame::Incompatible);
    assert_eq!(HandshakeError::AlreadyDone.blame(), Blame::Caller);
    assert_eq!(
        HandshakeError::from(HeaderError::Crc).blame(),
        Blame::Protocol
    );
    let mut labels: Vec<_> = HandshakeReason::ALL.iter().map(|r| r.label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), HandshakeReason::ALL.len());
}

#[test]
fn debug_shows_no_secret() {
    let (mut initiator, mut responder) = (initiator(), responder());
    let machines = format!("{initiator:?}{responder:?}");
    let (ours, _) = run(&mut initiator, &mut responder).unwrap();
    let master = ours.master.expose().to_vec();
    let shown = format!("{machines}{ours:?}");
    assert!(!shown.contains(&format!("{}, {}, {}", master[0], master[1], master[2])));
    assert!(!shown.contains("193, 193, 193") && !shown.contains("c1c1c1"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Octets of any kind at any state: an error, never a panic.
    #[test]
    fn garbage_never_panics(payload in prop::collection::vec(any::<u8>(), 0..300), frame_type in 0x00ffu16..0x0105, enc: bool, state in 0u8..4) {
        let header = super::flight::header(
            FrameType(frame_type),
            if enc { Flags::ENC } else { Flags::NONE },
            payload.len(),
        );
        let mut payload = payload;
        let result = match state {
            0 => responder().handle_frame(&header, &mut payload),
            1 => {
                let mut waiting = responder();
                waiting.feed(&initiator().transmit()).unwrap();
                waiting.handle_frame(&header, &mut payload)
            }
            2 => initiator().handle_frame(&header, &mut payload),
            _ => {
                let (mut waiting, mut responder) = (initiator(), responder());
                responder.feed(&waiting.transmit()).unwrap();
                let server = responder.transmit();
                let hello_len = Header::LEN + Header::decode(&server).unwrap().payload_length as usize;
                waiting.feed(&server[..hello_len]).unwrap();
                waiting.handle_frame(&header, &mut payload)
            }
        };
        prop_assert!(result.is_err());
    }

    /// Well-formed TLVs of any kind in place of CLIENT_HELLO's.
    #[test]
    fn any_client_hello_tlvs(tlvs in prop::collection::vec((0u16..0x20, prop::collection::vec(any::<u8>(), 0..6)), 0..8)) {
        prop_assert!(responder().feed(&hello(FrameType::CLIENT_HELLO, &tlvs)).is_err());
    }
}
