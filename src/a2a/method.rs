//! The A2A methods: spelling per version, operation, carriage class and effect.
//! Serves NPAMP-MAP-A2A §4, §5 and §11; the v1.0 spellings are those of the
//! released A2A specification. A method that is not listed is a value
//! ([`Operation::Unknown`]), for policy to judge (ruling R16).

use crate::bridge::safety::Effect;
use crate::reasons;

/// Method of the request for the public card, whose foreign message is empty (ruling R9).
pub const CARD_METHOD: &str = "agent/getCard";

/// A2A version by method spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// 0.3.
    V03,
    /// 1.0.
    V10,
}

/// Carriage class of a method's exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carriage {
    /// NPAMP-CC-JSONRPC.
    JsonRpc,
    /// NPAMP-CC-STREAM.
    Stream,
    /// NPAMP-CC-DOC.
    Document,
}

reasons! {
    /// What a method does, whatever its spelling. Also the label that exchanges are counted under.
    pub enum Operation {
        /// Send a message.
        Send => "send",
        /// Send a message, streamed.
        SendStreamed => "send_streamed",
        /// Get a task.
        GetTask => "get_task",
        /// List tasks.
        ListTasks => "list_tasks",
        /// Cancel a task.
        CancelTask => "cancel_task",
        /// Reattach to a task's stream.
        Reattach => "reattach",
        /// Set a push-notification configuration.
        PushConfigSet => "push_config_set",
        /// Get a push-notification configuration.
        PushConfigGet => "push_config_get",
        /// List push-notification configurations.
        PushConfigList => "push_config_list",
        /// Delete a push-notification configuration.
        PushConfigDelete => "push_config_delete",
        /// Get the extended card.
        ExtendedCard => "extended_card",
        /// Get the public card.
        Card => "card",
        /// Any other method.
        Unknown => "unknown",
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Spelling.
    pub name: &'static str,
    /// The version that spells it so.
    pub version: Version,
    /// Operation.
    pub operation: Operation,
    /// Carriage class.
    pub carriage: Carriage,
    /// Effect class.
    pub effect: Effect,
}

const fn row(
    name: &'static str,
    version: Version,
    operation: Operation,
    carriage: Carriage,
    effect: Effect,
) -> Method {
    Method {
        name,
        version,
        operation,
        carriage,
        effect,
    }
}

/// Every listed method of both versions.
pub const METHODS: &[Method] = {
    use Carriage::{Document, JsonRpc, Stream};
    use Operation as O;
    use Version::{V03, V10};
    const READ: Effect = Effect::READ_ONLY;
    const IDEMPOTENT: Effect = Effect::IDEMPOTENT_WRITE;
    const WRITE: Effect = Effect::NON_IDEMPOTENT_WRITE;
    const DESTRUCTIVE: Effect = Effect::DESTRUCTIVE;
    &[
        row("message/send", V03, O::Send, JsonRpc, WRITE),
        row("message/stream", V03, O::SendStreamed, Stream, WRITE),
        row("tasks/get", V03, O::GetTask, JsonRpc, READ),
        row("tasks/cancel", V03, O::CancelTask, JsonRpc, WRITE),
        row("tasks/resubscribe", V03, O::Reattach, Stream, READ),
        row(
            "tasks/pushNotificationConfig/set",
            V03,
            O::PushConfigSet,
            JsonRpc,
            IDEMPOTENT,
        ),
        row(
            "tasks/pushNotificationConfig/get",
            V03,
            O::PushConfigGet,
            JsonRpc,
            READ,
        ),
        row(
            "tasks/pushNotificationConfig/list",
            V03,
            O::PushConfigList,
            JsonRpc,
            READ,
        ),
        row(
            "tasks/pushNotificationConfig/delete",
            V03,
            O::PushConfigDelete,
            JsonRpc,
            DESTRUCTIVE,
        ),
        row(
            "agent/getAuthenticatedExtendedCard",
            V03,
            O::ExtendedCard,
            Document,
            READ,
        ),
        row("SendMessage", V10, O::Send, JsonRpc, WRITE),
        row("SendStreamingMessage", V10, O::SendStreamed, Stream, WRITE),
        row("GetTask", V10, O::GetTask, JsonRpc, READ),
        row("ListTasks", V10, O::ListTasks, JsonRpc, READ),
        row("CancelTask", V10, O::CancelTask, JsonRpc, WRITE),
        row("SubscribeToTask", V10, O::Reattach, Stream, READ),
        row(
            "CreateTaskPushNotificationConfig",
            V10,
            O::PushConfigSet,
            JsonRpc,
            IDEMPOTENT,
        ),
        row(
            "GetTaskPushNotificationConfig",
            V10,
            O::PushConfigGet,
            JsonRpc,
            READ,
        ),
        row(
            "ListTaskPushNotificationConfigs",
            V10,
            O::PushConfigList,
            JsonRpc,
            READ,
        ),
        row(
            "DeleteTaskPushNotificationConfig",
            V10,
            O::PushConfigDelete,
            JsonRpc,
            DESTRUCTIVE,
        ),
        row("GetExtendedAgentCard", V10, O::ExtendedCard, Document, READ),
    ]
};

/// The row of a method, if it is listed.
pub fn lookup(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// The operation that a method is counted under.
pub fn operation(name: &str) -> Operation {
    lookup(name).map_or(Operation::Unknown, |method| method.operation)
}

/// The effect that a sender labels a method with: the table's, destructive for
/// an unlisted one (NPAMP-MAP-A2A §5, ruling R16).
pub fn label_effect(name: &str) -> Effect {
    lookup(name).map_or(Effect::DESTRUCTIVE, |method| method.effect)
}

/// The effect that policy judges: the greater of the label and the table; a
/// missing label on a method not known to be read_only is destructive
/// (NPAMP-BRIDGE §7, ruling R16).
pub fn judged_effect(name: &str, label: Option<Effect>) -> Effect {
    match (lookup(name).map(|method| method.effect), label) {
        (Some(table), Some(label)) => table.max(label.or_destructive()),
        (None, Some(label)) => label.or_destructive(),
        (Some(Effect::READ_ONLY), None) => Effect::READ_ONLY,
        (_, None) => Effect::DESTRUCTIVE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(version: Version) -> Vec<&'static str> {
        METHODS
            .iter()
            .filter(|method| method.version == version)
            .map(|method| method.name)
            .collect()
    }

    /// NPAMP-MAP-A2A §4: ten v0.3 methods; v1.0 adds a JSON-RPC listing.
    #[test]
    fn both_versions_list_their_methods_once() {
        assert_eq!(names(Version::V03).len(), 10);
        assert_eq!(names(Version::V10).len(), 11);
        for method in METHODS {
            assert_eq!(lookup(method.name), Some(method));
        }
        assert_eq!(operation("ListTasks"), Operation::ListTasks);
        assert_eq!(lookup("tasks/list"), None);
        assert_eq!(lookup("message/Send"), None);
        assert_eq!(operation("tasks/subscribe"), Operation::Unknown);
    }

    /// NPAMP-MAP-A2A §5, §11: one operation has one effect and one carriage in both spellings.
    #[test]
    fn effect_and_carriage_follow_the_operation() {
        for a in METHODS {
            for b in METHODS {
                if a.operation == b.operation {
                    assert_eq!((a.effect, a.carriage), (b.effect, b.carriage));
                }
            }
        }
        let effects = [
            ("message/send", 2),
            ("message/stream", 2),
            ("tasks/get", 0),
            ("tasks/cancel", 2),
            ("tasks/resubscribe", 0),
            ("tasks/pushNotificationConfig/set", 1),
            ("tasks/pushNotificationConfig/get", 0),
            ("tasks/pushNotificationConfig/list", 0),
            ("tasks/pushNotificationConfig/delete", 3),
            ("agent/getAuthenticatedExtendedCard", 0),
            ("no/such/method", 3),
        ];
        for (name, effect) in effects {
            assert_eq!(label_effect(name).0, effect, "{name}");
        }
    }

    /// NPAMP-MAP-A2A §5, NPAMP-BRIDGE §7: the fail-safe, and a label that understates.
    #[test]
    fn policy_sees_the_greater_effect() {
        let judged = |name, label: Option<u8>| judged_effect(name, label.map(Effect)).0;
        assert_eq!(judged("tasks/cancel", Some(2)), 2);
        assert_eq!(judged("tasks/cancel", None), 3);
        assert_eq!(judged("tasks/cancel", Some(0)), 2);
        assert_eq!(judged("tasks/cancel", Some(3)), 3);
        assert_eq!(judged("tasks/get", None), 0);
        assert_eq!(judged("tasks/get", Some(1)), 1);
        assert_eq!(judged("x", None), 3);
        assert_eq!(judged("x", Some(0)), 0);
        assert_eq!(judged("message/send", Some(99)), 3);
    }
}
