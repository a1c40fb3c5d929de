//! Hears what a shard reports while it turns. Frames are mapped where they lie; the
//! rest, and what comes after it, is kept until the unit's loop takes it. Nothing is
//! answered from in here: the shard is in the middle of it.

use crate::a2a::port::AssociationId;
use crate::association::{Event, Peer};
use crate::bridge::own::OwnMap;
use crate::engine::clock::now;
use crate::engine::shard::{Down, Handler, LinkId, LinkInfo};
use crate::relay::mapping::Mapping;
use crate::relay::stats::{UnitCount, UnitStats};
use crate::wire::{ChannelId, FrameType};
use bytes::Bytes;
use std::time::Instant;

/// What the shard reported, in the order it happened; drained by the loop.
pub(super) enum Heard {
    Up(LinkId, LinkInfo),
    Ready(LinkId, Peer),
    Frame(LinkId, ChannelId, FrameType, Bytes),
    Down(LinkId, Down),
}

pub(super) struct Ear<'a> {
    heard: &'a mut Vec<Heard>,
    stats: &'a UnitStats,
    mapping: &'a mut Mapping,
    associations: &'a OwnMap<LinkId, AssociationId>,
    /// When the turn began.
    now: Instant,
    /// Frames heard, to be counted when the turn is over.
    frames: u64,
}

impl<'a> Ear<'a> {
    pub(super) fn new(
        heard: &'a mut Vec<Heard>,
        stats: &'a UnitStats,
        mapping: &'a mut Mapping,
        associations: &'a OwnMap<LinkId, AssociationId>,
    ) -> Self {
        Self {
            heard,
            stats,
            mapping,
            associations,
            now: now(),
            frames: 0,
        }
    }
}

impl Drop for Ear<'_> {
    fn drop(&mut self) {
        if self.frames > 0 {
            self.stats.work.add(UnitCount::FramesOpened, self.frames);
        }
    }
}

impl Handler for Ear<'_> {
    fn up(&mut self, link: LinkId, info: &LinkInfo) {
        self.heard.push(Heard::Up(link, info.clone()));
    }

    fn event(&mut self, link: LinkId, event: Event<'_>) {
        match event {
            Event::Ready(peer) => self.heard.push(Heard::Ready(link, peer)),
            Event::Frame {
                channel,
                frame_type,
                payload,
            } => {
                self.frames += 1;
                if self.heard.is_empty() {
                    if let Some(&association) = self.associations.get(&link) {
                        let (channel, frame_type) = (channel.0, frame_type.0);
                        self.mapping
                            .frame(association, channel, frame_type, payload, self.now);
                    }
                    return;
                }
                self.heard.push(Heard::Frame(
                    link,
                    channel,
                    frame_type,
                    Bytes::copy_from_slice(payload),
                ));
            }
            Event::PeerError { code, text } => {
                self.stats.count(UnitCount::PeerErrors);
                tracing::warn!(
                    link = link.number(),
                    code,
                    text,
                    "the peer reports an error"
                );
            }
            Event::Dropped(reason) => {
                self.stats.dropped.count(reason);
                tracing::debug!(
                    link = link.number(),
                    reason = crate::stats::Reason::label(reason),
                    "frame dropped"
                );
            }
            Event::Closed(reason) => {
                if let crate::association::CloseReason::Failed(error) = &reason {
                    self.stats.failed.count(error.reason());
                }
                tracing::debug!(link = link.number(), ?reason, "association closed");
            }
        }
    }

    fn down(&mut self, link: LinkId, reason: &Down) {
        self.heard.push(Heard::Down(link, reason.clone()));
    }
}
