//! Bodies of ERROR and CLOSE: u16 code, UTF-8 text, neither required on
//! receipt. Serves ruling R21, since the specification leaves them undefined.

use super::error::Code;
use crate::limits;
use std::borrow::Cow;

/// Body of ERROR and CLOSE: u16 code, UTF-8 text (ruling R21).
pub(super) fn body(code: Code, text: &str) -> Vec<u8> {
    let mut body = code.0.to_be_bytes().to_vec();
    body.extend_from_slice(cut(text).as_bytes());
    body
}

/// Reads a body of which nothing is required.
pub(super) fn read(body: &[u8]) -> (u16, Cow<'_, str>) {
    match body.split_first_chunk::<2>() {
        None => (0, "".into()),
        Some((code, text)) => {
            let text = &text[..text.len().min(limits::ERROR_TEXT_OCTETS_MAX)];
            (u16::from_be_bytes(*code), String::from_utf8_lossy(text))
        }
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(limits::ERROR_TEXT_OCTETS_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = "é".repeat(limits::ERROR_TEXT_OCTETS_MAX);
        let body = body(Code::OVERSIZE, &text);
        assert_eq!(body[..2], Code::OVERSIZE.0.to_be_bytes());
        assert!(body.len() <= 2 + limits::ERROR_TEXT_OCTETS_MAX);
        assert_eq!(read(&body), (6, text[..body.len() - 2].into()));
        let odd = super::body(Code::ORDERLY, &format!("x{text}"));
        assert_eq!(odd.len(), 2 + limits::ERROR_TEXT_OCTETS_MAX - 1);
    }

    #[test]
    fn nothing_is_required() {
        assert_eq!(read(b""), (0, "".into()));
        assert_eq!(read(b"\x01"), (0, "".into()));
        assert_eq!(read(b"\x01\x02"), (0x0102, "".into()));
        assert_eq!(read(b"\0\0\xff"), (0, "\u{fffd}".into()));
    }
}
