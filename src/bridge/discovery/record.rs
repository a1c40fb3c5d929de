//! Discovery Records: what a peer says that it carries, implements, exposes or
//! hosts. A claim, not an authorization, and a missing `effect` is never
//! read_only. Serves NPAMP-DISC §5 and §10.

use super::error::FrameError;
use super::fields::{self, Read};
use crate::bridge::envelope::ProtocolId;
use crate::bridge::safety::Effect;
use crate::limits::{
    DISCOVERY_AGENT_ID_OCTETS_MAX, DISCOVERY_LIST_ENTRIES_MAX, DISCOVERY_RECORD_ID_OCTETS_MAX,
};
use crate::wire::cbor::MapWriter;
use minicbor::Decoder;
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Names a record over its lifetime: 1–32 octets, unique among what one peer
/// advertises on one association.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId(Arc<[u8]>);

impl RecordId {
    /// `None` when empty or too long.
    pub fn new(octets: &[u8]) -> Option<Self> {
        (1..=DISCOVERY_RECORD_ID_OCTETS_MAX)
            .contains(&octets.len())
            .then(|| Self(octets.into()))
    }

    /// The octets.
    pub fn as_octets(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for RecordId {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// Kind of a record (§5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKind(pub u64);

impl RecordKind {
    /// §5.1.
    pub const PROTOCOL: Self = Self(1);
    /// §5.2.
    pub const CARRIAGE_CLASS: Self = Self(2);
    /// §5.3.
    pub const TOOL: Self = Self(3);
    /// §5.4.
    pub const AGENT: Self = Self(4);

    /// Whether it is one of the four.
    pub fn is_known(self) -> bool {
        (1..=4).contains(&self.0)
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::PROTOCOL => "protocol",
            Self::CARRIAGE_CLASS => "carriage-class",
            Self::TOOL => "tool",
            Self::AGENT => "agent",
            _ => "unknown",
        }
    }
}

/// A carriage class by number; the registry's table in its order (ruling R10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CarriageClass(pub u64);

impl CarriageClass {
    /// NPAMP-CC-JSONRPC.
    pub const JSONRPC: Self = Self(1);
    /// NPAMP-CC-STREAM.
    pub const STREAM: Self = Self(4);
    /// NPAMP-CC-DOC.
    pub const DOC: Self = Self(5);

    /// For people.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "JSONRPC",
            2 => "HTTP",
            3 => "MSG",
            4 => "STREAM",
            5 => "DOC",
            6 => "OPAQUE",
            _ => "unknown",
        }
    }
}

/// What is said of a protocol (§5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolRecord {
    /// As in the BridgeEnvelope.
    pub protocol_id: ProtocolId,
    /// The class that it is carried under.
    pub carriage_class: CarriageClass,
    /// Channels; Bridge alone when absent.
    pub channels: Option<Vec<u64>>,
    /// content_type values that are accepted.
    pub content_types: Option<Vec<u64>>,
    /// Methods, where the peer enumerates them.
    pub methods: Option<Vec<String>>,
}

/// What is said of a carriage class (§5.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriageClassRecord {
    /// The class.
    pub carriage_class: CarriageClass,
    /// content_type values that are accepted.
    pub content_types: Option<Vec<u64>>,
}

/// What is said of a tool (§5.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolRecord {
    /// Its invocation name.
    pub name: String,
    /// The protocol that invokes it.
    pub protocol_id: ProtocolId,
    /// As advertised; see [`ToolRecord::effect_or_destructive`].
    pub effect: Option<u64>,
    /// Where its schema is.
    pub schema_ref: Option<String>,
}

impl ToolRecord {
    /// The effect that policy may assume: absent and unregistered ones are destructive
    /// (§5.3, §10, NPAMP-BRIDGE §7).
    pub fn effect_or_destructive(&self) -> Effect {
        self.effect
            .and_then(|effect| u8::try_from(effect).ok())
            .map_or(Effect::DESTRUCTIVE, |effect| {
                Effect(effect).or_destructive()
            })
    }
}

/// What is said of an agent (§5.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    /// 1–64 octets, opaque.
    pub agent_id: Arc<[u8]>,
    /// protocol_id values that reach it, one at least.
    pub protocols: Vec<u64>,
    /// Its tools by record_id. One without a record is dangling: nothing is made of it.
    pub tools: Option<Vec<RecordId>>,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// §5.1.
    Protocol(ProtocolRecord),
    /// §5.2.
    CarriageClass(CarriageClassRecord),
    /// §5.3.
    Tool(ToolRecord),
    /// §5.4.
    Agent(AgentRecord),
    /// Of a kind that this revision does not know.
    Unknown {
        /// Not one of the four.
        kind: RecordKind,
        /// The encoded map.
        octets: Vec<u8>,
    },
}

/// One record (§5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What it is replaced and withdrawn by.
    pub record_id: RecordId,
    /// Greater with each change.
    pub revision: u64,
    /// For people; never an identifier.
    pub label: Option<String>,
    /// What it says.
    pub body: Body,
}

impl Record {
    /// Its kind.
    pub fn kind(&self) -> RecordKind {
        match &self.body {
            Body::Protocol(_) => RecordKind::PROTOCOL,
            Body::CarriageClass(_) => RecordKind::CARRIAGE_CLASS,
            Body::Tool(_) => RecordKind::TOOL,
            Body::Agent(_) => RecordKind::AGENT,
            Body::Unknown { kind, .. } => *kind,
        }
    }

    /// Whether the record says that its peer carries the protocol, or an agent does.
    pub fn names_protocol(&self, protocol_id: ProtocolId) -> bool {
        match &self.body {
            Body::Protocol(protocol) => protocol.protocol_id == protocol_id,
            Body::Agent(agent) => agent.protocols.contains(&u64::from(protocol_id.0)),
            Body::CarriageClass(_) | Body::Tool(_) | Body::Unknown { .. } => false,
        }
    }

    /// Its length, encoded, in octets.
    pub fn octets(&self) -> usize {
        let mut out = Vec::new();
        self.encode(&mut out);
        out.len()
    }

    /// Appends the map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new();
        fields::put_octets(&mut map, 0, self.record_id.as_octets());
        map.entry(1_u64, self.kind().0);
        map.entry(2_u64, self.revision);
        fields::put_some(&mut map, 3, self.label.as_deref());
        map.entry_octets(4_u64, self.body.encode());
        map.write(out);
    }

    /// Reads one map out of octets that were found deterministic.
    pub(super) fn decode(decoder: &mut Decoder<'_>) -> Read<Self> {
        let (mut record_id, mut kind, mut revision) = (None, None, None);
        let (mut label, mut body) = (None, None);
        fields::map(decoder, |key, decoder| {
            match key {
                0 => {
                    let octets = fields::octets(decoder, DISCOVERY_RECORD_ID_OCTETS_MAX)?;
                    record_id = RecordId::new(octets);
                }
                1 => kind = Some(RecordKind(fields::uint(decoder)?)),
                2 => revision = Some(fields::uint(decoder)?),
                3 => label = Some(fields::text(decoder)?),
                4 => body = Some(fields::raw(decoder)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let (Some(record_id), Some(kind), Some(revision), Some(body)) =
            (record_id, kind, revision, body)
        else {
            return Err(FrameError::Missing);
        };
        Ok(Self {
            record_id,
            revision,
            label,
            body: Body::decode(kind, body)?,
        })
    }
}

impl Body {
    fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::new();
        match self {
            Self::Protocol(protocol) => {
                map.entry(0_u64, protocol.protocol_id.0);
                map.entry(1_u64, protocol.carriage_class.0);
                fields::put_some(&mut map, 2, protocol.channels.as_deref());
                fields::put_some(&mut map, 3, protocol.content_types.as_deref());
                fields::put_some(&mut map, 4, protocol.methods.as_deref());
            }
            Self::CarriageClass(class) => {
                map.entry(0_u64, class.carriage_class.0);
                fields::put_some(&mut map, 1, class.content_types.as_deref());
            }
            Self::Tool(tool) => {
                map.entry(0_u64, tool.name.as_str());
                map.entry(1_u64, tool.protocol_id.0);
                fields::put_some(&mut map, 2, tool.effect);
                fields::put_some(&mut map, 3, tool.schema_ref.as_deref());
            }
            Self::Agent(agent) => {
                fields::put_octets(&mut map, 0, &agent.agent_id);
                map.entry(1_u64, agent.protocols.as_slice());
                if let Some(tools) = &agent.tools {
                    let tools = fields::octet_strings(tools.iter().map(RecordId::as_octets));
                    map.entry_octets(2_u64, tools);
                }
            }
            Self::Unknown { octets, .. } => return octets.clone(),
        }
        let mut out = Vec::new();
        map.write(&mut out);
        out
    }

    fn decode(kind: RecordKind, octets: &[u8]) -> Read<Self> {
        let decoder = &mut Decoder::new(octets);
        match kind {
            RecordKind::PROTOCOL => protocol(decoder).map(Self::Protocol),
            RecordKind::CARRIAGE_CLASS => carriage_class(decoder).map(Self::CarriageClass),
            RecordKind::TOOL => tool(decoder).map(Self::Tool),
            RecordKind::AGENT => agent(decoder).map(Self::Agent),
            _ if octets.first().is_none_or(|initial| initial >> 5 != 5) => {
                Err(FrameError::FieldType)
            }
            _ => Ok(Self::Unknown {
                kind,
                octets: octets.to_vec(),
            }),
        }
    }
}

fn protocol_id(decoder: &mut Decoder<'_>) -> Read<ProtocolId> {
    u8::try_from(fields::uint(decoder)?)
        .map(ProtocolId)
        .map_err(|_| FrameError::Range)
}

fn protocol(decoder: &mut Decoder<'_>) -> Read<ProtocolRecord> {
    let (mut id, mut class) = (None, None);
    let (mut channels, mut content_types, mut methods) = (None, None, None);
    fields::map(decoder, |key, decoder| {
        match key {
            0 => id = Some(protocol_id(decoder)?),
            1 => class = Some(CarriageClass(fields::uint(decoder)?)),
            2 => channels = Some(fields::uints(decoder)?),
            3 => content_types = Some(fields::uints(decoder)?),
            4 => {
                let list = fields::array(decoder, DISCOVERY_LIST_ENTRIES_MAX, fields::text)?;
                methods = Some(list);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(ProtocolRecord {
        protocol_id: id.ok_or(FrameError::Missing)?,
        carriage_class: class.ok_or(FrameError::Missing)?,
        channels,
        content_types,
        methods,
    })
}

fn carriage_class(decoder: &mut Decoder<'_>) -> Read<CarriageClassRecord> {
    let (mut class, mut content_types) = (None, None);
    fields::map(decoder, |key, decoder| {
        match key {
            0 => class = Some(CarriageClass(fields::uint(decoder)?)),
            1 => content_types = Some(fields::uints(decoder)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(CarriageClassRecord {
        carriage_class: class.ok_or(FrameError::Missing)?,
        content_types,
    })
}

fn tool(decoder: &mut Decoder<'_>) -> Read<ToolRecord> {
    let (mut name, mut id, mut effect, mut schema_ref) = (None, None, None, None);
    fields::map(decoder, |key, decoder| {
        match key {
            0 => name = Some(fields::text(decoder)?),
            1 => id = Some(protocol_id(decoder)?),
            2 => effect = Some(fields::uint(decoder)?),
            3 => schema_ref = Some(fields::text(decoder)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(ToolRecord {
        name: name.ok_or(FrameError::Missing)?,
        protocol_id: id.ok_or(FrameError::Missing)?,
        effect,
        schema_ref,
    })
}

fn agent(decoder: &mut Decoder<'_>) -> Read<AgentRecord> {
    let (mut agent_id, mut protocols, mut tools) = (None, None, None);
    fields::map(decoder, |key, decoder| {
        match key {
            0 => {
                let octets = fields::octets(decoder, DISCOVERY_AGENT_ID_OCTETS_MAX)?;
                agent_id = Some(Arc::from(octets));
            }
            1 => protocols = Some(fields::uints(decoder)?),
            2 => {
                let list = fields::array(decoder, DISCOVERY_LIST_ENTRIES_MAX, record_id)?;
                tools = Some(list);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let protocols: Vec<u64> = protocols.ok_or(FrameError::Missing)?;
    if protocols.is_empty() {
        return Err(FrameError::Range);
    }
    Ok(AgentRecord {
        agent_id: agent_id.ok_or(FrameError::Missing)?,
        protocols,
        tools,
    })
}

pub(super) fn record_id(decoder: &mut Decoder<'_>) -> Read<RecordId> {
    let octets = fields::octets(decoder, DISCOVERY_RECORD_ID_OCTETS_MAX)?;
    RecordId::new(octets).ok_or(FrameError::Range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(effect: Option<u64>) -> ToolRecord {
        ToolRecord {
            name: "t".into(),
            protocol_id: ProtocolId(1),
            effect,
            schema_ref: None,
        }
    }

    /// NPAMP-DISC §5.3, §10, NPAMP-BRIDGE §7: what is not said is not read_only.
    #[test]
    fn a_missing_effect_is_destructive() {
        assert_eq!(
            tool(None).effect_or_destructive(),
            Effect::DESTRUCTIVE,
            "absent"
        );
        for (effect, judged) in [(0, 0), (1, 1), (3, 3), (4, 3), (256, 3), (u64::MAX, 3)] {
            assert_eq!(
                tool(Some(effect)).effect_or_destructive(),
                Effect(judged),
                "{effect}"
            );
        }
    }

    #[test]
    fn record_ids_are_bounded() {
        assert!(RecordId::new(b"").is_none());
        assert!(RecordId::new(&[0; 33]).is_none());
        assert_eq!(RecordId::new(&[0; 32]).unwrap().as_octets(), [0; 32]);
    }

    /// NPAMP-DISC §5: an unknown kind is a value, and its body any map.
    #[test]
    fn unknown_kinds_are_values() {
        // {0: 'a', 1: 9, 2: 1, 4: {"x": 1}}
        let octets = [
            &[0xa4, 0, 0x41, b'a', 1, 9, 2, 1, 4][..],
            &[0xa1, 0x61, b'x', 1],
        ]
        .concat();
        let record = Record::decode(&mut Decoder::new(&octets)).unwrap();
        assert_eq!(record.kind(), RecordKind(9));
        let mut again = Vec::new();
        record.encode(&mut again);
        assert_eq!(again, octets);
        let no_map = [0xa4, 0, 0x41, b'a', 1, 9, 2, 1, 4, 0];
        assert_eq!(
            Record::decode(&mut Decoder::new(&no_map)),
            Err(FrameError::FieldType)
        );
    }
}
