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
        /// The client left.
        ClientLeft => "client_left",
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
    /// Requests being answered, streams included.
    pub requests_open: Gauge,
    /// Exchanges with agents under way.
    pub agents_open: Gauge,
}
