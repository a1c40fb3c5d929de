//! Both directions of one exchange as streams on one correlation_id: each with
//! its own event_ids, its own cancel and its own resumption, whichever peer
//! originated the exchange. Serves NPAMP-CC-STREAM §8, and §5–§7 once per
//! direction.
//!
//! Sans-IO: events go in by [`Duplex::send`], frames come out of
//! [`Duplex::poll_frame`], the peer's frames go in by [`Duplex::handle`]. The
//! owner wraps each frame in an envelope with the exchange's correlation_id, and
//! finds the exchange by it. Never reads a foreign message, knows no method and
//! no policy: a resume request is judged by the owner, who then answers it.
//!
//! What tells the directions apart: BRIDGE_STREAM_DATA and a BRIDGE_STREAM_END
//! with `control = data` are of the sender's own direction; a BRIDGE_STREAM_END
//! with `control = cancel` and a BRIDGE_REQUEST with `control = resume` speak
//! of the receiver's. The A2A mapping has no full-duplex stream and does not use
//! this (NPAMP-MAP-A2A §6).

use crate::bridge::envelope::MessageKind;
use crate::bridge::replay::{Held, ReplayBuffer};
use crate::bridge::stream::{Consumer, Producer};
use crate::bridge::stream_control::{Control, StreamControl};
use crate::bridge::transport_error::{TransportCode, TransportErrorBody};
use crate::reasons;
use bytes::Bytes;
use std::collections::VecDeque;

/// Which peer sent the BRIDGE_REQUEST that began the exchange (NPAMP-BRIDGE §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Requester,
    /// The peer did.
    Responder,
}

/// What is kept of our direction so that it can be resumed (§6.1). With neither
/// events nor octets it never says `resumable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Events kept after they were sent.
    pub events: usize,
    /// Octets kept after they were sent.
    pub octets: usize,
}

/// A frame to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplexFrame {
    /// Decides the frame type. STREAM_END has the envelope's `final` bit set;
    /// REQUEST is a resume request, with the method and label of the exchange.
    pub kind: MessageKind,
    /// StreamControl; none on an answer that is no stream frame.
    pub control: Option<StreamControl>,
    /// Foreign message or transport error; may be empty.
    pub foreign: Bytes,
}

/// What a frame of the peer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// One event of the peer's direction.
    Event {
        /// Its event_id.
        event_id: u64,
        /// Foreign event, verbatim.
        event: Bytes,
    },
    /// The peer's direction has ended in order; a cancel of ours was moot.
    End {
        /// Above every event's.
        event_id: u64,
        /// What the end carries, verbatim; may be empty.
        event: Bytes,
    },
    /// The peer's direction has ended with an error.
    Failed {
        /// Foreign error or transport error, verbatim.
        error: Bytes,
    },
    /// The peer refuses the whole exchange: it answers the request itself.
    Refused {
        /// Foreign error or transport error, verbatim.
        error: Bytes,
    },
    /// The peer cannot go on with its direction from our cursor (§6.4).
    NotResumable,
    /// The peer has stopped its direction, as we asked (§7.2).
    CancelAcknowledged {
        /// event_id of the last event that it sent.
        tail: u64,
    },
    /// The peer wants no more of our direction, which is stopped and
    /// acknowledged (§7.2): produce no more events.
    Cancelled,
    /// The peer asks for our direction after `cursor`. Apply policy as to a fresh
    /// request (§12), then [`Duplex::answer_resume`].
    ResumeRequest {
        /// Last event_id that the peer has.
        cursor: u64,
    },
    /// Nothing to do: an event that was consumed before (§6.3), one that was on
    /// its way when we cancelled (§7.1), or a cancel of what has ended (§7.2).
    Discarded,
}

reasons! {
    /// Why a frame of the peer, or a wish of the owner, is not taken.
    #[derive(thiserror::Error)]
    pub enum DuplexError {
        /// event_id does not rise (§5.1, §9); the peer's direction has failed.
        #[error("the event_id does not exceed the one before it")]
        NotMonotonic => "not_monotonic",
        /// A stream frame without StreamControl (§4).
        #[error("a stream frame has no StreamControl")]
        ControlAbsent => "control_absent",
        /// The StreamControl does not belong in such a frame (§5.2).
        #[error("the StreamControl does not fit its frame")]
        ControlMisplaced => "control_misplaced",
        /// No frame of such a kind belongs to this exchange now.
        #[error("the frame does not belong to the exchange now")]
        Unexpected => "unexpected",
        /// Our direction has ended, or was cancelled.
        #[error("our direction has ended")]
        OutgoingOver => "outgoing_over",
        /// The peer's direction has ended, or was cancelled.
        #[error("the peer's direction has ended")]
        IncomingOver => "incoming_over",
        /// The peer's direction never said `resumable`, or was not lost (§6.1).
        #[error("the peer's direction cannot be resumed")]
        CannotResume => "cannot_resume",
    }
}

impl DuplexError {
    /// What reports it to the peer where an answer is due: all are EnvelopeMalformed (§9).
    pub fn transport_code(self) -> TransportCode {
        TransportCode::ENVELOPE_MALFORMED
    }
}

/// Our direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    /// Sent as it comes, its end included.
    Flowing,
    /// The association was lost: nothing is sent until the peer resumes it.
    Lost,
    /// The peer asks for it again after this event_id, and the owner has not answered.
    Asked(u64),
    /// Cancelled, or lost without a way back.
    Over,
}

/// The peer's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Incoming {
    Flowing,
    /// Resumed after this event_id: repeats up to it are discarded.
    Resumed(u64),
    /// We cancelled it and the peer has not said so yet.
    Cancelling,
    /// The association was lost.
    Lost,
    Over,
}

/// One exchange whose two directions are streams.
#[derive(Debug)]
pub struct Duplex {
    role: Role,
    retention: Retention,
    outgoing: Outgoing,
    producer: Producer,
    buffer: ReplayBuffer,
    incoming: Incoming,
    consumer: Consumer,
    /// Whether the last frame of the peer's direction said that it can be resumed.
    resumable: bool,
    /// Frames that belong to the other direction, or to none: they overtake events.
    asides: VecDeque<DuplexFrame>,
}

impl Duplex {
    /// An exchange that has just begun: its BRIDGE_REQUEST was sent or received.
    /// Either peer may send events at once (§8).
    pub fn new(role: Role, retention: Retention) -> Self {
        Self {
            role,
            retention,
            outgoing: Outgoing::Flowing,
            producer: Producer::default(),
            buffer: ReplayBuffer::default(),
            incoming: Incoming::Flowing,
            consumer: Consumer::default(),
            resumable: false,
            asides: VecDeque::new(),
        }
    }

    /// Queues an event of our direction.
    pub fn send(&mut self, event: Bytes) -> Result<(), DuplexError> {
        self.push(MessageKind::StreamData, event)
    }

    /// Queues the end of our direction; `event` may be empty.
    pub fn end(&mut self, event: Bytes) -> Result<(), DuplexError> {
        self.push(MessageKind::StreamEnd, event)
    }

    /// Queues the end of our direction by an error, foreign or transport.
    pub fn fail(&mut self, error: Bytes) -> Result<(), DuplexError> {
        self.push(MessageKind::Error, error)
    }

    fn push(&mut self, kind: MessageKind, object: Bytes) -> Result<(), DuplexError> {
        if self.outgoing == Outgoing::Over || self.buffer.terminal().is_some() {
            return Err(DuplexError::OutgoingOver);
        }
        let event_id = self.producer.next_event_id();
        self.buffer.push(Held {
            event_id,
            kind,
            object,
        });
        Ok(())
    }

    /// Events and octets of our direction that are still to be sent. Nothing
    /// unsent is ever dropped, so that who produces must heed this.
    pub fn unsent(&self) -> (usize, usize) {
        self.buffer.unsent()
    }

    /// Stops the peer's direction (§7.1). Ours goes on (§8).
    pub fn cancel(&mut self) -> Result<(), DuplexError> {
        match self.incoming {
            Incoming::Flowing | Incoming::Resumed(_) | Incoming::Lost => {
                self.incoming = Incoming::Cancelling;
                self.asides.push_back(DuplexFrame {
                    kind: MessageKind::StreamEnd,
                    control: Some(StreamControl::cancel(self.consumer.last_event_id())),
                    foreign: Bytes::new(),
                });
                Ok(())
            }
            Incoming::Cancelling | Incoming::Over => Err(DuplexError::IncomingOver),
        }
    }

    /// The association is gone. What can be resumed waits for it, each direction
    /// for itself; nothing leaves until then.
    pub fn lose(&mut self) {
        self.asides.clear();
        match self.outgoing {
            Outgoing::Flowing | Outgoing::Asked(_) | Outgoing::Lost if self.retains() => {
                self.outgoing = Outgoing::Lost;
            }
            _ => self.close_outgoing(),
        }
        self.incoming = match self.incoming {
            Incoming::Flowing | Incoming::Resumed(_) | Incoming::Lost if self.resumable => {
                Incoming::Lost
            }
            _ => Incoming::Over,
        };
    }

    /// On another association, asks for the peer's direction after the last event
    /// consumed (§6.2). The other direction stays as it is (§8). `foreign` is the
    /// request's body, where its protocol repeats it.
    pub fn resume(&mut self, foreign: Bytes) -> Result<(), DuplexError> {
        if self.incoming != Incoming::Lost {
            return Err(DuplexError::CannotResume);
        }
        let cursor = self.consumer.last_event_id();
        self.incoming = Incoming::Resumed(cursor);
        self.asides.push_back(DuplexFrame {
            kind: MessageKind::Request,
            control: Some(StreamControl::resume(cursor)),
            foreign,
        });
        Ok(())
    }

    /// Answers a [`Received::ResumeRequest`]: goes on after the cursor when
    /// `allowed` and possible, else refuses with NotResumable (§6.3). Never
    /// restarts. Says whether it goes on.
    pub fn answer_resume(&mut self, allowed: bool) -> bool {
        let Outgoing::Asked(cursor) = self.outgoing else {
            return false;
        };
        let possible = cursor <= self.buffer.reached() && self.buffer.holds_after(cursor);
        if !(allowed && possible) {
            // Lost still: the peer may ask with a cursor that is held.
            self.outgoing = Outgoing::Lost;
            self.refuse_resume();
            return false;
        }
        self.buffer.rewind(cursor);
        self.outgoing = Outgoing::Flowing;
        if self.buffer.terminal() == Some(cursor) {
            // The end once more, empty, for who has it already.
            self.asides.push_back(DuplexFrame {
                kind: MessageKind::StreamEnd,
                control: Some(self.control(cursor)),
                foreign: Bytes::new(),
            });
        }
        true
    }

    /// The next frame to send, in the order to send them.
    pub fn poll_frame(&mut self) -> Option<DuplexFrame> {
        if let Some(aside) = self.asides.pop_front() {
            return Some(aside);
        }
        if self.outgoing != Outgoing::Flowing {
            return None;
        }
        let held = self.buffer.next_unsent()?;
        let frame = DuplexFrame {
            kind: held.kind,
            control: Some(self.control(held.event_id)),
            foreign: held.object.clone(),
        };
        self.buffer.mark_sent();
        if self.retains() {
            self.buffer
                .trim(self.retention.events, self.retention.octets);
        } else {
            self.buffer.trim(0, 0);
        }
        Some(frame)
    }

    /// Takes a frame of the peer that names this exchange. One that comes by another
    /// association than the last shows that the last is gone: [`Duplex::lose`] first.
    /// After an error in the peer's direction that direction is over; ours is not
    /// touched.
    pub fn handle(
        &mut self,
        kind: MessageKind,
        control: Option<StreamControl>,
        foreign: Bytes,
    ) -> Result<Received, DuplexError> {
        match (kind, control) {
            (MessageKind::StreamData, Some(control)) if control.control == Control::Data => {
                self.event(control, foreign)
            }
            (MessageKind::StreamEnd, Some(control)) => match control.control {
                Control::Cancel => Ok(self.cancelled()),
                Control::Data if control.cancel_ack => self.acknowledged(control.event_id),
                Control::Data => self.ended(control, foreign),
                Control::Resume => Err(DuplexError::ControlMisplaced),
            },
            (MessageKind::Request, Some(control)) if control.control == Control::Resume => {
                Ok(self.asked(control.event_id))
            }
            (MessageKind::Error, control) => self.error(control, foreign),
            (MessageKind::StreamData | MessageKind::StreamEnd, None) => {
                self.incoming = Incoming::Over;
                Err(DuplexError::ControlAbsent)
            }
            (MessageKind::StreamData | MessageKind::Request, Some(_)) => {
                Err(DuplexError::ControlMisplaced)
            }
            (MessageKind::Request | MessageKind::Response | MessageKind::Notification, _) => {
                Err(DuplexError::Unexpected)
            }
        }
    }

    /// Whether neither direction will have another frame, ours retained or not.
    pub fn is_over(&self) -> bool {
        let sent = self.buffer.terminal().is_some() && self.buffer.next_unsent().is_none();
        self.asides.is_empty()
            && self.incoming == Incoming::Over
            && (self.outgoing == Outgoing::Over || (self.outgoing == Outgoing::Flowing && sent))
    }

    fn retains(&self) -> bool {
        self.retention != Retention::default()
    }

    /// The StreamControl of a frame of our direction.
    fn control(&self, event_id: u64) -> StreamControl {
        if self.retains() {
            StreamControl::resumable(event_id)
        } else {
            StreamControl::data(event_id)
        }
    }

    fn close_outgoing(&mut self) {
        self.outgoing = Outgoing::Over;
        self.buffer = ReplayBuffer::default();
    }

    /// Checks and records an event_id of the peer's direction; whether it is a repeat.
    fn accept(&mut self, control: StreamControl) -> Result<bool, DuplexError> {
        match self.incoming {
            Incoming::Lost | Incoming::Over => return Err(DuplexError::IncomingOver),
            Incoming::Resumed(cursor) if control.event_id <= cursor => return Ok(true),
            Incoming::Resumed(_) | Incoming::Flowing | Incoming::Cancelling => {}
        }
        if self.consumer.accept(control.event_id).is_err() {
            self.incoming = Incoming::Over;
            return Err(DuplexError::NotMonotonic);
        }
        self.resumable = control.resumable;
        Ok(false)
    }

    fn event(&mut self, control: StreamControl, event: Bytes) -> Result<Received, DuplexError> {
        let cancelling = self.incoming == Incoming::Cancelling;
        let repeat = self.accept(control)?;
        Ok(if repeat || cancelling {
            Received::Discarded
        } else {
            Received::Event {
                event_id: control.event_id,
                event,
            }
        })
    }

    fn ended(&mut self, control: StreamControl, event: Bytes) -> Result<Received, DuplexError> {
        // An end at the cursor is the end once more: it was seen, but not by who lost it.
        let again = self.incoming == Incoming::Resumed(control.event_id);
        if self.accept(control)? && !again {
            self.incoming = Incoming::Over;
            return Err(DuplexError::NotMonotonic);
        }
        self.incoming = Incoming::Over;
        Ok(Received::End {
            event_id: control.event_id,
            event,
        })
    }

    fn acknowledged(&mut self, tail: u64) -> Result<Received, DuplexError> {
        match self.incoming {
            Incoming::Cancelling if tail >= self.consumer.last_event_id() => {
                self.incoming = Incoming::Over;
                Ok(Received::CancelAcknowledged { tail })
            }
            Incoming::Cancelling => {
                self.incoming = Incoming::Over;
                Err(DuplexError::NotMonotonic)
            }
            // Nobody asked, or it was answered.
            _ => Err(DuplexError::Unexpected),
        }
    }

    fn error(
        &mut self,
        control: Option<StreamControl>,
        error: Bytes,
    ) -> Result<Received, DuplexError> {
        let Some(control) = control else {
            // It answers a request: a resume request of ours, or the first one.
            let refuses = TransportErrorBody::decode(&error)
                .is_some_and(|body| body.code == TransportCode::NOT_RESUMABLE);
            if matches!(self.incoming, Incoming::Resumed(_)) {
                self.incoming = Incoming::Over;
                return Ok(if refuses {
                    Received::NotResumable
                } else {
                    Received::Failed { error }
                });
            }
            if self.role == Role::Responder {
                return Err(DuplexError::Unexpected);
            }
            self.incoming = Incoming::Over;
            self.close_outgoing();
            self.asides.clear();
            return Ok(Received::Refused { error });
        };
        if control.control != Control::Data {
            return Err(DuplexError::ControlMisplaced);
        }
        if self.accept(control)? {
            self.incoming = Incoming::Over;
            return Err(DuplexError::NotMonotonic);
        }
        self.incoming = Incoming::Over;
        Ok(Received::Failed { error })
    }

    /// The peer cancels our direction: one acknowledgement with the true tail,
    /// unless it has ended already (§7.2).
    fn cancelled(&mut self) -> Received {
        let ended = self.buffer.terminal().is_some() && self.buffer.next_unsent().is_none();
        if self.outgoing == Outgoing::Over || (self.outgoing == Outgoing::Flowing && ended) {
            return Received::Discarded;
        }
        let tail = self.buffer.reached();
        self.close_outgoing();
        self.asides.push_back(DuplexFrame {
            kind: MessageKind::StreamEnd,
            control: Some(StreamControl::cancel_ack(tail)),
            foreign: Bytes::new(),
        });
        Received::Cancelled
    }

    fn asked(&mut self, cursor: u64) -> Received {
        if self.outgoing == Outgoing::Lost {
            self.outgoing = Outgoing::Asked(cursor);
            return Received::ResumeRequest { cursor };
        }
        // Cancelled, gone, or not lost at all: events on their way could not be
        // told from resumed ones.
        self.refuse_resume();
        Received::Discarded
    }

    fn refuse_resume(&mut self) {
        let body = TransportErrorBody {
            code: TransportCode::NOT_RESUMABLE,
            message: "the stream cannot be resumed",
        };
        self.asides.push_back(DuplexFrame {
            kind: MessageKind::Error,
            control: None,
            foreign: body.encode().into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Retention = Retention {
        events: 8,
        octets: 1 << 20,
    };

    fn event(n: u64) -> Bytes {
        Bytes::from(format!("event {n}"))
    }

    /// Hands every frame of `from` to `to`; gives what they meant.
    fn pass(from: &mut Duplex, to: &mut Duplex) -> Vec<Result<Received, DuplexError>> {
        let mut means = Vec::new();
        while let Some(frame) = from.poll_frame() {
            means.push(to.handle(frame.kind, frame.control, frame.foreign));
        }
        means
    }

    fn pair(retention: Retention) -> (Duplex, Duplex) {
        (
            Duplex::new(Role::Requester, retention),
            Duplex::new(Role::Responder, retention),
        )
    }

    fn ids(means: &[Result<Received, DuplexError>]) -> Vec<u64> {
        means
            .iter()
            .map(|means| match means {
                Ok(Received::Event { event_id, .. } | Received::End { event_id, .. }) => *event_id,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// NPAMP-CC-STREAM §8: event_ids of each direction are its own.
    #[test]
    fn directions_count_for_themselves() {
        let (mut ours, mut theirs) = pair(KEPT);
        for n in 1..=3 {
            ours.send(event(n)).unwrap();
        }
        theirs.send(event(1)).unwrap();
        theirs.end(Bytes::new()).unwrap();
        assert_eq!(ids(&pass(&mut theirs, &mut ours)), [1, 2]);
        assert_eq!(ids(&pass(&mut ours, &mut theirs)), [1, 2, 3]);
        // One end does not end the other direction.
        assert!(!ours.is_over() && !theirs.is_over());
        ours.end(event(4)).unwrap();
        assert_eq!(ids(&pass(&mut ours, &mut theirs)), [4]);
        assert!(ours.is_over() && theirs.is_over());
        assert_eq!(ours.send(event(5)), Err(DuplexError::OutgoingOver));
    }

    /// NPAMP-CC-STREAM §7, §8: a cancel stops one direction, is acknowledged once
    /// with the true tail, and what was on its way is discarded.
    #[test]
    fn a_cancel_is_of_one_direction() {
        let (mut ours, mut theirs) = pair(KEPT);
        theirs.send(event(1)).unwrap();
        pass(&mut theirs, &mut ours);
        theirs.send(event(2)).unwrap();
        let late = theirs.poll_frame().unwrap();
        theirs.send(event(3)).unwrap();
        ours.cancel().unwrap();
        assert_eq!(ours.cancel(), Err(DuplexError::IncomingOver));
        let cancel = ours.poll_frame().unwrap();
        assert_eq!(cancel.control, Some(StreamControl::cancel(1)));
        let taken = theirs.handle(cancel.kind, cancel.control, cancel.foreign.clone());
        assert_eq!(taken, Ok(Received::Cancelled));
        assert_eq!(theirs.send(event(4)), Err(DuplexError::OutgoingOver));
        // A second cancel is not acknowledged again.
        let again = theirs.handle(cancel.kind, cancel.control, cancel.foreign);
        assert_eq!(again, Ok(Received::Discarded));
        let taken = ours.handle(late.kind, late.control, late.foreign);
        assert_eq!(taken, Ok(Received::Discarded));
        // The third was never sent: the tail is 2.
        let acknowledged = pass(&mut theirs, &mut ours);
        assert_eq!(acknowledged, [Ok(Received::CancelAcknowledged { tail: 2 })]);
        // Our direction goes on.
        ours.send(event(1)).unwrap();
        assert_eq!(ids(&pass(&mut ours, &mut theirs)), [1]);
        // A cancelled direction is not resumed.
        theirs.lose();
        let asked = theirs.handle(
            MessageKind::Request,
            Some(StreamControl::resume(1)),
            Bytes::new(),
        );
        assert_eq!(asked, Ok(Received::Discarded));
        assert_eq!(theirs.poll_frame().unwrap().kind, MessageKind::Error);
    }

    /// NPAMP-CC-STREAM §7.2: a cancel that crosses the natural end is moot.
    #[test]
    fn a_cancel_that_crosses_the_end_is_moot() {
        let (mut ours, mut theirs) = pair(KEPT);
        theirs.end(event(1)).unwrap();
        let end = theirs.poll_frame().unwrap();
        ours.cancel().unwrap();
        assert_eq!(pass(&mut ours, &mut theirs), [Ok(Received::Discarded)]);
        let means = ours.handle(end.kind, end.control, end.foreign);
        assert!(matches!(means, Ok(Received::End { event_id: 1, .. })));
        assert_eq!(theirs.poll_frame(), None);
    }

    /// NPAMP-CC-STREAM §6, §8: each direction is resumed by its own consumer; the
    /// other stays silent until it is.
    #[test]
    fn each_direction_is_resumed_for_itself() {
        let (mut ours, mut theirs) = pair(KEPT);
        for n in 1..=3 {
            ours.send(event(n)).unwrap();
            theirs.send(event(n)).unwrap();
        }
        let first = theirs.poll_frame().unwrap();
        ours.handle(first.kind, first.control, first.foreign)
            .unwrap();
        // Two of theirs and all of ours are lost with the association.
        while theirs.poll_frame().is_some() || ours.poll_frame().is_some() {}
        ours.lose();
        theirs.lose();
        theirs.send(event(4)).unwrap();
        assert_eq!((ours.poll_frame(), theirs.poll_frame()), (None, None));
        assert_eq!(theirs.resume(Bytes::new()), Err(DuplexError::CannotResume));
        ours.resume(Bytes::new()).unwrap();
        assert_eq!(ours.resume(Bytes::new()), Err(DuplexError::CannotResume));
        let asked = pass(&mut ours, &mut theirs);
        assert_eq!(asked, [Ok(Received::ResumeRequest { cursor: 1 })]);
        assert_eq!(theirs.poll_frame(), None, "not before policy has spoken");
        assert!(theirs.answer_resume(true));
        assert_eq!(ids(&pass(&mut theirs, &mut ours)), [2, 3, 4]);
        assert_eq!(ours.poll_frame(), None, "nobody resumed our direction");
    }

    /// NPAMP-CC-STREAM §6.3, §12: policy, a cursor beyond what was sent and one
    /// before what is held are refused, and never by a restart.
    #[test]
    fn resumption_is_refused() {
        let retention = Retention {
            events: 2,
            octets: 1 << 20,
        };
        for (cursor, allowed, goes_on) in [
            (5, false, false),
            (6, true, false),
            (2, true, false),
            (3, true, true),
        ] {
            let (mut ours, mut theirs) = pair(retention);
            for n in 1..=5 {
                theirs.send(event(n)).unwrap();
            }
            pass(&mut theirs, &mut ours);
            theirs.lose();
            ours.lose();
            ours.resume(Bytes::new()).unwrap();
            let request = StreamControl::resume(cursor);
            theirs
                .handle(MessageKind::Request, Some(request), Bytes::new())
                .unwrap();
            assert_eq!(theirs.answer_resume(allowed), goes_on, "{cursor}");
            let answer = theirs.poll_frame().unwrap();
            if goes_on {
                assert_eq!(answer.control, Some(StreamControl::resumable(4)));
                continue;
            }
            assert_eq!(answer.control, None);
            let means = ours.handle(answer.kind, answer.control, answer.foreign);
            assert_eq!(means, Ok(Received::NotResumable));
        }
    }

    /// NPAMP-CC-STREAM §6.1: what keeps nothing says nothing, and is not resumed.
    #[test]
    fn without_retention_a_loss_is_the_end() {
        let (mut ours, mut theirs) = pair(Retention::default());
        theirs.send(event(1)).unwrap();
        let frame = theirs.poll_frame().unwrap();
        assert_eq!(frame.control, Some(StreamControl::data(1)));
        ours.handle(frame.kind, frame.control, frame.foreign)
            .unwrap();
        assert_eq!(theirs.buffer.len(), 0);
        ours.lose();
        theirs.lose();
        assert_eq!(ours.resume(Bytes::new()), Err(DuplexError::CannotResume));
        assert!(ours.is_over() && theirs.is_over());
    }

    /// Ruling R17: who asks at the end gets the end once more, empty.
    #[test]
    fn the_end_can_be_had_again() {
        let (mut ours, mut theirs) = pair(KEPT);
        theirs.send(event(1)).unwrap();
        theirs.end(event(2)).unwrap();
        let first = theirs.poll_frame().unwrap();
        ours.handle(first.kind, first.control, first.foreign)
            .unwrap();
        theirs.poll_frame().unwrap();
        theirs.lose();
        ours.lose();
        // As if the end had been consumed by who did not live to say so.
        ours.consumer.accept(2).unwrap();
        ours.resume(Bytes::new()).unwrap();
        pass(&mut ours, &mut theirs);
        assert!(theirs.answer_resume(true));
        let means = pass(&mut theirs, &mut ours);
        let event = Bytes::new();
        assert_eq!(means, [Ok(Received::End { event_id: 2, event })]);
    }

    /// NPAMP-CC-STREAM §9: an event_id that does not rise, no StreamControl, one
    /// that does not fit: refused, and our own direction goes on.
    #[test]
    fn bad_frames_hurt_one_direction() {
        let data = |event_id| Some(StreamControl::data(event_id));
        let cases = [
            (MessageKind::StreamData, data(1), DuplexError::NotMonotonic),
            (MessageKind::StreamEnd, data(1), DuplexError::NotMonotonic),
            (MessageKind::Error, data(1), DuplexError::NotMonotonic),
            (MessageKind::StreamData, None, DuplexError::ControlAbsent),
            (
                MessageKind::StreamData,
                Some(StreamControl::cancel(1)),
                DuplexError::ControlMisplaced,
            ),
            (
                MessageKind::StreamEnd,
                Some(StreamControl::resume(1)),
                DuplexError::ControlMisplaced,
            ),
            (MessageKind::Request, data(2), DuplexError::ControlMisplaced),
            (
                MessageKind::StreamEnd,
                Some(StreamControl::cancel_ack(1)),
                DuplexError::Unexpected,
            ),
            (MessageKind::Response, None, DuplexError::Unexpected),
            (MessageKind::Request, None, DuplexError::Unexpected),
        ];
        for (kind, control, error) in cases {
            let mut ours = Duplex::new(Role::Responder, KEPT);
            ours.handle(MessageKind::StreamData, data(1), event(1))
                .unwrap();
            assert_eq!(ours.handle(kind, control, event(2)), Err(error), "{kind:?}");
            ours.send(event(1)).unwrap();
            assert!(ours.poll_frame().is_some());
        }
    }

    /// NPAMP-BRIDGE §5, §6: an error without StreamControl answers the request,
    /// and only the requester has one to be answered.
    #[test]
    fn a_refused_exchange_is_over() {
        let error = Bytes::from_static(b"\x05\x02no");
        let mut ours = Duplex::new(Role::Requester, KEPT);
        ours.send(event(1)).unwrap();
        let means = ours.handle(MessageKind::Error, None, error.clone());
        assert_eq!(
            means,
            Ok(Received::Refused {
                error: error.clone()
            })
        );
        assert!(ours.is_over());
        let mut theirs = Duplex::new(Role::Responder, KEPT);
        let means = theirs.handle(MessageKind::Error, None, error);
        assert_eq!(means, Err(DuplexError::Unexpected));
    }
}
