//! What a requester makes of replies: NPAMP-CC-JSONRPC §5, §6 and ruling R26.

use crate::harness::*;
use npamp_relay::a2a::port::CallEvent;
use npamp_relay::a2a::stats::{Dropped, ReplyFault};
use npamp_relay::bridge::envelope::{ContentType, MessageKind, ProtocolId};
use npamp_relay::bridge::payload;
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::bridge::transport_error::{TransportCode, TransportErrorBody};

fn unary_call() -> (End, Vec<u8>) {
    let mut ingress = End::ingress();
    ingress.call(1, &request_json("1", "message/send"));
    let correlation_id = ingress.one_frame().correlation_id();
    (ingress, correlation_id)
}

fn faulty(ingress: &mut End, fault: ReplyFault) {
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::ENVELOPE_MALFORMED, "{fault:?}");
    assert_eq!(ingress.stats.reply_faults.get(fault), 1, "{fault:?}");
    // Replies are never answered with BRIDGE_ERROR.
    ingress.no_frame();
    ingress.assert_idle();
}

/// NPAMP-BRIDGE §5, NPAMP-CC-JSONRPC §8.1, ruling R11: non-empty, random, and derived from the id.
#[test]
fn the_correlation_holds_random_octets_and_the_id() {
    let (_, correlation_id) = unary_call();
    assert_eq!(correlation_id.len(), 17);
    assert_eq!(&correlation_id[16..], b"1");
    let mut ingress = End::ingress();
    let id = format!("\"{}\"", "x".repeat(10_000));
    ingress.call(1, &request_json(&id, "message/send"));
    assert_eq!(ingress.one_frame().correlation_id().len(), 255);
}

/// NPAMP-CC-JSONRPC §5: the reply's id, kind and form are verified.
#[test]
fn a_wrong_response_fails_the_exchange() {
    let cases = [
        (result_json("2", "1"), ReplyFault::IdDiffers),
        (result_json("\"1\"", "1"), ReplyFault::IdDiffers),
        (result_json("null", "1"), ReplyFault::IdDiffers),
        (error_json("1", -32001), ReplyFault::NotJsonRpc),
        ("{}".to_owned(), ReplyFault::NotJsonRpc),
        (String::new(), ReplyFault::NotJsonRpc),
        (request_json("1", "m"), ReplyFault::NotJsonRpc),
        (
            r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#.to_owned(),
            ReplyFault::NotJsonRpc,
        ),
    ];
    for (object, fault) in cases {
        let (mut ingress, correlation_id) = unary_call();
        ingress.payload(&a2a(MessageKind::Response, &correlation_id, "", &object));
        faulty(&mut ingress, fault);
    }
}

/// NPAMP-CC-JSONRPC §6: BRIDGE_ERROR holds an error Response to this id, or a transport error.
#[test]
fn a_wrong_error_fails_the_exchange() {
    let cases = [
        (error_json("2", -32001), ReplyFault::IdDiffers),
        (result_json("1", "1"), ReplyFault::NotJsonRpc),
        ("\u{7}\u{0}".to_owned(), ReplyFault::NotJsonRpc),
        ("\u{4}\u{9}x".to_owned(), ReplyFault::NotJsonRpc),
        (String::new(), ReplyFault::NotJsonRpc),
    ];
    for (object, fault) in cases {
        let (mut ingress, correlation_id) = unary_call();
        ingress.payload(&a2a(MessageKind::Error, &correlation_id, "", &object));
        faulty(&mut ingress, fault);
    }
}

/// NPAMP-CC-JSONRPC §5, NPAMP-MAP-A2A §3: the reply's protocol and content type are the request's.
#[test]
fn protocol_and_content_type_of_replies() {
    let object = result_json("1", "1");
    let (mut ingress, correlation_id) = unary_call();
    let mut reply = a2a(MessageKind::Response, &correlation_id, "", &object);
    reply.envelope.protocol_id = ProtocolId::MCP;
    ingress.payload(&reply);
    faulty(&mut ingress, ReplyFault::Protocol);
    let (mut ingress, correlation_id) = unary_call();
    let mut reply = a2a(MessageKind::Response, &correlation_id, "", &object);
    reply.envelope.content_type = ContentType::GRPC;
    ingress.payload(&reply);
    faulty(&mut ingress, ReplyFault::ContentType);
}

/// Ruling R26: a malformed reply with a readable correlation_id fails its exchange.
#[test]
fn a_malformed_reply_fails_its_exchange() {
    let (mut ingress, correlation_id) = unary_call();
    let object = result_json("1", "1");
    let reply = a2a(MessageKind::Response, &correlation_id, "", &object);
    let mut octets = payload::encode(RESPONSE, &reply).unwrap();
    octets[5] = 1;
    ingress.frame(BRIDGE, RESPONSE, &octets);
    faulty(&mut ingress, ReplyFault::Malformed);
    assert!(ingress.channel_errors.is_empty());
}

/// NPAMP-BRIDGE §6, NPAMP-CC-STREAM §6.4, NPAMP-CC-DOC §8: every transport error reaches the caller as it is.
#[test]
fn transport_errors_reach_the_caller() {
    for code in TransportCode::ALL {
        let (mut ingress, correlation_id) = unary_call();
        let body = TransportErrorBody {
            code,
            message: "why",
        };
        let foreign = body.encode();
        let mut reply = a2a(MessageKind::Error, &correlation_id, "", "");
        reply.foreign = &foreign;
        ingress.payload(&reply);
        assert_eq!(ingress.one_transport_error(), (code, "why".to_owned()));
        ingress.assert_idle();
    }
}

/// NPAMP-BRIDGE §5: matched by correlation_id only; unknown, second and late replies are dropped.
#[test]
fn replies_are_matched_by_correlation() {
    let (mut ingress, correlation_id) = unary_call();
    let object = result_json("1", "1");
    ingress.payload(&a2a(MessageKind::Response, b"other", "", &object));
    assert!(ingress.calls.is_empty());
    assert_eq!(ingress.stats.dropped.get(Dropped::LateReply), 1);
    let reply = a2a(MessageKind::Response, &correlation_id, "", &object);
    // On the other channel it is another correlation (NPAMP-CC-DOC §3).
    let octets = payload::encode(RESPONSE, &reply).unwrap();
    ingress.frame(DISCOVERY, RESPONSE, &octets);
    assert!(ingress.calls.is_empty());
    assert_eq!(ingress.stats.dropped.get(Dropped::LateReply), 2);
    ingress.payload(&reply);
    assert!(matches!(ingress.one_event(), CallEvent::Response(_)));
    ingress.payload(&reply);
    assert!(ingress.calls.is_empty());
    assert_eq!(ingress.stats.dropped.get(Dropped::LateReply), 3);
    ingress.no_frame();
}

/// A method in a reply's envelope is ignored, as the public vectors carry one.
#[test]
fn a_method_in_a_reply_is_ignored() {
    let (mut ingress, correlation_id) = unary_call();
    let object = result_json("1", "1");
    ingress.payload(&a2a(MessageKind::Response, &correlation_id, "x", &object));
    assert!(matches!(ingress.one_event(), CallEvent::Response(_)));
}

/// A stream is not finished by a RESPONSE; a plain BRIDGE_ERROR ends it all the same.
#[test]
fn unary_replies_in_a_stream() {
    let object = result_json("1", "1");
    let error = error_json("1", -32001);
    for (kind, foreign, is_fault) in [
        (MessageKind::Response, &object, true),
        (MessageKind::Error, &error, false),
    ] {
        let (mut ingress, correlation_id) = unary_call();
        let mut data = a2a(MessageKind::StreamData, &correlation_id, "", &object);
        data.stream_control = Some(StreamControl::data(3));
        ingress.payload(&data);
        ingress.calls.clear();
        ingress.payload(&a2a(kind, &correlation_id, "", foreign));
        match ingress.one_event() {
            CallEvent::TransportError(error) => assert!(is_fault && error.code == 1),
            CallEvent::StreamError { event_id, .. } => assert!(!is_fault && event_id == 4),
            other => panic!("{other:?}"),
        }
        ingress.assert_idle();
    }
}
