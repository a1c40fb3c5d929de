//! `respond`: the native responder as a process.

use crate::args::RespondArguments;
use crate::drive::{self, Control};
use crate::responder::Responder;
use crate::trust::{self, Certificate};
use npamp_relay::crypto::Identity;
use npamp_relay::engine::control::Acceptor;
use npamp_relay::handshake::{PeerPolicy, ResponderConfig};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A bound listener as the control thread takes it.
pub fn acceptor(
    listen: SocketAddr,
    identity: Arc<Identity>,
    peers: PeerPolicy,
    certificate: Certificate,
) -> Result<(SocketAddr, Acceptor), Box<dyn Error>> {
    let socket =
        TcpListener::bind(listen).map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let address = socket.local_addr()?;
    let acceptor = Acceptor {
        socket,
        tls: certificate.server()?,
        responder: Arc::new(move || ResponderConfig::new(identity.clone(), peers.clone())),
        association: trust::responder_association(),
    };
    Ok((address, acceptor))
}

/// Answers until the process is ended.
pub fn respond(arguments: &RespondArguments) -> Result<bool, Box<dyn Error>> {
    let identity = trust::identity(arguments.identity.as_deref())?;
    let certificate = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(cert), Some(key)) => Certificate::load(cert, key)?,
        _ => Certificate::generate()?,
    };
    let peers = if arguments.peers.is_empty() {
        PeerPolicy::Any
    } else {
        arguments.peers.iter().copied().collect()
    };
    let (address, acceptor) = acceptor(arguments.listen, identity.clone(), peers, certificate)?;
    let (mailbox, inbox) = drive::mailbox()?;
    let control = Control::start(vec![acceptor], Some(mailbox), None)?;
    let mut responder = Responder::new(&arguments.replies, Arc::new(AtomicBool::new(false)));
    let shard = std::thread::Builder::new()
        .name("responder".into())
        .spawn(move || drive::drive(&mut responder, &inbox, false))?;
    println!("listening on {address} as {}", identity.public());
    let ended = shard
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the responder panicked")));
    control.stop()?;
    ended?;
    Ok(true)
}
