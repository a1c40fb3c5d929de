//! Deterministic CBOR (RFC 8949 §4.2.1): a map writer that sorts its keys, and
//! a check that received octets are one deterministic item. Values themselves
//! are read and written with `minicbor`; nothing here knows what they mean.

use minicbor::Encode;
use thiserror::Error;

use crate::limits::CBOR_DEPTH_MAX;

/// Why octets are not one deterministic CBOR item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CborError {
    /// The octets end inside the item.
    #[error("CBOR item is truncated")]
    Truncated,
    /// Octets follow the item.
    #[error("octets follow the CBOR item")]
    Trailing,
    /// An integer, length, tag or float is not in its shortest form.
    #[error("CBOR argument is not in its shortest form")]
    NotShortest,
    /// An indefinite length or a lone break.
    #[error("CBOR length is indefinite")]
    Indefinite,
    /// Additional information 28–30, or a simple value below 32 in two octets.
    #[error("CBOR head is not well-formed")]
    Malformed,
    /// Map keys are not in bytewise order.
    #[error("CBOR map keys are not in order")]
    KeyOrder,
    /// A map key appears twice.
    #[error("CBOR map key is repeated")]
    DuplicateKey,
    /// A text string is not UTF-8.
    #[error("CBOR text is not UTF-8")]
    Text,
    /// Nested deeper than [`CBOR_DEPTH_MAX`].
    #[error("CBOR item is nested too deeply")]
    Depth,
}

/// Checks that `octets` are exactly one item in deterministic encoding:
/// shortest arguments and floats, definite lengths, map keys unique and in
/// bytewise order, text in UTF-8, bounded depth.
pub fn check_deterministic(octets: &[u8]) -> Result<(), CborError> {
    let rest = skip_item(octets, 0)?;
    if rest.is_empty() {
        Ok(())
    } else {
        Err(CborError::Trailing)
    }
}

fn skip_item(octets: &[u8], depth: usize) -> Result<&[u8], CborError> {
    if depth > CBOR_DEPTH_MAX {
        return Err(CborError::Depth);
    }
    let (&initial, rest) = octets.split_first().ok_or(CborError::Truncated)?;
    let (major, info) = (initial >> 5, initial & 0x1f);
    if major == 7 {
        return skip_simple(info, rest);
    }
    let (argument, mut rest) = argument(info, rest)?;
    match major {
        0 | 1 => Ok(rest),
        2 | 3 => {
            let length = usize::try_from(argument).map_err(|_| CborError::Truncated)?;
            let (string, rest) = rest.split_at_checked(length).ok_or(CborError::Truncated)?;
            if major == 3 && std::str::from_utf8(string).is_err() {
                return Err(CborError::Text);
            }
            Ok(rest)
        }
        4 => {
            // Each item takes an octet at least, so a false count ends at Truncated.
            for _ in 0..argument {
                rest = skip_item(rest, depth + 1)?;
            }
            Ok(rest)
        }
        5 => {
            let mut last_key: Option<&[u8]> = None;
            for _ in 0..argument {
                let after_key = skip_item(rest, depth + 1)?;
                let key = &rest[..rest.len() - after_key.len()];
                match last_key.map(|last| last.cmp(key)) {
                    Some(std::cmp::Ordering::Equal) => return Err(CborError::DuplicateKey),
                    Some(std::cmp::Ordering::Greater) => return Err(CborError::KeyOrder),
                    _ => last_key = Some(key),
                }
                rest = skip_item(after_key, depth + 1)?;
            }
            Ok(rest)
        }
        _ => skip_item(rest, depth + 1),
    }
}

fn argument(info: u8, rest: &[u8]) -> Result<(u64, &[u8]), CborError> {
    let (argument, floor, rest) = match info {
        0..=23 => return Ok((u64::from(info), rest)),
        24 => {
            let (octets, rest) = take::<1>(rest)?;
            (u64::from(octets[0]), 24, rest)
        }
        25 => {
            let (octets, rest) = take(rest)?;
            (u64::from(u16::from_be_bytes(octets)), 1 << 8, rest)
        }
        26 => {
            let (octets, rest) = take(rest)?;
            (u64::from(u32::from_be_bytes(octets)), 1 << 16, rest)
        }
        27 => {
            let (octets, rest) = take(rest)?;
            (u64::from_be_bytes(octets), 1 << 32, rest)
        }
        31 => return Err(CborError::Indefinite),
        _ => return Err(CborError::Malformed),
    };
    if argument < floor {
        return Err(CborError::NotShortest);
    }
    Ok((argument, rest))
}

fn take<const N: usize>(rest: &[u8]) -> Result<([u8; N], &[u8]), CborError> {
    let (octets, rest) = rest.split_first_chunk::<N>().ok_or(CborError::Truncated)?;
    Ok((*octets, rest))
}

fn skip_simple(info: u8, rest: &[u8]) -> Result<&[u8], CborError> {
    match info {
        0..=23 => Ok(rest),
        24 => {
            let (octets, rest) = take::<1>(rest)?;
            if octets[0] < 32 {
                return Err(CborError::Malformed);
            }
            Ok(rest)
        }
        25 => {
            let (half, rest) = take::<2>(rest)?;
            let half = u16::from_be_bytes(half);
            // Every NaN but the canonical one has a shorter or equal standard spelling.
            if half & 0x7c00 == 0x7c00 && half & 0x03ff != 0 && half != 0x7e00 {
                return Err(CborError::NotShortest);
            }
            Ok(rest)
        }
        26 => {
            let (single, rest) = take(rest)?;
            if fits_half(f32::from_bits(u32::from_be_bytes(single))) {
                return Err(CborError::NotShortest);
            }
            Ok(rest)
        }
        27 => {
            let (double, rest) = take(rest)?;
            let double = f64::from_bits(u64::from_be_bytes(double));
            if double.is_nan() || f64::from(double as f32).to_bits() == double.to_bits() {
                return Err(CborError::NotShortest);
            }
            Ok(rest)
        }
        31 => Err(CborError::Indefinite),
        _ => Err(CborError::Malformed),
    }
}

/// Whether a binary16 float has exactly this value (NaN always has: 0x7e00).
fn fits_half(value: f32) -> bool {
    if value.is_nan() || value.is_infinite() || value == 0.0 {
        return true;
    }
    let bits = value.to_bits();
    let biased_exponent = bits >> 23 & 0xff;
    let mantissa = bits & 0x007f_ffff;
    match biased_exponent {
        // 2^-14 to 2^15: normal halves, ten bits of mantissa.
        113..=142 => mantissa.trailing_zeros() >= 13,
        // 2^-24 to 2^-15: subnormal halves, each step down costs one bit more.
        103..=112 => (mantissa | 0x0080_0000).trailing_zeros() >= 13 + 113 - biased_exponent,
        _ => false,
    }
}

/// Builds one map whose keys come out unique and in bytewise order.
#[derive(Debug, Default)]
pub struct MapWriter {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

impl MapWriter {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry. The value must itself encode deterministically. A repeated
    /// key is a bug of the caller.
    pub fn entry(&mut self, key: impl Encode<()>, value: impl Encode<()>) -> &mut Self {
        self.entry_octets(key, to_octets(value))
    }

    /// Adds an entry whose value is already encoded.
    pub fn entry_octets(&mut self, key: impl Encode<()>, value: Vec<u8>) -> &mut Self {
        let key = to_octets(key);
        match self
            .entries
            .binary_search_by(|(present, _)| present.as_slice().cmp(&key))
        {
            Ok(_) => panic!("a CBOR map key is written once"),
            Err(at) => self.entries.insert(at, (key, value)),
        }
        self
    }

    /// Appends the map to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_head(5, self.entries.len() as u64, out);
        for (key, value) in &self.entries {
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
    }
}

/// Appends the head of a definite array of `length` items.
pub fn write_array_head(length: usize, out: &mut Vec<u8>) {
    write_head(4, length as u64, out);
}

fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let mut encoder = minicbor::Encoder::new(out);
    // Writing to a Vec cannot fail.
    let _ = match major {
        4 => encoder.array(argument),
        _ => encoder.map(argument),
    };
}

/// Encodes one value with `minicbor`, which writes shortest arguments and
/// definite lengths for everything but iterators of unknown length.
pub fn to_octets(value: impl Encode<()>) -> Vec<u8> {
    // The only error is a custom one of the value's own Encode, none of which is fallible here.
    minicbor::to_vec(value).expect("encoding to memory does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(hex: &str) -> Result<(), CborError> {
        check_deterministic(&hex::decode(hex).unwrap())
    }

    /// RFC 8949 §4.2.1, appendix A spellings.
    #[test]
    fn deterministic_items_pass() {
        for item in [
            "00",
            "17",
            "1818",
            "190100",
            "1a00010000",
            "1b0000000100000000",
            "20",
            "3818",
            "4401020304",
            "6161",
            "80",
            "83010203",
            "a0",
            "a201020304",
            "a2016161206162",
            "c074323031332d30332d32315432303a30343a30305a",
            "f4",
            "f6",
            "f7",
            "f8ff",
            "f90000",
            "f93e00",
            "f97c00",
            "f97e00",
            "fa47c35000",
            "fb3ff199999999999a",
            "f90001",
            "fa33800001",
        ] {
            assert_eq!(check(item), Ok(()), "{item}");
        }
    }

    #[test]
    fn each_refusal() {
        for (item, error) in [
            ("", CborError::Truncated),
            ("19", CborError::Truncated),
            ("4401", CborError::Truncated),
            ("9bffffffffffffffff", CborError::Truncated),
            ("5bffffffffffffffff", CborError::Truncated),
            ("0000", CborError::Trailing),
            ("1800", CborError::NotShortest),
            ("1817", CborError::NotShortest),
            ("1900ff", CborError::NotShortest),
            ("1a0000ffff", CborError::NotShortest),
            ("1b00000000ffffffff", CborError::NotShortest),
            ("580161", CborError::NotShortest),
            ("fa3f800000", CborError::NotShortest),
            ("fa33800000", CborError::NotShortest),
            ("fb3ff0000000000000", CborError::NotShortest),
            ("fb7ff8000000000000", CborError::NotShortest),
            ("f97e01", CborError::NotShortest),
            ("5f4101ff", CborError::Indefinite),
            ("9f01ff", CborError::Indefinite),
            ("bf0102ff", CborError::Indefinite),
            ("ff", CborError::Indefinite),
            ("1c", CborError::Malformed),
            ("f818", CborError::Malformed),
            ("a203040102", CborError::KeyOrder),
            (
                "a2616101 0102".replace(' ', "").as_str(),
                CborError::KeyOrder,
            ),
            ("a201020103", CborError::DuplicateKey),
            ("61ff", CborError::Text),
        ] {
            assert_eq!(check(item), Err(error), "{item}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let mut octets = vec![0x81; 10_000];
        octets.push(0);
        assert_eq!(check_deterministic(&octets), Err(CborError::Depth));
        let mut shallow = vec![0x81; CBOR_DEPTH_MAX];
        shallow.push(0);
        assert_eq!(check_deterministic(&shallow), Ok(()));
    }

    proptest! {
        #[test]
        fn written_maps_are_deterministic(entries in prop::collection::btree_map(".{0,30}", any::<u64>(), 0..30), numbers in prop::collection::btree_map(any::<i32>(), ".{0,9}", 0..9)) {
            let mut map = MapWriter::new();
            for (key, value) in &entries {
                map.entry(key, value);
            }
            for (key, value) in &numbers {
                map.entry(key, value);
            }
            let mut out = Vec::new();
            map.write(&mut out);
            prop_assert_eq!(check_deterministic(&out), Ok(()));
        }

        #[test]
        fn garbage_never_panics(octets: Vec<u8>) {
            let _ = check_deterministic(&octets);
        }

        /// Shortest float: a single that a half can hold is refused, every other passes.
        #[test]
        fn halves(bits: u16) {
            let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
            let exponent = i32::from(bits >> 10 & 0x1f);
            let fraction = f32::from(bits & 0x3ff);
            prop_assume!(exponent != 31);
            let value = sign * if exponent == 0 { fraction * 2f32.powi(-24) } else { (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15) };
            prop_assert!(fits_half(value));
            let next = f32::from_bits(value.to_bits() + 1);
            prop_assert!(value == 0.0 || !fits_half(next));
        }
    }
}
