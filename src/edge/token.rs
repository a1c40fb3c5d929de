//! How a stream is named to its client: a token that cannot be guessed, and with
//! an event_id the `id` of each SSE event, which comes back as `Last-Event-ID`
//! (ruling R17).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use std::fmt;

const RANDOM_OCTETS: usize = 16;
const OCTETS: usize = RANDOM_OCTETS + 2;

/// Names a stream in this process: 128 random bits, and the unit that has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamToken([u8; OCTETS]);

impl StreamToken {
    /// A token of these random octets.
    pub fn new(random: [u8; RANDOM_OCTETS], unit: u16) -> Self {
        let mut octets = [0; OCTETS];
        octets[..RANDOM_OCTETS].copy_from_slice(&random);
        octets[RANDOM_OCTETS..].copy_from_slice(&unit.to_be_bytes());
        Self(octets)
    }

    /// The unit that has the stream, if anyone has.
    pub fn unit(&self) -> usize {
        usize::from(u16::from_be_bytes([self.0[OCTETS - 2], self.0[OCTETS - 1]]))
    }
}

impl fmt::Display for StreamToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A token lets its bearer have the stream, so that no log may show it.
impl fmt::Debug for StreamToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamToken")
    }
}

/// A header that is no `Last-Event-ID` of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The position that a client names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastEventId {
    /// The stream.
    pub token: StreamToken,
    /// Last event_id that the client has.
    pub event_id: u64,
}

impl LastEventId {
    /// What a request says. An empty value says nothing (WHATWG HTML §9.2.4).
    pub fn read(headers: &HeaderMap) -> Result<Option<Self>, Malformed> {
        let mut values = headers.get_all("last-event-id").iter();
        let (first, second) = (values.next(), values.next());
        match (first.map(http::HeaderValue::as_bytes), second) {
            (None | Some([]), None) => Ok(None),
            (Some(value), None) => Self::parse(value).map(Some).ok_or(Malformed),
            (_, Some(_)) => Err(Malformed),
        }
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let value = std::str::from_utf8(value).ok()?;
        let (token, event_id) = value.split_once('.')?;
        let mut octets = [0; OCTETS];
        let length = URL_SAFE_NO_PAD.decode_slice(token, &mut octets).ok()?;
        let digits = event_id.bytes().all(|octet| octet.is_ascii_digit());
        (length == OCTETS && digits).then_some(Self {
            token: StreamToken(octets),
            event_id: event_id.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn read(values: &[&'static str]) -> Result<Option<LastEventId>, Malformed> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("Last-Event-ID", HeaderValue::from_static(value));
        }
        LastEventId::read(&headers)
    }

    #[test]
    fn what_is_written_is_read() {
        let token = StreamToken::new([0xfb; 16], 258);
        assert_eq!(token.unit(), 258);
        let written: &'static str = format!("{token}.{}", u64::MAX).leak();
        assert_eq!(
            read(&[written]),
            Ok(Some(LastEventId {
                token,
                event_id: u64::MAX
            }))
        );
        assert!(!format!("{token:?}").contains("-_v7"), "not in a log");
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[""]), Ok(None));
    }

    #[test]
    fn anything_else_is_malformed() {
        for value in [
            "1",
            ".",
            "AAAAAAAAAAAAAAAAAAAAAAAA",
            "AAAAAAAAAAAAAAAAAAAAAAAA.",
            "AAAAAAAAAAAAAAAAAAAAAAAA.-1",
            "AAAAAAAAAAAAAAAAAAAAAAAA.+1",
            "AAAAAAAAAAAAAAAAAAAAAAAA. 1",
            "AAAAAAAAAAAAAAAAAAAAAAAA.1.1",
            "AAAAAAAAAAAAAAAAAAAAAAAA.18446744073709551616",
            "AAAAAAAAAAAAAAAAAAAAAAA.1",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAA.1",
            "AAAAAAAAAAAAAAAAAAAAAA+/.1",
            "AAAAAAAAAAAAAAAAAAAAAAA=.1",
        ] {
            assert_eq!(read(&[value]), Err(Malformed), "{value}");
        }
        let good = "AAAAAAAAAAAAAAAAAAAAAAAA.1";
        assert!(matches!(read(&[good]), Ok(Some(_))));
        assert_eq!(read(&[good, good]), Err(Malformed));
    }
}
