//! An agent that a test scripts octet by octet: plain sockets and threads, no
//! HTTP library, so that it can also do what no library would.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A request that an agent received whole.
#[derive(Debug, Clone)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Head, in lower case.
    pub head: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Request {
    /// Its JSON-RPC id, which is a number.
    pub fn number(&self) -> usize {
        let body = String::from_utf8_lossy(&self.body);
        let at = body.find("\"id\":").expect("an id") + 5;
        let digits = body[at..].split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .expect("an id")
    }
}

/// Answers a request. An error closes the connection, otherwise it is kept.
pub type Handler = dyn Fn(&Request, &mut Conversation) -> io::Result<()> + Send + Sync;

/// Ends a connection without a word, from inside a [`Handler`].
pub fn close() -> io::Result<()> {
    Err(io::Error::other("the script closes the connection"))
}

/// The agent's side of one connection.
pub struct Conversation {
    socket: TcpStream,
    held: Vec<u8>,
}

impl Conversation {
    /// Octets as they are.
    pub fn raw(&mut self, octets: &[u8]) -> io::Result<()> {
        self.socket.write_all(octets)
    }

    /// A whole reply.
    pub fn reply(&mut self, status: u16, body: &[u8]) -> io::Result<()> {
        let head = format!(
            "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.raw(head.as_bytes())?;
        self.raw(body)
    }

    /// The head of an event stream in chunks.
    pub fn stream(&mut self) -> io::Result<()> {
        self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// One chunk of a chunked body.
    pub fn chunk(&mut self, octets: &[u8]) -> io::Result<()> {
        let mut chunk = format!("{:x}\r\n", octets.len()).into_bytes();
        chunk.extend_from_slice(octets);
        chunk.extend_from_slice(b"\r\n");
        self.raw(&chunk)
    }

    /// A whole event in a chunk of its own.
    pub fn event(&mut self, data: &[u8]) -> io::Result<()> {
        self.chunk(&event(data))
    }

    /// The clean end of a chunked body.
    pub fn end(&mut self) -> io::Result<()> {
        self.raw(b"0\r\n\r\n")
    }

    /// Waits until `gate` is open; an error when the relay left before.
    pub fn wait(&mut self, gate: &AtomicBool) -> io::Result<()> {
        let end = Instant::now() + Duration::from_secs(60);
        while !gate.load(Ordering::Relaxed) {
            if self.has_left(Duration::from_millis(5))? || Instant::now() > end {
                return close();
            }
        }
        Ok(())
    }

    /// Whether the relay closes the connection within `time`.
    pub fn has_left(&mut self, time: Duration) -> io::Result<bool> {
        self.socket
            .set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        let mut octet = [0];
        match self.socket.peek(&mut octet) {
            Ok(0) => Ok(true),
            Ok(_) => {
                thread::sleep(time);
                Ok(false)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) =>
            {
                Ok(false)
            }
            Err(_) => Ok(true),
        }
    }

    fn request(&mut self) -> io::Result<Option<Request>> {
        self.socket.set_read_timeout(None)?;
        let end = loop {
            if let Some(at) = self.held.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.fill()? {
                return Ok(None);
            }
        };
        let rest = self.held.split_off(end);
        let head = String::from_utf8_lossy(&std::mem::replace(&mut self.held, rest)).into_owned();
        let mut words = head.split(' ');
        let (method, path) = (words.next(), words.next());
        let (method, path) = (
            method.unwrap_or_default().to_owned(),
            path.unwrap_or_default().to_owned(),
        );
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .map_or(0, |length| length.trim().parse().expect("a length"));
        while self.held.len() < length {
            if !self.fill()? {
                return Ok(None);
            }
        }
        let rest = self.held.split_off(length);
        Ok(Some(Request {
            method,
            path,
            head,
            body: std::mem::replace(&mut self.held, rest),
        }))
    }

    fn fill(&mut self) -> io::Result<bool> {
        let mut octets = vec![0; 64 * 1024];
        let read = self.socket.read(&mut octets)?;
        self.held.extend_from_slice(&octets[..read]);
        Ok(read > 0)
    }
}

/// The octets of one event: a `data` line for each line of `data`.
pub fn event(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + 16);
    for line in data.split(|&octet| octet == b'\n') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
    out
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    open: AtomicUsize,
}

/// A scripted agent.
pub struct Agent {
    /// Where it listens.
    pub port: u16,
    handler: Arc<Handler>,
    shared: Arc<Shared>,
}

impl Agent {
    /// Listens on a free port.
    pub fn start(
        handler: impl Fn(&Request, &mut Conversation) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let port = super::free_port();
        let mut agent = Self {
            port,
            handler: Arc::new(handler),
            shared: Arc::default(),
        };
        agent.listen();
        agent
    }

    /// Its URL with a path that the handler can tell apart.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}/{path}", self.port)
    }

    /// Ends every connection and listens no more. With `reset` the relay gets a
    /// RST, as from a process with unread octets; otherwise the end of the stream.
    pub fn kill(&mut self, reset: bool) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        super::wait_for("the agent's port is free", Duration::from_secs(5), || {
            TcpStream::connect(("127.0.0.1", self.port))
                .err()
                .map(|_| ())
        });
        for socket in self.shared.connections.lock().expect("lock").drain(..) {
            if reset {
                let _ = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
                // The descriptors of the reader must go too: shutdown ends its read.
                let _ = socket.shutdown(Shutdown::Read);
            } else {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }

    /// Listens again after [`Agent::kill`].
    pub fn restart(&mut self) {
        self.shared = Arc::default();
        self.listen();
    }

    /// Connections that are open now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    fn listen(&mut self) {
        let port = self.port;
        let listener = super::wait_for("the agent listens", Duration::from_secs(5), || {
            TcpListener::bind(("127.0.0.1", port)).ok()
        });
        let (shared, handler) = (self.shared.clone(), self.handler.clone());
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let _ = socket.set_nodelay(true);
                if let Ok(kept) = socket.try_clone() {
                    shared.connections.lock().expect("lock").push(kept);
                }
                let (shared, handler) = (shared.clone(), handler.clone());
                thread::spawn(move || {
                    shared.open.fetch_add(1, Ordering::SeqCst);
                    let mut conversation = Conversation {
                        socket,
                        held: Vec::new(),
                    };
                    while let Ok(Some(request)) = conversation.request() {
                        if handler(&request, &mut conversation).is_err() {
                            break;
                        }
                    }
                    if !shared.stopped.load(Ordering::SeqCst) {
                        let _ = conversation.socket.shutdown(Shutdown::Both);
                    }
                    shared.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        for socket in self.shared.connections.lock().expect("lock").drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}
