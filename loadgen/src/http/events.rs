//! Server-sent events out of the chunks of a body. Only what a client of A2A
//! needs: `data`; other fields and comments are skipped. A line may end in LF or
//! CRLF.

/// Octets of an event that is not yet whole; more is an error.
const EVENT_OCTETS_MAX: usize = 16 * 1024 * 1024;

/// An event that is longer than anyone should send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {EVENT_OCTETS_MAX} octets")]
pub struct TooLong;

/// Holds what a chunk left unfinished.
#[derive(Default)]
pub struct Events {
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Data of the event whose end has not come.
    data: Vec<u8>,
    /// There was a data line, be it an empty one.
    has_data: bool,
}

impl Events {
    /// Takes a chunk and hands out the data of every event it ends.
    pub fn chunk(&mut self, mut chunk: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        while let Some(at) = memchr::memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..at], &chunk[at + 1..]);
            chunk = rest;
            if self.line.is_empty() {
                // The usual event is one line of data and an empty one, whole in one chunk.
                if !self.has_data
                    && rest.first() == Some(&b'\n')
                    && let Some(data) = data_of(line)
                {
                    event(data);
                    chunk = &rest[1..];
                    continue;
                }
                self.line(line, &mut event);
            } else {
                let mut held = std::mem::take(&mut self.line);
                held.extend_from_slice(line);
                self.line(&held, &mut event);
                held.clear();
                self.line = held;
            }
            if self.data.len() > EVENT_OCTETS_MAX {
                return Err(TooLong);
            }
        }
        self.line.extend_from_slice(chunk);
        if self.line.len() > EVENT_OCTETS_MAX {
            return Err(TooLong);
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                event(&self.data);
                self.data.clear();
            }
        } else if let Some(data) = data_of(line) {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(data);
        }
    }
}

fn data_of(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"data:")?;
    let value = value.strip_prefix(b" ").unwrap_or(value);
    Some(value.strip_suffix(b"\r").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b": comment\n\nid: 1\ndata: {\"a\":1}\n\ndata:x\r\ndata: y\r\n\r\nevent: other\n\ndata\n\ndata:\n\nretry: 1\ndata: end\n\ndata: cut";

    fn read(chunks: &[&[u8]]) -> Vec<String> {
        let (mut events, mut out) = (Events::default(), Vec::new());
        for chunk in chunks {
            events
                .chunk(chunk, |data| {
                    out.push(String::from_utf8(data.to_vec()).unwrap());
                })
                .unwrap();
        }
        out
    }

    #[test]
    fn events_whole_and_in_pieces() {
        let expected = ["{\"a\":1}", "x\ny", "", "end"];
        assert_eq!(read(&[TEXT]), expected);
        for cut in 0..TEXT.len() {
            let (head, tail) = TEXT.split_at(cut);
            assert_eq!(read(&[head, tail]), expected, "cut at {cut}");
        }
        let octets: Vec<&[u8]> = TEXT.chunks(1).collect();
        assert_eq!(read(&octets), expected);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'x'; EVENT_OCTETS_MAX / 4];
        let refused = (0..6).any(|_| events.chunk(&piece, |_| ()).is_err());
        assert!(refused);
    }
}
