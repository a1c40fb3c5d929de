//! Clients that come back for their streams, with a mapping that the test plays
//! (rulings R17, R19, R22).

use crate::support::*;
use bytes::Bytes;
use npamp_relay::a2a::port::{CallRequest, ResumeTicket};
use npamp_relay::bridge::correlation::CorrelationId;
use npamp_relay::edge::ingress::IngressBounds;
use npamp_relay::edge::stats::{ResumeRefusal, StreamFate, StreamOutcome};
use npamp_relay::edge::streams::StreamBounds;
use npamp_relay::edge::window::Bounds;
use std::time::Duration;

fn keeping(events: usize) -> Edge {
    let bounds = StreamBounds {
        window: Bounds {
            events,
            octets: 16 << 20,
        },
        grace: Duration::from_secs(30),
        retention: Duration::from_secs(120),
        ..cancelling()
    };
    let quick = IngressBounds {
        stream_head_time: Duration::from_millis(200),
        ..IngressBounds::default()
    };
    Edge::keeping(settings(), quick, bounds)
}

fn object(n: u64) -> String {
    format!(r#"{{ "result":{{"id":1}},"jsonrpc":"2.0", "id" : 1,"n":{n}}}"#)
}

/// The next chunk's events with their ids.
async fn events(http: &mut Http<tokio::net::TcpStream>, count: usize) -> Vec<(String, String)> {
    let mut events = Vec::new();
    while events.len() < count {
        let chunk = http.raw_chunk().await.expect("a chunk");
        for block in String::from_utf8(chunk).unwrap().split_terminator("\n\n") {
            let (id, data) = block.split_once('\n').expect("two lines");
            events.push((
                id.strip_prefix("id: ").expect("an id").to_owned(),
                data.strip_prefix("data: ").expect("data").to_owned(),
            ));
        }
    }
    assert_eq!(events.len(), count);
    events
}

async fn back(edge: &Edge, id: &str, position: &str) -> Http<tokio::net::TcpStream> {
    let mut http = edge.connect().await;
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"message/stream"}}"#);
    http.post_with("/a", &format!("Last-Event-ID: {position}\r\n"), body)
        .await;
    http
}

/// Ruling R17: every event has an id, and a client that comes back with one gets what
/// follows. Ruling R22: with the id of its own request, and no other octet changed.
#[test]
fn a_client_comes_back() {
    run(async {
        let mut edge = keeping(1024);
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        for n in 1..=3 {
            call.event(n, object(n));
        }
        http.head().await;
        let seen = events(&mut http, 3).await;
        let token = seen[0]
            .0
            .strip_suffix(".1")
            .expect("an event_id")
            .to_owned();
        assert_eq!(token.len(), 24);
        assert_eq!(seen[2], (format!("{token}.3"), object(3)));
        drop(http);
        until("it is detached", || edge.stats.streams_detached.get() == 1).await;
        assert!(!call.gone.get());
        call.event(4, object(4));
        let mut http = back(&edge, r#""x""#, &seen[1].0).await;
        assert_eq!(http.head().await.status, 200);
        let renamed = |n: u64| object(n).replace(r#""id" : 1"#, r#""id" : "x""#);
        assert_eq!(
            events(&mut http, 2).await,
            [
                (format!("{token}.3"), renamed(3)),
                (format!("{token}.4"), renamed(4))
            ]
        );
        call.event(5, object(5));
        assert_eq!(events(&mut http, 1).await[0].1, renamed(5));
        // The same id, spelled otherwise: untouched.
        let mut newer = back(&edge, "1.0", &format!("{token}.4")).await;
        newer.head().await;
        assert_eq!(events(&mut newer, 1).await[0].1, object(5));
        assert!(!http.chunks().await.1, "the older connection is cut");
        until("counted", || {
            edge.stats.streams_ended.get(StreamOutcome::TakenOver) == 1
        })
        .await;
        call.end(None);
        assert_eq!(newer.chunks().await, (Vec::new(), true));
        let mut late = back(&edge, "1", &format!("{token}.5")).await;
        let head = late.head().await;
        assert_eq!((head.status, head.headers.get("content-type")), (204, None));
        assert_eq!(edge.stats.stream_fates.get(StreamFate::FromWindow), 2);
        edge.nothing_carried();
    });
}

/// The same for events that came together: a client may come back between any two.
#[test]
fn a_client_comes_back_between_events_that_came_together() {
    run(async {
        let mut edge = keeping(1024);
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        let together = |ids: std::ops::RangeInclusive<u64>| ids.map(|n| (n, object(n)));
        call.events(together(1..=5));
        http.head().await;
        let seen = events(&mut http, 5).await;
        let token = seen[0].0.strip_suffix(".1").unwrap().to_owned();
        drop(http);
        until("it is detached", || edge.stats.streams_detached.get() == 1).await;
        call.events(together(6..=8));
        for last in [2, 5, 7] {
            let mut http = back(&edge, r#""x""#, &format!("{token}.{last}")).await;
            assert_eq!(http.head().await.status, 200);
            let wanted: Vec<(String, String)> = (last + 1..=8)
                .map(|n| {
                    let renamed = object(n).replace(r#""id" : 1"#, r#""id" : "x""#);
                    (format!("{token}.{n}"), renamed)
                })
                .collect();
            assert_eq!(events(&mut http, wanted.len()).await, wanted);
        }
        call.end(None);
        edge.nothing_carried();
    });
}

/// Ruling R19: what its own window has lost is asked of the producer once the stream has ended.
#[test]
fn the_producer_is_asked() {
    run(async {
        let mut edge = keeping(2);
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        let ticket = Box::new(ResumeTicket {
            correlation_id: CorrelationId::new(b"c").unwrap(),
            method: "message/stream".into(),
            id: "1".into(),
            object: Bytes::new(),
            upstream: Some(0),
        });
        call.sink.set_ticket(Some(ticket.clone()));
        call.event(1, object(1));
        http.head().await;
        let position = events(&mut http, 1).await.remove(0).0;
        drop(http);
        until("it is detached", || edge.stats.streams_detached.get() == 1).await;
        (2..=9).for_each(|n| call.event(n, object(n)));
        let (head, body) = back(&edge, "1", &position).await.response().await;
        assert_eq!(
            (head.status, &problem(&head, &body)["code"]),
            (409, &6.into())
        );
        edge.nothing_carried();
        call.end(None);

        for refused in [true, false] {
            let mut http = back(&edge, "7", &position).await;
            let again = edge.call().await;
            match &again.request {
                CallRequest::Resume {
                    ticket: own,
                    cursor,
                } => assert_eq!((own, *cursor), (&ticket, 1)),
                other => panic!("{other:?}"),
            }
            assert_eq!(again.route, 0);
            if refused {
                again.fail(6, "the stream cannot be resumed", false);
                let (head, body) = http.response().await;
                let problem = problem(&head, &body);
                assert_eq!(
                    (head.status, &problem["name"]),
                    (409, &"NotResumable".into())
                );
                continue;
            }
            // More than a window at once: the producer does not wait.
            (2..=9).for_each(|n| again.event(n, object(n)));
            again.end(None);
            assert_eq!(http.head().await.status, 200);
            let seen = events(&mut http, 8).await;
            assert!(seen.iter().all(|(_, data)| data.contains(r#""id" : 7"#)));
            let token = position.strip_suffix(".1").unwrap();
            assert_eq!(seen[7].0, format!("{token}.9"), "the stream keeps its name");
            assert_eq!(http.chunks().await, (Vec::new(), true));
        }
        let stats = &edge.stats;
        assert_eq!(stats.stream_fates.get(StreamFate::FromProducer), 1);
        assert_eq!(stats.resume_refusals.get(ResumeRefusal::NotHeld), 1);
        assert_eq!(stats.resume_refusals.get(ResumeRefusal::Producer), 1);
    });
}

/// A client that leaves while its producer is asked does not cancel the stream there.
#[test]
fn leaving_before_the_producer_answers() {
    run(async {
        let mut edge = keeping(1);
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.sink.set_ticket(Some(Box::new(ResumeTicket {
            correlation_id: CorrelationId::new(b"c").unwrap(),
            method: "message/stream".into(),
            id: "1".into(),
            object: Bytes::new(),
            upstream: Some(0),
        })));
        call.event(1, object(1));
        http.head().await;
        let position = events(&mut http, 1).await.remove(0).0;
        drop(http);
        until("it is detached", || edge.stats.streams_detached.get() == 1).await;
        (2..=4).for_each(|n| call.event(n, object(n)));
        call.end(None);
        let http = back(&edge, "7", &position).await;
        let again = edge.call().await;
        drop(http);
        until("it is detached", || edge.stats.streams_detached.get() == 1).await;
        assert!(!again.gone.get());
        (2..=4).for_each(|n| again.event(n, object(n)));
        again.end(None);
        let mut http = back(&edge, "1", &position).await;
        http.head().await;
        let seen = events(&mut http, 3).await;
        assert_eq!(seen[2].1, object(4));
        assert_eq!(http.chunks().await, (Vec::new(), true));
        edge.nothing_carried();
    });
}

/// What is no call that streams has no stream to come back for.
#[test]
fn other_calls_take_no_position() {
    run(async {
        let mut edge = keeping(10);
        let mut http = edge.connect().await;
        http.post_with("/a", "Last-Event-ID: nonsense\r\n", SEND)
            .await;
        edge.call().await.reply("{}");
        assert_eq!(http.response().await.0.status, 200);
        http.post_with("/a", "Last-Event-ID: nonsense\r\n", STREAM)
            .await;
        let (head, body) = http.response().await;
        assert_eq!(
            (head.status, &problem(&head, &body)["code"]),
            (409, &6.into())
        );
        http.post_with("/a", "Last-Event-ID:\r\n", STREAM).await;
        edge.call().await.reply("{}");
        assert_eq!(
            http.response().await.0.status,
            200,
            "an empty one says nothing"
        );
        edge.nothing_carried();
    });
}
