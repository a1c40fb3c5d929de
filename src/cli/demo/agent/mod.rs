//! A small A2A agent for demonstrations: text in, the same words back, at once
//! or as a stream with a pause before each event. It speaks v0.3 and v1.0 on one
//! URL, told apart by the spelling of the method.
//!
//! It keeps its tasks in memory, within bounds, and forgets the oldest. It
//! stores push notification configurations but calls nobody.

mod card;
mod http;
mod shape;
mod task;

pub use self::http::{SampleAgent, serve};
pub use shape::Version;

use crate::limits;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use task::{Event, Message, PushConfig, State, Task};
use tokio::sync::broadcast;

/// An A2A or JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    /// JSON-RPC error code.
    pub code: i32,
    /// Text.
    pub message: String,
    /// The reason in v1.0's error details; none for JSON-RPC's own errors.
    pub reason: Option<&'static str>,
}

impl AgentError {
    fn of(code: i32, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            reason: Some(reason),
        }
    }

    fn params(message: impl Into<String>) -> Self {
        Self {
            code: -32602,
            message: format!("Invalid parameters: {}", message.into()),
            reason: None,
        }
    }

    fn task_not_found() -> Self {
        Self::of(-32001, "TASK_NOT_FOUND", "Task not found")
    }

    fn version(stated: &str) -> Self {
        let message = format!("A2A version {stated:?} is not supported; 0.3 and 1.0 are");
        Self::of(-32009, "VERSION_NOT_SUPPORTED", message)
    }
}

/// The events of one task from now on; the last one ends the stream.
#[derive(Debug)]
pub struct Events {
    task: String,
    context: String,
    version: Version,
    receiver: broadcast::Receiver<Event>,
}

impl Events {
    /// The next event as a JSON-RPC result, and whether it is the last.
    pub async fn next(&mut self) -> Option<(Value, bool)> {
        let event = self.receiver.recv().await.ok()?;
        let result = shape::event(self.version, &self.task, &self.context, &event);
        Some((result, event.is_last()))
    }
}

/// What a call leads to.
#[derive(Debug)]
pub enum Answer {
    /// The result, at once; `run` names a task that goes on by [`Agent::step`].
    Result {
        /// JSON-RPC result.
        result: Value,
        /// Task to run.
        run: Option<String>,
    },
    /// A stream: the first result, then the events.
    Stream {
        /// JSON-RPC result of the first event.
        first: Value,
        /// What follows.
        events: Events,
        /// Task to run, unless it runs already.
        run: Option<String>,
    },
    /// An error Response.
    Error(AgentError),
}

fn done(result: Value) -> Answer {
    Answer::Result { result, run: None }
}

/// The agent's memory.
#[derive(Debug)]
pub struct Agent {
    url: String,
    tasks: HashMap<String, Task>,
    /// Task ids, the oldest first.
    order: VecDeque<String>,
    octets: usize,
}

impl Agent {
    /// An agent whose card says that it is found at `url`.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            tasks: HashMap::new(),
            order: VecDeque::new(),
            octets: 0,
        }
    }

    /// The public agent card.
    pub fn card(&self) -> Value {
        card::card(&self.url, false)
    }

    /// Whether a stated `A2A-Version` is one of ours; empty means 0.3.
    pub fn check_version(stated: &str) -> Result<(), AgentError> {
        match stated {
            "" | "0.3" | "1.0" => Ok(()),
            _ if stated.starts_with("0.3.") || stated.starts_with("1.0.") => Ok(()),
            _ => Err(AgentError::version(stated)),
        }
    }

    /// Handles one call. `params` is null when there are none.
    pub fn handle(&mut self, method: &str, params: &Value) -> Answer {
        use Version::{V03, V10};
        let outcome = match method {
            "message/send" => self.send(V03, params),
            "SendMessage" => self.send(V10, params),
            "message/stream" => self.stream(V03, params),
            "SendStreamingMessage" => self.stream(V10, params),
            "tasks/get" => self.get(V03, params),
            "GetTask" => self.get(V10, params),
            "ListTasks" => self.list(params),
            "tasks/cancel" => self.cancel(V03, params),
            "CancelTask" => self.cancel(V10, params),
            "tasks/resubscribe" => self.subscribe(V03, params),
            "SubscribeToTask" => self.subscribe(V10, params),
            "tasks/pushNotificationConfig/set" => self.push_set(V03, params),
            "CreateTaskPushNotificationConfig" => self.push_set(V10, params),
            "tasks/pushNotificationConfig/get" => self.push_get(V03, params),
            "GetTaskPushNotificationConfig" => self.push_get(V10, params),
            "tasks/pushNotificationConfig/list" => self.push_list(V03, params),
            "ListTaskPushNotificationConfigs" => self.push_list(V10, params),
            "tasks/pushNotificationConfig/delete" => self.push_delete(V03, params),
            "DeleteTaskPushNotificationConfig" => self.push_delete(V10, params),
            "agent/getAuthenticatedExtendedCard" | "GetExtendedAgentCard" => {
                Ok(done(card::card(&self.url, true)))
            }
            _ => Err(AgentError {
                code: -32601,
                message: format!("Method not found: {method}"),
                reason: None,
            }),
        };
        outcome.unwrap_or_else(Answer::Error)
    }

    /// Lets a running task make its next event. False once there is none to come.
    pub fn step(&mut self, task: &str) -> bool {
        self.tasks.get_mut(task).is_some_and(Task::step)
    }

    fn task(&mut self, params: &Value, key: &str) -> Result<&mut Task, AgentError> {
        let id = text(params, key)?;
        self.tasks
            .get_mut(id)
            .ok_or_else(AgentError::task_not_found)
    }

    /// Takes the message in, into a new task or the one it names.
    fn accept(&mut self, params: &Value) -> Result<&mut Task, AgentError> {
        let message = params
            .get("message")
            .filter(|message| message.is_object())
            .ok_or_else(|| AgentError::params("message is missing"))?;
        let given = |key: &str| {
            message
                .get(key)
                .and_then(Value::as_str)
                .filter(|s| !s.is_empty())
        };
        let (task, context) = (given("taskId"), given("contextId"));
        let message = Message::read(message)?;
        let octets = message.octets();
        let id = if let Some(id) = task {
            let task = self
                .tasks
                .get_mut(id)
                .ok_or_else(AgentError::task_not_found)?;
            if task.state.is_terminal() {
                let message = "The task has ended and takes no more messages";
                return Err(AgentError::of(-32004, "UNSUPPORTED_OPERATION", message));
            }
            if context.is_some_and(|context| context != task.context) {
                return Err(AgentError::params("contextId is not the task's"));
            }
            if task.octets().saturating_add(octets) > limits::DEMO_OCTETS_MAX {
                return Err(AgentError::params("the task has too many messages"));
            }
            task.take(message);
            id.to_owned()
        } else {
            let context = context.map_or_else(task::new_id, str::to_owned);
            let task = Task::new(context, message);
            let id = task.id.clone();
            self.order.push_back(id.clone());
            self.tasks.insert(id.clone(), task);
            id
        };
        self.octets += octets;
        while self.tasks.len() > limits::DEMO_TASKS_MAX || self.octets > limits::DEMO_OCTETS_MAX {
            // Never the newest: it is what this call is about.
            match self.order.pop_front() {
                Some(oldest) if oldest != id => {
                    if let Some(task) = self.tasks.remove(&oldest) {
                        self.octets = self.octets.saturating_sub(task.octets());
                    }
                }
                Some(kept) => {
                    self.order.push_back(kept);
                    if self.order.len() == 1 {
                        break;
                    }
                }
                None => break,
            }
        }
        self.tasks
            .get_mut(&id)
            .ok_or_else(AgentError::task_not_found)
    }

    fn send(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let configuration = params.get("configuration").unwrap_or(&Value::Null);
        let at_once = match version {
            Version::V03 => configuration.get("blocking") == Some(&Value::Bool(false)),
            Version::V10 => configuration.get("returnImmediately") == Some(&Value::Bool(true)),
        };
        let history = history_length(configuration)?;
        let task = self.accept(params)?;
        let run = if at_once {
            task.start_running()
        } else {
            task.finish();
            None
        };
        let task = shape::task(version, task, history, true);
        let result = match version {
            Version::V03 => task,
            Version::V10 => json!({ "task": task }),
        };
        Ok(Answer::Result { result, run })
    }

    fn stream(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let task = self.accept(params)?;
        let run = task.start_running();
        Ok(Self::attach(version, task, run))
    }

    fn attach(version: Version, task: &Task, run: Option<String>) -> Answer {
        let snapshot = shape::task(version, task, None, true);
        Answer::Stream {
            first: match version {
                Version::V03 => snapshot,
                Version::V10 => json!({ "task": snapshot }),
            },
            events: Events {
                task: task.id.clone(),
                context: task.context.clone(),
                version,
                receiver: task.events.subscribe(),
            },
            run,
        }
    }

    fn subscribe(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let task = self.task(params, "id")?;
        if task.state.is_terminal() {
            let message = "The task has ended and has no more events";
            return Err(AgentError::of(-32004, "UNSUPPORTED_OPERATION", message));
        }
        Ok(Self::attach(version, task, None))
    }

    fn get(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let history = history_length(params)?;
        let task = self.task(params, "id")?;
        Ok(done(shape::task(version, task, history, true)))
    }

    fn cancel(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let task = self.task(params, "id")?;
        if task.state.is_terminal() {
            let message = "The task has ended and cannot be canceled";
            return Err(AgentError::of(-32002, "TASK_NOT_CANCELABLE", message));
        }
        task.end(State::Canceled);
        Ok(done(shape::task(version, task, None, true)))
    }

    fn list(&mut self, params: &Value) -> Result<Answer, AgentError> {
        let wanted = |key: &str| {
            params
                .get(key)
                .and_then(Value::as_str)
                .filter(|s| !s.is_empty())
        };
        let (context, state) = (wanted("contextId"), wanted("status"));
        if state.is_some_and(|state| !State::ALL.iter().any(|s| s.v10() == state)) {
            return Err(AgentError::params("status is no task state"));
        }
        let page_size = match params.get("pageSize") {
            None | Some(Value::Null) => 50,
            Some(size) => match size.as_u64() {
                Some(size @ 1..=100) => size as usize,
                _ => return Err(AgentError::params("pageSize must be 1 to 100")),
            },
        };
        let start = match wanted("pageToken") {
            None => 0,
            Some(token) => token
                .parse::<usize>()
                .map_err(|_| AgentError::params("pageToken is none of ours"))?,
        };
        let history = history_length(params)?;
        let artifacts = params.get("includeArtifacts") == Some(&Value::Bool(true));
        let found: Vec<&Task> = self
            .order
            .iter()
            .rev()
            .filter_map(|id| self.tasks.get(id))
            .filter(|task| context.is_none_or(|context| task.context == context))
            .filter(|task| state.is_none_or(|state| task.state.v10() == state))
            .collect();
        let page: Vec<Value> = found
            .iter()
            .skip(start)
            .take(page_size)
            .map(|task| shape::task(Version::V10, task, history, artifacts))
            .collect();
        let next = start.saturating_add(page.len());
        let next = if next < found.len() {
            next.to_string()
        } else {
            String::new()
        };
        Ok(done(json!({
            "tasks": page,
            "nextPageToken": next,
            "pageSize": page_size,
            "totalSize": found.len(),
        })))
    }

    fn push_set(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let config = match version {
            Version::V03 => params.get("pushNotificationConfig").unwrap_or(&Value::Null),
            Version::V10 => params,
        };
        let task = self.task(params, "taskId")?;
        let config = PushConfig::read(config)?;
        let shown = shape::push_config(version, &task.id, &config);
        let known = task
            .push_configs
            .iter()
            .position(|known| known.id == config.id);
        match known {
            Some(position) => task.push_configs[position] = config,
            None if task.push_configs.len() >= limits::DEMO_PUSH_CONFIGS_MAX => {
                return Err(AgentError::params(
                    "the task has too many push configurations",
                ));
            }
            None => task.push_configs.push(config),
        }
        Ok(done(shown))
    }

    /// The key of the task's id, and the position of the configuration that is meant.
    fn push_found(
        &mut self,
        version: Version,
        params: &Value,
    ) -> Result<(&mut Task, usize), AgentError> {
        let (task_key, config_key) = match version {
            Version::V03 => ("id", "pushNotificationConfigId"),
            Version::V10 => ("taskId", "id"),
        };
        let task = self.task(params, task_key)?;
        let wanted = params.get(config_key).and_then(Value::as_str);
        let position = match (wanted, version) {
            (Some(id), _) => task.push_configs.iter().position(|config| config.id == id),
            // v0.3 may leave the id out when it asks for the one there is.
            (None, Version::V03) => (!task.push_configs.is_empty()).then_some(0),
            (None, Version::V10) => return Err(AgentError::params("id is missing")),
        };
        match position {
            Some(position) => Ok((task, position)),
            None => Err(AgentError::params(
                "the task has no such push configuration",
            )),
        }
    }

    fn push_get(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let (task, position) = self.push_found(version, params)?;
        let config = &task.push_configs[position];
        Ok(done(shape::push_config(version, &task.id, config)))
    }

    fn push_list(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let key = match version {
            Version::V03 => "id",
            Version::V10 => "taskId",
        };
        let task = self.task(params, key)?;
        let configs: Vec<Value> = task
            .push_configs
            .iter()
            .map(|config| shape::push_config(version, &task.id, config))
            .collect();
        Ok(done(match version {
            Version::V03 => Value::Array(configs),
            Version::V10 => json!({ "configs": configs, "nextPageToken": "" }),
        }))
    }

    fn push_delete(&mut self, version: Version, params: &Value) -> Result<Answer, AgentError> {
        let (task, position) = self.push_found(version, params)?;
        task.push_configs.remove(position);
        Ok(done(match version {
            Version::V03 => Value::Null,
            Version::V10 => json!({}),
        }))
    }
}

/// A string that must be there.
fn text<'v>(object: &'v Value, key: &str) -> Result<&'v str, AgentError> {
    object
        .get(key)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
        .ok_or_else(|| AgentError::params(format!("{key} is missing or no string")))
}

fn history_length(object: &Value) -> Result<Option<usize>, AgentError> {
    match object.get("historyLength") {
        None | Some(Value::Null) => Ok(None),
        Some(length) => match length.as_u64() {
            Some(length) => Ok(Some(length as usize)),
            None => Err(AgentError::params("historyLength must be 0 or more")),
        },
    }
}

#[cfg(test)]
mod tests;
