//! Where the vectors are, and how their JSON reads.

use std::path::PathBuf;

use serde_json::Value;
use sha2::{Digest, Sha256};

fn directory() -> PathBuf {
    std::env::var_os("NPAMP_VECTORS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/npamp"),
        PathBuf::from,
    )
}

/// The octets of a vector file; `None`, said aloud, when there are no vectors at
/// all. With vectors there, a missing file is a failure.
pub fn file(name: &str) -> Option<Vec<u8>> {
    let directory = directory();
    if !directory.is_dir() {
        // Who names a place means the vectors to be there; a skip would look like a pass.
        assert!(
            std::env::var_os("NPAMP_VECTORS").is_none(),
            "NPAMP_VECTORS names no directory: {}",
            directory.display()
        );
        println!("skipped: no vectors at {}", directory.display());
        return None;
    }
    let path = directory.join(name);
    Some(std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// A vector file as JSON.
pub fn json(name: &str) -> Option<Value> {
    file(name).map(|octets| serde_json::from_slice(&octets).unwrap())
}

/// Octets of a hexadecimal field, either case.
pub fn octets(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("a string")).expect("hexadecimal")
}

/// As [`octets`], of a known length.
pub fn array<const N: usize>(value: &Value) -> [u8; N] {
    octets(value).try_into().expect("the expected length")
}

/// A number, or a code point written as `0x…`.
pub fn code_point(value: &Value) -> u16 {
    let text = value.as_str().expect("a string");
    u16::from_str_radix(text.trim_start_matches("0x"), 16).expect("a code point")
}

/// The vectors are the ones that were published: their checksums match.
#[test]
fn checksums() {
    let Some(sums) = file("SHA256SUMS") else {
        return;
    };
    let sums = String::from_utf8(sums).unwrap();
    let mut checked = 0;
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("sum, two spaces, name");
        let digest = Sha256::digest(file(name).unwrap());
        assert_eq!(hex::encode(digest), sum, "{name}");
        checked += 1;
    }
    assert!(checked >= 8, "only {checked} files are summed");
}
