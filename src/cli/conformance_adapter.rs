//! The testee side of the public conformance runner: length-prefixed JSON
//! requests in, length-prefixed JSON answers out. It only translates; every
//! answer is the library's own. Operations that belong to channels this project
//! does not carry are answered as skipped.

use std::io::{self, Read, Write};

use serde_json::{Value, json};

use crate::bridge::envelope::{ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId};
use crate::bridge::payload::{self, Payload};
use crate::bridge::safety::{Effect, SafetyLabel};
use crate::crypto::hkdf;
use crate::crypto::{
    Direction, Hash, IV_LEN, KEY_LEN, Kem, MasterSecret, Profile, Suite, TAG_LEN, nonce,
};
use crate::limits::CONFORMANCE_REQUEST_OCTETS_MAX;
use crate::wire::tlv::REGISTERED_TAGS;
use crate::wire::{ChannelId, Flags, FrameType, Header, KnownTags, Tlv, crc32c};

/// Longest HKDF output that can be asked for: 255 blocks of the longest hash.
const HKDF_OUTPUT_MAX: usize = 255 * Hash::LEN_MAX;

/// The operations that are answered with more than "skipped".
pub const OPERATIONS: &[&str] = &[
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

/// Why there is no `out`.
enum Refusal {
    /// The input was rejected.
    Error(String),
    /// The operation, or a parameter of it, is not implemented.
    Skipped(String),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(error: T) -> Self {
        Self::Error(error.into())
    }
}

type Outcome = Result<Value, Refusal>;

/// Answers requests until `input` ends. A request that is no JSON or too long
/// gets an error answer and the next one is read; an end inside a request is an
/// error of this function.
pub fn run(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    loop {
        let mut prefix = [0; 4];
        match input.read(&mut prefix[..1])? {
            0 => return Ok(()),
            _ => input.read_exact(&mut prefix[1..])?,
        }
        let length = u32::from_le_bytes(prefix);
        let answer = if length as usize > CONFORMANCE_REQUEST_OCTETS_MAX {
            let skipped = io::copy(&mut input.by_ref().take(u64::from(length)), &mut io::sink())?;
            if skipped < u64::from(length) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            json!({"error": "request is too long"})
        } else {
            let mut request = Vec::new();
            input
                .by_ref()
                .take(u64::from(length))
                .read_to_end(&mut request)?;
            if request.len() < length as usize {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer(&request)
        };
        let answer = answer.to_string();
        output.write_all(&(answer.len() as u32).to_le_bytes())?;
        output.write_all(answer.as_bytes())?;
        output.flush()?;
    }
}

/// The answer to one request.
pub fn answer(request: &[u8]) -> Value {
    let request: Value = match serde_json::from_slice(request) {
        Ok(request) => request,
        Err(error) => return json!({"error": format!("request is not JSON: {error}")}),
    };
    let Some(operation) = request["op"].as_str() else {
        return json!({"error": "request has no op"});
    };
    match perform(operation, &Fields(&request["in"])) {
        Ok(out) => json!({"out": out}),
        Err(Refusal::Error(error)) => json!({"error": error}),
        Err(Refusal::Skipped(why)) => json!({"skipped": why}),
    }
}

fn perform(operation: &str, fields: &Fields<'_>) -> Outcome {
    match operation {
        "header.decode" => header_decode(fields),
        "header.encode" => header_encode(fields),
        "crc32c" => {
            Ok(json!({"crc32c": hex::encode(crc32c(&fields.octets("octets")?).to_be_bytes())}))
        }
        "tlv.decode" => tlv_decode(fields),
        "tlv.encode" => tlv_encode(fields),
        "aead.seal" => aead_seal(fields),
        "aead.open" => aead_open(fields),
        "hkdf.expand" => hkdf_expand(fields),
        "hkdf.expand_label" => hkdf_expand_label(fields),
        "profile.check" => profile_check(fields),
        "frame.seal" => frame_seal(fields),
        "frame.open" => frame_open(fields),
        "keys.derive_traffic" => derive_traffic(fields),
        "nonce.derive" => nonce_derive(fields),
        "bridge.envelope.decode" => envelope_decode(fields),
        "bridge.envelope.encode" => envelope_encode(fields),
        "bridge.correlate" => correlate(fields),
        other => Err(Refusal::Skipped(format!("op not implemented: {other}"))),
    }
}

/// The fields of a request's `in`.
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Result<&'a str, Refusal> {
        self.0[name]
            .as_str()
            .ok_or_else(|| format!("{name} is not a string").into())
    }

    /// Lower-case hexadecimal; an absent field is no octets.
    fn octets(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        if self.0[name].is_null() {
            return Ok(Vec::new());
        }
        hex::decode(self.text(name)?).map_err(|_| format!("{name} is not hexadecimal").into())
    }

    fn exactly<const N: usize>(&self, name: &str) -> Result<[u8; N], Refusal> {
        self.octets(name)?
            .try_into()
            .map_err(|_| format!("{name} is not {N} octets").into())
    }

    /// A number, or a decimal string where a JSON number would lose digits.
    fn number<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Refusal> {
        let value = &self.0[name];
        value
            .as_u64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()))
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("{name} is not a number in range").into())
    }

    fn suite(&self) -> Result<Suite, Refusal> {
        let name = self.text("suite")?;
        Suite::ALL
            .into_iter()
            .find(|suite| suite.name() == name)
            .ok_or_else(|| Refusal::Skipped(format!("suite not implemented: {name}")))
    }

    fn hash(&self) -> Result<Hash, Refusal> {
        match self.text("hash")? {
            "sha256" => Ok(Hash::Sha256),
            "sha384" => Ok(Hash::Sha384),
            other => Err(Refusal::Skipped(format!("hash not implemented: {other}"))),
        }
    }

    fn output(&self) -> Result<Vec<u8>, Refusal> {
        let length: usize = self.number("length")?;
        if length > HKDF_OUTPUT_MAX {
            return Err("length is more than HKDF gives".into());
        }
        Ok(vec![0; length])
    }

    fn profile(&self) -> Result<Profile, Refusal> {
        let name = self.text("profile")?;
        Profile::from_name(name).ok_or_else(|| format!("unknown profile {name}").into())
    }

    fn header(&self, payload_length: u32) -> Result<Header, Refusal> {
        let version: u8 = self.number("ver")?;
        let flags: u8 = self.number("flags")?;
        if version != 2 {
            return Err(format!("wire version {version} is not supported").into());
        }
        if flags > 0x0f {
            return Err("flags are four bits".into());
        }
        Ok(Header {
            flags: Flags(flags),
            frame_type: FrameType(self.number("frameType")?),
            channel: ChannelId(self.number("channel")?),
            sequence: self.number("seq")?,
            payload_length,
        })
    }
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::Error(error.to_string())
}

fn header_decode(fields: &Fields<'_>) -> Outcome {
    let frame = fields.octets("frame")?;
    let header = Header::decode(&frame).map_err(refused)?;
    if frame.len() != Header::LEN {
        return Err("header is not 36 octets".into());
    }
    Ok(json!({
        "magic": "NPAM",
        "ver": 2,
        "flags": header.flags.0,
        "frameType": header.frame_type.0,
        "channel": header.channel.0,
        "seq": header.sequence,
        "payloadLength": header.payload_length,
        "crc32c": hex::encode(&frame[Header::PREFIX_LEN..Header::PREFIX_LEN + 4]),
        "reservedZero": true,
    }))
}

fn header_encode(fields: &Fields<'_>) -> Outcome {
    let header = fields.header(fields.number("payloadLength")?)?;
    Ok(json!({"frame": hex::encode(header.encode())}))
}

fn tlv_decode(fields: &Fields<'_>) -> Outcome {
    let octets = fields.octets("tlv")?;
    let (tlv, rest) = Tlv::decode(&octets).map_err(refused)?;
    KnownTags(REGISTERED_TAGS).admit(&tlv).map_err(refused)?;
    if !rest.is_empty() {
        return Err("octets follow the TLV".into());
    }
    Ok(json!({"type": tlv.tag, "length": tlv.value.len(), "value": hex::encode(tlv.value)}))
}

fn tlv_encode(fields: &Fields<'_>) -> Outcome {
    let value = fields.octets("value")?;
    if value.len() > Tlv::VALUE_LEN_MAX {
        return Err("value is longer than a TLV holds".into());
    }
    let mut octets = Vec::new();
    Tlv {
        tag: fields.number("type")?,
        value: &value,
    }
    .encode(&mut octets);
    Ok(json!({"tlv": hex::encode(octets)}))
}

fn aead_seal(fields: &Fields<'_>) -> Outcome {
    let suite = fields.suite()?;
    let mut in_out = fields.octets("pt")?;
    suite
        .seal(
            &fields.octets("key")?,
            &fields.octets("nonce")?,
            &fields.octets("aad")?,
            &mut in_out,
        )
        .map_err(refused)?;
    Ok(json!({"sealed": hex::encode(in_out)}))
}

fn aead_open(fields: &Fields<'_>) -> Outcome {
    let suite = fields.suite()?;
    let mut in_out = fields.octets("sealed")?;
    suite
        .open(
            &fields.octets("key")?,
            &fields.octets("nonce")?,
            &fields.octets("aad")?,
            &mut in_out,
        )
        .map_err(refused)?;
    Ok(json!({"pt": hex::encode(in_out)}))
}

fn hkdf_expand(fields: &Fields<'_>) -> Outcome {
    let mut okm = fields.output()?;
    hkdf::expand(
        fields.hash()?,
        &fields.octets("prk")?,
        &fields.octets("info")?,
        &mut okm,
    )
    .map_err(refused)?;
    Ok(json!({"okm": hex::encode(okm)}))
}

fn hkdf_expand_label(fields: &Fields<'_>) -> Outcome {
    let mut out = fields.output()?;
    hkdf::expand_label(
        fields.hash()?,
        &fields.octets("secret")?,
        fields.text("label")?,
        &fields.octets("context")?,
        &mut out,
    )
    .map_err(refused)?;
    Ok(json!({"out": hex::encode(out)}))
}

fn profile_check(fields: &Fields<'_>) -> Outcome {
    let profile = fields.profile()?;
    let name = fields.text("kem")?;
    let kem = Kem::from_name(name).ok_or_else(|| format!("unknown KEM {name}"))?;
    if profile.accepts_kem(kem) {
        Ok(json!({"accepted": true}))
    } else {
        Err(format!("{} does not accept {name}", profile.name()).into())
    }
}

// The corpus defines `frame.seal` and `frame.open` with the length of the
// plaintext in the associated data. A frame on the wire states its whole
// payload, tag included (ruling R1, and so do the golden handshake frames), and
// that is what TrafficKey does. So these two are put together from the prefix,
// the nonce and the suite; they do not grade TrafficKey.

fn frame_seal(fields: &Fields<'_>) -> Outcome {
    let suite = fields.suite()?;
    let mut in_out = fields.octets("pt")?;
    let header = fields.header(in_out.len() as u32)?;
    let nonce = nonce(&fields.exactly::<IV_LEN>("iv")?, header.sequence);
    let key = fields.exactly::<KEY_LEN>("key")?;
    suite
        .seal(&key, &nonce, &header.prefix(), &mut in_out)
        .map_err(refused)?;
    Ok(json!({"sealed": hex::encode(in_out)}))
}

fn frame_open(fields: &Fields<'_>) -> Outcome {
    let suite = fields.suite()?;
    let mut in_out = fields.octets("sealed")?;
    let plaintext_length = in_out
        .len()
        .checked_sub(TAG_LEN)
        .ok_or("sealed is shorter than a tag")?;
    let header = fields.header(plaintext_length as u32)?;
    let nonce = nonce(&fields.exactly::<IV_LEN>("iv")?, header.sequence);
    let key = fields.exactly::<KEY_LEN>("key")?;
    suite
        .open(&key, &nonce, &header.prefix(), &mut in_out)
        .map_err(refused)?;
    Ok(json!({"pt": hex::encode(in_out)}))
}

fn derive_traffic(fields: &Fields<'_>) -> Outcome {
    let hash = fields.profile()?.parameters().hash;
    let master = MasterSecret::from_octets(hash, &fields.octets("master")?).map_err(refused)?;
    let direction = Direction::from_octet(fields.number("dir")?).ok_or("dir is 0 or 1")?;
    let suite = Suite::from_code_point(fields.number("suite")?).ok_or("unknown suite")?;
    let channel = ChannelId(fields.number("channel")?);
    let key_iv = master
        .traffic_secret(direction, fields.number("epoch")?, suite, channel)
        .key_iv();
    Ok(json!({"key": hex::encode(*key_iv.key), "iv": hex::encode(*key_iv.iv)}))
}

fn nonce_derive(fields: &Fields<'_>) -> Outcome {
    let nonce = nonce(&fields.exactly::<IV_LEN>("iv")?, fields.number("seq")?);
    Ok(json!({"nonce": hex::encode(nonce)}))
}

fn envelope_decode(fields: &Fields<'_>) -> Outcome {
    let octets = fields.octets("payload")?;
    let decoded = payload::decode(fields.number("frameType")?, &octets).map_err(refused)?;
    let envelope = &decoded.envelope;
    Ok(json!({
        "protocol_id": envelope.protocol_id.0,
        "message_kind": envelope.kind.octet(),
        "content_type": envelope.content_type.0,
        "flags": envelope.flags.0,
        "final": envelope.flags.is_final(),
        "corr": hex::encode(envelope.correlation_id),
        "method": envelope.method,
        "safety": decoded.safety.map(|label| json!({"effect": label.effect.0, "scope": label.scope})),
        "foreign": hex::encode(decoded.foreign),
    }))
}

fn envelope_encode(fields: &Fields<'_>) -> Outcome {
    let fields = Fields(&fields.0["fields"]);
    let correlation_id = fields.octets("corr")?;
    let foreign = fields.octets("foreign")?;
    let label = Fields(&fields.0["safety"]);
    let safety = if label.0.is_null() {
        None
    } else {
        Some(SafetyLabel {
            effect: Effect(label.number("effect")?),
            scope: label.text("scope")?,
        })
    };
    let encoded = payload::encode(
        fields.number("frameType")?,
        &Payload {
            envelope: Envelope {
                protocol_id: ProtocolId(fields.number("protocol_id")?),
                kind: MessageKind::from_octet(fields.number("message_kind")?)
                    .ok_or("unknown message kind")?,
                content_type: ContentType(fields.number("content_type")?),
                flags: EnvelopeFlags(fields.number("flags")?),
                correlation_id: &correlation_id,
                method: fields.text("method")?,
            },
            safety,
            stream_control: None,
            document_binding: None,
            foreign: &foreign,
        },
    )
    .map_err(refused)?;
    Ok(json!({"payload": hex::encode(encoded)}))
}

fn correlate(fields: &Fields<'_>) -> Outcome {
    let request = fields.octets("requestPayload")?;
    let reply = fields.octets("replyPayload")?;
    let request = payload::decode(fields.number("requestFrameType")?, &request).map_err(refused)?;
    let reply = payload::decode(fields.number("replyFrameType")?, &reply).map_err(refused)?;
    Ok(json!({"match": payload::correlates(&request, &reply)}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(requests: &[&[u8]]) -> Vec<Value> {
        let mut input = Vec::new();
        for request in requests {
            input.extend_from_slice(&(request.len() as u32).to_le_bytes());
            input.extend_from_slice(request);
        }
        let mut output = Vec::new();
        run(&input[..], &mut output).unwrap();
        let mut answers = Vec::new();
        let mut rest = &output[..];
        while let Some((prefix, after)) = rest.split_first_chunk::<4>() {
            let (answer, after) = after.split_at(u32::from_le_bytes(*prefix) as usize);
            answers.push(serde_json::from_slice(answer).unwrap());
            rest = after;
        }
        answers
    }

    #[test]
    fn bad_requests_get_answers_and_do_not_end_the_run() {
        let answers = exchange(&[
            b"not json",
            b"{}",
            b"[1]",
            br#"{"op":"crc32c"}"#,
            br#"{"op":"crc32c","in":{"octets":"zz"}}"#,
            br#"{"op":"memory.body.decode","in":{}}"#,
            br#"{"op":"aead.seal","in":{"suite":"AES-128-GCM"}}"#,
            br#"{"op":"hkdf.expand","in":{"hash":"sha256","prk":"00","length":4000000000}}"#,
            br#"{"op":"frame.seal","in":{"suite":"AES-256-GCM","ver":2,"flags":2,"frameType":1,"channel":0,"seq":0,"key":"00","iv":"00"}}"#,
            br#"{"op":"crc32c","in":{"octets":"313233343536373839"}}"#,
        ]);
        let kinds: Vec<&str> = answers
            .iter()
            .map(|answer| answer.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        assert_eq!(
            kinds,
            [
                "error", "error", "error", "out", "error", "skipped", "skipped", "error", "error",
                "out"
            ]
        );
        assert_eq!(answers[9]["out"]["crc32c"], "e3069283");
    }

    #[test]
    fn a_request_that_is_too_long_is_passed_over() {
        let long = CONFORMANCE_REQUEST_OCTETS_MAX + 1;
        let mut input = (long as u32).to_le_bytes().to_vec();
        input.resize(4 + long, b' ');
        input.extend_from_slice(&2u32.to_le_bytes());
        input.extend_from_slice(b"{}");
        let mut output = Vec::new();
        run(&input[..], &mut output).unwrap();
        let text = String::from_utf8_lossy(&output);
        assert!(
            text.contains("too long") && text.contains("no op"),
            "{text}"
        );
    }

    #[test]
    fn an_end_inside_a_request_is_an_error() {
        for input in [&[1u8, 0][..], &[5, 0, 0, 0, b'{'][..], &[0xff; 8][..]] {
            assert_eq!(
                run(input, io::sink()).unwrap_err().kind(),
                io::ErrorKind::UnexpectedEof
            );
        }
    }
}
