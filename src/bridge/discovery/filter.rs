//! The filter of a query or subscription: conjunctive, and each field restricts
//! only the kinds that it is about. Serves NPAMP-DISC §6.1.

use super::record::{Body, Record, RecordKind};

/// Which records are wanted; every one when empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these kinds.
    pub kinds: Option<Vec<RecordKind>>,
    /// Of protocols, tools and agents, only those that name one of these.
    pub protocol_ids: Option<Vec<u64>>,
    /// Of tools and agents, only those whose name or agent_id begins with these octets.
    pub name_prefix: Option<String>,
}

impl Filter {
    /// Whether the record satisfies every field that is present. One of an unknown
    /// kind is judged by its kind alone.
    pub fn matches(&self, record: &Record) -> bool {
        self.admits_kind(record) && self.admits_protocol(record) && self.admits_name(record)
    }

    /// Whether it asks for a kind that this revision does not know.
    pub fn names_unknown_kind(&self) -> bool {
        self.kinds
            .as_ref()
            .is_some_and(|kinds| kinds.iter().any(|kind| !kind.is_known()))
    }

    fn admits_kind(&self, record: &Record) -> bool {
        self.kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&record.kind()))
    }

    fn admits_protocol(&self, record: &Record) -> bool {
        let Some(wanted) = &self.protocol_ids else {
            return true;
        };
        match &record.body {
            Body::Protocol(protocol) => wanted.contains(&u64::from(protocol.protocol_id.0)),
            Body::Tool(tool) => wanted.contains(&u64::from(tool.protocol_id.0)),
            Body::Agent(agent) => agent.protocols.iter().any(|id| wanted.contains(id)),
            Body::CarriageClass(_) | Body::Unknown { .. } => true,
        }
    }

    fn admits_name(&self, record: &Record) -> bool {
        let Some(prefix) = &self.name_prefix else {
            return true;
        };
        match &record.body {
            Body::Tool(tool) => tool.name.as_bytes().starts_with(prefix.as_bytes()),
            Body::Agent(agent) => agent.agent_id.starts_with(prefix.as_bytes()),
            Body::Protocol(_) | Body::CarriageClass(_) | Body::Unknown { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{
        AgentRecord, CarriageClass, CarriageClassRecord, ProtocolRecord, RecordId, ToolRecord,
    };
    use super::*;
    use crate::bridge::envelope::ProtocolId;

    fn set() -> Vec<Record> {
        let bodies = [
            Body::Protocol(ProtocolRecord {
                protocol_id: ProtocolId(2),
                carriage_class: CarriageClass::JSONRPC,
                channels: None,
                content_types: None,
                methods: None,
            }),
            Body::CarriageClass(CarriageClassRecord {
                carriage_class: CarriageClass::DOC,
                content_types: None,
            }),
            Body::Tool(ToolRecord {
                name: "lit/search".into(),
                protocol_id: ProtocolId(1),
                effect: None,
                schema_ref: None,
            }),
            Body::Agent(AgentRecord {
                agent_id: b"literature"[..].into(),
                protocols: vec![2, 7],
                tools: None,
            }),
        ];
        (1..)
            .zip(bodies)
            .map(|(n, body)| Record {
                record_id: RecordId::new(&[n]).unwrap(),
                revision: 1,
                label: None,
                body,
            })
            .collect()
    }

    fn kinds_left(filter: &Filter) -> Vec<u64> {
        set()
            .iter()
            .filter(|record| filter.matches(record))
            .map(|record| record.kind().0)
            .collect()
    }

    /// NPAMP-DISC §6.1: each field restricts its kinds, and all of them together.
    #[test]
    fn filters_are_conjunctive() {
        let all = Filter::default();
        assert_eq!(kinds_left(&all), [1, 2, 3, 4]);
        let kinds = |kinds: &[u64]| Some(kinds.iter().map(|&kind| RecordKind(kind)).collect());
        let prefix = |prefix: &str| Some(prefix.to_owned());
        for (k, protocol_ids, name_prefix, left) in [
            (kinds(&[4, 2]), None, None, &[2, 4][..]),
            (kinds(&[]), None, None, &[]),
            (None, Some(vec![2]), None, &[1, 2, 4]),
            (None, Some(vec![7]), None, &[2, 4]),
            (None, Some(vec![1, 9]), None, &[2, 3]),
            (None, None, prefix("lit"), &[1, 2, 3, 4]),
            (None, None, prefix("liter"), &[1, 2, 4]),
            (None, None, prefix("x"), &[1, 2]),
            (kinds(&[3, 4]), None, prefix("lit/"), &[3]),
            (kinds(&[4]), Some(vec![2]), prefix("literature"), &[4]),
            (kinds(&[4]), Some(vec![3]), prefix("literature"), &[]),
            (kinds(&[4]), Some(vec![2]), prefix("literatures"), &[]),
        ] {
            let filter = Filter {
                kinds: k,
                protocol_ids,
                name_prefix,
            };
            assert_eq!(kinds_left(&filter), left, "{filter:?}");
        }
    }
}
