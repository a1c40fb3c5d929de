//! The 36-octet frame header: encoding, and decoding in the order that the
//! draft's §Frame Header demands (the CRC before any other field).

use thiserror::Error;

use super::{ChannelId, Flags, FrameType};

const MAGIC: u32 = u32::from_be_bytes(*b"NPAM");
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
    #[inline]
    pub fn prefix(&self) -> [u8; Self::PREFIX_LEN] {
        self.words().prefix()
    }

    /// The header as it goes on the wire.
    #[inline]
    pub fn encode(&self) -> [u8; Self::LEN] {
        let words = self.words();
        let mut out = [0; Self::LEN];
        out[..Self::PREFIX_LEN].copy_from_slice(&words.prefix());
        out[21..25].copy_from_slice(&words.crc32c().to_be_bytes());
        out
    }

    #[inline]
    fn words(&self) -> Words {
        Words([
            u64::from(MAGIC) << 8 | u64::from(VERSION << 4 | self.flags.0 & 0x0f),
            u64::from(self.frame_type.0) << 48
                | u64::from(self.channel.0) << 32
                | self.sequence >> 32,
            self.sequence << 32 | u64::from(self.payload_length),
        ])
    }

    /// Reads the first 36 octets of `octets`. The CRC is checked before any
    /// other field is looked at, then magic, version, the reserved octets, and
    /// the two code points that must not appear.
    #[inline]
    pub fn decode(octets: &[u8]) -> Result<Self, HeaderError> {
        let octets: &[u8; Self::LEN] = octets.first_chunk().ok_or(HeaderError::Truncated)?;
        let words = Words::read(octets);
        let stated = u32::from_be_bytes([octets[21], octets[22], octets[23], octets[24]]);
        if words.crc32c() != stated {
            return Err(HeaderError::Crc);
        }
        let Words([first, second, third]) = words;
        if first >> 8 != u64::from(MAGIC) {
            return Err(HeaderError::Magic);
        }
        let version = first as u8 >> 4;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if octets[25..] != [0; Self::LEN - 25] {
            return Err(HeaderError::Reserved);
        }
        let header = Self {
            flags: Flags(first as u8 & 0x0f),
            frame_type: FrameType((second >> 48) as u16),
            channel: ChannelId((second >> 32) as u16),
            sequence: second << 32 | third >> 32,
            payload_length: third as u32,
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

/// The prefix as three words of eight octets, the first of which has three zeros
/// in front: so magic with version and flags, frame type with channel and half
/// the sequence, and the rest lie in a word each.
#[derive(Clone, Copy)]
struct Words([u64; 3]);

/// Zero octets in front of the prefix in its words.
const PADDING: usize = 3 * 8 - Header::PREFIX_LEN;

impl Words {
    #[inline]
    fn read(octets: &[u8; Header::LEN]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&octets[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Self([word(0) >> (8 * PADDING), word(5), word(13)])
    }

    #[inline]
    fn prefix(self) -> [u8; Header::PREFIX_LEN] {
        let Self([first, second, third]) = self;
        let mut out = [0; Header::PREFIX_LEN];
        out[..5].copy_from_slice(&first.to_be_bytes()[PADDING..]);
        out[5..13].copy_from_slice(&second.to_be_bytes());
        out[13..].copy_from_slice(&third.to_be_bytes());
        out
    }

    /// CRC32C of the prefix, at eight octets an instruction. `crc32c` takes octets one by
    /// one up to the first aligned word and behind the last, which costs more than all else
    /// here; the padding leaves none, and the state it begins with takes the padding back.
    #[inline]
    fn crc32c(self) -> u32 {
        #[repr(align(8))]
        struct Aligned([u8; 3 * 8]);
        const BEFORE_PADDING: u32 = before_zeros(PADDING);
        let Self([first, second, third]) = self;
        let mut octets = Aligned([0; 3 * 8]);
        octets.0[..8].copy_from_slice(&first.to_be_bytes());
        octets.0[8..16].copy_from_slice(&second.to_be_bytes());
        octets.0[16..].copy_from_slice(&third.to_be_bytes());
        crc32c::crc32c_append(BEFORE_PADDING, &octets.0)
    }
}

/// The CRC32C that `zeros` zero octets turn into that of no octets.
const fn before_zeros(zeros: usize) -> u32 {
    // The generator, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    // The state is the complement of the CRC. A zero bit shifts it right and adds the
    // generator if a one fell out; the generator has its highest bit set, which says so.
    let mut state = !0u32;
    let mut bits = 8 * zeros;
    while bits > 0 {
        state = if state >> 31 == 1 {
            (state ^ POLYNOMIAL) << 1 | 1
        } else {
            state << 1
        };
        bits -= 1;
    }
    !state
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

    /// The padding of the words does not show in the CRC.
    #[test]
    fn crc_of_words_is_that_of_the_prefix() {
        assert_eq!(crc32c::crc32c_append(before_zeros(3), &[0; 3]), 0);
        for sequence in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let header = Header { sequence, ..PING };
            let octets = header.encode();
            let crc = crc32c(&octets[..Header::PREFIX_LEN]).to_be_bytes();
            assert_eq!(octets[21..25], crc);
            assert_eq!(octets[..21], header.prefix());
        }
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
