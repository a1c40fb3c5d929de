//! The egress edge: HTTP exchanges with the A2A agents behind this relay, over
//! pooled keep-alive HTTP/1.1 and HTTP/2 connections.
//!
//! It sends the object and the service parameters it is given and nothing else
//! of the client (ruling R13); it follows no redirect, uses no proxy, asks for
//! no content coding, and never retries a request that the agent may have seen.
//! What the answer means is the mapper's business (rulings R14, R15).

use super::body::{Budget, ReadError, read_whole};
use super::classify::is_streaming;
use super::executor::LocalExecutor;
use super::settings::AgentSettings;
use super::sse::{SseError, SseParser};
use super::stats::{AgentOutcome, EdgeStats, EventFlow};
use super::{EdgeError, Mapping, tls};
use crate::a2a::port::{
    AgentEvent, AssociationId, Dispatch, DispatchAction, ExchangeId, ServiceParameters,
};
use crate::limits;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioTimer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

/// The agents of this relay, reached from one thread.
pub struct Egress {
    agents: Vec<Agent>,
    running: RefCell<HashMap<ExchangeId, Running>>,
    budget: Budget,
    stats: Arc<EdgeStats>,
}

struct Running {
    task: AbortHandle,
    live: Rc<Cell<bool>>,
}

type AgentClient = Client<Deadline<HttpsConnector<HttpConnector>>, Full<Bytes>>;

struct Agent {
    name: String,
    client: AgentClient,
    url: Uri,
    /// Where the card may be, in the order tried.
    cards: Vec<Uri>,
    authorization: Option<HeaderValue>,
    unary_time: Duration,
    body_octets_max: usize,
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
        let news = News {
            exchange,
            live: live.clone(),
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

    /// Exchanges under way.
    pub fn running(&self) -> usize {
        self.running.borrow().len()
    }

    async fn exchange<M: Mapping + ?Sized>(&self, dispatch: Dispatch, mut news: News<M>) {
        let started = Instant::now();
        let failure = match self.agents.get(dispatch.agent) {
            None => Err(Failure::new(AgentOutcome::Connect, "no such agent")),
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
            news.last(
                failure.outcome,
                AgentEvent::Failed {
                    message: failure.message,
                    timed_out: failure.outcome == AgentOutcome::TimedOut,
                },
            );
        }
    }

    async fn converse<M: Mapping + ?Sized>(
        &self,
        agent: &Agent,
        dispatch: Dispatch,
        news: &mut News<M>,
    ) -> Result<(), Failure> {
        let Dispatch {
            association,
            action,
            parameters,
            ..
        } = dispatch;
        match action {
            DispatchAction::Request { object } => {
                let response = agent.post(&object, &parameters).await?;
                if is_event_stream(&response) {
                    self.stream(agent, association, response, news).await
                } else {
                    let reply = self
                        .reply(agent, response, agent.body_octets_max, agent.deadline())
                        .await?;
                    news.body(reply);
                    Ok(())
                }
            }
            DispatchAction::Notification { object } => {
                let response = agent.post(&object, &parameters).await?;
                if is_event_stream(&response) {
                    // Nobody wants it; closing it is all that can be done.
                    news.last(AgentOutcome::Success, AgentEvent::StreamEnd);
                } else {
                    let reply = self
                        .reply(agent, response, agent.body_octets_max, agent.deadline())
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

    async fn card(&self, agent: &Agent, parameters: &ServiceParameters) -> Result<Reply, Failure> {
        let deadline = agent.deadline();
        let octets_max = agent.body_octets_max.min(limits::CARD_OCTETS_MAX);
        let mut first = None;
        for uri in &agent.cards {
            let request = agent.request(Method::GET, uri, Bytes::new(), parameters)?;
            let response = timeout_at(deadline, agent.client.request(request))
                .await
                .map_err(|_| Failure::timed_out())?
                .map_err(|error| Failure::client(&error))?;
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
        first.ok_or_else(|| Failure::new(AgentOutcome::Unusable, "no card URL"))
    }

    async fn reply(
        &self,
        agent: &Agent,
        response: Response<Incoming>,
        octets_max: usize,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let (head, mut body) = response.into_parts();
        refuse_coding(&head.headers)?;
        let body = timeout_at(
            deadline,
            read_whole(&mut body, octets_max, None, &self.budget),
        )
        .await
        .map_err(|_| Failure::timed_out())?
        .map_err(|error| match error {
            ReadError::TooLarge => Failure::too_large(octets_max),
            ReadError::OverBudget => Failure::new(
                AgentOutcome::TooLarge,
                "the relay holds too many agents' replies",
            ),
            ReadError::Stalled => Failure::timed_out(),
            ReadError::Broken(error) => Failure::broken("the agent's reply broke off", &error),
        })?;
        tracing::trace!(agent = %agent.name, status = head.status.as_u16(), "reply");
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
        association: AssociationId,
        response: Response<Incoming>,
        news: &mut News<M>,
    ) -> Result<(), Failure> {
        let (head, mut body) = response.into_parts();
        refuse_coding(&head.headers)?;
        news.tell(AgentEvent::StreamOpen);
        let octets_max = agent.body_octets_max.min(limits::SSE_EVENT_OCTETS_MAX);
        let mut parser = SseParser::new(octets_max);
        loop {
            poll_fn(|cx| news.mapping.poll_ready(association, cx)).await;
            let Some(frame) = body.frame().await else {
                break;
            };
            let frame = frame.map_err(|error| Failure {
                outcome: AgentOutcome::StreamBroken,
                ..Failure::broken("the agent's stream broke", &error)
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

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress")
            .field("agents", &self.agents.len())
            .field("running", &self.running())
            .finish_non_exhaustive()
    }
}

impl Agent {
    fn new(settings: AgentSettings) -> Result<Self, EdgeError> {
        let problem = |problem| EdgeError::Url {
            url: settings.url.clone(),
            problem,
        };
        let url: Uri = settings
            .url
            .parse()
            .map_err(|_| problem("not a URL that HTTP can use"))?;
        let https = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(problem("not an http or https URL")),
        };
        let Some(authority) = url.authority() else {
            return Err(problem("the URL names no host"));
        };
        if authority.as_str().contains('@') {
            return Err(problem(
                "credentials belong into the authorization file, not into the URL",
            ));
        }
        let authorization = match &settings.authorization_file {
            None => None,
            Some(path) => {
                let octets = zeroize::Zeroizing::new(tls::read_file(path)?);
                let mut value = HeaderValue::from_bytes(octets.trim_ascii())
                    .map_err(|_| tls::content(path, "not a header value on one line"))?;
                if value.is_empty() {
                    return Err(tls::content(path, "the file is empty"));
                }
                value.set_sensitive(true);
                Some(value)
            }
        };
        let config = if https {
            tls::client(settings.tls_ca.as_deref())?
        } else {
            tls::no_roots()?
        };
        let cards =
            card_urls(&url).ok_or_else(|| problem("the card's URL cannot be made of it"))?;
        Ok(Self {
            client: client(&settings, config),
            name: settings.name,
            url,
            cards,
            authorization,
            unary_time: settings.unary_time,
            body_octets_max: settings
                .body_octets_max
                .min(limits::FOREIGN_MESSAGE_OCTETS_MAX),
        })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.unary_time
    }

    /// Sends the object and waits for the head of the answer. The unary deadline
    /// does not apply to a method that streams: its head may come with its first event.
    async fn post(
        &self,
        object: &Bytes,
        parameters: &ServiceParameters,
    ) -> Result<Response<Incoming>, Failure> {
        let request = self.request(Method::POST, &self.url, object.clone(), parameters)?;
        let mut head = std::pin::pin!(self.client.request(request));
        let response = match timeout_at(self.deadline(), head.as_mut()).await {
            Ok(response) => response,
            Err(_) if is_streaming(object) => head.await,
            Err(_) => return Err(Failure::timed_out()),
        };
        response.map_err(|error| Failure::client(&error))
    }

    fn request(
        &self,
        method: Method,
        uri: &Uri,
        body: Bytes,
        parameters: &ServiceParameters,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let post = method == Method::POST;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        if post {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(
                ACCEPT,
                HeaderValue::from_static("application/json, text/event-stream"),
            );
        } else {
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in &parameters.lines {
            // Only what ruling R13 names becomes a header, whatever a peer states.
            let Some(name) = ServiceParameters::NAMES.iter().find(|known| *known == name) else {
                continue;
            };
            let value = HeaderValue::from_str(value).map_err(|_| {
                Failure::new(
                    AgentOutcome::Unusable,
                    "a service parameter is no header value",
                )
            })?;
            headers.append(HeaderName::from_static(name), value);
        }
        Ok(request)
    }
}

fn client(settings: &AgentSettings, config: rustls::ClientConfig) -> AgentClient {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    http.set_connect_timeout(Some(settings.connect_time));
    http.set_keepalive(Some(limits::HTTP_PROBE_TIME));
    http.set_keepalive_interval(Some(limits::HTTP_PROBE_TIME));
    http.set_keepalive_retries(Some(2));
    http.set_tcp_user_timeout(Some(limits::HTTP_WRITE_STALL_TIME));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    Client::builder(LocalExecutor)
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(limits::HTTP_POOL_IDLE_TIME)
        .pool_max_idle_per_host(settings.pool_idle_max)
        .http2_only(settings.http2)
        .http1_max_buf_size(limits::HTTP_BUFFER_OCTETS)
        .http2_keep_alive_interval(limits::HTTP_PROBE_TIME)
        .http2_keep_alive_timeout(limits::PROBE_TIMEOUT)
        .build(Deadline {
            inner: https,
            time: settings.connect_time,
        })
}

/// Where an agent's card may be: under its URL, at its origin, then the older name.
fn card_urls(url: &Uri) -> Option<Vec<Uri>> {
    let under = url.path().trim_end_matches('/');
    let mut urls: Vec<Uri> = Vec::new();
    for name in ["agent-card.json", "agent.json"] {
        for base in [under, ""] {
            let card = Uri::builder()
                .scheme(url.scheme()?.clone())
                .authority(url.authority()?.clone())
                .path_and_query(format!("{base}/.well-known/{name}"))
                .build()
                .ok()?;
            if !urls.contains(&card) {
                urls.push(card);
            }
        }
    }
    Some(urls)
}

fn is_event_stream(response: &Response<Incoming>) -> bool {
    response.status().is_success()
        && response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split(';').next())
            .is_some_and(|essence| essence.trim().eq_ignore_ascii_case("text/event-stream"))
}

/// No content coding was offered, so a coded reply cannot be forwarded as octets of JSON.
fn refuse_coding(headers: &HeaderMap) -> Result<(), Failure> {
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => Err(Failure::new(
            AgentOutcome::Unusable,
            "the agent used a content coding it was not offered",
        )),
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

/// An exchange without a usable answer. `message` travels to the client and
/// names neither host nor port; `detail` stays in the log.
#[derive(Debug)]
struct Failure {
    outcome: AgentOutcome,
    message: String,
    detail: String,
}

impl Failure {
    fn new(outcome: AgentOutcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            detail: String::new(),
        }
    }

    fn timed_out() -> Self {
        Self::new(
            AgentOutcome::TimedOut,
            "the agent did not answer within its time",
        )
    }

    fn too_large(octets_max: usize) -> Self {
        Self::new(
            AgentOutcome::TooLarge,
            format!("the agent's reply exceeds {octets_max} octets"),
        )
    }

    fn broken(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            detail: chain(error),
            ..Self::new(AgentOutcome::Broken, what)
        }
    }

    fn client(error: &ClientError) -> Self {
        let kind = io_kind(error);
        let timed_out = kind == Some(io::ErrorKind::TimedOut);
        let (outcome, message) = match (error.is_connect(), timed_out) {
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
        }
    }
}

impl From<SseError> for Failure {
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

/// A connector whose whole work, TLS included, has a deadline.
#[derive(Clone)]
struct Deadline<C> {
    inner: C,
    time: Duration,
}

impl<C> tower_service::Service<Uri> for Deadline<C>
where
    C: tower_service::Service<Uri>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = C::Response;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.inner.call(uri);
        let time = self.time;
        Box::pin(async move {
            match tokio::time::timeout(time, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(url: &str) -> Vec<String> {
        card_urls(&url.parse().unwrap())
            .unwrap()
            .iter()
            .map(Uri::to_string)
            .collect()
    }

    #[test]
    fn card_urls_in_order() {
        assert_eq!(
            cards("http://h:1/a/b/?x=1"),
            [
                "http://h:1/a/b/.well-known/agent-card.json",
                "http://h:1/.well-known/agent-card.json",
                "http://h:1/a/b/.well-known/agent.json",
                "http://h:1/.well-known/agent.json",
            ]
        );
        assert_eq!(
            cards("https://h"),
            [
                "https://h/.well-known/agent-card.json",
                "https://h/.well-known/agent.json",
            ]
        );
    }

    fn settings(url: &str) -> AgentSettings {
        AgentSettings {
            name: "a".into(),
            default: true,
            url: url.into(),
            version: crate::edge::settings::AgentVersion::Auto,
            authorization_file: None,
            tls_ca: None,
            http2: false,
            connect_time: Duration::from_secs(1),
            unary_time: Duration::from_secs(1),
            body_octets_max: 1024,
            pool_idle_max: 1,
        }
    }

    #[test]
    fn bad_settings_are_named() {
        for url in [
            "",
            "/path",
            "ftp://h/",
            "http://",
            "http://user:password@h/",
            "http://h h/",
        ] {
            assert!(
                matches!(Agent::new(settings(url)), Err(EdgeError::Url { .. })),
                "{url}"
            );
        }
        let missing = AgentSettings {
            authorization_file: Some("/nonexistent/token".into()),
            ..settings("http://h/")
        };
        assert!(matches!(Agent::new(missing), Err(EdgeError::File { .. })));
        let file = tempfile::NamedTempFile::new().unwrap();
        for content in ["", "\n", "a\nb"] {
            std::fs::write(file.path(), content).unwrap();
            let settings = AgentSettings {
                authorization_file: Some(file.path().into()),
                ..settings("http://h/")
            };
            assert!(matches!(
                Agent::new(settings),
                Err(EdgeError::Content { .. })
            ));
        }
    }

    /// Ruling R13: exactly the stated parameters, as headers, and nothing unknown.
    #[test]
    fn parameters_become_headers() {
        let agent = Agent::new(settings("http://h/")).unwrap();
        let line = |n: &str, v: &str| (n.to_owned(), v.to_owned());
        let parameters = ServiceParameters {
            lines: vec![
                line("a2a-extensions", "one"),
                line("a2a-version", "1.0"),
                line("a2a-extensions", "two, three"),
                line("authorization", "stolen"),
            ],
        };
        let request = agent
            .request(Method::POST, &agent.url, Bytes::new(), &parameters)
            .unwrap();
        let extensions: Vec<_> = request.headers().get_all("a2a-extensions").iter().collect();
        assert_eq!(extensions, ["one", "two, three"]);
        assert_eq!(request.headers()["a2a-version"], "1.0");
        assert!(!request.headers().contains_key("authorization"));
        let broken = ServiceParameters {
            lines: vec![line("a2a-version", "1\r\nx: y")],
        };
        assert!(
            agent
                .request(Method::POST, &agent.url, Bytes::new(), &broken)
                .is_err()
        );
    }
}
