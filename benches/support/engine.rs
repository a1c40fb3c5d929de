//! Connected peers over real sockets: one end as a shard adopts it, the other in
//! the hands of the bench.
#![allow(dead_code)] // benches and tests use a part each

use npamp_relay::association::{Association, AssociationConfig, Event, HelloMode};
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::engine::control::{Handed, Origin};
use npamp_relay::engine::establish::{Establish, Joined};
use npamp_relay::link::config::{Verify, client, server};
use npamp_relay::link::tls::Tls;
use npamp_relay::wire::{ChannelId, Flags, FrameType};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::PrivateKeyDer;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The initiator's end of a connection, without its socket.
pub struct Near {
    pub tls: Tls,
    pub association: Association,
}

/// Makes connections.
pub struct Rig {
    listener: TcpListener,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    association: Arc<AssociationConfig>,
}

impl Rig {
    pub fn new() -> Self {
        let signed =
            rcgen::generate_simple_self_signed(vec!["agent.test".into()]).expect("a certificate");
        let key =
            PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a private key");
        Self {
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"),
            client: client(Verify::Pinned).expect("a client configuration"),
            server: server(vec![signed.cert.der().clone()], key).expect("a server configuration"),
            association: Arc::new(AssociationConfig::new(HelloMode::Required)),
        }
    }

    /// Two ends of a TCP connection.
    pub fn sockets(&self) -> (TcpStream, TcpStream, SocketAddr) {
        let address = self.listener.local_addr().expect("an address");
        let near = TcpStream::connect(address).expect("a connection");
        let (far, peer) = self.listener.accept().expect("a connection");
        near.set_nodelay(true).expect("an option");
        far.set_nodelay(true).expect("an option");
        (near, far, peer)
    }

    /// A connection with its handshakes done, in memory, and the responder's end for a shard. HELLO is still to be exchanged.
    pub fn connect(&self) -> (TcpStream, Near, Box<Handed>) {
        let (near, far) = self.connect_handed();
        let Handed {
            socket,
            joined,
            association,
            ..
        } = *near;
        let (tls, association, early) =
            joined.into_association(association, &mut SystemRandom, Instant::now());
        assert!(early.is_empty());
        (socket, Near { tls, association }, far)
    }

    /// Both ends of a connection with its handshakes done, for shards: initiator and responder.
    pub fn connect_handed(&self) -> (Box<Handed>, Box<Handed>) {
        let (initiator, responder) = crate::support::configs();
        let random = &mut SystemRandom;
        let name = "agent.test".into();
        let mut ours =
            Establish::initiator(self.client.clone(), &name, initiator, random).expect("a name");
        let mut theirs =
            Establish::responder(&self.server, responder, random).expect("a configuration");
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut near = ours.handle_octets(&mut [], &mut up).expect("a flight");
        let mut far = None;
        while near.is_none() || far.is_none() {
            let progress = theirs.handle_octets(&mut up, &mut down).expect("a flight");
            far = far.or(progress);
            up.clear();
            let progress = ours.handle_octets(&mut down, &mut up).expect("a flight");
            near = near.or(progress);
            down.clear();
        }
        assert!(up.is_empty() && down.is_empty());
        let (socket, other, address) = self.sockets();
        let near = self.handed(socket, ours.join(*near.expect("done")), address);
        let far = self.handed(other, theirs.join(*far.expect("done")), address);
        (near, far)
    }

    fn handed(&self, socket: TcpStream, joined: Joined, address: SocketAddr) -> Box<Handed> {
        Box::new(Handed {
            socket,
            joined,
            association: self.association.clone(),
            origin: Origin::Accepted { listener: 0 },
            address,
            unit: None,
        })
    }
}

impl Near {
    /// What is to be sent, as ciphertext.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        let mut plain = Vec::new();
        self.association
            .poll_transmit(&mut plain, usize::MAX, Instant::now());
        if !plain.is_empty() {
            self.tls.encrypt(&plain, out).expect("a record");
        }
    }

    /// Takes ciphertext; gives the number of Bridge frames in it.
    pub fn take(&mut self, octets: &mut [u8]) -> u64 {
        let (mut plain, mut frames) = (Vec::new(), 0);
        self.tls
            .handle_octets(octets, &mut Vec::new(), &mut |octets| {
                plain.extend_from_slice(octets);
            })
            .expect("good records");
        self.association
            .handle_octets(&mut plain, Instant::now(), &mut |event| {
                frames += u64::from(matches!(event, Event::Frame { .. }));
            })
            .expect("good frames");
        frames
    }

    /// `frames` Bridge frames with payloads of `octets`, as ciphertext; `together` of them share records.
    pub fn seal(&mut self, frames: u64, octets: usize, together: u64, out: &mut Vec<u8>) {
        let mut left = frames;
        while left > 0 {
            let now = left.min(together);
            for _ in 0..now {
                self.association
                    .send(
                        ChannelId::BRIDGE,
                        FrameType::BRIDGE_STREAM_DATA,
                        Flags::NONE,
                        vec![0xa5; octets],
                    )
                    .expect("room");
            }
            self.transmit(out);
            left -= now;
        }
    }
}

/// CPU time of the calling thread.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one struct that lives here.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}
