//! Bridge frames that break a rule, on one association that lives through them
//! all (rulings R8, R9, R10, R16, R26).

use crate::bench::{
    BRIDGE, Bench, Count, REQUEST, RESPONSE, SOON, assert_exchange, envelope_of, good, object,
    request, tlv,
};
use npamp_relay::bridge::envelope::{self, MessageKind};
use npamp_relay::bridge::payload::decode;
use npamp_relay::bridge::safety;
use npamp_relay::bridge::stream_control::{self, StreamControl};
use npamp_relay::bridge::transport_error::{TransportCode, TransportErrorBody};
use npamp_relay::wire::{ChannelId, FrameType, Tlv};

const DISCOVERY: ChannelId = ChannelId::DISCOVERY;

/// What answers a bad bridge frame.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// BRIDGE_ERROR with this code and the frame's correlation_id.
    Transport(TransportCode),
    /// A core ERROR on the channel.
    Core,
    Nothing,
}

/// Name, frame type, payload, what is counted, what answers.
type Case = (&'static str, u16, Vec<u8>, Vec<Count>, Answer);

/// Bridge frames that break a rule: one association lives through them all.
pub fn envelopes(bench: &Bench) {
    const C: &[u8] = b"corr";
    let malformed = |kind: &'static str| {
        vec![
            ("bridge_malformed", kind, 1),
            ("requests_refused", "envelope_malformed", 1),
        ]
    };
    let nameless = |kind: &'static str| {
        vec![
            ("bridge_malformed", kind, 1),
            ("bridge_dropped", "malformed", 1),
        ]
    };
    let refused = |reason: &'static str| vec![("requests_refused", reason, 1)];
    let bad = Answer::Transport(TransportCode::ENVELOPE_MALFORMED);
    let unsupported = Answer::Transport(TransportCode::PROTOCOL_UNSUPPORTED);
    let with = |extra: &[Vec<u8>]| request(&[good(C), extra.concat()].concat(), &object());
    let label = tlv(safety::TAG, &[2, 0]);
    let control = |control: StreamControl| tlv(stream_control::TAG, &control.encode());
    let changed = |at: usize, octet: u8| {
        let mut value = StreamControl::data(1).encode();
        value[at] = octet;
        tlv(stream_control::TAG, &value)
    };
    let cut = |octets: usize| {
        let whole = good(C);
        whole[..whole.len() - octets].to_vec()
    };
    // The envelope's TLV, a value longer or shorter than its fields.
    let revalued = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut value = good(C)[Tlv::HEAD_LEN..].to_vec();
        change(&mut value);
        request(&tlv(envelope::TAG, &value), &object())
    };
    let of_protocol = |id| request(&envelope_of(id, 1, 1, C, b"message/send"), &object());
    let cases: Vec<Case> = vec![
        (
            "no envelope",
            0x100,
            object(),
            nameless("envelope_absent"),
            Answer::Core,
        ),
        (
            "an empty payload",
            0x100,
            vec![],
            nameless("envelope_absent"),
            Answer::Core,
        ),
        (
            "a cut TLV",
            0x100,
            cut(3),
            malformed("envelope_truncated"),
            bad,
        ),
        (
            "a cut correlation_id",
            0x100,
            cut(15),
            nameless("envelope_truncated"),
            Answer::Core,
        ),
        (
            "a short value",
            0x100,
            revalued(&|value| value.truncate(value.len() - 1)),
            malformed("envelope_truncated"),
            bad,
        ),
        (
            "a long value",
            0x100,
            revalued(&|value| value.push(0)),
            malformed("envelope_trailing"),
            bad,
        ),
        (
            "two envelopes",
            0x100,
            with(&[good(C)]),
            malformed("envelope_duplicate"),
            bad,
        ),
        (
            "another kind",
            0x100,
            request(&envelope_of(2, 2, 1, C, b"message/send"), &object()),
            malformed("message_kind_contradicts"),
            bad,
        ),
        (
            "protocol 0",
            0x100,
            of_protocol(0),
            malformed("protocol_id_zero"),
            bad,
        ),
        (
            "protocol 5",
            0x100,
            of_protocol(5),
            refused("protocol_not_carried"),
            unsupported,
        ),
        (
            "protocol 0x10",
            0x100,
            of_protocol(0x10),
            refused("protocol_not_carried"),
            unsupported,
        ),
        (
            "protocol 0x80",
            0x100,
            of_protocol(0x80),
            refused("protocol_not_carried"),
            unsupported,
        ),
        (
            "a method of no text",
            0x100,
            request(&envelope_of(2, 1, 1, C, b"\xff\xfe"), &object()),
            malformed("method_not_utf8"),
            bad,
        ),
        (
            "no correlation_id",
            0x100,
            request(&envelope_of(2, 1, 1, b"", b"message/send"), &object()),
            nameless("correlation_empty"),
            Answer::Core,
        ),
        (
            "a notification with one",
            0x103,
            request(&envelope_of(2, 3, 1, C, b"a/b"), &object()),
            vec![
                ("bridge_malformed", "correlation_on_notify", 1),
                ("bridge_dropped", "notify_malformed", 1),
            ],
            Answer::Nothing,
        ),
        (
            "a short label",
            0x100,
            with(&[tlv(safety::TAG, &[2])]),
            malformed("safety_length"),
            bad,
        ),
        (
            "a scope of no text",
            0x100,
            with(&[tlv(safety::TAG, &[2, 1, 0xff])]),
            malformed("safety_scope_not_utf8"),
            bad,
        ),
        (
            "two labels",
            0x100,
            with(&[label.clone(), label]),
            malformed("safety_duplicate"),
            bad,
        ),
        (
            "a short StreamControl",
            0x100,
            with(&[tlv(stream_control::TAG, &[1, 0, 0])]),
            malformed("stream_control_length"),
            bad,
        ),
        (
            "a StreamControl version",
            0x100,
            with(&[changed(0, 9)]),
            malformed("stream_control_version"),
            bad,
        ),
        (
            "a StreamControl value",
            0x100,
            with(&[changed(1, 9)]),
            malformed("stream_control_undefined"),
            bad,
        ),
        (
            "two StreamControls",
            0x100,
            with(&[changed(2, 0), changed(2, 0)]),
            malformed("stream_control_duplicate"),
            bad,
        ),
        (
            "an unknown critical TLV",
            0x100,
            with(&[tlv(0x8abc, &[1])]),
            malformed("unknown_critical_tlv"),
            bad,
        ),
        (
            "a cut DocumentBinding",
            0x100,
            with(&[tlv(0xd0, &[1])]),
            vec![
                ("bridge_malformed", "binding_length", 1),
                ("requests_refused", "binding_malformed", 1),
            ],
            Answer::Transport(TransportCode::BINDING_MALFORMED),
        ),
        (
            "another content type",
            0x100,
            request(&envelope_of(2, 1, 2, C, b"message/send"), &object()),
            refused("content_type"),
            bad,
        ),
        (
            "no JSON",
            0x100,
            request(&good(C), b"{"),
            vec![
                ("requests_refused", "not_json_rpc", 1),
                ("json_rpc_invalid", "", 1),
            ],
            bad,
        ),
        (
            "another method",
            0x100,
            request(&envelope_of(2, 1, 1, C, b"tasks/get"), &object()),
            refused("method_differs"),
            bad,
        ),
        (
            "a resume of nothing",
            0x100,
            with(&[control(StreamControl::resume(3))]),
            refused("not_resumable"),
            Answer::Transport(TransportCode::NOT_RESUMABLE),
        ),
        (
            "a cancel in a request",
            0x100,
            with(&[control(StreamControl::cancel(3))]),
            refused("control_misplaced"),
            bad,
        ),
        (
            "a cancel of nothing",
            0x105,
            request(
                &[
                    envelope_of(2, 6, 1, C, b""),
                    control(StreamControl::cancel(3)),
                ]
                .concat(),
                b"",
            ),
            vec![("bridge_dropped", "moot_cancel", 1)],
            Answer::Nothing,
        ),
        (
            "a reply to nobody",
            0x101,
            request(&envelope_of(2, 2, 1, C, b""), RESPONSE),
            vec![("bridge_dropped", "late_reply", 1)],
            Answer::Nothing,
        ),
        (
            "an event for nobody",
            0x104,
            request(
                &[envelope_of(2, 5, 1, C, b""), changed(2, 0)].concat(),
                RESPONSE,
            ),
            vec![("bridge_dropped", "late_reply", 1)],
            Answer::Nothing,
        ),
        (
            "a malformed reply",
            0x101,
            RESPONSE.to_vec(),
            nameless("envelope_absent"),
            Answer::Core,
        ),
        (
            "a malformed error",
            0x102,
            RESPONSE.to_vec(),
            nameless("envelope_absent"),
            Answer::Nothing,
        ),
        (
            "an unknown bridge type",
            0x106,
            with(&[]),
            vec![("bridge_dropped", "not_a_bridge_frame", 1)],
            Answer::Core,
        ),
    ];
    let mut peer = bench.greeted();
    for (what, frame_type, payload, mut expected, answer) in cases {
        if let Some(count) = expected.iter_mut().find(|count| count.1.is_empty()) {
            // Which way a text is no JSON is the scanner's to say.
            *count = ("json_rpc_invalid", scan_reason(), 1);
        }
        bench.counts(what, &expected, || {
            peer.send(BRIDGE, FrameType(frame_type), &payload);
        });
        match answer {
            Answer::Transport(code) => {
                let got = peer
                    .read(SOON)
                    .unwrap_or_else(|| panic!("{what}: no answer"));
                let kind = MessageKind::from_frame_type(got.frame_type.0);
                assert_eq!(kind, Some(MessageKind::Error), "{what}: {got:?}");
                let reply = decode(0x102, &got.payload).expect("a bridge payload");
                assert_eq!(reply.envelope.correlation_id, C, "{what}");
                let body = TransportErrorBody::decode(reply.foreign).expect("a transport error");
                assert_eq!(body.code, code, "{what}: {}", body.message);
            }
            Answer::Core => {
                let got = peer
                    .read(SOON)
                    .unwrap_or_else(|| panic!("{what}: no answer"));
                assert_eq!(
                    (got.channel, got.frame_type),
                    (BRIDGE, FrameType::ERROR),
                    "{what}"
                );
            }
            Answer::Nothing => {}
        }
        assert_exchange(&mut peer, what);
    }
    bench.counts(
        "the Discovery channel",
        &[("bridge_dropped", "discovery", 1)],
        || peer.send(DISCOVERY, FrameType(0x100), b"{}"),
    );
    bench.counts(
        "a request on the Discovery channel",
        &refused("discovery_channel"),
        || peer.send(DISCOVERY, REQUEST, &request(&good(C), &object())),
    );
    let got = peer.read(SOON).expect("an answer");
    assert_eq!((got.channel, got.frame_type.0), (DISCOVERY, 0x102));
    assert_exchange(&mut peer, "Discovery");
}

fn scan_reason() -> &'static str {
    use npamp_relay::stats::Reason;
    let error = npamp_relay::a2a::json_rpc::scan_request(b"{").expect_err("no JSON");
    error.label()
}
