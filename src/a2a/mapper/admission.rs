//! What a peer's request must pass before it reaches an agent: envelope, form,
//! method and policy, in that order. Serves NPAMP-BRIDGE §6, §7, NPAMP-CC-JSONRPC
//! §3, §4, §7, NPAMP-CC-DOC §6.1, NPAMP-MAP-A2A §3–§5 and rulings R10, R12, R13, R16.

use super::Mapper;
use super::responder::Want;
use crate::a2a::config::{AgentVersion, UnknownMethods};
use crate::a2a::json_rpc;
use crate::a2a::method::{self, CARD_METHOD, Operation, Version};
use crate::a2a::port::{
    AssociationId, AssociationInfo, DispatchAction, Label, ServiceParameters, Side, Target,
};
use crate::a2a::stats::Refusal;
use crate::bridge::correlation::CorrelationId;
use crate::bridge::envelope::{ContentType, ProtocolId};
use crate::bridge::payload::Payload;
use crate::bridge::safety::Effect;
use crate::bridge::stream_control::Control;
use crate::wire::ChannelId;
use bytes::Bytes;

/// A request that passed every check.
pub(super) struct Admitted {
    pub(super) target: Target,
    pub(super) operation: Operation,
    pub(super) action: DispatchAction,
    pub(super) want: Want,
    pub(super) octets: usize,
    pub(super) version: Option<Version>,
    /// The request's own label.
    pub(super) label: Option<Label>,
}

impl Mapper {
    pub(super) fn admit_request(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        octets: &Bytes,
        decoded: &Payload<'_>,
    ) -> Result<Admitted, Refusal> {
        let envelope = &decoded.envelope;
        self.admit_envelope(id, decoded)?;
        match decoded.stream_control.map(|control| control.control) {
            Some(Control::Resume | Control::Cancel) => return Err(Refusal::ControlMisplaced),
            Some(Control::Data) | None => {}
        }
        if decoded.document_binding.is_some() {
            return Err(Refusal::BindingOnRequest);
        }
        let correlation_id =
            CorrelationId::new(envelope.correlation_id).ok_or(Refusal::EnvelopeMalformed)?;
        let association = self
            .associations
            .get_mut(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        if association
            .responder(channel)
            .contains(envelope.correlation_id)
        {
            return Err(Refusal::CorrelationOutstanding);
        }
        let label = decoded.safety.map(|label| label.effect);
        if envelope.method == CARD_METHOD && decoded.foreign.is_empty() {
            if association.info.document_binding.is_none() {
                return Err(Refusal::NoDocumentAgreement);
            }
            let effect = label.unwrap_or(Effect::READ_ONLY);
            if !association.allow.contains(effect) {
                return Err(Refusal::SafetyPolicy);
            }
            return Ok(Admitted {
                target: self.target_of(id)?,
                operation: Operation::Card,
                action: DispatchAction::Card,
                want: Want::Card { correlation_id },
                octets: 0,
                version: None,
                label: decoded.safety.as_ref().map(Label::of),
            });
        }
        let agreed = association.info.document_binding.is_some();
        let extended_card = agreed && method::operation(envelope.method) == Operation::ExtendedCard;
        if channel == ChannelId::DISCOVERY && !extended_card {
            return Err(Refusal::DiscoveryChannel);
        }
        let scanned = self.admit_object(id, decoded)?;
        let id_token = scanned.id.ok_or(Refusal::NotJsonRpc)?.token();
        let row = method::lookup(&scanned.method);
        let held = decoded.foreign.len() + id_token.len();
        Ok(Admitted {
            target: self.target_of(id)?,
            operation: method::operation(&scanned.method),
            action: DispatchAction::Request {
                object: octets.slice_ref(decoded.foreign),
            },
            want: if extended_card {
                Want::ExtendedCard {
                    correlation_id,
                    id: id_token.into(),
                }
            } else {
                Want::Reply {
                    correlation_id,
                    id: id_token.into(),
                    effect: method::judged_effect(&scanned.method, label),
                    method: scanned.method.into(),
                }
            },
            octets: held,
            version: row.map(|row| row.version),
            label: decoded.safety.as_ref().map(Label::of),
        })
    }

    pub(super) fn admit_notification(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        octets: &Bytes,
        decoded: &Payload<'_>,
    ) -> Result<Admitted, Refusal> {
        self.admit_envelope(id, decoded)?;
        if decoded.document_binding.is_some() || channel == ChannelId::DISCOVERY {
            // A pushed document; nobody here consumes one.
            return Err(Refusal::DiscoveryChannel);
        }
        if decoded
            .stream_control
            .is_some_and(|control| control.control != Control::Data)
        {
            return Err(Refusal::ControlMisplaced);
        }
        let scanned = self.admit_object(id, decoded)?;
        if scanned.id.is_some() {
            return Err(Refusal::NotJsonRpc);
        }
        let row = method::lookup(&scanned.method);
        Ok(Admitted {
            target: self.target_of(id)?,
            operation: method::operation(&scanned.method),
            action: DispatchAction::Notification {
                object: octets.slice_ref(decoded.foreign),
            },
            want: Want::Nothing,
            octets: decoded.foreign.len(),
            version: row.map(|row| row.version),
            label: decoded.safety.as_ref().map(Label::of),
        })
    }

    pub(super) fn admit_envelope(
        &self,
        id: AssociationId,
        decoded: &Payload<'_>,
    ) -> Result<(), Refusal> {
        let carries = self
            .associations
            .get(&id)
            .is_some_and(|association| association.info.carries_a2a);
        if decoded.envelope.protocol_id != ProtocolId::A2A || !carries {
            return Err(Refusal::ProtocolNotCarried);
        }
        if decoded.envelope.content_type != ContentType::JSON {
            return Err(Refusal::ContentType);
        }
        Ok(())
    }

    /// The object's form, its method against the envelope's, and policy.
    pub(super) fn admit_object<'a>(
        &self,
        id: AssociationId,
        decoded: &Payload<'a>,
    ) -> Result<json_rpc::Request<'a>, Refusal> {
        if decoded.foreign.len() > self.config.foreign_message_octets {
            return Err(Refusal::TooLarge);
        }
        let scanned = json_rpc::scan_request(decoded.foreign).map_err(|error| {
            self.stats.scan_errors.count(error);
            Refusal::NotJsonRpc
        })?;
        if scanned.method != decoded.envelope.method {
            return Err(Refusal::MethodDiffers);
        }
        self.admit_effect(id, &scanned.method, decoded)?;
        Ok(scanned)
    }

    /// The method and its effect against policy.
    pub(super) fn admit_effect(
        &self,
        id: AssociationId,
        name: &str,
        decoded: &Payload<'_>,
    ) -> Result<(), Refusal> {
        if self.config.unknown_methods == UnknownMethods::Refuse && method::lookup(name).is_none() {
            return Err(Refusal::MethodUnknown);
        }
        let label = decoded.safety.map(|label| label.effect);
        let effect = method::judged_effect(name, label);
        let allowed = self
            .associations
            .get(&id)
            .is_some_and(|association| association.allow.contains(effect));
        if allowed {
            Ok(())
        } else {
            Err(Refusal::SafetyPolicy)
        }
    }

    /// The agent, or the route to an upstream, behind the association's server name (ruling R12).
    pub(super) fn target_of(&self, id: AssociationId) -> Result<Target, Refusal> {
        let association = self
            .associations
            .get(&id)
            .ok_or(Refusal::AssociationUnknown)?;
        if association.info.side == Side::Initiator && !self.config.serve_initiated {
            return Err(Refusal::NoAgent);
        }
        association.target.ok_or(Refusal::NoAgent)
    }
}

/// Service parameters for the agent (ruling R13): what the initiator stated,
/// exactly; without HELLO the version follows the agent's setting, else the method's spelling.
pub(super) fn parameters(
    info: &AssociationInfo,
    agent: AgentVersion,
    method: Option<Version>,
) -> ServiceParameters {
    if info.hello {
        return info.parameters.clone();
    }
    let version = match agent {
        AgentVersion::V10 => Some(Version::V10),
        AgentVersion::V03 => Some(Version::V03),
        AgentVersion::Auto => method,
    };
    let lines = match version {
        Some(Version::V10) => vec![("a2a-version".to_owned(), "1.0".to_owned())],
        // An empty version means 0.3.
        Some(Version::V03) | None => Vec::new(),
    };
    ServiceParameters { lines, hops: 0 }
}
