//! One A2A agent behind the egress: its URLs, its credential, its connection
//! pool, and the requests that are sent to it.

use super::body::BodyBroken;
use super::classify::is_streaming;
use super::connections::{Connections, Driven};
use super::executor::LocalExecutor;
use super::failure::AgentFailure;
use super::settings::AgentSettings;
use super::stats::AgentOutcome;
use super::tls;
use super::{EdgeError, files};
use crate::a2a::port::ServiceParameters;
use crate::limits;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioTimer;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

type PooledClient = Client<Deadline<HttpsConnector<HttpConnector>>, Full<Bytes>>;

/// How an agent is reached.
enum Transport {
    /// Plain HTTP/1.1.
    Driven {
        connections: Rc<Connections<Deadline<HttpConnector>>>,
        host: HeaderValue,
    },
    /// TLS, or HTTP/2 with prior knowledge: the version may be the agent's choice.
    Pooled(Box<PooledClient>),
}

/// The body of an agent's response.
pub(super) enum AgentBody {
    /// Read by driving its connection.
    Driven(Driven<Deadline<HttpConnector>>),
    /// Read by a task of the HTTP library.
    Pooled(Incoming),
}

impl Body for AgentBody {
    type Data = Bytes;
    type Error = BodyBroken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyBroken>>> {
        match self.get_mut() {
            Self::Driven(body) => Pin::new(body).poll_frame(cx),
            Self::Pooled(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(BodyBroken::Http))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Driven(body) => body.is_end_stream(),
            Self::Pooled(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Driven(body) => body.size_hint(),
            Self::Pooled(body) => body.size_hint(),
        }
    }
}

/// See the module.
pub(super) struct Agent {
    pub(super) name: String,
    transport: Transport,
    url: Uri,
    /// Where the card may be, in the order tried.
    pub(super) cards: Vec<Uri>,
    authorization: Option<HeaderValue>,
    unary_time: Duration,
    pub(super) body_octets_max: usize,
}

impl Agent {
    pub(super) fn new(settings: AgentSettings) -> Result<Self, EdgeError> {
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
                let octets = files::octets(path, limits::PEM_FILE_OCTETS_MAX)?;
                let mut value = HeaderValue::from_bytes(octets.trim_ascii())
                    .map_err(|_| files::content(path, "holds no header value on one line"))?;
                if value.is_empty() {
                    return Err(files::content(path, "is empty").into());
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
        let transport = if https || settings.http2 {
            Transport::Pooled(Box::new(client(&settings, config)))
        } else {
            let connector = Deadline {
                inner: connector(&settings),
                time: settings.connect_time,
            };
            Transport::Driven {
                connections: Connections::new(connector, settings.pool_idle_max),
                host: host(&url).ok_or_else(|| problem("the URL names no host"))?,
            }
        };
        Ok(Self {
            transport,
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

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.unary_time
    }

    /// Sends the object and waits for the head of the answer; gives it with the
    /// deadline of its body. The unary deadline bounds head and body together. It
    /// does not apply to a method that streams, whose head may come with its first
    /// event: a late answer of its own that is no stream gets the time again.
    pub(super) async fn post(
        &self,
        object: &Bytes,
        parameters: &ServiceParameters,
    ) -> Result<(Response<AgentBody>, Instant), AgentFailure> {
        let request = self.request(Method::POST, &self.url, object.clone(), parameters)?;
        let mut head = std::pin::pin!(self.send(request));
        let deadline = self.deadline();
        let (response, deadline) = match timeout_at(deadline, head.as_mut()).await {
            Ok(response) => (response, deadline),
            Err(_) if is_streaming(object) => {
                let response = head.await;
                (response, self.deadline())
            }
            Err(_) => return Err(AgentFailure::timed_out()),
        };
        Ok((response?, deadline))
    }

    /// Asks for a card, within `deadline`.
    pub(super) async fn get(
        &self,
        uri: &Uri,
        parameters: &ServiceParameters,
        deadline: Instant,
    ) -> Result<Response<AgentBody>, AgentFailure> {
        let request = self.request(Method::GET, uri, Bytes::new(), parameters)?;
        timeout_at(deadline, self.send(request))
            .await
            .map_err(|_| AgentFailure::timed_out())?
    }

    async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<AgentBody>, AgentFailure> {
        match &self.transport {
            Transport::Driven { connections, host } => {
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
                request.headers_mut().insert(HOST, host.clone());
                let response = connections.request(&self.url, request).await;
                response
                    .map(|response| response.map(AgentBody::Driven))
                    .map_err(|error| AgentFailure::unanswered(&error, error.is_connect()))
            }
            Transport::Pooled(client) => {
                let response = client.request(request).await;
                response
                    .map(|response| response.map(AgentBody::Pooled))
                    .map_err(|error| AgentFailure::unanswered(&error, error.is_connect()))
            }
        }
    }

    fn request(
        &self,
        method: Method,
        uri: &Uri,
        body: Bytes,
        parameters: &ServiceParameters,
    ) -> Result<Request<Full<Bytes>>, AgentFailure> {
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
                AgentFailure::new(
                    AgentOutcome::Unusable,
                    "a service parameter is no header value",
                )
            })?;
            headers.append(HeaderName::from_static(name), value);
        }
        Ok(request)
    }
}

/// The `Host` of requests to `url`: without the port that goes without saying.
fn host(url: &Uri) -> Option<HeaderValue> {
    let host = url.host()?;
    match url.port_u16() {
        Some(port) if port != 80 => HeaderValue::from_str(&format!("{host}:{port}")),
        _ => HeaderValue::from_str(host),
    }
    .ok()
}

fn connector(settings: &AgentSettings) -> HttpConnector {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.enforce_http(false);
    http.set_connect_timeout(Some(settings.connect_time));
    http.set_keepalive(Some(limits::HTTP_PROBE_TIME));
    http.set_keepalive_interval(Some(limits::HTTP_PROBE_TIME));
    http.set_keepalive_retries(Some(2));
    http.set_tcp_user_timeout(Some(limits::HTTP_WRITE_STALL_TIME));
    http
}

fn client(settings: &AgentSettings, config: rustls::ClientConfig) -> PooledClient {
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector(settings));
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

/// A connector whose whole work, TLS included, has a deadline.
#[derive(Clone)]
pub(super) struct Deadline<C> {
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
    use crate::edge::files::FileError;

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
        assert!(matches!(
            Agent::new(missing),
            Err(EdgeError::File(FileError::Read { .. }))
        ));
        let file = tempfile::NamedTempFile::new().unwrap();
        for content in ["", "\n", "a\nb"] {
            std::fs::write(file.path(), content).unwrap();
            let settings = AgentSettings {
                authorization_file: Some(file.path().into()),
                ..settings("http://h/")
            };
            assert!(matches!(
                Agent::new(settings),
                Err(EdgeError::File(FileError::Content { .. }))
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
            ..ServiceParameters::default()
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
            ..ServiceParameters::default()
        };
        assert!(
            agent
                .request(Method::POST, &agent.url, Bytes::new(), &broken)
                .is_err()
        );
    }
}
