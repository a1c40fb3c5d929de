//! `agent`: an A2A agent over HTTP/1.1 that answers at once: `message/send`
//! with a message, `message/stream` with numbered events, both also in v1.0
//! spelling. It does nothing else, so that what is in front of it is measured;
//! it is no example of an agent.

use super::objects::{self, A2aVersion, Numbered};
use clap::{Args, ValueEnum};
use npamp_relay::a2a::json_rpc;
use serde::Serialize;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::args::ReplyArguments;

/// Octets of a request's head and body.
const REQUEST_OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// Octets of events in one write, in bulk.
const BULK_OCTETS: usize = 64 * 1024;
/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Write {
    /// Each with a write and a chunk of its own
    Event,
    /// Up to 64 KiB of them in one write and chunk
    Bulk,
}

/// Arguments of `agent`.
#[derive(Debug, Args)]
#[command(
    after_help = "A request whose path ends in /event or /bulk is answered in that way, whatever --write says. Between events of a --event-gap-us there are whole milliseconds."
)]
pub struct AgentArguments {
    /// Address to listen on; port 0 takes any
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9999")]
    pub listen: SocketAddr,
    /// How events are written
    #[arg(long, value_enum, default_value = "event")]
    pub write: Write,
    #[command(flatten)]
    pub replies: ReplyArguments,
}

/// Answers until the process is ended.
pub fn agent(arguments: &AgentArguments) -> Result<bool, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind(arguments.listen)
            .await
            .map_err(|error| format!("cannot listen on {}: {error}", arguments.listen))?;
        println!("listening on http://{}/", listener.local_addr()?);
        let settings = Rc::new(Settings {
            write: arguments.write,
            events: u64::from(arguments.replies.events),
            octets: usize::try_from(arguments.replies.event_octets)?,
            gap: Duration::from_micros(arguments.replies.event_gap_us),
        });
        loop {
            match listener.accept().await {
                Ok((socket, _)) => {
                    let settings = settings.clone();
                    tokio::task::spawn_local(async move {
                        // A client that leaves is no event here.
                        let _ = converse(socket, &settings).await;
                    });
                }
                Err(error) => {
                    eprintln!("npamp-loadgen: cannot accept: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

struct Settings {
    write: Write,
    events: u64,
    octets: usize,
    gap: Duration,
}

struct Request {
    head: usize,
    whole: usize,
    write: Option<Write>,
    is_post: bool,
}

enum Head {
    Partial,
    Whole(Request),
    Refused(&'static str),
}

fn head(octets: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let head = match request.parse(octets) {
        Ok(httparse::Status::Complete(head)) => head,
        Ok(httparse::Status::Partial) => return Head::Partial,
        Err(_) => return Head::Refused("400 Bad Request"),
    };
    let mut body = 0;
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            match std::str::from_utf8(header.value)
                .ok()
                .and_then(|value| value.trim().parse::<usize>().ok())
            {
                Some(octets) if octets <= REQUEST_OCTETS_MAX => body = octets,
                _ => return Head::Refused("413 Content Too Large"),
            }
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Head::Refused("411 Length Required");
        }
    }
    let path = request.path.unwrap_or_default();
    Head::Whole(Request {
        head,
        whole: head + body,
        write: if path.ends_with("/event") {
            Some(Write::Event)
        } else if path.ends_with("/bulk") {
            Some(Write::Bulk)
        } else {
            None
        },
        is_post: request.method == Some("POST"),
    })
}

async fn converse(mut socket: TcpStream, settings: &Settings) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut held, mut out) = (Vec::with_capacity(16 * 1024), Vec::new());
    loop {
        let request = match head(&held) {
            Head::Whole(request) if held.len() >= request.whole => request,
            Head::Refused(status) => return refuse(&mut socket, status).await,
            Head::Partial | Head::Whole(_) => {
                if held.len() > REQUEST_OCTETS_MAX {
                    return refuse(&mut socket, "413 Content Too Large").await;
                }
                if socket.read_buf(&mut held).await? == 0 {
                    return Ok(());
                }
                continue;
            }
        };
        if request.is_post {
            answer(&mut socket, &held, &request, settings, &mut out).await?;
        } else {
            // Whoever asks for a card learns that there is none.
            socket
                .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                .await?;
        }
        held.drain(..request.whole);
    }
}

async fn refuse(socket: &mut TcpStream, status: &str) -> io::Result<()> {
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    socket.write_all(text.as_bytes()).await
}

async fn answer(
    socket: &mut TcpStream,
    held: &[u8],
    request: &Request,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let scanned = json_rpc::scan_request(&held[request.head..request.whole]);
    let (id, method) = match &scanned {
        Ok(scanned) => (
            scanned.id.as_ref().map_or("null", |id| id.token()),
            scanned.method.as_ref(),
        ),
        Err(_) => ("null", ""),
    };
    let object = match A2aVersion::of_method(method) {
        Some((version, true)) => {
            let write = request.write.unwrap_or(settings.write);
            return stream(socket, version, id, write, settings, out).await;
        }
        Some((version, false)) => objects::reply(version, id, settings.octets),
        None => {
            let (code, text) = match &scanned {
                Ok(_) => (-32601, "Method not found"),
                Err(error) => (error.json_rpc_code(), "Invalid Request"),
            };
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{text}"}}}}"#)
                .into_bytes()
        }
    };
    out.clear();
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ");
    out.extend_from_slice(object.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(&object);
    socket.write_all(out).await
}

/// Adds an event as server-sent data.
fn push(out: &mut Vec<u8>, object: &[u8]) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(object);
    out.extend_from_slice(b"\n\n");
}

/// Room for the size of a chunk: eight hexadecimal digits and a line's end.
const SIZE_OCTETS: usize = 10;

/// Makes a chunk of what lies behind `SIZE_OCTETS` octets of room.
fn close_chunk(out: &mut Vec<u8>) {
    let size = format!("{:08x}\r\n", out.len() - SIZE_OCTETS);
    out[..SIZE_OCTETS].copy_from_slice(size.as_bytes());
    out.extend_from_slice(b"\r\n");
}

async fn stream(
    socket: &mut TcpStream,
    version: A2aVersion,
    id: &str,
    write: Write,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    socket
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    let most = match write {
        Write::Bulk if settings.gap.is_zero() => BULK_OCTETS,
        _ => 0,
    };
    let mut event = Numbered::event(version, id, settings.octets);
    out.clear();
    out.resize(SIZE_OCTETS, b'0');
    for number in 1..=settings.events {
        let object = event.numbered(number);
        if out.len() > SIZE_OCTETS && out.len() + object.len() > most {
            close_chunk(out);
            socket.write_all(out).await?;
            out.truncate(SIZE_OCTETS);
            if !settings.gap.is_zero() {
                tokio::time::sleep(settings.gap).await;
            }
        }
        push(out, object);
    }
    if most == 0 && out.len() > SIZE_OCTETS {
        close_chunk(out);
        socket.write_all(out).await?;
        out.truncate(SIZE_OCTETS);
        if !settings.gap.is_zero() {
            tokio::time::sleep(settings.gap).await;
        }
    }
    push(
        out,
        Numbered::last(version, id).numbered(settings.events + 1),
    );
    close_chunk(out);
    out.extend_from_slice(b"0\r\n\r\n");
    socket.write_all(out).await
}
