//! SSE responses at the ingress.

use crate::ingress::{http2, post};
use crate::support::*;
use bytes::Bytes;
use http_body_util::BodyExt;
use npamp_relay::a2a::port::CallEvent;
use npamp_relay::edge::Overflow;
use npamp_relay::edge::ingress::IngressBounds;
use npamp_relay::edge::stats::{EventFlow, StreamOutcome};
use npamp_relay::edge::streams::StreamBounds;
use npamp_relay::edge::window::Bounds;
use std::time::Duration;

fn narrow() -> StreamBounds {
    StreamBounds {
        window: Bounds {
            events: 64,
            octets: 1 << 20,
        },
        ..cancelling()
    }
}

fn quick() -> IngressBounds {
    IngressBounds {
        stream_head_time: Duration::from_millis(100),
        ..IngressBounds::default()
    }
}

#[test]
fn events_come_as_they_are_and_end_cleanly() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "{\"a\": 1.0, \"a\":\"\u{2028}\u{85}\"}");
        let head = http.head().await;
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-type"], "text/event-stream");
        assert_eq!(head.headers["cache-control"], "no-cache");
        assert_eq!(head.headers["x-accel-buffering"], "no");
        assert_eq!(
            http.chunk().await.unwrap(),
            "data: {\"a\": 1.0, \"a\":\"\u{2028}\u{85}\"}\n\n".as_bytes()
        );
        assert_eq!(edge.stats.streams.get(), 1);
        call.event(2, "{\r\n}\n");
        assert_eq!(http.chunk().await.unwrap(), b"data: {\ndata: }\ndata: \n\n");
        call.end(Some("{\"final\":true}"));
        let (rest, clean) = http.chunks().await;
        assert_eq!(rest, b"data: {\"final\":true}\n\n");
        assert!(clean);
        assert!(!call.gone.get());
        until("the stream is over", || edge.stats.streams.get() == 0).await;
        assert_eq!(edge.stats.streams_ended.get(StreamOutcome::Ended), 1);
        assert_eq!(edge.stats.events.get(EventFlow::ToClients), 3);
        http.post("/a", SEND).await;
        edge.call().await.reply("{}");
        assert_eq!(
            http.response().await.0.status,
            200,
            "the connection lives on"
        );
    });
}

/// Events that came together leave together, each as it is: with line breaks, and too long
/// to be copied.
#[test]
fn events_that_came_together_leave_together() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        let long = format!("{{\"text\":\"{}\"}}", "x".repeat(100_000));
        call.events([
            (1, "{\"n\":1}".into()),
            (2, "{\r\n}".into()),
            (5, "[]".into()),
        ]);
        http.head().await;
        let first = http.raw_chunk().await.unwrap();
        let text = String::from_utf8(first).unwrap();
        let token = text[4..].split('.').next().unwrap().to_owned();
        let said = |id: u64, data: &str| format!("id: {token}.{id}\n{data}\n\n");
        assert_eq!(
            text,
            [
                said(1, "data: {\"n\":1}"),
                said(2, "data: {\ndata: }"),
                said(5, "data: []")
            ]
            .concat()
        );
        call.events([(6, "{}".into()), (7, long.clone()), (8, "{}".into())]);
        call.event(9, "{\"n\":9}");
        call.end(None);
        let mut rest = Vec::new();
        loop {
            let chunk = http.raw_chunk().await.expect("an orderly end");
            if chunk.is_empty() {
                break;
            }
            rest.extend(chunk);
        }
        let wanted = [
            said(6, "data: {}"),
            said(7, &format!("data: {long}")),
            said(8, "data: {}"),
            said(9, "data: {\"n\":9}"),
        ];
        assert_eq!(String::from_utf8(rest).unwrap(), wanted.concat());
        assert_eq!(edge.stats.events.get(EventFlow::ToClients), 7);
    });
}

#[test]
fn ready_events_leave_in_one_chunk() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        for n in 0..100 {
            call.event(n, format!("{{\"n\":{n}}}"));
        }
        call.end(None);
        http.head().await;
        let chunk = String::from_utf8(http.chunk().await.unwrap()).unwrap();
        assert_eq!(chunk.matches("data: ").count(), 100);
        assert_eq!(http.chunks().await, (Vec::new(), true));
    });
}

#[test]
fn a_large_event_is_whole() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        let large = vec![b'7'; 7 << 20];
        call.event(1, "1");
        call.event(2, large.clone());
        call.end(Some("3"));
        http.head().await;
        let (body, clean) = http.chunks().await;
        assert!(clean);
        let wanted = [b"data: 1\n\ndata: ", &large[..], b"\n\ndata: 3\n\n"].concat();
        assert!(body == wanted);
    });
}

/// Ruling R27: what arrives decides, not the method.
#[test]
fn the_answer_decides_between_stream_and_body() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", SEND).await;
        let call = edge.call().await;
        call.event(1, "1");
        call.end(None);
        assert_eq!(
            http.head().await.headers["content-type"],
            "text/event-stream"
        );
        assert_eq!(http.chunks().await, (b"data: 1\n\n".to_vec(), true));
        http.post("/a", STREAM).await;
        edge.call().await.reply("{}");
        let (head, body) = http.response().await;
        assert_eq!(head.headers["content-type"], "application/json");
        assert_eq!(body, b"{}");
        http.post("/a", STREAM).await;
        edge.call().await.end(None);
        assert_eq!(
            http.head().await.headers["content-type"],
            "text/event-stream"
        );
        assert_eq!(http.chunks().await, (Vec::new(), true), "an empty stream");
    });
}

#[test]
fn the_head_of_a_slow_stream_goes_out_early() {
    run(async {
        let mut edge = Edge::with(settings(), quick());
        for late in 0..3 {
            let mut http = edge.connect().await;
            http.post("/a", STREAM).await;
            let call = edge.call().await;
            assert_eq!(
                http.head().await.headers["content-type"],
                "text/event-stream"
            );
            match late {
                0 => {
                    call.event(1, "1");
                    call.end(None);
                    assert_eq!(http.chunks().await, (b"data: 1\n\n".to_vec(), true));
                }
                1 => {
                    let error = r#"{"jsonrpc":"2.0","id":1,"error":{}}"#;
                    call.sink
                        .push(CallEvent::ErrorResponse(error.into()))
                        .unwrap();
                    let (body, clean) = http.chunks().await;
                    assert_eq!(body, format!("data: {error}\n\n").into_bytes());
                    assert!(clean);
                }
                _ => {
                    call.fail(4, "x", false);
                    assert_eq!(http.chunks().await, (Vec::new(), false), "no clean end");
                }
            }
        }
    });
}

#[test]
fn a_stream_outlives_the_unary_deadline_and_is_kept_alive() {
    run(async {
        let mut settings = settings();
        settings.unary_time = Duration::from_millis(50);
        settings.sse_keep_alive = Duration::from_millis(100);
        let mut edge = Edge::with(settings, quick());
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        http.head().await;
        for _ in 0..3 {
            assert_eq!(http.chunk().await.unwrap(), b":\n\n");
        }
        call.event(1, "1");
        assert_eq!(http.chunk().await.unwrap(), b"data: 1\n\n");
        assert_eq!(http.chunk().await.unwrap(), b":\n\n");
        call.end(None);
        assert!(http.chunks().await.1);
    });
}

#[test]
fn a_busy_stream_gets_no_comments() {
    run(async {
        let mut settings = settings();
        settings.sse_keep_alive = Duration::from_millis(200);
        let mut edge = Edge::with(settings, quick());
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        for n in 0..12 {
            call.event(n, "1");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        call.end(None);
        http.head().await;
        let (body, _) = http.chunks().await;
        assert_eq!(body, b"data: 1\n\n".repeat(12));
    });
}

/// Ruling R14: an aborted stream has no clean end, and what came before it arrives.
#[test]
fn a_transport_error_aborts_visibly() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        call.event(2, "2");
        call.fail(4, "agent died", false);
        http.head().await;
        let (body, clean) = http.chunks().await;
        assert_eq!(body, b"data: 1\n\ndata: 2\n\n");
        assert!(!clean);
        until("counted", || {
            edge.stats.streams_ended.get(StreamOutcome::Aborted) == 1
        })
        .await;

        let mut client = http2(&edge).await;
        let reply = tokio::task::spawn_local(client.send_request(post(STREAM)));
        let call = edge.call().await;
        call.event(1, "1");
        let mut body = soon(reply).await.unwrap().unwrap().into_body();
        let chunk = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(without_ids(&chunk.into_data().unwrap()), b"data: 1\n\n");
        call.event(2, "2");
        call.fail(4, "agent died", false);
        let chunk = soon(body.frame()).await.unwrap().unwrap();
        assert_eq!(without_ids(&chunk.into_data().unwrap()), b"data: 2\n\n");
        assert!(soon(body.frame()).await.unwrap().is_err());
    });
}

#[test]
fn a_stream_that_the_relay_drops_has_no_clean_end() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        http.head().await;
        drop(call);
        assert_eq!(http.chunks().await, (b"data: 1\n\n".to_vec(), false));
    });
}

#[test]
fn an_error_response_in_mid_stream_ends_it_in_order() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        call.sink
            .push(CallEvent::StreamError {
                event_id: 2,
                object: Bytes::from_static(b"{\"error\":{}}"),
            })
            .unwrap();
        http.head().await;
        assert_eq!(
            http.chunks().await,
            (b"data: 1\n\ndata: {\"error\":{}}\n\n".to_vec(), true)
        );
        until("counted", || {
            edge.stats.streams_ended.get(StreamOutcome::ErrorResponse) == 1
        })
        .await;
    });
}

#[test]
fn a_client_that_leaves_a_stream() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        http.head().await;
        drop(http);
        until("the call is gone", || call.gone.get()).await;
        assert_eq!(edge.stats.streams_ended.get(StreamOutcome::ClientLeft), 1);
        assert_eq!(edge.stats.streams.get(), 0);

        let mut client = http2(&edge).await;
        let reply = tokio::task::spawn_local(client.send_request(post(STREAM)));
        let call = edge.call().await;
        call.event(1, "1");
        let reply = soon(reply).await.unwrap().unwrap();
        drop(reply);
        until("the call is gone", || call.gone.get()).await;
        // The other streams of the connection go on.
        let reply = tokio::task::spawn_local(client.send_request(post(SEND)));
        edge.call().await.reply("{}");
        assert_eq!(soon(reply).await.unwrap().unwrap().status(), 200);
    });
}

/// Ruling R19: the slow client is cut, the others never wait.
#[test]
fn a_slow_client_is_cut() {
    run(async {
        let mut edge = Edge::keeping(settings(), IngressBounds::default(), narrow());
        let mut slow = edge.connect().await;
        slow.post("/a", STREAM).await;
        let call = edge.call().await;
        let event = Bytes::from(vec![b'1'; 100_000]);
        let mut pushed = 0;
        while call
            .sink
            .push(CallEvent::StreamEvent {
                event_id: pushed,
                object: event.clone(),
            })
            .is_ok()
        {
            pushed += 1;
            assert!(pushed < 10_000, "the buffer has no bound");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(call.sink.push(CallEvent::Accepted), Err(Overflow));
        until("the stream is cut", || {
            edge.stats.streams_ended.get(StreamOutcome::SlowClient) == 1
        })
        .await;
        assert!(call.gone.get());
        until("its connection is closed", || {
            edge.stats.connections.get() == 0
        })
        .await;
        slow.head().await;
        let (_, clean) = slow.chunks().await;
        assert!(!clean, "the cut shows");
    });
}

/// Ruling R19, HTTP/2: only the slow stream is cut, its neighbours stay.
#[test]
fn a_slow_stream_is_cut_and_its_connection_stays() {
    run(async {
        let mut edge = Edge::keeping(settings(), IngressBounds::default(), narrow());
        let mut client = http2(&edge).await;
        let slow = tokio::task::spawn_local(client.send_request(post(STREAM)));
        let call = edge.call().await;
        let neighbour = tokio::task::spawn_local(client.send_request(post(STREAM)));
        let other = edge.call().await;
        other.event(1, "1");
        let mut neighbour = soon(neighbour).await.unwrap().unwrap().into_body();
        let event = Bytes::from(vec![b'1'; 100_000]);
        let mut pushed = 0;
        while call
            .sink
            .push(CallEvent::StreamEvent {
                event_id: pushed,
                object: event.clone(),
            })
            .is_ok()
        {
            pushed += 1;
            assert!(pushed < 10_000, "the buffer has no bound");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        until("the stream is cut", || {
            edge.stats.streams_ended.get(StreamOutcome::SlowClient) == 1
        })
        .await;
        let slow = soon(slow).await.unwrap().unwrap();
        assert!(soon(slow.into_body().collect()).await.is_err());
        other.end(Some("2"));
        let mut body = Vec::new();
        while let Some(frame) = soon(neighbour.frame()).await {
            body.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        assert_eq!(without_ids(&body), b"data: 1\n\ndata: 2\n\n");
    });
}

#[test]
fn shutdown_lets_streams_end() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        http.head().await;
        edge.shutdown.send(true).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!edge.served.is_finished());
        call.event(2, "2");
        call.end(None);
        assert_eq!(
            http.chunks().await,
            (b"data: 1\n\ndata: 2\n\n".to_vec(), true)
        );
        soon(edge.served).await.unwrap();
    });
}

#[test]
fn a_dropped_ingress_cuts_its_streams() {
    run(async {
        let mut edge = Edge::new();
        let mut http = edge.connect().await;
        http.post("/a", STREAM).await;
        let call = edge.call().await;
        call.event(1, "1");
        http.head().await;
        assert!(http.chunk().await.is_some());
        edge.served.abort();
        assert_eq!(http.chunks().await, (Vec::new(), false));
        until("the call is gone", || call.gone.get()).await;
    });
}
