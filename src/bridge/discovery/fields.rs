//! Reading and writing the fields of discovery maps. Readers assume octets that
//! passed [`crate::wire::cbor::check_deterministic`]. Serves NPAMP-DISC §4.1.

use super::error::FrameError;
use crate::limits::DISCOVERY_LIST_ENTRIES_MAX;
use crate::wire::cbor::{MapWriter, to_octets, write_array_head};
use minicbor::Decoder;
use minicbor::bytes::ByteSlice;

pub(super) type Read<T> = Result<T, FrameError>;

/// Reads a map with integer keys. `take` reads the value of a key that it knows and
/// says so; any other is passed over, unless it is negative.
pub(super) fn map<'b>(
    decoder: &mut Decoder<'b>,
    mut take: impl FnMut(u64, &mut Decoder<'b>) -> Read<bool>,
) -> Read<()> {
    let entries = decoder.map().ok().flatten().ok_or(FrameError::FieldType)?;
    for _ in 0..entries {
        let initial = decoder.input().get(decoder.position()).copied();
        match initial.map(|octet| octet >> 5) {
            Some(0) => {}
            Some(1) => return Err(FrameError::NegativeKey),
            _ => return Err(FrameError::Key),
        }
        let key = decoder.u64().map_err(|_| FrameError::Key)?;
        if !take(key, decoder)? {
            decoder.skip().map_err(|_| FrameError::FieldType)?;
        }
    }
    Ok(())
}

pub(super) fn uint(decoder: &mut Decoder<'_>) -> Read<u64> {
    decoder.u64().map_err(|_| FrameError::FieldType)
}

pub(super) fn boolean(decoder: &mut Decoder<'_>) -> Read<bool> {
    decoder.bool().map_err(|_| FrameError::FieldType)
}

pub(super) fn text(decoder: &mut Decoder<'_>) -> Read<String> {
    decoder
        .str()
        .map(str::to_owned)
        .map_err(|_| FrameError::FieldType)
}

/// An octet string of 1 to `octets_max` octets.
pub(super) fn octets<'b>(decoder: &mut Decoder<'b>, octets_max: usize) -> Read<&'b [u8]> {
    let octets = decoder.bytes().map_err(|_| FrameError::FieldType)?;
    if (1..=octets_max).contains(&octets.len()) {
        Ok(octets)
    } else {
        Err(FrameError::Range)
    }
}

/// An array of at most `entries_max` items.
pub(super) fn array<'b, T>(
    decoder: &mut Decoder<'b>,
    entries_max: usize,
    mut item: impl FnMut(&mut Decoder<'b>) -> Read<T>,
) -> Read<Vec<T>> {
    let entries = decoder
        .array()
        .ok()
        .flatten()
        .ok_or(FrameError::FieldType)?;
    if entries > entries_max as u64 {
        return Err(FrameError::TooMany);
    }
    (0..entries).map(|_| item(decoder)).collect()
}

pub(super) fn uints(decoder: &mut Decoder<'_>) -> Read<Vec<u64>> {
    array(decoder, DISCOVERY_LIST_ENTRIES_MAX, uint)
}

/// The encoded item at the decoder's position, which is passed over.
pub(super) fn raw<'b>(decoder: &mut Decoder<'b>) -> Read<&'b [u8]> {
    let start = decoder.position();
    decoder.skip().map_err(|_| FrameError::FieldType)?;
    decoder
        .input()
        .get(start..decoder.position())
        .ok_or(FrameError::FieldType)
}

pub(super) fn put_octets(map: &mut MapWriter, key: u64, octets: &[u8]) {
    map.entry(key, <&ByteSlice>::from(octets));
}

pub(super) fn put_some<T: minicbor::Encode<()>>(map: &mut MapWriter, key: u64, value: Option<T>) {
    if let Some(value) = value {
        map.entry(key, value);
    }
}

/// An array of octet strings.
pub(super) fn octet_strings<'o>(strings: impl ExactSizeIterator<Item = &'o [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    write_array_head(strings.len(), &mut out);
    for octets in strings {
        out.extend(to_octets(<&ByteSlice>::from(octets)));
    }
    out
}
