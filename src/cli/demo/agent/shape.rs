//! How tasks and events look in each A2A version.

use super::task::{Event, Message, PushConfig, State, Task};
use serde_json::{Value, json};

/// An A2A version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// v0.3.
    V03,
    /// v1.0.
    V10,
}

fn status(version: Version, state: State) -> Value {
    match version {
        Version::V03 => json!({ "state": state.v03() }),
        Version::V10 => json!({ "state": state.v10() }),
    }
}

fn part(version: Version, text: &str) -> Value {
    match version {
        Version::V03 => json!({ "kind": "text", "text": text }),
        Version::V10 => json!({ "text": text }),
    }
}

fn artifact(version: Version, pieces: &[String]) -> Value {
    let parts: Vec<Value> = pieces.iter().map(|piece| part(version, piece)).collect();
    json!({ "artifactId": "reply", "name": "reply", "parts": parts })
}

fn message(version: Version, task: &Task, message: &Message) -> Value {
    let parts: Vec<Value> = message
        .texts
        .iter()
        .map(|text| part(version, text))
        .collect();
    let (task, context) = (&task.id, &task.context);
    match version {
        Version::V03 => json!({
            "kind": "message", "messageId": message.id, "role": "user", "parts": parts,
            "taskId": task, "contextId": context,
        }),
        Version::V10 => json!({
            "messageId": message.id, "role": "ROLE_USER", "parts": parts,
            "taskId": task, "contextId": context,
        }),
    }
}

/// A task with its newest `history` messages; all when none is given.
pub(super) fn task(
    version: Version,
    task: &Task,
    history: Option<usize>,
    artifacts: bool,
) -> Value {
    let mut shown = json!({
        "id": task.id,
        "contextId": task.context,
        "status": status(version, task.state),
    });
    if version == Version::V03 {
        shown["kind"] = json!("task");
    }
    let skip = history.map_or(0, |length| task.history.len().saturating_sub(length));
    let messages: Vec<Value> = task.history[skip..]
        .iter()
        .map(|m| message(version, task, m))
        .collect();
    if !messages.is_empty() {
        shown["history"] = Value::Array(messages);
    }
    if artifacts && task.told > 0 {
        shown["artifacts"] = json!([artifact(version, &task.pieces[..task.told])]);
    }
    shown
}

/// An event as the `result` of a stream's JSON-RPC Response.
pub(super) fn event(version: Version, task: &str, context: &str, event: &Event) -> Value {
    match (version, event) {
        (Version::V03, Event::Status(state)) => json!({
            "kind": "status-update", "taskId": task, "contextId": context,
            "status": status(version, *state), "final": state.is_terminal(),
        }),
        (Version::V10, Event::Status(state)) => json!({
            "statusUpdate": {
                "taskId": task, "contextId": context, "status": status(version, *state),
            },
        }),
        (_, Event::Piece { text, first, last }) => {
            let mut update = json!({
                "taskId": task, "contextId": context,
                "artifact": artifact(version, std::slice::from_ref(text)),
                "append": !first, "lastChunk": last,
            });
            match version {
                Version::V03 => {
                    update["kind"] = json!("artifact-update");
                    update
                }
                Version::V10 => json!({ "artifactUpdate": update }),
            }
        }
    }
}

/// A push notification configuration.
pub(super) fn push_config(version: Version, task: &str, config: &PushConfig) -> Value {
    let mut shown = json!({ "id": config.id, "url": config.url });
    if let Some(token) = &config.token {
        shown["token"] = json!(token);
    }
    if let Some(scheme) = &config.scheme {
        let mut authentication = match version {
            Version::V03 => json!({ "schemes": [scheme] }),
            Version::V10 => json!({ "scheme": scheme }),
        };
        if let Some(credentials) = &config.credentials {
            authentication["credentials"] = json!(credentials);
        }
        shown["authentication"] = authentication;
    }
    match version {
        Version::V03 => json!({ "taskId": task, "pushNotificationConfig": shown }),
        Version::V10 => {
            shown["taskId"] = json!(task);
            shown
        }
    }
}
