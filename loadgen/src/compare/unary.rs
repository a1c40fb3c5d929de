//! Unary requests over HTTP/1.1 as fast as they are answered, one under way on
//! each connection: closed loop, as `wrk` does it. It shares its cores with what
//! it measures and so does as little as it can: it reads the length of a reply
//! and looks for a result, no more.

use super::result::Outcome;
use crate::histogram::Times;
use crate::http::objects::{self, A2aVersion};
use crate::http::target::HttpTarget;
use npamp_relay::engine::clock::now;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::timeout;

/// Headers of a reply.
const HEADERS_MAX: usize = 64;
/// Time for connections to come about, and for what is under way at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to measure.
pub struct Unary {
    /// Where requests go.
    pub target: HttpTarget,
    /// Connections.
    pub connections: usize,
    /// Octets of a request's object.
    pub payload: usize,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
}

/// Measures on this thread.
pub fn measure(plan: &Unary) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, async {
        let object = objects::request(
            A2aVersion::V0_3,
            A2aVersion::V0_3.send(),
            "1",
            "compare",
            plan.payload,
        );
        let mut request = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json\r\ncontent-length: {}\r\n\r\n",
            plan.target.path,
            plan.target.authority,
            object.len()
        )
        .into_bytes();
        request.extend_from_slice(&object);
        let request: Rc<[u8]> = request.into();
        let mut sockets = Vec::new();
        for _ in 0..plan.connections {
            let socket = timeout(PATIENCE, TcpStream::connect(&plan.target.authority)).await??;
            socket.set_nodelay(true)?;
            sockets.push(socket);
        }
        let outcome = Rc::new(RefCell::new((Times::default(), 0_u64, 0_u64, String::new())));
        let begin = now() + plan.warmup;
        let end = begin + plan.duration;
        let mut tasks = Vec::new();
        for mut socket in sockets {
            let (request, outcome) = (request.clone(), outcome.clone());
            tasks.push(tokio::task::spawn_local(async move {
                let mut held = Vec::with_capacity(16 * 1024);
                loop {
                    let sent = now();
                    if sent >= end {
                        return;
                    }
                    let answered = exchange(&mut socket, &request, &mut held).await;
                    let at = now();
                    let mut outcome = outcome.borrow_mut();
                    match answered {
                        Ok(()) if begin <= at && at < end => {
                            outcome.1 += 1;
                            outcome.0.record(at - sent);
                        }
                        Ok(()) => {}
                        Err(error) => {
                            // A connection that failed once is not worth another try: the round shows it.
                            outcome.2 += 1;
                            outcome.3 = error.to_string();
                            return;
                        }
                    }
                }
            }));
        }
        let patience = plan.warmup + plan.duration + PATIENCE;
        let ended = timeout(patience, async {
            for task in &mut tasks {
                let _ = task.await;
            }
        })
        .await;
        let (times, completed, mut errors, mut example) = outcome.take();
        if ended.is_err() {
            errors += tasks.iter().filter(|task| !task.is_finished()).count() as u64;
            example = "no reply in time".into();
        }
        if completed == 0 && errors == 0 {
            errors = 1;
            example = "nothing was completed in the measured time".into();
        }
        Ok(Outcome::of(completed, plan.duration, times, errors, example))
    })
}

async fn exchange(socket: &mut TcpStream, request: &[u8], held: &mut Vec<u8>) -> io::Result<()> {
    socket.write_all(request).await?;
    held.clear();
    let whole = loop {
        if socket.read_buf(held).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(whole) = length(held)? {
            break whole;
        }
    };
    while held.len() < whole {
        if socket.read_buf(held).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    if held.len() > whole || memchr::memmem::find(held, b"\"result\"").is_none() {
        return Err(io::Error::other("no reply with a result"));
    }
    Ok(())
}

/// Octets of a reply, head and body, once its head is there.
fn length(held: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(held) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::other(error.to_string())),
    };
    if response.code != Some(200) {
        return Err(io::Error::other(format!("status {:?}", response.code)));
    }
    response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .and_then(|header| {
            std::str::from_utf8(header.value)
                .ok()?
                .trim()
                .parse::<usize>()
                .ok()
        })
        .map(|body| Some(head + body))
        .ok_or_else(|| io::Error::other("a reply without content-length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_replies() {
        assert_eq!(length(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap(), None);
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(length(reply).unwrap(), Some(reply.len()));
        assert!(length(b"HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(length(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(length(b"nonsense\r\n\r\n").is_err());
    }
}
