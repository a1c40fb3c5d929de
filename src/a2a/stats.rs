//! What mappers count: exchanges by operation and outcome, refusals, faulty
//! replies and dropped frames by reason.

use crate::a2a::json_rpc::ScanError;
use crate::a2a::method::Operation;
use crate::bridge::discovery::FrameError;
use crate::bridge::discovery::error::ErrorReason;
use crate::bridge::document::DocumentError;
use crate::bridge::error::BridgeError;
use crate::bridge::transport_error::TransportCode;
use crate::reasons;
use crate::stats::{Counters, Gauge, Reason};
use std::time::Duration;

reasons! {
    /// How an exchange ended.
    pub enum Outcome {
        /// A success Response.
        Response => "response",
        /// A foreign error Response.
        ErrorResponse => "error_response",
        /// A document set.
        Document => "document",
        /// A stream came to its orderly end.
        StreamEnd => "stream_end",
        /// A stream ended with a foreign error Response.
        StreamError => "stream_error",
        /// A transport error, in mid-stream too.
        TransportError => "transport_error",
        /// A notification was handed on.
        Notified => "notified",
        /// The caller left, or the consumer cancelled.
        Abandoned => "abandoned",
        /// The association went away.
        AssociationLost => "association_lost",
    }
}

reasons! {
    /// Why a call or a peer's request was refused, and nothing was carried or delivered.
    #[derive(thiserror::Error)]
    pub enum Refusal {
        /// The association is not up.
        #[error("the association is not up")]
        AssociationUnknown => "association_unknown",
        /// Envelope, SafetyLabel or StreamControl malformed.
        #[error("malformed bridge payload")]
        EnvelopeMalformed => "envelope_malformed",
        /// DocumentBinding malformed.
        #[error("malformed DocumentBinding")]
        BindingMalformed => "binding_malformed",
        /// A DocumentBinding on a request (NPAMP-CC-DOC §6.1).
        #[error("a request carries a DocumentBinding")]
        BindingOnRequest => "binding_on_request",
        /// Another protocol_id, or a peer that did not list A2A.
        #[error("the protocol is not carried")]
        ProtocolNotCarried => "protocol_not_carried",
        /// content_type is not application/json.
        #[error("content_type is not application/json")]
        ContentType => "content_type",
        /// The foreign message is not the JSON-RPC object that the frame type asks for.
        #[error("the foreign message is not the expected JSON-RPC object")]
        NotJsonRpc => "not_json_rpc",
        /// The envelope's method is not the object's.
        #[error("the envelope's method is not the object's")]
        MethodDiffers => "method_differs",
        /// A cancel in a request.
        #[error("a request cannot carry a cancel")]
        ControlMisplaced => "control_misplaced",
        /// The correlation_id is outstanding.
        #[error("the correlation_id is outstanding")]
        CorrelationOutstanding => "correlation_outstanding",
        /// An unlisted method under `unknown_methods = "refuse"`.
        #[error("the method is not carried")]
        MethodUnknown => "method_unknown",
        /// A method longer than the envelope's field.
        #[error("the method is longer than 255 octets")]
        MethodTooLong => "method_too_long",
        /// A card without agreement on the DocumentBinding tag.
        #[error("no agreement on the DocumentBinding tag")]
        NoDocumentAgreement => "no_document_agreement",
        /// Anything but a card request on the Discovery channel.
        #[error("only cards are carried on the Discovery channel")]
        DiscoveryChannel => "discovery_channel",
        /// Policy does not allow the effect.
        #[error("policy does not allow the effect")]
        SafetyPolicy => "safety_policy",
        /// A resume request for a stream that cannot be resumed.
        #[error("the stream cannot be resumed")]
        NotResumable => "not_resumable",
        /// A resume request whose cursor is beyond what was sent.
        #[error("the cursor is beyond what was sent")]
        CursorAhead => "cursor_ahead",
        /// The peer's own records name other protocols only.
        #[error("the peer advertises no A2A")]
        ProtocolNotAdvertised => "protocol_not_advertised",
        /// The peer's own records name other carriage classes only.
        #[error("the peer advertises no documents")]
        DocumentsNotAdvertised => "documents_not_advertised",
        /// A discovery query to a peer without the Discovery channel.
        #[error("the peer does not offer the Discovery channel")]
        NoDiscovery => "no_discovery",
        /// Too many outstanding exchanges.
        #[error("too many outstanding exchanges")]
        ExchangesFull => "exchanges_full",
        /// Over the octet budget.
        #[error("over the memory budget")]
        OctetsFull => "octets_full",
        /// The foreign message is too large.
        #[error("the message is too large")]
        TooLarge => "too_large",
        /// No agent for the server name.
        #[error("no agent for the server name")]
        NoAgent => "no_agent",
        /// The exchange has passed as many transit relays as it may.
        #[error("the exchange has passed too many relays")]
        TooManyHops => "too_many_hops",
    }
}

impl Refusal {
    /// The transport error that says so.
    pub fn transport_code(self) -> TransportCode {
        match self {
            Self::EnvelopeMalformed
            | Self::ContentType
            | Self::NotJsonRpc
            | Self::MethodDiffers
            | Self::ControlMisplaced
            | Self::CorrelationOutstanding => TransportCode::ENVELOPE_MALFORMED,
            Self::BindingMalformed | Self::BindingOnRequest => TransportCode::BINDING_MALFORMED,
            Self::ProtocolNotCarried | Self::ProtocolNotAdvertised => {
                TransportCode::PROTOCOL_UNSUPPORTED
            }
            Self::MethodUnknown
            | Self::MethodTooLong
            | Self::NoDocumentAgreement
            | Self::DocumentsNotAdvertised
            | Self::NoDiscovery
            | Self::DiscoveryChannel => TransportCode::METHOD_UNSUPPORTED,
            Self::SafetyPolicy => TransportCode::SAFETY_POLICY,
            Self::NotResumable | Self::CursorAhead => TransportCode::NOT_RESUMABLE,
            Self::AssociationUnknown
            | Self::ExchangesFull
            | Self::OctetsFull
            | Self::TooLarge
            | Self::NoAgent
            | Self::TooManyHops => TransportCode::NOT_DELIVERED,
        }
    }
}

reasons! {
    /// Why a peer's reply failed its exchange at our end (ruling R26).
    #[derive(thiserror::Error)]
    pub enum ReplyFault {
        /// Envelope, SafetyLabel, StreamControl or DocumentBinding malformed.
        #[error("the reply is malformed")]
        Malformed => "malformed",
        /// Another protocol_id than the request's.
        #[error("the reply is of another protocol")]
        Protocol => "protocol",
        /// content_type is not application/json.
        #[error("the reply's content_type is not application/json")]
        ContentType => "content_type",
        /// No JSON-RPC Response, or one of the wrong kind for its frame.
        #[error("the reply is not the JSON-RPC Response that its frame type says")]
        NotJsonRpc => "not_json_rpc",
        /// The Response's id is not the Request's.
        #[error("the reply's id is not the request's")]
        IdDiffers => "id_differs",
        /// A frame that the exchange's state does not expect.
        #[error("the reply does not fit the exchange's state")]
        Unexpected => "unexpected",
        /// A stream frame without StreamControl.
        #[error("the stream frame has no StreamControl")]
        StreamControlAbsent => "stream_control_absent",
        /// event_id did not rise.
        #[error("the event_id did not rise")]
        EventId => "event_id",
        /// A document set that does not verify.
        #[error("the document set does not verify")]
        Document => "document",
    }
}

reasons! {
    /// Why something was dropped without an answer.
    pub enum Dropped {
        /// A frame of an association that is not up.
        AssociationUnknown => "association_unknown",
        /// A frame on a channel that carries no bridge frames.
        Channel => "channel",
        /// A malformed or unadvertised discovery frame that is owed no answer.
        Discovery => "discovery",
        /// A frame type outside the Bridge namespace; answered with ERROR.
        NotABridgeFrame => "not_a_bridge_frame",
        /// A malformed frame that names no exchange.
        Malformed => "malformed",
        /// A malformed notification.
        NotifyMalformed => "notify_malformed",
        /// A notification that is not carried or not allowed.
        NotifyRefused => "notify_refused",
        /// A reply that no outstanding exchange waits for.
        LateReply => "late_reply",
        /// A reply to an exchange whose caller left.
        AbandonedReply => "abandoned_reply",
        /// A consumer's report on a document set that was sent.
        DocumentReport => "document_report",
        /// An event that came again after its stream was resumed.
        Repeat => "repeat",
        /// A cancel of an exchange that is complete.
        MootCancel => "moot_cancel",
        /// News of an agent that nobody waits for, such as events after the final one.
        AgentEvent => "agent_event",
    }
}

reasons! {
    /// What became of streams whose association went away.
    pub enum Resumption {
        /// A stream that we consume was kept although its association is gone.
        Parked => "parked",
        /// A stream that we consume was asked for again.
        Asked => "asked",
        /// A stream that we consume went on.
        Continued => "continued",
        /// The producer refused to go on.
        Refused => "refused",
        /// A stream that we consume was given up: no association came back.
        GivenUp => "given_up",
        /// A stream that we produce lost its association and was kept.
        Detached => "detached",
        /// A stream that we produce was resumed.
        Resumed => "resumed",
        /// A stream that we produce was not asked for again in time.
        Expired => "expired",
        /// A stream that we produce could not be kept within the bounds.
        Unkept => "unkept",
        /// The end of a stream that we produce was forgotten early, for room.
        Evicted => "evicted",
        /// A stream in transit ended because too much of it waited to be passed on.
        Lagged => "lagged",
    }
}

reasons! {
    /// What happens on the Discovery channel (NPAMP-DISC).
    pub enum DiscoveryEvent {
        /// DISCO_QUERY of a peer, further pages included.
        QueryReceived => "query_received",
        /// DISCO_SUBSCRIBE of a peer.
        SubscribeReceived => "subscribe_received",
        /// DISCO_UNSUBSCRIBE of a peer.
        UnsubscribeReceived => "unsubscribe_received",
        /// DISCO_ANNOUNCE of a peer.
        AnnounceReceived => "announce_received",
        /// DISCO_RESULT of a peer.
        ResultReceived => "result_received",
        /// DISCO_UPDATE of a peer.
        UpdateReceived => "update_received",
        /// DISCO_QUERY to a peer.
        QuerySent => "query_sent",
        /// DISCO_SUBSCRIBE to a peer.
        SubscribeSent => "subscribe_sent",
        /// DISCO_RESULT to a peer.
        ResultSent => "result_sent",
        /// DISCO_UPDATE to a peer.
        UpdateSent => "update_sent",
        /// DISCO_ANNOUNCE to a peer.
        AnnounceSent => "announce_sent",
        /// A record of a peer is new or replaces another.
        RecordTaken => "record_taken",
        /// A record of a peer whose revision is not greater than the one that is held.
        RecordStale => "record_stale",
        /// A record of a peer whose kind is not known.
        RecordUnknownKind => "record_unknown_kind",
        /// A record of a peer that there is no room for.
        RecordOverBound => "record_over_bound",
        /// A peer withdrew a record that was held.
        RecordWithdrawn => "record_withdrawn",
        /// A reply, update or unsubscription whose `corr` nobody knows.
        Unmatched => "unmatched",
        /// The record of an agent that cannot be reached was withdrawn.
        AgentWithdrawn => "agent_withdrawn",
        /// The record of an agent that answers again was put back.
        AgentReturned => "agent_returned",
    }
}

reasons! {
    /// How long an exchange took, first octet in to last octet out.
    pub enum Elapsed {
        /// Up to 1 ms.
        Ms1 => "0.001",
        /// Up to 5 ms.
        Ms5 => "0.005",
        /// Up to 25 ms.
        Ms25 => "0.025",
        /// Up to 100 ms.
        Ms100 => "0.1",
        /// Up to 500 ms.
        Ms500 => "0.5",
        /// Up to 2.5 s.
        Ms2500 => "2.5",
        /// Up to 10 s.
        S10 => "10",
        /// Up to 60 s.
        S60 => "60",
        /// Longer.
        More => "+Inf",
    }
}

impl Elapsed {
    /// The bucket of `time`.
    pub fn of(time: Duration) -> Self {
        match time.as_micros() {
            0..=1_000 => Self::Ms1,
            1_001..=5_000 => Self::Ms5,
            5_001..=25_000 => Self::Ms25,
            25_001..=100_000 => Self::Ms100,
            100_001..=500_000 => Self::Ms500,
            500_001..=2_500_000 => Self::Ms2500,
            2_500_001..=10_000_000 => Self::S10,
            10_000_001..=60_000_000 => Self::S60,
            _ => Self::More,
        }
    }
}

/// Exchanges of one role.
#[derive(Debug)]
pub struct ExchangeStats {
    outcomes: Box<[Counters<Outcome>]>,
    /// Ended exchanges by duration; each counts in one bucket only.
    pub elapsed: Counters<Elapsed>,
    /// Outstanding exchanges.
    pub outstanding: Gauge,
}

impl Default for ExchangeStats {
    fn default() -> Self {
        Self {
            outcomes: Operation::ALL.iter().map(|_| Counters::default()).collect(),
            elapsed: Counters::default(),
            outstanding: Gauge::default(),
        }
    }
}

impl ExchangeStats {
    /// Outcomes of one operation.
    pub fn outcomes(&self, operation: Operation) -> &Counters<Outcome> {
        &self.outcomes[operation.index()]
    }

    /// Ended exchanges with `outcome`, over all operations.
    pub fn total(&self, outcome: Outcome) -> u64 {
        self.outcomes.iter().map(|all| all.get(outcome)).sum()
    }
}

/// Everything a mapper counts.
#[derive(Debug, Default)]
pub struct MapperStats {
    /// Exchanges that our callers asked for.
    pub requester: ExchangeStats,
    /// Exchanges that peers asked for.
    pub responder: ExchangeStats,
    /// Refused calls of ours.
    pub calls_refused: Counters<Refusal>,
    /// Refused requests of peers.
    pub requests_refused: Counters<Refusal>,
    /// Faulty replies of peers.
    pub reply_faults: Counters<ReplyFault>,
    /// Malformed bridge payloads, whatever became of them.
    pub malformed: Counters<BridgeError>,
    /// Foreign messages that are not the JSON-RPC object expected.
    pub scan_errors: Counters<ScanError>,
    /// Faulty document sets: not presented, or not sent, or with a proof that is unknown here.
    pub document_errors: Counters<DocumentError>,
    /// Dropped without an answer.
    pub dropped: Counters<Dropped>,
    /// Streams that we cancelled upstream.
    pub cancels_sent: Gauge,
    /// Streams that peers cancelled.
    pub cancels_received: Gauge,
    /// Foreign-message octets held.
    pub octets: Gauge,
    /// Streams that lost their association.
    pub resumption: Counters<Resumption>,
    /// Streams that we consume and that wait for an association.
    pub parked: Gauge,
    /// Streams that we produce and that are kept, live ones included.
    pub kept: Gauge,
    /// Octets kept for consumers that resume.
    pub replay_octets: Gauge,
    /// Exchanges of peers that are outstanding with an upstream.
    pub transits: Gauge,
    /// The Discovery channel.
    pub discovery: Counters<DiscoveryEvent>,
    /// Malformed discovery payloads, whatever became of them.
    pub discovery_malformed: Counters<FrameError>,
    /// DISCO_ERROR to peers.
    pub discovery_errors_sent: Counters<ErrorReason>,
    /// DISCO_ERROR of peers.
    pub discovery_errors_received: Counters<ErrorReason>,
    /// Records of peers that are held.
    pub discovery_records: Gauge,
    /// Live subscriptions of peers.
    pub discovery_subscriptions: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_all_durations() {
        assert_eq!(Elapsed::of(Duration::ZERO), Elapsed::Ms1);
        assert_eq!(Elapsed::of(Duration::from_millis(100)), Elapsed::Ms100);
        assert_eq!(Elapsed::of(Duration::from_micros(100_001)), Elapsed::Ms500);
        assert_eq!(Elapsed::of(Duration::from_secs(3600)), Elapsed::More);
    }

    #[test]
    fn outcomes_are_kept_by_operation() {
        let stats = ExchangeStats::default();
        stats.outcomes(Operation::Send).count(Outcome::Response);
        stats.outcomes(Operation::Card).count(Outcome::Response);
        assert_eq!(stats.total(Outcome::Response), 2);
        assert_eq!(stats.outcomes(Operation::Send).total(), 1);
    }
}
