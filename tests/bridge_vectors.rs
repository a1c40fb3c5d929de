//! The public bridge vectors (`bridge.envelope.decode`, `bridge.envelope.encode`,
//! `bridge.correlate`) against the library. Never committed with the project:
//! found at `NPAMP_VECTORS`, else beside the repository; skipped when absent.

use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::error::BridgeError;
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use serde_json::Value;
use std::path::PathBuf;

fn groups(operation: &str) -> Vec<Value> {
    let root = std::env::var_os("NPAMP_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/npamp"),
        PathBuf::from,
    );
    let mut tests = Vec::new();
    for (file, pointer) in [
        ("conformance-corpus.json", "/testGroups"),
        ("gen/bridge.json", ""),
    ] {
        let path = root.join(file);
        let Ok(text) = std::fs::read_to_string(&path) else {
            println!("skipped: no vectors at {}", path.display());
            continue;
        };
        let json: Value = serde_json::from_str(&text).unwrap();
        for group in json.pointer(pointer).unwrap().as_array().unwrap() {
            if group["op"] == operation {
                tests.extend(group["tests"].as_array().unwrap().iter().cloned());
            }
        }
    }
    tests
}

fn octets(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(value.as_u64().unwrap()).ok().unwrap()
}

/// NPAMP-BRIDGE §3, §4, §5, §7.
#[test]
fn envelope_decode() {
    for test in groups("bridge.envelope.decode") {
        let name = format!("{} {}", test["tcId"], test["requirement"]);
        let frame_type: u16 = number(&test["in"]["frameType"]);
        let input = octets(&test["in"]["payload"]);
        let result = payload::decode(frame_type, &input);
        if test["result"] == "invalid" {
            let error = result.expect_err(&name);
            let flags = test["flags"].as_array().unwrap();
            let flag = flags.last().unwrap().as_str().unwrap();
            let fits = match flag {
                "EnvelopeAbsent" => error == BridgeError::EnvelopeAbsent,
                "EnvelopeTruncated" => matches!(
                    error,
                    BridgeError::EnvelopeTruncated | BridgeError::EnvelopeTrailing
                ),
                "MessageKindMismatch" => error == BridgeError::MessageKindContradicts,
                "CorrelationRule" => matches!(
                    error,
                    BridgeError::CorrelationEmpty | BridgeError::CorrelationOnNotify
                ),
                "SafetyLabelMalformed" => error == BridgeError::SafetyLength,
                "NotABridgeFrame" => error == BridgeError::NotABridgeFrame,
                _ => false,
            };
            assert!(fits, "{name}: {flag} gave {error:?}");
            continue;
        }
        let decoded = result.expect(&name);
        let expected = &test["expected"];
        let envelope = decoded.envelope;
        assert_eq!(
            envelope.protocol_id.0,
            number::<u8>(&expected["protocol_id"]),
            "{name}"
        );
        assert_eq!(
            envelope.kind.octet(),
            number::<u8>(&expected["message_kind"]),
            "{name}"
        );
        assert_eq!(
            envelope.content_type.0,
            number::<u8>(&expected["content_type"]),
            "{name}"
        );
        assert_eq!(envelope.flags.0, number::<u8>(&expected["flags"]), "{name}");
        assert_eq!(envelope.flags.is_final(), expected["final"], "{name}");
        assert_eq!(envelope.correlation_id, octets(&expected["corr"]), "{name}");
        assert_eq!(envelope.method, expected["method"], "{name}");
        assert_eq!(decoded.foreign, octets(&expected["foreign"]), "{name}");
        match decoded.safety {
            None => assert!(expected["safety"].is_null(), "{name}"),
            Some(label) => {
                assert_eq!(
                    label.effect.0,
                    number::<u8>(&expected["safety"]["effect"]),
                    "{name}"
                );
                assert_eq!(label.scope, expected["safety"]["scope"], "{name}");
            }
        }
    }
}

/// NPAMP-BRIDGE §3, §4: the canonical octets.
#[test]
fn envelope_encode() {
    for test in groups("bridge.envelope.encode") {
        let name = format!("{} {}", test["tcId"], test["requirement"]);
        let fields = &test["in"]["fields"];
        let frame_type: u16 = number(&fields["frameType"]);
        let correlation_id = octets(&fields["corr"]);
        let foreign = octets(&fields["foreign"]);
        let label = &fields["safety"];
        let encoded = payload::encode(
            frame_type,
            &Payload {
                envelope: Envelope {
                    protocol_id: ProtocolId(number(&fields["protocol_id"])),
                    kind: MessageKind::from_octet(number(&fields["message_kind"])).unwrap(),
                    content_type: ContentType(number(&fields["content_type"])),
                    flags: EnvelopeFlags(number(&fields["flags"])),
                    correlation_id: &correlation_id,
                    method: fields["method"].as_str().unwrap(),
                },
                safety: label.is_object().then(|| SafetyLabel {
                    effect: Effect(number(&label["effect"])),
                    scope: label["scope"].as_str().unwrap(),
                }),
                stream_control: None,
                document_binding: None,
                foreign: &foreign,
            },
        );
        let expected = octets(&test["expected"]["payload"]);
        assert_eq!(encoded.expect(&name), expected, "{name}");
    }
}

/// NPAMP-BRIDGE §5.
#[test]
fn correlate() {
    for test in groups("bridge.correlate") {
        let input = &test["in"];
        let ask = octets(&input["requestPayload"]);
        let answer = octets(&input["replyPayload"]);
        let ask = payload::decode(number(&input["requestFrameType"]), &ask).unwrap();
        let answer = payload::decode(number(&input["replyFrameType"]), &answer).unwrap();
        assert_eq!(
            payload::correlates(&ask, &answer),
            test["expected"]["match"],
            "{}",
            test["requirement"]
        );
    }
}
