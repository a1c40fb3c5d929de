//! What `call --discover` prints: the peer's records as a table for people, or as
//! JSON, a record to a line. A peer's text never reaches the terminal raw.

use crate::bridge::discovery::{Body, Record, RecordId, RecordKind};
use crate::bridge::safety::Effect;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::fmt::Write as _;

const HEAD: [&str; 7] = [
    "KIND", "NAME", "PROTOCOL", "CLASS", "CHANNELS", "REVISION", "DETAILS",
];

/// A table with a head; columns are as wide as they must be.
pub fn table(records: &[Record]) -> String {
    let known: HashSet<&RecordId> = tools(records).collect();
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(records.iter().map(|record| row(record, &known)));
    let mut widths = [0; HEAD.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, "{cell:width$}  ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// A JSON object to a line, with the fields of NPAMP-DISC §5 by name.
pub fn json_lines(records: &[Record]) -> String {
    let mut out = String::new();
    for record in records {
        let _ = writeln!(out, "{}", object(record));
    }
    out
}

fn tools(records: &[Record]) -> impl Iterator<Item = &RecordId> {
    records
        .iter()
        .filter(|record| record.kind() == RecordKind::TOOL)
        .map(|record| &record.record_id)
}

fn row(record: &Record, known: &HashSet<&RecordId>) -> [String; HEAD.len()] {
    let none = || "-".to_owned();
    let label = record.label.as_deref().map_or_else(none, plain);
    let (mut name, mut protocol, mut class, mut channels, mut details) =
        (label, none(), none(), none(), Vec::new());
    match &record.body {
        Body::Protocol(body) => {
            protocol = protocol_name(u64::from(body.protocol_id.0));
            body.carriage_class.name().clone_into(&mut class);
            // Absent means Bridge (NPAMP-DISC §5.1).
            let list = body.channels.as_deref().unwrap_or(&[0x000d]);
            channels = joined(list, |channel| format!("{channel:#06x}"));
            if let Some(methods) = &body.methods {
                details.push(format!("methods {}", joined(methods, |m| plain(m))));
            }
        }
        Body::CarriageClass(body) => body.carriage_class.name().clone_into(&mut class),
        Body::Tool(body) => {
            name = plain(&body.name);
            protocol = protocol_name(u64::from(body.protocol_id.0));
            details.push(match body.effect {
                Some(_) => effect_name(body.effect_or_destructive()).to_owned(),
                None => "effect unstated".to_owned(),
            });
            if let Some(schema) = &body.schema_ref {
                details.push(format!("schema {}", plain(schema)));
            }
        }
        Body::Agent(body) => {
            name = octets(&body.agent_id);
            protocol = joined(&body.protocols, |&id| protocol_name(id));
            if let Some(tools) = &body.tools {
                let tool = |id: &RecordId| {
                    let dangling = if known.contains(id) { "" } else { "?" };
                    octets(id.as_octets()) + dangling
                };
                details.push(format!("tools {}", joined(tools, tool)));
            }
        }
        Body::Unknown { kind, .. } => details.push(format!("kind {}", kind.0)),
    }
    let details = if details.is_empty() {
        none()
    } else {
        details.join("; ")
    };
    let revision = record.revision.to_string();
    let kind = record.kind().name().to_owned();
    [kind, name, protocol, class, channels, revision, details]
}

fn joined<T>(list: &[T], text: impl Fn(&T) -> String) -> String {
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

fn protocol_name(id: u64) -> String {
    match id {
        1 => "0x01 MCP".to_owned(),
        2 => "0x02 A2A".to_owned(),
        _ => format!("{id:#04x}"),
    }
}

fn effect_name(effect: Effect) -> &'static str {
    match effect {
        Effect::READ_ONLY => "read_only",
        Effect::IDEMPOTENT_WRITE => "idempotent_write",
        Effect::NON_IDEMPOTENT_WRITE => "non_idempotent_write",
        _ => "destructive",
    }
}

/// A peer's text without control characters.
pub fn plain(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let printable = !c.is_control();
            let escaped = (!printable).then(|| c.escape_default());
            printable
                .then_some(c)
                .into_iter()
                .chain(escaped.into_iter().flatten())
        })
        .collect()
}

/// Opaque octets: as text where they are, else in hexadecimal.
fn octets(octets: &[u8]) -> String {
    match std::str::from_utf8(octets) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => format!("0x{}", hex::encode(octets)),
    }
}

fn object(record: &Record) -> Value {
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            object.insert(key.to_owned(), value);
        }
    };
    put("record_id", json!(octets(record.record_id.as_octets())));
    put("kind", json!(record.kind().name()));
    put("revision", json!(record.revision));
    put("label", json!(record.label));
    match &record.body {
        Body::Protocol(body) => {
            put("protocol_id", json!(body.protocol_id.0));
            put("carriage_class", json!(body.carriage_class.0));
            put("channels", json!(body.channels));
            put("content_types", json!(body.content_types));
            put("methods", json!(body.methods));
        }
        Body::CarriageClass(body) => {
            put("carriage_class", json!(body.carriage_class.0));
            put("content_types", json!(body.content_types));
        }
        Body::Tool(body) => {
            put("name", json!(body.name));
            put("protocol_id", json!(body.protocol_id.0));
            put("effect", json!(body.effect));
            put("schema_ref", json!(body.schema_ref));
        }
        Body::Agent(body) => {
            put("agent_id", json!(octets(&body.agent_id)));
            put("protocols", json!(body.protocols));
            let tools = body.tools.as_ref().map(|tools| {
                tools
                    .iter()
                    .map(|id| octets(id.as_octets()))
                    .collect::<Vec<_>>()
            });
            put("tools", json!(tools));
        }
        Body::Unknown { kind, .. } => put("kind_number", json!(kind.0)),
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::discovery::CarriageClass;
    use crate::bridge::discovery::record::{AgentRecord, ProtocolRecord, ToolRecord};
    use crate::bridge::envelope::ProtocolId;

    fn record(id: &[u8], revision: u64, body: Body) -> Record {
        Record {
            record_id: RecordId::new(id).unwrap(),
            revision,
            label: None,
            body,
        }
    }

    fn records() -> Vec<Record> {
        vec![
            record(
                b"p",
                1,
                Body::Protocol(ProtocolRecord {
                    protocol_id: ProtocolId(2),
                    carriage_class: CarriageClass::JSONRPC,
                    channels: None,
                    content_types: Some(vec![1]),
                    methods: Some(vec!["tasks/get".into()]),
                }),
            ),
            record(
                b"t",
                3,
                Body::Tool(ToolRecord {
                    name: "a\u{1b}[31mb".into(),
                    protocol_id: ProtocolId(9),
                    effect: None,
                    schema_ref: None,
                }),
            ),
            record(
                &[0, 0xff],
                12,
                Body::Agent(AgentRecord {
                    agent_id: b"literature"[..].into(),
                    protocols: vec![2, 1],
                    tools: Some(vec![
                        RecordId::new(b"t").unwrap(),
                        RecordId::new(b"gone").unwrap(),
                    ]),
                }),
            ),
        ]
    }

    /// NPAMP-DISC §5.1, §5.3, §5.4: the default channel, an effect that is not said, and a
    /// reference that dangles; nothing a peer wrote moves the cursor.
    #[test]
    fn records_as_a_table() {
        let expected = "\
KIND      NAME          PROTOCOL           CLASS    CHANNELS  REVISION  DETAILS
protocol  -             0x02 A2A           JSONRPC  0x000d    1         methods tasks/get
tool      a\\u{1b}[31mb  0x09               -        -         3         effect unstated
agent     literature    0x02 A2A,0x01 MCP  -        -         12        tools t,gone?
";
        assert_eq!(table(&records()), expected);
    }

    #[test]
    fn records_as_json() {
        let lines = json_lines(&records());
        let lines: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                json!({"record_id": "p", "kind": "protocol", "revision": 1, "protocol_id": 2,
                    "carriage_class": 1, "content_types": [1], "methods": ["tasks/get"]}),
                json!({"record_id": "t", "kind": "tool", "revision": 3, "protocol_id": 9,
                    "name": "a\u{1b}[31mb"}),
                json!({"record_id": "0x00ff", "kind": "agent", "revision": 12,
                    "agent_id": "literature", "protocols": [2, 1], "tools": ["t", "gone"]}),
            ]
        );
    }
}
