//! Independent recomputation: HMAC, HKDF and Expand-Label from SHA-256 alone,
//! and transcript octets by hand. Nothing here uses the library.

use sha2::{Digest, Sha256};

/// RFC 2104 over SHA-256.
pub fn hmac(key: &[u8], data: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |octet: u8| block.map(|b| b ^ octet);
    let inner = Sha256::new()
        .chain_update(pad(0x36))
        .chain_update(data)
        .finalize();
    Sha256::new()
        .chain_update(pad(0x5c))
        .chain_update(inner)
        .finalize()
        .into()
}

/// RFC 5869 §2.2.
pub fn extract(salt: &[u8], ikm: &[u8]) -> [u8; 32] {
    hmac(salt, ikm)
}

/// RFC 5869 §2.3.
pub fn expand(prk: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block: Vec<u8> = Vec::new();
    for counter in 1u8.. {
        if out.len() >= length {
            break;
        }
        block.extend_from_slice(info);
        block.push(counter);
        block = hmac(prk, &block).to_vec();
        out.extend_from_slice(&block);
    }
    out.truncate(length);
    out
}

/// RFC 8446 §7.1 with a prefix of choice.
pub fn expand_label(
    prefix: &str,
    secret: &[u8],
    label: &str,
    context: &[u8],
    length: u16,
) -> Vec<u8> {
    let mut info = length.to_be_bytes().to_vec();
    info.push((prefix.len() + label.len()) as u8);
    info.extend_from_slice(prefix.as_bytes());
    info.extend_from_slice(label.as_bytes());
    info.push(context.len() as u8);
    info.extend_from_slice(context);
    expand(secret, &info, usize::from(length))
}

/// Expand-Label as N-PAMP prefixes it.
pub fn npamp(secret: &[u8], label: &str, context: &[u8], length: u16) -> Vec<u8> {
    expand_label("n-pamp ", secret, label, context, length)
}

/// A TLV by hand.
pub fn tlv(tag: u16, value: &[u8]) -> Vec<u8> {
    [
        &tag.to_be_bytes()[..],
        &u16::try_from(value.len()).unwrap().to_be_bytes(),
        value,
    ]
    .concat()
}

/// SHA-256 of some octets.
pub fn sha256(octets: &[u8]) -> [u8; 32] {
    Sha256::digest(octets).into()
}
