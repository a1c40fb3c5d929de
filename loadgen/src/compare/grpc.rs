//! Echo as a gRPC bidirectional stream over TLS: tonic on tokio, a thread for
//! the client and one for the server, one channel with one stream for each
//! connection. Messages are octets; there is no protobuf in the way.

use super::native::Plan;
use super::result::Outcome;
use super::tally::{self, Tally, apart};
use crate::drive;
use crate::http::pace::Pace;
use crate::trust::SELF_NAME;
use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio::task::LocalSet;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::StreamingService;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

/// Path of the one method.
const PATH: &str = "/compare.Echo/Stream";
/// Messages sent before what has arrived is looked at.
const MESSAGES_A_ROUND: usize = 64;

/// Messages are octets as they are.
#[derive(Debug, Clone, Copy, Default)]
struct Octets;

impl Codec for Octets {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(item);
        Ok(())
    }
}

impl Decoder for Octets {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, octets: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(octets.copy_to_bytes(octets.remaining())))
    }
}

/// Sends a stream back as it comes.
struct Echo;

impl StreamingService<Bytes> for Echo {
    type Response = Bytes;
    type ResponseStream = Streaming<Bytes>;
    type Future = Ready<Result<Response<Streaming<Bytes>>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

#[derive(Clone)]
struct Service;

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Octets);
            Ok(grpc.streaming(Echo, request).await)
        })
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    // The default slack of 50 µs would be lag of our own; it stays when the kernel refuses.
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn serve(
    listener: std::net::TcpListener,
    identity: Identity,
    stop: oneshot::Receiver<()>,
) -> io::Result<()> {
    runtime()?.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let serving = Server::builder()
            .tcp_nodelay(true)
            .tls_config(ServerTlsConfig::new().identity(identity))
            .map_err(io::Error::other)?
            .serve_with_incoming(Service, TcpListenerStream::new(listener));
        tokio::select! {
            served = serving => served.map_err(io::Error::other),
            _ = stop => Ok(()),
        }
    })
}

struct Shared {
    tally: RefCell<Tally>,
    replied: Notify,
    failed: RefCell<Option<String>>,
}

async fn connect(
    address: SocketAddr,
    certificate: &Certificate,
    requests: UnboundedReceiverStream<Bytes>,
) -> io::Result<Streaming<Bytes>> {
    let tls = ClientTlsConfig::new()
        .ca_certificate(certificate.clone())
        .domain_name(SELF_NAME);
    let channel = Endpoint::from_shared(format!("https://{address}"))
        .and_then(|endpoint| endpoint.tcp_nodelay(true).tls_config(tls))
        .map_err(io::Error::other)?
        .connect()
        .await
        .map_err(io::Error::other)?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(io::Error::other)?;
    let streaming = grpc
        .streaming(
            Request::new(requests),
            PathAndQuery::from_static(PATH),
            Octets,
        )
        .await
        .map_err(io::Error::other)?;
    Ok(streaming.into_inner())
}

async fn client(address: SocketAddr, certificate: Certificate, plan: Plan) -> io::Result<Outcome> {
    let mut lines: Vec<(UnboundedSender<Bytes>, Streaming<Bytes>)> = Vec::new();
    for _ in 0..plan.connections {
        let (sender, requests) = unbounded_channel();
        let replies = connect(
            address,
            &certificate,
            UnboundedReceiverStream::new(requests),
        )
        .await?;
        lines.push((sender, replies));
    }
    let timer = Pace::new()?;
    let shared = Rc::new(Shared {
        tally: RefCell::new(Tally::new(plan)),
        replied: Notify::new(),
        failed: RefCell::new(None),
    });
    let mut senders = Vec::new();
    let mut readers = Vec::new();
    for (connection, (sender, mut replies)) in lines.into_iter().enumerate() {
        senders.push(sender);
        let shared = shared.clone();
        readers.push(tokio::task::spawn_local(async move {
            loop {
                match replies.message().await {
                    Ok(Some(message)) if message.len() == plan.octets => {
                        let number = tally::read(&message).unwrap_or_default();
                        shared.tally.borrow_mut().reply(connection, number);
                    }
                    Ok(Some(_)) => {
                        *shared.failed.borrow_mut() = Some("a message of another length".into());
                    }
                    Ok(None) => *shared.failed.borrow_mut() = Some("the stream ended".into()),
                    Err(status) => *shared.failed.borrow_mut() = Some(status.to_string()),
                }
                shared.replied.notify_one();
                if shared.failed.borrow().is_some() {
                    return;
                }
            }
        }));
    }
    let mut message = Vec::new();
    while !shared.tally.borrow().is_done() {
        if let Some(failed) = shared.failed.take() {
            return Err(io::Error::other(failed));
        }
        let mut sent = 0;
        while sent < MESSAGES_A_ROUND {
            let Some((connection, number)) = shared.tally.borrow_mut().take() else {
                break;
            };
            sent += 1;
            message.clear();
            tally::write(number, plan.octets, &mut message);
            senders[connection]
                .send(Bytes::copy_from_slice(&message))
                .map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))?;
        }
        if sent > 0 {
            tokio::task::yield_now().await;
            continue;
        }
        let wake_at = shared.tally.borrow().wake_at();
        tokio::select! {
            () = shared.replied.notified() => {}
            slept = timer.until(wake_at) => slept?,
        }
    }
    for reader in readers {
        reader.abort();
        let _ = reader.await;
    }
    match Rc::try_unwrap(shared) {
        Ok(shared) => Ok(shared.tally.into_inner().finish()),
        Err(_) => Err(io::Error::other("a reader goes on")),
    }
}

/// Measures one round.
pub fn measure(plan: Plan) -> io::Result<Outcome> {
    let made =
        rcgen::generate_simple_self_signed([SELF_NAME.to_owned()]).map_err(io::Error::other)?;
    let certificate = made.cert.pem();
    let identity = Identity::from_pem(&certificate, made.signing_key.serialize_pem());
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel();
    let (near, far) = apart();
    let server = std::thread::Builder::new()
        .name("echo".into())
        .spawn(move || {
            drive::pin(far);
            serve(listener, identity, stopped)
        })?;
    let client = std::thread::Builder::new()
        .name("client".into())
        .spawn(move || {
            drive::pin(near);
            let certificate = Certificate::from_pem(certificate);
            LocalSet::new().block_on(&runtime()?, client(address, certificate, plan))
        })?;
    let panicked = |_| io::Error::other("a thread panicked");
    let outcome = client.join().map_err(panicked)?;
    let _ = stop.send(());
    server.join().map_err(panicked)??;
    outcome
}

#[cfg(test)]
mod tests {
    use super::super::native::Load;
    use super::*;
    use std::time::Duration;

    #[test]
    fn streams_come_back_whole_and_in_order() {
        for load in [Load::Rate(300.0), Load::Outstanding(16)] {
            let plan = Plan {
                load,
                connections: 2,
                octets: 400,
                warmup: Duration::from_millis(20),
                duration: Duration::from_millis(200),
            };
            let outcome = measure(plan).unwrap();
            assert_eq!(outcome.errors, 0, "{load:?}: {}", outcome.example);
            assert!(outcome.per_s > 0.0);
            if let Load::Rate(_) = load {
                assert_eq!(outcome.times.summary().count, 60);
            }
        }
    }
}
