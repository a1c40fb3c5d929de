//! The egress edge: HTTP exchanges with the A2A agents behind this relay, over
//! pooled keep-alive HTTP/1.1 and HTTP/2 connections.
//!
//! It sends the object and the service parameters it is given and nothing else
//! of the client (ruling R13); it follows no redirect, uses no proxy, asks for
//! no content coding, and never retries a request that the agent may have seen.
//! What the answer means is the mapper's business (rulings R14, R15).

use super::agent::{Agent, AgentBody};
use super::body::{Budget, ReadError, read_whole};
use super::failure::AgentFailure;
use super::settings::AgentSettings;
use super::sse::SseParser;
use super::stats::{AgentOutcome, EdgeStats, EventFlow};
use super::{EdgeError, Mapping};
use crate::a2a::port::{AgentEvent, Dispatch, DispatchAction, ExchangeId, ServiceParameters};
use crate::bridge::own::OwnMap;
use crate::limits;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

/// The agents of this relay, reached from one thread.
pub struct Egress {
    agents: Vec<Agent>,
    running: RefCell<OwnMap<ExchangeId, Running>>,
    budget: Budget,
    stats: Arc<EdgeStats>,
}

struct Running {
    task: AbortHandle,
    live: Rc<Cell<bool>>,
    /// Permits once nobody needs a further event.
    finish: Rc<Notify>,
}

impl Egress {
    /// Reads what the settings name and prepares a connection pool per agent;
    /// dials nothing. An exchange's agent is an index into `agents`.
    pub fn new(agents: Vec<AgentSettings>, stats: Arc<EdgeStats>) -> Result<Self, EdgeError> {
        let agents = agents
            .into_iter()
            .map(Agent::new)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            agents,
            running: RefCell::default(),
            budget: Budget::new(limits::EDGE_BODIES_OCTETS_MAX),
            stats,
        })
    }

    /// Starts an exchange with an agent. Its events go to
    /// [`Mapping::agent_event`], the last one exactly once, unless it is
    /// cancelled. Must be called inside the edge's `LocalSet`.
    pub fn dispatch<M: Mapping + ?Sized>(
        self: &Rc<Self>,
        exchange: ExchangeId,
        dispatch: Dispatch,
        mapping: Rc<M>,
    ) {
        let live = Rc::new(Cell::new(true));
        let finish = Rc::new(Notify::new());
        let news = News {
            exchange,
            live: live.clone(),
            finish: finish.clone(),
            mapping,
            stats: self.stats.clone(),
            outcome: None,
        };
        self.stats.agents_open.add(1);
        let egress = self.clone();
        let task = tokio::task::spawn_local(async move {
            egress.exchange(dispatch, news).await;
            egress.running.borrow_mut().remove(&exchange);
        });
        self.running.borrow_mut().insert(
            exchange,
            Running {
                task: task.abort_handle(),
                live,
                finish,
            },
        );
    }

    /// Nobody waits for the exchange any more: no further event comes, and the
    /// agent's HTTP response is closed. Unknown exchanges are ignored.
    pub fn cancel(&self, exchange: ExchangeId) {
        let running = self.running.borrow_mut().remove(&exchange);
        if let Some(running) = running {
            running.live.set(false);
            running.task.abort();
        }
    }

    /// The exchange's stream has had its last event. What the agent still sends
    /// is handed on, to be counted; its response may run out for
    /// [`limits::HTTP_LINGER_TIME`], so that the connection is kept. No last
    /// event comes. Unknown exchanges are ignored.
    pub fn finish(&self, exchange: ExchangeId) {
        if let Some(running) = self.running.borrow().get(&exchange) {
            running.finish.notify_one();
        }
    }

    /// Exchanges under way.
    pub fn running(&self) -> usize {
        self.running.borrow().len()
    }

    async fn exchange<M: Mapping + ?Sized>(&self, dispatch: Dispatch, mut news: News<M>) {
        let started = Instant::now();
        let failure = match self.agents.get(dispatch.agent) {
            None => Err(AgentFailure::new(AgentOutcome::Connect, "no such agent")),
            Some(agent) => {
                let outcome = self.converse(agent, dispatch, &mut news).await;
                if let Err(failure) = &outcome {
                    tracing::info!(
                        exchange = news.exchange.0,
                        agent = %agent.name,
                        reason = crate::stats::Reason::label(failure.outcome),
                        detail = failure.detail,
                        elapsed_ms = started.elapsed().as_millis() as u64,
                        "{}", failure.message
                    );
                } else {
                    tracing::debug!(
                        exchange = news.exchange.0,
                        agent = %agent.name,
                        elapsed_ms = started.elapsed().as_millis() as u64,
                        "agent answered"
                    );
                }
                outcome
            }
        };
        if let Err(failure) = failure {
            let timed_out = failure.outcome == AgentOutcome::TimedOut;
            let message = failure.message;
            let event = if failure.unconnected {
                AgentEvent::Unreachable { message, timed_out }
            } else {
                AgentEvent::Failed { message, timed_out }
            };
            news.last(failure.outcome, event);
        }
    }

    async fn converse<M: Mapping + ?Sized>(
        &self,
        agent: &Agent,
        dispatch: Dispatch,
        news: &mut News<M>,
    ) -> Result<(), AgentFailure> {
        let Dispatch {
            action, parameters, ..
        } = dispatch;
        match action {
            DispatchAction::Request { object } => {
                let (response, deadline) = agent.post(&object, &parameters).await?;
                if is_event_stream(&response) {
                    self.stream(agent, response, news).await
                } else {
                    let reply = self
                        .reply(agent, response, agent.body_octets_max, deadline)
                        .await?;
                    news.body(reply);
                    Ok(())
                }
            }
            DispatchAction::Notification { object } => {
                let (response, deadline) = agent.post(&object, &parameters).await?;
                if is_event_stream(&response) {
                    // Nobody wants it; closing it is all that can be done.
                    news.last(AgentOutcome::Success, AgentEvent::StreamEnd);
                } else {
                    let reply = self
                        .reply(agent, response, agent.body_octets_max, deadline)
                        .await?;
                    news.body(reply);
                }
                Ok(())
            }
            DispatchAction::Card => {
                let reply = self.card(agent, &parameters).await?;
                news.body(reply);
                Ok(())
            }
        }
    }

    async fn card(
        &self,
        agent: &Agent,
        parameters: &ServiceParameters,
    ) -> Result<Reply, AgentFailure> {
        let deadline = agent.deadline();
        let octets_max = agent.body_octets_max.min(limits::CARD_OCTETS_MAX);
        let mut first = None;
        for uri in &agent.cards {
            let response = agent.get(uri, parameters, deadline).await?;
            let reply = self.reply(agent, response, octets_max, deadline).await?;
            // A catch-all page with status 200 is no card either.
            let absent = matches!(
                reply.status,
                StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE
            ) || (reply.status.is_success()
                && reply.body.trim_ascii_start().first() != Some(&b'{'));
            if !absent {
                return Ok(reply);
            }
            first.get_or_insert(reply);
        }
        first.ok_or_else(|| AgentFailure::new(AgentOutcome::Unusable, "no card URL"))
    }

    async fn reply(
        &self,
        agent: &Agent,
        response: Response<AgentBody>,
        octets_max: usize,
        deadline: Instant,
    ) -> Result<Reply, AgentFailure> {
        let (head, mut body) = response.into_parts();
        refuse_coding(&head.headers)?;
        let body = timeout_at(
            deadline,
            read_whole(&mut body, octets_max, None, &self.budget),
        )
        .await
        .map_err(|_| AgentFailure::timed_out())?
        .map_err(|error| match error {
            ReadError::TooLarge => AgentFailure::too_large(octets_max),
            ReadError::OverBudget => AgentFailure::new(
                AgentOutcome::TooLarge,
                "the relay holds too many agents' replies",
            ),
            ReadError::Stalled => AgentFailure::timed_out(),
            ReadError::Broken(error) => AgentFailure::broken("the agent's reply broke off", &error),
        })?;
        tracing::trace!(agent = %agent.name, status = head.status.as_u16(), "reply");
        if matches!(
            head.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            // Ruling R14: no client can do anything about it, so the operator must see it.
            tracing::warn!(
                agent = %agent.name,
                status = head.status.as_u16(),
                "the agent does not take this relay's credential"
            );
        }
        let text = |name| {
            head.headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
        };
        Ok(Reply {
            status: head.status,
            content_type: text(CONTENT_TYPE).unwrap_or_default().to_owned(),
            retry_after: text(RETRY_AFTER).map(str::to_owned),
            body,
        })
    }

    async fn stream<M: Mapping + ?Sized>(
        &self,
        agent: &Agent,
        response: Response<AgentBody>,
        news: &mut News<M>,
    ) -> Result<(), AgentFailure> {
        let (head, mut body) = response.into_parts();
        refuse_coding(&head.headers)?;
        news.tell(AgentEvent::StreamOpen);
        let octets_max = agent.body_octets_max.min(limits::SSE_EVENT_OCTETS_MAX);
        let mut parser = SseParser::new(octets_max);
        let finish = news.finish.clone();
        let exchange = news.exchange;
        let next = async |body: &mut AgentBody| {
            poll_fn(|cx| news.mapping.poll_ready(exchange, cx)).await;
            body.frame().await
        };
        loop {
            let frame = tokio::select! {
                biased;
                () = finish.notified() => {
                    self.run_out(body, parser, news).await;
                    return Ok(());
                }
                frame = next(&mut body) => frame,
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| AgentFailure {
                outcome: AgentOutcome::StreamBroken,
                ..AgentFailure::broken("the agent's stream broke", &error)
            })?;
            if let Ok(chunk) = frame.into_data() {
                parser.push(&chunk, |event| news.event(event))?;
            }
        }
        if let Some(event) = parser.finish()? {
            news.event(event);
        }
        news.last(AgentOutcome::StreamEnded, AgentEvent::StreamEnd);
        Ok(())
    }
}

impl Egress {
    /// Reads on behind the last event, so that the agent ends its response itself.
    async fn run_out<M: Mapping + ?Sized>(
        &self,
        mut body: AgentBody,
        mut parser: SseParser,
        news: &mut News<M>,
    ) {
        news.outcome = Some(AgentOutcome::StreamEnded);
        let until = Instant::now() + limits::HTTP_LINGER_TIME;
        while let Ok(Some(Ok(frame))) = timeout_at(until, body.frame()).await {
            if let Ok(chunk) = frame.into_data()
                && parser.push(&chunk, |event| news.event(event)).is_err()
            {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress")
            .field("agents", &self.agents.len())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

fn is_event_stream(response: &Response<AgentBody>) -> bool {
    response.status().is_success()
        && response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// No content coding was offered, so a coded reply cannot be forwarded as octets of JSON.
fn refuse_coding(headers: &HeaderMap) -> Result<(), AgentFailure> {
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(AgentFailure::new(
                AgentOutcome::Unusable,
                "the agent used a content coding it was not offered",
            ))
        }
        _ => Ok(()),
    }
}

struct Reply {
    status: StatusCode,
    content_type: String,
    retry_after: Option<String>,
    body: Bytes,
}

/// Tells the mapper, and sees to it that an exchange is counted exactly once.
struct News<M: Mapping + ?Sized> {
    exchange: ExchangeId,
    live: Rc<Cell<bool>>,
    finish: Rc<Notify>,
    mapping: Rc<M>,
    stats: Arc<EdgeStats>,
    outcome: Option<AgentOutcome>,
}

impl<M: Mapping + ?Sized> News<M> {
    fn tell(&self, event: AgentEvent) {
        if self.live.get() {
            self.mapping.agent_event(self.exchange, event);
        }
    }

    fn event(&self, event: Bytes) {
        self.stats.events.count(EventFlow::FromAgents);
        self.tell(AgentEvent::StreamEvent(event));
    }

    fn last(&mut self, outcome: AgentOutcome, event: AgentEvent) {
        if self.live.get() {
            self.outcome = Some(outcome);
        }
        self.tell(event);
    }

    fn body(&mut self, reply: Reply) {
        let outcome = if reply.status.is_success() {
            AgentOutcome::Success
        } else {
            AgentOutcome::OtherStatus
        };
        self.last(
            outcome,
            AgentEvent::Body {
                status: reply.status.as_u16(),
                content_type: reply.content_type,
                retry_after: reply.retry_after,
                body: reply.body,
            },
        );
    }
}

impl<M: Mapping + ?Sized> Drop for News<M> {
    fn drop(&mut self) {
        self.stats.agents_open.sub(1);
        self.stats
            .agents
            .count(self.outcome.unwrap_or(AgentOutcome::Cancelled));
    }
}
