//! NPAMP-DISC §11 and what it rests on, section by section: what an egress advertises and answers, what an
//! ingress makes of it. Expected payloads are built here from the specification.

use crate::harness::*;
use bytes::Bytes;
use npamp_relay::a2a::budget::OctetBudget;
use npamp_relay::a2a::config::UnknownMethods;
use npamp_relay::a2a::port::{
    AgentEvent, AssociationInfo, CallEvent, CallId, CallRequest, ExchangeId, Input, Side,
};
use npamp_relay::a2a::stats::{DiscoveryEvent, Dropped, Refusal};
use npamp_relay::a2a::streams::{MapperId, StreamRegistry};
use npamp_relay::a2a::{Mapper, MapperConfig};
use npamp_relay::bridge::discovery::error::ErrorReason;
use npamp_relay::bridge::discovery::{ErrorCode, Filter, FrameError, RecordKind};
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::safety::EffectSet;
use npamp_relay::bridge::transport_error::TransportCode;
use npamp_relay::limits;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const QUERY: u16 = 0x0100;
const RESULT: u16 = 0x0101;
const DISCO_ERROR: u16 = 0x0102;
const ANNOUNCE: u16 = 0x0103;
const SUBSCRIBE: u16 = 0x0104;
const UPDATE: u16 = 0x0105;
const UNSUBSCRIBE: u16 = 0x0106;

type Fields = Vec<(u64, Vec<u8>)>;

// The CBOR of RFC 8949 §4.2, as far as it is needed.

fn head(major: u8, n: u64) -> Vec<u8> {
    let major = major << 5;
    match n {
        0..=23 => vec![major | n as u8],
        24..=0xff => vec![major | 0x18, n as u8],
        0x100..=0xffff => [&[major | 0x19][..], &(n as u16).to_be_bytes()].concat(),
        _ => [&[major | 0x1a][..], &(n as u32).to_be_bytes()].concat(),
    }
}

fn uint(n: u64) -> Vec<u8> {
    head(0, n)
}

fn octets(octets: &[u8]) -> Vec<u8> {
    [head(2, octets.len() as u64), octets.to_vec()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [head(3, text.len() as u64), text.as_bytes().to_vec()].concat()
}

fn array(items: &[Vec<u8>]) -> Vec<u8> {
    [head(4, items.len() as u64), items.concat()].concat()
}

/// Keys must be given in order.
fn map(entries: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut out = head(5, entries.len() as u64);
    for (key, value) in entries {
        out.extend(uint(*key));
        out.extend(value);
    }
    out
}

fn truth(value: bool) -> Vec<u8> {
    vec![0xf4 | u8::from(value)]
}

/// The payload of a discovery frame: §4.2's fields, then its own.
fn disco(kind: u16, corr: &[u8], fields: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut entries = vec![(0, uint(u64::from(kind)))];
    if !corr.is_empty() {
        entries.push((1, octets(corr)));
    }
    entries.extend_from_slice(fields);
    map(&entries)
}

fn record(id: &str, kind: u64, revision: u64, label: Option<&str>, body: Vec<u8>) -> Vec<u8> {
    let mut entries = vec![
        (0, octets(id.as_bytes())),
        (1, uint(kind)),
        (2, uint(revision)),
    ];
    entries.extend(label.map(|label| (3, text(label))));
    entries.push((4, body));
    map(&entries)
}

fn agent(revision: u64) -> Vec<u8> {
    let body = map(&[
        (0, octets(b"literature.relay.example")),
        (1, array(&[uint(2)])),
    ]);
    record("agent", 4, revision, None, body)
}

fn class(class: u64, name: &str) -> Vec<u8> {
    let body = map(&[(0, uint(class)), (1, array(&[uint(1)]))]);
    let label = format!("{name}, for A2A");
    record(&format!("class-{class}"), 2, 1, Some(&label), body)
}

fn protocol(channels: &[u64]) -> Vec<u8> {
    let channels: Vec<_> = channels.iter().map(|&channel| uint(channel)).collect();
    let body = map(&[
        (0, uint(2)),
        (1, uint(1)),
        (2, array(&channels)),
        (3, array(&[uint(1)])),
    ]);
    record("protocol-2", 1, 1, Some("A2A"), body)
}

/// Everything an egress advertises, in the order of record_ids.
fn whole_set() -> Vec<Vec<u8>> {
    vec![
        agent(1),
        class(1, "JSONRPC"),
        class(4, "STREAM"),
        class(5, "DOC"),
        protocol(&[0x0d, 0x10]),
    ]
}

fn result(corr: &[u8], records: &[Vec<u8>]) -> Vec<u8> {
    disco(RESULT, corr, &[(2, array(records)), (3, truth(true))])
}

fn discovering(side: Side) -> AssociationInfo {
    AssociationInfo {
        discovery: true,
        ..info(side)
    }
}

/// An egress whose announcement was looked at already.
fn egress_with(config: MapperConfig) -> End {
    let mut egress = End::with(config, discovering(Side::Responder));
    assert_eq!(egress.one_frame().kind, ANNOUNCE);
    egress
}

fn egress() -> End {
    egress_with(MapperConfig::default())
}

/// An egress with two records to a page.
fn paging() -> MapperConfig {
    let mut config = MapperConfig::default();
    config.discovery.bounds.page_records = 2;
    config
}

/// An ingress, and the `corr` of its subscription.
fn ingress() -> (End, Vec<u8>) {
    let mut ingress = End::with(MapperConfig::default(), discovering(Side::Initiator));
    let corr = subscription(&ingress.one_frame());
    (ingress, corr)
}

fn subscription(frame: &Frame) -> Vec<u8> {
    assert_eq!((frame.channel, frame.kind), (DISCOVERY, SUBSCRIBE));
    // {0: 0x0104, 1: 16 octets}, and no filter.
    let corr = frame.octets[frame.octets.len() - 16..].to_vec();
    assert_eq!(frame.octets, disco(SUBSCRIBE, &corr, &[]));
    corr
}

impl End {
    fn disco(&mut self, kind: u16, corr: &[u8], fields: &[(u64, Vec<u8>)]) {
        let payload = disco(kind, corr, fields);
        self.frame(DISCOVERY, kind, &payload);
    }

    /// The one frame that came out, which must be exactly this.
    fn expect(&mut self, kind: u16, payload: &[u8]) {
        let frame = self.one_frame();
        assert_eq!((frame.channel, frame.kind), (DISCOVERY, kind));
        assert_eq!(
            frame.octets,
            payload,
            "{} is not {}",
            hex::encode(&frame.octets),
            hex::encode(payload)
        );
    }

    /// The one frame that came out, which must be a DISCO_ERROR.
    fn expect_error(&mut self, corr: &[u8], code: u64) {
        let frame = self.one_frame();
        assert_eq!((frame.channel, frame.kind), (DISCOVERY, DISCO_ERROR));
        // The reason is for people.
        let begins = [
            &[0xa4][..],
            &disco(DISCO_ERROR, corr, &[(2, uint(code))])[1..],
        ]
        .concat();
        assert!(frame.octets.starts_with(&begins), "{frame:?}, not {code}");
        let reason = ErrorCode(code).reason();
        assert!(self.stats.discovery_errors_sent.get(reason) > 0);
    }

    fn happened(&self, event: DiscoveryEvent) -> u64 {
        self.stats.discovery.get(event)
    }

    fn ask_agent(&mut self) -> ExchangeId {
        let object = request_json("1", "tasks/get");
        self.payload(&a2a(MessageKind::Request, b"corr", "tasks/get", &object));
        self.one_dispatch().0
    }

    fn agent_unreachable(&mut self) {
        let exchange = self.ask_agent();
        let event = AgentEvent::Unreachable {
            message: "no connection to the agent".into(),
            timed_out: false,
        };
        self.agent(exchange, event);
    }

    fn agent_answers(&mut self) {
        let exchange = self.ask_agent();
        self.agent(exchange, body(200, &result_json("1", "{}")));
    }

    /// Takes the reply of the Bridge channel out of what came.
    fn take_reply(&mut self, kind: u16) {
        let at = self.frames.iter().position(|frame| frame.channel == BRIDGE);
        assert_eq!(self.frames.remove(at.expect("a reply")).kind, kind);
    }

    fn discover(&mut self, call: u64, filter: Filter, tolerant: bool) {
        self.input(Input::Call {
            association: self.association,
            call: CallId(call),
            request: CallRequest::Discover { filter, tolerant },
        });
    }
}

/// §7.1, §11.8, ruling R10: once after HELLO, without `corr`, what can be carried for the
/// association's server name and nothing else.
#[test]
fn an_egress_announces_what_it_carries() {
    let mut egress = End::with(MapperConfig::default(), discovering(Side::Responder));
    egress.expect(ANNOUNCE, &disco(ANNOUNCE, b"", &[(2, array(&whole_set()))]));
    assert_eq!(egress.happened(DiscoveryEvent::AnnounceSent), 1);

    // No agreement on documents: no such class, and A2A on Bridge alone (§5.1, ruling R9).
    let mut no_documents = discovering(Side::Responder);
    no_documents.document_binding = None;
    let mut egress = End::with(MapperConfig::default(), no_documents);
    let set = [
        agent(1),
        class(1, "JSONRPC"),
        class(4, "STREAM"),
        protocol(&[0x0d]),
    ];
    egress.expect(ANNOUNCE, &disco(ANNOUNCE, b"", &[(2, array(&set))]));

    // Nothing can be carried: no agent, no A2A, or policy allows nothing.
    let nowhere = AssociationInfo {
        server_name: "elsewhere.example".into(),
        ..discovering(Side::Responder)
    };
    let other = AssociationInfo {
        carries_a2a: false,
        ..discovering(Side::Responder)
    };
    let refusing = MapperConfig {
        allow: EffectSet::NONE,
        ..MapperConfig::default()
    };
    for (config, info) in [
        (MapperConfig::default(), nowhere),
        (MapperConfig::default(), other),
        (refusing, discovering(Side::Responder)),
    ] {
        let mut egress = End::with(config, info);
        egress.no_frame();
        // An empty result is a valid and non-committal reply (§10).
        egress.disco(QUERY, b"q", &[]);
        egress.expect(RESULT, &result(b"q", &[]));
    }
}

/// §2, NPAMP-CH-0010 §7.2: nothing is sent, and what comes is dropped, where the channel was
/// not advertised.
#[test]
fn an_unadvertised_channel_is_silent() {
    for side in [Side::Initiator, Side::Responder] {
        let mut end = End::with(MapperConfig::default(), info(side));
        end.no_frame();
        end.disco(QUERY, b"q", &[]);
        end.no_frame();
        assert_eq!(end.stats.dropped.get(Dropped::Discovery), 1);
    }
}

/// §5.1: methods are enumerated where policy leaves the peer some of them only.
#[test]
fn methods_are_those_that_policy_allows() {
    let config = MapperConfig {
        allow: EffectSet::ALL,
        peers: vec![("ed25519:peer".into(), EffectSet::of(&[0]))],
        ..MapperConfig::default()
    };
    let mut egress = egress_with(config);
    egress.disco(QUERY, b"q", &[(2, array(&[uint(1)]))]);
    let answer = String::from_utf8_lossy(&egress.one_frame().octets).into_owned();
    for (method, listed) in [
        ("tasks/get", true),
        ("GetTask", true),
        ("agent/getCard", true),
        ("message/send", false),
        ("tasks/pushNotificationConfig/delete", false),
    ] {
        assert_eq!(answer.contains(method), listed, "{method}");
    }
    let config = MapperConfig {
        unknown_methods: UnknownMethods::Refuse,
        ..MapperConfig::default()
    };
    let mut egress = egress_with(config);
    egress.disco(QUERY, b"q", &[(2, array(&[uint(1)]))]);
    let answer = String::from_utf8_lossy(&egress.one_frame().octets).into_owned();
    assert!(answer.contains("message/stream"), "{answer}");
}

/// §6.1, §6.2, §11.5: every present field restricts, and an empty result is complete.
#[test]
fn a_filtered_query_and_its_result() {
    let kinds = |kinds: &[u64]| {
        let kinds: Vec<_> = kinds.iter().map(|&kind| uint(kind)).collect();
        (2, array(&kinds))
    };
    let protocols = |ids: &[u64]| {
        let ids: Vec<_> = ids.iter().map(|&id| uint(id)).collect();
        (3, array(&ids))
    };
    let prefix = |prefix: &str| (4, text(prefix));
    let mut egress = egress();
    for (filter, left) in [
        (vec![], whole_set()),
        (vec![kinds(&[4])], vec![agent(1)]),
        (vec![kinds(&[3])], vec![]),
        (vec![kinds(&[])], vec![]),
        (
            vec![kinds(&[4, 1])],
            vec![agent(1), protocol(&[0x0d, 0x10])],
        ),
        (vec![kinds(&[1, 4]), protocols(&[1, 3])], vec![]),
        (
            vec![kinds(&[1, 4]), protocols(&[2]), prefix("math")],
            vec![protocol(&[0x0d, 0x10])],
        ),
        (vec![kinds(&[4]), prefix("literature.")], vec![agent(1)]),
        (vec![kinds(&[4]), (5, truth(true))], vec![agent(1)]),
    ] {
        egress.disco(QUERY, b"some corr", &filter);
        egress.expect(RESULT, &result(b"some corr", &left));
    }
    assert_eq!(egress.happened(DiscoveryEvent::QueryReceived), 9);
    assert_eq!(egress.happened(DiscoveryEvent::ResultSent), 9);
}

/// §6.2: pages of two, each with a cursor but the last, all bearing the same `corr`.
#[test]
fn pages_follow_each_other() {
    let mut egress = egress_with(paging());
    let set = whole_set();
    let mut fields: Fields = Vec::new();
    for (n, page) in set.chunks(2).enumerate() {
        egress.disco(QUERY, b"q", &fields);
        if n == 2 {
            egress.expect(RESULT, &result(b"q", page));
            break;
        }
        let cursor = cursor(&mut egress, b"q", page);
        fields = vec![(6, octets(&cursor))];
    }
    // The filter goes on from page to page.
    let classes = (2, array(&[uint(2)]));
    egress.disco(QUERY, b"q", std::slice::from_ref(&classes));
    let cursor = cursor(&mut egress, b"q", &set[1..3]);
    egress.disco(QUERY, b"r", &[classes, (6, octets(&cursor))]);
    egress.expect(RESULT, &result(b"r", &set[3..4]));
}

/// An incomplete result with these records; gives its cursor.
fn cursor(egress: &mut End, corr: &[u8], page: &[Vec<u8>]) -> Vec<u8> {
    let frame = egress.one_frame();
    assert_eq!(frame.kind, RESULT);
    let cursor = frame.octets[frame.octets.len() - 8..].to_vec();
    let fields = [(2, array(page)), (3, truth(false)), (4, octets(&cursor))];
    assert_eq!(frame.octets, disco(RESULT, corr, &fields));
    cursor
}

/// §6.2, §9: a cursor of another filter, of a set that has changed, of long ago or of
/// nobody's is StaleCursor.
#[test]
fn cursors_go_stale() {
    let mut egress = egress_with(paging());
    let page = whole_set()[..2].to_vec();
    let stale = |egress: &mut End, more: &[(u64, Vec<u8>)]| {
        egress.disco(QUERY, b"s", more);
        egress.expect_error(b"s", 5);
    };
    egress.disco(QUERY, b"q", &[]);
    let old = cursor(&mut egress, b"q", &page);
    stale(&mut egress, &[(6, octets(b"nobody's"))]);
    stale(&mut egress, &[(2, array(&[uint(4)])), (6, octets(&old))]);
    egress.agent_unreachable();
    egress.take_reply(ERROR);
    stale(&mut egress, &[(6, octets(&old))]);
    egress.agent_answers();
    egress.take_reply(RESPONSE);

    egress.disco(QUERY, b"q", &[]);
    let set = [agent(2), class(1, "JSONRPC")];
    let old = cursor(&mut egress, b"q", &set);
    egress.pass_time(limits::DISCOVERY_CURSOR_TIME);
    stale(&mut egress, &[(6, octets(&old))]);

    egress.disco(QUERY, b"q", &[]);
    let old = cursor(&mut egress, b"q", &set);
    for _ in 0..limits::DISCOVERY_CURSORS_MAX {
        egress.disco(QUERY, b"q", &[]);
        cursor(&mut egress, b"q", &set);
    }
    stale(&mut egress, &[(6, octets(&old))]);
}

/// §7.2, §7.3, §8, §11.6: a snapshot, updates that echo the `corr` as the agent goes and comes
/// with a greater revision, none after the unsubscription.
#[test]
fn subscribe_update_unsubscribe() {
    let mut egress = egress();
    egress.disco(SUBSCRIBE, b"everything", &[]);
    egress.expect(RESULT, &result(b"everything", &whole_set()));
    // Only classes: the agent is none of it.
    let classes = [(2, array(&[uint(2)]))];
    egress.disco(SUBSCRIBE, b"classes", &classes);
    egress.expect(RESULT, &result(b"classes", &whole_set()[1..4]));
    assert_eq!(egress.stats.discovery_subscriptions.get(), 2);

    egress.agent_unreachable();
    egress.take_reply(ERROR);
    let gone = [(3, array(&[octets(b"agent")]))];
    egress.expect(UPDATE, &disco(UPDATE, b"everything", &gone));
    // Said once.
    egress.agent_unreachable();
    egress.take_reply(ERROR);
    egress.no_frame();
    egress.disco(QUERY, b"q", &[(2, array(&[uint(4)]))]);
    egress.expect(RESULT, &result(b"q", &[]));

    egress.agent_answers();
    egress.take_reply(RESPONSE);
    let back = [(2, array(&[agent(2)]))];
    egress.expect(UPDATE, &disco(UPDATE, b"everything", &back));
    egress.agent_answers();
    egress.take_reply(RESPONSE);
    egress.no_frame();
    assert_eq!(egress.happened(DiscoveryEvent::AgentWithdrawn), 1);
    assert_eq!(egress.happened(DiscoveryEvent::AgentReturned), 1);
    assert_eq!(egress.happened(DiscoveryEvent::UpdateSent), 2);

    for live in [1, 1] {
        // Again, and for one that never was: ignored, not answered.
        egress.disco(UNSUBSCRIBE, b"everything", &[]);
        egress.no_frame();
        assert_eq!(egress.stats.discovery_subscriptions.get(), live);
    }
    assert_eq!(egress.happened(DiscoveryEvent::Unmatched), 1);
    egress.pass_time(limits::DISCOVERY_REACH_TIME);
    egress.agent_unreachable();
    egress.take_reply(ERROR);
    egress.no_frame();
    egress.down();
    assert_eq!(egress.stats.discovery_subscriptions.get(), 0);
}

/// §10: an agent that takes every second connection does not have every peer told with each.
#[test]
fn an_agent_that_comes_and_goes_is_no_flood() {
    let mut egress = egress();
    egress.disco(SUBSCRIBE, b"s", &[]);
    egress.frames.clear();
    for _ in 0..100 {
        egress.agent_unreachable();
        egress.agent_answers();
    }
    assert_eq!(egress.happened(DiscoveryEvent::UpdateSent), 2);
    egress.pass_time(limits::DISCOVERY_REACH_TIME);
    egress.agent_unreachable();
    assert_eq!(egress.happened(DiscoveryEvent::AgentWithdrawn), 2);
    assert_eq!(egress.happened(DiscoveryEvent::UpdateSent), 3);
}

/// §7.2: a snapshot that is longer than a page comes in several results.
#[test]
fn a_long_snapshot_comes_in_pages() {
    let mut egress = egress_with(paging());
    egress.disco(SUBSCRIBE, b"s", &[]);
    let set = whole_set();
    let frames = std::mem::take(&mut egress.frames);
    assert_eq!(frames.len(), 3);
    for (frame, page) in frames.into_iter().zip(set.chunks(2)) {
        egress.frames = vec![frame];
        if page.len() == 2 {
            cursor(&mut egress, b"s", page);
        } else {
            egress.expect(RESULT, &result(b"s", page));
        }
    }
}

/// §9: each of the seven errors, echoing the `corr`.
#[test]
fn each_error_is_provoked() {
    let mut egress = egress();
    let raw = |egress: &mut End, kind: u16, payload: &[u8]| egress.frame(DISCOVERY, kind, payload);
    // 1: not deterministic, in the ways of §4.1, on both requests.
    let no_order = [&head(5, 2)[..], &[1], &octets(b"c"), &[0], &uint(0x100)].concat();
    let not_shortest = [
        &head(5, 2)[..],
        &[0],
        &uint(0x100),
        &[0x18, 1],
        &octets(b"c"),
    ]
    .concat();
    let trailing = [disco(QUERY, b"c", &[]), vec![0]].concat();
    let negative = [&[0xa3][..], &disco(QUERY, b"c", &[])[1..], &[0x20, 0]].concat();
    let text_key = [&[0xa3][..], &disco(QUERY, b"c", &[])[1..], &[0x61, b'x', 0]].concat();
    for payload in [
        no_order,
        not_shortest,
        trailing,
        negative,
        text_key,
        map(&[(1, octets(b"c"))]),
        map(&[(0, text("x")), (1, octets(b"c"))]),
        disco(QUERY, b"c", &[(2, uint(1))]),
        disco(QUERY, b"c", &[(2, array(&[text("x")]))]),
        disco(QUERY, b"c", &[(4, octets(b"x"))]),
        disco(QUERY, b"c", &[(5, uint(1))]),
        disco(QUERY, b"c", &[(6, text("x"))]),
    ] {
        raw(&mut egress, QUERY, &payload);
        egress.expect_error(b"c", 1);
    }
    raw(
        &mut egress,
        SUBSCRIBE,
        &disco(SUBSCRIBE, b"c", &[(3, uint(1))]),
    );
    egress.expect_error(b"c", 1);
    // 2: the payload says that it is another frame.
    raw(&mut egress, QUERY, &disco(SUBSCRIBE, b"c", &[]));
    egress.expect_error(b"c", 2);
    raw(&mut egress, SUBSCRIBE, &disco(QUERY, b"c", &[]));
    egress.expect_error(b"c", 2);
    // 3: a kind that is not known here, unless the query is tolerant (§6.3).
    let unknown = (2, array(&[uint(4), uint(9)]));
    egress.disco(QUERY, b"c", std::slice::from_ref(&unknown));
    egress.expect_error(b"c", 3);
    egress.disco(SUBSCRIBE, b"c", std::slice::from_ref(&unknown));
    egress.expect_error(b"c", 3);
    egress.disco(QUERY, b"c", &[unknown, (5, truth(true))]);
    egress.expect(RESULT, &result(b"c", &[agent(1)]));
    // 4: a filter of a later revision, and one that is longer than any here.
    egress.disco(QUERY, b"c", &[(7, text("x"))]);
    egress.expect_error(b"c", 4);
    let long = vec![uint(1); limits::DISCOVERY_LIST_ENTRIES_MAX + 1];
    egress.disco(SUBSCRIBE, b"c", &[(3, array(&long))]);
    egress.expect_error(b"c", 4);
    // Any other unknown key is ignored (§4.1).
    egress.disco(
        QUERY,
        b"c",
        &[(2, array(&[uint(4)])), (24, text("x")), (70_000, uint(1))],
    );
    egress.expect(RESULT, &result(b"c", &[agent(1)]));
    // 5: see also `cursors_go_stale`.
    egress.disco(QUERY, b"c", &[(6, octets(b"x"))]);
    egress.expect_error(b"c", 5);
    // 6: one subscription more than there may be.
    egress.pass_time(Duration::from_secs(60));
    for n in 0..limits::DISCOVERY_SUBSCRIPTIONS_MAX {
        egress.disco(SUBSCRIBE, &[b's', n as u8], &[]);
        assert_eq!(egress.one_frame().kind, RESULT);
    }
    egress.disco(SUBSCRIBE, b"one more", &[]);
    egress.expect_error(b"one more", 6);
    // A live subscription's `corr` is not unique (§4.2).
    egress.disco(QUERY, b"s\0", &[]);
    egress.expect_error(b"s\0", 1);
    // 7: an ingress offers nothing to whom it has dialled.
    let (mut ingress, _) = ingress();
    ingress.disco(QUERY, b"c", &[]);
    ingress.expect_error(b"c", 7);
    ingress.disco(SUBSCRIBE, b"c", &[]);
    ingress.expect_error(b"c", 7);
}

/// §10: queries and subscriptions come at a rate; over it they are refused, and time helps.
#[test]
fn queries_are_rated() {
    let mut egress = egress();
    let burst = limits::DISCOVERY_QUERIES_BURST_MAX;
    for n in 0..burst + 2 {
        egress.disco(QUERY, b"q", &[(2, array(&[uint(4)]))]);
        if n < burst {
            egress.expect(RESULT, &result(b"q", &[agent(1)]));
        } else {
            egress.expect_error(b"q", 6);
        }
    }
    egress.pass_time(limits::DISCOVERY_QUERY_TIME);
    egress.disco(QUERY, b"q", &[(2, array(&[uint(4)]))]);
    egress.expect(RESULT, &result(b"q", &[agent(1)]));
    egress.disco(SUBSCRIBE, b"q", &[]);
    egress.expect_error(b"q", 6);
}

/// §3, §4.1, §7.1, §7.3: what is owed no reply gets none, however wrong it is.
#[test]
fn only_requests_are_answered() {
    for side in [Side::Initiator, Side::Responder] {
        let mut end = End::with(MapperConfig::default(), discovering(side));
        end.frames.clear();
        let mut malformed = 0;
        for kind in [
            RESULT,
            DISCO_ERROR,
            ANNOUNCE,
            UPDATE,
            UNSUBSCRIBE,
            0x0107,
            0x01ff,
        ] {
            for payload in [
                vec![],
                vec![0xa0],
                vec![0xff],
                disco(QUERY, b"c", &[]),
                [disco(kind, b"c", &[]), vec![0]].concat(),
                [&[0xa3][..], &disco(kind, b"c", &[])[1..], &[0x20, 0]].concat(),
            ] {
                end.frame(DISCOVERY, kind, &payload);
                malformed += 1;
                assert_eq!(end.stats.discovery_malformed.total(), malformed);
                assert_eq!(end.stats.dropped.get(Dropped::Discovery), malformed);
            }
        }
        // Requests without a `corr` that could be echoed (§4.2: 1 to 64 octets).
        for payload in [
            vec![],
            vec![0xa0],
            disco(QUERY, b"", &[]),
            disco(QUERY, &[7; 65], &[]),
            map(&[(0, uint(0x100)), (1, octets(b""))]),
            map(&[(0, uint(0x100)), (1, text("c"))]),
        ] {
            end.frame(DISCOVERY, QUERY, &payload);
            malformed += 1;
            assert_eq!(end.stats.dropped.get(Dropped::Discovery), malformed);
        }
        end.no_frame();
        assert!(end.channel_errors.is_empty());
        let counted = |error| end.stats.discovery_malformed.get(error);
        assert!(counted(FrameError::FrameType) > 0 && counted(FrameError::Range) > 0);
        assert_eq!(end.stats.discovery_errors_sent.total(), 0);
    }
}

/// §4.2: a `corr` of 64 octets is echoed whole.
#[test]
fn the_longest_corr_is_echoed() {
    let mut egress = egress();
    egress.disco(QUERY, &[0xfe; 64], &[(2, array(&[uint(3)]))]);
    egress.expect(RESULT, &result(&[0xfe; 64], &[]));
}

fn held(end: &End) -> u64 {
    end.stats.discovery_records.get()
}

/// §7, §8: an ingress subscribes, takes records by whichever frame they come in a strictly
/// greater revision, and lets go of what is withdrawn.
#[test]
fn an_ingress_learns_by_revision() {
    let (mut ingress, corr) = ingress();
    let tool = |revision: u64| {
        let body = map(&[(0, text("search")), (1, uint(2))]);
        record("tool", 3, revision, None, body)
    };
    ingress.disco(ANNOUNCE, b"", &[(2, array(&[tool(2)]))]);
    assert_eq!(held(&ingress), 1);
    ingress.frame(
        DISCOVERY,
        RESULT,
        &result(&corr, &[vec![tool(1)], whole_set()].concat()),
    );
    assert_eq!(held(&ingress), 6);
    assert_eq!(ingress.happened(DiscoveryEvent::RecordStale), 1);
    for (revision, stale) in [(2, 2), (3, 2), (3, 3), (1, 4)] {
        ingress.disco(UPDATE, &corr, &[(2, array(&[tool(revision)]))]);
        assert_eq!(ingress.happened(DiscoveryEvent::RecordStale), stale);
    }
    assert_eq!(ingress.happened(DiscoveryEvent::RecordTaken), 7);
    // Absence from a later announcement says nothing.
    ingress.disco(ANNOUNCE, b"", &[(2, array(&[]))]);
    assert_eq!(held(&ingress), 6);
    let gone = array(&[octets(b"tool"), octets(b"never was")]);
    ingress.disco(UPDATE, &corr, &[(3, gone)]);
    assert_eq!(held(&ingress), 5);
    assert_eq!(ingress.happened(DiscoveryEvent::RecordWithdrawn), 1);
    // Updates of nobody's subscription are dropped.
    ingress.disco(UPDATE, b"other", &[(2, array(&[tool(9)]))]);
    assert_eq!(held(&ingress), 5);
    assert_eq!(ingress.happened(DiscoveryEvent::Unmatched), 1);
    ingress.no_frame();
}

/// §5: a record of an unknown kind is refused, the others are kept; and the set is not whole.
#[test]
fn unknown_kinds_are_refused_one_by_one() {
    let (mut ingress, corr) = ingress();
    let odd = record("odd", 5, 1, None, map(&[(0, uint(1))]));
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[odd, class(1, "x")]));
    assert_eq!(held(&ingress), 1);
    assert_eq!(ingress.happened(DiscoveryEvent::RecordUnknownKind), 1);
    ingress.call(1, &request_json("1", "tasks/get"));
    assert_eq!(ingress.one_frame().kind, REQUEST, "nothing is ruled out");
}

fn other_protocol() -> Vec<u8> {
    record("mcp", 1, 1, None, map(&[(0, uint(1)), (1, uint(1))]))
}

/// §10, §11.7: only a whole set rules calls out, and only what it names nothing of; a missing
/// agent is a claim that rules out nothing.
#[test]
fn a_whole_set_refuses_what_it_rules_out() {
    let (mut ingress, corr) = ingress();
    let goes = |ingress: &mut End, call: u64| {
        ingress.call(call, &request_json("1", "tasks/get"));
        assert_eq!(ingress.one_frame().kind, REQUEST);
    };
    goes(&mut ingress, 1);
    ingress.card(2);
    assert_eq!(ingress.one_frame().kind, REQUEST, "before the snapshot");
    ingress.disco(ANNOUNCE, b"", &[(2, array(&[other_protocol()]))]);
    goes(&mut ingress, 3);

    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[class(1, "JSONRPC")]));
    ingress.call(4, &request_json("1", "tasks/get"));
    assert_eq!(
        ingress.one_transport_error().0,
        TransportCode::PROTOCOL_UNSUPPORTED
    );
    ingress.notify(5, r#"{"jsonrpc":"2.0","method":"x"}"#);
    ingress.one_transport_error();
    ingress.no_frame();
    let refused = &ingress.stats.calls_refused;
    assert_eq!(refused.get(Refusal::ProtocolNotAdvertised), 2);

    // A2A comes, without documents.
    ingress.disco(UPDATE, &corr, &[(2, array(&[protocol(&[0x0d])]))]);
    goes(&mut ingress, 6);
    ingress.card(7);
    assert_eq!(
        ingress.one_transport_error().0,
        TransportCode::METHOD_UNSUPPORTED
    );
    let refused = &ingress.stats.calls_refused;
    assert_eq!(refused.get(Refusal::DocumentsNotAdvertised), 1);
    ingress.disco(UPDATE, &corr, &[(2, array(&[class(5, "DOC"), agent(1)]))]);
    ingress.card(8);
    assert_eq!(ingress.one_frame().kind, REQUEST);

    ingress.disco(UPDATE, &corr, &[(3, array(&[octets(b"agent")]))]);
    goes(&mut ingress, 9);

    // An update that was not understood: the set is not whole any more.
    ingress.disco(UPDATE, &corr, &[(3, array(&[octets(b"protocol-2")]))]);
    ingress.call(10, &request_json("1", "tasks/get"));
    ingress.one_transport_error();
    ingress.disco(UPDATE, &corr, &[]);
    goes(&mut ingress, 11);
}

/// §10: an empty snapshot, an error, a malformed answer or silence changes nothing.
#[test]
fn a_reticent_peer_changes_nothing() {
    type Answer = fn(&mut End, &[u8]);
    let answers: [Answer; 4] = [
        |ingress, corr| ingress.frame(DISCOVERY, RESULT, &result(corr, &[])),
        |ingress, corr| ingress.disco(DISCO_ERROR, corr, &[(2, uint(6))]),
        |ingress, corr| {
            let fields = [(2, array(&[other_protocol()]))];
            ingress.disco(RESULT, corr, &fields);
            // A late and whole one does not mend it.
            ingress.frame(DISCOVERY, RESULT, &result(corr, &[other_protocol()]));
        },
        |_, _| {},
    ];
    for answer in answers {
        let (mut ingress, corr) = ingress();
        answer(&mut ingress, &corr);
        ingress.no_frame();
        ingress.call(1, &request_json("1", "tasks/get"));
        assert_eq!(ingress.one_frame().kind, REQUEST);
        ingress.card(2);
        assert_eq!(ingress.one_frame().kind, REQUEST);
    }
    let (mut ingress, corr) = ingress();
    ingress.disco(DISCO_ERROR, &corr, &[(2, uint(6)), (3, text("no"))]);
    let received = &ingress.stats.discovery_errors_received;
    assert_eq!(received.get(ErrorReason::SubscriptionRefused), 1);
}

/// §8, §11.8: nothing outlives the association: neither records nor subscriptions nor a ruling.
#[test]
fn no_state_across_associations() {
    let (mut ingress, corr) = ingress();
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[other_protocol()]));
    assert_eq!(held(&ingress), 1);
    ingress.down();
    assert_eq!(held(&ingress), 0);
    ingress.up(8, discovering(Side::Initiator));
    let again = subscription(&ingress.one_frame());
    assert_ne!(again, corr);
    ingress.disco(UPDATE, &corr, &[(2, array(&[other_protocol()]))]);
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[other_protocol()]));
    assert_eq!(held(&ingress), 0);
    assert_eq!(ingress.happened(DiscoveryEvent::Unmatched), 2);
    ingress.call(1, &request_json("1", "tasks/get"));
    assert_eq!(ingress.one_frame().kind, REQUEST);

    let mut egress = egress();
    egress.disco(SUBSCRIBE, b"s", &[]);
    egress.frames.clear();
    egress.down();
    egress.up(8, discovering(Side::Responder));
    egress.frames.clear();
    egress.agent_unreachable();
    egress.take_reply(ERROR);
    egress.no_frame();
    // Re-advertised, as it is now, from the first revision on (§8).
    egress.down();
    egress.up(9, discovering(Side::Responder));
    let set = whole_set()[1..].to_vec();
    egress.expect(ANNOUNCE, &disco(ANNOUNCE, b"", &[(2, array(&set))]));
    egress.agent_answers();
    egress.take_reply(RESPONSE);
    egress.no_frame();
    egress.disco(QUERY, b"q", &[(2, array(&[uint(4)]))]);
    egress.expect(RESULT, &result(b"q", &[agent(1)]));
}

fn pair(config: MapperConfig) -> Pair {
    let egress = End::with(config, discovering(Side::Responder));
    let ingress = End::with(MapperConfig::default(), discovering(Side::Initiator));
    let mut pair = Pair {
        ingress,
        egress,
        passed: Vec::new(),
    };
    pair.pass();
    pair
}

/// Ingress and egress, joined: what the one advertises the other holds, as it changes.
#[test]
fn the_ingress_follows_the_egress() {
    let mut pair = pair(paging());
    assert_eq!(held(&pair.ingress), 5);
    assert_eq!(pair.ingress.stats.discovery_malformed.total(), 0);
    let (exchange, _) = pair.ask(1, &request_json("1", "tasks/get"));
    let event = AgentEvent::Unreachable {
        message: "no connection".into(),
        timed_out: true,
    };
    pair.agent(exchange, event);
    assert_eq!(held(&pair.ingress), 4);
    match pair.ingress.one_event() {
        CallEvent::TransportError(error) => assert!(error.timed_out, "{error:?}"),
        other => panic!("{other:?}"),
    }
    let (exchange, _) = pair.ask(2, &request_json("1", "tasks/get"));
    pair.agent(exchange, body(200, &result_json("1", "1")));
    assert_eq!(held(&pair.ingress), 5);
}

/// §7.2: what one mapper of a process finds out about an agent, the others withdraw as well.
#[test]
fn mappers_tell_each_other() {
    let registry = Arc::new(StreamRegistry::default());
    let mut ends: Vec<End> = (0..3)
        .map(|id| {
            let budget = Arc::new(OctetBudget::default());
            let mapper = Mapper::new(MapperConfig::default(), Box::new(Agents), budget.clone())
                .among(registry.clone(), MapperId(id));
            let mut end = End::of(mapper, budget);
            end.up(7, discovering(Side::Responder));
            end.disco(SUBSCRIBE, b"s", &[]);
            end.frames.clear();
            end
        })
        .collect();
    let gone = disco(UPDATE, b"s", &[(3, array(&[octets(b"agent")]))]);
    let back = disco(UPDATE, b"s", &[(2, array(&[agent(2)]))]);
    for (reached, update) in [(false, &gone), (true, &back)] {
        if reached {
            ends[1].agent_answers();
            ends[1].take_reply(RESPONSE);
        } else {
            ends[1].agent_unreachable();
            ends[1].take_reply(ERROR);
        }
        ends[1].expect(UPDATE, update);
        let forwards = std::mem::take(&mut ends[1].forwards);
        let told: Vec<usize> = forwards.iter().map(|(mapper, _)| mapper.0).collect();
        assert_eq!(told, [0, 2]);
        for (mapper, message) in forwards {
            let end = &mut ends[mapper.0];
            end.input(Input::Stream(message));
            end.expect(UPDATE, update);
            assert!(end.forwards.is_empty(), "told once");
        }
    }
}

/// §4.3, §6: a query from end to end, over several pages, with one `corr`.
#[test]
fn a_query_is_put_together() {
    let mut pair = pair(paging());
    pair.ingress.discover(1, Filter::default(), false);
    pair.passed.clear();
    pair.pass();
    match pair.ingress.one_event() {
        CallEvent::Records(records) => {
            let ids: Vec<_> = records
                .iter()
                .map(|record| record.record_id.as_octets())
                .collect();
            let expected: [&[u8]; 5] =
                [b"agent", b"class-1", b"class-4", b"class-5", b"protocol-2"];
            assert_eq!(ids, expected);
        }
        other => panic!("{other:?}"),
    }
    let kinds: Vec<u16> = pair.passed.iter().map(|(_, frame)| frame.kind).collect();
    assert_eq!(kinds, [QUERY, RESULT, QUERY, RESULT, QUERY, RESULT]);
    assert_eq!(pair.ingress.mapper.outstanding(), 0);

    let filter = Filter {
        kinds: Some(vec![RecordKind::AGENT]),
        protocol_ids: Some(vec![2]),
        name_prefix: Some("lit".into()),
    };
    pair.ingress.discover(2, filter, true);
    let frame = pair.ingress.frames[0].clone();
    // 0: 3 octets and its key, 1: 16 octets with key and head.
    let corr = &frame.octets[7..23];
    let fields = [
        (2, array(&[uint(4)])),
        (3, array(&[uint(2)])),
        (4, text("lit")),
        (5, truth(true)),
    ];
    assert_eq!(frame.octets, disco(QUERY, corr, &fields));
    pair.pass();
    assert!(matches!(pair.ingress.one_event(), CallEvent::Records(records) if records.len() == 1));
}

/// §9: how a query of ours can fail, each way once.
#[test]
fn failed_queries() {
    let ask = |ingress: &mut End| {
        ingress.discover(1, Filter::default(), false);
        let frame = ingress.one_frame();
        assert_eq!(frame.kind, QUERY);
        let corr = frame.octets[7..].to_vec();
        assert_eq!(frame.octets, disco(QUERY, &corr, &[]));
        corr
    };
    let failed = |ingress: &mut End| {
        assert_eq!(ingress.mapper.outstanding(), 0);
        match ingress.one_event() {
            CallEvent::DiscoveryError { code, reason } => (code.0, reason),
            other => panic!("{other:?}"),
        }
    };
    let (mut ingress, _) = ingress();
    let corr = ask(&mut ingress);
    ingress.disco(DISCO_ERROR, &corr, &[(2, uint(7)), (3, text("no"))]);
    assert_eq!(failed(&mut ingress), (7, "no".to_owned()));

    let corr = ask(&mut ingress);
    ingress.disco(DISCO_ERROR, &corr, &[(2, uint(99))]);
    assert_eq!(failed(&mut ingress), (99, String::new()));

    // An incomplete result without a cursor (§6.2).
    let corr = ask(&mut ingress);
    let fields = [(2, array(&[])), (3, truth(false))];
    ingress.disco(RESULT, &corr, &fields);
    assert_eq!(failed(&mut ingress).0, 1);

    // §5: an unknown kind, and the query was not tolerant.
    let corr = ask(&mut ingress);
    let odd = record("odd", 5, 1, None, map(&[]));
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[odd]));
    assert_eq!(failed(&mut ingress).0, 3);

    // A reply to nobody, and to one who left.
    let corr = ask(&mut ingress);
    ingress.gone(1);
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[]));
    ingress.disco(DISCO_ERROR, &corr, &[(2, uint(1))]);
    assert!(ingress.calls.is_empty());
    assert_eq!(ingress.happened(DiscoveryEvent::Unmatched), 2);

    let corr = ask(&mut ingress);
    ingress.down();
    assert_eq!(
        ingress.one_transport_error().0,
        TransportCode::NOT_DELIVERED
    );
    ingress.up(8, discovering(Side::Initiator));
    ingress.frames.clear();
    ingress.frame(DISCOVERY, RESULT, &result(&corr, &[]));
    assert!(ingress.calls.is_empty());

    // A peer without the channel; and no more queries than there may be.
    let mut plain = End::ingress();
    plain.discover(1, Filter::default(), false);
    assert_eq!(
        plain.one_transport_error().0,
        TransportCode::METHOD_UNSUPPORTED
    );
    assert_eq!(plain.stats.calls_refused.get(Refusal::NoDiscovery), 1);
    for call in 0..=limits::DISCOVERY_QUERIES_OUTSTANDING_MAX as u64 {
        ingress.discover(call, Filter::default(), false);
    }
    ingress.one_transport_error();
    assert_eq!(ingress.stats.calls_refused.get(Refusal::ExchangesFull), 1);
}

/// §5, §8: every field that is required, of its type and in its range; a wrong record spoils
/// its frame.
#[test]
fn records_are_strict() {
    let good: [(u64, u64, Fields); 4] = [
        (
            1,
            2,
            vec![
                (0, uint(2)),
                (1, uint(1)),
                (2, array(&[uint(0x0d)])),
                (4, array(&[text("m")])),
            ],
        ),
        (2, 1, vec![(0, uint(6)), (1, array(&[]))]),
        (
            3,
            2,
            vec![(0, text("t")), (1, uint(255)), (2, uint(0)), (3, text("s"))],
        ),
        (
            4,
            2,
            vec![
                (0, octets(&[7; 64])),
                (1, array(&[uint(2)])),
                (2, array(&[octets(&[1; 32])])),
            ],
        ),
    ];
    let wrong_ranges: [(u64, Fields); 8] = [
        (1, vec![(0, uint(256)), (1, uint(1))]),
        (3, vec![(0, text("t")), (1, uint(256))]),
        (4, vec![(0, octets(b"")), (1, array(&[uint(2)]))]),
        (4, vec![(0, octets(&[7; 65])), (1, array(&[uint(2)]))]),
        (4, vec![(0, octets(b"a")), (1, array(&[]))]),
        (
            4,
            vec![
                (0, octets(b"a")),
                (1, array(&[uint(2)])),
                (2, array(&[octets(b"")])),
            ],
        ),
        (
            4,
            vec![
                (0, octets(b"a")),
                (1, array(&[uint(2)])),
                (2, array(&[octets(&[1; 33])])),
            ],
        ),
        (2, vec![(0, uint(1)), (1, uint(1))]),
    ];
    let taken = |record: Vec<u8>| {
        let (mut ingress, _) = ingress();
        ingress.disco(ANNOUNCE, b"", &[(2, array(&[record]))]);
        let taken = held(&ingress) == 1;
        assert_eq!(ingress.stats.discovery_malformed.total() == 0, taken);
        taken
    };
    for (kind, required, body) in good {
        assert!(taken(record("r", kind, 1, Some("l"), map(&body))), "{kind}");
        // Further keys are ignored, negative ones are not.
        let mut more = body.clone();
        more.push((99, text("later")));
        assert!(taken(record("r", kind, 1, None, map(&more))), "{kind}");
        let mut negative = map(&more);
        let at = negative.len() - text("later").len() - 2;
        negative[at] = 0x38;
        assert!(!taken(record("r", kind, 1, None, negative)), "{kind}");
        for (n, (key, _)) in body.iter().enumerate() {
            let mut absent = body.clone();
            absent.remove(n);
            let optional = *key >= required;
            assert_eq!(
                taken(record("r", kind, 1, None, map(&absent))),
                optional,
                "{kind}.{key}"
            );
            let mut wrong = body.clone();
            wrong[n].1 = truth(true);
            assert!(
                !taken(record("r", kind, 1, None, map(&wrong))),
                "{kind}.{key}"
            );
        }
    }
    for (kind, body) in wrong_ranges {
        assert!(
            !taken(record("r", kind, 1, None, map(&body))),
            "{kind}: {body:?}"
        );
    }
    let body = map(&[(0, uint(1))]);
    let whole = [
        (0, octets(b"r")),
        (1, uint(2)),
        (2, uint(1)),
        (4, body.clone()),
    ];
    for n in 0..4 {
        let mut absent = whole.to_vec();
        absent.remove(n);
        assert!(!taken(map(&absent)), "{n}");
    }
    assert!(!taken(record("", 2, 1, None, body.clone())));
    assert!(!taken(record(&"r".repeat(33), 2, 1, None, body.clone())));
    assert!(taken(record(&"r".repeat(32), 2, 1, None, body)));
}

fn ends() -> [End; 2] {
    [egress(), ingress().0]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any octets at all, and any good frame cut short or spoilt, are taken, answered or
    /// dropped; what is answered is a request.
    #[test]
    fn any_octets(
        garbage in prop::collection::vec(any::<u8>(), 0..64),
        kind in 0x0100_u16..0x0109,
        index in any::<prop::sample::Index>(),
    ) {
        let set = whole_set();
        let good = match kind {
            RESULT => result(b"c", &set),
            ANNOUNCE => disco(ANNOUNCE, b"", &[(2, array(&set))]),
            UPDATE => disco(UPDATE, b"c", &[(2, array(&set)), (3, array(&[octets(b"x")]))]),
            DISCO_ERROR => disco(DISCO_ERROR, b"c", &[(2, uint(1)), (3, text("r"))]),
            _ => disco(kind, b"c", &[(2, array(&[uint(1)])), (4, text("p"))]),
        };
        let cut = good[..index.index(good.len())].to_vec();
        let mut spoilt = good.clone();
        let at = index.index(good.len());
        spoilt[at] = garbage.first().copied().unwrap_or(0xff);
        for mut end in ends() {
            end.frames.clear();
            for payload in [&garbage, &cut, &spoilt] {
                if payload.starts_with(&[0x00, 0x10]) {
                    continue;
                }
                end.frame(DISCOVERY, kind, payload);
                let answered = !end.frames.is_empty();
                prop_assert!(!answered || kind == QUERY || kind == SUBSCRIBE);
                end.frames.clear();
            }
        }
    }
}

/// §4: whatever a relay sends, its peer's codec reads as it was meant, bit by bit of the kinds.
#[test]
fn a_truncated_frame_is_never_taken() {
    let (mut ingress, _) = ingress();
    let good = disco(ANNOUNCE, b"", &[(2, array(&whole_set()))]);
    for length in 0..good.len() {
        ingress.frame(
            DISCOVERY,
            ANNOUNCE,
            &Bytes::copy_from_slice(&good[..length]),
        );
        assert_eq!(held(&ingress), 0, "{length}");
    }
    ingress.frame(DISCOVERY, ANNOUNCE, &good);
    assert_eq!(held(&ingress), 5);
}
