//! HTTP/1.1 clients of one ingress on one thread: as many connections as asked
//! for, each with one request under way at most. Requests are due by a schedule
//! (open loop), or one after the other on each connection (closed loop), which
//! only a comparison of the most that is possible uses.
//!
//! In open loop a request that finds no free connection waits, and its wait
//! counts.

use super::events::Events;
use super::objects::{self, A2aVersion, Marks};
use super::pace::Pace;
use super::target::HttpTarget;
use crate::args::Arrivals;
use crate::generator::check_reply;
use crate::kind::Kind;
use crate::measurement::Measurement;
use crate::progress::Progress;
use crate::schedule::{Schedule, Share};
use crate::series::Series;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use npamp_relay::a2a::json_rpc;
use npamp_relay::engine::clock::now;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::LocalSet;
use tokio::time::timeout;

/// Octets of a whole reply.
const REPLY_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Time in which every connection must come about.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Requests handed out before connections have their turn.
const REQUESTS_A_ROUND: u32 = 64;
/// Pause of a connection before it is made anew.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// When requests are due.
#[derive(Debug, Clone, Copy)]
pub enum Pacing {
    /// By a schedule of so many a second.
    Open {
        /// Requests a second, all connections together.
        rate: f64,
        /// How they are spread.
        arrivals: Arrivals,
        /// Seed of random arrivals.
        seed: Option<u64>,
    },
    /// Each as soon as its connection had the reply before.
    Closed,
}

/// What is to be sent, and how.
#[derive(Debug, Clone)]
pub struct HttpPlan {
    /// Where to.
    pub target: HttpTarget,
    /// Streams of events instead of one reply.
    pub streams: bool,
    /// Spelling of methods.
    pub version: A2aVersion,
    /// Bearer token.
    pub bearer: Option<HeaderValue>,
    /// When requests are due.
    pub pacing: Pacing,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Connections.
    pub connections: usize,
    /// Octets of a request.
    pub payload: usize,
    /// Silence after which an exchange is given up.
    pub timeout: Duration,
    /// A send later than this after it could be is late.
    pub lag_max: Duration,
}

impl HttpPlan {
    /// What is sent.
    fn kind(&self) -> Kind {
        if self.streams {
            Kind::Stream
        } else {
            Kind::Unary
        }
    }
}

#[derive(Clone, Copy)]
struct Job {
    number: u64,
    intended: Instant,
}

struct Shared {
    plan: HttpPlan,
    run: String,
    progress: Arc<Progress>,
    state: RefCell<State>,
    due: Notify,
    ended: Notify,
    marks: Marks,
    begin: Instant,
    end: Instant,
}

#[derive(Default)]
struct State {
    measurement: Measurement,
    queue: VecDeque<Job>,
    number: u64,
    /// There will be no more requests.
    closed: bool,
    /// Connections that have not ended.
    workers: usize,
}

/// Why an exchange failed: kind, text, and whether its connection may be used again.
struct Failure {
    kind: String,
    text: String,
}

#[allow(clippy::needless_pass_by_value)] // errors are passed as they come
fn failure(kind: &str, text: impl ToString) -> Failure {
    Failure {
        kind: kind.to_owned(),
        text: text.to_string(),
    }
}

/// Runs a plan on this thread.
pub fn measure(plan: HttpPlan, progress: Arc<Progress>) -> io::Result<Measurement> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // The default slack of 50 µs would be the generator's own lag; it stays when the kernel refuses.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZero::new(1));
    LocalSet::new().block_on(&runtime, drive(plan, progress))
}

async fn drive(plan: HttpPlan, progress: Arc<Progress>) -> io::Result<Measurement> {
    let mut senders = Vec::with_capacity(plan.connections);
    let connecting = async {
        for _ in 0..plan.connections {
            senders.push(connect(&plan).await?);
        }
        Ok::<_, Failure>(())
    };
    let connected = timeout(CONNECT_TIME, connecting).await.unwrap_or_else(|_| {
        Err(failure(
            "connect",
            format!("no connection within {CONNECT_TIME:?}"),
        ))
    });
    if let Err(failure) = connected {
        return Ok(Measurement {
            aborted: Some(format!("{}: {}", plan.target, failure.text)),
            ..Measurement::default()
        });
    }
    let start = now();
    let (begin, end) = (start + plan.warmup, start + plan.warmup + plan.duration);
    let shared = Rc::new(Shared {
        run: format!("{:016x}", fastrand::u64(..)),
        state: RefCell::new(State {
            measurement: Measurement {
                begin: Some(begin),
                end: Some(end),
                series: Some(Series::new(begin, plan.duration)),
                ..Measurement::default()
            },
            workers: senders.len(),
            ..State::default()
        }),
        progress,
        due: Notify::new(),
        ended: Notify::new(),
        marks: Marks::default(),
        begin,
        end,
        plan,
    });
    for sender in senders {
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            work(&shared, sender).await;
            shared.state.borrow_mut().workers -= 1;
            shared.ended.notify_one();
        });
    }
    pace(&shared, start).await?;
    // What waits still is sent, for as long as an exchange may be silent.
    let give_up = now() + shared.plan.timeout;
    {
        let mut state = shared.state.borrow_mut();
        state.closed = true;
    }
    shared.due.notify_waiters();
    while shared.state.borrow().workers > 0 {
        let left = give_up.saturating_duration_since(now());
        if timeout(left, shared.ended.notified()).await.is_err() {
            break;
        }
    }
    let mut state = shared.state.borrow_mut();
    let waiting: Vec<Job> = state.queue.drain(..).collect();
    let measured = waiting.iter().filter(|job| job.intended >= begin).count() as u64;
    let kind = shared.plan.kind();
    state.measurement.of(kind).scheduled += measured;
    state.measurement.errors_of(
        "not_sent",
        "still waiting for a connection when the run ended",
        waiting.len() as u64,
    );
    let under_way = state.workers as u64;
    state
        .measurement
        .errors_of("timed_out", "not completed when the run ended", under_way);
    Ok(std::mem::take(&mut state.measurement))
}

/// Hands out requests when they are due, until the end.
async fn pace(shared: &Shared, start: Instant) -> io::Result<()> {
    let timer = Pace::new()?;
    let Pacing::Open {
        rate,
        arrivals,
        seed,
    } = shared.plan.pacing
    else {
        shared.due.notify_waiters();
        return timer.until(shared.end).await;
    };
    let mut schedule = Schedule::new(
        arrivals,
        rate,
        start,
        shared.end - start,
        seed,
        Share::WHOLE,
    );
    let mut round = 0;
    while let Some(intended) = schedule.peek() {
        let at = now();
        shared.elapsed(start, at);
        if intended > at {
            round = 0;
            timer.until(intended).await?;
            continue;
        }
        schedule.take();
        {
            let mut state = shared.state.borrow_mut();
            state.number += 1;
            let number = state.number;
            state.queue.push_back(Job { number, intended });
        }
        shared.due.notify_one();
        round += 1;
        if round == REQUESTS_A_ROUND {
            round = 0;
            tokio::task::yield_now().await;
        }
    }
    timer.until(shared.end).await
}

impl Shared {
    fn elapsed(&self, start: Instant, at: Instant) {
        let elapsed = u64::try_from((at - start).as_nanos()).unwrap_or(u64::MAX);
        self.progress.elapsed.store(
            elapsed.saturating_add(1),
            std::sync::atomic::Ordering::Relaxed,
        );
    }

    /// The next request of a connection that is free; none when there will be no more.
    async fn job(&self) -> Option<Job> {
        loop {
            let due = self.due.notified();
            {
                let mut state = self.state.borrow_mut();
                if let Some(job) = state.queue.pop_front() {
                    return Some(job);
                }
                if state.closed {
                    return None;
                }
                if matches!(self.plan.pacing, Pacing::Closed) {
                    let intended = now();
                    if intended >= self.end {
                        return None;
                    }
                    state.number += 1;
                    let number = state.number;
                    return Some(Job { number, intended });
                }
            }
            due.await;
        }
    }

    fn count_error(&self, measured: bool, failure: Failure) {
        Progress::count(&self.progress.errors, 1);
        // An error in the warm-up is an error all the same.
        let kind = if measured {
            failure.kind
        } else {
            format!("warmup_{}", failure.kind)
        };
        self.state
            .borrow_mut()
            .measurement
            .error(&kind, failure.text);
    }
}

type Sender = SendRequest<Full<Bytes>>;

async fn connect(plan: &HttpPlan) -> Result<Sender, Failure> {
    let socket = TcpStream::connect(&plan.target.authority)
        .await
        .map_err(|error| failure("connect", error))?;
    socket
        .set_nodelay(true)
        .map_err(|error| failure("connect", error))?;
    let (sender, connection) = handshake(TokioIo::new(socket))
        .await
        .map_err(|error| failure("connect", error))?;
    tokio::task::spawn_local(async move {
        // What goes wrong with it shows in the request under way.
        let _ = connection.await;
    });
    Ok(sender)
}

/// One connection, made anew when it is lost.
async fn work(shared: &Shared, sender: Sender) {
    let mut sender = Some(sender);
    let mut free = shared.begin.checked_sub(shared.plan.warmup);
    while let Some(job) = shared.job().await {
        let measured = job.intended >= shared.begin;
        let mut kept = sender.take();
        if let Some(old) = &mut kept
            && old.ready().await.is_err()
        {
            // The peer closed it meanwhile, as it may.
            kept = None;
        }
        let ready = match kept {
            Some(kept) => Ok(kept),
            None => limited(shared, connect(&shared.plan)).await,
        };
        let at = now();
        let possible = free.map_or(job.intended, |free| free.max(job.intended));
        let lag = at.saturating_duration_since(possible);
        if measured {
            let measurement = &mut shared.state.borrow_mut().measurement;
            measurement.of(shared.plan.kind()).scheduled += 1;
            measurement.lag.record(lag);
            measurement.wait.record(possible - job.intended);
            measurement.late_sends += u64::from(lag > shared.plan.lag_max);
        }
        let outcome = match ready {
            Ok(ready) => exchange(shared, ready, job, at, measured).await,
            Err(failure) => {
                tokio::time::sleep(RECONNECT_PAUSE).await;
                Err(failure)
            }
        };
        match outcome {
            Ok(kept) => sender = Some(kept),
            Err(failure) => shared.count_error(measured, failure),
        }
        free = Some(now());
    }
}

async fn limited<T>(
    shared: &Shared,
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(shared.plan.timeout, step)
        .await
        .unwrap_or_else(|_| Err(failure("timed_out", "silent for too long")))
}

async fn exchange(
    shared: &Shared,
    mut sender: Sender,
    job: Job,
    sent: Instant,
    measured: bool,
) -> Result<Sender, Failure> {
    let plan = &shared.plan;
    let (method, accept) = if plan.streams {
        (plan.version.stream(), "text/event-stream")
    } else {
        (plan.version.send(), "application/json")
    };
    let id = job.number.to_string();
    let object = objects::request(plan.version, method, &id, &shared.run, plan.payload);
    let octets = object.len() as u64;
    let mut request = http::Request::new(Full::new(Bytes::from(object)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = plan
        .target
        .path
        .parse()
        .map_err(|error| failure("target", error))?;
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&plan.target.authority);
    headers.insert(
        header::HOST,
        host.map_err(|error| failure("target", error))?,
    );
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    headers.insert(
        "a2a-version",
        HeaderValue::from_static(plan.version.header()),
    );
    if let Some(bearer) = &plan.bearer {
        headers.insert(header::AUTHORIZATION, bearer.clone());
    }
    {
        let measurement = &mut shared.state.borrow_mut().measurement;
        measurement.sent_at(sent);
        if measured {
            let counts = measurement.of(plan.kind());
            counts.sent += 1;
            counts.octets_sent += octets;
        }
    }
    Progress::count(&shared.progress.sent, 1);
    let response = limited(shared, async {
        sender
            .send_request(request)
            .await
            .map_err(|error| failure("connection_lost", error))
    })
    .await?;
    let (parts, body) = response.into_parts();
    let is_stream = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    if parts.status != http::StatusCode::OK {
        let text = whole(shared, body).await?;
        return Err(failure(
            &format!("http_{}", parts.status.as_u16()),
            String::from_utf8_lossy(&text),
        ));
    }
    match (plan.streams, is_stream) {
        (true, true) => events(shared, body, job, sent, measured).await?,
        (true, false) => {
            let text = whole(shared, body).await?;
            return Err(failure("no_stream", String::from_utf8_lossy(&text)));
        }
        (false, _) => {
            let text = whole(shared, body).await?;
            check_reply(job.number, &text).map_err(|(kind, text)| Failure { kind, text })?;
            received(shared, now(), measured, 0, text.len() as u64);
        }
    }
    let at = now();
    Progress::count(&shared.progress.completed, 1);
    let measurement = &mut shared.state.borrow_mut().measurement;
    let time = at.saturating_duration_since(job.intended);
    measurement.completed_at(at, time);
    if measured {
        measurement.completion.record(time);
        let counts = measurement.of(plan.kind());
        counts.completed += 1;
        if plan.streams {
            counts.stream_end.record(time);
        } else {
            counts.reply.record(time);
        }
    }
    Ok(sender)
}

fn received(shared: &Shared, at: Instant, measured: bool, events: u64, octets: u64) {
    let measurement = &mut shared.state.borrow_mut().measurement;
    measurement.events_at(at, events);
    if measurement.is_within(at) {
        measurement.octets_received_within += octets;
    }
    if measured {
        let counts = measurement.of(shared.plan.kind());
        counts.events += events;
        counts.octets_received += octets;
    }
}

async fn frame(shared: &Shared, body: &mut Incoming) -> Result<Option<Bytes>, Failure> {
    loop {
        if body.is_end_stream() {
            return Ok(None);
        }
        let next = limited(shared, async { Ok(body.frame().await) }).await?;
        match next {
            None => return Ok(None),
            Some(Err(error)) => return Err(failure("connection_lost", error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

async fn whole(shared: &Shared, mut body: Incoming) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    while let Some(data) = frame(shared, &mut body).await? {
        if text.len() + data.len() > REPLY_OCTETS_MAX {
            return Err(failure("reply_too_long", "a reply without end"));
        }
        text.extend_from_slice(&data);
    }
    Ok(text)
}

/// Reads a stream to its end. Events must be numbered from 1 on, and the last one must say so.
async fn events(
    shared: &Shared,
    mut body: Incoming,
    job: Job,
    sent: Instant,
    measured: bool,
) -> Result<(), Failure> {
    let mut parser = Events::default();
    let (mut seen, mut last, mut heard) = (0, false, sent);
    while let Some(data) = frame(shared, &mut body).await? {
        let at = now();
        let (mut problem, mut octets, before) = (None, 0, seen);
        parser
            .chunk(&data, |object| {
                octets += object.len() as u64;
                seen += 1;
                if problem.is_some() {
                    return;
                }
                problem = match shared.marks.of(object) {
                    None if json_rpc::scan_response(object)
                        .is_ok_and(|response| response.outcome.is_error()) =>
                    {
                        Some(failure("agent_error", String::from_utf8_lossy(object)))
                    }
                    None => Some(failure("event_unnumbered", String::from_utf8_lossy(object))),
                    Some(_) if last => Some(failure("stream_broken", "an event behind the last")),
                    Some(mark) if mark.number != seen => Some(failure(
                        "stream_gap",
                        format!("event {} where {seen} was due", mark.number),
                    )),
                    Some(mark) => {
                        last = mark.last;
                        None
                    }
                };
            })
            .map_err(|error| failure("event_malformed", error))?;
        if let Some(problem) = problem {
            return Err(problem);
        }
        if seen > before {
            received(shared, at, measured, seen - before, octets);
            if measured {
                let measurement = &mut shared.state.borrow_mut().measurement;
                let counts = measurement.of(Kind::Stream);
                if before == 0 {
                    counts
                        .first_event
                        .record(at.saturating_duration_since(job.intended));
                } else {
                    counts.gap.record(at.saturating_duration_since(heard));
                }
                // The other events of a chunk came at once.
                counts.gap.record_times(Duration::ZERO, seen - before - 1);
            }
            heard = at;
        }
    }
    if !last {
        return Err(failure(
            "stream_incomplete",
            format!("the stream ended behind event {seen}, which was not the last"),
        ));
    }
    Ok(())
}
