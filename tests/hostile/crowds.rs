//! What is no HTTP at the ingress, and crowds of connections at both listeners.

use crate::bench::{Bench, HANDSHAKE, RESPONSE, SOON, assert_exchange, faults, object, risen};
use crate::support::client::Client;
use crate::support::wait_for;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is no HTTP, at the ingress.
pub fn http(bench: &Bench) {
    let refusals = || {
        let all = faults(&bench.pair.ingress.metrics());
        all.into_iter()
            .filter(|(key, _)| key.contains("http_refusals"))
            .collect::<BTreeMap<_, _>>()
    };
    let counted = |what: &str, reason: &str, octets: &[u8], finish: bool| {
        let before = refusals();
        let mut socket = TcpStream::connect(("127.0.0.1", bench.pair.port)).expect("a connection");
        let _ = socket.write_all(octets);
        if finish {
            let _ = socket.shutdown(Shutdown::Write);
        }
        socket.set_read_timeout(Some(SOON)).expect("timeout");
        let _ = socket.read_to_end(&mut Vec::new());
        wait_for(&format!("{what} counts as {reason}"), SOON, || {
            let rise = risen(&before, &refusals());
            let key = format!("npamp_relay_http_refusals_total{{reason=\"{reason}\"}}");
            (rise == BTreeMap::from([(key, 1)])).then_some(())
        });
        bench.assert_serves(what);
    };
    counted(
        "TLS at a plain port",
        "head_invalid",
        &[22, 3, 1, 0, 5, 0, 0, 0, 0, 0, 13, 10],
        false,
    );
    counted("no HTTP", "head_invalid", b"HELO mail\r\n\r\n", false);
    let mut long = b"POST /agents/good HTTP/1.1\r\nhost: x\r\n".to_vec();
    long.extend_from_slice(format!("x: {}\r\n\r\n", "y".repeat(100 * 1024)).as_bytes());
    counted("a long head", "head_invalid", &long, false);
    counted(
        "half a body",
        "body_broken",
        b"POST /agents/good HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{\"json",
        true,
    );
    counted(
        "a bad chunk",
        "body_broken",
        b"POST /agents/good HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        true,
    );
    counted(
        "another path",
        "not_found",
        b"GET /etc/passwd HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        false,
    );
    counted(
        "another method",
        "method_not_allowed",
        b"PUT /agents/good HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        false,
    );
}

fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("VmRSS") * 1024
}

/// Two thousand connections that send garbage, at both listeners: a good client
/// never notices, and memory does not grow with them.
pub fn flood(bench: &Bench) {
    const FLOODERS: usize = 8;
    const EACH: usize = 250;
    bench.assert_serves("nothing yet");
    let processes = [&bench.pair.ingress, &bench.pair.egress].map(|relay| relay.process.id());
    let before = processes.map(resident);
    let started = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let good = {
        let (over, port) = (over.clone(), bench.pair.port);
        thread::spawn(move || {
            let (mut calls, mut slowest) = (0u32, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let client = Client::post(port, "good", &object()).expect("a connection");
                let outcome = client.reply(2 * SOON);
                assert_eq!((outcome.status, &outcome.body[..]), (200, RESPONSE));
                calls += 1;
                slowest = slowest.max(outcome.elapsed);
            }
            (calls, slowest)
        })
    };
    let flooders: Vec<_> = (0..FLOODERS)
        .map(|flooder| {
            let port = [bench.pair.link_port, bench.pair.port][flooder % 2];
            thread::spawn(move || {
                for n in 0..EACH {
                    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
                    let garbage: Vec<u8> = (0..2000).map(|at| (at * 7 + n) as u8).collect();
                    let _ = socket.write_all(&garbage);
                    // The relay has had enough of each, sooner or later.
                    socket.set_read_timeout(Some(SOON)).expect("timeout");
                    let mut rest = Vec::new();
                    let ended = socket.read_to_end(&mut rest);
                    let silent = ended.is_err_and(|error| {
                        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    });
                    assert!(!silent, "garbage is borne for {SOON:?}");
                }
            })
        })
        .collect();
    for flooder in flooders {
        flooder.join().expect("a flooder");
    }
    over.store(true, Ordering::Relaxed);
    let (calls, slowest) = good.join().expect("the good client");
    let took = started.elapsed();
    println!("flood: {took:?}");
    assert!(calls > 5, "{calls} good calls during the flood");
    assert!(slowest < SOON, "a good call took {slowest:?}");
    let after = processes.map(resident);
    println!("flood: {calls} good calls, the slowest {slowest:?}; resident {before:?} → {after:?}");
    for (before, after) in before.into_iter().zip(after) {
        assert!(
            after < 2 * before + 64 * 1024 * 1024,
            "resident memory went from {before} to {after}"
        );
    }
    for relay in [&bench.pair.ingress, &bench.pair.egress] {
        wait_for("the flood has drained", 2 * SOON, || {
            let metrics = relay.metrics();
            let open = metrics.sum("npamp_relay_handshakes_under_way", &[])
                + metrics.sum("npamp_relay_http_connections", &[]);
            (open == 0.0).then_some(())
        });
    }
    // A new association comes up as well.
    assert_exchange(&mut bench.greeted(), "the flood");
    bench.assert_serves("the flood");
}

/// More silent connections than handshakes may be under way: who is in stays
/// served, who comes waits no longer than the handshake time of those before.
pub fn silent_crowd(bench: &Bench) {
    const CROWD: usize = npamp_relay::limits::INBOUND_HANDSHAKES_MAX + 20;
    let expected = [("inbound_handshakes_failed", "timed_out", CROWD as u64)];
    bench.counts("a silent crowd", &expected, || {
        let crowd: Vec<TcpStream> = (0..CROWD)
            .map(|_| TcpStream::connect(("127.0.0.1", bench.pair.link_port)))
            .collect::<Result<_, _>>()
            .expect("connections");
        bench.assert_serves("a silent crowd came");
        assert_exchange(&mut bench.greeted(), "a silent crowd came");
        for mut socket in crowd {
            socket
                .set_read_timeout(Some(HANDSHAKE + SOON))
                .expect("timeout");
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
}
