//! StreamControl TLV 0x0011 (a provisional code point): event_id, resume and
//! cancel, 11 octets. Serves NPAMP-CC-STREAM §5.

use crate::bridge::error::BridgeError;

/// TLV type of StreamControl, provisional in NPAMP-CC-STREAM §5.3.
pub const TAG: u16 = 0x0011;
/// Octets of the value.
pub const LEN: usize = 11;
/// The one version there is.
const VERSION: u8 = 1;
const RESUMABLE: u8 = 1;
const CANCEL_ACK: u8 = 2;

/// What a StreamControl asks or says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// An event or the end of a stream.
    Data,
    /// A resume request; event_id is the cursor.
    Resume,
    /// A cancel; event_id is the highest one consumed.
    Cancel,
}

/// The StreamControl's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamControl {
    /// Selector.
    pub control: Control,
    /// The producer can resume this stream.
    pub resumable: bool,
    /// This END acknowledges a cancel.
    pub cancel_ack: bool,
    /// Event identifier, cursor or tail, by `control` and `cancel_ack`.
    pub event_id: u64,
}

impl StreamControl {
    /// An event or end of a stream that cannot be resumed.
    pub fn data(event_id: u64) -> Self {
        Self {
            control: Control::Data,
            resumable: false,
            cancel_ack: false,
            event_id,
        }
    }

    /// An event or end of a stream that can be resumed (§6.1).
    pub fn resumable(event_id: u64) -> Self {
        Self {
            resumable: true,
            ..Self::data(event_id)
        }
    }

    /// A cancel that names the highest event consumed (§7.1).
    pub fn cancel(event_id: u64) -> Self {
        Self {
            control: Control::Cancel,
            ..Self::data(event_id)
        }
    }

    /// A resume request after `cursor` (§6.2).
    pub fn resume(cursor: u64) -> Self {
        Self {
            control: Control::Resume,
            ..Self::data(cursor)
        }
    }

    /// The acknowledgement of a cancel; `tail` is the last event_id sent (§7.2).
    pub fn cancel_ack(tail: u64) -> Self {
        Self {
            cancel_ack: true,
            ..Self::data(tail)
        }
    }

    /// Reads a TLV value. Reserved flag bits are ignored.
    pub fn decode(value: &[u8]) -> Result<Self, BridgeError> {
        let [version, control, flags, event_id @ ..] =
            *<&[u8; LEN]>::try_from(value).map_err(|_| BridgeError::StreamControlLength)?;
        if version != VERSION {
            return Err(BridgeError::StreamControlVersion);
        }
        let control = match control {
            0 => Control::Data,
            1 => Control::Resume,
            2 => Control::Cancel,
            _ => return Err(BridgeError::StreamControlUndefined),
        };
        Ok(Self {
            control,
            resumable: flags & RESUMABLE != 0,
            cancel_ack: flags & CANCEL_ACK != 0,
            event_id: u64::from_be_bytes(event_id),
        })
    }

    /// Writes the value.
    pub fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        out[0] = VERSION;
        out[1] = match self.control {
            Control::Data => 0,
            Control::Resume => 1,
            Control::Cancel => 2,
        };
        if self.resumable {
            out[2] |= RESUMABLE;
        }
        if self.cancel_ack {
            out[2] |= CANCEL_ACK;
        }
        out[3..].copy_from_slice(&self.event_id.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-CC-STREAM §5.2: layout.
    #[test]
    fn round_trips() {
        for value in [
            StreamControl::data(1),
            StreamControl::resume(0),
            StreamControl::cancel(u64::MAX),
            StreamControl::cancel_ack(7),
            StreamControl::resumable(9),
        ] {
            assert_eq!(StreamControl::decode(&value.encode()), Ok(value));
        }
        assert_eq!(
            StreamControl::cancel_ack(0x0102).encode(),
            [1, 0, 2, 0, 0, 0, 0, 0, 0, 1, 2]
        );
    }

    /// NPAMP-CC-STREAM §9: truncated, wrong length, version, control; reserved flags ignored.
    #[test]
    fn rejects_and_ignores() {
        let good = StreamControl::data(5).encode();
        assert_eq!(
            StreamControl::decode(&good[..10]),
            Err(BridgeError::StreamControlLength)
        );
        assert_eq!(
            StreamControl::decode(&[&good[..], &[0]].concat()),
            Err(BridgeError::StreamControlLength)
        );
        let mut bad = good;
        bad[0] = 2;
        assert_eq!(
            StreamControl::decode(&bad),
            Err(BridgeError::StreamControlVersion)
        );
        let mut bad = good;
        bad[1] = 3;
        assert_eq!(
            StreamControl::decode(&bad),
            Err(BridgeError::StreamControlUndefined)
        );
        let mut odd = good;
        odd[2] = 0xfc;
        assert_eq!(StreamControl::decode(&odd), Ok(StreamControl::data(5)));
    }
}
