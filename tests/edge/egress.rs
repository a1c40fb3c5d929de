//! Exchanges with agents, good and bad, behind the egress.

use crate::support::*;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use npamp_relay::a2a::port::{
    AgentEvent, AssociationId, Dispatch, DispatchAction, ExchangeId, ServiceParameters,
};
use npamp_relay::edge::egress::Egress;
use npamp_relay::edge::settings::{AgentSettings, AgentVersion};
use npamp_relay::edge::stats::{AgentOutcome, EdgeStats, EventFlow};
use rustls::pki_types::pem::PemObject;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// An egress in front of one raw agent.
struct Bench {
    agent: TcpListener,
    egress: Rc<Egress>,
    mapping: Rc<Played>,
    events: Events,
    stats: Arc<EdgeStats>,
    next: u64,
}

fn agent(address: SocketAddr) -> AgentSettings {
    AgentSettings {
        name: "agent".into(),
        default: true,
        url: format!("http://{address}/rpc"),
        version: AgentVersion::Auto,
        authorization_file: None,
        tls_ca: None,
        http2: false,
        connect_time: Duration::from_secs(2),
        unary_time: Duration::from_secs(5),
        body_octets_max: 1 << 20,
        pool_idle_max: 8,
    }
}

impl Bench {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut AgentSettings)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = agent(listener.local_addr().unwrap());
        change(&mut settings);
        let stats = Arc::new(EdgeStats::default());
        let egress = Rc::new(Egress::new(vec![settings], stats.clone()).unwrap());
        let (mapping, _, events) = Played::new();
        Self {
            agent: listener,
            egress,
            mapping,
            events,
            stats,
            next: 0,
        }
    }

    async fn accept(&self) -> Http<TcpStream> {
        let (stream, _) = soon(self.agent.accept()).await.unwrap();
        Http::new(stream)
    }

    fn dispatch(&mut self, action: DispatchAction, lines: &[(&str, &str)]) -> ExchangeId {
        self.next += 1;
        let exchange = ExchangeId(self.next);
        let parameters = ServiceParameters {
            lines: lines
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..ServiceParameters::default()
        };
        let dispatch = Dispatch {
            association: AssociationId(1),
            agent: 0,
            action,
            parameters,
        };
        self.egress
            .dispatch(exchange, dispatch, self.mapping.clone());
        exchange
    }

    fn request(&mut self, object: &'static str) -> ExchangeId {
        self.dispatch(
            DispatchAction::Request {
                object: Bytes::from_static(object.as_bytes()),
            },
            &[],
        )
    }

    async fn event(&mut self) -> AgentEvent {
        let (exchange, event) = soon(self.events.recv()).await.unwrap();
        assert_eq!(exchange.0, self.next);
        event
    }

    async fn stream_event(&mut self) -> Bytes {
        match self.event().await {
            AgentEvent::StreamEvent(event) => event,
            other => panic!("{other:?}"),
        }
    }

    async fn failed(&mut self) -> (String, bool) {
        match self.event().await {
            AgentEvent::Failed { message, timed_out } => (message, timed_out),
            other => panic!("{other:?}"),
        }
    }

    /// No connection came about, which discovery wants to know (NPAMP-DISC §7.2).
    async fn unreachable(&mut self) -> (String, bool) {
        match self.event().await {
            AgentEvent::Unreachable { message, timed_out } => (message, timed_out),
            other => panic!("{other:?}"),
        }
    }

    async fn body(&mut self) -> (u16, String, Option<String>, Bytes) {
        match self.event().await {
            AgentEvent::Body {
                status,
                content_type,
                retry_after,
                body,
            } => (status, content_type, retry_after, body),
            other => panic!("{other:?}"),
        }
    }

    /// Nothing further comes, and the exchange is counted.
    async fn over(&mut self, outcome: AgentOutcome) {
        until("the exchange is over", || {
            self.egress.running() == 0 && self.stats.agents_open.get() == 0
        })
        .await;
        assert!(self.events.try_recv().is_err(), "an event after the last");
        assert!(self.stats.agents.get(outcome) > 0, "{outcome:?}");
    }
}

/// Reads a request whole: first line, headers, body.
async fn request(
    http: &mut Http<TcpStream>,
) -> (String, std::collections::HashMap<String, String>, Vec<u8>) {
    let (first, headers) = http.message().await.expect("no request");
    let length = headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let body = http.exactly(length).await;
    (first, headers, body)
}

fn reply(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

fn chunk(octets: &str) -> String {
    format!("{:x}\r\n{octets}\r\n", octets.len())
}

const LAST_CHUNK: &str = "0\r\n\r\n";

/// Rulings R13, R22: the object, the stated parameters, the agent's credential, nothing else.
#[test]
fn a_request_is_exactly_what_it_should_be() {
    run(async {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "Bearer agent-secret\n").unwrap();
        let mut bench =
            Bench::with(|agent| agent.authorization_file = Some(file.path().into())).await;
        let object = "\r\n{ \"id\":1.0,\"x\":\"\u{2028}\" }\n";
        bench.dispatch(
            DispatchAction::Request {
                object: object.into(),
            },
            &[
                ("a2a-version", "1.0"),
                ("a2a-extensions", "one"),
                ("a2a-extensions", "two"),
            ],
        );
        let mut http = bench.accept().await;
        let (first, mut headers, body) = request(&mut http).await;
        assert_eq!(first, "POST /rpc HTTP/1.1");
        assert_eq!(body, object.as_bytes());
        for (name, value) in [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("authorization", "Bearer agent-secret"),
            ("a2a-version", "1.0"),
            ("a2a-extensions", "one|two"),
            ("host", &bench.agent.local_addr().unwrap().to_string()),
            ("content-length", &object.len().to_string()),
        ] {
            assert_eq!(headers.remove(name).as_deref(), Some(value), "{name}");
        }
        assert!(headers.is_empty(), "{headers:?}");
        let answer = "{\"id\":1.0, \"result\":{\"a\":1e999,\"a\":\"\u{2028}\"}}\r\n";
        http.send(reply(answer)).await;
        let (status, content_type, retry_after, body) = bench.body().await;
        assert_eq!(status, 200);
        assert_eq!(content_type, "application/json; charset=utf-8");
        assert_eq!(retry_after, None);
        assert_eq!(body, answer);
        bench.over(AgentOutcome::Success).await;
    });
}

#[test]
fn connections_are_kept_and_reused() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request("{}");
        let mut http = bench.accept().await;
        for _ in 0..5 {
            request(&mut http).await;
            http.send(reply("{}")).await;
            bench.body().await;
            bench.request("{}");
        }
        request(&mut http).await;
    });
}

/// A pooled connection that the agent has closed carries nothing; the request goes over a new one, once.
#[test]
fn a_stale_connection_is_replaced() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(reply("{}")).await;
        bench.body().await;
        drop(http);
        // One turn of the event loop, in which the close is noticed.
        tokio::time::sleep(Duration::from_millis(10)).await;
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(reply("{}")).await;
        assert_eq!(bench.body().await.0, 200);
        bench.over(AgentOutcome::Success).await;
    });
}

/// NPAMP-BRIDGE §6: what may have been delivered is not sent a second time.
#[test]
fn a_request_that_the_agent_read_is_never_repeated() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(reply("{}")).await;
        bench.body().await;
        bench.request("{}");
        request(&mut http).await;
        drop(http);
        let (message, timed_out) = bench.failed().await;
        assert!(message.contains("broke"), "{message}");
        assert!(!timed_out);
        bench.over(AgentOutcome::Broken).await;
        let again = tokio::time::timeout(Duration::from_millis(100), bench.agent.accept()).await;
        assert!(again.is_err(), "it was sent again");
    });
}

#[test]
fn other_replies_are_bodies() {
    run(async {
        let mut bench = Bench::new().await;
        for (head, body, status, outcome) in [
            (
                "503 Service Unavailable\r\nContent-Type: text/html\r\nRetry-After: 17",
                "<html>",
                503,
                AgentOutcome::OtherStatus,
            ),
            (
                "500 X\r\nContent-Type: application/json",
                "{\"jsonrpc\":\"2.0\"}",
                500,
                AgentOutcome::OtherStatus,
            ),
            ("202 Accepted", "", 202, AgentOutcome::Success),
            (
                "307 Temporary Redirect\r\nLocation: /elsewhere",
                "",
                307,
                AgentOutcome::OtherStatus,
            ),
            (
                "404 X\r\nContent-Type: text/event-stream",
                "data: 1\n\n",
                404,
                AgentOutcome::OtherStatus,
            ),
        ] {
            bench.request("{}");
            let mut http = bench.accept().await;
            request(&mut http).await;
            http.send(format!(
                "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            ))
            .await;
            let (seen, _, retry_after, octets) = bench.body().await;
            assert_eq!(seen, status);
            assert_eq!(octets, body);
            assert_eq!(retry_after.is_some(), status == 503);
            bench.over(outcome).await;
        }
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            .await;
        let (status, content_type, _, body) = bench.body().await;
        assert_eq!((status, &*content_type, body.len()), (204, "", 0));
        // Read to the end of the connection.
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send("HTTP/1.1 200 OK\r\n\r\n{}").await;
        drop(http);
        assert_eq!(bench.body().await.3, "{}");
    });
}

#[test]
fn broken_replies_fail() {
    run(async {
        let mut bench = Bench::new().await;
        for octets in [
            "",
            "HTTP/1.1 200",
            "garbage\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
        ] {
            bench.request("{}");
            let mut http = bench.accept().await;
            request(&mut http).await;
            http.send(octets).await;
            drop(http);
            let (message, timed_out) = bench.failed().await;
            assert!(!timed_out);
            assert!(message.len() < 200 && !message.contains("127.0.0.1"));
            bench.over(AgentOutcome::Broken).await;
        }
    });
}

#[test]
fn replies_above_the_bound_fail() {
    run(async {
        let mut bench = Bench::with(|agent| agent.body_octets_max = 10).await;
        for octets in [
            "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n6\r\n123456\r\n",
        ] {
            bench.request("{}");
            let mut http = bench.accept().await;
            request(&mut http).await;
            http.send(octets).await;
            assert!(bench.failed().await.0.contains("exceeds 10 octets"));
            bench.over(AgentOutcome::TooLarge).await;
        }
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send([EVENTS, &chunk("data: 12345678901\n\n")].concat())
            .await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        assert!(bench.failed().await.0.contains("exceeds 10 octets"));
    });
}

/// An event that is no UTF-8 is no JSON; what came before it is handed on.
#[test]
fn an_event_that_is_no_utf8_ends_the_stream() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(
            [
                EVENTS.as_bytes(),
                b"1b\r\ndata: 1\n\ndata: \"\xff\"\n\ndata:\r\n",
            ]
            .concat(),
        )
        .await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        assert_eq!(bench.stream_event().await, "1");
        assert!(bench.failed().await.0.contains("UTF-8"));
        assert!(http.is_closed().await);
        bench.over(AgentOutcome::Unusable).await;
    });
}

#[test]
fn a_coded_reply_is_not_taken_for_octets() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request("{}");
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")
            .await;
        bench.failed().await;
        bench.over(AgentOutcome::Unusable).await;
    });
}

#[test]
fn deadlines() {
    run(async {
        let mut bench = Bench::with(|agent| agent.unary_time = Duration::from_millis(150)).await;
        bench.request(SEND);
        let mut silent = bench.accept().await;
        request(&mut silent).await;
        assert!(bench.failed().await.1);
        bench.over(AgentOutcome::TimedOut).await;
        assert!(silent.is_closed().await);

        bench.request(SEND);
        let mut half = bench.accept().await;
        request(&mut half).await;
        half.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{")
            .await;
        assert!(bench.failed().await.1);

        // A method that streams may take its time, for its head and for its events.
        bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        http.send(EVENTS).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        tokio::time::sleep(Duration::from_millis(400)).await;
        http.send([&chunk("data: 1\n\n"), LAST_CHUNK].concat())
            .await;
        assert_eq!(bench.stream_event().await, "1");
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
    });
}

#[test]
fn an_agent_that_is_not_there() {
    run(async {
        let mut bench = Bench::with(|agent| {
            agent.url = "http://127.0.0.1:1/".into();
        })
        .await;
        bench.request("{}");
        let (message, timed_out) = bench.unreachable().await;
        assert!(message.contains("connection refused"), "{message}");
        assert!(!message.contains("127.0.0.1"), "{message}");
        assert!(!timed_out);
        bench.over(AgentOutcome::Connect).await;
    });
}

/// TCP accepts, TLS never answers: the connect deadline covers both.
#[test]
fn an_agent_that_stalls_in_its_handshake() {
    run(async {
        let mut bench = Bench::with(|agent| {
            agent.url = agent.url.replace("http:", "https:");
            agent.connect_time = Duration::from_millis(150);
        })
        .await;
        bench.request("{}");
        let _stalled = bench.accept().await;
        let (_, timed_out) = bench.unreachable().await;
        assert!(timed_out);
        bench.over(AgentOutcome::TimedOut).await;
    });
}

#[test]
fn a_stream_is_handed_on_event_by_event() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(EVENTS.replace("text/event-stream", "Text/Event-Stream;charset=utf-8"))
            .await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        http.send(chunk("\u{feff}: hello\r\n\r\ndata: {\"a\":\"\u{2028}"))
            .await;
        http.send(chunk("\"}\r")).await;
        http.send(chunk("\n\r\nid: 3\ndata:2\n\ndata: 3")).await;
        assert_eq!(bench.stream_event().await, "{\"a\":\"\u{2028}\"}");
        assert_eq!(bench.stream_event().await, "2");
        assert!(bench.events.try_recv().is_err(), "half an event");
        http.send([&chunk("3\n\n"), LAST_CHUNK].concat()).await;
        assert_eq!(bench.stream_event().await, "33");
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
        bench.over(AgentOutcome::StreamEnded).await;
        assert_eq!(bench.stats.events.get(EventFlow::FromAgents), 3);
        // The connection is in order and can be used again.
        bench.request("{}");
        request(&mut http).await;
    });
}

/// Ruling R15.
#[test]
fn a_stream_that_breaks_is_never_an_orderly_end() {
    run(async {
        let mut bench = Bench::new().await;
        for (tail, events) in [
            (String::new(), 1),
            (chunk("data: 2\n\ndata: {\"half"), 2),
            ("20\r\ndata: {\"a\":".to_owned(), 1),
            ("zz\r\n".to_owned(), 1),
            (chunk("data: {\"half\":") + LAST_CHUNK, 1),
            (chunk("data: 2\n\n") + "1\r\n", 2),
        ] {
            bench.request(STREAM);
            let mut http = bench.accept().await;
            request(&mut http).await;
            http.send([EVENTS, &chunk("data: 1\n\n"), &tail].concat())
                .await;
            drop(http);
            assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
            for _ in 0..events {
                bench.stream_event().await;
            }
            let (message, timed_out) = bench.failed().await;
            assert!(message.contains("broke"), "{message}");
            assert!(!timed_out);
            bench.over(AgentOutcome::StreamBroken).await;
        }
        assert_eq!(bench.stats.agents.get(AgentOutcome::StreamEnded), 0);
    });
}

/// Ruling R15.
#[test]
fn a_last_event_without_its_blank_line() {
    run(async {
        let mut bench = Bench::new().await;
        bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send([EVENTS, &chunk("data: {\"final\":true}\n"), LAST_CHUNK].concat())
            .await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        assert_eq!(bench.stream_event().await, "{\"final\":true}");
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
        // An empty stream is an orderly end, too.
        bench.request(STREAM);
        request(&mut http).await;
        http.send([EVENTS, LAST_CHUNK].concat()).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
    });
}

#[test]
fn cancelling_closes_the_agents_response() {
    run(async {
        let mut bench = Bench::new().await;
        let exchange = bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send([EVENTS, &chunk("data: 1\n\n")].concat()).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        bench.stream_event().await;
        bench.egress.cancel(exchange);
        bench.egress.cancel(exchange);
        assert!(http.is_closed().await);
        bench.over(AgentOutcome::Cancelled).await;

        let exchange = bench.request(SEND);
        let mut http = bench.accept().await;
        request(&mut http).await;
        bench.egress.cancel(exchange);
        assert!(http.is_closed().await);
        bench.over(AgentOutcome::Cancelled).await;

        let exchange = bench.request(SEND);
        bench.egress.cancel(exchange);
        bench.over(AgentOutcome::Cancelled).await;
    });
}

/// Ruling R15: behind the last event the agent's response may run out, so that its
/// connection is kept and the exchange is not taken for a cancelled one.
#[test]
fn a_finished_stream_keeps_its_connection() {
    run(async {
        let mut bench = Bench::new().await;
        let exchange = bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send([EVENTS, &chunk("data: 1\n\n")].concat()).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        bench.stream_event().await;
        bench.egress.finish(exchange);
        tokio::task::yield_now().await;
        http.send([&chunk("data: 2\n\n"), LAST_CHUNK].concat())
            .await;
        assert_eq!(bench.stream_event().await, "2", "told, to be counted");
        bench.over(AgentOutcome::StreamEnded).await;
        bench.request(SEND);
        request(&mut http).await;
        http.send(reply("{}")).await;
        bench.body().await;
    });
}

/// An agent that does not end its response in time is left.
#[test]
fn a_finished_stream_that_goes_on_is_closed() {
    run(async {
        let mut bench = Bench::new().await;
        let exchange = bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send([EVENTS, &chunk("data: 1\n\n")].concat()).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        bench.stream_event().await;
        bench.egress.finish(exchange);
        assert!(http.is_closed().await);
        bench.over(AgentOutcome::StreamEnded).await;
    });
}

/// Head and body of a unary reply share one deadline.
#[test]
fn a_slow_head_leaves_less_time_for_the_body() {
    run(async {
        let mut bench = Bench::with(|agent| agent.unary_time = Duration::from_millis(400)).await;
        let since = tokio::time::Instant::now();
        bench.request(SEND);
        let mut http = bench.accept().await;
        request(&mut http).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        http.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{")
            .await;
        assert!(bench.failed().await.1);
        assert!(since.elapsed() < Duration::from_millis(650));
    });
}

/// Pressure on the association stops reading from the agent, and nothing is lost.
#[test]
fn a_stream_is_paced_by_the_association() {
    run(async {
        let mut bench = Bench::new().await;
        bench.mapping.press(true);
        bench.request(STREAM);
        let mut http = bench.accept().await;
        request(&mut http).await;
        http.send(EVENTS).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        let event = format!("data: {}\n\n", "7".repeat(60_000));
        let sender = tokio::task::spawn_local(async move {
            for _ in 0..500 {
                http.send(chunk(&event)).await;
            }
            http.send(LAST_CHUNK).await;
            http
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(bench.events.try_recv().is_err(), "read under pressure");
        assert!(!sender.is_finished(), "30 MB went somewhere");
        bench.mapping.press(false);
        for _ in 0..500 {
            assert_eq!(bench.stream_event().await.len(), 60_000);
        }
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
        soon(sender).await.unwrap();
    });
}

#[test]
fn a_notification_ignores_the_answer() {
    run(async {
        let mut bench = Bench::new().await;
        let notification = || DispatchAction::Notification {
            object: Bytes::from_static(b"{\"n\":1}"),
        };
        bench.dispatch(notification(), &[]);
        let mut http = bench.accept().await;
        let (_, _, body) = request(&mut http).await;
        assert_eq!(body, b"{\"n\":1}");
        http.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert_eq!(bench.body().await.0, 202);
        bench.dispatch(notification(), &[]);
        request(&mut http).await;
        http.send(EVENTS).await;
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
        assert!(http.is_closed().await);
        bench.over(AgentOutcome::Success).await;
    });
}

#[test]
fn the_card_is_looked_for_where_it_may_be() {
    run(async {
        let mut bench = Bench::new().await;
        let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx";
        let paths = [
            "/rpc/.well-known/agent-card.json",
            "/.well-known/agent-card.json",
            "/rpc/.well-known/agent.json",
            "/.well-known/agent.json",
        ];
        bench.dispatch(DispatchAction::Card, &[("a2a-version", "1.0")]);
        let mut http = bench.accept().await;
        for found in 0..4 {
            for (n, path) in paths.iter().enumerate().take(found + 1) {
                let (first, headers, _) = request(&mut http).await;
                assert_eq!(first, format!("GET {path} HTTP/1.1"));
                assert_eq!(headers["accept"], "application/json");
                if n == found {
                    http.send(reply(" {\"name\":\"n\"}")).await;
                } else if n == 0 {
                    http.send(reply("<html>catch-all</html>")).await;
                } else {
                    http.send(not_found).await;
                }
            }
            let (status, _, _, body) = bench.body().await;
            assert_eq!((status, &body[..]), (200, &b" {\"name\":\"n\"}"[..]));
            bench.dispatch(DispatchAction::Card, &[]);
        }
        for _ in 0..4 {
            request(&mut http).await;
            http.send(not_found).await;
        }
        assert_eq!(bench.body().await.0, 404);
        bench.over(AgentOutcome::OtherStatus).await;
        // Another failure is reported at once.
        bench.dispatch(DispatchAction::Card, &[]);
        request(&mut http).await;
        http.send("HTTP/1.1 503 X\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n")
            .await;
        let (status, _, retry_after, _) = bench.body().await;
        assert_eq!((status, retry_after.as_deref()), (503, Some("3")));
    });
}

#[test]
fn an_unknown_agent_fails() {
    run(async {
        let mut bench = Bench::new().await;
        bench.next += 1;
        let dispatch = Dispatch {
            association: AssociationId(1),
            agent: 9,
            action: DispatchAction::Card,
            parameters: ServiceParameters::default(),
        };
        bench
            .egress
            .dispatch(ExchangeId(1), dispatch, bench.mapping.clone());
        bench.failed().await;
    });
}

/// Serves one connection with HTTP/2: a stream for POST, a body for GET.
async fn serve_http2<S>(stream: S)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + 'static,
{
    let service =
        hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
            assert_eq!(request.version(), http::Version::HTTP_2);
            let response = http::Response::builder();
            Ok::<_, std::convert::Infallible>(if request.method() == http::Method::GET {
                response
                    .body(Full::new(Bytes::from_static(b"{\"name\":\"h2\"}")))
                    .unwrap()
            } else {
                let sent = request.into_body().collect().await.unwrap().to_bytes();
                let event = [b"data: ", &sent[..], b"\n\n"].concat();
                response
                    .header("content-type", "text/event-stream")
                    .body(Full::new(event.into()))
                    .unwrap()
            })
        });
    hyper::server::conn::http2::Builder::new(crate::ingress::LocalExecutor)
        .serve_connection(hyper_util::rt::TokioIo::new(stream), service)
        .await
        .unwrap();
}

async fn speaks_http2(bench: &mut Bench) {
    bench.request("{\"a\":1}");
    assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
    assert_eq!(bench.stream_event().await, "{\"a\":1}");
    assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
    bench.dispatch(DispatchAction::Card, &[]);
    assert_eq!(bench.body().await.3, "{\"name\":\"h2\"}");
}

#[test]
fn http2_with_prior_knowledge() {
    run(async {
        let mut bench = Bench::with(|agent| agent.http2 = true).await;
        bench.request("{\"a\":1}");
        let (stream, _) = soon(bench.agent.accept()).await.unwrap();
        tokio::task::spawn_local(serve_http2(stream));
        assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
        bench.stream_event().await;
        assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
        speaks_http2(&mut bench).await;
    });
}

#[test]
fn https_by_alpn_and_only_with_trust() {
    run(async {
        let issued = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let roots = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), issued.cert.pem()).unwrap();
        for alpn in ["h2", "http/1.1"] {
            for trusted in [true, false] {
                let mut bench = Bench::with(|agent| {
                    agent.url = agent.url.replace("http://127.0.0.1", "https://localhost");
                    agent.tls_ca = trusted.then(|| roots.path().into());
                })
                .await;
                let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(
                    issued.signing_key.serialize_pem().as_bytes(),
                )
                .unwrap();
                let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
                    rustls::crypto::aws_lc_rs::default_provider(),
                ))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![issued.cert.der().clone()], key)
                .unwrap();
                config.alpn_protocols = vec![alpn.into()];
                let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
                bench.request("{\"a\":1}");
                let (stream, _) = soon(bench.agent.accept()).await.unwrap();
                let accepted = soon(acceptor.accept(stream)).await;
                if !trusted {
                    bench.unreachable().await;
                    bench.over(AgentOutcome::Connect).await;
                } else if alpn == "h2" {
                    tokio::task::spawn_local(serve_http2(accepted.unwrap()));
                    assert!(matches!(bench.event().await, AgentEvent::StreamOpen));
                    bench.stream_event().await;
                    assert!(matches!(bench.event().await, AgentEvent::StreamEnd));
                    speaks_http2(&mut bench).await;
                } else {
                    let mut http = Http::new(accepted.unwrap());
                    let (first, _) = http.message().await.unwrap();
                    assert_eq!(first, "POST /rpc HTTP/1.1");
                    http.send(reply("{}")).await;
                    assert_eq!(bench.body().await.3, "{}");
                }
            }
        }
    });
}
