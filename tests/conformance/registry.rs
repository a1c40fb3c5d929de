//! NPAMP-REG §11, as far as a bridge for A2A can show it.

use crate::build::*;
use crate::exchange::Exchange;
use crate::harness::{info, request_json, result_json};
use npamp_relay::a2a::port::{CallEvent, Side};

fn ask() -> Frame {
    Frame::request(b"corr", "tasks/get", &request_json("1", "tasks/get"))
}

/// A request under this identifier gets ProtocolUnsupported under the same one.
fn unsupported(protocol_id: u8) {
    let mut egress = Exchange::egress();
    egress.peer(&ask().protocol(protocol_id));
    egress.emits_transport_error_like(PROTOCOL_UNSUPPORTED, |text| {
        Frame::transport_error(b"corr", PROTOCOL_UNSUPPORTED, text).protocol(protocol_id)
    });
    egress.reaches_nobody();
}

/// NPAMP-REG §11 (1, 2): one octet; 0x02 is A2A under JSONRPC, and a document for its card.
#[test]
fn clause_1_and_2_the_assigned_identifier() {
    let mut egress = Exchange::egress();
    egress.peer(&ask());
    let exchange = egress.reaches_agent(&request_json("1", "tasks/get"));
    egress.agent_body(exchange, &result_json("1", "{}"));
    egress.emits(&[Frame::response(b"corr", &result_json("1", "{}"))]);
    // The partition of §4 ends where it ends.
    for protocol_id in [0x01, 0x03, 0x0f, 0x10, 0x7f, 0x80, 0xff] {
        unsupported(protocol_id);
    }
}

/// NPAMP-REG §11 (3): 0x00 is EnvelopeMalformed; a notification with it is dropped.
#[test]
fn clause_3_the_null_identifier() {
    let mut egress = Exchange::egress();
    egress.peer(&ask().protocol(0));
    egress.emits_transport_error(b"corr", ENVELOPE_MALFORMED);
    egress.reaches_nobody();
    let notification = r#"{"jsonrpc":"2.0","method":"tasks/get"}"#;
    egress.peer(&Frame::notify("tasks/get", notification).protocol(0));
    egress.emits_nothing();
    egress.reaches_nobody();
}

/// NPAMP-REG §11 (4): an experimental identifier is used with nobody and taken from nobody.
#[test]
fn clause_4_experimental() {
    for protocol_id in [0x10, 0x42, 0x7f] {
        unsupported(protocol_id);
    }
    let mut ingress = Exchange::ingress();
    let id = ingress.next_correlation("1");
    let object = request_json("1", "tasks/get");
    ingress.end.call(1, &object);
    ingress.emits(&[Frame::request(&id, "tasks/get", &object)]);
}

/// NPAMP-REG §11 (5): nor is a private one; a reply under one is no reply.
#[test]
fn clause_5_private() {
    for protocol_id in [0x80, 0xc3, 0xff] {
        unsupported(protocol_id);
        let mut ingress = Exchange::ingress();
        let id = ingress.next_correlation("1");
        let object = request_json("1", "tasks/get");
        ingress.end.call(1, &object);
        ingress.emits(&[Frame::request(&id, "tasks/get", &object)]);
        ingress.peer(&Frame::response(&id, &result_json("1", "{}")).protocol(protocol_id));
        ingress.told_transport_error(ENVELOPE_MALFORMED);
    }
}

/// NPAMP-REG §11 (6): every identifier but 0x02 is refused, none in silence; an
/// uncarried notification is dropped. So it is where the peers did not agree on A2A.
#[test]
fn clause_6_uncarried() {
    for protocol_id in (1..=255).filter(|id| *id != 2) {
        unsupported(protocol_id);
        let mut egress = Exchange::egress();
        let notification = r#"{"jsonrpc":"2.0","method":"tasks/get"}"#;
        egress.peer(&Frame::notify("tasks/get", notification).protocol(protocol_id));
        egress.emits_nothing();
        egress.reaches_nobody();
    }
    let mut without = info(Side::Responder);
    without.carries_a2a = false;
    let mut egress = Exchange::with_info(without.clone());
    egress.peer(&ask());
    egress.emits_transport_error(b"corr", PROTOCOL_UNSUPPORTED);
    egress.reaches_nobody();
    without.side = Side::Initiator;
    let mut ingress = Exchange::with_info(without);
    ingress.end.call(1, &request_json("1", "tasks/get"));
    ingress.emits_nothing();
    assert!(matches!(
        ingress.told_one(),
        CallEvent::TransportError(error) if error.code == PROTOCOL_UNSUPPORTED
    ));
}

/// NPAMP-REG §11 (7): neither content_type nor method nor the object makes a frame A2A.
#[test]
fn clause_7_the_sole_selector() {
    for content_type in [0x01, 0x02, 0x03] {
        let mut egress = Exchange::egress();
        let mut frame = ask().protocol(0x01);
        frame.content_type = content_type;
        egress.peer(&frame);
        egress.emits_transport_error_like(PROTOCOL_UNSUPPORTED, |text| {
            Frame::transport_error(b"corr", PROTOCOL_UNSUPPORTED, text).protocol(0x01)
        });
        egress.reaches_nobody();
    }
    // And a method of another protocol is A2A's affair when the identifier says so.
    let object = request_json("1", "tools/call");
    let mut egress = Exchange::egress();
    egress.peer(&Frame::request(b"corr", "tools/call", &object).label(3));
    egress.reaches_agent(&object);
}
