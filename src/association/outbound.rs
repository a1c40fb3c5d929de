//! Frames that wait, unsealed, and the order they leave in: the association's
//! own frames first, then frames flagged URG, then one frame of each channel in
//! turn. A frame's sequence is fixed only when it is sealed, so an overtaking
//! frame costs nothing. Within a channel frames of one urgency keep their order.
//!
//! Serves the N-PAMP draft, Channel Architecture (Control before bulk).

use super::channel::Unsealed;
use super::error::SendError;
use crate::limits;
use crate::wire::{ChannelId, Flags, FrameType};
use std::collections::VecDeque;

/// Which bound a frame of the association's own falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// HELLO, PING: sent on our own account, few by construction.
    Initiative,
    /// PONG, KEY_UPDATE_ACK: as many as the peer provokes, bounded.
    Reply,
    /// ERROR: as many as the peer provokes, bounded.
    Error,
}

#[derive(Debug)]
struct Lane {
    channel: ChannelId,
    urgent: VecDeque<Unsealed>,
    ordinary: VecDeque<Unsealed>,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Outbound {
    own: VecDeque<(Own, Unsealed)>,
    lanes: Vec<Lane>,
    /// Lane whose turn it is.
    turn: usize,
    octets: usize,
    octets_max: usize,
    replies: usize,
    errors: usize,
    ended: bool,
}

impl Outbound {
    pub(super) fn new(octets_max: usize) -> Self {
        Self {
            own: VecDeque::new(),
            lanes: Vec::new(),
            turn: 0,
            octets: 0,
            octets_max,
            replies: 0,
            errors: 0,
            ended: false,
        }
    }

    /// Octets that wait, headers and tags included.
    pub(super) fn octets(&self) -> usize {
        self.octets
    }

    pub(super) fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// Queues a frame of the association's owner.
    #[inline]
    pub(super) fn push(&mut self, frame: Unsealed) -> Result<(), SendError> {
        if self.ended {
            return Err(SendError::Closed);
        }
        let octets = frame.octets();
        if self.octets.saturating_add(octets) > self.octets_max {
            return Err(SendError::Full);
        }
        self.octets += octets;
        let at = self
            .lanes
            .iter()
            .position(|lane| lane.channel == frame.channel)
            .unwrap_or_else(|| {
                self.lanes.push(Lane {
                    channel: frame.channel,
                    urgent: VecDeque::new(),
                    ordinary: VecDeque::new(),
                });
                self.lanes.len() - 1
            });
        let lane = &mut self.lanes[at];
        if frame.flags.contains(Flags::URG) {
            lane.urgent.push_back(frame);
        } else {
            lane.ordinary.push_back(frame);
        }
        Ok(())
    }

    /// Queues a frame of the association's own; `false` when its bound is
    /// reached or the end has come.
    pub(super) fn push_own(
        &mut self,
        own: Own,
        channel: ChannelId,
        frame_type: FrameType,
        payload: Vec<u8>,
    ) -> bool {
        let full = match own {
            Own::Initiative => false,
            Own::Reply => self.replies >= limits::REPLIES_QUEUED_MAX,
            Own::Error => self.errors >= limits::ERRORS_QUEUED_MAX,
        };
        if self.ended || full {
            return false;
        }
        match own {
            Own::Initiative => {}
            Own::Reply => self.replies += 1,
            Own::Error => self.errors += 1,
        }
        let frame = Unsealed {
            channel,
            frame_type,
            flags: Flags::NONE,
            payload,
        };
        self.octets += frame.octets();
        self.own.push_back((own, frame));
        true
    }

    /// Drops everything that waits and takes nothing more; only `last` goes out.
    pub(super) fn end(&mut self, last: impl IntoIterator<Item = Unsealed>) {
        self.lanes = Vec::new();
        self.replies = 0;
        self.errors = 0;
        self.ended = true;
        self.own = last
            .into_iter()
            .map(|frame| (Own::Initiative, frame))
            .collect();
        self.octets = self.own.iter().map(|(_, frame)| frame.octets()).sum();
    }

    /// The frame to seal next.
    pub(super) fn pop(&mut self) -> Option<Unsealed> {
        let frame = self.pop_own().or_else(|| self.pop_lane())?;
        self.octets -= frame.octets();
        if self.octets == 0 {
            self.shrink();
        }
        Some(frame)
    }

    fn pop_own(&mut self) -> Option<Unsealed> {
        let (own, frame) = self.own.pop_front()?;
        match own {
            Own::Initiative => {}
            Own::Reply => self.replies -= 1,
            Own::Error => self.errors -= 1,
        }
        Some(frame)
    }

    fn pop_lane(&mut self) -> Option<Unsealed> {
        let lanes = self.lanes.len();
        for urgent in [true, false] {
            for offset in 0..lanes {
                let at = (self.turn + offset) % lanes;
                let lane = &mut self.lanes[at];
                let queue = if urgent {
                    &mut lane.urgent
                } else {
                    &mut lane.ordinary
                };
                if let Some(frame) = queue.pop_front() {
                    self.turn = (at + 1) % lanes;
                    return Some(frame);
                }
            }
        }
        None
    }

    /// An idle association does not keep the memory of its busiest moment.
    fn shrink(&mut self) {
        const KEPT: usize = 16;
        for lane in &mut self.lanes {
            lane.urgent.shrink_to(KEPT);
            lane.ordinary.shrink_to(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::TAG_LEN;
    use crate::wire::Header;

    fn frame(channel: ChannelId, flags: Flags, name: u8) -> Unsealed {
        Unsealed {
            channel,
            frame_type: FrameType::BRIDGE_NOTIFY,
            flags,
            payload: vec![name],
        }
    }

    fn drain(outbound: &mut Outbound) -> Vec<u8> {
        std::iter::from_fn(|| outbound.pop())
            .map(|frame| frame.payload[0])
            .collect()
    }

    /// N-PAMP draft, Channel Architecture: Control first; then URG, then fair turns.
    #[test]
    fn order_of_leaving() {
        let mut outbound = Outbound::new(1 << 20);
        for name in [1, 2, 3] {
            outbound
                .push(frame(ChannelId::BRIDGE, Flags::NONE, name))
                .unwrap();
        }
        outbound
            .push(frame(ChannelId::DISCOVERY, Flags::NONE, 4))
            .unwrap();
        outbound
            .push(frame(ChannelId::BRIDGE, Flags::URG, 5))
            .unwrap();
        assert!(outbound.push_own(
            Own::Initiative,
            ChannelId::CONTROL,
            FrameType::PING,
            vec![6]
        ));
        assert_eq!(drain(&mut outbound), [6, 5, 4, 1, 2, 3]);
        assert!(outbound.is_empty());
    }

    #[test]
    fn octets_are_accounted_and_bounded() {
        let each = Header::LEN + 1 + TAG_LEN;
        let mut outbound = Outbound::new(2 * each);
        outbound
            .push(frame(ChannelId::BRIDGE, Flags::NONE, 1))
            .unwrap();
        outbound
            .push(frame(ChannelId::BRIDGE, Flags::NONE, 2))
            .unwrap();
        assert_eq!(outbound.octets(), 2 * each);
        assert_eq!(
            outbound.push(frame(ChannelId::BRIDGE, Flags::NONE, 3)),
            Err(SendError::Full)
        );
        outbound.pop().unwrap();
        outbound
            .push(frame(ChannelId::BRIDGE, Flags::NONE, 3))
            .unwrap();
        assert_eq!(drain(&mut outbound), [2, 3]);
    }

    #[test]
    fn replies_and_errors_are_bounded_apart() {
        let mut outbound = Outbound::new(1 << 20);
        let mut push =
            |own| outbound.push_own(own, ChannelId::CONTROL, FrameType::PONG, Vec::new());
        for _ in 0..limits::REPLIES_QUEUED_MAX {
            assert!(push(Own::Reply));
        }
        assert!(!push(Own::Reply));
        for _ in 0..limits::ERRORS_QUEUED_MAX {
            assert!(push(Own::Error));
        }
        assert!(!push(Own::Error));
        assert!(push(Own::Initiative));
        outbound.pop().unwrap();
        assert!(outbound.push_own(Own::Reply, ChannelId::CONTROL, FrameType::PONG, Vec::new()));
    }

    #[test]
    fn the_end_drops_what_waits() {
        let mut outbound = Outbound::new(1 << 20);
        outbound
            .push(frame(ChannelId::BRIDGE, Flags::NONE, 1))
            .unwrap();
        outbound.end([frame(ChannelId::CONTROL, Flags::NONE, 9)]);
        assert_eq!(
            outbound.push(frame(ChannelId::BRIDGE, Flags::NONE, 2)),
            Err(SendError::Closed)
        );
        assert!(!outbound.push_own(Own::Reply, ChannelId::CONTROL, FrameType::PONG, vec![]));
        assert_eq!(drain(&mut outbound), [9]);
        assert_eq!(outbound.octets(), 0);
    }
}
