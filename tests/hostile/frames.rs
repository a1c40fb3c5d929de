//! Frames on an association that are not what is due: HELLO that is missing or
//! wrong, headers, tags, sequences, flags and types (rulings R5, R6, R12, R21, R24).

use crate::bench::{
    BRIDGE, Bench, CONTROL, NAME, REQUEST, SOON, assert_exchange, bad_headers, good, object,
    reheaded, request,
};
use crate::support::peer::{Peer, hello};
use npamp_relay::association::Hello;
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header};
use std::time::Duration;

/// HELLO that is missing, wrong, late or twice.
pub fn hellos(bench: &Bench) {
    let failed = |reason: &'static str, act: &dyn Fn(&mut Peer)| {
        bench.counts(reason, &[("associations_failed", reason, 1)], || {
            let mut peer = bench.peer();
            act(&mut peer);
            let types = peer.goodbye();
            assert!(types.contains(&FrameType::CLOSE), "{reason}: {types:?}");
        });
    };
    failed("hello_missing", &|peer| {
        peer.send(BRIDGE, REQUEST, &request(&good(b"c"), &object()));
    });
    failed("hello_missing", &|peer| {
        peer.send(CONTROL, FrameType(0x01ff), &[]);
    });
    failed("hello_timeout", &|_| {});
    failed("hello_malformed", &|peer| {
        peer.send(CONTROL, FrameType::HELLO, b"\xa1\x00");
    });
    failed("hello_malformed", &|peer| {
        peer.send(CONTROL, FrameType::HELLO, b"");
    });
    failed("hello_version", &|peer| {
        let old = Hello {
            version: 0,
            protocols: vec![2],
            params: Vec::new(),
        };
        peer.send(CONTROL, FrameType::HELLO, &old.encode(0xf00f));
    });
    failed("hello_repeated", &|peer| {
        peer.greet(NAME);
        peer.send(CONTROL, FrameType::HELLO, &hello(NAME));
    });
    for (what, stated) in [
        ("another server name", hello("other.relay.test")),
        (
            "no server name in HELLO",
            Hello {
                version: 1,
                protocols: vec![0x02, 0x0d, 0],
                params: Vec::new(),
            }
            .encode(0xf00f),
        ),
    ] {
        let expected = [
            ("unit_events", "server_name_mismatches", 1),
            ("bridge_dropped", "association_unknown", 1),
        ];
        bench.counts(what, &expected, || {
            let mut peer = bench.peer();
            // At once, so that the request comes before the answer to HELLO.
            let object = request(&good(b"c"), &object());
            let frames = [
                peer.seal(CONTROL, FrameType::HELLO, Flags::NONE, &stated),
                peer.seal(CONTROL, FrameType::HELLO_DONE, Flags::NONE, &[]),
                peer.seal(BRIDGE, REQUEST, Flags::NONE, &object),
            ];
            peer.link.send(&frames.concat()).expect("frames go out");
            let mut types = Vec::new();
            while let Some(got) = peer.read(SOON) {
                types.push(got.frame_type);
                if got.frame_type == FrameType::CLOSE {
                    peer.send(got.channel, FrameType::CLOSE_ACK, &[]);
                }
            }
            assert_eq!(types.last(), Some(&FrameType::CLOSE), "{what}: {types:?}");
        });
    }
}

/// Frames that end their association, and frames that it survives.
pub fn frames(bench: &Bench) {
    let failed = |reason| [("associations_failed", reason, 1)];
    let fatal = |what: &str, reason: &'static str, act: &dyn Fn(&mut Peer)| {
        bench.counts(what, &failed(reason), || {
            let mut peer = bench.greeted();
            act(&mut peer);
            let types = peer.goodbye();
            assert_eq!(
                types,
                [FrameType::ERROR, FrameType::CLOSE],
                "{what} ends the association"
            );
        });
    };
    for n in 0..5 {
        let what = ["CRC", "magic", "version", "reserved", "length"][n];
        fatal(what, "header", &|peer| {
            let frame = peer.seal(BRIDGE, REQUEST, Flags::NONE, b"x");
            let (_, bad) = bad_headers(&frame, 16 * 1024 * 1024).swap_remove(n);
            peer.link.send(&bad).expect("a frame goes out");
        });
    }
    fatal("frame type 0", "header", &|peer| {
        let frame = peer.seal(BRIDGE, REQUEST, Flags::NONE, b"x");
        let bad = reheaded(&frame, |head| head[5..7].fill(0));
        peer.link.send(&bad).expect("a frame goes out");
    });
    fatal("channel 0xffff", "header", &|peer| {
        let frame = peer.seal(BRIDGE, REQUEST, Flags::NONE, b"x");
        let bad = reheaded(&frame, |head| head[7..9].fill(0xff));
        peer.link.send(&bad).expect("a frame goes out");
    });
    fatal("a gap", "gap", &|peer| {
        let sequence = peer.next(BRIDGE) + 1;
        let frame = peer.seal_at(sequence, BRIDGE, REQUEST, Flags::NONE, b"x");
        peer.link.send(&frame).expect("a frame goes out");
    });
    fatal("a ratchet", "ratchet_unsupported", &|peer| {
        peer.send(CONTROL, FrameType(0x0104), &[]);
    });
    fatal("a wrong marker", "key_update_marker", &|peer| {
        peer.send(
            BRIDGE,
            FrameType::KEY_UPDATE,
            &[0, 0x17, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9],
        );
    });
    let expected = [
        ("associations_failed", "tag_failures", 1),
        ("frames_dropped", "tag_failure", 9),
    ];
    bench.counts("nine bad tags", &expected, || {
        let mut peer = bench.greeted();
        for _ in 0..9 {
            let mut frame = peer.seal_at(0, BRIDGE, REQUEST, Flags::NONE, b"x");
            *frame.last_mut().expect("a tag") ^= 1;
            peer.link.send(&frame).expect("a frame goes out");
        }
        assert!(peer.goodbye().contains(&FrameType::CLOSE));
    });

    // One association lives through all of these.
    let mut peer = bench.greeted();
    let mut dropped = |what: &str, reason: &'static str, act: &dyn Fn(&mut Peer)| {
        bench.counts(what, &[("frames_dropped", reason, 1)], || act(&mut peer));
        // Answers of the core are not what this is about.
        while peer.read(Duration::from_millis(30)).is_some() {}
        assert_exchange(&mut peer, what);
    };
    dropped("a bad tag", "tag_failure", &|peer| {
        let mut frame = peer.seal_at(peer.next(BRIDGE), BRIDGE, REQUEST, Flags::NONE, b"x");
        *frame.last_mut().expect("a tag") ^= 1;
        peer.link.send(&frame).expect("a frame goes out");
    });
    dropped("a forged CLOSE", "tag_failure", &|peer| {
        let mut frame = peer.seal_at(
            peer.next(CONTROL),
            CONTROL,
            FrameType::CLOSE,
            Flags::NONE,
            &[0, 0],
        );
        frame[Header::LEN] ^= 1;
        peer.link.send(&frame).expect("a frame goes out");
    });
    dropped("a CLOSE in the clear", "not_encrypted", &|peer| {
        let frame = Header {
            flags: Flags::NONE,
            frame_type: FrameType::CLOSE,
            channel: CONTROL,
            sequence: peer.next(CONTROL),
            payload_length: 0,
        };
        peer.link.send(&frame.encode()).expect("a frame goes out");
    });
    dropped("a changed header", "tag_failure", &|peer| {
        let frame = peer.seal_at(peer.next(BRIDGE), BRIDGE, REQUEST, Flags::NONE, b"x");
        let bad = reheaded(&frame, |head| head[6] = 1);
        peer.link.send(&bad).expect("a frame goes out");
    });
    dropped("a replay", "replay", &|peer| {
        let sequence = peer.next(BRIDGE) - 1;
        let payload = request(&good(b"again"), &object());
        let frame = peer.seal_at(sequence, BRIDGE, REQUEST, Flags::NONE, &payload);
        peer.link.send(&frame).expect("a frame goes out");
    });
    dropped("a foreign channel", "channel_unadvertised", &|peer| {
        peer.send(ChannelId(0x0042), REQUEST, b"x");
    });
    dropped("a GREASE channel", "channel_grease", &|peer| {
        peer.send(ChannelId(0xf0f0), REQUEST, b"x");
    });
    for flag in [4, 8] {
        dropped("FRAG or COMP", "flag_unsupported", &|peer| {
            let frame = peer.seal(BRIDGE, REQUEST, Flags(flag), b"x");
            peer.link.send(&frame).expect("a frame goes out");
        });
    }
    dropped("a late handshake frame", "handshake_frame", &|peer| {
        peer.send(CONTROL, FrameType::CLIENT_HELLO, b"x");
    });
    dropped("an unknown Control frame", "frame_type_unknown", &|peer| {
        peer.send(CONTROL, FrameType(0x01ff), b"x");
    });
    dropped("a PONG for nothing", "pong_unexpected", &|peer| {
        peer.send(CONTROL, FrameType::PONG, b"x");
    });
    dropped("a PING that is too long", "ping_oversize", &|peer| {
        peer.send(CONTROL, FrameType::PING, &[0; 2000]);
    });
}
