//! What every part needs: a pair of relays whose counters are watched, and
//! frames that are wrong in one place.

use crate::support::agent::Agent;
use crate::support::client::{Client, End};
use crate::support::peer::{Link, Peer, any_certificate};
use crate::support::{Metrics, Pair, PairOptions};
use npamp_relay::bridge::envelope;
use npamp_relay::bridge::payload::decode;
use npamp_relay::crypto::Identity;
use npamp_relay::wire::{ChannelId, FrameType, Header, Tlv, crc32c};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

pub const SOON: Duration = Duration::from_secs(3);
pub const HANDSHAKE: Duration = Duration::from_secs(1);
pub const NAME: &str = "good.relay.test";
pub const CONTROL: ChannelId = ChannelId::CONTROL;
pub const BRIDGE: ChannelId = ChannelId::BRIDGE;
pub const REQUEST: FrameType = FrameType(0x0100);

/// Every counter of something wrong, by metric.
pub const FAULTS: [&str; 9] = [
    "inbound_handshakes_failed",
    "handshake_refusals",
    "associations_failed",
    "frames_dropped",
    "bridge_malformed",
    "requests_refused",
    "bridge_dropped",
    "json_rpc_invalid",
    "http_refusals",
];

/// `(metric, reason, how often)`.
pub type Count = (&'static str, &'static str, u64);

pub struct Bench {
    pub pair: Pair,
    pub identity: Arc<Identity>,
    pub tls: Arc<ClientConfig>,
    _agent: Agent,
}

pub fn object() -> Vec<u8> {
    br#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#.to_vec()
}

pub const RESPONSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

pub fn faults(metrics: &Metrics) -> BTreeMap<String, f64> {
    let prefixes: Vec<String> = FAULTS
        .iter()
        .map(|name| format!("npamp_relay_{name}_total{{"))
        .chain(["npamp_relay_unit_events_total{event=\"server_name".to_owned()])
        .collect();
    metrics
        .0
        .iter()
        .filter(|(key, _)| prefixes.iter().any(|prefix| key.starts_with(prefix)))
        .map(|(key, value)| (key.clone(), *value))
        .collect()
}

/// What rose between two readings.
pub fn risen(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, u64> {
    #[allow(clippy::cast_sign_loss, reason = "counters only rise")]
    after
        .iter()
        .map(|(key, value)| (key, value - before.get(key).copied().unwrap_or(0.0)))
        .filter(|(_, rise)| *rise > 0.5)
        .map(|(key, rise)| (key.clone(), rise.round() as u64))
        .collect()
}

impl Bench {
    pub fn start(workers: usize) -> Self {
        let agent = Agent::start(|_, conversation| conversation.reply(200, RESPONSE));
        let pair = Pair::start(&PairOptions {
            agents: vec![("good".into(), agent.url("good"))],
            both: format!(
                "[engine]\nworkers = {workers}\n[limits]\nhandshake_s = {}\n",
                HANDSHAKE.as_secs()
            ),
            ..PairOptions::default()
        });
        let pem = fs::read_to_string(pair.dir.path().join("ingress.identity.pem"));
        let identity = Identity::from_pkcs8_pem(&pem.expect("an identity")).expect("an identity");
        Self {
            pair,
            identity: Arc::new(identity),
            tls: any_certificate(),
            _agent: agent,
        }
    }

    /// Runs `act`; the egress then counts exactly `expected`, and serves.
    pub fn counts(&self, what: &str, expected: &[Count], act: impl FnOnce()) {
        let (relay, before) = (&self.pair.egress, faults(&self.pair.egress.metrics()));
        act();
        let mut want = BTreeMap::new();
        for &(metric, reason, count) in expected {
            let label = if metric == "unit_events" {
                "event"
            } else {
                "reason"
            };
            want.insert(
                format!("npamp_relay_{metric}_total{{{label}=\"{reason}\"}}"),
                count,
            );
        }
        let end = Instant::now() + SOON;
        loop {
            let rise = risen(&before, &faults(&relay.metrics()));
            if rise == want {
                break;
            }
            assert!(
                Instant::now() < end,
                "{what}: counted {rise:?}, not {want:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
        self.assert_serves(what);
        let rise = risen(&before, &faults(&relay.metrics()));
        assert_eq!(rise, want, "{what}");
    }

    pub fn assert_serves(&self, what: &str) {
        let client = Client::post(self.pair.port, "good", &object()).expect("a connection");
        let outcome = client.reply(SOON);
        assert_eq!(
            (outcome.status, outcome.end, &outcome.body[..]),
            (200, End::Clean, RESPONSE),
            "a good call after {what}"
        );
    }

    pub fn link(&self) -> Link {
        Link::connect(self.pair.link_port, self.tls.clone(), NAME).expect("a link")
    }

    pub fn peer(&self) -> Peer {
        Peer::shake_hands(self.link(), &self.identity, |_| {})
            .unwrap_or_else(|_| panic!("the relay did not shake hands"))
    }

    pub fn greeted(&self) -> Peer {
        let mut peer = self.peer();
        peer.greet(NAME);
        peer
    }
}

/// The header's first 21 octets changed, with the CRC that belongs to them.
pub fn reheaded(frame: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = frame.to_vec();
    change(&mut frame[..Header::PREFIX_LEN]);
    let crc = crc32c(&frame[..Header::PREFIX_LEN]).to_be_bytes();
    frame[Header::PREFIX_LEN..Header::PREFIX_LEN + 4].copy_from_slice(&crc);
    frame
}

/// Frames whose header is wrong in each way, made from a good one.
pub fn bad_headers(frame: &[u8], length_max: u32) -> Vec<(&'static str, Vec<u8>)> {
    let mut crc = frame.to_vec();
    crc[12] ^= 1;
    let mut reserved = frame.to_vec();
    reserved[Header::LEN - 1] = 1;
    vec![
        ("CRC", crc),
        ("magic", reheaded(frame, |head| head[0] ^= 0x20)),
        (
            "version",
            reheaded(frame, |head| head[4] = head[4] & 0xf | 0x30),
        ),
        ("reserved octets", reserved),
        (
            "length",
            reheaded(frame, |head| {
                head[17..21].copy_from_slice(&(length_max + 1).to_be_bytes());
            }),
        ),
    ]
}

/// A whole exchange on the peer's association.
pub fn assert_exchange(peer: &mut Peer, what: &str) {
    let correlation = format!("good exchange after {what}");
    peer.send(
        BRIDGE,
        REQUEST,
        &request(&good(correlation.as_bytes()), &object()),
    );
    let got = peer
        .read(SOON)
        .unwrap_or_else(|| panic!("no answer after {what}"));
    assert_eq!(got.frame_type, FrameType(0x0101), "after {what}: {got:?}");
    let reply = decode(0x0101, &got.payload).expect("a bridge payload");
    assert_eq!(reply.envelope.correlation_id, correlation.as_bytes());
    assert_eq!(reply.foreign, RESPONSE);
}

/// The TLV of an envelope.
pub fn envelope_of(
    protocol: u8,
    kind: u8,
    content: u8,
    correlation: &[u8],
    method: &[u8],
) -> Vec<u8> {
    let mut value = vec![protocol, kind, content, 0, correlation.len() as u8];
    value.extend_from_slice(correlation);
    value.push(method.len() as u8);
    value.extend_from_slice(method);
    tlv(envelope::TAG, &value)
}

pub fn good(correlation: &[u8]) -> Vec<u8> {
    envelope_of(2, 1, 1, correlation, b"message/send")
}

pub fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Tlv { tag, value }.encode(&mut out);
    out
}

pub fn request(head: &[u8], object: &[u8]) -> Vec<u8> {
    [head, object].concat()
}
