//! The 36-octet frame header: encoding, and decoding in the order that the
//! draft's §Frame Header demands (the CRC before any other field).

use thiserror::Error;

use super::{ChannelId, Flags, FrameType};

const MAGIC: [u8; 4] = *b"NPAM";
const VERSION: u8 = 2;

/// A frame header. Magic, version 2, CRC32C and the zero reserved octets are
/// implied: they are written by [`Header::encode`] and checked by [`Header::decode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The four flag bits.
    pub flags: Flags,
    /// The frame type within its channel.
    pub frame_type: FrameType,
    /// The channel.
    pub channel: ChannelId,
    /// Per channel and direction, from 0.
    pub sequence: u64,
    /// Octets after the header; a sealed payload counts its tag (ruling R1).
    pub payload_length: u32,
}

/// Why a header, and with it the octet stream it came from, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Fewer than 36 octets.
    #[error("header is truncated")]
    Truncated,
    /// CRC32C over octets 0–20 does not match octets 21–24.
    #[error("header CRC32C does not match")]
    Crc,
    /// Octets 0–3 are not `NPAM`.
    #[error("header magic is not NPAM")]
    Magic,
    /// The version nibble is not 2.
    #[error("wire version {0} is not supported")]
    Version(u8),
    /// One of octets 25–35 is not zero.
    #[error("a reserved header octet is not zero")]
    Reserved,
    /// Frame type 0x0000.
    #[error("frame type 0x0000 is reserved")]
    FrameTypeZero,
    /// Channel 0xFFFF.
    #[error("channel 0xffff must not appear on the wire")]
    ChannelForbidden,
    /// The frame is longer than the receiver takes; the value is its whole length in octets.
    #[error("frame of {0} octets is longer than allowed")]
    FrameTooLong(u64),
    /// The stream of octets failed before; nothing after that can be framed.
    #[error("the octet stream failed before")]
    AlreadyFailed,
}

crate::reasons! {
    /// What counters say of a refused header.
    pub enum HeaderReason {
        /// [`HeaderError::Truncated`]
        Truncated => "header_truncated",
        /// [`HeaderError::Crc`]
        Crc => "header_crc",
        /// [`HeaderError::Magic`]
        Magic => "header_magic",
        /// [`HeaderError::Version`]
        Version => "header_version",
        /// [`HeaderError::Reserved`]
        Reserved => "header_reserved",
        /// [`HeaderError::FrameTypeZero`]
        FrameTypeZero => "header_frame_type_zero",
        /// [`HeaderError::ChannelForbidden`]
        ChannelForbidden => "header_channel_forbidden",
        /// [`HeaderError::FrameTooLong`]
        FrameTooLong => "frame_too_long",
        /// [`HeaderError::AlreadyFailed`]
        AlreadyFailed => "stream_already_failed",
    }
}

impl HeaderError {
    /// The counter of this error.
    pub const fn reason(self) -> HeaderReason {
        match self {
            Self::Truncated => HeaderReason::Truncated,
            Self::Crc => HeaderReason::Crc,
            Self::Magic => HeaderReason::Magic,
            Self::Version(_) => HeaderReason::Version,
            Self::Reserved => HeaderReason::Reserved,
            Self::FrameTypeZero => HeaderReason::FrameTypeZero,
            Self::ChannelForbidden => HeaderReason::ChannelForbidden,
            Self::FrameTooLong(_) => HeaderReason::FrameTooLong,
            Self::AlreadyFailed => HeaderReason::AlreadyFailed,
        }
    }
}

impl Header {
    /// Octets of a header.
    pub const LEN: usize = 36;
    /// Octets that the CRC covers and that are the AEAD's associated data.
    pub const PREFIX_LEN: usize = 21;

    /// Octets 0–20: what the CRC covers and what seals authenticate.
    pub fn prefix(&self) -> [u8; Self::PREFIX_LEN] {
        let mut out = [0; Self::PREFIX_LEN];
        out[0..4].copy_from_slice(&MAGIC);
        out[4] = VERSION << 4 | self.flags.0 & 0x0f;
        out[5..7].copy_from_slice(&self.frame_type.0.to_be_bytes());
        out[7..9].copy_from_slice(&self.channel.0.to_be_bytes());
        out[9..17].copy_from_slice(&self.sequence.to_be_bytes());
        out[17..21].copy_from_slice(&self.payload_length.to_be_bytes());
        out
    }

    /// The header as it goes on the wire.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let prefix = self.prefix();
        let mut out = [0; Self::LEN];
        out[..Self::PREFIX_LEN].copy_from_slice(&prefix);
        out[21..25].copy_from_slice(&crc32c(&prefix).to_be_bytes());
        out
    }

    /// Reads the first 36 octets of `octets`. The CRC is checked before any
    /// other field is looked at, then magic, version, the reserved octets, and
    /// the two code points that must not appear.
    pub fn decode(octets: &[u8]) -> Result<Self, HeaderError> {
        let octets: &[u8; Self::LEN] = octets.first_chunk().ok_or(HeaderError::Truncated)?;
        let stated = u32::from_be_bytes([octets[21], octets[22], octets[23], octets[24]]);
        if crc32c(&octets[..Self::PREFIX_LEN]) != stated {
            return Err(HeaderError::Crc);
        }
        if octets[..4] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let version = octets[4] >> 4;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if octets[25..].iter().any(|&octet| octet != 0) {
            return Err(HeaderError::Reserved);
        }
        let header = Self {
            flags: Flags(octets[4] & 0x0f),
            frame_type: FrameType(u16::from_be_bytes([octets[5], octets[6]])),
            channel: ChannelId(u16::from_be_bytes([octets[7], octets[8]])),
            sequence: u64::from_be_bytes([
                octets[9], octets[10], octets[11], octets[12], octets[13], octets[14], octets[15],
                octets[16],
            ]),
            payload_length: u32::from_be_bytes([octets[17], octets[18], octets[19], octets[20]]),
        };
        if header.frame_type.0 == 0 {
            return Err(HeaderError::FrameTypeZero);
        }
        if header.channel == ChannelId::FORBIDDEN {
            return Err(HeaderError::ChannelForbidden);
        }
        Ok(header)
    }
}

/// CRC32C (Castagnoli) of `octets`.
pub fn crc32c(octets: &[u8]) -> u32 {
    crc32c::crc32c(octets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PING: Header = Header {
        flags: Flags::NONE,
        frame_type: FrameType::PING,
        channel: ChannelId::CONTROL,
        sequence: 0,
        payload_length: 0,
    };

    fn with_valid_crc(mut octets: [u8; Header::LEN]) -> [u8; Header::LEN] {
        let crc = crc32c(&octets[..Header::PREFIX_LEN]);
        octets[21..25].copy_from_slice(&crc.to_be_bytes());
        octets
    }

    /// The check value of the CRC-32C catalogue entry.
    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// Draft §Frame Header: "validate it before processing any other header field".
    #[test]
    fn crc_is_checked_first() {
        let mut octets = PING.encode();
        octets[0] = b'X'; // wrong magic as well
        assert_eq!(Header::decode(&octets), Err(HeaderError::Crc));
        octets = PING.encode();
        octets[30] = 1;
        octets[22] ^= 1;
        assert_eq!(Header::decode(&octets), Err(HeaderError::Crc));
    }

    /// Draft §Frame Header: each corrupted field has its own refusal.
    #[test]
    fn corrupted_fields() {
        let mut octets = PING.encode();
        octets[0] = b'X';
        assert_eq!(
            Header::decode(&with_valid_crc(octets)),
            Err(HeaderError::Magic)
        );
        octets = PING.encode();
        octets[4] = 0x30;
        assert_eq!(
            Header::decode(&with_valid_crc(octets)),
            Err(HeaderError::Version(3))
        );
        for reserved in 25..36 {
            octets = PING.encode();
            octets[reserved] = 0x80;
            assert_eq!(Header::decode(&octets), Err(HeaderError::Reserved));
        }
        octets = PING.encode();
        for short in 0..Header::LEN {
            assert_eq!(
                Header::decode(&octets[..short]),
                Err(HeaderError::Truncated)
            );
        }
    }

    /// Draft §Reserved Frame Types and §Reserved Channel-ID Range: 0x0000 and 0xFFFF must not appear.
    #[test]
    fn forbidden_code_points() {
        let mut header = PING;
        header.frame_type = FrameType(0);
        assert_eq!(
            Header::decode(&header.encode()),
            Err(HeaderError::FrameTypeZero)
        );
        header = PING;
        header.channel = ChannelId::FORBIDDEN;
        assert_eq!(
            Header::decode(&header.encode()),
            Err(HeaderError::ChannelForbidden)
        );
    }

    /// Draft §Frame Header: any single octet changed is refused.
    #[test]
    fn every_octet_is_guarded() {
        let octets = PING.encode();
        for at in 0..Header::LEN {
            for bit in 0..8 {
                let mut changed = octets;
                changed[at] ^= 1 << bit;
                assert!(Header::decode(&changed).is_err(), "octet {at} bit {bit}");
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(flags in 0u8..16, frame_type in 1u16.., channel in 0u16..0xffff, sequence: u64, payload_length: u32) {
            let header = Header { flags: Flags(flags), frame_type: FrameType(frame_type), channel: ChannelId(channel), sequence, payload_length };
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn garbage_never_panics(octets: Vec<u8>) {
            let _ = Header::decode(&octets);
        }
    }
}
