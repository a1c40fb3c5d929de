//! The handshake as a whole: a complete one, and what all its tests share.

mod client;
mod hellos;
mod inside_auth;
mod tamper;

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
