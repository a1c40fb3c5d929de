//! Why an exchange with an agent has no usable answer.

use super::sse::SseError;
use super::stats::AgentOutcome;
use std::io;

/// An exchange without a usable answer. `message` travels to the client and
/// names neither host nor port; `detail` stays in the log.
#[derive(Debug)]
pub(super) struct AgentFailure {
    pub(super) outcome: AgentOutcome,
    pub(super) message: String,
    pub(super) detail: String,
    /// No connection to the agent came about.
    pub(super) unconnected: bool,
}

impl AgentFailure {
    pub(super) fn new(outcome: AgentOutcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            detail: String::new(),
            unconnected: false,
        }
    }

    pub(super) fn timed_out() -> Self {
        Self::new(
            AgentOutcome::TimedOut,
            "the agent did not answer within its time",
        )
    }

    pub(super) fn too_large(octets_max: usize) -> Self {
        Self::new(
            AgentOutcome::TooLarge,
            format!("the agent's reply exceeds {octets_max} octets"),
        )
    }

    pub(super) fn broken(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            detail: chain(error),
            ..Self::new(AgentOutcome::Broken, what)
        }
    }

    /// The agent sent no head of a response; `unconnected` when it was not even reached.
    pub(super) fn unanswered(error: &(dyn std::error::Error + 'static), unconnected: bool) -> Self {
        let kind = io_kind(error);
        let timed_out = kind == Some(io::ErrorKind::TimedOut);
        let (outcome, message) = match (unconnected, timed_out) {
            (true, true) => (
                AgentOutcome::TimedOut,
                "no connection to the agent within its time".to_owned(),
            ),
            (true, false) => (
                AgentOutcome::Connect,
                match kind {
                    Some(kind) => format!("no connection to the agent: {kind}"),
                    None => "no connection to the agent".to_owned(),
                },
            ),
            (false, _) => (
                AgentOutcome::Broken,
                "the agent's connection broke before its answer".to_owned(),
            ),
        };
        Self {
            outcome,
            message,
            detail: chain(error),
            unconnected,
        }
    }
}

impl From<SseError> for AgentFailure {
    fn from(error: SseError) -> Self {
        let outcome = match error {
            SseError::TooLarge(_) => AgentOutcome::TooLarge,
            SseError::Utf8 => AgentOutcome::Unusable,
            SseError::Incomplete => AgentOutcome::StreamBroken,
        };
        Self::new(outcome, format!("the agent's stream broke: {error}"))
    }
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let mut source = Some(error);
    let mut kind = None;
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = Some(error.kind());
        }
        source = error.source();
    }
    kind
}
