//! The native responder: answers `message/send` with one RESPONSE and
//! `message/stream` with events and an end, straight on the shard, without an
//! agent. Never holds more unsealed octets of an association than a relay would.

use crate::args::{BULK_OCTETS_MIN, ReplyArguments};
use crate::drive::{Pace, Work};
use crate::message::{self, SEND, STREAM, Template};
use npamp_relay::a2a::json_rpc;
use npamp_relay::association::Event;
use npamp_relay::bridge::envelope::MessageKind;
use npamp_relay::bridge::error::BridgeError;
use npamp_relay::bridge::payload;
use npamp_relay::bridge::stream::Producer;
use npamp_relay::bridge::stream_control::{Control, StreamControl};
use npamp_relay::bridge::transport_error::{TransportCode, TransportErrorBody};
use npamp_relay::engine::clock::now;
use npamp_relay::engine::control::Outcome;
use npamp_relay::engine::shard::{Down, Handler, LinkId, LinkInfo, Shard};
use npamp_relay::limits::OUTBOUND_QUEUE_HIGH_OCTETS;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events of one stream sent before another stream has its turn.
const EVENTS_IN_A_ROW: u32 = 16;
/// Events sent before what has arrived is looked at.
const EVENTS_A_ROUND: u32 = 512;
/// v1.0 spellings of the two methods.
const SEND_V1: &str = "SendMessage";
const STREAM_V1: &str = "SendStreamingMessage";

/// A bulk request to answer once its association has room: its answer is not made before.
struct BulkAnswer {
    link: LinkId,
    correlation_id: Vec<u8>,
    id: String,
}

struct Stream {
    link: LinkId,
    correlation_id: Vec<u8>,
    id: String,
    producer: Producer,
    left: u32,
}

/// See the module.
pub struct Responder {
    stop: Arc<AtomicBool>,
    reply: Template,
    bulk_reply: Template,
    event: Template,
    last: Template,
    events: u32,
    gap: Duration,
    object: Vec<u8>,
    answers: VecDeque<(LinkId, MessageKind, Vec<u8>)>,
    bulk: VecDeque<BulkAnswer>,
    /// Streams that may send.
    streams: VecDeque<Stream>,
    /// Streams that pause until a time; the number keeps equal times apart.
    pausing: BTreeMap<(Instant, u64), Stream>,
    paused: u64,
}

impl Responder {
    /// Ends once `stop` is true.
    pub fn new(replies: &ReplyArguments, stop: Arc<AtomicBool>) -> Self {
        let octets = usize::try_from(replies.event_octets).unwrap_or(usize::MAX);
        Self {
            stop,
            reply: Template::reply(octets),
            bulk_reply: Template::reply(usize::try_from(replies.bulk_octets).unwrap_or(octets)),
            event: Template::event(octets),
            last: Template::last(),
            events: replies.events,
            gap: Duration::from_micros(replies.event_gap_us),
            object: Vec::new(),
            answers: VecDeque::new(),
            bulk: VecDeque::new(),
            streams: VecDeque::new(),
            pausing: BTreeMap::new(),
            paused: 0,
        }
    }

    fn answer(&mut self, link: LinkId, kind: MessageKind, payload: Result<Vec<u8>, BridgeError>) {
        match payload {
            Ok(payload) => self.answers.push_back((link, kind, payload)),
            Err(error) => eprintln!("npamp-loadgen: an answer could not be encoded: {error}"),
        }
    }

    fn transport_error(
        &mut self,
        link: LinkId,
        correlation_id: &[u8],
        code: TransportCode,
        text: &str,
    ) {
        let body = TransportErrorBody {
            code,
            message: text,
        }
        .encode();
        self.answer(
            link,
            MessageKind::Error,
            message::answer(MessageKind::Error, correlation_id, &body),
        );
    }

    fn frame(&mut self, link: LinkId, frame_type: FrameType, octets: &[u8]) {
        let payload = match payload::decode(frame_type.0, octets) {
            Ok(payload) => payload,
            Err(error) => {
                if frame_type == FrameType::BRIDGE_REQUEST
                    && let Some((_, correlation_id)) = payload::readable_correlation(octets)
                {
                    let correlation_id = correlation_id.to_vec();
                    self.transport_error(
                        link,
                        &correlation_id,
                        TransportCode::ENVELOPE_MALFORMED,
                        &error.to_string(),
                    );
                }
                return;
            }
        };
        let correlation_id = payload.envelope.correlation_id;
        match payload.envelope.kind {
            MessageKind::Request => self.request(
                link,
                payload.envelope.method,
                correlation_id,
                payload.foreign,
            ),
            MessageKind::StreamEnd
                if payload
                    .stream_control
                    .is_some_and(|control| control.control == Control::Cancel) =>
            {
                self.cancel(link, correlation_id);
            }
            _ => {}
        }
    }

    fn request(&mut self, link: LinkId, method: &str, correlation_id: &[u8], object: &[u8]) {
        let id = match json_rpc::scan_request(object).map(|request| request.id) {
            Ok(Some(id)) => id.token(),
            Ok(None) => {
                return self.transport_error(
                    link,
                    correlation_id,
                    TransportCode::NOT_DELIVERED,
                    "no id",
                );
            }
            Err(error) => {
                return self.transport_error(
                    link,
                    correlation_id,
                    TransportCode::NOT_DELIVERED,
                    &error.to_string(),
                );
            }
        };
        match method {
            SEND | SEND_V1 if object.len() as u64 >= BULK_OCTETS_MIN => {
                self.bulk.push_back(BulkAnswer {
                    link,
                    correlation_id: correlation_id.to_vec(),
                    id: id.to_owned(),
                });
            }
            SEND | SEND_V1 => {
                self.reply.write(id, &mut self.object);
                let payload = message::answer(MessageKind::Response, correlation_id, &self.object);
                self.answer(link, MessageKind::Response, payload);
            }
            STREAM | STREAM_V1 => self.streams.push_back(Stream {
                link,
                correlation_id: correlation_id.to_vec(),
                id: id.to_owned(),
                producer: Producer::default(),
                left: self.events,
            }),
            _ => {
                let error = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32601,"message":"Method not found"}}}}"#
                );
                let payload = message::answer(MessageKind::Error, correlation_id, error.as_bytes());
                self.answer(link, MessageKind::Error, payload);
            }
        }
    }

    /// NPAMP-CC-STREAM §7.2: the acknowledgement names the last event sent; a stream that has ended is not acknowledged.
    fn cancel(&mut self, link: LinkId, correlation_id: &[u8]) {
        let names =
            |stream: &Stream| stream.link == link && stream.correlation_id == correlation_id;
        let stream = if let Some(at) = self.streams.iter().position(names) {
            self.streams.remove(at)
        } else {
            let key = self
                .pausing
                .iter()
                .find(|(_, stream)| names(stream))
                .map(|(&key, _)| key);
            key.and_then(|key| self.pausing.remove(&key))
        };
        if let Some(stream) = stream {
            let control = StreamControl::cancel_ack(stream.producer.last_event_id());
            self.answer(
                link,
                MessageKind::StreamEnd,
                message::stream(MessageKind::StreamEnd, correlation_id, control, b""),
            );
        }
    }

    /// Sends the next frame of a stream. False when the stream is over, sent or failed.
    fn step(&mut self, shard: &mut Shard, stream: &mut Stream) -> bool {
        let (kind, template) = match stream.left {
            0 => (MessageKind::StreamEnd, &self.last),
            _ => (MessageKind::StreamData, &self.event),
        };
        template.write(&stream.id, &mut self.object);
        let control = StreamControl::data(stream.producer.next_event_id());
        let sent = message::stream(kind, &stream.correlation_id, control, &self.object)
            .is_ok_and(|payload| send(shard, stream.link, kind, payload));
        let more = stream.left > 0;
        stream.left = stream.left.saturating_sub(1);
        sent && more
    }

    /// Lets streams send, in turn, as far as their associations take it.
    fn work_streams(&mut self, shard: &mut Shard) -> bool {
        let mut sent = 0;
        let mut idle = 0;
        while idle < self.streams.len() && sent < EVENTS_A_ROUND {
            let Some(mut stream) = self.streams.pop_front() else {
                break;
            };
            let Some(queued) = shard.queued_octets(stream.link) else {
                continue;
            };
            if queued >= OUTBOUND_QUEUE_HIGH_OCTETS {
                idle += 1;
                self.streams.push_back(stream);
                continue;
            }
            idle = 0;
            let mut more = true;
            for _ in 0..if self.gap.is_zero() {
                EVENTS_IN_A_ROW
            } else {
                1
            } {
                sent += 1;
                more = self.step(shard, &mut stream);
                if !more {
                    break;
                }
            }
            if more && self.gap.is_zero() {
                self.streams.push_back(stream);
            } else if more {
                self.paused += 1;
                self.pausing.insert((now() + self.gap, self.paused), stream);
            }
        }
        sent > 0
    }

    /// Answers bulk requests as far as their associations take it.
    fn work_bulk(&mut self, shard: &mut Shard) -> bool {
        let mut sent = false;
        for _ in 0..self.bulk.len() {
            let Some(answer) = self.bulk.pop_front() else {
                break;
            };
            match shard.queued_octets(answer.link) {
                None => {}
                Some(queued) if queued >= OUTBOUND_QUEUE_HIGH_OCTETS => self.bulk.push_back(answer),
                Some(_) => {
                    self.bulk_reply.write(&answer.id, &mut self.object);
                    let kind = MessageKind::Response;
                    match message::answer(kind, &answer.correlation_id, &self.object) {
                        Ok(payload) => sent |= send(shard, answer.link, kind, payload),
                        Err(error) => {
                            eprintln!("npamp-loadgen: an answer could not be encoded: {error}");
                        }
                    }
                }
            }
        }
        sent
    }

    fn wake_streams(&mut self) {
        let now = now();
        while let Some(entry) = self.pausing.first_entry() {
            if entry.key().0 > now {
                break;
            }
            self.streams.push_back(entry.remove());
        }
    }
}

fn send(shard: &mut Shard, link: LinkId, kind: MessageKind, payload: Vec<u8>) -> bool {
    shard
        .send(
            link,
            ChannelId::BRIDGE,
            FrameType(kind.frame_type()),
            Flags::NONE,
            payload,
        )
        .is_ok()
}

impl Handler for Responder {
    fn up(&mut self, _link: LinkId, _info: &LinkInfo) {}

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        if let Event::Frame {
            channel: ChannelId::BRIDGE,
            frame_type,
            payload,
        } = event
        {
            self.frame(link, frame_type, payload);
        }
    }

    fn down(&mut self, link: LinkId, _reason: &Down) {
        self.bulk.retain(|answer| answer.link != link);
        self.streams.retain(|stream| stream.link != link);
        self.pausing.retain(|_, stream| stream.link != link);
    }
}

impl Work for Responder {
    fn outcome(&mut self, outcome: Outcome, shard: &mut Shard) {
        if let Outcome::Joined(handed) = outcome
            && shard.adopt(*handed, self).is_none()
        {
            eprintln!("npamp-loadgen: no room for another association");
        }
    }

    fn work(&mut self, shard: &mut Shard) -> Pace {
        let mut worked = !self.answers.is_empty();
        while let Some((link, kind, payload)) = self.answers.pop_front() {
            // A link that is gone or full: the initiator counts what it misses.
            send(shard, link, kind, payload);
        }
        worked |= self.work_bulk(shard);
        self.wake_streams();
        worked |= self.work_streams(shard);
        Pace {
            worked,
            wake_at: self.pausing.first_key_value().map(|(key, _)| key.0),
            done: self.stop.load(Ordering::Acquire),
        }
    }
}
