//! Connections that never become an association: wrong in TLS or in the N-PAMP
//! handshake, silent, or of a stranger (rulings R12; handshake binding).

use crate::bench::{BRIDGE, Bench, HANDSHAKE, NAME, SOON, bad_headers};
use crate::support::peer::{Link, Peer};
use npamp_relay::crypto::Identity;
use npamp_relay::wire::tlv::tag;
use npamp_relay::wire::{Flags, FrameType, Header, Tlv, Tlvs};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// TLS: what is no TLS, no ALPN, the wrong one, no server name, silence.
pub fn links(bench: &Bench) {
    let failed = |reason| [("inbound_handshakes_failed", reason, 1)];
    let port = bench.pair.link_port;
    for garbage in [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], &[0xff; 4096]] {
        bench.counts("garbage", &failed("link"), || {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            socket.write_all(garbage).expect("garbage goes out");
            socket.set_read_timeout(Some(SOON)).expect("timeout");
            let _ = socket.read_to_end(&mut Vec::new());
        });
    }
    for protocols in [vec![], vec![b"h2".to_vec(), b"n-pamp/1".to_vec()]] {
        let mut config = (*bench.tls).clone();
        config.alpn_protocols = protocols;
        bench.counts("another ALPN", &failed("alpn"), || {
            if let Ok(mut link) = Link::connect(port, Arc::new(config), NAME) {
                assert!(link.ends(SOON));
            }
        });
    }
    bench.counts("no server name", &failed("server_name"), || {
        let link = Link::connect(port, bench.tls.clone(), "127.0.0.1");
        assert!(link.expect("a link").ends(SOON));
    });
    bench.counts("a client that hangs up", &failed("ended"), || {
        drop(TcpStream::connect(("127.0.0.1", port)).expect("a connection"));
    });
    bench.counts("a peer that hangs up", &failed("ended"), || {
        let link = bench.link();
        link.finish();
    });
    let started = Instant::now();
    bench.counts(
        "silence",
        &[("inbound_handshakes_failed", "timed_out", 3)],
        || {
            let mut silent = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            let mut half = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            half.write_all(&[22, 3, 1, 2, 0, 1]).expect("half a record");
            let mut link = bench.link();
            for socket in [&mut silent, &mut half] {
                socket
                    .set_read_timeout(Some(HANDSHAKE + SOON))
                    .expect("timeout");
                let _ = socket.read_to_end(&mut Vec::new());
            }
            assert!(link.ends(SOON));
        },
    );
    let took = started.elapsed();
    assert!(
        took < HANDSHAKE + Duration::from_secs(2),
        "silence ended after {took:?}"
    );
}

/// Takes a flight apart and puts it together again, changed.
fn retlv(flight: &mut Vec<u8>, change: impl FnOnce(&mut Vec<(u16, Vec<u8>)>)) {
    let header = Header::decode(flight).expect("a flight of one frame");
    let mut tlvs: Vec<(u16, Vec<u8>)> = Tlvs::new(&flight[Header::LEN..])
        .map(|tlv| tlv.expect("a TLV"))
        .map(|tlv| (tlv.tag, tlv.value.to_vec()))
        .collect();
    change(&mut tlvs);
    let mut payload = Vec::new();
    for (tag, value) in &tlvs {
        Tlv { tag: *tag, value }.encode(&mut payload);
    }
    let payload_length = payload.len() as u32;
    *flight = Header {
        payload_length,
        ..header
    }
    .encode()
    .to_vec();
    flight.extend_from_slice(&payload);
}

type Tamper = Box<dyn FnOnce(&mut Vec<u8>)>;

fn head(change: impl FnOnce(&mut Header) + 'static) -> Tamper {
    Box::new(|flight| {
        let mut header = Header::decode(flight).expect("a flight of one frame");
        change(&mut header);
        flight[..Header::LEN].copy_from_slice(&header.encode());
    })
}

fn tlvs(change: impl FnOnce(&mut Vec<(u16, Vec<u8>)>) + 'static) -> Tamper {
    Box::new(|flight| retlv(flight, change))
}

/// N-PAMP handshakes that break a rule, each with its reason.
pub fn handshakes(bench: &Bench) {
    // Headers, before any handshake state is asked.
    let mut hello = Vec::new();
    let _ = Peer::shake_hands(bench.link(), &bench.identity, |flight| {
        if hello.is_empty() {
            hello.clone_from(flight);
        }
    });
    for (what, frame) in bad_headers(&hello, 64 * 1024) {
        bench.counts(what, &[("inbound_handshakes_failed", "frame", 1)], || {
            let mut link = bench.link();
            link.send(&frame).expect("a frame goes out");
            assert!(link.ends(SOON), "{what}");
        });
    }
    bench.counts(
        "half a frame",
        &[("inbound_handshakes_failed", "ended", 1)],
        || {
            let mut link = bench.link();
            link.send(&hello[..hello.len() / 2]).expect("half a frame");
            link.finish();
        },
    );

    let value = |n: usize, value: Vec<u8>| tlvs(move |all| all[n].1 = value);
    let cases: Vec<(&'static str, Tamper)> = vec![
        (
            "frame_type",
            head(|header| header.frame_type = FrameType::SERVER_HELLO),
        ),
        ("channel", head(|header| header.channel = BRIDGE)),
        ("sequence", head(|header| header.sequence = 1)),
        ("flags", head(|header| header.flags = Flags::ENC)),
        ("tlv", tlvs(|all| all.push((0x8abc, vec![1])))),
        (
            "tlv",
            Box::new(|flight: &mut Vec<u8>| {
                let last = flight.len() - 1;
                flight.truncate(last);
                let length = (last - Header::LEN) as u32;
                head(move |header| header.payload_length = length)(flight);
            }),
        ),
        ("tlv_order", tlvs(|all| all.swap(0, 1))),
        ("tlv_order", tlvs(|all| all.insert(1, all[0].clone()))),
        (
            "tlv_unexpected",
            tlvs(|all| all.push((tag::FINISHED, vec![0; 32]))),
        ),
        ("tlv_missing", tlvs(|all| drop(all.pop()))),
        ("tlv_value", value(1, vec![])),
        ("tlv_value", value(2, vec![1])),
        ("no_common_profile", value(0, vec![0x7f])),
        ("no_common_kem", value(1, vec![0x7f, 0xff])),
        ("no_common_signature", value(2, vec![0x7f, 0xff])),
        ("no_common_suite", value(3, vec![0x7f, 0xff])),
        ("kem", value(4, vec![0; 100])),
        // All coefficients of the ML-KEM key out of range.
        ("kem", tlvs(|all| all[4].1.fill(0xff))),
    ];
    for (n, (reason, tamper)) in cases.into_iter().enumerate() {
        let what = format!("CLIENT_HELLO with {reason} (case {n})");
        let expected = [
            ("inbound_handshakes_failed", "handshake", 1),
            ("handshake_refusals", reason, 1),
        ];
        bench.counts(&what, &expected, || {
            let mut tamper = Some(tamper);
            let failed = Peer::shake_hands(bench.link(), &bench.identity, |flight| {
                if let Some(tamper) = tamper.take() {
                    tamper(flight);
                }
            });
            assert!(failed.is_err(), "{what} is refused");
        });
    }

    // CLIENT_AUTH, the second flight.
    let auth: Vec<(&'static str, Tamper)> = vec![
        (
            "auth_seal",
            Box::new(|flight: &mut Vec<u8>| flight[Header::LEN] ^= 1),
        ),
        (
            "auth_seal",
            Box::new(|flight: &mut Vec<u8>| *flight.last_mut().expect("a tag") ^= 1),
        ),
        ("flags", head(|header| header.flags = Flags::NONE)),
        (
            "frame_type",
            head(|header| header.frame_type = FrameType::CLIENT_HELLO),
        ),
    ];
    for (reason, tamper) in auth {
        let what = format!("CLIENT_AUTH with {reason}");
        let expected = [
            ("inbound_handshakes_failed", "handshake", 1),
            ("handshake_refusals", reason, 1),
        ];
        bench.counts(&what, &expected, || {
            let (mut flights, mut tamper) = (0, Some(tamper));
            let peer = Peer::shake_hands(bench.link(), &bench.identity, |flight| {
                flights += 1;
                if flights == 2 {
                    tamper.take().expect("one CLIENT_AUTH")(flight);
                }
            });
            let mut link = peer.map_or_else(|link| link, |peer| peer.link);
            assert!(link.ends(SOON), "{what}");
        });
    }
    let expected = [
        ("inbound_handshakes_failed", "identity", 1),
        ("handshake_refusals", "identity_not_allowed", 1),
    ];
    bench.counts("a stranger", &expected, || {
        let stranger = Arc::new(Identity::from_seed(&[7; 32]));
        let peer = Peer::shake_hands(bench.link(), &stranger, |_| {});
        let mut link = peer.map_or_else(|link| link, |peer| peer.link);
        assert!(link.ends(SOON));
    });
}
