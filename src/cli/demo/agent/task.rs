//! A task of the sample agent, in no version's spelling.

use super::{AgentError, text};
use crate::limits;
use serde_json::Value;
use tokio::sync::broadcast;

/// A random identifier in the form of a UUID of version 4.
pub(super) fn new_id() -> String {
    let mut octets = [0_u8; 16];
    if getrandom::fill(&mut octets).is_err() {
        // Only uniqueness matters here, and only within this process.
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        octets[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    }
    octets[6] = octets[6] & 0x0f | 0x40;
    octets[8] = octets[8] & 0x3f | 0x80;
    let text = hex::encode(octets);
    format!(
        "{}-{}-{}-{}-{}",
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..]
    )
}

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Submitted,
    Working,
    Completed,
    Canceled,
}

impl State {
    pub const ALL: [Self; 4] = [
        Self::Submitted,
        Self::Working,
        Self::Completed,
        Self::Canceled,
    ];

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Canceled)
    }

    pub fn v03(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Canceled => "canceled",
        }
    }

    pub fn v10(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Canceled => "TASK_STATE_CANCELED",
        }
    }
}

/// A message of the user: text parts only.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub id: String,
    pub texts: Vec<String>,
}

impl Message {
    /// Reads either version's spelling.
    pub fn read(message: &Value) -> Result<Self, AgentError> {
        let id = text(message, "messageId")?.to_owned();
        let parts = message
            .get("parts")
            .and_then(Value::as_array)
            .filter(|parts| !parts.is_empty())
            .ok_or_else(|| AgentError::params("parts is missing or empty"))?;
        let texts: Option<Vec<String>> = parts
            .iter()
            .map(|part| part.get("text").and_then(Value::as_str).map(str::to_owned))
            .collect();
        let texts = texts.ok_or_else(|| {
            let message = "Only text parts are understood";
            AgentError::of(-32005, "CONTENT_TYPE_NOT_SUPPORTED", message)
        })?;
        Ok(Self { id, texts })
    }

    pub fn octets(&self) -> usize {
        self.id.len() + self.texts.iter().map(String::len).sum::<usize>()
    }
}

/// A push notification configuration.
#[derive(Debug, Clone)]
pub(super) struct PushConfig {
    pub id: String,
    pub url: String,
    pub token: Option<String>,
    pub scheme: Option<String>,
    pub credentials: Option<String>,
}

impl PushConfig {
    /// Reads either version's spelling.
    pub fn read(config: &Value) -> Result<Self, AgentError> {
        let some = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let authentication = config.get("authentication").unwrap_or(&Value::Null);
        let scheme = authentication.get("scheme").or_else(|| {
            authentication
                .get("schemes")
                .and_then(|schemes| schemes.get(0))
        });
        let found = Self {
            id: some(config.get("id"))
                .filter(|id| !id.is_empty())
                .unwrap_or_else(new_id),
            url: text(config, "url")?.to_owned(),
            token: some(config.get("token")),
            scheme: some(scheme),
            credentials: some(authentication.get("credentials")),
        };
        let octets = [
            Some(&found.id),
            Some(&found.url),
            found.token.as_ref(),
            found.scheme.as_ref(),
            found.credentials.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(String::len)
        .sum::<usize>();
        if octets > limits::DEMO_PUSH_CONFIG_OCTETS_MAX {
            return Err(AgentError::params("the push configuration is too long"));
        }
        Ok(found)
    }
}

/// What happens to a task.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A new state.
    Status(State),
    /// A piece of the reply.
    Piece {
        text: String,
        first: bool,
        last: bool,
    },
}

impl Event {
    /// Whether none follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Status(state) if state.is_terminal())
    }
}

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    pub id: String,
    pub context: String,
    pub state: State,
    pub history: Vec<Message>,
    /// The reply, of which `told` pieces were told.
    pub pieces: Vec<String>,
    pub told: usize,
    pub push_configs: Vec<PushConfig>,
    pub events: broadcast::Sender<Event>,
    running: bool,
}

impl Task {
    pub fn new(context: String, message: Message) -> Self {
        // Room for every event that a task can have, so that no reader lags.
        let (events, _) = broadcast::channel(limits::DEMO_EVENTS_MAX + 4);
        let mut task = Self {
            id: new_id(),
            context,
            state: State::Submitted,
            history: Vec::new(),
            pieces: vec!["You said: ".to_owned()],
            told: 0,
            push_configs: Vec::new(),
            events,
            running: false,
        };
        task.take(message);
        task
    }

    pub fn octets(&self) -> usize {
        self.history.iter().map(Message::octets).sum()
    }

    /// Adds a message and its words to the reply.
    pub fn take(&mut self, message: Message) {
        let room = limits::DEMO_EVENTS_MAX.saturating_sub(self.pieces.len());
        let words: Vec<&str> = message
            .texts
            .iter()
            .flat_map(|text| text.split_whitespace())
            .collect();
        let per_piece = words.len().div_ceil(room.max(1)).max(1);
        for words in words.chunks(per_piece) {
            let piece = words.join(" ") + " ";
            match self.pieces.last_mut() {
                Some(last) if room == 0 => last.push_str(&piece),
                _ => self.pieces.push(piece),
            }
        }
        self.history.push(message);
    }

    /// The task's id if somebody must run it from now on.
    pub fn start_running(&mut self) -> Option<String> {
        let start = !self.running && !self.state.is_terminal();
        self.running |= start;
        start.then(|| self.id.clone())
    }

    fn tell(&self, event: Event) {
        // Nobody needs to listen.
        let _ = self.events.send(event);
    }

    /// Makes the next event; false once there is none to come.
    pub fn step(&mut self) -> bool {
        match self.state {
            State::Submitted => {
                self.state = State::Working;
                self.tell(Event::Status(State::Working));
            }
            State::Working => {
                if let Some(piece) = self.pieces.get(self.told) {
                    let event = Event::Piece {
                        text: piece.clone(),
                        first: self.told == 0,
                        last: self.told + 1 == self.pieces.len(),
                    };
                    self.told += 1;
                    self.tell(event);
                } else {
                    self.end(State::Completed);
                }
            }
            State::Completed | State::Canceled => {}
        }
        !self.state.is_terminal()
    }

    /// Ends the task in a terminal state.
    pub fn end(&mut self, state: State) {
        self.state = state;
        self.tell(Event::Status(state));
    }

    /// Makes all events at once.
    pub fn finish(&mut self) {
        while self.step() {}
    }
}
