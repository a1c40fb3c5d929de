//! HTTP edges: ingress for ordinary A2A clients, egress to A2A agents, SSE in
//! both directions, and the one place where failures become HTTP responses.
//!
//! An edge runs on one thread, in a tokio `LocalRuntime` or in a `LocalSet`. It reaches the mapper through [`Mapping`], which the relay
//! implements, and never knows what an association or a frame looks like. It
//! never re-serialises a JSON-RPC body and never invents a JSON-RPC error for a
//! failure below JSON-RPC (rulings R14, R22).
#![forbid(unsafe_code)]

mod agent;
mod auth;
mod body;
pub mod call;
mod card;
mod card_cache;
mod classify;
mod connections;
pub mod egress;
mod executor;
mod failure;
pub mod files;
pub mod ingress;
mod parameters;
mod purse;
mod remote;
mod request;
mod respond;
mod resume;
pub mod settings;
pub mod sse;
pub mod stats;
mod stream;
pub mod streams;
mod tls;
mod token;
pub mod window;

pub use call::{CallHandle, CallSink, Overflow};
pub use stats::EdgeStats;
pub use streams::Streams;

use crate::a2a::port::{AgentEvent, CallRequest, ExchangeId, ServiceParameters};
use std::rc::Rc;
use std::task::{Context, Poll};

/// What the edges need of the relay: somewhere to send calls and agents' answers.
///
/// Every method is called on the edge's own thread, never while the edge holds
/// a borrow of its own state, so an implementation may call back into the edge.
pub trait Mapping: 'static {
    /// Starts a call on a route. The relay finds or dials the association of
    /// the service-parameter set; that it is not up yet is no refusal.
    fn call(
        &self,
        route: usize,
        parameters: ServiceParameters,
        request: CallRequest,
    ) -> Result<CallHandle, CallRefusal>;

    /// The streams of the unit's clients.
    fn streams(&self) -> &Rc<Streams>;

    /// Runs something with the mapping of another unit, on its thread. False when
    /// there is no such unit, or it is going away.
    fn elsewhere(&self, unit: usize, task: Elsewhere) -> bool;

    /// News of an exchange that was given to the egress.
    fn agent_event(&self, exchange: ExchangeId, event: AgentEvent);

    /// Ready when what the agent of this exchange sends can be taken: there is
    /// room on the way out, or in what is kept of a stream without one.
    fn poll_ready(&self, exchange: ExchangeId, cx: &mut Context<'_>) -> Poll<()>;
}

/// What a unit has another one do.
pub type Elsewhere = Box<dyn FnOnce(Rc<dyn Mapping>) + Send>;

/// Why the relay does not take a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallRefusal {
    /// The route has as many service-parameter sets in use as it may have (ruling R13): HTTP 431.
    #[error("too many distinct service-parameter sets on this route")]
    TooManyParameterSets,
    /// A bound on calls or octets is reached: HTTP 503.
    #[error("the relay is at a bound and takes no further calls")]
    Overloaded,
    /// The relay is going away: HTTP 503.
    #[error("the relay is shutting down")]
    ShuttingDown,
}

/// Why an edge cannot start. All are faults of the configuration or the machine.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// A configured file does not serve.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// TLS refuses the certificate, the key or the roots.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// A URL in the configuration is no `http` or `https` URL of the form needed.
    #[error("{url}: {problem}")]
    Url {
        /// As configured.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The listener cannot be used.
    #[error("listener: {0}")]
    Listener(std::io::Error),
}
