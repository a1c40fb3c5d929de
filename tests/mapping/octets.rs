//! NPAMP-BRIDGE §1, NPAMP-CC-JSONRPC §2, ruling R22: what goes in comes out, octet for octet,
//! both ways, over generated JSON.

use crate::harness::*;
use npamp_relay::a2a::port::{AgentEvent, CallEvent};
use proptest::prelude::*;

fn space() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ \t\r\n]{0,3}").unwrap()
}

/// JSON strings with every way to write a character.
fn string() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[ -!#-\\[\\]-~]{0,6}",
        Just("\u{2028}\u{2029}".to_owned()),
        Just("é日𝄞\u{7f}\u{fffd}".to_owned()),
        Just("\\u2028\\u00E9\\ud834\\udd1e".to_owned()),
        Just("\\ud800".to_owned()),
        Just("\\/\\\\\\\"\\b\\f\\n\\r\\t\\u0000".to_owned()),
        Just("id".to_owned()),
        Just("final".to_owned()),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,3})\\.[0-9]{1,30}",
        "-?(0|[1-9])(\\.[0-9]{1,3})?[eE][+-]?[0-9]{1,6}",
    ]
}

/// Members that look like the top level's, repeated at will.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\"id\"".to_owned()),
        Just("\"method\"".to_owned()),
        Just("\"jsonrpc\"".to_owned()),
        Just("\"result\"".to_owned()),
        Just("\"error\"".to_owned()),
        Just("\"\\u0069d\"".to_owned()),
        Just("\"kind\"".to_owned()),
        string(),
    ]
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        string(),
        number(),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just("null".to_owned()),
        (1000_usize..40_000).prop_map(|length| format!("\"{}\"", "x".repeat(length))),
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            (proptest::collection::vec((space(), inner.clone(), space()), 0..5)).prop_map(
                |items| {
                    let items: Vec<_> = items
                        .into_iter()
                        .map(|(a, item, b)| [a, item, b].concat())
                        .collect();
                    format!("[{}]", items.join(","))
                }
            ),
            (proptest::collection::vec((space(), name(), space(), inner), 0..5)).prop_map(
                |members| {
                    let members: Vec<_> = members
                        .into_iter()
                        .map(|(a, name, b, value)| [a, name, b, ":".into(), value].concat())
                        .collect();
                    format!("{{{}}}", members.join(","))
                }
            ),
        ]
    })
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![string(), number(), Just("null".to_owned())]
}

/// An object of members in any order, with white space around everything.
fn object(members: Vec<(String, String)>, spaces: &[String]) -> String {
    let mut space = spaces.iter().cycle();
    let mut next = || space.next().unwrap().clone();
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| [next(), name, next(), ":".into(), next(), value, next()].concat())
        .collect();
    [next(), format!("{{{}}}", members.join(",")), next()].concat()
}

fn spaces() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(space(), 5)
}

fn request() -> impl Strategy<Value = (String, String)> {
    let extra = proptest::collection::vec((string(), value()), 0..3);
    (id(), value(), extra, spaces(), any::<u64>()).prop_map(|(id, params, extra, spaces, order)| {
        let mut members = vec![
            ("\"jsonrpc\"".to_owned(), "\"2.0\"".to_owned()),
            ("\"id\"".to_owned(), id.clone()),
            ("\"method\"".to_owned(), "\"message\\/send\"".to_owned()),
            ("\"params\"".to_owned(), params.clone()),
            ("\"params\"".to_owned(), params),
        ];
        // Extra top-level members, save those that would repeat a reserved one.
        members.extend(extra.into_iter().filter(|(name, _)| name != "\"id\""));
        let count = members.len();
        members.rotate_left((order % count as u64) as usize);
        (id, object(members, &spaces))
    })
}

fn response(id: String) -> impl Strategy<Value = (bool, String)> {
    (value(), any::<bool>(), spaces(), 0_usize..3).prop_map(
        move |(value, is_error, spaces, order)| {
            let outcome = if is_error { "\"error\"" } else { "\"result\"" };
            let mut members = vec![
                ("\"jsonrpc\"".to_owned(), "\"2.0\"".to_owned()),
                ("\"id\"".to_owned(), id.clone()),
                (outcome.to_owned(), value),
            ];
            members.rotate_left(order);
            (is_error, object(members, &spaces))
        },
    )
}

fn exchange() -> impl Strategy<Value = (String, bool, String, String)> {
    request().prop_flat_map(|(id, request)| {
        (response(id.clone()), value()).prop_map(move |((is_error, response), value)| {
            let event = format!(" {{\"result\":{value},\"id\":{id},\"jsonrpc\":\"2.0\"}}\n");
            (request.clone(), is_error, response, event)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Request and unary answer.
    #[test]
    fn unary_octets_are_untouched((request, is_error, response, _) in exchange()) {
        let mut pair = Pair::new();
        let (exchange, dispatch) = pair.ask(1, &request);
        prop_assert_eq!(object_of(&dispatch), request.as_bytes());
        pair.agent(exchange, body(200, &response));
        match pair.ingress.one_event() {
            CallEvent::Response(object) if !is_error => {
                prop_assert_eq!(object, response.as_bytes());
            }
            CallEvent::ErrorResponse(object) if is_error => {
                prop_assert_eq!(object, response.as_bytes());
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    /// Stream events.
    #[test]
    fn stream_octets_are_untouched((request, _, _, data) in exchange()) {
        let mut pair = Pair::new();
        let (exchange, _) = pair.ask(1, &request);
        pair.agent(exchange, AgentEvent::StreamOpen);
        pair.agent(exchange, event(&data));
        let object = match pair.ingress.one_event() {
            CallEvent::StreamEvent { object, .. }
            | CallEvent::StreamEnd { object: Some(object), .. } => object,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(object, data.as_bytes());
    }

    /// Octets from anywhere never make a mapper panic, at either end.
    #[test]
    fn arbitrary_frames_do_not_panic(
        frame_type in 0x00fe_u16..0x0108,
        octets in proptest::collection::vec(any::<u8>(), 0..80),
        envelope in any::<bool>(),
    ) {
        let octets = if envelope {
            [&[0x00, 0x10, 0x00, octets.len().min(20) as u8, 2][..], &octets].concat()
        } else {
            octets
        };
        for mut end in [End::ingress(), End::egress()] {
            end.call(1, &request_json("1", "message/stream"));
            end.frame(BRIDGE, frame_type, &octets);
            end.frame(DISCOVERY, frame_type, &octets);
            end.gone(1);
            end.assert_idle();
        }
    }
}

/// The list: a 7 MiB string passes both ways.
#[test]
fn a_seven_mebibyte_string_is_untouched() {
    let huge = format!("\"{}\"", "é\\u2028\u{2028}".repeat(680 * 1024));
    assert!(huge.len() > 7 * 1024 * 1024);
    let request =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"message/send\",\"params\":{huge}}}");
    let mut pair = Pair::new();
    let (exchange, dispatch) = pair.ask(1, &request);
    assert!(object_of(&dispatch) == request.as_bytes());
    let response = result_json("1", &huge);
    pair.agent(exchange, body(200, &response));
    match pair.ingress.one_event() {
        CallEvent::Response(object) => assert!(object == response.as_bytes()),
        _ => panic!("no response"),
    }
}
