//! What an association is told when it is made. Values only; shared by every
//! association of a listener or route.

use super::hello::ParamValue;
use crate::crypto::UpdateBounds;
use crate::limits;
use crate::wire::ChannelId;
use std::time::Duration;

/// Whether the peer must open with HELLO (ruling R6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HelloMode {
    /// The only conforming setting: no HELLO within the time, or anything
    /// before it, ends the association.
    #[default]
    Required,
    /// For peers that know no HELLO, such as the reference SDK: one that sends
    /// Bridge traffic first, another Control frame first, or nothing within the
    /// time is accepted with Control and Bridge only.
    ///
    /// As initiator the HELLO is sent all the same: it is a duty, a conforming
    /// responder waits for it, and the reference SDK hands a Control frame that
    /// it does not know to its application like any other frame. As responder
    /// HELLO is only sent in answer to one. A peer without HELLO is never probed
    /// with PING, since that SDK leaves PING to its application; the link's own
    /// keep-alive watches such a peer.
    Optional,
}

/// Settings of an association.
#[derive(Debug, Clone)]
pub struct AssociationConfig {
    /// HELLO.
    pub hello: HelloMode,
    /// Time the peer's HELLO may take.
    pub hello_time: Duration,
    /// Silence after which the peer is probed with PING; zero never probes.
    pub idle_probe_time: Duration,
    /// Time a probe may go without one received octet.
    pub probe_timeout: Duration,
    /// Time CLOSE waits for CLOSE_ACK.
    pub close_time: Duration,
    /// Bridge Protocol Identifiers advertised, most preferred first (NPAMP-REG).
    pub protocols: Vec<u8>,
    /// Channels advertised beside Control; frames on others are dropped.
    pub channels: Vec<ChannelId>,
    /// `params` of our HELLO (rulings R9, R12, R13).
    pub params: Vec<(String, ParamValue)>,
    /// Largest frame taken or sent, header and tag included, in octets.
    pub frame_octets_max: usize,
    /// Unsealed octets that may wait, headers and tags included.
    pub queue_octets_max: usize,
    /// Key update bounds instead of the profile's (ruling R4); for tests. At
    /// least some ten frames, or the updates of both sides provoke each other.
    pub update_bounds: Option<UpdateBounds>,
}

impl AssociationConfig {
    /// The defaults of [`limits`] for a HELLO mode, without `params`.
    pub fn new(hello: HelloMode) -> Self {
        Self {
            hello,
            hello_time: match hello {
                HelloMode::Required => limits::HANDSHAKE_TIME,
                HelloMode::Optional => limits::HELLO_OPTIONAL_TIME,
            },
            idle_probe_time: limits::IDLE_PROBE_TIME,
            probe_timeout: limits::PROBE_TIMEOUT,
            close_time: limits::CLOSE_TIME,
            protocols: vec![super::hello::PROTOCOL_A2A],
            channels: vec![ChannelId::BRIDGE, ChannelId::DISCOVERY],
            params: Vec::new(),
            frame_octets_max: limits::FRAME_OCTETS_MAX,
            queue_octets_max: limits::ASSOCIATION_OCTETS_MAX,
            update_bounds: None,
        }
    }

    /// The HELLO `protocols` list: protocol ids, channels, Control (ruling R5).
    pub(super) fn advertised(&self) -> Vec<u64> {
        let protocols = self.protocols.iter().map(|&id| u64::from(id));
        let channels = self.channels.iter().map(|channel| u64::from(channel.0));
        let mut list: Vec<u64> = protocols.chain(channels).collect();
        list.push(u64::from(ChannelId::CONTROL.0));
        list
    }
}
