//! An HTTP/1.1 client of plain sockets that can send a request in parts, and
//! that tells a clean end of a reply from a broken one and from silence.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// How a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With its last octet or last chunk.
    Clean,
    /// The connection ended before.
    Broken,
    /// Nothing came within the time given.
    Silent,
}

/// A reply as far as it came.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Status; 0 when no head came.
    pub status: u16,
    /// Head in lower case, without the status line.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
    /// How it ended.
    pub end: End,
    /// Since the request was sent.
    pub elapsed: Duration,
}

impl Outcome {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The body as text, for people.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        text.chars().take(400).collect()
    }

    /// Fails unless this is a whole `application/problem+json` of one of these
    /// statuses, with a name and without anything of JSON-RPC (ruling R14).
    #[track_caller]
    pub fn assert_problem(&self, what: &str, statuses: &[u16]) {
        let shown = format!("{what}: {} {:?} {}", self.status, self.end, self.text());
        assert_eq!(self.end, End::Clean, "{shown}");
        assert!(statuses.contains(&self.status), "{shown}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{shown}"
        );
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect(&shown);
        assert_eq!(body["status"], self.status, "{shown}");
        assert!(body["name"].is_string(), "{shown}");
        for member in ["jsonrpc", "result", "error", "id"] {
            assert!(body.get(member).is_none(), "{shown}");
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.trim())
}

enum Framing {
    Length(usize),
    Chunks,
    ToEnd,
}

/// One connection with one request.
pub struct Client {
    socket: TcpStream,
    held: Vec<u8>,
    framing: Framing,
    sent: Instant,
    /// What came so far.
    pub so_far: Outcome,
}

impl Client {
    /// Connects and sends nothing.
    pub fn connect(port: u16) -> io::Result<Self> {
        Self::over(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// [`Client::connect`] with a socket that takes little unless it is read.
    pub fn connect_narrow(port: u16) -> io::Result<Self> {
        let kind = socket2::Type::STREAM;
        let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None)?;
        socket.set_recv_buffer_size(16 * 1024)?;
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        socket.connect(&address.into())?;
        Self::over(socket.into())
    }

    fn over(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            held: Vec::new(),
            framing: Framing::ToEnd,
            sent: Instant::now(),
            so_far: Outcome {
                status: 0,
                head: String::new(),
                body: Vec::new(),
                end: End::Silent,
                elapsed: Duration::ZERO,
            },
        })
    }

    /// Sends a JSON-RPC request to the route of the agent `name`.
    pub fn post(port: u16, name: &str, body: &[u8]) -> io::Result<Self> {
        let mut client = Self::connect(port)?;
        let mut octets = post_head(name, &format!("content-length: {}", body.len()));
        octets.extend_from_slice(body);
        client.write(&octets)?;
        Ok(client)
    }

    /// Octets as they are.
    pub fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        self.socket.write_all(octets)?;
        self.sent = Instant::now();
        Ok(())
    }

    /// No more octets will be sent.
    pub fn finish(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Takes what comes until `enough` says so of the reply so far, or the
    /// reply ends, or `time` is over.
    pub fn read_until(&mut self, time: Duration, mut enough: impl FnMut(&Outcome) -> bool) -> End {
        let due = Instant::now() + time;
        loop {
            self.so_far.elapsed = self.sent.elapsed();
            if let Some(end) = self.decode() {
                self.so_far.end = end;
                return end;
            }
            if self.so_far.status != 0 && enough(&self.so_far) {
                return End::Silent;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return End::Silent;
            }
            self.socket
                .set_read_timeout(Some(left))
                .expect("read timeout");
            let mut octets = vec![0; 64 * 1024];
            match self.socket.read(&mut octets) {
                Ok(0) => {
                    let to_end = self.so_far.status != 0 && matches!(self.framing, Framing::ToEnd);
                    self.so_far.end = if to_end { End::Clean } else { End::Broken };
                    self.so_far.elapsed = self.sent.elapsed();
                    return self.so_far.end;
                }
                Ok(read) => self.held.extend_from_slice(&octets[..read]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) => {}
                Err(_) => {
                    self.so_far.end = End::Broken;
                    self.so_far.elapsed = self.sent.elapsed();
                    return End::Broken;
                }
            }
        }
    }

    /// Waits for `count` events.
    #[track_caller]
    pub fn read_events(&mut self, time: Duration, count: usize) {
        let end = self.read_until(time, |so_far| events(&so_far.body).0.len() >= count);
        let got = events(&self.so_far.body).0.len();
        assert!(
            got >= count && end == End::Silent,
            "{got} of {count} events within {time:?}, then {end:?}: {} {}",
            self.so_far.status,
            self.so_far.text()
        );
    }

    /// The whole reply.
    pub fn reply(mut self, time: Duration) -> Outcome {
        self.read_until(time, |_| false);
        self.so_far
    }

    /// Moves what is decoded from `held` to the body; the end once it is reached.
    fn decode(&mut self) -> Option<End> {
        if self.so_far.status == 0 {
            let at = self.held.windows(4).position(|four| four == b"\r\n\r\n")?;
            let rest = self.held.split_off(at + 4);
            let head = std::mem::replace(&mut self.held, rest);
            let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
            let (line, fields) = head.split_once("\r\n").unwrap_or((&head, ""));
            self.so_far.status = line.split(' ').nth(1)?.parse().ok()?;
            fields.clone_into(&mut self.so_far.head);
            self.framing = if header(fields, "transfer-encoding") == Some("chunked") {
                Framing::Chunks
            } else if let Some(length) = header(fields, "content-length") {
                Framing::Length(length.parse().ok()?)
            } else {
                Framing::ToEnd
            };
        }
        match self.framing {
            Framing::ToEnd => {
                self.so_far.body.append(&mut self.held);
                None
            }
            Framing::Length(length) => {
                self.so_far.body.append(&mut self.held);
                (self.so_far.body.len() >= length).then_some(End::Clean)
            }
            Framing::Chunks => loop {
                let line = self.held.windows(2).position(|two| two == b"\r\n")?;
                let length = std::str::from_utf8(&self.held[..line]).ok()?;
                let length = usize::from_str_radix(length, 16).ok()?;
                if self.held.len() < line + 2 + length + 2 {
                    return None;
                }
                self.so_far
                    .body
                    .extend_from_slice(&self.held[line + 2..line + 2 + length]);
                self.held.drain(..line + 2 + length + 2);
                if length == 0 {
                    return Some(End::Clean);
                }
            },
        }
    }
}

/// A request head for the route of the agent `name`, with one more header line.
pub fn post_head(name: &str, line: &str) -> Vec<u8> {
    format!(
        "POST /agents/{name} HTTP/1.1\r\nhost: relay.test\r\ncontent-type: application/json\r\nconnection: close\r\n{line}\r\n\r\n"
    )
    .into_bytes()
}

/// The data of every complete event, and the octets after the last one.
pub fn events(body: &[u8]) -> (Vec<Vec<u8>>, &[u8]) {
    let (mut events, mut rest) = (Vec::new(), body);
    while let Some(at) = rest.windows(2).position(|two| two == b"\n\n") {
        let block = &rest[..at];
        rest = &rest[at + 2..];
        let lines: Vec<&[u8]> = block
            .split(|&octet| octet == b'\n')
            .filter_map(|line| line.strip_prefix(b"data:"))
            .map(|line| line.strip_prefix(b" ").unwrap_or(line))
            .collect();
        if !lines.is_empty() {
            events.push(lines.join(&b'\n'));
        }
    }
    (events, rest)
}
