//! What several benches need: messages of a given size, and peers that have
//! shaken hands in memory.
#![allow(dead_code)] // each bench uses a part of it

use npamp_relay::association::{Association, AssociationConfig, Event, HelloMode};
use npamp_relay::crypto::{Identity, SeededRandom};
use npamp_relay::handshake::{
    Established, Initiator, InitiatorConfig, PeerPolicy, Progress, Responder, ResponderConfig,
};
use npamp_relay::wire::Header;
use std::sync::Arc;
use std::time::Instant;

/// An A2A `message/send` of exactly `octets`, made of parts of ordinary length.
pub fn request_object(octets: usize) -> Vec<u8> {
    let head = r#"{"jsonrpc":"2.0","id":"2b1f6a0c-77","method":"message/send","params":{"message":{"kind":"message","role":"user","messageId":"9d0f-message","parts":["#;
    let tail = r#"]},"configuration":{"blocking":true,"acceptedOutputModes":["text/plain"]},"metadata":{"trace":"00-4bf9","depth":3}}}"#;
    object(head, tail, octets)
}

/// The Response to it.
pub fn response_object(octets: usize) -> Vec<u8> {
    let head = r#"{"jsonrpc":"2.0","id":"2b1f6a0c-77","result":{"kind":"task","id":"task-81","contextId":"context-3","status":{"state":"working"},"artifacts":[{"artifactId":"a","parts":["#;
    let tail = r#"]}],"metadata":{"tokens":1234,"cost":0.25}}}"#;
    object(head, tail, octets)
}

fn object(head: &str, tail: &str, octets: usize) -> Vec<u8> {
    const PART: &str = r#"{"kind":"text","text":"The quick brown fox jumps over the lazy dog; \"quoted\", too."},"#;
    const LAST: (&str, &str) = (r#"{"kind":"text","text":""#, r#""}"#);
    let mut out = head.to_owned();
    let fixed = LAST.0.len() + LAST.1.len() + tail.len();
    while out.len() + PART.len() + fixed <= octets {
        out.push_str(PART);
    }
    out.push_str(LAST.0);
    while out.len() + LAST.1.len() + tail.len() < octets {
        out.push('x');
    }
    out.push_str(LAST.1);
    out.push_str(tail);
    assert_eq!(out.len(), octets, "the object around the text is longer");
    serde_json::from_str::<serde_json::Value>(&out).expect("a JSON text");
    out.into_bytes()
}

/// The configurations of two peers that allow exactly each other.
pub fn configs() -> (InitiatorConfig, ResponderConfig) {
    let mut random = SeededRandom::new(1);
    let (ours, theirs) = (
        Arc::new(Identity::generate(&mut random)),
        Arc::new(Identity::generate(&mut random)),
    );
    let (public, peer) = (ours.public(), theirs.public());
    (
        InitiatorConfig::new(ours, Some(peer)),
        ResponderConfig::new(theirs, PeerPolicy::only(public)),
    )
}

/// A whole N-PAMP handshake.
pub fn shake_hands(
    initiator: InitiatorConfig,
    responder: ResponderConfig,
    seed: u64,
) -> (Established, Established) {
    let mut random = SeededRandom::new(seed);
    let mut initiator = Initiator::new(initiator, &mut random);
    let mut responder = Responder::new(responder, &mut random);
    let (mut ours, mut theirs) = (None, None);
    let mut octets = Vec::new();
    while ours.is_none() || theirs.is_none() {
        octets.clear();
        initiator.poll_transmit(&mut octets);
        each_frame(&mut octets, |header, payload| {
            if let Progress::Done(done) = responder
                .handle_frame(header, payload)
                .expect("a good frame")
            {
                theirs = Some(*done);
            }
        });
        octets.clear();
        responder.poll_transmit(&mut octets);
        each_frame(&mut octets, |header, payload| {
            if let Progress::Done(done) = initiator
                .handle_frame(header, payload)
                .expect("a good frame")
            {
                ours = Some(*done);
            }
        });
    }
    (ours.expect("done"), theirs.expect("done"))
}

fn each_frame(mut octets: &mut [u8], mut on_frame: impl FnMut(&Header, &mut [u8])) {
    while !octets.is_empty() {
        let header = Header::decode(octets).expect("a whole header");
        let (frame, rest) = octets.split_at_mut(Header::LEN + header.payload_length as usize);
        on_frame(&header, &mut frame[Header::LEN..]);
        octets = rest;
    }
}

/// Two associations that have exchanged HELLO: initiator and responder.
pub fn associations(now: Instant) -> (Association, Association) {
    let (initiator, responder) = configs();
    let (ours, theirs) = shake_hands(initiator, responder, 2);
    let config = Arc::new(AssociationConfig::new(HelloMode::Required));
    let mut random = SeededRandom::new(3);
    let mut ours = Association::new(ours, config.clone(), &mut random, now);
    let mut theirs = Association::new(theirs, config, &mut random, now);
    let (mut ready, mut octets) = (0, Vec::new());
    while ready < 2 {
        for (from, to) in [(0, 1), (1, 0)] {
            octets.clear();
            let pair = [&mut ours, &mut theirs];
            pair[from].poll_transmit(&mut octets, usize::MAX, now);
            pair[to]
                .handle_octets(&mut octets, now, &mut |event| {
                    ready += i32::from(matches!(event, Event::Ready(_)));
                })
                .expect("a good HELLO");
        }
    }
    (ours, theirs)
}
