//! Unary exchanges and notifications through both mappers.

use crate::harness::*;
use npamp_relay::a2a::config::{AgentVersion, MapperConfig};
use npamp_relay::a2a::method::{Carriage, METHODS, Operation, Version, label_effect, operation};
use npamp_relay::a2a::port::{
    AgentEvent, CallEvent, CallId, CallRequest, DispatchAction, Input, Label, ServiceParameters,
    Side,
};
use npamp_relay::a2a::stats::{Dropped, Outcome};
use npamp_relay::bridge::safety::Effect;
use npamp_relay::bridge::transport_error::TransportCode;
use std::collections::{HashMap, HashSet};

/// NPAMP-CC-JSONRPC §4, §5, NPAMP-MAP-A2A §3, §4, §5: every listed method of both versions.
#[test]
fn every_method_goes_and_comes_back() {
    for method in METHODS {
        let mut pair = Pair::new();
        let request = request_json("\"a\"", method.name);
        let (exchange, dispatch) = pair.ask(1, &request);
        assert_eq!(object_of(&dispatch), request.as_bytes());
        assert_eq!(dispatch.agent, 0);
        assert_eq!(dispatch.association, ASSOCIATION);
        let sent = pair.passed[0].1.clone();
        assert_eq!((sent.channel, sent.kind), (BRIDGE, REQUEST));
        let decoded = sent.decode();
        assert_eq!(decoded.envelope.protocol_id.0, 2);
        assert_eq!(decoded.envelope.content_type.0, 1);
        assert_eq!(decoded.envelope.flags.0, 0);
        assert_eq!(decoded.envelope.method, method.name);
        assert_eq!(decoded.foreign, request.as_bytes());
        assert_eq!(
            decoded.safety.map(|label| label.effect),
            method.effect.is_mutating().then_some(method.effect)
        );
        let response = result_json("\"a\"", "{\"x\":1}");
        pair.agent(exchange, body(200, &response));
        let back = pair.passed[1].1.clone();
        assert_eq!(back.kind, RESPONSE);
        let decoded = back.decode();
        assert_eq!(decoded.envelope.protocol_id.0, 2);
        assert_eq!(decoded.envelope.content_type.0, 1);
        assert_eq!(decoded.envelope.flags.0, 0);
        assert_eq!(decoded.envelope.method, "");
        assert_eq!(decoded.envelope.correlation_id, sent.correlation_id());
        match pair.ingress.one_event() {
            CallEvent::Response(object) => assert_eq!(object, response.as_bytes()),
            other => panic!("{other:?}"),
        }
        for end in [&pair.ingress, &pair.egress] {
            end.assert_idle();
        }
        let outcome = match method.carriage {
            Carriage::Document => Outcome::Document,
            Carriage::JsonRpc | Carriage::Stream => Outcome::Response,
        };
        let outcomes = pair.ingress.stats.requester.outcomes(method.operation);
        assert_eq!(outcomes.get(outcome), 1);
        let outcomes = pair.egress.stats.responder.outcomes(method.operation);
        assert_eq!(outcomes.get(outcome), 1);
    }
}

/// NPAMP-CC-JSONRPC §6, NPAMP-MAP-A2A §4, §8: an error Response is carried verbatim
/// under any HTTP status, code and data untouched.
#[test]
fn foreign_errors_come_back_verbatim() {
    for code in [-32700, -32600, -32601, -32001, -32003, -32009, -32099, 4] {
        for status in [200, 400, 404, 500, 503] {
            let mut pair = Pair::new();
            let (exchange, _) = pair.ask(1, &request_json("1", "tasks/get"));
            let error = error_json("1", code);
            pair.agent(exchange, body(status, &error));
            assert_eq!(pair.back(), [ERROR]);
            match pair.ingress.one_event() {
                CallEvent::ErrorResponse(object) => assert_eq!(object, error.as_bytes()),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// NPAMP-CC-JSONRPC §8.4: an error whose id is Null answers; a result whose id is Null does not.
#[test]
fn null_id_errors_answer() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "tasks/get"));
    pair.agent(exchange, body(200, &error_json("null", -32600)));
    assert!(matches!(
        pair.ingress.one_event(),
        CallEvent::ErrorResponse(_)
    ));
    let (exchange, _) = pair.ask(2, &request_json("1", "tasks/get"));
    pair.agent(exchange, body(200, &result_json("null", "1")));
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
}

/// NPAMP-CC-JSONRPC §8.4: several Requests with a Null id are told apart.
#[test]
fn null_id_requests_are_distinct_exchanges() {
    let mut pair = Pair::new();
    let (first, _) = pair.ask(1, &request_json("null", "tasks/get"));
    let (second, _) = pair.ask(2, &request_json("null", "tasks/get"));
    pair.agent(second, body(200, &result_json("null", "2")));
    pair.agent(first, body(200, &result_json("null", "1")));
    let calls = std::mem::take(&mut pair.ingress.calls);
    let results: Vec<_> = calls
        .iter()
        .map(|(call, event)| match event {
            CallEvent::Response(object) => (call.0, object.clone()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(results[0], (2, result_json("null", "2").into()));
    assert_eq!(results[1], (1, result_json("null", "1").into()));
}

/// NPAMP-BRIDGE §6, NPAMP-CC-JSONRPC §6, ruling R14: no JSON-RPC Response means
/// NotDelivered with the HTTP status, never an invented error, never success.
#[test]
fn an_answer_that_is_no_response_is_not_delivered() {
    let cases = [
        (404, None, "<html>", "http 404"),
        (429, Some("7"), "", "http 429; retry-after 7"),
        (503, Some("1\n2"), "{}", "http 503"),
        (
            200,
            None,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}",
            "http 200",
        ),
        (202, None, "", "http 202"),
        (
            200,
            None,
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}]",
            "http 200",
        ),
        (
            200,
            None,
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}",
            "the agent answered another id",
        ),
    ];
    for (status, retry_after, text, message) in cases {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request_json("1", "message/send"));
        pair.agent(
            exchange,
            AgentEvent::Body {
                status,
                content_type: "text/html".into(),
                retry_after: retry_after.map(str::to_owned),
                body: text.to_owned().into(),
            },
        );
        let (code, text) = pair.ingress.one_transport_error();
        assert_eq!(code, TransportCode::NOT_DELIVERED);
        assert_eq!(text, message);
        assert_eq!(pair.back(), [ERROR]);
    }
}

/// SDKs that leave out null values answer a null result with neither member:
/// carried as the success it is, octet for octet (a recorded leniency to NPAMP-CC-JSONRPC §5).
#[test]
fn a_response_without_outcome_is_a_success() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "message/send"));
    let body = "{\"id\":1,\"jsonrpc\":\"2.0\"}";
    pair.agent(exchange, crate::harness::body(200, body));
    assert!(matches!(pair.ingress.one_event(), CallEvent::Response(object) if object == body));
}

/// Ruling R14: a deadline at the egress is told from other failures at the ingress.
#[test]
fn failures_and_deadlines() {
    for timed_out in [false, true] {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request_json("1", "message/send"));
        pair.agent(
            exchange,
            AgentEvent::Failed {
                message: "connection refused".into(),
                timed_out,
            },
        );
        match pair.ingress.one_event() {
            CallEvent::TransportError(error) => {
                assert_eq!(error.code, 4);
                assert_eq!(error.timed_out, timed_out);
                assert!(error.message.ends_with("connection refused"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// NPAMP-BRIDGE §5, §8, NPAMP-CC-JSONRPC §7: one way, corr_len 0, no reply whatever happens.
#[test]
fn notifications_are_one_way() {
    for event in [
        body(200, &result_json("1", "1")),
        body(500, "oops"),
        AgentEvent::Failed {
            message: "gone".into(),
            timed_out: false,
        },
    ] {
        let mut pair = Pair::new();
        let object = r#" {"jsonrpc":"2.0","method":"notifications/x"} "#;
        pair.ingress.notify(1, object);
        assert!(matches!(pair.ingress.one_event(), CallEvent::Accepted));
        pair.pass();
        let sent = pair.passed[0].1.clone();
        assert_eq!(sent.kind, NOTIFY);
        let decoded = sent.decode();
        assert!(decoded.envelope.correlation_id.is_empty());
        assert_eq!(decoded.envelope.method, "notifications/x");
        assert_eq!(
            decoded.safety.unwrap().effect,
            label_effect("notifications/x")
        );
        assert_eq!(decoded.foreign, object.as_bytes());
        let (exchange, dispatch) = pair.egress.one_dispatch();
        assert!(matches!(
            dispatch.action,
            DispatchAction::Notification { .. }
        ));
        assert_eq!(object_of(&dispatch), object.as_bytes());
        pair.agent(exchange, event);
        assert!(pair.back().is_empty());
        pair.ingress.assert_idle();
        pair.egress.assert_idle();
    }
}

/// NPAMP-CC-JSONRPC §7: an object with an id is never carried as a notification, nor the other way.
#[test]
fn requests_and_notifications_are_not_mixed() {
    let mut ingress = End::ingress();
    ingress.notify(1, &request_json("1", "tasks/get"));
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
    ingress.call(2, r#"{"jsonrpc":"2.0","method":"tasks/get"}"#);
    let (code, _) = ingress.one_transport_error();
    assert_eq!(code, TransportCode::ENVELOPE_MALFORMED);
    ingress.no_frame();
    ingress.assert_idle();
}

/// NPAMP-BRIDGE §5, §9 clause 3, ruling R11: 64 clients with the same id never get each
/// other's answers, in whatever order the agent answers.
#[test]
fn clients_with_the_same_id_never_cross() {
    let mut pair = Pair::new();
    for client in 0..64 {
        let object = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"message/send","params":{{"client":{client}}}}}"#
        );
        pair.ingress.call(client, &object);
    }
    pair.pass();
    let mut dispatches = std::mem::take(&mut pair.egress.dispatches);
    assert_eq!(dispatches.len(), 64);
    let correlations: HashSet<_> = pair
        .passed
        .iter()
        .map(|(_, frame)| frame.correlation_id())
        .collect();
    assert_eq!(correlations.len(), 64);
    // A fixed shuffle.
    dispatches.sort_by_key(|(exchange, _)| (exchange.0 * 37) % 64);
    for (exchange, dispatch) in dispatches {
        let object = String::from_utf8(object_of(&dispatch).to_vec()).unwrap();
        let client = object.split("\"client\":").nth(1).unwrap();
        let client: u64 = client.trim_end_matches('}').parse().unwrap();
        pair.agent(exchange, body(200, &result_json("1", &client.to_string())));
    }
    let answers: HashMap<CallId, CallEvent> = pair.ingress.calls.drain(..).collect();
    assert_eq!(answers.len(), 64);
    for (call, event) in answers {
        match event {
            CallEvent::Response(object) => {
                assert_eq!(object, result_json("1", &call.0.to_string()).as_bytes());
            }
            other => panic!("{other:?}"),
        }
    }
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
}

/// Ruling R13: stated parameters go as they are, and nothing else.
#[test]
fn stated_parameters_are_sent_exactly() {
    let lines = vec![
        ("a2a-extensions".to_owned(), "b, a".to_owned()),
        ("a2a-version".to_owned(), "99.0".to_owned()),
        ("a2a-extensions".to_owned(), String::new()),
    ];
    for lines in [lines, Vec::new()] {
        let mut stated = info(Side::Responder);
        stated.parameters = ServiceParameters {
            lines: lines.clone(),
            ..ServiceParameters::default()
        };
        let config = MapperConfig {
            agents: vec![AgentVersion::V10],
            ..MapperConfig::default()
        };
        let mut egress = End::with(config, stated);
        let object = request_json("1", "SendMessage");
        egress.payload(&a2a(
            npamp_relay::bridge::envelope::MessageKind::Request,
            b"c",
            "SendMessage",
            &object,
        ));
        let (_, dispatch) = egress.one_dispatch();
        assert_eq!(dispatch.parameters.lines, lines);
    }
}

/// Rulings R6, R13: without HELLO the version follows the agent's setting, else the spelling.
#[test]
fn without_hello_the_version_follows_the_spelling() {
    for method in METHODS {
        for version in [AgentVersion::Auto, AgentVersion::V03, AgentVersion::V10] {
            let mut silent = info(Side::Responder);
            silent.hello = false;
            let config = MapperConfig {
                agents: vec![version],
                ..MapperConfig::default()
            };
            let mut egress = End::with(config, silent);
            let object = request_json("1", method.name);
            egress.payload(&a2a(
                npamp_relay::bridge::envelope::MessageKind::Request,
                b"c",
                method.name,
                &object,
            ));
            let (_, dispatch) = egress.one_dispatch();
            let stated: Vec<_> = dispatch.parameters.values("a2a-version").collect();
            let wants_10 = match version {
                AgentVersion::Auto => method.version == Version::V10,
                AgentVersion::V03 => false,
                AgentVersion::V10 => true,
            };
            assert_eq!(stated, if wants_10 { vec!["1.0"] } else { vec![] });
        }
    }
}

/// NPAMP-BRIDGE §6: a lost association fails calls with NotDelivered and stops dispatches.
#[test]
fn a_lost_association_fails_everything_on_it() {
    let mut pair = Pair::new();
    pair.ask(1, &request_json("1", "message/send"));
    pair.ingress.down();
    let (code, text) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    assert!(text.contains("link reset"));
    pair.egress.down();
    assert_eq!(pair.egress.cancels.len(), 1);
    let exchange = pair.egress.cancels[0];
    pair.agent(exchange, body(200, &result_json("1", "1")));
    assert!(pair.back().is_empty());
    assert_eq!(pair.egress.stats.dropped.get(Dropped::AgentEvent), 1);
    pair.ingress.assert_idle();
    pair.egress.assert_idle();
    pair.ingress.call(2, &request_json("1", "message/send"));
    let (code, _) = pair.ingress.one_transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    pair.ingress.frame(BRIDGE, RESPONSE, b"x");
    let dropped = &pair.ingress.stats.dropped;
    assert_eq!(dropped.get(Dropped::AssociationUnknown), 1);
    let lost = Outcome::AssociationLost;
    assert_eq!(pair.ingress.stats.requester.total(lost), 1);
    assert_eq!(pair.egress.stats.responder.total(lost), 1);
}

/// A notification with the agent survives its association; nothing is held for it.
#[test]
fn a_notification_outlives_its_association() {
    let mut pair = Pair::new();
    pair.ingress.notify(1, r#"{"jsonrpc":"2.0","method":"n"}"#);
    pair.pass();
    let (exchange, _) = pair.egress.one_dispatch();
    pair.egress.down();
    assert!(pair.egress.cancels.is_empty());
    assert_eq!(pair.egress.budget.held(), 0);
    pair.egress.agent(exchange, body(200, ""));
    let outcomes = pair.egress.stats.responder.outcomes(Operation::Unknown);
    assert_eq!(outcomes.get(Outcome::Notified), 1);
    pair.egress.assert_idle();
}

/// NPAMP-MAP-A2A §5: of the calls on a lost association those that are listed as read_only,
/// and got no reply, may be asked elsewhere, octet for octet; no other ever.
#[test]
fn only_what_changes_nothing_may_be_repeated() {
    let names = METHODS.iter().map(|method| method.name).chain(["no/such"]);
    for name in names {
        let mut pair = Pair::new();
        let object = request_json("1", name);
        pair.ingress.call(1, &object);
        pair.ingress.down();
        let repeats = label_effect(name) == Effect::READ_ONLY;
        if repeats {
            assert!(pair.ingress.calls.is_empty(), "{name}");
            let (call, request, message) = pair.ingress.unanswered.remove(0);
            assert_eq!(call, CallId(1));
            assert!(
                matches!(&request, CallRequest::Request { object: again } if *again == object.as_bytes()),
                "{name}: {request:?}"
            );
            assert!(message.contains("link reset"));
        } else {
            let (code, _) = pair.ingress.one_transport_error();
            assert_eq!(code, TransportCode::NOT_DELIVERED, "{name}");
        }
        assert!(pair.ingress.unanswered.is_empty(), "{name}");
        pair.ingress.assert_idle();
        let outcomes = pair.ingress.stats.requester.outcomes(operation(name));
        assert_eq!(outcomes.get(Outcome::AssociationLost), 1, "{name}");
    }
}

/// What passes through is repeated with the label that came; a label that says more than the
/// table counts, one that says less does not (NPAMP-BRIDGE §7).
#[test]
fn a_label_says_whether_a_transit_may_be_repeated() {
    let label = |effect: u8| {
        Some(Label {
            effect: Effect(effect),
            scope: "s".into(),
        })
    };
    for (method, label, repeats) in [
        ("tasks/get", None, true),
        ("tasks/get", label(0), true),
        ("tasks/get", label(1), false),
        ("message/send", label(0), false),
        ("no/such", label(0), false),
        ("no/such", None, false),
        ("card", None, true),
        ("card", label(0), true),
        ("card", label(3), false),
    ] {
        let mut pair = Pair::new();
        let action = match method {
            "card" => DispatchAction::Card,
            method => DispatchAction::Request {
                object: request_json("1", method).into(),
            },
        };
        let request = CallRequest::Transit { action, label };
        pair.ingress.input(Input::Call {
            association: ASSOCIATION,
            call: CallId(1),
            request: request.clone(),
        });
        pair.ingress.down();
        assert_eq!(
            pair.ingress.calls.len(),
            usize::from(!repeats),
            "{request:?}"
        );
        let again = pair.ingress.unanswered.pop().map(|(_, again, _)| again);
        let expected = repeats.then_some(request);
        assert_eq!(format!("{again:?}"), format!("{expected:?}"));
    }
}

/// A caller that left a unary exchange: it is forgotten, the late reply is dropped and counted.
#[test]
fn a_late_reply_is_dropped() {
    let mut pair = Pair::new();
    let (exchange, _) = pair.ask(1, &request_json("1", "message/send"));
    pair.ingress.gone(1);
    pair.ingress.no_frame();
    pair.ingress.assert_idle();
    // The agent's work goes on.
    assert!(pair.egress.cancels.is_empty());
    pair.agent(exchange, body(200, &result_json("1", "1")));
    assert!(pair.ingress.calls.is_empty());
    let dropped = &pair.ingress.stats.dropped;
    assert_eq!(dropped.get(Dropped::AbandonedReply), 1);
    assert_eq!(dropped.get(Dropped::LateReply), 0);
    pair.ingress.gone(1);
    pair.ingress.gone(99);
}

/// NPAMP-BRIDGE §5: either side may originate; an association we dialled serves only when told to.
#[test]
fn either_side_may_originate() {
    let request = request_json("1", "tasks/get");
    let kind = npamp_relay::bridge::envelope::MessageKind::Request;
    let payload = a2a(kind, b"c", "tasks/get", &request);
    let mut ingress = End::ingress();
    ingress.payload(&payload);
    let (code, _) = ingress.one_frame().transport_error();
    assert_eq!(code, TransportCode::NOT_DELIVERED);
    let config = MapperConfig {
        serve_initiated: true,
        ..MapperConfig::default()
    };
    let mut serving = End::with(config, info(Side::Initiator));
    serving.payload(&payload);
    let (exchange, _) = serving.one_dispatch();
    serving.agent(exchange, body(200, &result_json("1", "1")));
    assert_eq!(serving.one_frame().kind, RESPONSE);
    // The responder of the association asks.
    let mut egress = End::egress();
    egress.call(1, &request);
    assert_eq!(egress.one_frame().kind, REQUEST);
}
