//! `respond`: the native responder as a process.

use crate::args::{ReplyArguments, RespondArguments};
use crate::drive::{self, Control, Mailbox};
use crate::responder::Responder;
use crate::trust::{self, Certificate};
use npamp_relay::crypto::Identity;
use npamp_relay::engine::control::Acceptor;
use npamp_relay::handshake::{PeerPolicy, ResponderConfig};
use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

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
    let pool = Pool::start(&arguments.replies, &[])?;
    let control = Control::start(
        "responder-ctl",
        None,
        vec![acceptor],
        pool.mailboxes.clone(),
        Vec::new(),
    )?;
    println!("listening on {address} as {}", identity.public());
    let ended = pool.wait();
    control.stop()?;
    ended?;
    Ok(true)
}

/// The threads of a responder.
pub struct Pool {
    /// For what is accepted.
    pub mailboxes: Vec<Mailbox>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl Pool {
    /// Starts them, each on its core of `cores` where there are any.
    pub fn start(replies: &ReplyArguments, cores: &[usize]) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut pool = Self {
            mailboxes: Vec::new(),
            threads: Vec::new(),
            stop,
        };
        for index in 0..replies.responder_threads {
            let (mailbox, inbox) = drive::mailbox()?;
            let mut work = Responder::new(replies, pool.stop.clone());
            let core = cores.get(index as usize % cores.len().max(1)).copied();
            let thread = std::thread::Builder::new()
                .name(format!("responder-{index}"))
                .spawn(move || {
                    drive::pin(core);
                    drive::drive(&mut work, &inbox, false)
                })?;
            pool.mailboxes.push(mailbox);
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Ends them.
    pub fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        self.mailboxes.iter().for_each(Mailbox::ring);
        self.wait()
    }

    /// Waits until they end.
    fn wait(self) -> io::Result<()> {
        for thread in self.threads {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the responder panicked")))?;
        }
        Ok(())
    }
}
