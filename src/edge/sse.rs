//! Server-sent events, sans-IO: the incremental parser for agents' streams and
//! the writer for clients' streams (WHATWG HTML §9.2).
//!
//! The parser never changes an octet of an event's data and never hands out an
//! event that was not closed by a blank line, except a last one whose JSON is
//! complete (ruling R15). Event types, ids and retry times are not carried.
//!
//! The writer puts every octet of a JSON text into `data` as it is. A line
//! break, which JSON allows between tokens only, cannot stand inside a `data`
//! line: each line of the text becomes its own `data` line, and a reader joins
//! them with LF, so that a CR or CRLF between tokens reads back as LF. Raw
//! U+2028, U+2029 and U+0085 inside strings stay raw (ruling R22).

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memchr2;
use std::ops::Range;

/// Why an agent's stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event exceeds the bound.
    #[error("an event exceeds {0} octets")]
    TooLarge(usize),
    /// An event's data is no UTF-8.
    #[error("an event is no UTF-8")]
    Utf8,
    /// The stream ended inside an event.
    #[error("the stream ended inside an event")]
    Incomplete,
}

/// Octets a line may hold beside its event's data: the longest field name, colon and space.
const LINE_EXTRA_OCTETS: usize = 16;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Incremental parser: octets in, the data of complete events out.
#[derive(Debug)]
pub struct SseParser {
    event_octets_max: usize,
    /// An unfinished line.
    line: BytesMut,
    data: Data,
    /// An event field was seen since the last blank line.
    in_event: bool,
    /// The last octet was a CR that ended a line; a LF that follows belongs to it.
    after_carriage_return: bool,
    /// Nothing but a beginning of a byte order mark was seen.
    at_start: bool,
    failed: Option<SseError>,
}

#[derive(Debug)]
enum Data {
    None,
    /// One line, mostly a slice of the chunk it came in.
    One(Bytes),
    /// Several lines, joined by LF.
    Many(BytesMut),
}

impl SseParser {
    /// A parser at the start of a stream; `event_octets_max` bounds one event's data.
    pub fn new(event_octets_max: usize) -> Self {
        Self {
            event_octets_max,
            line: BytesMut::new(),
            data: Data::None,
            in_event: false,
            after_carriage_return: false,
            at_start: true,
            failed: None,
        }
    }

    /// Takes a chunk, however the stream was cut, and hands out every event
    /// that it completes. An error sticks.
    pub fn push(&mut self, chunk: &Bytes, on_event: impl FnMut(Bytes)) -> Result<(), SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let outcome = self.scan(chunk, on_event);
        if let Err(error) = outcome {
            self.failed = Some(error);
            self.line = BytesMut::new();
            self.data = Data::None;
        }
        outcome
    }

    /// The stream ended in order. Returns a last event that lacks only its
    /// blank line; [`SseError::Incomplete`] when it ended inside an event.
    pub fn finish(mut self) -> Result<Option<Bytes>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if self.at_start && self.line.as_ref() == BYTE_ORDER_MARK {
            self.line.clear();
        }
        if !self.line.is_empty() {
            let line = self.line.split().freeze();
            if line[0] != b':' && !line.contains(&b':') && b"data".starts_with(&line[..]) {
                return Err(SseError::Incomplete);
            }
            self.take_line(line)?;
        }
        let in_event = self.in_event;
        match self.take_event()? {
            Some(event) if serde_json::from_slice::<serde::de::IgnoredAny>(&event).is_ok() => {
                Ok(Some(event))
            }
            Some(_) => Err(SseError::Incomplete),
            None if in_event => Err(SseError::Incomplete),
            None => Ok(None),
        }
    }

    fn scan(&mut self, chunk: &Bytes, mut on_event: impl FnMut(Bytes)) -> Result<(), SseError> {
        let mut at = 0;
        while at < chunk.len() {
            if self.after_carriage_return {
                self.after_carriage_return = false;
                if chunk[at] == b'\n' {
                    at += 1;
                    continue;
                }
            }
            let Some(length) = memchr2(b'\r', b'\n', &chunk[at..]) else {
                self.hold(&chunk[at..])?;
                break;
            };
            let end = at + length;
            let line = if self.line.is_empty() {
                if length > self.event_octets_max + LINE_EXTRA_OCTETS {
                    return Err(SseError::TooLarge(self.event_octets_max));
                }
                chunk.slice(at..end)
            } else {
                self.hold(&chunk[at..end])?;
                self.line.split().freeze()
            };
            self.after_carriage_return = chunk[end] == b'\r';
            at = end + 1;
            let line = self.without_byte_order_mark(line);
            if line.is_empty() {
                if let Some(event) = self.take_event()? {
                    on_event(event);
                }
            } else {
                self.take_line(line)?;
            }
        }
        Ok(())
    }

    fn hold(&mut self, octets: &[u8]) -> Result<(), SseError> {
        if self.line.len() + octets.len() > self.event_octets_max + LINE_EXTRA_OCTETS {
            return Err(SseError::TooLarge(self.event_octets_max));
        }
        self.line.extend_from_slice(octets);
        Ok(())
    }

    fn without_byte_order_mark(&mut self, line: Bytes) -> Bytes {
        if std::mem::take(&mut self.at_start) && line.starts_with(BYTE_ORDER_MARK) {
            line.slice(BYTE_ORDER_MARK.len()..)
        } else {
            line
        }
    }

    fn take_line(&mut self, line: Bytes) -> Result<(), SseError> {
        let line = self.without_byte_order_mark(line);
        let (field, value_at) = match memchr::memchr(b':', &line) {
            Some(0) => return Ok(()),
            Some(colon) => {
                let space = usize::from(line.get(colon + 1) == Some(&b' '));
                (&line[..colon], colon + 1 + space)
            }
            None => (&line[..], line.len()),
        };
        match field {
            b"data" => self.take_data(line.slice(value_at..)),
            b"event" | b"id" => {
                self.in_event = true;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_data(&mut self, value: Bytes) -> Result<(), SseError> {
        self.in_event = true;
        let held = match &self.data {
            Data::None => 0,
            Data::One(first) => first.len() + 1,
            Data::Many(lines) => lines.len() + 1,
        };
        if held + value.len() > self.event_octets_max {
            return Err(SseError::TooLarge(self.event_octets_max));
        }
        self.data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => Data::One(value),
            Data::One(first) => {
                let mut lines = BytesMut::with_capacity(first.len() + 1 + value.len());
                lines.extend_from_slice(&first);
                lines.put_u8(b'\n');
                lines.extend_from_slice(&value);
                Data::Many(lines)
            }
            Data::Many(mut lines) => {
                lines.put_u8(b'\n');
                lines.extend_from_slice(&value);
                Data::Many(lines)
            }
        };
        Ok(())
    }

    /// Closes the event. One without data, or with empty data, is none.
    fn take_event(&mut self) -> Result<Option<Bytes>, SseError> {
        self.in_event = false;
        let event = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => return Ok(None),
            Data::One(line) => line,
            Data::Many(lines) => lines.freeze(),
        };
        if event.is_empty() {
            return Ok(None);
        }
        if std::str::from_utf8(&event).is_err() {
            return Err(SseError::Utf8);
        }
        Ok(Some(event))
    }
}

/// A comment that keeps an idle connection open.
pub const KEEP_ALIVE: &[u8] = b":\n\n";
/// Events of at least this size leave uncopied, in a chunk of their own.
const UNCOPIED_OCTETS: usize = 64 * 1024;

/// Collects events into body chunks: small ones together, large ones uncopied.
#[derive(Debug, Default)]
pub struct SseWriter {
    ready: std::collections::VecDeque<Bytes>,
    open: BytesMut,
    octets: usize,
}

impl SseWriter {
    /// Writes the `id` of the event that follows: `prefix` and its number.
    pub fn id(&mut self, prefix: &[u8], event_id: u64) {
        self.open.reserve(prefix.len() + 24);
        self.open.extend_from_slice(prefix);
        let mut digits = itoa::Buffer::new();
        self.open
            .extend_from_slice(digits.format(event_id).as_bytes());
        self.open.put_u8(b'\n');
    }

    /// Writes one event whose data is a JSON text.
    pub fn event(&mut self, object: &Bytes) {
        self.octets += object.len();
        if memchr2(b'\r', b'\n', object).is_some() {
            self.open.reserve(object.len() + 64);
            for line in lines(object) {
                self.open.extend_from_slice(b"data: ");
                self.open.extend_from_slice(line);
                self.open.put_u8(b'\n');
            }
            self.open.put_u8(b'\n');
            return;
        }
        self.open.extend_from_slice(b"data: ");
        if object.len() >= UNCOPIED_OCTETS {
            self.ready.push_back(self.open.split().freeze());
            self.ready.push_back(object.clone());
        } else {
            self.open.extend_from_slice(object);
        }
        self.open.extend_from_slice(b"\n\n");
    }

    /// Writes one event with its `id`. Its data is the JSON text at `at` in `octets`.
    pub fn event_with_id(
        &mut self,
        prefix: &[u8],
        event_id: u64,
        octets: &Bytes,
        at: Range<usize>,
    ) {
        let object = &octets[at.clone()];
        if object.len() >= UNCOPIED_OCTETS || memchr2(b'\r', b'\n', object).is_some() {
            self.id(prefix, event_id);
            return self.event(&octets.slice(at));
        }
        self.octets += object.len();
        let mut digits = itoa::Buffer::new();
        let number = digits.format(event_id).as_bytes();
        let parts = [prefix, number, b"\ndata: ", object, b"\n\n"];
        self.open.reserve(parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.open.extend_from_slice(part);
        }
    }

    /// Writes a keep-alive comment.
    pub fn keep_alive(&mut self) {
        self.open.extend_from_slice(KEEP_ALIVE);
    }

    /// Whether enough is collected that it should leave before more is added.
    pub fn is_full(&self) -> bool {
        self.octets >= UNCOPIED_OCTETS
    }

    /// The next chunk, `None` when all has been taken.
    pub fn take_chunk(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.ready.pop_front() {
            return Some(chunk);
        }
        self.octets = 0;
        if self.open.is_empty() {
            None
        } else {
            Some(self.open.split().freeze())
        }
    }
}

/// The lines of `text` as SSE cuts them: at CR, LF and CRLF.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(at) = memchr2(b'\r', b'\n', text) else {
            rest = None;
            return Some(text);
        };
        let next = if text[at..].starts_with(b"\r\n") {
            at + 2
        } else {
            at + 1
        };
        rest = Some(&text[next..]);
        Some(&text[..at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: usize = 1024;

    fn parse_chunks<'a>(
        chunks: impl IntoIterator<Item = &'a [u8]>,
        max: usize,
    ) -> (Vec<Bytes>, Result<Option<Bytes>, SseError>) {
        let mut parser = SseParser::new(max);
        let mut events = Vec::new();
        for chunk in chunks {
            let outcome = parser.push(&Bytes::copy_from_slice(chunk), |event| events.push(event));
            if let Err(error) = outcome {
                assert_eq!(
                    parser.push(&Bytes::from_static(b"data: 1\n\n"), |_| panic!(
                        "an event after an error"
                    )),
                    Err(error),
                    "errors stick"
                );
                return (events, Err(error));
            }
        }
        let end = parser.finish();
        (events, end)
    }

    fn parse(text: &[u8]) -> (Vec<Bytes>, Result<Option<Bytes>, SseError>) {
        parse_chunks([text], MAX)
    }

    fn events(text: &[u8]) -> Vec<String> {
        let (events, end) = parse(text);
        assert_eq!(end, Ok(None), "{:?}", String::from_utf8_lossy(text));
        events
            .iter()
            .map(|event| String::from_utf8(event.to_vec()).unwrap())
            .collect()
    }

    /// WHATWG HTML §9.2.6
    #[test]
    fn line_endings() {
        for ending in ["\n", "\r", "\r\n"] {
            let text = format!("data: 1{ending}{ending}data:2{ending}{ending}");
            assert_eq!(events(text.as_bytes()), ["1", "2"], "{ending:?}");
        }
        assert_eq!(events(b"data: 1\r\n\ndata: 2\n\r\n"), ["1", "2"]);
    }

    /// WHATWG HTML §9.2.6
    #[test]
    fn fields_comments_and_spaces() {
        assert_eq!(events(b": hello\n\n:\n\n"), [""; 0]);
        assert_eq!(
            events(b"event: x\nid: 3\nretry: 5\nfoo: bar\nfoo\ndata: 1\n\n"),
            ["1"]
        );
        assert_eq!(events(b"data:  two\n\ndata:\tone\n\n"), [" two", "\tone"]);
        assert_eq!(events(b"data: a\ndata: b\ndata:\ndata\n\n"), ["a\nb\n\n"]);
        assert_eq!(events(b"data\n\ndata:\n\ndata: \n\n"), [""; 0]);
        assert_eq!(events(b"data: a:b: c\n\n"), ["a:b: c"]);
        assert_eq!(events(b"Data: 1\ndatax: 2\n data: 3\n\n"), [""; 0]);
        assert_eq!(
            events("data: \u{2028}\u{2029}\u{85}\u{b}\u{c}\n\n".as_bytes()),
            ["\u{2028}\u{2029}\u{85}\u{b}\u{c}"]
        );
    }

    #[test]
    fn byte_order_mark_at_start_only() {
        assert_eq!(events(b"\xef\xbb\xbfdata: 1\n\n"), ["1"]);
        assert_eq!(events(b"\xef\xbb\xbf\n\ndata: 1\n\n"), ["1"]);
        assert_eq!(
            events(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\ndata: 3\n\n"),
            ["1", "3"]
        );
        assert_eq!(events(b"\xef\xbb\xbf"), [""; 0]);
        assert_eq!(
            parse(b"\xef\xbb\xbfdata: 1"),
            (vec![], Ok(Some(Bytes::from_static(b"1"))))
        );
    }

    /// Ruling R15: a last event without its blank line is delivered if its JSON is complete.
    #[test]
    fn end_without_blank_line() {
        let last = |text: &[u8]| parse(text).1;
        assert_eq!(
            last(b"data: {\"a\":1}\n"),
            Ok(Some(Bytes::from_static(b"{\"a\":1}")))
        );
        assert_eq!(
            last(b"data: {\"a\":1}"),
            Ok(Some(Bytes::from_static(b"{\"a\":1}")))
        );
        assert_eq!(
            last(b"data: {\ndata: }"),
            Ok(Some(Bytes::from_static(b"{\n}")))
        );
        for broken in [
            &b"data: {\"a\":"[..],
            b"data: {\"a\":1\n",
            b"data: {\ndat",
            b"d",
            b"dat",
            b"data",
            b"data: {} x",
            b"event: message\n",
            b"event: message",
            b"data:",
            b"data: \xff",
        ] {
            let end = last(broken);
            assert!(
                matches!(end, Err(SseError::Incomplete | SseError::Utf8)),
                "{:?}: {end:?}",
                String::from_utf8_lossy(broken)
            );
        }
        for clean in [&b""[..], b": keep", b":\n", b"retry: 3", b"\n", b"\r"] {
            assert_eq!(last(clean), Ok(None), "{clean:?}");
        }
    }

    #[test]
    fn bounds() {
        let exact = [b"data: ".as_slice(), &[b'x'; 8], b"\n\n"].concat();
        assert_eq!(parse_chunks([&exact[..]], 8).0.len(), 1);
        assert_eq!(parse_chunks([&exact[..]], 7).1, Err(SseError::TooLarge(7)));
        assert_eq!(
            parse_chunks([b"data: 123\n".as_slice(), b"data: 1234\n\n"], 7).1,
            Err(SseError::TooLarge(7))
        );
        let endless = [b':'; 64];
        assert_eq!(
            parse_chunks([&endless[..], &endless[..]], 100).1,
            Err(SseError::TooLarge(100)),
            "an endless line is not held"
        );
    }

    #[test]
    fn utf8_is_checked_per_event() {
        let (events, end) = parse(b"data: 1\n\ndata: \xc3\n\ndata: 2\n\n");
        assert_eq!(events, [Bytes::from_static(b"1")]);
        assert_eq!(end, Err(SseError::Utf8));
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            Just(b"data: ".to_vec()),
            Just(b"data:".to_vec()),
            Just(b"data".to_vec()),
            Just(b"id: 4".to_vec()),
            Just(b":".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(b"\r\n\r\n".to_vec()),
            Just(b"\xef\xbb\xbf".to_vec()),
            Just(b"\xff".to_vec()),
            Just("{\"ü\":\"\u{2028}\"}".as_bytes().to_vec()),
            "[ -~]{0,40}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        /// Any chunking gives the same events and the same end.
        #[test]
        fn chunking_changes_nothing(
            pieces in prop::collection::vec(piece(), 0..40),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text = pieces.concat();
            let whole = parse_chunks([&text[..]], 48);
            let single = parse_chunks(text.chunks(1), 48);
            prop_assert_eq!(&whole, &single);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            at.push(0);
            at.push(text.len());
            at.sort_unstable();
            let cut = parse_chunks(at.windows(2).map(|w| &text[w[0]..w[1]]), 48);
            prop_assert_eq!(&whole, &cut);
        }

        /// What the writer writes, the parser reads: octet for octet, CR between lines aside.
        #[test]
        fn written_events_read_back(
            objects in prop::collection::vec("\\{[ -~\u{2028}\u{85}\r\n]{0,30}\\}", 0..10),
        ) {
            let mut writer = SseWriter::default();
            for object in &objects {
                writer.event(&Bytes::from(object.clone()));
            }
            let mut text = Vec::new();
            while let Some(chunk) = writer.take_chunk() {
                text.extend_from_slice(&chunk);
            }
            let (read, end) = parse(&text);
            prop_assert_eq!(end, Ok(None));
            let wanted: Vec<Bytes> = objects
                .iter()
                .map(|o| Bytes::from(o.replace("\r\n", "\n").replace('\r', "\n")))
                .collect();
            prop_assert_eq!(read, wanted);
        }
    }

    #[test]
    fn ids_precede_their_events() {
        let mut writer = SseWriter::default();
        for event_id in [1, u64::MAX] {
            writer.id(b"id: t.", event_id);
            writer.event(&Bytes::from_static(b"{}"));
        }
        let text = writer.take_chunk().unwrap();
        assert_eq!(
            text,
            "id: t.1\ndata: {}\n\nid: t.18446744073709551615\ndata: {}\n\n"
        );
        assert_eq!(parse_chunks([&text[..]], MAX).0, ["{}", "{}"]);
    }

    #[test]
    fn large_events_leave_uncopied() {
        let object = Bytes::from(vec![b'7'; UNCOPIED_OCTETS]);
        let mut writer = SseWriter::default();
        writer.event(&object);
        assert!(writer.is_full());
        let chunks: Vec<Bytes> = std::iter::from_fn(|| writer.take_chunk()).collect();
        assert!(chunks.iter().any(|c| c.as_ptr() == object.as_ptr()));
        let text = chunks.concat();
        assert_eq!(parse_chunks([&text[..]], UNCOPIED_OCTETS).0, [object]);
        assert!(!writer.is_full());
    }
}
