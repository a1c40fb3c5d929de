//! What a peer's HELLO `params` say to the relay (rulings R9, R12, R13).

use crate::a2a::port::ServiceParameters;
use crate::association::{Hello, ParamValue};
use crate::limits;

/// Text key of the number of transit relays that an association's exchanges have passed.
pub const HOPS: &str = "hops";

/// The DocumentBinding tag that the peer states.
pub fn document_binding(hello: &Hello) -> Option<u64> {
    hello.params.iter().find_map(|(key, value)| match value {
        ParamValue::Uint(tag) if key == "docbind" => Some(*tag),
        _ => None,
    })
}

/// Whether the initiator repeats the link's server name.
pub fn repeats_server_name(hello: &Hello, server_name: &str) -> bool {
    text(hello, "server-name").is_some_and(|stated| stated.eq_ignore_ascii_case(server_name))
}

fn text<'a>(hello: &'a Hello, key: &str) -> Option<&'a str> {
    hello.params.iter().find_map(|(name, value)| match value {
        ParamValue::Text(text) if name == key => Some(text.as_str()),
        _ => None,
    })
}

/// The service parameters an initiator states in HELLO, bounded (ruling R13), and how many
/// transit relays it stands for.
pub fn stated_parameters(hello: &Hello) -> Result<ServiceParameters, &'static str> {
    let mut lines = Vec::new();
    for (key, value) in &hello.params {
        if !ServiceParameters::NAMES.contains(&key.as_str()) {
            continue;
        }
        match value {
            ParamValue::Text(value) => lines.push((key.clone(), value.clone())),
            ParamValue::TextList(values) => {
                lines.extend(values.iter().map(|value| (key.clone(), value.clone())));
            }
            ParamValue::Uint(_) => return Err("a service parameter is no text"),
        }
    }
    let valid = |value: &str| {
        value.len() <= limits::PARAMETER_VALUE_OCTETS_MAX
            && value
                .bytes()
                .all(|octet| octet == b'\t' || (octet >= 0x20 && octet != 0x7f))
    };
    if lines.len() > limits::PARAMETER_LINES_MAX || !lines.iter().all(|(_, value)| valid(value)) {
        return Err("the service parameters are too long or no header values");
    }
    let hops = hello.params.iter().find_map(|(key, value)| match value {
        ParamValue::Uint(hops) if key == HOPS => Some(u8::try_from(*hops).unwrap_or(u8::MAX)),
        _ => None,
    });
    let hops = hops.unwrap_or(0);
    Ok(ServiceParameters { lines, hops })
}
