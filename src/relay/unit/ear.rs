//! Hears what a shard reports while it turns, and keeps it until the unit's loop
//! takes it. Nothing is answered from in here: the shard is in the middle of it.

use crate::association::{Event, Peer};
use crate::engine::shard::{Down, Handler, LinkId, LinkInfo};
use crate::relay::stats::{UnitCount, UnitStats};
use crate::wire::{ChannelId, FrameType};
use bytes::Bytes;

/// What the shard reported, in the order it happened; drained by the loop.
pub(super) enum Heard {
    Up(LinkId, LinkInfo),
    Ready(LinkId, Peer),
    Frame(LinkId, ChannelId, FrameType, Bytes),
    Down(LinkId, Down),
}

pub(super) struct Ear<'a> {
    pub(super) heard: &'a mut Vec<Heard>,
    pub(super) stats: &'a UnitStats,
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
                self.stats.count(UnitCount::FramesOpened);
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
