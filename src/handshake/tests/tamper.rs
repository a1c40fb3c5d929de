//! Changed, stripped, replayed and reflected flights, and wrong identities.

use super::*;

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
