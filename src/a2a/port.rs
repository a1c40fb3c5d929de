//! What crosses between the mapper, the edges and the association owner: plain
//! values, so that the same mapper runs inline on a unit, on a worker thread
//! behind queues, or in a single-threaded simulation.

use crate::a2a::events::StreamEvents;
use crate::a2a::streams::{MapperId, StreamKey};
use crate::bridge::correlation::CorrelationId;
use crate::bridge::discovery::{ErrorCode, Filter, Record};
use crate::bridge::document_binding::DigestAlgorithm;
use crate::bridge::safety::{Effect, EffectSet, SafetyLabel};
use crate::limits::TICKET_OCTETS_FREE;
use bytes::Bytes;
use std::borrow::Cow;
use std::sync::Arc;

/// Names an association in this process; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssociationId(pub u64);

/// Names a call that an ingress edge made; chosen by the edge's owner, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Names an exchange that the mapper dispatched to an egress edge; chosen by the mapper, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExchangeId(pub u64);

/// A2A service parameters that are scoped to an association (ruling R13).
///
/// Lines in the order received; names lower case, one of [`ServiceParameters::NAMES`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ServiceParameters {
    /// `(name, value)` lines.
    pub lines: Vec<(String, String)>,
    /// Transit relays that what comes on the association has passed. No parameter of
    /// A2A; it is here because an association states it once, as it does the lines.
    pub hops: u8,
}

impl ServiceParameters {
    /// The header names that are service parameters, which are also the HELLO `params` text keys.
    pub const NAMES: [&'static str; 3] = ["a2a-version", "a2a-extensions", "x-a2a-extensions"];

    /// Whether no parameter was given.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The values of `name`, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.lines
            .iter()
            .filter(move |(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }
}

/// Which end of the association this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// We dialled: an ingress, a native client.
    Initiator,
    /// We accepted: an egress.
    Responder,
}

/// What the mapper must know of an association that came up.
#[derive(Debug, Clone)]
pub struct AssociationInfo {
    /// Our end.
    pub side: Side,
    /// TLS server name of the association, which names the agent at the egress (ruling R12).
    pub server_name: Arc<str>,
    /// Peer identity as configuration spells it (`ed25519:<base64url>`).
    pub peer: Arc<str>,
    /// DocumentBinding tag when both peers stated the same one in HELLO (ruling R9).
    pub document_binding: Option<u16>,
    /// Whether the peer's HELLO lists A2A (0x02), or the association has no HELLO (ruling R6).
    pub carries_a2a: bool,
    /// Whether both peers' HELLOs list the Discovery channel.
    pub discovery: bool,
    /// Whether a HELLO was exchanged; without it the A2A version follows the method spelling.
    pub hello: bool,
    /// Service parameters the initiator stated (ruling R13).
    pub parameters: ServiceParameters,
}

/// Why an association went away, as told to those who wait on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownReason(pub Arc<str>);

/// What an ingress asks the mapper to carry.
#[derive(Debug, Clone)]
pub enum CallRequest {
    /// A JSON-RPC Request with id, octets as received. Unary or streaming is the agent's choice (ruling R27).
    Request {
        /// The body, white space included.
        object: Bytes,
    },
    /// A JSON-RPC Notification. Answered by [`CallEvent::Accepted`] once it is handed to the association.
    Notification {
        /// The body.
        object: Bytes,
    },
    /// The public agent card.
    Card,
    /// The peer's own records (NPAMP-DISC §6). Answered by [`CallEvent::Records`] or
    /// [`CallEvent::DiscoveryError`].
    Discover {
        /// Which.
        filter: Filter,
        /// Records that are not known here may be left out.
        tolerant: bool,
    },
    /// What a peer asked of this relay, which passes it on to an upstream.
    Transit {
        /// What to carry.
        action: DispatchAction,
        /// The request's label; none if it had none.
        label: Option<Label>,
    },
    /// A stream that has ended, or whose association is gone, once more after a cursor
    /// (NPAMP-CC-STREAM §6.2, ruling R17). Answered as the stream was, or by NotResumable.
    Resume {
        /// What the mapper said of the stream by [`Output::Resumable`].
        ticket: Box<ResumeTicket>,
        /// Last event_id that the caller's client has.
        cursor: u64,
    },
}

/// What a resume request repeats of a stream's own Request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeTicket {
    /// Names the stream to its producer.
    pub correlation_id: CorrelationId,
    /// Its method.
    pub method: Cow<'static, str>,
    /// Its JSON-RPC id token, which its events bear.
    pub id: Box<str>,
    /// Its object where repeating that changes nothing, else empty.
    pub object: Bytes,
    /// Which of its route's upstreams has it; whoever places calls says so.
    pub upstream: Option<usize>,
}

impl ResumeTicket {
    /// Octets that a client chose and that are held with it, beyond what every stream may
    /// have.
    pub fn octets(&self) -> usize {
        (self.object.len() + self.id.len()).saturating_sub(TICKET_OCTETS_FREE)
    }
}

/// A SafetyLabel as received, which passes unchanged (NPAMP-BRIDGE §7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Effect.
    pub effect: Effect,
    /// Advisory scope.
    pub scope: Box<str>,
}

impl Label {
    /// Copies a label out of a payload.
    pub fn of(label: &SafetyLabel<'_>) -> Self {
        Self {
            effect: label.effect,
            scope: label.scope.into(),
        }
    }

    /// The label for a payload.
    pub fn borrow(&self) -> SafetyLabel<'_> {
        SafetyLabel {
            effect: self.effect,
            scope: &self.scope,
        }
    }
}

/// A detached proof of a document, as carried (NPAMP-CC-DOC §6.4, §6.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachedProof {
    /// proof_alg.
    pub algorithm: u16,
    /// Proof octets.
    pub octets: Bytes,
}

/// What the mapper tells the ingress edge about one call. `Stream*` events
/// follow each other, `DocumentBegun` comes before what ends the call; every
/// other event is the last of its call.
#[derive(Debug, Clone)]
pub enum CallEvent {
    /// The agent's JSON-RPC success Response, verbatim (BRIDGE_RESPONSE).
    Response(Bytes),
    /// The agent's JSON-RPC error Response, verbatim (BRIDGE_ERROR with a foreign message).
    ErrorResponse(Bytes),
    /// A notification was handed to the association.
    Accepted,
    /// The first of several parts of a document set came; until the others are
    /// there the set is incomplete (NPAMP-CC-DOC §7.5).
    DocumentBegun,
    /// A complete document set whose digest matched. Proofs are not verified: that is the reader's act.
    Document {
        /// Document octets.
        document: Bytes,
        /// Media type the producer stated.
        content_type: String,
        /// Detached proofs by index.
        proofs: Vec<DetachedProof>,
    },
    /// The peer's records that the filter admits, in the order that they came.
    Records(Vec<Record>),
    /// The peer refused a discovery query, or its answer is no answer (NPAMP-DISC §9).
    DiscoveryError {
        /// Which error.
        code: ErrorCode,
        /// As the peer wrote it, control characters included.
        reason: String,
    },
    /// A failure below JSON-RPC (ruling R14); the last event, also in mid-stream.
    TransportError(TransportError),
    /// One stream event, verbatim (BRIDGE_STREAM_DATA).
    StreamEvent {
        /// NPAMP-CC-STREAM event_id.
        event_id: u64,
        /// The agent's JSON-RPC Response.
        object: Bytes,
    },
    /// Orderly end (BRIDGE_STREAM_END). Last event.
    StreamEnd {
        /// NPAMP-CC-STREAM event_id.
        event_id: u64,
        /// The terminal event of a v0.3 stream; none otherwise (ruling R15).
        object: Option<Bytes>,
    },
    /// An error Response inside a stream, verbatim, which ends it. Last event.
    StreamError {
        /// NPAMP-CC-STREAM event_id.
        event_id: u64,
        /// The agent's JSON-RPC error Response.
        object: Bytes,
    },
}

impl CallRequest {
    /// Octets of the foreign message.
    pub fn octets(&self) -> usize {
        match self {
            Self::Request { object } | Self::Notification { object } => object.len(),
            Self::Resume { ticket, .. } => ticket.object.len(),
            Self::Card | Self::Discover { .. } => 0,
            Self::Transit { action, .. } => action.octets(),
        }
    }
}

impl CallEvent {
    /// Octets of the foreign message.
    pub fn octets(&self) -> usize {
        match self {
            Self::Response(object)
            | Self::ErrorResponse(object)
            | Self::StreamEvent { object, .. }
            | Self::StreamEnd {
                object: Some(object),
                ..
            }
            | Self::StreamError { object, .. } => object.len(),
            Self::Document {
                document, proofs, ..
            } => document.len() + proofs.iter().map(|proof| proof.octets.len()).sum::<usize>(),
            Self::Accepted
            | Self::DocumentBegun
            | Self::Records(_)
            | Self::DiscoveryError { .. }
            | Self::TransportError(_)
            | Self::StreamEnd { object: None, .. } => 0,
        }
    }

    /// Whether no event of the call follows.
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::StreamEvent { .. } | Self::DocumentBegun)
    }
}

/// An N-PAMP transport error (NPAMP-BRIDGE §6, NPAMP-CC-STREAM §6.4, NPAMP-CC-DOC §8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportError {
    /// Registered code.
    pub code: u8,
    /// Text for people, and the agent's HTTP status where ruling R14 says so.
    pub message: String,
    /// The failure was a deadline (504 rather than 502 at the HTTP edge).
    pub timed_out: bool,
}

/// What an upstream said to an exchange that passes through this relay.
#[derive(Debug, Clone)]
pub enum UpstreamEvent {
    /// As an ingress would be told.
    Call(CallEvent),
    /// A complete document set whose digest matched. Last event.
    Document(Box<CarriedDocument>),
    /// A transport error in mid-stream, with the event_id that it has upstream. Last event.
    StreamFailed {
        /// NPAMP-CC-STREAM event_id.
        event_id: u64,
        /// What the upstream said.
        error: TransportError,
    },
}

/// A document set with all that its producer stated, to be sent on as it came (NPAMP-CC-DOC §4, §6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedDocument {
    /// Document octets.
    pub document: Bytes,
    /// Identifier.
    pub doc_id: Box<[u8]>,
    /// Media type.
    pub content_type: String,
    /// Algorithm of the digest, which was compared.
    pub digest_algorithm: DigestAlgorithm,
    /// Label of the document part.
    pub label: Option<Label>,
    /// Detached proofs by index.
    pub proofs: Vec<DetachedProof>,
}

impl CarriedDocument {
    /// Octets of document and proofs.
    pub fn octets(&self) -> usize {
        let proofs = self.proofs.iter().map(|proof| proof.octets.len());
        self.document.len() + proofs.sum::<usize>()
    }
}

impl UpstreamEvent {
    /// Octets of the foreign message.
    pub fn octets(&self) -> usize {
        match self {
            Self::Call(event) => event.octets(),
            Self::Document(set) => set.octets(),
            Self::StreamFailed { .. } => 0,
        }
    }

    /// Whether no event of the exchange follows.
    pub fn is_last(&self) -> bool {
        match self {
            Self::Call(event) => event.is_last(),
            Self::Document(_) | Self::StreamFailed { .. } => true,
        }
    }
}

/// What the mapper asks the egress edge to do for one exchange.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The association the exchange belongs to; its outbound pressure paces the agent's stream.
    pub association: AssociationId,
    /// Index of the agent, resolved from the server name by [`AgentDirectory`].
    pub agent: usize,
    /// What to send.
    pub action: DispatchAction,
    /// Service parameters to send, exactly these (ruling R13).
    pub parameters: ServiceParameters,
}

/// The HTTP exchange with the agent.
#[derive(Debug, Clone)]
pub enum DispatchAction {
    /// POST the object to the agent's URL; the reply's content type decides between body and stream.
    Request {
        /// JSON-RPC object, verbatim.
        object: Bytes,
    },
    /// POST the object and ignore the answer.
    Notification {
        /// JSON-RPC object, verbatim.
        object: Bytes,
    },
    /// GET the agent's card.
    Card,
}

/// What the egress edge tells the mapper about a dispatched exchange.
#[derive(Debug, Clone)]
pub enum AgentEvent {
    /// A complete reply that is no SSE stream, whatever its status. Last event.
    Body {
        /// HTTP status.
        status: u16,
        /// Content-Type as sent, empty when absent.
        content_type: String,
        /// Retry-After as sent.
        retry_after: Option<String>,
        /// Whole body.
        body: Bytes,
    },
    /// A 2xx head with `text/event-stream`: a stream has begun.
    StreamOpen,
    /// The data of one SSE event.
    StreamEvent(Bytes),
    /// The agent closed its stream in order. Last event.
    StreamEnd,
    /// No connection to the agent came about. Last event.
    Unreachable {
        /// Short text for the transport error.
        message: String,
        /// It was a deadline.
        timed_out: bool,
    },
    /// No reply or no orderly end. Last event.
    Failed {
        /// Short text for the transport error.
        message: String,
        /// It was a deadline.
        timed_out: bool,
    },
    /// An upstream's word to an exchange that was given out as [`Output::Transit`].
    Upstream(UpstreamEvent),
}

impl DispatchAction {
    /// Octets of the foreign message.
    pub fn octets(&self) -> usize {
        match self {
            Self::Request { object } | Self::Notification { object } => object.len(),
            Self::Card => 0,
        }
    }
}

impl AgentEvent {
    /// Octets of the foreign message.
    pub fn octets(&self) -> usize {
        match self {
            Self::Body { body, .. } => body.len(),
            Self::StreamEvent(object) => object.len(),
            Self::Upstream(event) => event.octets(),
            Self::StreamOpen | Self::StreamEnd | Self::Unreachable { .. } | Self::Failed { .. } => {
                0
            }
        }
    }

    /// Whether no event of the exchange follows.
    pub fn is_last(&self) -> bool {
        match self {
            Self::StreamOpen | Self::StreamEvent(_) => false,
            Self::Upstream(event) => event.is_last(),
            Self::Body { .. }
            | Self::StreamEnd
            | Self::Unreachable { .. }
            | Self::Failed { .. } => true,
        }
    }
}

/// Finds the configured agent for a link's server name (ruling R12).
pub trait AgentDirectory {
    /// Index of the agent whose name equals the server name or its first label, else the default agent.
    fn agent_for(&self, server_name: &str) -> Option<usize>;

    /// Where what comes for the server name goes. Agents and routes share one space of
    /// names; a directory that knows no routes leads to agents only.
    fn target_for(&self, server_name: &str) -> Option<Target> {
        self.agent_for(server_name).map(Target::Agent)
    }

    /// The name under which discovery shows what the server name leads to; none
    /// where it leads nowhere.
    fn name_for(&self, server_name: &str) -> Option<String> {
        self.target_for(server_name).map(|_| server_name.to_owned())
    }
}

/// What is behind a server name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An agent, by index.
    Agent(usize),
    /// A route to an upstream, by index: this relay is a transit for it.
    Route(usize),
}

/// An exchange of a peer that passes through this relay.
#[derive(Debug, Clone)]
pub struct Transit {
    /// The association that the peer asked on.
    pub association: AssociationId,
    /// Index of the route, resolved from the server name by [`AgentDirectory`].
    pub route: usize,
    /// What the upstream association states: what the peer's did, one hop further on (ruling R13).
    pub parameters: ServiceParameters,
    /// The method's answer is a stream, which has no deadline.
    pub streamed: bool,
    /// [`CallRequest::Transit`].
    pub request: CallRequest,
}

/// Input of the mapper.
#[derive(Debug)]
pub enum Input {
    /// An association is established and its HELLO exchange, if any, is complete.
    Up {
        /// Which.
        association: AssociationId,
        /// What it is.
        info: AssociationInfo,
        /// The association that was lost and whose streams this one resumes.
        replaces: Option<AssociationId>,
    },
    /// An association is gone: resumable streams are kept, every other exchange on it fails.
    Down {
        /// Which.
        association: AssociationId,
        /// Why.
        reason: DownReason,
    },
    /// An opened frame of a channel-specific type on the Bridge or Discovery channel.
    Frame {
        /// Which association.
        association: AssociationId,
        /// Channel identifier.
        channel: u16,
        /// Frame type.
        frame_type: u16,
        /// Opened payload.
        payload: Bytes,
    },
    /// A call from an ingress edge.
    Call {
        /// The association to carry it.
        association: AssociationId,
        /// Names the call.
        call: CallId,
        /// What to carry.
        request: CallRequest,
    },
    /// The ingress client left or its deadline passed; no event is wanted any more.
    CallGone {
        /// Which.
        call: CallId,
    },
    /// News of a dispatched exchange.
    Agent {
        /// Which.
        exchange: ExchangeId,
        /// What.
        event: AgentEvent,
    },
    /// An association asked about by [`Output::WantRoom`] takes more frames.
    Room {
        /// Which.
        association: AssociationId,
    },
    /// An association asked for by [`Output::WantAssociation`] will not come back.
    GiveUp {
        /// The lost one.
        association: AssociationId,
    },
    /// From another mapper of this process, by [`Output::Forward`].
    Stream(StreamMessage),
}

/// Where the frames of a resumed stream go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The association.
    pub association: AssociationId,
    /// The mapper that the association belongs to, which knows its exchanges.
    pub home: MapperId,
}

/// What mappers of a process tell each other: about a stream that one of them keeps
/// while its consumer came back to another, and about agents.
#[derive(Debug)]
pub enum StreamMessage {
    /// A resume request that passed the checks of its own association.
    Attach(Box<Attach>),
    /// The stream's association is gone, or its consumer cancels it there.
    Leave {
        /// The stream.
        exchange: ExchangeId,
        /// Whose it must be.
        key: StreamKey,
        /// The association that this is about.
        place: Place,
        /// The consumer cancels it.
        cancel: bool,
    },
    /// An agent has turned out to be out of reach, or to be back (NPAMP-DISC §7.2).
    Reach {
        /// The agent.
        agent: usize,
        /// It is back.
        reached: bool,
    },
    /// The exchange that resumed a stream is answered.
    Settled {
        /// Its association.
        association: AssociationId,
        /// Its correlation_id.
        correlation_id: CorrelationId,
    },
}

/// A resume request (NPAMP-CC-STREAM §6.2) on its way to the stream.
#[derive(Debug)]
pub struct Attach {
    /// The stream.
    pub exchange: ExchangeId,
    /// Whose it must be.
    pub key: StreamKey,
    /// Where it goes on.
    pub place: Place,
    /// Last event_id that the consumer has.
    pub cursor: u64,
    /// Method in the request, which must be the stream's.
    pub method: Box<str>,
    /// Effects that policy allows the consumer.
    pub allow: EffectSet,
}

/// Output of the mapper.
#[derive(Debug)]
pub enum Output {
    /// Seal and send.
    Frame {
        /// Association.
        association: AssociationId,
        /// Channel identifier.
        channel: u16,
        /// Frame type.
        frame_type: u16,
        /// Payload before sealing.
        payload: Vec<u8>,
    },
    /// Tell the caller.
    Call {
        /// Which call.
        call: CallId,
        /// What happened.
        event: CallEvent,
    },
    /// Tell the caller of events of its stream, which came together. More may follow.
    Events {
        /// Which call.
        call: CallId,
        /// As many [`CallEvent::StreamEvent`]s.
        events: StreamEvents,
    },
    /// The association of a call is gone before anything came back, and its request
    /// changes nothing where it is carried out twice. The mapper has let go of the call:
    /// ask again over another association, or tell the caller.
    Unanswered {
        /// Which call.
        call: CallId,
        /// What it asked for.
        request: CallRequest,
        /// What the caller is told if it is not asked again.
        message: String,
    },
    /// The caller's stream can be resumed from now on, or no longer can. Comes before
    /// the event that says so.
    Resumable {
        /// Which call.
        call: CallId,
        /// What resuming takes.
        ticket: Option<Box<ResumeTicket>>,
    },
    /// Start an HTTP exchange with the agent.
    Dispatch {
        /// Names it.
        exchange: ExchangeId,
        /// What to do.
        dispatch: Dispatch,
    },
    /// Pass an exchange on to an upstream, as a call. Its owner gives the call's events
    /// back as [`AgentEvent::Upstream`], and [`Output::Cancel`] ends the call.
    Transit {
        /// Names it.
        exchange: ExchangeId,
        /// What to do.
        transit: Box<Transit>,
    },
    /// News for the owner of a [`CallRequest::Transit`] that an ingress is not told.
    Upstream {
        /// Which call.
        call: CallId,
        /// What happened.
        event: UpstreamEvent,
    },
    /// Drop the HTTP exchange with the agent, or the call of a transit: nobody waits for it.
    Cancel {
        /// Which.
        exchange: ExchangeId,
    },
    /// The exchange has its last event: what the agent still sends is dropped, and
    /// its response may run out so that the connection is kept (ruling R15).
    Finish {
        /// Which.
        exchange: ExchangeId,
    },
    /// Read no more of the agent's stream, or read on: what is kept of it is full, or has room.
    Pause {
        /// Which exchange.
        exchange: ExchangeId,
        /// Stop rather than go on.
        paused: bool,
    },
    /// Say [`Input::Room`] to a mapper once the association takes more frames. Nothing
    /// comes of it when the association is gone.
    WantRoom {
        /// Which association; it may belong to another unit and another mapper.
        association: AssociationId,
        /// Who asks.
        mapper: MapperId,
    },
    /// Streams wait for an association in place of a lost one: establish it and
    /// say so by [`Input::Up`], or say [`Input::GiveUp`].
    WantAssociation {
        /// The lost one.
        association: AssociationId,
    },
    /// Give to another mapper of this process.
    Forward {
        /// Which.
        mapper: MapperId,
        /// What.
        message: StreamMessage,
    },
    /// Answer a bad frame with a core ERROR frame on its channel (ruling R26).
    ChannelError {
        /// Association.
        association: AssociationId,
        /// Channel.
        channel: u16,
        /// Text.
        message: String,
    },
}
