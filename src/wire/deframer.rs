//! Cuts a stream of octets into frames. Whole frames are handed out in place;
//! only a frame that straddles two reads is copied, into a buffer that grows
//! with what arrives, never with what a header announces. It never opens a
//! frame and never skips octets: the first bad header ends the stream.

use super::{Header, HeaderError};
use crate::limits::DEFRAMER_RETAINED_OCTETS_MAX;

/// An incremental deframer; one per direction of a link.
#[derive(Debug)]
pub struct Deframer {
    frame_octets_max: usize,
    /// The straddling frame: its first octets, or all of it once handed out.
    buffer: Vec<u8>,
    /// Header of the frame in `buffer`, once 36 octets are there.
    header: Option<Header>,
    /// The frame in `buffer` was handed out and is to be forgotten.
    handed_out: bool,
    failed: Option<HeaderError>,
}

/// A frame over borrowed octets.
#[derive(Debug)]
pub struct Frame<'a> {
    /// The checked header.
    pub header: Header,
    /// `header.payload_length` octets: for a sealed frame ciphertext and tag.
    pub payload: &'a mut [u8],
}

/// What [`Deframer::step`] did.
#[derive(Debug)]
pub struct Step<'a> {
    /// Octets taken from the front of the input.
    pub consumed: usize,
    /// The frame that these octets completed, if any.
    pub frame: Option<Frame<'a>>,
}

impl Deframer {
    /// Refuses frames longer than `frame_octets_max`, header included.
    pub const fn new(frame_octets_max: usize) -> Self {
        Self {
            frame_octets_max,
            buffer: Vec::new(),
            header: None,
            handed_out: false,
            failed: None,
        }
    }

    /// The header of the frame that lies whole at the front of `octets`, if the
    /// next [`Deframer::step`] would hand that frame out. Nothing is taken: the
    /// caller may take the frame by itself, or let the step do it.
    #[inline]
    pub fn peek(&self, octets: &[u8]) -> Option<Header> {
        if self.failed.is_some() || self.held_octets() > 0 {
            return None;
        }
        let header = Header::decode(octets).ok()?;
        let total = Header::LEN + header.payload_length as usize;
        (total <= self.frame_octets_max.min(octets.len())).then_some(header)
    }

    /// Takes octets up to the end of the next frame. The caller goes on with
    /// `&mut octets[consumed..]` until nothing is left; so it may stop after any
    /// frame, for example at the end of a handshake. Errors stick.
    pub fn step<'a>(&'a mut self, octets: &'a mut [u8]) -> Result<Step<'a>, HeaderError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.forget_handed_out();
        if self.buffer.is_empty() && octets.len() >= Header::LEN {
            let header = self.checked(octets)?;
            let total = Header::LEN + header.payload_length as usize;
            if octets.len() >= total {
                let payload = &mut octets[Header::LEN..total];
                return Ok(Step {
                    consumed: total,
                    frame: Some(Frame { header, payload }),
                });
            }
            self.header = Some(header);
        }
        let mut consumed = 0;
        if self.header.is_none() {
            consumed = (Header::LEN - self.buffer.len()).min(octets.len());
            self.buffer.extend_from_slice(&octets[..consumed]);
            if self.buffer.len() == Header::LEN {
                let start: [u8; Header::LEN] = *self.buffer.first_chunk().unwrap_or(&[0; 36]);
                self.header = Some(self.checked(&start)?);
            }
        }
        if let Some(header) = self.header {
            let total = Header::LEN + header.payload_length as usize;
            let take = (total - self.buffer.len()).min(octets.len() - consumed);
            self.buffer
                .extend_from_slice(&octets[consumed..consumed + take]);
            consumed += take;
            if self.buffer.len() == total {
                self.header = None;
                self.handed_out = true;
                let payload = &mut self.buffer[Header::LEN..];
                return Ok(Step {
                    consumed,
                    frame: Some(Frame { header, payload }),
                });
            }
        }
        Ok(Step {
            consumed,
            frame: None,
        })
    }

    /// Takes all `octets` and calls `on_frame` for every frame they complete,
    /// in order. An error of either side sticks: a later call fails at once.
    pub fn push<E: From<HeaderError>>(
        &mut self,
        mut octets: &mut [u8],
        mut on_frame: impl FnMut(Header, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let step = self.step(octets)?;
            let consumed = step.consumed;
            if let Some(frame) = step.frame
                && let Err(error) = on_frame(frame.header, frame.payload)
            {
                self.failed = Some(HeaderError::AlreadyFailed);
                return Err(error);
            }
            octets = &mut octets[consumed..];
            if octets.is_empty() {
                self.forget_handed_out();
                return Ok(());
            }
        }
    }

    /// Octets of an unfinished frame that are held.
    pub fn held_octets(&self) -> usize {
        if self.handed_out {
            0
        } else {
            self.buffer.len()
        }
    }

    /// Gives up the octets of the unfinished frame, for another deframer to go on with.
    pub fn take_rest(&mut self) -> Vec<u8> {
        self.forget_handed_out();
        self.header = None;
        std::mem::take(&mut self.buffer)
    }

    fn checked(&mut self, octets: &[u8]) -> Result<Header, HeaderError> {
        let checked = Header::decode(octets).and_then(|header| {
            let total = Header::LEN as u64 + u64::from(header.payload_length);
            if total > self.frame_octets_max as u64 {
                Err(HeaderError::FrameTooLong(total))
            } else {
                Ok(header)
            }
        });
        if let Err(error) = checked {
            self.failed = Some(error);
        }
        checked
    }

    /// Gives back the memory of a frame that was handed out.
    pub fn forget_handed_out(&mut self) {
        if self.handed_out {
            self.handed_out = false;
            self.buffer.clear();
            // An idle association keeps no memory of the longest frame it ever saw.
            if self.buffer.capacity() > DEFRAMER_RETAINED_OCTETS_MAX {
                self.buffer = Vec::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ChannelId, Flags, FrameType};
    use proptest::prelude::*;

    type Seen = Vec<(u64, Vec<u8>)>;

    fn frame(sequence: u64, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            flags: Flags::NONE,
            frame_type: FrameType::PING,
            channel: ChannelId::CONTROL,
            sequence,
            payload_length: payload.len() as u32,
        };
        let mut out = header.encode().to_vec();
        out.extend_from_slice(payload);
        out
    }

    fn feed(deframer: &mut Deframer, octets: &[u8], seen: &mut Seen) -> Result<(), HeaderError> {
        let mut octets = octets.to_vec();
        deframer.push(&mut octets, |header, payload| {
            seen.push((header.sequence, payload.to_vec()));
            Ok(())
        })
    }

    proptest! {
        /// Any split of the octets gives the same frames.
        #[test]
        fn any_split(payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8), cuts in prop::collection::vec(0usize..1100, 0..12), tail in 0usize..60) {
            let mut octets = Vec::new();
            let mut expected = Seen::new();
            for (sequence, payload) in payloads.iter().enumerate() {
                octets.extend(frame(sequence as u64, payload));
                expected.push((sequence as u64, payload.clone()));
            }
            let unfinished = &frame(99, &[7; 40])[..tail];
            octets.extend_from_slice(unfinished);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(octets.len())).collect();
            cuts.sort_unstable();
            cuts.push(octets.len());
            let mut deframer = Deframer::new(1000);
            let mut seen = Seen::new();
            let mut from = 0;
            for cut in cuts {
                feed(&mut deframer, &octets[from..cut], &mut seen).unwrap();
                from = cut;
            }
            prop_assert_eq!(seen, expected);
            prop_assert_eq!(deframer.held_octets(), unfinished.len());
            prop_assert_eq!(deframer.take_rest(), unfinished);
        }

        #[test]
        fn garbage_never_panics(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..6)) {
            let mut deframer = Deframer::new(1000);
            let mut seen = Seen::new();
            for chunk in chunks {
                let _ = feed(&mut deframer, &chunk, &mut seen);
            }
        }
    }

    #[test]
    fn errors_stick() {
        let mut deframer = Deframer::new(1000);
        let mut seen = Seen::new();
        let mut bad = frame(0, b"x");
        bad[21] ^= 1;
        assert_eq!(feed(&mut deframer, &bad, &mut seen), Err(HeaderError::Crc));
        assert_eq!(
            feed(&mut deframer, &frame(1, b"y"), &mut seen),
            Err(HeaderError::Crc)
        );
        assert!(seen.is_empty());
    }

    #[test]
    fn a_refusal_of_the_receiver_sticks() {
        let mut deframer = Deframer::new(1000);
        let mut two = frame(0, b"x");
        two.extend(frame(1, b"y"));
        let mut calls = 0;
        let refused = deframer.push(&mut two, |_, _| {
            calls += 1;
            Err(HeaderError::Magic)
        });
        assert_eq!((refused, calls), (Err(HeaderError::Magic), 1));
        assert_eq!(
            feed(&mut deframer, &frame(1, b"y"), &mut Seen::new()),
            Err(HeaderError::AlreadyFailed)
        );
    }

    #[test]
    fn length_bound_is_inclusive_and_checked_on_the_header_alone() {
        let mut deframer = Deframer::new(Header::LEN + 4);
        let mut seen = Seen::new();
        feed(&mut deframer, &frame(0, b"1234"), &mut seen).unwrap();
        assert_eq!(seen.len(), 1);
        let long = frame(1, b"12345");
        assert_eq!(
            feed(&mut deframer, &long[..Header::LEN], &mut seen),
            Err(HeaderError::FrameTooLong(41))
        );
    }

    /// Memory follows what arrives, not what a header announces.
    #[test]
    fn an_announcement_costs_nothing() {
        let mut deframer = Deframer::new(crate::limits::FRAME_OCTETS_MAX);
        let header = Header {
            flags: Flags::ENC,
            frame_type: FrameType::PING,
            channel: ChannelId::CONTROL,
            sequence: 0,
            payload_length: 15 * 1024 * 1024,
        };
        feed(&mut deframer, &header.encode(), &mut Seen::new()).unwrap();
        assert!(deframer.buffer.capacity() < 1024);
        feed(&mut deframer, &[0; 1000], &mut Seen::new()).unwrap();
        assert!(deframer.buffer.capacity() <= 4096);
    }

    #[test]
    fn a_caller_may_stop_after_any_frame() {
        let mut octets = frame(0, b"one");
        octets.extend(frame(1, b"two"));
        let mut deframer = Deframer::new(1000);
        let step = deframer.step(&mut octets).unwrap();
        assert_eq!(step.consumed, 39);
        assert_eq!(step.frame.unwrap().payload, b"one");
        assert_eq!(deframer.take_rest(), b"");
    }
}
