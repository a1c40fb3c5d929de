//! Channel identifiers, frame types and flags. Unknown code points are values:
//! nothing here refuses one. Serves the draft's §Reserved Frame Types, §Core
//! Channel Registry and §Frame Flags.

use std::fmt;
use std::ops::BitOr;

/// A channel identifier (draft §Channel Architecture).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

impl ChannelId {
    /// Connection control and the handshake.
    pub const CONTROL: Self = Self(0x0000);
    /// Persistent state.
    pub const MEMORY: Self = Self(0x0001);
    /// Anomaly reports; scheduled ahead of bulk like Control.
    pub const IMMUNE: Self = Self(0x0005);
    /// Multiplexed full-duplex streaming.
    pub const STREAM: Self = Self(0x000c);
    /// External agent protocols inside N-PAMP frames.
    pub const BRIDGE: Self = Self(0x000d);
    /// Agent, tool and service discovery.
    pub const DISCOVERY: Self = Self(0x0010);
    /// The one identifier that must not appear on the wire.
    pub const FORBIDDEN: Self = Self(0xffff);

    /// Whether this is a GREASE value (0xF000–0xFFFE), which receivers ignore.
    pub const fn is_grease(self) -> bool {
        self.0 >= 0xf000 && self.0 < 0xffff
    }

    /// The registered name, or `"unregistered"`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x0000 => "Control",
            0x0001 => "Memory",
            0x0002 => "Capability",
            0x0003 => "Identity",
            0x0004 => "Governance",
            0x0005 => "Immune",
            0x0006 => "Federation",
            0x0007 => "Settlement",
            0x0008 => "Compliance",
            0x0009 => "Sensory",
            0x000a => "Telemetry",
            0x000b => "Audit",
            0x000c => "Stream",
            0x000d => "Bridge",
            0x000e => "Commerce",
            0x000f => "Interaction",
            0x0010 => "Discovery",
            0x0011 => "Workflow",
            0x0012 => "Knowledge",
            0x0013 => "Spatial",
            _ => "unregistered",
        }
    }
}

impl fmt::Display for ChannelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A frame type, meaningful only together with its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameType(pub u16);

impl FrameType {
    /// Liveness probe, on any channel.
    pub const PING: Self = Self(0x0001);
    /// Answer to PING.
    pub const PONG: Self = Self(0x0002);
    /// Authenticated close.
    pub const CLOSE: Self = Self(0x0003);
    /// Answer to CLOSE.
    pub const CLOSE_ACK: Self = Self(0x0004);
    /// Error report.
    pub const ERROR: Self = Self(0x0005);
    /// Last frame of an epoch on its channel and direction.
    pub const KEY_UPDATE: Self = Self(0x0006);
    /// Acknowledges KEY_UPDATE.
    pub const KEY_UPDATE_ACK: Self = Self(0x0007);
    /// Path-migration challenge.
    pub const PATH_CHALLENGE: Self = Self(0x0008);
    /// Path-migration response.
    pub const PATH_RESPONSE: Self = Self(0x0009);
    /// Connection-level credit.
    pub const FLOW_UPDATE: Self = Self(0x000a);

    /// Control: first handshake flight.
    pub const CLIENT_HELLO: Self = Self(0x0100);
    /// Control: second handshake flight, cleartext part.
    pub const SERVER_HELLO: Self = Self(0x0101);
    /// Control: second handshake flight, sealed part.
    pub const SERVER_AUTH: Self = Self(0x0102);
    /// Control: third handshake flight.
    pub const CLIENT_AUTH: Self = Self(0x0103);
    /// Control: tier-1 boundary of the master ratchet.
    pub const MASTER_RATCHET: Self = Self(0x0104);
    /// Control: acknowledges MASTER_RATCHET.
    pub const MASTER_RATCHET_ACK: Self = Self(0x0105);
    /// Control: tier-2 request of the master ratchet.
    pub const REKEM: Self = Self(0x0106);
    /// Control: tier-2 boundary of the master ratchet.
    pub const REKEM_ACK: Self = Self(0x0107);
    /// Control: the post-handshake hello (NPAMP-HELLO).
    pub const HELLO: Self = Self(0x0110);
    /// Control: confirms a hello (NPAMP-HELLO).
    pub const HELLO_DONE: Self = Self(0x0111);

    /// Bridge and Discovery: a request that expects a reply.
    pub const BRIDGE_REQUEST: Self = Self(0x0100);
    /// Bridge and Discovery: the reply.
    pub const BRIDGE_RESPONSE: Self = Self(0x0101);
    /// Bridge and Discovery: a foreign error or a transport error.
    pub const BRIDGE_ERROR: Self = Self(0x0102);
    /// Bridge and Discovery: one-way.
    pub const BRIDGE_NOTIFY: Self = Self(0x0103);
    /// Bridge and Discovery: one event of a stream.
    pub const BRIDGE_STREAM_DATA: Self = Self(0x0104);
    /// Bridge and Discovery: the last event of a stream.
    pub const BRIDGE_STREAM_END: Self = Self(0x0105);

    /// Whether the type has the same meaning on every channel (0x0000–0x000A).
    pub const fn is_all_channel(self) -> bool {
        self.0 <= 0x000a
    }

    /// Whether the type is channel-specific (0x0100 and above).
    pub const fn is_channel_specific(self) -> bool {
        self.0 >= 0x0100
    }

    /// The name of this type on `channel`, or `"unknown"`.
    pub const fn name(self, channel: ChannelId) -> &'static str {
        match (self.0, channel) {
            (0x0001, _) => "PING",
            (0x0002, _) => "PONG",
            (0x0003, _) => "CLOSE",
            (0x0004, _) => "CLOSE_ACK",
            (0x0005, _) => "ERROR",
            (0x0006, _) => "KEY_UPDATE",
            (0x0007, _) => "KEY_UPDATE_ACK",
            (0x0008, _) => "PATH_CHALLENGE",
            (0x0009, _) => "PATH_RESPONSE",
            (0x000a, _) => "FLOW_UPDATE",
            (0x0100, ChannelId::CONTROL) => "CLIENT_HELLO",
            (0x0101, ChannelId::CONTROL) => "SERVER_HELLO",
            (0x0102, ChannelId::CONTROL) => "SERVER_AUTH",
            (0x0103, ChannelId::CONTROL) => "CLIENT_AUTH",
            (0x0104, ChannelId::CONTROL) => "MASTER_RATCHET",
            (0x0105, ChannelId::CONTROL) => "MASTER_RATCHET_ACK",
            (0x0106, ChannelId::CONTROL) => "REKEM",
            (0x0107, ChannelId::CONTROL) => "REKEM_ACK",
            (0x0110, ChannelId::CONTROL) => "HELLO",
            (0x0111, ChannelId::CONTROL) => "HELLO_DONE",
            (0x0100, ChannelId::BRIDGE) => "BRIDGE_REQUEST",
            (0x0101, ChannelId::BRIDGE) => "BRIDGE_RESPONSE",
            (0x0102, ChannelId::BRIDGE) => "BRIDGE_ERROR",
            (0x0103, ChannelId::BRIDGE) => "BRIDGE_NOTIFY",
            (0x0104, ChannelId::BRIDGE) => "BRIDGE_STREAM_DATA",
            (0x0105, ChannelId::BRIDGE) => "BRIDGE_STREAM_END",
            _ => "unknown",
        }
    }
}

impl fmt::Display for FrameType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// The low nibble of header octet 4 (draft §Frame Flags).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Urgent-priority scheduling.
    pub const URG: Self = Self(0x01);
    /// The payload is AEAD-sealed.
    pub const ENC: Self = Self(0x02);
    /// The payload is compressed.
    pub const COMP: Self = Self(0x04);
    /// The frame is a fragment.
    pub const FRAG: Self = Self(0x08);

    /// Whether every bit of `other` is set here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draft §Reserved Channel-ID Range: 0xF000–0xFFFE are GREASE, 0xFFFF is not.
    #[test]
    fn grease_range() {
        assert!(!ChannelId(0xefff).is_grease());
        assert!(ChannelId(0xf000).is_grease());
        assert!(ChannelId(0xfffe).is_grease());
        assert!(!ChannelId::FORBIDDEN.is_grease());
    }

    /// Draft §Reserved Frame Types: a channel-specific value means nothing without its channel.
    #[test]
    fn names_depend_on_the_channel() {
        assert_eq!(FrameType(0x0100).name(ChannelId::CONTROL), "CLIENT_HELLO");
        assert_eq!(FrameType(0x0100).name(ChannelId::BRIDGE), "BRIDGE_REQUEST");
        assert_eq!(FrameType(0x0100).name(ChannelId::MEMORY), "unknown");
        assert_eq!(FrameType::PING.name(ChannelId(0x1234)), "PING");
        assert_eq!(ChannelId::BRIDGE.name(), "Bridge");
        assert_eq!(ChannelId(0x2000).name(), "unregistered");
    }

    #[test]
    fn flags_combine() {
        let both = Flags::URG | Flags::ENC;
        assert!(both.contains(Flags::ENC));
        assert!(!both.contains(Flags::FRAG));
    }
}
