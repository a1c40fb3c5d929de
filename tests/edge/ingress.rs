//! Requests at the ingress: what is carried, what is refused, what comes back.

use crate::support::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use npamp_relay::a2a::port::{CallEvent, CallRequest};
use npamp_relay::edge::CallRefusal;
use npamp_relay::edge::ingress::{Ingress, IngressBounds};
use npamp_relay::edge::settings::{CardMode, RoutePath, TlsFiles};
use npamp_relay::edge::stats::{CardSource, EdgeStats, Refusal, RequestOutcome};
use rustls::pki_types::pem::PemObject;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Ruling R22: octets pass unchanged in both directions.
#[test]
fn a_call_and_its_reply_keep_their_octets() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        let odd = "\r\n { \"jsonrpc\" : \"2.0\",\"id\":1E0,\"method\":\"message\\/send\", \"params\":{\"a\":1.000,\"a\":\"\u{2028}\\u00fc\",\"id\":[]}}\n\t";
        for path in ["/a", "/a/"] {
            http.post(path, odd).await;
            let call = edge.call().await;
            assert_eq!(call.route, 0);
            assert!(call.parameters.is_empty());
            assert_eq!(call.object(), odd);
            let reply = "{ \"jsonrpc\":\"2.0\",\"id\":1E0 ,\"result\":{\"x\":1e400,\"x\":\"\u{2028}\"}}\r\n";
            call.sink.push(CallEvent::Response(reply.into())).unwrap();
            let (head, body) = http.response().await;
            assert_eq!(head.status, 200);
            assert_eq!(head.headers["content-type"], "application/json");
            assert_eq!(body, reply.as_bytes());
            assert!(!call.gone.get());
        }
        assert_eq!(edge.stats.requests.get(RequestOutcome::Response), 2);
        assert_eq!(edge.stats.requests_open.get(), 0);
        assert_eq!(edge.stats.connections.get(), 1);
    });
}

/// NPAMP-BRIDGE §6: the agent's error object comes back verbatim.
#[test]
fn an_error_response_is_http_200() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a/b", SEND).await;
        let call = edge.call().await;
        assert_eq!(call.route, 1, "the longest prefix wins");
        let error =
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"m","data":[1.0]}}"#;
        call.sink
            .push(CallEvent::ErrorResponse(error.into()))
            .unwrap();
        let (head, body) = http.response().await;
        assert_eq!(head.status, 200);
        assert_eq!(body, error.as_bytes());
        assert_eq!(edge.stats.requests.get(RequestOutcome::ErrorResponse), 1);
    });
}

#[test]
fn a_notification_is_accepted_without_body() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", r#"{"jsonrpc":"2.0","method":"x"}"#).await;
        let call = edge.call().await;
        assert!(matches!(call.request, CallRequest::Notification { .. }));
        call.sink.push(CallEvent::Accepted).unwrap();
        let (head, body) = http.response().await;
        assert_eq!((head.status, body.len()), (202, 0));
        assert!(!head.headers.contains_key("content-type"));
    });
}

/// Ruling R23: such a body is answered as JSON-RPC prescribes and never carried.
#[test]
fn what_is_no_request_is_not_carried() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        for (body, code) in [
            ("", -32700),
            ("hello", -32700),
            ("[]", -32600),
            (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
        ] {
            http.post_with("/a", "Content-Type: text/plain\r\n", body)
                .await;
            let (head, answer) = http.response().await;
            assert_eq!(head.status, 200);
            assert_eq!(head.headers["content-type"], "application/json");
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["error"]["code"], code);
        }
        edge.nothing_carried();
        assert_eq!(edge.stats.requests.get(RequestOutcome::Invalid), 4);
    });
}

#[test]
fn other_paths_and_methods() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        for path in ["/", "/b", "/ab", "/a/c", "/a/b/.well-known/x", "//a"] {
            http.post(path, SEND).await;
            let (head, body) = http.response().await;
            assert_eq!(head.status, 404, "{path}");
            problem(&head, &body);
        }
        for (method, path, allow) in [
            ("GET", "/a", "POST"),
            ("PUT", "/a/b/", "POST"),
            ("DELETE", "/a", "POST"),
            ("POST", "/a/.well-known/agent-card.json", "GET, HEAD"),
        ] {
            http.get(method, path, "Content-Length: 0\r\n").await;
            let (head, body) = http.response().await;
            assert_eq!(head.status, 405, "{method} {path}");
            assert_eq!(head.headers["allow"], allow);
            problem(&head, &body);
        }
        edge.nothing_carried();
        assert_eq!(edge.stats.refusals.get(Refusal::NotFound), 6);
        assert_eq!(edge.stats.refusals.get(Refusal::MethodNotAllowed), 4);
    });
}

#[test]
fn a_route_at_the_root() {
    run(async {
        let mut settings = settings();
        settings.routes.push(RoutePath {
            path: "/".into(),
            route: 7,
        });
        let mut edge = Edge::with(settings, IngressBounds::default());
        let mut http = edge.connect().await;
        http.post("/", SEND).await;
        let call = edge.call().await;
        assert_eq!(call.route, 7);
        call.reply("{}");
        assert_eq!(http.response().await.0.status, 200);
        http.get("GET", "/.well-known/agent.json", "").await;
        let call = edge.call().await;
        assert_eq!(call.route, 7);
        assert!(matches!(call.request, CallRequest::Card));
    });
}

#[test]
fn an_announced_body_above_the_bound_is_refused_unread() {
    run(async {
        let mut edge = Edge::new();
        for expect in ["", "Expect: 100-continue\r\n"] {
            let mut http = edge.connect().await;
            http.send(format!(
                "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1048577\r\n{expect}\r\n"
            ))
            .await;
            // Not one octet of the body was sent.
            let (head, body) = http.response().await;
            assert_eq!(head.status, 413, "{expect:?}");
            problem(&head, &body);
        }
        edge.nothing_carried();
        assert_eq!(edge.stats.refusals.get(Refusal::BodyTooLarge), 2);
    });
}

#[test]
fn a_client_that_waits_for_permission_gets_it() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.send(format!(
            "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            SEND.len()
        ))
        .await;
        assert_eq!(http.head().await.status, 100);
        http.send(SEND).await;
        edge.call().await.reply("{}");
        assert_eq!(http.response().await.0.status, 200);
    });
}

#[test]
fn a_client_that_sends_on_still_sees_the_refusal() {
    run(async {
        let edge = Edge::new();
        let mut http = edge.connect().await;
        let body = vec![b'x'; 8 << 20];
        let head = format!(
            "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        http.send(head).await;
        http.send(&body).await;
        assert_eq!(http.response().await.0.status, 413);
    });
}

/// A refusal that needs no body does not break the connection of a client that sends one.
#[test]
fn a_client_that_sends_on_sees_every_early_refusal() {
    run(async {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "alpha\n").unwrap();
        let mut settings = settings();
        settings.token_file = Some(file.path().into());
        settings.body_octets_max = 32 << 20;
        let mut edge = Edge::with(settings, IngressBounds::default());
        let body = vec![b'x'; 8 << 20];
        let token = "Authorization: Bearer alpha\r\n";
        for (path, header, status) in [
            ("/a", "", 401),
            ("/nowhere", token, 404),
            ("/a/.well-known/agent-card.json", token, 405),
            (
                "/a",
                "Authorization: Bearer alpha\r\nA2A-Version: \u{fc}\r\n",
                400,
            ),
        ] {
            let mut http = edge.connect().await;
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: h\r\n{header}Content-Length: {}\r\n\r\n",
                body.len()
            );
            http.send(head).await;
            http.send(&body).await;
            assert_eq!(http.response().await.0.status, status, "{path}");
            // All of the body was taken, so that the connection goes on.
            http.post_with("/nowhere", "", SEND).await;
            assert_eq!(http.response().await.0.status, 404);
        }
        edge.nothing_carried();
    });
}

#[test]
fn a_chunked_body_above_the_bound_is_refused_as_soon_as_it_exceeds() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        let chunk = [&b"40000\r\n"[..], &vec![b' '; 0x40000], b"\r\n"].concat();
        for _ in 0..4 {
            http.send(&chunk).await;
        }
        http.send("1\r\n \r\n").await;
        // The body never ends; the answer comes all the same.
        assert_eq!(http.response().await.0.status, 413);
        edge.nothing_carried();
    });
}

#[test]
fn a_chunked_body_within_the_bound_is_carried_whole() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
            .await;
        for part in SEND.as_bytes().chunks(7) {
            http.send(format!("{:x}\r\n", part.len())).await;
            http.send(part).await;
            http.send("\r\n").await;
        }
        http.send("0\r\n\r\n").await;
        assert_eq!(edge.call().await.object(), SEND);
    });
}

#[test]
fn a_broken_body_is_never_carried() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.send("POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
            .await;
        let (head, _) = http.response().await;
        assert_eq!(head.status, 400);
        let http = {
            let mut http = edge.connect().await;
            http.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 200\r\n\r\n{")
                .await;
            http
        };
        until("the request is open", || {
            edge.stats.requests_open.get() == 1
        })
        .await;
        drop(http);
        until("the request is closed", || {
            edge.stats.requests_open.get() == 0
        })
        .await;
        edge.nothing_carried();
    });
}

#[test]
fn stalling_clients_are_given_up() {
    run(async {
        let bounds = IngressBounds {
            head_time: Duration::from_millis(150),
            body_time: Duration::from_millis(150),
            ..IngressBounds::default()
        };
        let mut edge = Edge::with(settings(), bounds);
        let mut silent = edge.connect().await;
        let mut preface = edge.connect().await;
        preface.send("PRI * HT").await;
        let mut head = edge.connect().await;
        head.send("POST /a HTTP/1.1\r\nHost:").await;
        let mut body = edge.connect().await;
        body.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
            .await;
        let (answer, _) = body.response().await;
        assert_eq!(answer.status, 408);
        assert!(silent.is_closed().await);
        assert!(preface.is_closed().await);
        while head.more().await {}
        until("all are closed", || edge.stats.connections.get() == 0).await;
        assert_eq!(edge.stats.refusals.get(Refusal::HeadTimeout), 3);
        assert_eq!(edge.stats.refusals.get(Refusal::BodyTimeout), 1);
        edge.nothing_carried();
    });
}

#[test]
fn heads_are_bounded_and_must_be_http() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.send(format!(
            "POST /a HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
            "x".repeat(70_000)
        ))
        .await;
        assert_eq!(http.head().await.status, 431);
        let mut http = edge.connect().await;
        http.send("\x16\x03\x01\x02\x00\x01\x00 hello\r\n\r\n")
            .await;
        assert_eq!(http.head().await.status, 400);
        until("both are counted", || {
            edge.stats.refusals.get(Refusal::HeadInvalid) == 2
        })
        .await;
        edge.nothing_carried();
    });
}

#[test]
fn connections_above_the_bound_wait() {
    run(async {
        let bounds = IngressBounds {
            connections_max: 1,
            ..IngressBounds::default()
        };
        let mut edge = Edge::with(settings(), bounds);
        let mut first = edge.connect().await;
        first.post("/a", SEND).await;
        edge.call().await.reply("{}");
        first.response().await;
        let mut second = edge.connect().await;
        second.post("/a", SEND).await;
        until("the bound is noticed", || {
            edge.stats.refusals.get(Refusal::ConnectionsMax) == 1
        })
        .await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        edge.nothing_carried();
        drop(first);
        edge.call().await.reply("{}");
        assert_eq!(second.response().await.0.status, 200);
    });
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    run(async {
        let bounds = IngressBounds {
            idle_time: Duration::from_millis(150),
            ..IngressBounds::default()
        };
        let mut edge = Edge::with(settings(), bounds);
        let mut http = edge.connect().await;
        http.post("/a", SEND).await;
        let call = edge.call().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!call.gone.get());
        call.reply("{}");
        assert_eq!(http.response().await.0.status, 200);
        assert!(http.is_closed().await);
    });
}

/// Ruling R13.
#[test]
fn service_parameters_are_collected_and_nothing_else() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post_with(
            "/a?A2A-Version=0.3",
            "A2A-Extensions: one\r\nx-a2a-extensions: old\r\nA2A-Extensions: two, three\r\nCookie: secret\r\n",
            SEND,
        )
        .await;
        let call = edge.call().await;
        let lines: Vec<(&str, &str)> = call
            .parameters
            .lines
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            lines,
            [
                ("a2a-version", "0.3"),
                ("a2a-extensions", "one"),
                ("a2a-extensions", "two, three"),
                ("x-a2a-extensions", "old"),
            ]
        );
        call.reply("{}");
        http.response().await;

        let long = format!("A2A-Version: {}\r\n", "1".repeat(1025));
        http.post_with("/a", &long, SEND).await;
        assert_eq!(http.response().await.0.status, 431);
        http.post_with("/a", &"A2A-Extensions: x\r\n".repeat(17), SEND)
            .await;
        assert_eq!(http.response().await.0.status, 431);
        http.post_with("/a?A2A-Version=%0a", "", SEND).await;
        assert_eq!(http.response().await.0.status, 400);
        edge.nothing_carried();
    });
}

#[test]
fn the_relays_refusals() {
    run(async {
        let edge = Edge::new();
        let mut http = edge.connect().await;
        for (refusal, status, name) in [
            (
                CallRefusal::TooManyParameterSets,
                431,
                "TooManyParameterSets",
            ),
            (CallRefusal::Overloaded, 503, "Overloaded"),
            (CallRefusal::ShuttingDown, 503, "ShuttingDown"),
        ] {
            edge.mapping.refuse.set(Some(refusal));
            http.post("/a", SEND).await;
            let (head, body) = http.response().await;
            assert_eq!(head.status, status);
            assert_eq!(problem(&head, &body)["name"], name);
            http.get("GET", "/a/.well-known/agent-card.json", "").await;
            assert_eq!(http.response().await.0.status, status);
        }
        assert_eq!(edge.stats.requests.get(RequestOutcome::Refused), 6);
    });
}

/// Ruling R14.
#[test]
fn transport_errors_become_problems() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        for (code, message, timed_out, status, retry_after) in [
            (4, "connection refused", false, 502, None),
            (4, "no reply", true, 504, None),
            (4, "http 503; retry-after 12", false, 503, Some("12")),
            (4, "http 401", false, 502, None),
            (3, "", false, 501, None),
            (5, "effect", false, 403, None),
            (6, "", false, 409, None),
        ] {
            for request in [SEND, STREAM] {
                http.post("/a", request).await;
                edge.call().await.fail(code, message, timed_out);
                let (head, body) = http.response().await;
                assert_eq!(head.status, status);
                assert_eq!(
                    head.headers.get("retry-after").map(String::as_str),
                    retry_after
                );
                let problem = problem(&head, &body);
                assert_eq!(problem["code"], code);
                assert_eq!(problem["detail"], message);
            }
        }
    });
}

#[test]
fn a_unary_call_has_a_deadline() {
    run(async {
        let mut settings = settings();
        settings.unary_time = Duration::from_millis(100);
        let mut edge = Edge::with(settings, IngressBounds::default());
        let mut http = edge.connect().await;
        http.post("/a", SEND).await;
        let call = edge.call().await;
        let (head, body) = http.response().await;
        assert_eq!(head.status, 504);
        assert_eq!(problem(&head, &body)["name"], "NotDelivered");
        assert!(call.gone.get());
    });
}

/// NPAMP-CC-DOC §7.5, §8: at the deadline with part of a set here it is the set that failed;
/// a set that completes in time is served.
#[test]
fn a_document_set_begun_and_not_completed() {
    run(async {
        let mut settings = settings();
        settings.unary_time = Duration::from_millis(200);
        let mut edge = Edge::with(settings, IngressBounds::default());
        let mut http = edge.connect().await;
        for (request, completes) in [("card", false), ("call", false), ("card", true)] {
            if request == "card" {
                http.get("GET", "/a/.well-known/agent-card.json", "").await;
            } else {
                http.post("/a", SEND).await;
            }
            let call = edge.call().await;
            call.sink.push(CallEvent::DocumentBegun).unwrap();
            if completes {
                call.sink
                    .push(CallEvent::Document {
                        document: Bytes::from_static(b"{}"),
                        content_type: "application/json".into(),
                        proofs: Vec::new(),
                    })
                    .unwrap();
                assert_eq!(http.response().await.0.status, 200);
            } else {
                let (head, body) = http.response().await;
                assert_eq!(head.status, 504);
                assert_eq!(problem(&head, &body)["name"], "SetIncomplete");
                assert_eq!(problem(&head, &body)["code"], 21);
                assert!(call.gone.get());
            }
        }
    });
}

#[test]
fn a_call_that_the_relay_drops_is_answered() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", SEND).await;
        drop(edge.call().await);
        assert_eq!(http.response().await.0.status, 502);
    });
}

#[test]
fn a_client_that_leaves_gives_its_call_up() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", SEND).await;
        let call = edge.call().await;
        drop(http);
        until("the call is gone", || call.gone.get()).await;
        assert_eq!(edge.stats.requests.get(RequestOutcome::ClientLeft), 1);
    });
}

#[test]
fn bearer_tokens_guard_the_endpoint_and_not_the_card() {
    run(async {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "alpha\nbeta\n").unwrap();
        let mut settings = settings();
        settings.token_file = Some(file.path().into());
        let mut edge = Edge::with(settings, IngressBounds::default());
        let mut http = edge.connect().await;
        for (header, challenge) in [
            ("", "Bearer"),
            (
                "Authorization: Bearer gamma\r\n",
                "Bearer error=\"invalid_token\"",
            ),
            (
                "Authorization: Basic alpha\r\n",
                "Bearer error=\"invalid_token\"",
            ),
        ] {
            http.post_with("/a", header, SEND).await;
            let (head, body) = http.response().await;
            assert_eq!(head.status, 401);
            assert_eq!(head.headers["www-authenticate"], challenge);
            problem(&head, &body);
        }
        edge.nothing_carried();
        http.post_with("/a", "Authorization: Bearer beta\r\n", SEND)
            .await;
        edge.call().await.reply("{}");
        assert_eq!(http.response().await.0.status, 200);
        http.get("GET", "/a/.well-known/agent-card.json", "").await;
        assert!(matches!(edge.call().await.request, CallRequest::Card));
    });
}

const CARD: &str = r#"{"name":"n","supportedInterfaces":[{"url":"http://10.0.0.1/","protocolBinding":"JSONRPC"},{"url":"http://10.0.0.1/g","protocolBinding":"GRPC"}],"signatures":[{}],"v":1.0}"#;

async fn card(
    edge: &mut Edge,
    http: &mut Http<TcpStream>,
    method: &str,
    path: &str,
    headers: &str,
) -> (Head, Vec<u8>) {
    http.get(method, path, headers).await;
    let call = edge.call().await;
    assert!(matches!(call.request, CallRequest::Card));
    call.sink
        .push(CallEvent::Document {
            document: Bytes::from_static(CARD.as_bytes()),
            content_type: "application/json".into(),
            proofs: Vec::new(),
        })
        .unwrap();
    if method == "HEAD" {
        (http.head().await, Vec::new())
    } else {
        http.response().await
    }
}

/// Ruling R20.
#[test]
fn cards_are_rewritten_with_validators() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        let http = &mut http;
        let wanted = r#"{"name":"n","supportedInterfaces":[{"url":"http://edge.example/a/b","protocolBinding":"JSONRPC"}],"v":1.0}"#;
        let mut etag = String::new();
        for path in [
            "/a/b/.well-known/agent-card.json",
            "/a/b/.well-known/agent.json",
        ] {
            let (head, body) = card(&mut edge, http, "GET", path, "").await;
            assert_eq!(head.status, 200);
            assert_eq!(String::from_utf8(body).unwrap(), wanted);
            assert_eq!(head.headers["content-type"], "application/json");
            assert_eq!(head.headers["cache-control"], "no-cache");
            assert!(httpdate::parse_http_date(&head.headers["last-modified"]).is_ok());
            etag.clone_from(&head.headers["etag"]);
        }
        let path = "/a/b/.well-known/agent-card.json";
        let (head, _) = card(&mut edge, http, "HEAD", path, "").await;
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-length"], wanted.len().to_string());
        assert_eq!(head.headers["etag"], etag);
        let condition = format!("If-None-Match: \"x\", W/{etag}\r\n");
        let (head, body) = card(&mut edge, http, "GET", path, &condition).await;
        assert_eq!((head.status, body.len()), (304, 0));
        assert_eq!(head.headers["etag"], etag);
        let (head, body) = card(&mut edge, http, "GET", path, "If-None-Match: \"x\"\r\n").await;
        assert_eq!((head.status, body.len()), (200, wanted.len()));
        let (head, body) = card(&mut edge, http, "GET", &format!("{path}?original=true"), "").await;
        assert_eq!(body, CARD.as_bytes());
        assert_ne!(head.headers["etag"], etag);
        assert_eq!(edge.stats.requests.get(RequestOutcome::Card), 6);
    });
}

/// A card is asked for once in its time, by each set of service parameters.
#[test]
fn cards_are_kept_for_their_time() {
    run(async {
        let mut kept = settings();
        kept.card_time = Duration::from_secs(60);
        let mut edge = Edge::with(kept, IngressBounds::default());
        let mut http = edge.connect().await;
        let http = &mut http;
        let path = "/a/.well-known/agent-card.json";
        let (first, body) = card(&mut edge, http, "GET", path, "").await;
        assert_eq!(first.headers["cache-control"], "public, max-age=60");
        assert!(first.headers["vary"].contains("a2a-version"));
        http.get("GET", path, "").await;
        let (again, same) = http.response().await;
        edge.nothing_carried();
        assert_eq!((again.status, same), (200, body));
        for name in ["etag", "last-modified"] {
            assert_eq!(again.headers[name], first.headers[name]);
        }
        let left = again.headers["cache-control"].strip_prefix("public, max-age=");
        assert!(left.unwrap().parse::<u64>().unwrap() < 60, "it has aged");
        let condition = format!("If-None-Match: {}\r\n", first.headers["etag"]);
        http.get("GET", path, &condition).await;
        assert_eq!(http.head().await.status, 304);
        edge.nothing_carried();
        card(&mut edge, http, "GET", path, "A2A-Version: 1.0\r\n").await;
        assert_eq!(edge.stats.cards.get(CardSource::Fetched), 2);
        assert_eq!(edge.stats.cards.get(CardSource::Kept), 2);
    });
}

#[test]
fn cards_at_a_public_url_or_verbatim() {
    run(async {
        let path = "/a/.well-known/agent-card.json";
        let mut public = settings();
        public.public_url = Some("https://relay.example/base/".into());
        let mut edge = Edge::with(public, IngressBounds::default());
        let mut http = edge.connect().await;
        let (_, body) = card(&mut edge, &mut http, "GET", path, "").await;
        let body = String::from_utf8(body).unwrap();
        assert!(
            body.contains(r#""url":"https://relay.example/base/a""#),
            "{body}"
        );

        let mut verbatim = settings();
        verbatim.card = CardMode::Verbatim;
        let mut edge = Edge::with(verbatim, IngressBounds::default());
        let mut http = edge.connect().await;
        let (_, body) = card(&mut edge, &mut http, "GET", path, "").await;
        assert_eq!(body, CARD.as_bytes());
    });
}

#[test]
fn a_card_that_does_not_come() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        for (method, message, status) in [
            ("GET", "http 404", 404),
            ("HEAD", "http 404", 404),
            ("GET", "x", 502),
        ] {
            http.get(method, "/a/.well-known/agent-card.json", "").await;
            edge.call().await.fail(4, message, false);
            let head = http.head().await;
            assert_eq!(head.status, status);
            if method == "GET" {
                let length = head.headers["content-length"].parse().unwrap();
                problem(&head, &http.exactly(length).await);
            }
        }
        http.get("GET", "/a/.well-known/agent-card.json", "").await;
        edge.call()
            .await
            .sink
            .push(CallEvent::Document {
                document: Bytes::from_static(b"<html>"),
                content_type: "text/html".into(),
                proofs: Vec::new(),
            })
            .unwrap();
        assert_eq!(http.response().await.0.status, 502);
    });
}

#[derive(Clone)]
pub struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

pub async fn http2(edge: &Edge) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(edge.address).await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(LocalExecutor, hyper_util::rt::TokioIo::new(stream))
            .await
            .unwrap();
    tokio::task::spawn_local(connection);
    sender
}

pub fn post(body: &'static str) -> http::Request<Full<Bytes>> {
    http::Request::post("http://edge.example/a")
        .body(Full::new(Bytes::from_static(body.as_bytes())))
        .unwrap()
}

#[test]
fn http2_with_prior_knowledge() {
    run(async {
        let mut edge = Edge::new();
        let mut client = http2(&edge).await;
        let one = tokio::task::spawn_local(client.send_request(post(SEND)));
        let two = tokio::task::spawn_local(client.send_request(post(STREAM)));
        let (first, second) = (edge.call().await, edge.call().await);
        second.event(1, "{}");
        second.end(None);
        first.reply(r#"{"r":1}"#);
        let one = soon(one).await.unwrap().unwrap();
        assert_eq!(one.status(), 200);
        assert_eq!(
            one.into_body().collect().await.unwrap().to_bytes(),
            r#"{"r":1}"#
        );
        let two = soon(two).await.unwrap().unwrap();
        assert_eq!(two.headers()["content-type"], "text/event-stream");
        let two = two.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(without_ids(&two), b"data: {}\n\n");
        let card = http::Request::head("http://edge.example/a/.well-known/agent-card.json")
            .body(Full::default())
            .unwrap();
        let card = tokio::task::spawn_local(client.send_request(card));
        edge.call()
            .await
            .sink
            .push(CallEvent::Document {
                document: Bytes::from_static(b"{}"),
                content_type: String::new(),
                proofs: Vec::new(),
            })
            .unwrap();
        let card = soon(card).await.unwrap().unwrap();
        assert_eq!(
            (card.status().as_u16(), &card.headers()["content-length"]),
            (200, &"2".parse().unwrap())
        );
    });
}

#[test]
fn http2_body_above_the_bound() {
    run(async {
        let mut edge = Edge::new();
        let mut client = http2(&edge).await;
        let request = http::Request::post("http://edge.example/a")
            .body(Full::new(Bytes::from(vec![b' '; (1 << 20) + 1])))
            .unwrap();
        let reply = soon(client.send_request(request)).await.unwrap();
        assert_eq!(reply.status(), 413);
        edge.nothing_carried();
    });
}

/// A body that is sent piece by piece, and whether it was wanted to its end.
struct Pieces {
    left: usize,
    done: Rc<std::cell::Cell<bool>>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            self.done.set(true);
            return std::task::Poll::Ready(None);
        }
        self.left -= 1;
        let piece = Bytes::from(vec![b' '; 64 << 10]);
        std::task::Poll::Ready(Some(Ok(hyper::body::Frame::data(piece))))
    }
}

/// Clients such as curl miss an answer whose stream is reset while they still send.
#[test]
fn http2_streams_are_not_reset_under_a_refusal() {
    run(async {
        let mut edge = Edge::new();
        for (path, status) in [("a", 413), ("nowhere", 404)] {
            let stream = TcpStream::connect(edge.address).await.unwrap();
            let io = hyper_util::rt::TokioIo::new(stream);
            let (mut client, connection) = hyper::client::conn::http2::handshake(LocalExecutor, io)
                .await
                .unwrap();
            tokio::task::spawn_local(connection);
            let done = Rc::new(std::cell::Cell::new(false));
            let body = Pieces {
                left: 128,
                done: done.clone(),
            };
            let request = http::Request::post(format!("http://edge.example/{path}"))
                .body(body)
                .unwrap();
            let reply = soon(client.send_request(request)).await.unwrap();
            assert_eq!(reply.status(), status);
            until("all of the body is taken", || done.get()).await;
        }
        edge.nothing_carried();
    });
}

#[test]
fn https_with_either_protocol() {
    run(async {
        let files = tempfile::tempdir().unwrap();
        let issued = rcgen::generate_simple_self_signed(vec!["edge.example".into()]).unwrap();
        let tls = TlsFiles {
            cert: files.path().join("cert.pem"),
            key: files.path().join("key.pem"),
        };
        std::fs::write(&tls.cert, issued.cert.pem()).unwrap();
        std::fs::write(&tls.key, issued.signing_key.serialize_pem()).unwrap();
        let mut https = settings();
        https.tls = Some(tls.clone());
        let bounds = IngressBounds {
            handshake_time: Duration::from_millis(300),
            ..IngressBounds::default()
        };
        let mut edge = Edge::with(https, bounds);
        for protocol in ["http/1.1", "h2"] {
            let mut roots = rustls::RootCertStore::empty();
            roots
                .add(rustls::pki_types::CertificateDer::from_pem_file(&tls.cert).unwrap())
                .unwrap();
            let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(
                rustls::crypto::aws_lc_rs::default_provider(),
            ))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
            config.alpn_protocols = vec![protocol.into()];
            let stream = TcpStream::connect(edge.address).await.unwrap();
            let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
                .connect("edge.example".try_into().unwrap(), stream)
                .await
                .unwrap();
            assert_eq!(
                stream.get_ref().1.alpn_protocol(),
                Some(protocol.as_bytes())
            );
            if protocol == "h2" {
                let (mut client, connection) = hyper::client::conn::http2::handshake(
                    LocalExecutor,
                    hyper_util::rt::TokioIo::new(stream),
                )
                .await
                .unwrap();
                tokio::task::spawn_local(connection);
                let reply = tokio::task::spawn_local(client.send_request(post(SEND)));
                edge.call().await.reply("{}");
                assert_eq!(soon(reply).await.unwrap().unwrap().status(), 200);
            } else {
                let mut http = Http::new(stream);
                http.get("GET", "/a/.well-known/agent-card.json", "").await;
                edge.call()
                    .await
                    .sink
                    .push(CallEvent::Document {
                        document: Bytes::from_static(b"{\"url\":\"http://10.0.0.1/\"}"),
                        content_type: String::new(),
                        proofs: Vec::new(),
                    })
                    .unwrap();
                let (_, body) = http.response().await;
                assert_eq!(body, br#"{"url":"https://edge.example/a"}"#);
            }
        }
        let mut silent = edge.connect().await;
        assert!(silent.is_closed().await, "a stalled handshake is ended");
        let mut plain = edge.connect().await;
        plain.send("GET / HTTP/1.1\r\n\r\n").await;
        while plain.more().await {}
        assert_eq!(edge.stats.refusals.get(Refusal::Tls), 2);
    });
}

#[test]
fn shutdown_finishes_what_is_under_way() {
    run(async {
        let mut edge = Edge::new();
        let mut idle = edge.connect().await;
        idle.post("/a", SEND).await;
        edge.call().await.reply("{}");
        idle.response().await;
        let mut busy = edge.connect().await;
        busy.post("/a", SEND).await;
        let call = edge.call().await;
        edge.shutdown.send(true).unwrap();
        assert!(idle.is_closed().await);
        assert!(!edge.served.is_finished());
        call.reply("{}");
        assert_eq!(busy.response().await.0.status, 200);
        soon(edge.served).await.unwrap();
        assert!(TcpStream::connect(edge.address).await.is_err());
        assert_eq!(edge.stats.connections.get(), 0);
    });
}

#[test]
fn bad_settings_are_refused() {
    let stats = Arc::new(EdgeStats::default());
    let refuse = |change: &dyn Fn(&mut npamp_relay::edge::settings::IngressSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Ingress::new(settings, stats.clone())
            .unwrap_err()
            .to_string()
    };
    let missing: std::path::PathBuf = "/nonexistent/x".into();
    assert!(refuse(&|s| s.token_file = Some(missing.clone())).contains("/nonexistent/x"));
    assert!(
        refuse(&|s| s.tls = Some(TlsFiles {
            cert: missing.clone(),
            key: missing.clone()
        }))
        .contains("/nonexistent/x")
    );
    for url in ["relay.example", "ftp://relay.example", "http://h/?q"] {
        assert!(refuse(&|s| s.public_url = Some(url.into())).contains(url));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no pem").unwrap();
    assert!(
        refuse(&|s| s.tls = Some(TlsFiles {
            cert: file.path().into(),
            key: file.path().into()
        }))
        .contains("no certificate")
    );
}

/// Every client uses id 1 at the same time, and each gets its own answer.
#[test]
fn answers_are_never_crossed() {
    run(async {
        let mut edge = Edge::new();
        let mut clients = Vec::new();
        for n in 0..64 {
            let mut http = edge.connect().await;
            http.post(
                "/a",
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{n}}}"#),
            )
            .await;
            clients.push(http);
        }
        let mut calls = Vec::new();
        for _ in 0..64 {
            calls.push(edge.call().await);
        }
        for call in calls.iter().rev() {
            let request: serde_json::Value = serde_json::from_slice(call.object()).unwrap();
            let reply = format!(r#"{{"id":1,"result":{}}}"#, request["params"]);
            call.sink.push(CallEvent::Response(reply.into())).unwrap();
        }
        for (n, mut http) in clients.into_iter().enumerate() {
            let (_, body) = http.response().await;
            assert_eq!(
                String::from_utf8(body).unwrap(),
                format!(r#"{{"id":1,"result":{n}}}"#)
            );
        }
        assert_eq!(edge.stats.requests.get(RequestOutcome::Response), 64);
    });
}
