//! What the edges count. Shared by every unit of the process; `observe` reads it.

use crate::reasons;
use crate::stats::{Counters, Gauge};

reasons! {
    /// How an HTTP request at the ingress was answered.
    pub enum RequestOutcome {
        /// The agent's JSON-RPC success Response.
        Response => "response",
        /// The agent's JSON-RPC error Response.
        ErrorResponse => "error_response",
        /// A notification was taken.
        Accepted => "accepted",
        /// An SSE response was begun.
        Stream => "stream",
        /// A card was served, or confirmed as unchanged.
        Card => "card",
        /// A client came back for a stream of which it has everything (ruling R17).
        Complete => "complete",
        /// The ingress answered as JSON-RPC endpoint (ruling R23).
        Invalid => "invalid",
        /// A failure below JSON-RPC (ruling R14).
        TransportError => "transport_error",
        /// Refused before it was carried; see the refusal reasons.
        Refused => "refused",
        /// The client left before it was answered.
        ClientLeft => "client_left",
    }
}

reasons! {
    /// Why the ingress refused a request or a connection without carrying anything.
    pub enum Refusal {
        /// No route matches the path, or nothing lives at it.
        NotFound => "not_found",
        /// The path does not take this HTTP method.
        MethodNotAllowed => "method_not_allowed",
        /// No bearer token, or none that is known.
        Unauthorized => "unauthorized",
        /// The body is larger than the bound.
        BodyTooLarge => "body_too_large",
        /// The body stalled.
        BodyTimeout => "body_timeout",
        /// The body broke off.
        BodyBroken => "body_broken",
        /// A service parameter cannot be carried as a header value.
        ParameterInvalid => "parameter_invalid",
        /// A service parameter is too long, or there are too many.
        ParameterTooLarge => "parameter_too_large",
        /// Too many distinct service-parameter sets on the route.
        ParameterSets => "parameter_sets",
        /// The stream that a client came back for does not go on (ruling R17).
        NotResumable => "not_resumable",
        /// A bound on calls or octets is reached.
        Overloaded => "overloaded",
        /// The relay is going away.
        ShuttingDown => "shutting_down",
        /// The TLS handshake failed or took too long.
        Tls => "tls",
        /// The client sent no complete request head in time.
        HeadTimeout => "head_timeout",
        /// The octets were no HTTP, or the head exceeded its bound.
        HeadInvalid => "head_invalid",
        /// The connection bound is reached; the connection waits in the backlog.
        ConnectionsMax => "connections_max",
    }
}

reasons! {
    /// How an SSE response to a client ended.
    pub enum StreamOutcome {
        /// In order.
        Ended => "ended",
        /// With the agent's error Response, in order.
        ErrorResponse => "error_response",
        /// Aborted: a transport error in mid-stream.
        Aborted => "aborted",
        /// Cut: the client was too slow (ruling R19).
        SlowClient => "slow_client",
        /// Cut: its client reads the stream on another connection (ruling R17).
        TakenOver => "taken_over",
        /// The client left.
        ClientLeft => "client_left",
    }
}

reasons! {
    /// What becomes of streams whose client left or comes back (rulings R17, R19).
    pub enum StreamFate {
        /// Its client left or was cut; it goes on and is kept.
        Detached => "detached",
        /// Its client came back and goes on from what the ingress kept.
        FromWindow => "from_window",
        /// Its client came back and goes on from what the producer kept.
        FromProducer => "from_producer",
        /// Its client came back on another unit than the stream's.
        OnAnotherUnit => "on_another_unit",
        /// Its client subscribed to its task again.
        Resubscribed => "resubscribed",
        /// Nobody came back in time; the producer is told.
        Expired => "expired",
        /// It had to go, or its events had, for another's sake.
        Evicted => "evicted",
    }
}

reasons! {
    /// Why a client that came back does not get its stream (ruling R17): always 409.
    pub enum ResumeRefusal {
        /// `Last-Event-ID` is none of this relay's.
        Malformed => "malformed",
        /// There is no such stream, any more or at all.
        Unknown => "unknown",
        /// It is another client's, or of another route.
        Foreign => "foreign",
        /// The position is beyond what was sent.
        Ahead => "ahead",
        /// The events after the position are kept no more, and the stream has not ended.
        NotHeld => "not_held",
        /// The producer cannot go on from there.
        Producer => "producer",
    }
}

reasons! {
    /// How an HTTP exchange with an agent ended.
    pub enum AgentOutcome {
        /// A complete reply with status 2xx.
        Success => "success",
        /// A complete reply with another status.
        OtherStatus => "other_status",
        /// A stream that ended in order.
        StreamEnded => "stream_ended",
        /// A stream that broke, or ended inside an event.
        StreamBroken => "stream_broken",
        /// No connection.
        Connect => "connect",
        /// The connection broke before the reply was complete.
        Broken => "broken",
        /// A deadline.
        TimedOut => "timed_out",
        /// The reply or an event exceeds its bound.
        TooLarge => "too_large",
        /// The reply cannot be used: a content coding nobody asked for, an event that is no UTF-8.
        Unusable => "unusable",
        /// Nobody waits for the reply any more.
        Cancelled => "cancelled",
    }
}

reasons! {
    /// Where a card that was served came from.
    pub enum CardSource {
        /// The agent, just now.
        Fetched => "fetched",
        /// The ingress, which had fetched it before.
        Kept => "kept",
    }
}

reasons! {
    /// SSE events by direction.
    pub enum EventFlow {
        /// From agents.
        FromAgents => "from_agents",
        /// To clients.
        ToClients => "to_clients",
    }
}

/// Counters and gauges of both edges.
#[derive(Debug, Default)]
pub struct EdgeStats {
    /// Requests at the ingress by outcome.
    pub requests: Counters<RequestOutcome>,
    /// Refusals at the ingress by reason.
    pub refusals: Counters<Refusal>,
    /// SSE responses by how they ended.
    pub streams_ended: Counters<StreamOutcome>,
    /// Streams whose client left or came back.
    pub stream_fates: Counters<StreamFate>,
    /// Clients that came back in vain.
    pub resume_refusals: Counters<ResumeRefusal>,
    /// Exchanges with agents by how they ended.
    pub agents: Counters<AgentOutcome>,
    /// Cards served by source.
    pub cards: Counters<CardSource>,
    /// SSE events.
    pub events: Counters<EventFlow>,
    /// Open client connections.
    pub connections: Gauge,
    /// Open SSE responses.
    pub streams: Gauge,
    /// Streams that go on although their client left.
    pub streams_detached: Gauge,
    /// Requests being answered, streams included.
    pub requests_open: Gauge,
    /// Exchanges with agents under way.
    pub agents_open: Gauge,
}
