//! Judging received frames: channel, authenticity, sequence, flags, and then
//! what each frame type asks for.
//!
//! Serves the N-PAMP draft, Reserved Frame Types, CLOSE Frame, Channel
//! Architecture; NPAMP-CH-0000 §3; rulings R4, R21, R24.

use super::super::channel::{self, Refusal, Unsealed};
use super::super::error::{AssociationError, DropReason};
use super::super::event::{CloseReason, Event};
use super::super::phase::{Move, Phase};
use super::super::report;
use super::{Machine, OnEvent};
use crate::limits;
use crate::wire::{ChannelId, Deframer, Flags, FrameType, Header};

impl Machine {
    /// Takes all `octets`: opens together what can be, and handles the frames in order.
    pub(super) fn handle_frames(
        &mut self,
        deframer: &mut Deframer,
        mut octets: &mut [u8],
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        while !octets.is_empty() {
            let ahead = self.open_ahead(deframer, octets);
            let mut taken = 0;
            for (header, authentic) in ahead.frames() {
                let payload = taken + Header::LEN;
                taken = payload + header.payload_length as usize;
                let outcome =
                    self.handle_frame(&header, &mut octets[payload..taken], authentic, on_event);
                if outcome.is_err() {
                    // What was opened ahead and is not delivered does not stay.
                    octets[taken..].fill(0);
                    return outcome;
                }
            }
            // A frame that does not lie whole in `octets` or is not the one due.
            if taken == 0 {
                let step = deframer.step(octets)?;
                taken = step.consumed;
                if let Some(frame) = step.frame {
                    self.handle_frame(&frame.header, frame.payload, None, on_event)?;
                }
            }
            octets = &mut octets[taken..];
        }
        deframer.forget_handed_out();
        Ok(())
    }

    /// Handles one frame. `opened` says whether its tag verified if it was opened ahead.
    pub(super) fn handle_frame(
        &mut self,
        header: &Header,
        payload: &mut [u8],
        opened: Option<bool>,
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        if self.phase == Phase::Ended {
            self.stats.dropped.count(DropReason::AfterClose);
            return Ok(());
        }
        if header.channel.is_grease() {
            self.drop_frame(DropReason::ChannelGrease, on_event);
            return Ok(());
        }
        let Some(at) = self
            .channels
            .iter()
            .position(|channel| channel.id == header.channel)
        else {
            self.drop_frame(DropReason::ChannelUnadvertised, on_event);
            return Ok(());
        };
        if !header.flags.contains(Flags::ENC) {
            // As little to be trusted as a bad tag: a forged CLOSE must not close.
            return self.unauthentic(DropReason::NotEncrypted, on_event);
        }
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        let judged = match opened {
            Some(authentic) => self.channels[at].accept(header, payload, authentic),
            None => self.channels[at].open(keys, header, payload),
        };
        let payload = match judged {
            Ok(payload) => payload,
            Err(Refusal::Replay) => {
                self.stats.security_events += 1;
                self.drop_frame(DropReason::Replay, on_event);
                return Ok(());
            }
            Err(Refusal::Tag) => return self.unauthentic(DropReason::TagFailure, on_event),
            Err(Refusal::Gap { expected }) => {
                let error = AssociationError::Gap {
                    channel: header.channel,
                    expected,
                    received: header.sequence,
                };
                return Err(self.fail(error, on_event));
            }
            Err(Refusal::Exhausted) => {
                let error = AssociationError::SequenceExhausted(header.channel);
                return Err(self.fail(error, on_event));
            }
        };
        self.stats.frames_received += 1;
        if header.flags.0 & (Flags::FRAG.0 | Flags::COMP.0) != 0 {
            self.refuse(header, DropReason::FlagUnsupported, on_event);
            return Ok(());
        }
        if header.channel == ChannelId::CONTROL
            && payload.len() > limits::CONTROL_PAYLOAD_OCTETS_MAX
            && header.frame_type != FrameType::HELLO
        {
            self.refuse(header, DropReason::ControlOversize, on_event);
            return Ok(());
        }
        if header.frame_type.is_channel_specific() {
            if header.channel == ChannelId::CONTROL {
                self.handle_control(header, payload, on_event)
            } else {
                self.handle_channel_specific(header, payload, on_event)
            }
        } else {
            self.handle_all_channel(header, at, payload, on_event)
        }
    }

    /// The frame types that mean the same on every channel.
    fn handle_all_channel(
        &mut self,
        header: &Header,
        at: usize,
        payload: &mut [u8],
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        match header.frame_type {
            FrameType::PING => {
                if payload.len() > limits::PING_PAYLOAD_OCTETS_MAX {
                    self.refuse(header, DropReason::PingOversize, on_event);
                } else {
                    self.reply(header.channel, FrameType::PONG, payload.to_vec(), on_event);
                }
            }
            FrameType::PONG => {
                // Any octet answers a probe; the echo only has to be one of ours.
                let ours = <[u8; 8]>::try_from(&*payload).map(u64::from_be_bytes);
                if !ours.is_ok_and(|number| (1..=self.probes).contains(&number)) {
                    self.drop_frame(DropReason::PongUnexpected, on_event);
                }
            }
            FrameType::CLOSE => {
                let closing = self.phase == Phase::Closing;
                let (code, text) = report::read(payload);
                let reason = if closing {
                    CloseReason::Local
                } else {
                    CloseReason::Peer {
                        code,
                        text: text.into_owned(),
                    }
                };
                let ack = Unsealed {
                    channel: header.channel,
                    frame_type: FrameType::CLOSE_ACK,
                    flags: Flags::NONE,
                    payload: Vec::new(),
                };
                self.end(Move::PeerClosed, [ack], reason, on_event);
            }
            FrameType::CLOSE_ACK => {
                if self.phase == Phase::Closing {
                    self.end(Move::CloseAcked, [], CloseReason::Local, on_event);
                } else {
                    self.drop_frame(DropReason::CloseAckUnexpected, on_event);
                }
            }
            FrameType::ERROR => {
                self.stats.peer_errors += 1;
                let (code, text) = report::read(payload);
                on_event(Event::PeerError { code, text: &text });
            }
            FrameType::KEY_UPDATE => {
                let Some(epoch) = self.channels[at].take_update(payload) else {
                    let error = AssociationError::KeyUpdateMarker(header.channel);
                    return Err(self.fail(error, on_event));
                };
                self.stats.key_updates_received += 1;
                let marker = channel::marker(epoch);
                self.reply(header.channel, FrameType::KEY_UPDATE_ACK, marker, on_event);
            }
            // Informational (ruling R4).
            FrameType::KEY_UPDATE_ACK => {}
            FrameType::PATH_CHALLENGE | FrameType::PATH_RESPONSE | FrameType::FLOW_UPDATE => {
                self.drop_frame(DropReason::PathOrFlow, on_event);
            }
            // Reserved for the core, and the band of companion extensions.
            _ => self.refuse(header, DropReason::FrameTypeUnknown, on_event),
        }
        Ok(())
    }

    /// Control frames of type 0x0100 and above.
    fn handle_control(
        &mut self,
        header: &Header,
        payload: &mut [u8],
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        if self.phase == Phase::Closing {
            self.drop_frame(DropReason::AfterClose, on_event);
            return Ok(());
        }
        if matches!(
            header.frame_type,
            FrameType::MASTER_RATCHET
                | FrameType::MASTER_RATCHET_ACK
                | FrameType::REKEM
                | FrameType::REKEM_ACK
        ) {
            return Err(self.fail(AssociationError::RatchetUnsupported, on_event));
        }
        if header.frame_type == FrameType::HELLO {
            return self.handle_hello(payload, on_event);
        }
        // HELLO is the first Control frame of this kind (NPAMP-HELLO §3).
        self.admit_without_hello(on_event)?;
        match header.frame_type {
            FrameType::HELLO_DONE if self.hello.agreed && !self.hello.done => {
                self.hello.done = true;
            }
            FrameType::HELLO_DONE => {
                self.refuse(header, DropReason::HelloDoneUnexpected, on_event);
            }
            FrameType::CLIENT_HELLO
            | FrameType::SERVER_HELLO
            | FrameType::SERVER_AUTH
            | FrameType::CLIENT_AUTH => {
                self.refuse(header, DropReason::HandshakeFrame, on_event);
            }
            _ => self.refuse(header, DropReason::FrameTypeUnknown, on_event),
        }
        Ok(())
    }

    /// Frames for the owner.
    fn handle_channel_specific(
        &mut self,
        header: &Header,
        payload: &mut [u8],
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        if self.phase == Phase::Closing {
            self.drop_frame(DropReason::AfterClose, on_event);
            return Ok(());
        }
        self.admit_without_hello(on_event)?;
        // Without HELLO only Control and Bridge are there (ruling R6).
        if !self.hello.agreed && header.channel != ChannelId::BRIDGE {
            self.drop_frame(DropReason::ChannelUnadvertised, on_event);
            return Ok(());
        }
        on_event(Event::Frame {
            channel: header.channel,
            frame_type: header.frame_type,
            payload,
        });
        Ok(())
    }
}
