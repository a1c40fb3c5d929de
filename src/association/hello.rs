//! The HELLO payload: one deterministic CBOR map of identifiers. Pure codec
//! and selection; what an answer does to the association is in `machine`.
//! It never carries a descriptor, a name for people or a locator of its own
//! accord (NPAMP-HELLO §8). Serves NPAMP-HELLO §4 and §5.

use crate::limits;
use crate::wire::ChannelId;
use crate::wire::cbor::{self, CborError, MapWriter};
use minicbor::Decoder;
use minicbor::data::Type;

/// A2A in the Bridge Protocol Identifier registry (NPAMP-REG §6).
pub const PROTOCOL_A2A: u8 = 0x02;

/// The only HELLO version (NPAMP-HELLO §6).
pub(super) const VERSION: u64 = 1;

const KEY_VERSION: u64 = 0;
const KEY_PROTOCOLS: u64 = 1;
const KEY_PARAMS: u64 = 2;
const KEY_GREASE: u64 = 3;

/// One value of HELLO `params`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamValue {
    /// Unsigned integer.
    Uint(u64),
    /// Text.
    Text(String),
    /// Array of text, in order.
    TextList(Vec<String>),
}

/// A HELLO without its GREASE values and without what was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Highest version the sender speaks.
    pub version: u64,
    /// Protocol and channel ids, most preferred first.
    pub protocols: Vec<u64>,
    /// Bootstrap constants with a text key and a value of a known shape.
    pub params: Vec<(String, ParamValue)>,
}

/// Why a HELLO payload is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// Not one deterministic CBOR item.
    #[error(transparent)]
    Cbor(#[from] CborError),
    /// Longer than a Control payload may be.
    #[error("payload is too long")]
    Oversize,
    /// The item is no map, or a field has another type than it must.
    #[error("`{0}` has the wrong type")]
    Type(&'static str),
    /// A key that is no integer.
    #[error("a key is no integer")]
    Key,
    /// A negative key, none of which is known.
    #[error("a negative key is not understood")]
    NegativeKey,
    /// A required field is absent.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// More entries than [`limits::HELLO_ENTRIES_MAX`].
    #[error("`{0}` has too many entries")]
    TooMany(&'static str),
}

impl Hello {
    /// The payload, with `grease` among its GREASE values.
    pub fn encode(&self, grease: u64) -> Vec<u8> {
        let mut params = MapWriter::new();
        for (at, (key, value)) in self.params.iter().enumerate() {
            // A key given twice keeps its first value.
            if self.params[..at].iter().any(|(earlier, _)| earlier == key) {
                continue;
            }
            match value {
                ParamValue::Uint(value) => params.entry(key, value),
                ParamValue::Text(value) => params.entry(key, value),
                ParamValue::TextList(value) => params.entry(key, value),
            };
        }
        let mut map = MapWriter::new();
        map.entry(KEY_VERSION, self.version);
        map.entry(KEY_PROTOCOLS, &self.protocols);
        if !self.params.is_empty() {
            let mut octets = Vec::new();
            params.write(&mut octets);
            map.entry_octets(KEY_PARAMS, octets);
        }
        map.entry(KEY_GREASE, [grease]);
        let mut out = Vec::new();
        map.write(&mut out);
        out
    }

    /// Reads a payload. Unknown non-negative keys, GREASE, and parameters with
    /// another kind of key or value are passed over (NPAMP-HELLO §4).
    pub fn decode(octets: &[u8]) -> Result<Self, HelloError> {
        if octets.len() > limits::CONTROL_PAYLOAD_OCTETS_MAX {
            return Err(HelloError::Oversize);
        }
        cbor::check_deterministic(octets)?;
        let mut decoder = Decoder::new(octets);
        let entries = map_head(&mut decoder, "HELLO")?;
        let (mut version, mut protocols, mut params) = (None, None, Vec::new());
        for _ in 0..entries {
            match major_type(&decoder) {
                Some(0) => {}
                Some(1) => return Err(HelloError::NegativeKey),
                _ => return Err(HelloError::Key),
            }
            match decoder.u64().map_err(|_| HelloError::Key)? {
                KEY_VERSION => {
                    version = Some(decoder.u64().map_err(|_| HelloError::Type("version"))?);
                }
                KEY_PROTOCOLS => protocols = Some(decode_protocols(&mut decoder)?),
                KEY_PARAMS => params = decode_params(&mut decoder)?,
                _ => skip(&mut decoder)?,
            }
        }
        Ok(Self {
            version: version.ok_or(HelloError::Missing("version"))?,
            protocols: protocols.ok_or(HelloError::Missing("protocols"))?,
            params,
        })
    }

    /// The parameter `key`.
    pub fn param(&self, key: &str) -> Option<&ParamValue> {
        self.params
            .iter()
            .find(|(present, _)| present == key)
            .map(|(_, value)| value)
    }

    /// Whether the sender takes frames on `channel`. Carrying A2A is offering
    /// Bridge, since that is the only channel A2A travels on; Control is always
    /// there.
    pub fn offers_channel(&self, channel: ChannelId) -> bool {
        channel == ChannelId::CONTROL
            || self.protocols.contains(&u64::from(channel.0))
            || (channel == ChannelId::BRIDGE && self.protocols.contains(&u64::from(PROTOCOL_A2A)))
    }
}

/// What both lists hold, in the initiator's order, each id once (NPAMP-HELLO §5).
pub(super) fn select(initiator: &[u64], responder: &[u64]) -> Vec<u64> {
    let mut selected = Vec::new();
    for id in initiator {
        if responder.contains(id) && !selected.contains(id) {
            selected.push(*id);
        }
    }
    selected
}

fn map_head(decoder: &mut Decoder<'_>, field: &'static str) -> Result<u64, HelloError> {
    let entries = decoder
        .map()
        .ok()
        .flatten()
        .ok_or(HelloError::Type(field))?;
    bounded(entries, field)
}

fn array_head(decoder: &mut Decoder<'_>, field: &'static str) -> Result<u64, HelloError> {
    let entries = decoder
        .array()
        .ok()
        .flatten()
        .ok_or(HelloError::Type(field))?;
    bounded(entries, field)
}

fn bounded(entries: u64, field: &'static str) -> Result<u64, HelloError> {
    if entries > limits::HELLO_ENTRIES_MAX as u64 {
        return Err(HelloError::TooMany(field));
    }
    Ok(entries)
}

fn major_type(decoder: &Decoder<'_>) -> Option<u8> {
    decoder
        .input()
        .get(decoder.position())
        .map(|initial| initial >> 5)
}

fn skip(decoder: &mut Decoder<'_>) -> Result<(), HelloError> {
    decoder.skip().map_err(|_| HelloError::Type("HELLO"))
}

fn decode_protocols(decoder: &mut Decoder<'_>) -> Result<Vec<u64>, HelloError> {
    let entries = array_head(decoder, "protocols")?;
    (0..entries)
        .map(|_| decoder.u64().map_err(|_| HelloError::Type("protocols")))
        .collect()
}

fn decode_params(decoder: &mut Decoder<'_>) -> Result<Vec<(String, ParamValue)>, HelloError> {
    let entries = map_head(decoder, "params")?;
    let mut params = Vec::new();
    for _ in 0..entries {
        if major_type(decoder) == Some(3) {
            let key = decoder
                .str()
                .map_err(|_| HelloError::Type("params"))?
                .to_owned();
            if let Some(value) = decode_value(decoder)? {
                params.push((key, value));
            }
        } else {
            skip(decoder)?;
            skip(decoder)?;
        }
    }
    Ok(params)
}

/// A value of a known shape; any other is passed over.
fn decode_value(decoder: &mut Decoder<'_>) -> Result<Option<ParamValue>, HelloError> {
    let start = decoder.position();
    let value = match decoder.datatype() {
        Ok(Type::U8 | Type::U16 | Type::U32 | Type::U64) => {
            decoder.u64().ok().map(ParamValue::Uint)
        }
        Ok(Type::String) => decoder
            .str()
            .ok()
            .map(|text| ParamValue::Text(text.to_owned())),
        Ok(Type::Array) => {
            let entries = array_head(decoder, "params")?;
            (0..entries)
                .map(|_| decoder.str().ok().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(ParamValue::TextList)
        }
        _ => None,
    };
    if value.is_none() {
        decoder.set_position(start);
        skip(decoder)?;
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            version: 1,
            protocols: vec![0x02, 0x0d, 0x10, 0x00],
            params: vec![
                ("docbind".into(), ParamValue::Uint(0x20)),
                (
                    "a2a-extensions".into(),
                    ParamValue::TextList(vec!["b".into(), "a".into()]),
                ),
                ("server-name".into(), ParamValue::Text("x.example".into())),
            ],
        }
    }

    /// NPAMP-HELLO §4, §9.2: deterministic, and read back; only the order of
    /// `params` is the encoding's own.
    #[test]
    fn round_trip() {
        let octets = hello().encode(0xf123);
        cbor::check_deterministic(&octets).unwrap();
        let back = Hello::decode(&octets).unwrap();
        assert_eq!(back.version, 1);
        assert_eq!(back.protocols, hello().protocols);
        assert_eq!(back.params.len(), 3);
        for (key, value) in hello().params {
            assert_eq!(back.param(&key), Some(&value));
        }
    }

    /// NPAMP-HELLO §4: keys and shapes, octet by octet.
    #[test]
    fn known_octets() {
        let hello = Hello {
            version: 1,
            protocols: vec![2, 13],
            params: Vec::new(),
        };
        assert_eq!(
            hello.encode(0xf000),
            [0xa3, 0, 1, 1, 0x82, 2, 13, 3, 0x81, 0x19, 0xf0, 0]
        );
    }

    /// NPAMP-HELLO §4: unknown non-negative keys, unknown parameters and GREASE are ignored.
    #[test]
    fn unknown_is_ignored() {
        // {0:1, 1:[2], 2:{7:"x", "a":true, "b":[1]}, 3:[9], 99:{}}
        let octets = [
            &[0xa5, 0, 1, 1, 0x81, 2, 2, 0xa3, 7, 0x61, b'x'][..],
            &[0x61, b'a', 0xf5, 0x61, b'b', 0x81, 1],
            &[3, 0x81, 9, 0x18, 99, 0xa0],
        ]
        .concat();
        let hello = Hello::decode(&octets).unwrap();
        assert_eq!(hello.protocols, [2]);
        assert!(hello.params.is_empty());
    }

    /// NPAMP-HELLO §4: an unknown negative key is refused.
    #[test]
    fn negative_key_is_refused() {
        let octets = [0xa3, 0, 1, 1, 0x80, 0x20, 0];
        assert_eq!(Hello::decode(&octets), Err(HelloError::NegativeKey));
        // The most negative one there is.
        let octets = [&[0xa3, 0, 1, 1, 0x80, 0x3b][..], &[0xff; 8], &[0]].concat();
        assert_eq!(Hello::decode(&octets), Err(HelloError::NegativeKey));
    }

    /// NPAMP-HELLO §4: everything else that is no HELLO.
    #[test]
    fn malformed_is_refused() {
        let cases: [(&[u8], HelloError); 10] = [
            (&[], HelloError::Cbor(CborError::Truncated)),
            (&[0x80], HelloError::Type("HELLO")),
            (&[0xa0], HelloError::Missing("version")),
            (&[0xa1, 0, 1], HelloError::Missing("protocols")),
            (&[0xa2, 0, 0x20, 1, 0x80], HelloError::Type("version")),
            (&[0xa2, 0, 1, 1, 0x81, 0x20], HelloError::Type("protocols")),
            (&[0xa3, 0, 1, 1, 0x80, 2, 0x80], HelloError::Type("params")),
            (&[0xa2, 0, 1, 0x61, b'x', 0], HelloError::Key),
            (
                &[0xa2, 1, 0x80, 0, 1],
                HelloError::Cbor(CborError::KeyOrder),
            ),
            (
                &[0xa2, 0, 0x18, 1, 1, 0x80],
                HelloError::Cbor(CborError::NotShortest),
            ),
        ];
        for (octets, error) in cases {
            assert_eq!(Hello::decode(octets), Err(error), "{octets:02x?}");
        }
    }

    #[test]
    fn entries_are_bounded() {
        let hello = Hello {
            version: 1,
            protocols: vec![1; limits::HELLO_ENTRIES_MAX + 1],
            params: Vec::new(),
        };
        assert_eq!(
            Hello::decode(&hello.encode(1)),
            Err(HelloError::TooMany("protocols"))
        );
        let long = vec![0; limits::CONTROL_PAYLOAD_OCTETS_MAX + 1];
        assert_eq!(Hello::decode(&long), Err(HelloError::Oversize));
    }

    proptest! {
        /// Any octets at all are read or refused, and what was read reads the same again.
        #[test]
        fn any_octets(octets in prop::collection::vec(any::<u8>(), 0..64), spoilt in any::<prop::sample::Index>()) {
            let mut near = hello().encode(0xf000);
            let at = spoilt.index(near.len());
            near[at] = octets.first().copied().unwrap_or(0);
            for octets in [octets, near] {
                if let Ok(hello) = Hello::decode(&octets) {
                    prop_assert_eq!(Hello::decode(&hello.encode(0xf000)), Ok(hello));
                }
            }
        }
    }

    /// NPAMP-HELLO §5: the intersection in the initiator's order; it may be empty.
    #[test]
    fn selection() {
        assert_eq!(select(&[3, 2, 13, 2], &[2, 13, 3, 9]), [3, 2, 13]);
        assert!(select(&[1, 4], &[2, 13]).is_empty());
    }

    #[test]
    fn carrying_a2a_offers_bridge() {
        let mut hello = hello();
        hello.protocols = vec![2];
        assert!(hello.offers_channel(ChannelId::BRIDGE));
        assert!(hello.offers_channel(ChannelId::CONTROL));
        assert!(!hello.offers_channel(ChannelId::DISCOVERY));
    }
}
