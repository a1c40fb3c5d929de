//! The conformance corpus in process: every case of every operation that this
//! project claims, with its count.

use std::collections::BTreeMap;

use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::crypto::multibuffer::{Key, Message, Path};
use npamp_relay::crypto::{
    CryptoError, Direction, Hash, Kem, KeyIv, MasterSecret, Profile, Suite, TAG_LEN, TrafficKey,
    hkdf, nonce,
};
use npamp_relay::wire::tlv::REGISTERED_TAGS;
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header, HeaderError, KnownTags, Tlv, crc32c};
use serde_json::Value;

use crate::support::{json, octets};

/// The operations that this project claims.
pub const CLAIMED: [&str; 17] = [
    "header.decode",
    "header.encode",
    "crc32c",
    "tlv.decode",
    "tlv.encode",
    "aead.seal",
    "aead.open",
    "hkdf.expand",
    "hkdf.expand_label",
    "profile.check",
    "frame.seal",
    "frame.open",
    "keys.derive_traffic",
    "nonce.derive",
    "bridge.envelope.decode",
    "bridge.envelope.encode",
    "bridge.correlate",
];

/// One case of the corpus or of `gen/bridge.json`.
pub struct Case {
    pub operation: String,
    pub name: String,
    pub test: Value,
}

/// Every case there is, in file order.
pub fn cases() -> Option<Vec<Case>> {
    let corpus = json("conformance-corpus.json")?;
    let bridge = json("gen/bridge.json")?;
    let groups = corpus["testGroups"].as_array().unwrap().iter();
    let mut cases = Vec::new();
    for group in groups.chain(bridge.as_array().unwrap()) {
        for test in group["tests"].as_array().unwrap() {
            let operation = group["op"].as_str().unwrap().to_owned();
            let name = format!("{operation} {} {}", test["tcId"], test["requirement"]);
            cases.push(Case {
                operation,
                name,
                test: test.clone(),
            });
        }
    }
    Some(cases)
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(value.as_u64().unwrap()).ok().unwrap()
}

#[test]
fn every_claimed_case_passes() {
    let Some(cases) = cases() else {
        return;
    };
    let mut ran: BTreeMap<&str, usize> = BTreeMap::new();
    let mut not_claimed: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &cases {
        let operation = case.operation.as_str();
        if !CLAIMED.contains(&operation) {
            *not_claimed.entry(operation).or_default() += 1;
            continue;
        }
        let input = &case.test["in"];
        let expected = &case.test["expected"];
        let result = case.test["result"].as_str().unwrap();
        let valid = result == "valid" || result == "acceptable";
        check(operation, input, valid.then_some(expected), &case.name);
        *ran.entry(operation).or_default() += 1;
    }
    // What CONFORMANCE.md states; the bridge cases are in both files.
    let stated = [5, 1, 1, 2, 5, 39, 40, 163, 6, 4, 3, 6, 5, 5, 32, 12, 6];
    for (operation, stated) in CLAIMED.into_iter().zip(stated) {
        let count = ran.get(operation).copied().unwrap_or(0);
        println!("{operation}: {count} cases");
        assert_eq!(count, stated, "{operation}");
    }
    assert_eq!(not_claimed.values().sum::<usize>(), 158);
    println!("not claimed: {not_claimed:?}");
}

/// `expected` is `None` for a case that must be refused.
fn check(operation: &str, input: &Value, expected: Option<&Value>, name: &str) {
    match operation {
        "header.decode" => header_decode(input, expected, name),
        "header.encode" => {
            assert_eq!(input["ver"], 2, "{name}");
            let header = header(input, number(&input["payloadLength"]));
            assert_eq!(
                header.encode()[..],
                octets(&expected.unwrap()["frame"]),
                "{name}"
            );
        }
        "crc32c" => {
            let crc = crc32c(&octets(&input["octets"])).to_be_bytes();
            assert_eq!(crc[..], octets(&expected.unwrap()["crc32c"]), "{name}");
        }
        "tlv.decode" => {
            let input = octets(&input["tlv"]);
            let (tlv, rest) = Tlv::decode(&input).expect(name);
            let admitted = KnownTags(REGISTERED_TAGS).admit(&tlv);
            if let Some(expected) = expected {
                assert_eq!(admitted, Ok(true), "{name}");
                assert_eq!(tlv.tag, number::<u16>(&expected["type"]), "{name}");
                assert_eq!(
                    tlv.value.len(),
                    number::<usize>(&expected["length"]),
                    "{name}"
                );
                assert_eq!(tlv.value, octets(&expected["value"]), "{name}");
                assert!(rest.is_empty(), "{name}");
            } else {
                assert!(admitted.is_err(), "{name}");
            }
        }
        "tlv.encode" => {
            let mut out = Vec::new();
            let value = octets(&input["value"]);
            Tlv {
                tag: number(&input["type"]),
                value: &value,
            }
            .encode(&mut out);
            assert_eq!(out, octets(&expected.unwrap()["tlv"]), "{name}");
        }
        "aead.seal" | "aead.open" => aead(operation, input, expected, name),
        "hkdf.expand" => {
            let mut out = vec![0; number(&input["length"])];
            let result = hkdf::expand(
                hash(input),
                &octets(&input["prk"]),
                &octets(&input["info"]),
                &mut out,
            );
            same(result.map(|()| out), expected.map(|e| &e["okm"]), name);
        }
        "hkdf.expand_label" => {
            let mut out = vec![0; number(&input["length"])];
            let label = input["label"].as_str().unwrap();
            let (secret, context) = (octets(&input["secret"]), octets(&input["context"]));
            let result = hkdf::expand_label(hash(input), &secret, label, &context, &mut out);
            same(result.map(|()| out), expected.map(|e| &e["out"]), name);
        }
        "profile.check" => {
            let profile = Profile::from_name(input["profile"].as_str().unwrap()).unwrap();
            let kem = Kem::from_name(input["kem"].as_str().unwrap()).unwrap();
            assert_eq!(profile.accepts_kem(kem), expected.is_some(), "{name}");
        }
        "frame.seal" | "frame.open" => frame(operation, input, expected, name),
        "keys.derive_traffic" => {
            let expected = expected.unwrap();
            let profile = Profile::from_name(input["profile"].as_str().unwrap()).unwrap();
            let master =
                MasterSecret::from_octets(profile.parameters().hash, &octets(&input["master"]))
                    .unwrap();
            let key_iv = master
                .traffic_secret(
                    Direction::from_octet(number(&input["dir"])).unwrap(),
                    number(&input["epoch"]),
                    Suite::from_code_point(number(&input["suite"])).unwrap(),
                    ChannelId(number(&input["channel"])),
                )
                .key_iv();
            assert_eq!(key_iv.key[..], octets(&expected["key"]), "{name}");
            assert_eq!(key_iv.iv[..], octets(&expected["iv"]), "{name}");
        }
        "nonce.derive" => {
            let sequence = input["seq"].as_str().unwrap().parse().unwrap();
            let iv: Result<[u8; 12], _> = octets(&input["iv"]).try_into();
            same(
                iv.map(|iv| nonce(&iv, sequence).to_vec()),
                expected.map(|e| &e["nonce"]),
                name,
            );
        }
        "bridge.envelope.decode" => envelope_decode(input, expected, name),
        "bridge.envelope.encode" => envelope_encode(input, expected, name),
        "bridge.correlate" => {
            let request = octets(&input["requestPayload"]);
            let reply = octets(&input["replyPayload"]);
            let request =
                payload::decode(number(&input["requestFrameType"]), &request).expect(name);
            let reply = payload::decode(number(&input["replyFrameType"]), &reply).expect(name);
            assert_eq!(
                payload::correlates(&request, &reply),
                expected.unwrap()["match"],
                "{name}"
            );
        }
        other => panic!("{other} is claimed and not checked"),
    }
}

fn same<E: std::fmt::Debug>(got: Result<Vec<u8>, E>, expected: Option<&Value>, name: &str) {
    match expected {
        Some(expected) => assert_eq!(got.expect(name), octets(expected), "{name}"),
        None => assert!(got.is_err(), "{name}: accepted"),
    }
}

fn hash(input: &Value) -> Hash {
    match input["hash"].as_str().unwrap() {
        "sha256" => Hash::Sha256,
        "sha384" => Hash::Sha384,
        other => panic!("unknown hash {other}"),
    }
}

fn suite(input: &Value) -> Suite {
    let name = input["suite"].as_str().unwrap();
    Suite::ALL
        .into_iter()
        .find(|suite| suite.name() == name)
        .unwrap()
}

fn header(input: &Value, payload_length: u32) -> Header {
    Header {
        flags: Flags(number(&input["flags"])),
        frame_type: FrameType(number(&input["frameType"])),
        channel: ChannelId(number(&input["channel"])),
        sequence: number(&input["seq"]),
        payload_length,
    }
}

fn header_decode(input: &Value, expected: Option<&Value>, name: &str) {
    let frame = octets(&input["frame"]);
    let decoded = Header::decode(&frame);
    let Some(expected) = expected else {
        // The requirement says which check must catch it.
        let error = decoded.expect_err(name);
        let fits = match () {
            () if name.contains("crc32c") => error == HeaderError::Crc,
            () if name.contains("magic") => error == HeaderError::Magic,
            () if name.contains("version") => matches!(error, HeaderError::Version(_)),
            () if name.contains("reserved") => error == HeaderError::Reserved,
            () => true,
        };
        assert!(fits, "{name}: {error:?}");
        return;
    };
    let decoded = decoded.expect(name);
    assert_eq!(
        decoded,
        header(expected, number(&expected["payloadLength"])),
        "{name}"
    );
    assert_eq!(
        (&expected["ver"], &expected["magic"]),
        (&2.into(), &"NPAM".into())
    );
    assert_eq!(frame[21..25], octets(&expected["crc32c"]), "{name}");
}

fn aead(operation: &str, input: &Value, expected: Option<&Value>, name: &str) {
    let (key, nonce, aad) = (
        octets(&input["key"]),
        octets(&input["nonce"]),
        octets(&input["aad"]),
    );
    if operation == "aead.seal" {
        let mut in_out = octets(&input["pt"]);
        if suite(input) == Suite::Aes256Gcm {
            together(suite(input), &key, &nonce, &aad, &in_out);
        }
        let result = suite(input).seal(&key, &nonce, &aad, &mut in_out);
        same(
            result.map(|()| in_out),
            expected.map(|e| &e["sealed"]),
            name,
        );
    } else {
        let mut in_out = octets(&input["sealed"]);
        if suite(input) == Suite::Aes256Gcm {
            opened_together(&key, &nonce, &aad, &in_out, expected, name);
        }
        let result: Result<(), CryptoError> = suite(input).open(&key, &nonce, &aad, &mut in_out);
        same(result.map(|()| in_out), expected.map(|e| &e["pt"]), name);
    }
}

fn message<'a>(
    key: &'a Key,
    nonce: &[u8],
    head: &'a [u8; 21],
    payload: &'a mut [u8],
) -> Message<'a> {
    Message {
        nonce: nonce.try_into().unwrap(),
        head,
        payload,
        ..Message::place(key)
    }
}

/// What the cases of a single message seal, alone and among several frames worked on
/// together, on every path that the CPU has: as the suite seals it, with associated data of the
/// length of a header's prefix, and opened again but for a changed one.
fn together(suite: Suite, key: &[u8], nonce: &[u8], head: &[u8], plaintext: &[u8]) {
    let mut expected = plaintext.to_vec();
    let head: [u8; Header::PREFIX_LEN] = std::array::from_fn(|i| head.get(i).map_or(0, |o| *o));
    let sealed = suite.seal(key, nonce, &head, &mut expected);
    if sealed.is_err() {
        return;
    }
    for &path in Path::all() {
        let key = path.key(key.try_into().unwrap());
        // One alone, and groups that are full and not.
        for count in [1, 3, 7] {
            let mut payloads = vec![[plaintext, &[0; TAG_LEN]].concat(); count];
            let mut messages: Vec<_> = payloads
                .iter_mut()
                .map(|payload| message(&key, nonce, &head, payload))
                .collect();
            path.seal(&mut messages);
            assert!(payloads.iter().all(|payload| *payload == expected));
            let bad = count / 2;
            payloads[bad][plaintext.len()] ^= 1;
            let mut opened: Vec<_> = payloads
                .iter_mut()
                .map(|payload| message(&key, nonce, &head, payload))
                .collect();
            path.open(&mut opened);
            for (at, message) in opened.iter().enumerate() {
                assert_eq!(message.verified, at != bad);
                if at == bad {
                    assert!(message.payload.iter().all(|&octet| octet == 0));
                } else {
                    assert!(message.payload.starts_with(plaintext));
                }
            }
        }
    }
}

/// What the cases of a single message open or must refuse, alone and among several frames worked
/// on together, on every path that the CPU has: the case opens to what the corpus states or is
/// refused and zeroed, and sound frames about it open.
///
/// Where the associated data is not of the length of a header's prefix, another is taken for it
/// and the tag moved to it: by the difference between the two right tags, so that a wrong tag
/// stays as wrong as it was.
fn opened_together(
    key: &[u8],
    nonce: &[u8],
    aad: &[u8],
    sealed: &[u8],
    expected: Option<&Value>,
    name: &str,
) {
    let head: [u8; Header::PREFIX_LEN] = std::array::from_fn(|i| aad.get(i).map_or(0, |o| *o));
    let (ciphertext, tag) = sealed.split_at(sealed.len() - TAG_LEN);
    let seal = |aad: &[u8], text: &[u8]| {
        let mut in_out = text.to_vec();
        let sealed = Suite::Aes256Gcm.seal(key, nonce, aad, &mut in_out);
        sealed.map(|()| in_out).expect(name)
    };
    // The key stream undoes itself.
    let plaintext = &seal(aad, ciphertext)[..ciphertext.len()];
    let (right, sound) = (seal(aad, plaintext), seal(&head, plaintext));
    let mut case = sealed.to_vec();
    for (at, octet) in case.iter_mut().enumerate().skip(ciphertext.len()) {
        *octet ^= right[at] ^ sound[at];
    }
    if aad == head {
        assert_eq!(&case[ciphertext.len()..], tag, "{name}");
    }
    for &path in Path::all() {
        let key = path.key(key.try_into().unwrap());
        // One alone, and groups that are full and not.
        for count in [1, 3, 7] {
            let mut payloads = vec![sound.clone(); count];
            payloads[count / 2].clone_from(&case);
            let mut messages: Vec<_> = payloads
                .iter_mut()
                .map(|payload| message(&key, nonce, &head, payload))
                .collect();
            path.open(&mut messages);
            for (at, message) in messages.iter().enumerate() {
                let of_case = at == count / 2;
                assert_eq!(message.verified, !of_case || expected.is_some(), "{name}");
                let text = &message.payload[..ciphertext.len()];
                match expected {
                    Some(expected) if of_case => assert_eq!(text, octets(&expected["pt"])),
                    None if of_case => assert!(message.payload.iter().all(|&octet| octet == 0)),
                    _ => assert_eq!(text, plaintext, "{name}"),
                }
            }
        }
    }
}

/// The corpus puts the length of the plaintext into the associated data, where
/// a frame on the wire states its whole payload, tag included (ruling R1; the
/// golden handshake frames say so too). So the cases are put together from the
/// prefix, the nonce and the suite, and the difference itself is held: under
/// the wire's rule the ciphertext is the same and the tag another.
fn frame(operation: &str, input: &Value, expected: Option<&Value>, name: &str) {
    assert_eq!(input["ver"], 2, "{name}");
    let key: [u8; 32] = octets(&input["key"]).try_into().unwrap();
    let iv: [u8; 12] = octets(&input["iv"]).try_into().unwrap();
    let suite = suite(input);
    let nonce = nonce(&iv, number(&input["seq"]));
    if operation == "frame.seal" {
        let plaintext = octets(&input["pt"]);
        let corpus_header = header(input, plaintext.len() as u32);
        let mut sealed = plaintext.clone();
        suite
            .seal(&key, &nonce, &corpus_header.prefix(), &mut sealed)
            .expect(name);
        assert_eq!(sealed, octets(&expected.unwrap()["sealed"]), "{name}");
        if suite == Suite::Aes256Gcm {
            together(suite, &key, &nonce, &corpus_header.prefix(), &plaintext);
        }

        let traffic_key: TrafficKey = KeyIv::new(&key, &iv).into_traffic_key(suite);
        let wire_header = header(input, (plaintext.len() + TAG_LEN) as u32);
        let mut frame = vec![0; Header::LEN];
        frame.extend_from_slice(&plaintext);
        frame.resize(frame.len() + TAG_LEN, 0);
        traffic_key.seal(&wire_header, &mut frame);
        assert_eq!(Header::decode(&frame), Ok(wire_header), "{name}");
        let (ciphertext, tag) = frame[Header::LEN..].split_at(plaintext.len());
        assert_eq!(ciphertext, &sealed[..plaintext.len()], "{name}");
        assert_ne!(tag, &sealed[plaintext.len()..], "{name}");
    } else {
        let mut in_out = octets(&input["sealed"]);
        let header = header(input, (in_out.len() - TAG_LEN) as u32);
        if suite == Suite::Aes256Gcm {
            opened_together(&key, &nonce, &header.prefix(), &in_out, expected, name);
        }
        let result = suite.open(&key, &nonce, &header.prefix(), &mut in_out);
        same(result.map(|()| in_out), expected.map(|e| &e["pt"]), name);
    }
}

fn envelope_decode(input: &Value, expected: Option<&Value>, name: &str) {
    let octets_in = octets(&input["payload"]);
    let decoded = payload::decode(number(&input["frameType"]), &octets_in);
    let Some(expected) = expected else {
        assert!(decoded.is_err(), "{name}: accepted");
        return;
    };
    let decoded = decoded.expect(name);
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

fn envelope_encode(input: &Value, expected: Option<&Value>, name: &str) {
    let fields = &input["fields"];
    let (correlation_id, foreign) = (octets(&fields["corr"]), octets(&fields["foreign"]));
    let label = &fields["safety"];
    let encoded = payload::encode(
        number(&fields["frameType"]),
        &Payload {
            envelope: Envelope {
                protocol_id: ProtocolId(number(&fields["protocol_id"])),
                kind: MessageKind::from_octet(number(&fields["message_kind"])).expect(name),
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
    same(encoded, expected.map(|e| &e["payload"]), name);
}
