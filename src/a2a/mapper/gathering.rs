//! The common case of a consumer's stream: its next event, which changes nothing
//! else. Such events are gathered in one output until it is taken, and their frames
//! stay where they lie. Serves NPAMP-CC-STREAM §5, NPAMP-CC-JSONRPC §5.
//!
//! Never refuses anything: what is not plainly the next event of a stream goes the
//! way of every reply (`requester`), which finds what is wrong with it.

use super::Mapper;
use super::requester::Call;
use crate::a2a::events::StreamEvents;
use crate::a2a::json_rpc::{self, Id};
use crate::a2a::port::{AssociationId, Output};
use crate::bridge::envelope::{ContentType, MessageKind, ProtocolId};
use crate::bridge::payload::{self, Payload};
use crate::bridge::requester::Outstanding;
use crate::bridge::stream_control::Control;
use crate::wire::ChannelId;

impl Mapper {
    /// Takes a frame that is the next event of a stream of ours; false when it is
    /// anything else, and nothing has happened.
    pub(super) fn next_event(
        &mut self,
        id: AssociationId,
        channel: ChannelId,
        frame_type: u16,
        octets: &[u8],
    ) -> bool {
        if channel != ChannelId::BRIDGE || frame_type != MessageKind::StreamData.frame_type() {
            return false;
        }
        let Some(association) = self.associations.get_mut(&id) else {
            return false;
        };
        let tag = association.info.document_binding;
        let Ok(decoded) = payload::decode_with(frame_type, octets, tag) else {
            return false;
        };
        let correlation_id = decoded.envelope.correlation_id;
        let Some(entry) = association.requester.outstanding(correlation_id) else {
            return false;
        };
        let Some(event_id) = follows(entry, &decoded) else {
            return false;
        };
        if entry
            .stream
            .as_mut()
            .is_none_or(|stream| stream.accept(event_id).is_err())
        {
            return false;
        }
        let call = entry.value.name;
        let at = entry.value.gathering;
        let place = at
            .and_then(|at| usize::try_from(at.checked_sub(self.outputs_taken)?).ok())
            .and_then(|place| self.outputs.get_mut(place));
        match place {
            Some(Output::Events { events, .. }) if events.admits(decoded.foreign.len()) => {
                events.push(event_id, decoded.foreign);
            }
            _ => {
                entry.value.gathering = Some(self.outputs_taken + self.outputs.len() as u64);
                let mut events = StreamEvents::default();
                events.push(event_id, decoded.foreign);
                self.outputs.push_back(Output::Events { call, events });
            }
        }
        true
    }
}

/// The event_id, if this is the next event of a stream that goes on as it did.
fn follows(entry: &Outstanding<Call>, decoded: &Payload<'_>) -> Option<u64> {
    let envelope = &decoded.envelope;
    let control = decoded.stream_control?;
    let last = entry.stream?.last_event_id();
    let plain = !entry.value.document
        && envelope.protocol_id == ProtocolId::A2A
        && envelope.content_type == ContentType::JSON
        && control.control == Control::Data
        && !control.cancel_ack
        && control.resumable == entry.value.resumable
        && control.event_id > last
        && control.event_id != u64::MAX;
    let id = entry.value.id.as_deref().filter(|_| plain)?;
    let response = json_rpc::scan_response(decoded.foreign).ok()?;
    let answers = !response.outcome.is_error() && response.answers(Id::from_token(id));
    answers.then_some(control.event_id)
}
