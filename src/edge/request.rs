//! One HTTP request at the ingress, from its head to the response that
//! `respond` makes of what happened.

use super::body::{ReadError, read_whole};
use super::call::CallHandle;
use super::card_cache::Card;
use super::classify::{Answers, Classified, classify};
use super::ingress::Ingress;
use super::remote::Source;
use super::respond::{self, Failure, Reply};
use super::resume::{self, Answer, Ask};
use super::settings::{CardMode, RoutePath};
use super::stats::{CardSource, EdgeStats, RequestOutcome, ResumeRefusal};
use super::stream::StreamBody;
use super::streams::{From, Origin};
use super::token::{LastEventId, Malformed, StreamToken};
use super::{Mapping, card, parameters};
use crate::a2a::json_rpc;
use crate::a2a::port::{CallEvent, CallRequest, ServiceParameters};
use crate::limits;
use crate::stats::Reason;
use bytes::Bytes;
use http::header::{EXPECT, HOST, IF_NONE_MATCH};
use http::uri::Authority;
use http::{Method, Request, Version};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::{Instant, timeout};

/// What the connection knows of its client's way to the ingress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    /// The address it connected to.
    pub(super) local: SocketAddr,
    /// Through TLS.
    pub(super) https: bool,
}

/// What a path below a route names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resource {
    /// The JSON-RPC endpoint.
    Endpoint,
    /// The public agent card.
    Card,
}

/// Whose stream a call's answer may be.
struct Named {
    origin: Origin,
    /// Its events say which task they are about.
    learns: bool,
}

/// The answer to a request, and what it counts as.
type Answered = (RequestOutcome, Reply);

impl Ingress {
    /// Answers one request. Never fails: what went wrong is in the response.
    pub(super) async fn request<M: Mapping + ?Sized>(
        self: &Rc<Self>,
        request: Request<Incoming>,
        client: Client,
        mapping: &M,
    ) -> Reply {
        let mut account = Account::open(self.stats.clone());
        let head = request.method() == Method::HEAD;
        let answered = self.answer(request, client, mapping, &mut account).await;
        let (outcome, reply) = match answered {
            Ok(answered) => answered,
            Err(failure) => {
                let outcome = match failure.refusal() {
                    Some(refusal) => {
                        self.stats.refusals.count(refusal);
                        account.detail = Some(refusal.label());
                        RequestOutcome::Refused
                    }
                    None => RequestOutcome::TransportError,
                };
                if let Failure::Transport(error) = &failure {
                    tracing::info!(
                        request = account.request,
                        route = account.route,
                        code = error.code,
                        detail = error.message,
                        "not carried"
                    );
                }
                (outcome, respond::failure(&failure))
            }
        };
        account.close(outcome, reply.status().as_u16());
        if head {
            respond::without_body(reply)
        } else {
            reply
        }
    }

    async fn answer<M: Mapping + ?Sized>(
        self: &Rc<Self>,
        request: Request<Incoming>,
        client: Client,
        mapping: &M,
        account: &mut Account,
    ) -> Result<Answered, Failure> {
        let Some((route, resource)) = self.paths.find(request.uri().path()) else {
            return Err(unread(request, Failure::NotFound));
        };
        let (index, path) = (route.route, &route.path);
        account.route = Some(index);
        let method = request.method();
        match resource {
            Resource::Endpoint if method == Method::POST => {
                let client = match self.tokens.as_ref().map(|t| t.check(request.headers())) {
                    None => None,
                    Some(Ok(client)) => Some(client),
                    Some(Err(failure)) => return Err(unread(request, failure)),
                };
                let origin = Origin {
                    ingress: self.number,
                    client,
                    route: index,
                };
                self.call(request, origin, mapping, account).await
            }
            Resource::Endpoint => {
                let failure = Failure::MethodNotAllowed { allow: "POST" };
                Err(unread(request, failure))
            }
            Resource::Card if method == Method::GET || method == Method::HEAD => {
                self.card(&request, index, path, client, mapping).await
            }
            Resource::Card => {
                let failure = Failure::MethodNotAllowed { allow: "GET, HEAD" };
                Err(unread(request, failure))
            }
        }
    }

    async fn call<M: Mapping + ?Sized>(
        self: &Rc<Self>,
        request: Request<Incoming>,
        origin: Origin,
        mapping: &M,
        account: &mut Account,
    ) -> Result<Answered, Failure> {
        let parameters = match parameters::collect(request.headers(), request.uri().query()) {
            Ok(parameters) => parameters,
            Err(failure) => return Err(unread(request, failure)),
        };
        let position = LastEventId::read(request.headers());
        let object = self.object(request).await?;
        let answers = match classify(&object) {
            Classified::Invalid(answer) => {
                return Ok((RequestOutcome::Invalid, respond::json_rpc(answer)));
            }
            Classified::Notification => None,
            Classified::Request { answers } => Some(answers),
        };
        if answers.is_some_and(Answers::streams) {
            let resubscribes = answers == Some(Answers::Resubscription);
            let back = self
                .back(
                    &object,
                    resubscribes,
                    position,
                    &origin,
                    &parameters,
                    mapping,
                )
                .await?;
            if let Some((token, answer)) = back {
                return Ok(self.resumed(&object, token, answer, account));
            }
        }
        let streaming = answers.is_some_and(Answers::streams);
        let learns = matches!(answers, Some(Answers::Stream03 | Answers::Resubscription));
        let route = origin.route;
        let named = Named { origin, learns };
        let call = match answers {
            None => CallRequest::Notification { object },
            Some(_) => CallRequest::Request { object },
        };
        let mut call = mapping
            .call(route, parameters, call)
            .map_err(Failure::Refused)?;
        let first = if streaming {
            match timeout(self.bounds.stream_head_time, call.next()).await {
                Ok(first) => first,
                // The head cannot wait longer: clients and proxies take silence for failure.
                Err(_) => return Ok(self.stream(call, None, named, account)),
            }
        } else {
            self.within_unary_time(&mut call).await?
        };
        match first {
            Some(CallEvent::Response(object)) => {
                Ok((RequestOutcome::Response, respond::json_rpc(object)))
            }
            Some(CallEvent::ErrorResponse(object)) => {
                Ok((RequestOutcome::ErrorResponse, respond::json_rpc(object)))
            }
            Some(CallEvent::Accepted) => Ok((RequestOutcome::Accepted, respond::accepted())),
            Some(CallEvent::TransportError(error)) => Err(Failure::Transport(error)),
            Some(
                event @ (CallEvent::StreamEvent { .. }
                | CallEvent::StreamEnd { .. }
                | CallEvent::StreamError { .. }),
            ) => Ok(self.stream(call, Some(event), named, account)),
            Some(
                CallEvent::Document { .. }
                | CallEvent::DocumentBegun
                | CallEvent::Records(_)
                | CallEvent::DiscoveryError { .. },
            ) => Err(Failure::not_delivered(
                "a document or a record is no JSON-RPC reply",
                false,
            )),
            None => Err(Failure::not_delivered("the call was given up", false)),
        }
    }

    /// The stream that a client comes back for, if it does (ruling R17).
    async fn back<M: Mapping + ?Sized>(
        &self,
        object: &[u8],
        resubscribes: bool,
        position: Result<Option<LastEventId>, Malformed>,
        origin: &Origin,
        parameters: &ServiceParameters,
        mapping: &M,
    ) -> Result<Option<(StreamToken, Answer)>, Failure> {
        let ask = |token, from| Ask {
            token,
            origin: origin.clone(),
            from,
            parameters: parameters.clone(),
            head_time: self.bounds.stream_head_time,
            stats: self.stats.clone(),
        };
        match position {
            Err(Malformed) => Err(resume::refuse(&self.stats, false, ResumeRefusal::Malformed)),
            Ok(Some(LastEventId { token, event_id })) => {
                let ask = ask(token, From::Cursor(event_id));
                let answer = resume::resume(mapping, ask).await?;
                Ok(Some((token, answer)))
            }
            Ok(None) if resubscribes => {
                let task = json_rpc::params_id(object);
                let token =
                    task.and_then(|task| mapping.streams().directory().find_task(origin, &task));
                let Some(token) = token else { return Ok(None) };
                // Whatever has become of it meanwhile: the agent knows its task.
                let answer = resume::resume(mapping, ask(token, From::HandedOut)).await;
                match answer {
                    Ok(answer @ Answer::Stream(..)) => Ok(Some((token, answer))),
                    Ok(Answer::Complete) | Err(_) => Ok(None),
                }
            }
            Ok(None) => Ok(None),
        }
    }

    /// The answer to a client that came back. The events bear the id of the
    /// request that resumed them (ruling R22).
    fn resumed(
        &self,
        object: &[u8],
        token: StreamToken,
        answer: Answer,
        account: &Account,
    ) -> Answered {
        let (source, first) = match answer {
            Answer::Stream(source, first) => (source, first),
            Answer::Complete => return (RequestOutcome::Complete, respond::complete()),
        };
        let id = json_rpc::scan_request(object).ok().and_then(|r| r.id);
        let rename = id.map(|id| id.token().into());
        tracing::debug!(request = account.request, "a client came back");
        let body = self.body(source, token, rename, first, account);
        (RequestOutcome::Stream, respond::events(body))
    }

    fn stream(
        &self,
        call: CallHandle,
        first: Option<CallEvent>,
        named: Named,
        account: &Account,
    ) -> Answered {
        let token = call.keep_for(&Rc::new(named.origin), named.learns);
        let body = self.body(Source::Here(call), token, None, first, account);
        (RequestOutcome::Stream, respond::events(body))
    }

    fn body(
        &self,
        source: Source,
        token: StreamToken,
        rename: Option<Box<str>>,
        first: Option<CallEvent>,
        account: &Account,
    ) -> StreamBody {
        StreamBody::new(
            account.request,
            source,
            token,
            rename,
            first,
            self.settings.sse_keep_alive,
            self.stats.clone(),
        )
    }

    async fn within_unary_time(&self, call: &mut CallHandle) -> Result<Option<CallEvent>, Failure> {
        let mut begun = false;
        let reply = async {
            loop {
                match call.next().await {
                    Some(CallEvent::DocumentBegun) => begun = true,
                    event => return event,
                }
            }
        };
        let reply = timeout(self.settings.unary_time, reply).await;
        reply.map_err(|_| {
            if begun {
                Failure::set_incomplete()
            } else {
                Failure::not_delivered("no reply within the time for one", true)
            }
        })
    }

    /// The request's body, whole or not at all.
    async fn object(self: &Rc<Self>, request: Request<Incoming>) -> Result<Bytes, Failure> {
        let octets_max = self.settings.body_octets_max;
        let linger = lingers(&request);
        let mut body = request.into_body();
        let read = read_whole(
            &mut body,
            octets_max,
            Some(self.bounds.body_time),
            &self.budget,
        )
        .await;
        let failure = match read {
            Ok(object) => return Ok(object),
            Err(ReadError::TooLarge) => Failure::BodyTooLarge { octets_max },
            Err(ReadError::OverBudget) => Failure::Overloaded,
            Err(ReadError::Stalled) => return Err(Failure::BodyTimeout),
            Err(ReadError::Broken(_)) => return Err(Failure::BodyBroken),
        };
        if linger {
            tokio::task::spawn_local(linger_over(body));
        }
        Err(failure)
    }

    async fn card<M: Mapping + ?Sized>(
        &self,
        request: &Request<Incoming>,
        route: usize,
        path: &str,
        client: Client,
        mapping: &M,
    ) -> Result<Answered, Failure> {
        let parameters: ServiceParameters =
            parameters::collect(request.headers(), request.uri().query())?;
        let card = self.current_card(route, parameters, mapping).await?;
        let original = self.settings.card == CardMode::Verbatim
            || request.uri().query().is_some_and(wants_original);
        let octets = if original {
            card.document.clone()
        } else {
            let url = format!("{}{path}", self.base_url(request, client));
            card::rewrite(&card.document, &url).ok_or(Failure::CardUnusable)?
        };
        let etag = card::etag(&octets);
        let unchanged = card::matches(
            request
                .headers()
                .get_all(IF_NONE_MATCH)
                .iter()
                .map(http::HeaderValue::as_bytes),
            &etag,
        );
        let head = request.method() == Method::HEAD;
        Ok((
            RequestOutcome::Card,
            respond::card(octets, &etag, &card, head, unchanged),
        ))
    }

    /// The route's card, asked for when the one at hand is too old.
    async fn current_card<M: Mapping + ?Sized>(
        &self,
        route: usize,
        parameters: ServiceParameters,
        mapping: &M,
    ) -> Result<Card, Failure> {
        let key = (route, parameters);
        if let Some(card) = self.cards.fresh(&key, Instant::now()) {
            self.stats.cards.count(CardSource::Kept);
            return Ok(card);
        }
        let mut call = mapping
            .call(route, key.1.clone(), CallRequest::Card)
            .map_err(Failure::Refused)?;
        match self.within_unary_time(&mut call).await? {
            Some(CallEvent::Document { document, .. }) => {
                self.stats.cards.count(CardSource::Fetched);
                Ok(self.cards.fetched(key, document, Instant::now()))
            }
            Some(CallEvent::TransportError(error)) => Err(Failure::Transport(error)),
            Some(_) => Err(Failure::not_delivered("the reply is no card", false)),
            None => Err(Failure::not_delivered("the call was given up", false)),
        }
    }

    /// How clients reach this ingress, without a slash at its end.
    fn base_url(&self, request: &Request<Incoming>, client: Client) -> String {
        if let Some(url) = &self.settings.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let host: Option<Authority> = match request.uri().authority() {
            Some(authority) => Some(authority.clone()),
            None => request
                .headers()
                .get(HOST)
                .and_then(|host| host.to_str().ok())
                .and_then(|host| host.parse().ok()),
        };
        let scheme = if client.https { "https" } else { "http" };
        match host.filter(|host| !host.as_str().contains('@')) {
            Some(host) => format!("{scheme}://{host}"),
            None => format!("{scheme}://{}", client.local),
        }
    }
}

/// Refuses a request whose body nobody reads.
fn unread(request: Request<Incoming>, failure: Failure) -> Failure {
    if !request.body().is_end_stream() && lingers(&request) {
        tokio::task::spawn_local(linger_over(request.into_body()));
    }
    failure
}

/// Whether a refused body must still be read: a socket that is closed with unread
/// octets, and an HTTP/2 stream that is answered before its end, is reset, and
/// the client that is still sending might never see the answer. On HTTP/1.1
/// reading would ask a client for the body that it holds back.
fn lingers(request: &Request<Incoming>) -> bool {
    request.version() >= Version::HTTP_2 || !request.headers().contains_key(EXPECT)
}

/// Reads on for a while, discarding.
async fn linger_over(mut body: Incoming) {
    let discard = async {
        let mut octets = 0;
        while let Some(Ok(frame)) = body.frame().await {
            octets += frame.data_ref().map_or(0, Bytes::len);
            if octets > limits::HTTP_LINGER_OCTETS {
                break;
            }
        }
    };
    let _ = timeout(limits::HTTP_LINGER_TIME, discard).await;
}

/// The paths of an ingress's routes. One look finds the route of a request,
/// however many there are.
pub(super) struct Paths(HashMap<String, RoutePath>);

impl Paths {
    pub(super) fn new(routes: &[RoutePath]) -> Self {
        let key = |route: &RoutePath| route.path.trim_end_matches('/').to_owned();
        Self(routes.iter().map(|r| (key(r), r.clone())).collect())
    }

    /// The route at `path`, or whose card it is. What lies below a route and is
    /// nothing of it is not found: a shorter route does not take it, since the
    /// longest one that matches is the one meant.
    fn find(&self, path: &str) -> Option<(&RoutePath, Resource)> {
        if let Some(route) = CARD_NAMES
            .iter()
            .find_map(|name| self.0.get(path.strip_suffix(name)?))
        {
            return Some((route, Resource::Card));
        }
        let route = self.0.get(path.strip_suffix('/').unwrap_or(path))?;
        Some((route, Resource::Endpoint))
    }
}

/// Where the card is below a route; no configured path has such a segment.
const CARD_NAMES: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

fn wants_original(query: &str) -> bool {
    url::form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "original" && value == "true")
}

/// One request in counters and log: opened with its head, closed with its
/// answer, and counted as abandoned when its client left before.
struct Account {
    request: u64,
    route: Option<usize>,
    detail: Option<&'static str>,
    started: Instant,
    closed: bool,
    stats: Arc<EdgeStats>,
}

impl Account {
    fn open(stats: Arc<EdgeStats>) -> Self {
        static REQUESTS: AtomicU64 = AtomicU64::new(1);
        stats.requests_open.add(1);
        Self {
            request: REQUESTS.fetch_add(1, Ordering::Relaxed),
            route: None,
            detail: None,
            started: Instant::now(),
            closed: false,
            stats,
        }
    }

    fn close(&mut self, outcome: RequestOutcome, status: u16) {
        self.closed = true;
        self.stats.requests.count(outcome);
        tracing::debug!(
            request = self.request,
            route = self.route,
            status,
            outcome = outcome.label(),
            reason = self.detail,
            elapsed_us = self.started.elapsed().as_micros() as u64,
            "answered"
        );
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.stats.requests_open.sub(1);
        if !self.closed {
            self.stats.requests.count(RequestOutcome::ClientLeft);
            tracing::debug!(request = self.request, route = self.route, "client left");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resource::{Card, Endpoint};
    use super::*;

    #[test]
    fn longest_route_wins() {
        let routes: Vec<RoutePath> = ["/", "/agents/a", "/agents", "/agents/ab"]
            .iter()
            .enumerate()
            .map(|(route, path)| RoutePath {
                path: (*path).to_owned(),
                route,
            })
            .collect();
        let paths = Paths::new(&routes);
        let found = |path| {
            paths
                .find(path)
                .map(|(route, resource)| (route.route, resource))
        };
        assert_eq!(found("/agents/a"), Some((1, Endpoint)));
        assert_eq!(found("/agents/a/"), Some((1, Endpoint)));
        assert_eq!(found("/agents/ab"), Some((3, Endpoint)));
        assert_eq!(found("/agents"), Some((2, Endpoint)));
        assert_eq!(found("/"), Some((0, Endpoint)));
        assert_eq!(found("/.well-known/agent-card.json"), Some((0, Card)));
        assert_eq!(found("/agents/a/.well-known/agent.json"), Some((1, Card)));
        assert_eq!(
            found("/agents/a/x"),
            None,
            "no fall-back to a shorter route"
        );
        assert_eq!(found("/agents/a//"), None);
        assert_eq!(found("/agentsx"), None);
        assert_eq!(found("/.well-known/other"), None);
        assert_eq!(found("/other"), None);
        assert_eq!(found("/agents/a/.well-known/agent-card.json/"), None);
        assert_eq!(Paths::new(&routes[1..]).find("/"), None);
    }

    #[test]
    fn original_by_query() {
        assert!(wants_original("original=true"));
        assert!(wants_original("a=b&original=true"));
        assert!(!wants_original("original=false"));
        assert!(!wants_original("xoriginal=true"));
    }
}
