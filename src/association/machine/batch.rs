//! Frames of one call that are sealed, or opened, together. It never changes
//! their order, and a batch never holds frames of two epochs of a channel.
//!
//! What is opened ahead of its turn is judged in its turn (`receive`): only
//! frames that are due if all before them are good are opened ahead, so that one
//! bad frame makes the later ones of its channel a gap, as it does one at a time.
//! Serves the N-PAMP draft, Channel Architecture, Replay; rulings R4, R24.

use super::super::channel::Channel;
use super::super::phase::Phase;
use super::Machine;
use crate::crypto::TrafficKey;
use crate::limits::AEAD_BATCH_FRAMES;
use crate::wire::{Deframer, Flags, FrameType, Header};

/// Frames appended to the end of a buffer that wait for their seals.
pub(super) struct Waiting {
    /// Where the first begins.
    start: usize,
    /// Index of the channel, and header.
    frames: [Option<(usize, Header)>; AEAD_BATCH_FRAMES],
    count: usize,
}

impl Waiting {
    /// None yet; the first begins at `start`.
    pub(super) fn new(start: usize) -> Self {
        Self {
            start,
            frames: [None; AEAD_BATCH_FRAMES],
            count: 0,
        }
    }

    /// Adds the frame that was appended to `out`, of the channel at index `at`.
    #[inline]
    pub(super) fn push(&mut self, channels: &[Channel], at: usize, header: Header, out: &mut [u8]) {
        self.frames[self.count] = Some((at, header));
        self.count += 1;
        if self.count == self.frames.len() {
            self.seal(channels, out);
        }
    }

    /// Seals all that wait, which end where `out` ends.
    pub(super) fn seal(&mut self, channels: &[Channel], out: &mut [u8]) {
        let mut rest = &mut out[self.start..];
        self.start += rest.len();
        let count = std::mem::take(&mut self.count);
        if count == 1
            && let Some((at, header)) = self.frames[0]
            && let Some(key) = channels[at].sealing_key()
        {
            key.seal(&header, rest);
            return;
        }
        let frames = self.frames[..count].iter().flatten().map(|&(at, header)| {
            let length = Header::LEN + header.payload_length as usize;
            let (frame, behind) = std::mem::take(&mut rest).split_at_mut(length);
            rest = behind;
            let key = channels[at].sealing_key();
            (
                key.expect("appending a frame derives its key"),
                header,
                frame,
            )
        });
        TrafficKey::seal_all(frames);
    }
}

/// Frames that lie there whole and are due, opened ahead of their turn, in order.
pub(super) struct Ahead {
    /// Index of the channel, header, and whether the tag verified; a frame alone was not opened yet.
    frames: [Option<(usize, Header, Option<bool>)>; AEAD_BATCH_FRAMES],
}

impl Ahead {
    /// Header, and whether the tag verified if the frame was opened.
    pub(super) fn frames(&self) -> impl Iterator<Item = (Header, Option<bool>)> {
        let frames = self.frames.iter().map_while(|frame| *frame);
        frames.map(|(_, header, authentic)| (header, authentic))
    }
}

impl Machine {
    /// Opens, in place, the frames at the front of `octets` that lie there whole
    /// and are due one after the other. None where there is nothing to gain.
    pub(super) fn open_ahead(&mut self, deframer: &Deframer, octets: &mut [u8]) -> Ahead {
        let mut ahead = Ahead {
            frames: [None; AEAD_BATCH_FRAMES],
        };
        let Some(keys) = &self.keys else {
            return ahead;
        };
        if self.phase == Phase::Ended {
            return ahead;
        }
        self.channels.iter_mut().for_each(Channel::look_ahead);
        let mut count = 0;
        let mut end = 0;
        while count < AEAD_BATCH_FRAMES {
            let Some(header) = deframer.peek(&octets[end..]) else {
                break;
            };
            let mut channels = self.channels.iter_mut().enumerate();
            let Some((at, channel)) = channels.find(|(_, channel)| channel.id == header.channel)
            else {
                break;
            };
            if !header.flags.contains(Flags::ENC) || !channel.is_next_ahead(keys, header.sequence) {
                break;
            }
            ahead.frames[count] = Some((at, header, None));
            count += 1;
            end += Header::LEN + header.payload_length as usize;
            // What follows is of another epoch, or not to be opened at all.
            if matches!(header.frame_type, FrameType::KEY_UPDATE | FrameType::CLOSE) {
                break;
            }
        }
        if count == 1 {
            // Alone a frame is opened faster in its turn.
            return ahead;
        }
        let opened = ahead.frames;
        let mut rest = &mut octets[..end];
        let channels = &self.channels;
        let frames = opened.iter().flatten().map(|&(at, header, _)| {
            let length = Header::LEN + header.payload_length as usize;
            let (frame, behind) = std::mem::take(&mut rest).split_at_mut(length);
            rest = behind;
            let key = channels[at].opening_key();
            (key.expect("looking ahead derives the key"), header, frame)
        });
        TrafficKey::open_all(frames, |place, authentic| {
            if let Some(frame) = &mut ahead.frames[place] {
                frame.2 = Some(authentic);
            }
        });
        ahead
    }
}
