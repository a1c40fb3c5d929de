//! A client comes back for its stream (ruling R17): by `Last-Event-ID`, or by
//! subscribing to its v0.3 task again. It goes on from what the ingress kept,
//! else from what the producer kept, else it is told 409 and nothing is carried;
//! no call of it ever begins anew.

use super::Mapping;
use super::call::CallHandle;
use super::remote::{Forwarder, Parcel, Source, bridge};
use super::respond::Failure;
use super::stats::{EdgeStats, ResumeRefusal, StreamFate};
use super::streams::{Continued, From, NotContinued, Origin, Streams};
use super::token::StreamToken;
use crate::a2a::port::{CallEvent, CallRequest, ServiceParameters};
use crate::bridge::transport_error::TransportCode;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// What a client asks for.
pub(super) struct Ask {
    pub(super) token: StreamToken,
    pub(super) origin: Origin,
    pub(super) from: From,
    pub(super) parameters: ServiceParameters,
    /// How long the producer may take before the response's head goes out.
    pub(super) head_time: Duration,
    pub(super) stats: Arc<EdgeStats>,
}

/// What it gets.
pub(super) enum Answer {
    /// The stream, with its next event if that has come already.
    Stream(Source, Option<CallEvent>),
    /// It has everything.
    Complete,
}

/// The same on the stream's own unit.
enum Found {
    Stream(CallHandle, Option<CallEvent>),
    Complete,
}

/// Finds the stream, wherever it is.
pub(super) async fn resume<M: Mapping + ?Sized>(mapping: &M, ask: Ask) -> Result<Answer, Failure> {
    let unit = ask.token.unit();
    if unit == mapping.streams().unit() {
        return Ok(match find(mapping, ask).await? {
            Found::Stream(handle, first) => Answer::Stream(Source::Here(handle), first),
            Found::Complete => Answer::Complete,
        });
    }
    let (answer, answered) = oneshot::channel();
    let stats = ask.stats.clone();
    let resubscribes = ask.from == From::HandedOut;
    let reached = mapping.elsewhere(
        unit,
        Box::new(move |mapping| {
            tokio::task::spawn_local(async move {
                let (forwarder, parcel) = hand_over(find(&*mapping, ask).await);
                // A client that has left meanwhile leaves its stream as it would here.
                if answer.send(parcel).is_ok()
                    && let Some(forwarder) = forwarder
                {
                    forwarder.run().await;
                }
            });
        }),
    );
    let gone = || refuse(&stats, resubscribes, ResumeRefusal::Unknown);
    if !reached {
        return Err(gone());
    }
    match answered.await {
        Ok(Ok(Some((parcel, first)))) => {
            stats.stream_fates.count(StreamFate::OnAnotherUnit);
            Ok(Answer::Stream(Source::Elsewhere(parcel.unpack()), first))
        }
        Ok(Ok(None)) => Ok(Answer::Complete),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(gone()),
    }
}

type Handed = Result<Option<(Parcel, Option<CallEvent>)>, Failure>;

fn hand_over(found: Result<Found, Failure>) -> (Option<Forwarder>, Handed) {
    match found {
        Ok(Found::Stream(handle, first)) => {
            let (forwarder, parcel) = bridge(handle);
            (Some(forwarder), Ok(Some((parcel, first))))
        }
        Ok(Found::Complete) => (None, Ok(None)),
        Err(failure) => (None, Err(failure)),
    }
}

async fn find<M: Mapping + ?Sized>(mapping: &M, ask: Ask) -> Result<Found, Failure> {
    let streams: &Rc<Streams> = mapping.streams();
    let resubscribes = ask.from == From::HandedOut;
    match streams.resume(ask.token, &ask.origin, ask.from) {
        Ok(Continued::Window(mut handle)) => {
            // What waits already shows whether there is a stream to be begun.
            let first = match poll_immediately(&mut handle) {
                Some(Some(CallEvent::TransportError(error))) => {
                    return Err(Failure::Transport(error));
                }
                Some(None) => return Err(Failure::not_delivered("the stream broke", false)),
                Some(first) => first,
                None => None,
            };
            let fate = if resubscribes {
                StreamFate::Resubscribed
            } else {
                StreamFate::FromWindow
            };
            ask.stats.stream_fates.count(fate);
            Ok(Found::Stream(handle, first))
        }
        Ok(Continued::Complete) => Ok(Found::Complete),
        Ok(Continued::Wire { ticket, cursor }) => {
            let request = CallRequest::Resume { ticket, cursor };
            let call = mapping
                .call(ask.origin.route, ask.parameters, request)
                .map_err(Failure::Refused)?;
            call.expect_replay();
            let mut asked = Asked {
                call: Some(call),
                token: ask.token,
                cursor,
            };
            let first = timeout(ask.head_time, asked.next()).await;
            let Some(call) = asked.call.take() else {
                return Err(Failure::not_delivered("the call was given up", false));
            };
            let first = match first {
                Ok(Some(CallEvent::TransportError(error))) => {
                    if error.code == TransportCode::NOT_RESUMABLE.0 {
                        return Err(refuse(&ask.stats, resubscribes, ResumeRefusal::Producer));
                    }
                    return Err(Failure::Transport(error));
                }
                Ok(None) => return Err(Failure::not_delivered("the call was given up", false)),
                Ok(Some(event)) => Some(event),
                // It goes on, and nothing has happened since.
                Err(_) => None,
            };
            call.keep_as(ask.token, cursor);
            ask.stats.stream_fates.count(StreamFate::FromProducer);
            Ok(Found::Stream(call, first))
        }
        Err(why) => Err(refuse(
            &ask.stats,
            resubscribes,
            match why {
                NotContinued::Unknown | NotContinued::Attached => ResumeRefusal::Unknown,
                NotContinued::Foreign => ResumeRefusal::Foreign,
                NotContinued::Ahead => ResumeRefusal::Ahead,
                NotContinued::NotHeld => ResumeRefusal::NotHeld,
            },
        )),
    }
}

/// A producer that was asked for a stream. If the client leaves before the answer,
/// the stream is kept for it: a cancel would have the producer forget it.
struct Asked {
    call: Option<CallHandle>,
    token: StreamToken,
    cursor: u64,
}

impl Asked {
    async fn next(&mut self) -> Option<CallEvent> {
        self.call.as_mut()?.next().await
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.keep_as(self.token, self.cursor);
        }
    }
}

/// The next event, or that there is none any more, if that is known.
#[allow(clippy::option_option, reason = "pending, over, an event")]
fn poll_immediately(handle: &mut CallHandle) -> Option<Option<CallEvent>> {
    match handle.poll_event(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(event) => Some(event),
        Poll::Pending => None,
    }
}

/// Counts a refusal, unless its client gets a fresh stream instead.
pub(super) fn refuse(stats: &EdgeStats, resubscribes: bool, why: ResumeRefusal) -> Failure {
    if !resubscribes {
        stats.resume_refusals.count(why);
    }
    Failure::NotResumable(why)
}
