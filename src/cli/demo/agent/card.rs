//! The agent card, readable by clients of v0.3 and of v1.0 alike.

use serde_json::{Value, json};

/// The public card, or the extended one.
pub(super) fn card(url: &str, extended: bool) -> Value {
    let mut skills = vec![json!({
        "id": "echo",
        "name": "Echo",
        "description": "Says back what you say, word by word when it is asked to stream",
        "tags": ["demonstration"],
        "examples": ["hello there"],
    })];
    if extended {
        skills.push(json!({
            "id": "extended",
            "name": "Extended",
            "description": "Is listed in the extended card only",
            "tags": ["demonstration"],
        }));
    }
    let interface = |version: &str| json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": version });
    json!({
        "name": if extended { "npamp-relay sample agent (extended)" } else { "npamp-relay sample agent" },
        "description": "A sample agent that says back what you say. It stores push notification configurations but calls nobody.",
        "version": env!("CARGO_PKG_VERSION"),
        "capabilities": {
            "streaming": true,
            "pushNotifications": true,
            "extendedAgentCard": true,
        },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": skills,
        "supportedInterfaces": [interface("1.0"), interface("0.3")],
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
        "supportsAuthenticatedExtendedCard": true,
    })
}
