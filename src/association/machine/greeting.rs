//! The HELLO exchange, and going on without it where that is allowed.
//!
//! Serves NPAMP-HELLO §3, §5, §6; rulings R5, R6.

use super::super::config::HelloMode;
use super::super::error::{AssociationError, DropReason};
use super::super::event::{Event, Peer};
use super::super::hello::{self, Hello};
use super::super::phase::{Move, Phase};
use super::{Machine, OnEvent};
use crate::handshake::Side;
use crate::wire::{ChannelId, FrameType};

/// How far the exchange is.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    /// GREASE value for our HELLO.
    pub(super) grease: u64,
    /// The peer's HELLO was read and agreed on.
    pub(super) agreed: bool,
    /// The peer's HELLO_DONE was read.
    pub(super) done: bool,
}

impl Machine {
    fn own_hello(&self) -> Hello {
        Hello {
            version: hello::VERSION,
            protocols: self.config.advertised(),
            params: self.config.params.clone(),
        }
    }

    pub(super) fn queue_hello(&mut self) {
        let payload = self.own_hello().encode(self.hello.grease);
        self.queue_own(FrameType::HELLO, payload);
        self.queue_own(FrameType::HELLO_DONE, Vec::new());
    }

    pub(super) fn handle_hello(
        &mut self,
        payload: &[u8],
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        if self.hello.agreed {
            return Err(self.fail(AssociationError::HelloRepeated, on_event));
        }
        if self.phase != Phase::AwaitHello {
            self.drop_frame(DropReason::HelloLate, on_event);
            return Ok(());
        }
        let theirs = match Hello::decode(payload) {
            Ok(theirs) => theirs,
            Err(error) => {
                let error = AssociationError::HelloMalformed(error);
                return Err(self.fail(error, on_event));
            }
        };
        // NPAMP-HELLO §6. An initiator may know higher versions, and is answered
        // with ours; an answer must be the version we proposed, there being no lower.
        let agreeable = match self.side {
            Side::Responder => theirs.version >= hello::VERSION,
            Side::Initiator => theirs.version == hello::VERSION,
        };
        if !agreeable {
            let error = AssociationError::HelloVersion(theirs.version);
            return Err(self.fail(error, on_event));
        }
        let ours = self.config.advertised();
        let selected = match self.side {
            Side::Initiator => hello::select(&ours, &theirs.protocols),
            Side::Responder => hello::select(&theirs.protocols, &ours),
        };
        for channel in &mut self.channels {
            channel.peer_takes = theirs.offers_channel(channel.id);
        }
        self.hello.agreed = true;
        // Legal: the phase was seen to be AwaitHello.
        let _ = self.phase.step(Move::HelloAgreed);
        if self.side == Side::Responder {
            self.queue_hello();
        }
        on_event(Event::Ready(Peer {
            identity: self.identity,
            hello: Some(theirs),
            selected,
        }));
        Ok(())
    }

    /// The peer shows that it sends no HELLO: goes on without where that is
    /// allowed, fails where it is not, does nothing after HELLO.
    pub(super) fn admit_without_hello(
        &mut self,
        on_event: OnEvent<'_>,
    ) -> Result<(), AssociationError> {
        if self.phase != Phase::AwaitHello {
            return Ok(());
        }
        match self.config.hello {
            HelloMode::Required => Err(self.fail(AssociationError::HelloMissing, on_event)),
            HelloMode::Optional => {
                self.forgo_hello(on_event);
                Ok(())
            }
        }
    }

    pub(super) fn forgo_hello(&mut self, on_event: OnEvent<'_>) {
        if self.phase.step(Move::HelloForgone).is_err() {
            return;
        }
        for channel in &mut self.channels {
            channel.peer_takes = channel.id == ChannelId::BRIDGE;
        }
        let assumed = [
            u64::from(hello::PROTOCOL_A2A),
            u64::from(ChannelId::BRIDGE.0),
            u64::from(ChannelId::CONTROL.0),
        ];
        on_event(Event::Ready(Peer {
            identity: self.identity,
            hello: None,
            selected: hello::select(&assumed, &self.config.advertised()),
        }));
    }
}
