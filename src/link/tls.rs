//! One TLS 1.3 connection over rustls' unbuffered API, from the first octet of
//! the handshake to the last of the traffic: ciphertext in, plaintext out, and
//! back. Holds no more than the
//! record that straddles two inputs, or a handshake message in pieces.

use super::{ALPN, LinkError};
use rustls::client::UnbufferedClientConnection;
use rustls::server::{ClientHello, ResolvesServerCert, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::ServerName;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// TLS record header: type, version, length.
const RECORD_HEADER_OCTETS: usize = 5;
/// Largest TLS 1.3 plaintext of one record (RFC 8446 §5.1).
const RECORD_PLAINTEXT_OCTETS: usize = 16_384;
/// Room for one record's header, content type and tag, and for the KeyUpdate
/// that rustls may put in front of a record when it renews its keys.
const RECORD_OVERHEAD_OCTETS: usize = 256;

enum Connection {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// One TLS connection without a socket.
pub struct Tls {
    connection: Connection,
    /// Ciphertext that is not yet a whole record.
    held: Vec<u8>,
    seen: Arc<Seen>,
    established: bool,
    peer_closed: bool,
    close_sent: bool,
    failed: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls")
            .field("established", &self.established)
            .field("peer_closed", &self.peer_closed)
            .finish_non_exhaustive()
    }
}

/// What a responder's certificate resolver saw of the client.
#[derive(Debug, Default)]
struct Seen {
    server_name: OnceLock<String>,
    without_alpn: AtomicBool,
}

/// What one pass over the ciphertext needs next.
enum Step {
    Again,
    Stop,
}

/// Drives one state of either connection type. `$out` gets what must be sent,
/// `$plain` what was decrypted.
macro_rules! step {
    ($connection:expr, $octets:expr, $out:expr, $on_plain:expr, $discard:ident, $established:expr, $peer_closed:expr) => {{
        let status = $connection.process_tls_records($octets);
        $discard = status.discard;
        match status.state {
            Err(error) => Err(error.into()),
            Ok(ConnectionState::EncodeTlsData(mut state)) => {
                encode(&mut state, $out);
                Ok(Step::Again)
            }
            Ok(ConnectionState::TransmitTlsData(state)) => {
                state.done();
                Ok(Step::Again)
            }
            Ok(ConnectionState::ReadTraffic(mut state)) => loop {
                match state.next_record() {
                    None => break Ok(Step::Again),
                    Some(Err(error)) => break Err(error.into()),
                    Some(Ok(record)) => {
                        $discard += record.discard;
                        $on_plain(record.payload);
                    }
                }
            },
            Ok(ConnectionState::WriteTraffic(_)) => {
                *$established = true;
                Ok(Step::Stop)
            }
            Ok(ConnectionState::PeerClosed) => {
                *$peer_closed = true;
                Ok(Step::Again)
            }
            // BlockedHandshake needs octets, Closed needs nothing; early data is
            // never offered, and a state of a later rustls cannot be acted on.
            Ok(_) => Ok(Step::Stop),
        }
    }};
}

/// What `Tls::write` puts into a record.
#[derive(Clone, Copy)]
enum Outgoing<'a> {
    Traffic(&'a [u8]),
    CloseNotify,
}

/// Writes through either connection type.
macro_rules! write {
    ($connection:expr, $held:expr, $outgoing:expr, $target:expr) => {
        match $connection.process_tls_records($held).state? {
            ConnectionState::WriteTraffic(mut state) => match $outgoing {
                Outgoing::Traffic(plain) => state.encrypt(plain, $target),
                Outgoing::CloseNotify => state.queue_close_notify($target),
            },
            _ => return Err(LinkError::Tls(rustls::Error::HandshakeNotComplete)),
        }
    };
}

fn encode<Data>(state: &mut rustls::unbuffered::EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut room = RECORD_PLAINTEXT_OCTETS + RECORD_OVERHEAD_OCTETS;
    loop {
        out.resize(start + room, 0);
        match state.encode(&mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return;
            }
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => {
                out.truncate(start);
                return;
            }
        }
    }
}

impl Tls {
    /// The initiator's end. `server_name` is sent as SNI and checked against the certificate.
    pub fn client(config: Arc<ClientConfig>, server_name: &str) -> Result<Self, LinkError> {
        let name = ServerName::try_from(server_name.to_owned()).map_err(|_| {
            LinkError::Configuration(format!("{server_name:?} is not a server name"))
        })?;
        Ok(Self::new(Connection::Client(Box::new(
            UnbufferedClientConnection::new(config, name)?,
        ))))
    }

    /// The responder's end.
    pub fn server(config: &Arc<ServerConfig>) -> Result<Self, LinkError> {
        // rustls' unbuffered server does not tell the SNI; its certificate resolver sees it.
        let seen = Arc::new(Seen::default());
        let mut own = ServerConfig::clone(config);
        own.cert_resolver = Arc::new(Watched {
            resolver: config.cert_resolver.clone(),
            seen: seen.clone(),
        });
        let connection = UnbufferedServerConnection::new(Arc::new(own))?;
        Ok(Self {
            seen,
            ..Self::new(Connection::Server(Box::new(connection)))
        })
    }

    fn new(connection: Connection) -> Self {
        Self {
            connection,
            held: Vec::new(),
            seen: Arc::default(),
            established: false,
            peer_closed: false,
            close_sent: false,
            failed: false,
        }
    }

    /// Feeds ciphertext (none to start). Decrypted octets go to `on_plain`,
    /// ciphertext to be sent is appended to `out`, an alert included when this fails.
    pub fn handle_octets(
        &mut self,
        octets: &mut [u8],
        out: &mut Vec<u8>,
        on_plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LinkError> {
        if self.failed {
            return Err(LinkError::Tls(rustls::Error::General(
                "the link has failed".into(),
            )));
        }
        let mut rest = octets;
        if !self.held.is_empty() {
            // After the handshake only the record that straddles is copied together.
            let first = if self.established {
                record_octets(&self.held)
            } else {
                None
            };
            let taken = match first {
                Some(whole) if whole > self.held.len() => (whole - self.held.len()).min(rest.len()),
                None if self.established => {
                    (RECORD_HEADER_OCTETS - self.held.len()).min(rest.len())
                }
                _ => rest.len(),
            };
            let (now, later) = rest.split_at_mut(taken);
            self.held.extend_from_slice(now);
            rest = later;
            self.drive_held(out, on_plain)?;
            if !self.held.is_empty() && !rest.is_empty() {
                return self.handle_octets(rest, out, on_plain);
            }
        }
        let used = self.drive(rest, out, on_plain)?;
        self.held.extend_from_slice(&rest[used..]);
        Ok(())
    }

    fn drive_held(
        &mut self,
        out: &mut Vec<u8>,
        on_plain: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LinkError> {
        let mut held = std::mem::take(&mut self.held);
        let used = self.drive(&mut held, out, on_plain)?;
        held.drain(..used);
        if !held.is_empty() {
            self.held = held;
        }
        Ok(())
    }

    /// Runs the connection over `octets`, which must begin with everything that
    /// it has not discarded yet; returns how many of them it is done with.
    fn drive(
        &mut self,
        octets: &mut [u8],
        out: &mut Vec<u8>,
        on_plain: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, LinkError> {
        let was_established = self.established;
        let mut used = 0;
        loop {
            let (discard, step) = self.step(&mut octets[used..], out, on_plain);
            used += discard;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Stop) => break,
                Err(error) => {
                    // rustls has an alert to send, perhaps behind a part of its flight;
                    // driving it any further would repeat the failure, which it does
                    // not expect.
                    while self.wants_write() {
                        let (_, step) = self.step(&mut octets[used..], out, &mut |_| {});
                        if step.is_err() {
                            break;
                        }
                    }
                    self.failed = true;
                    if self.seen.without_alpn.load(Ordering::Relaxed) {
                        return Err(LinkError::Alpn);
                    }
                    return Err(error);
                }
            }
        }
        if self.established && !was_established && self.alpn() != Some(ALPN) {
            // A responder that ignored ALPN. rustls lets us say no more than this.
            let _ = self.close(out);
            self.failed = true;
            return Err(LinkError::Alpn);
        }
        Ok(used)
    }

    fn wants_write(&self) -> bool {
        match &self.connection {
            Connection::Client(connection) => connection.wants_write(),
            Connection::Server(connection) => connection.wants_write(),
        }
    }

    fn step(
        &mut self,
        octets: &mut [u8],
        out: &mut Vec<u8>,
        on_plain: &mut dyn FnMut(&[u8]),
    ) -> (usize, Result<Step, LinkError>) {
        let (established, peer_closed) = (&mut self.established, &mut self.peer_closed);
        let mut discard;
        let step = match &mut self.connection {
            Connection::Client(connection) => {
                step!(
                    connection,
                    octets,
                    out,
                    on_plain,
                    discard,
                    established,
                    peer_closed
                )
            }
            Connection::Server(connection) => {
                step!(
                    connection,
                    octets,
                    out,
                    on_plain,
                    discard,
                    established,
                    peer_closed
                )
            }
        };
        (discard, step)
    }

    /// Encrypts `plain` into as few records as hold it and appends them to `out`.
    pub fn encrypt(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), LinkError> {
        for piece in plain.chunks(RECORD_PLAINTEXT_OCTETS) {
            self.write(Outgoing::Traffic(piece), out)?;
        }
        Ok(())
    }

    /// Appends close_notify to `out`, once.
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), LinkError> {
        if self.close_sent || self.failed || !self.established {
            return Ok(());
        }
        self.close_sent = true;
        self.write(Outgoing::CloseNotify, out)
    }

    fn write(&mut self, outgoing: Outgoing<'_>, out: &mut Vec<u8>) -> Result<(), LinkError> {
        if self.failed {
            return Err(LinkError::Tls(rustls::Error::General(
                "the link has failed".into(),
            )));
        }
        // A renewed key or an answer to the peer's KeyUpdate goes first.
        self.drive_held(out, &mut |_| {})?;
        let start = out.len();
        let mut room = RECORD_OVERHEAD_OCTETS
            + match outgoing {
                Outgoing::Traffic(plain) => plain.len(),
                Outgoing::CloseNotify => 0,
            };
        loop {
            out.resize(start + room, 0);
            let (target, held) = (&mut out[start..], self.held.as_mut_slice());
            let result = match &mut self.connection {
                Connection::Client(connection) => write!(connection, held, outgoing, target),
                Connection::Server(connection) => write!(connection, held, outgoing, target),
            };
            match result {
                Ok(written) => {
                    out.truncate(start + written);
                    return Ok(());
                }
                Err(EncryptError::InsufficientSize(size)) => room = size.required_size,
                Err(EncryptError::EncryptExhausted) => {
                    out.truncate(start);
                    return Err(rustls::Error::EncryptError.into());
                }
            }
        }
    }

    /// Whether the handshake is done and ALPN agreed.
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// Whether the peer ended the link with close_notify.
    pub fn is_peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// The SNI a responder received.
    pub fn server_name(&self) -> Option<&str> {
        self.seen.server_name.get().map(String::as_str)
    }

    /// Name of the negotiated group, for logs.
    pub fn group(&self) -> Option<&'static str> {
        let group = match &self.connection {
            Connection::Client(connection) => connection.negotiated_key_exchange_group(),
            Connection::Server(connection) => connection.negotiated_key_exchange_group(),
        };
        group.and_then(|group| group.name().as_str())
    }

    fn alpn(&self) -> Option<&[u8]> {
        match &self.connection {
            Connection::Client(connection) => connection.alpn_protocol(),
            Connection::Server(connection) => connection.alpn_protocol(),
        }
    }
}

/// Notes the SNI on its way to the certificate, and gives none to a client
/// without ALPN: rustls refuses only one that offers other protocols.
#[derive(Debug)]
struct Watched {
    resolver: Arc<dyn ResolvesServerCert>,
    seen: Arc<Seen>,
}

impl ResolvesServerCert for Watched {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if let Some(name) = hello.server_name() {
            let _ = self.seen.server_name.set(name.to_owned());
        }
        if hello.alpn().is_none() {
            self.seen.without_alpn.store(true, Ordering::Relaxed);
            return None;
        }
        self.resolver.resolve(hello)
    }
}

/// Length of the record that begins `octets`, header included, once its header is there.
fn record_octets(octets: &[u8]) -> Option<usize> {
    let header = octets.get(..RECORD_HEADER_OCTETS)?;
    Some(RECORD_HEADER_OCTETS + usize::from(u16::from_be_bytes([header[3], header[4]])))
}

#[cfg(test)]
mod tests {
    use super::super::config::{self, Verify};
    use super::*;
    use rustls::RootCertStore;
    use rustls_pki_types::PrivateKeyDer;

    fn configs() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let signed = rcgen::generate_simple_self_signed(vec!["agent.test".into()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(signed.cert.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        (
            config::client(Verify::Roots(roots)).unwrap(),
            config::server(vec![signed.cert.der().clone()], key).unwrap(),
        )
    }

    fn shake(client: &mut Tls, server: &mut Tls) -> Result<(), LinkError> {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let mut none = |_: &[u8]| {};
        client.handle_octets(&mut [], &mut up, &mut none)?;
        while !up.is_empty() || !down.is_empty() {
            let mut octets = std::mem::take(&mut up);
            server.handle_octets(&mut octets, &mut down, &mut none)?;
            let mut octets = std::mem::take(&mut down);
            client.handle_octets(&mut octets, &mut up, &mut none)?;
        }
        Ok(())
    }

    #[test]
    fn hybrid_group_alpn_and_server_name() {
        let (client, server) = configs();
        let (mut client, mut server) = (
            Tls::client(client, "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        shake(&mut client, &mut server).unwrap();
        assert!(client.is_established() && server.is_established());
        assert_eq!(server.server_name(), Some("agent.test"));
        assert_eq!(client.group(), Some("X25519MLKEM768"));
    }

    /// ietf draft, IANA Considerations: the protocol is negotiated by ALPN `n-pamp/2`.
    #[test]
    fn a_client_without_alpn_is_refused() {
        let (client, server) = configs();
        let mut without = (*client).clone();
        without.alpn_protocols.clear();
        let (mut client, mut server) = (
            Tls::client(Arc::new(without), "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.handle_octets(&mut [], &mut up, &mut |_| {}).unwrap();
        let refused = server.handle_octets(&mut up, &mut down, &mut |_| {});
        assert!(matches!(refused, Err(LinkError::Alpn)), "{refused:?}");
        let told = client.handle_octets(&mut down, &mut up, &mut |_| {});
        let Err(LinkError::Tls(rustls::Error::AlertReceived(_))) = told else {
            panic!("an alert tells the client: {told:?}");
        };
    }

    #[test]
    fn a_client_of_another_protocol_is_refused() {
        let (client, server) = configs();
        let mut other = (*client).clone();
        other.alpn_protocols = vec![b"h2".to_vec()];
        let (mut client, mut server) = (
            Tls::client(Arc::new(other), "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.handle_octets(&mut [], &mut up, &mut |_| {}).unwrap();
        let refused = server.handle_octets(&mut up, &mut down, &mut |_| {});
        assert!(matches!(refused, Err(LinkError::Alpn)), "{refused:?}");
        let told = client.handle_octets(&mut down, &mut up, &mut |_| {});
        assert!(matches!(told, Err(LinkError::Alpn)), "{told:?}");
    }

    #[test]
    fn a_server_that_ignores_alpn_is_left_with_close_notify() {
        let (client, server) = configs();
        let mut without = (*server).clone();
        without.alpn_protocols.clear();
        let (mut client, mut server) = (
            Tls::client(client, "agent.test").unwrap(),
            Tls::server(&Arc::new(without)).unwrap(),
        );
        let (mut up, mut down) = (Vec::new(), Vec::new());
        client.handle_octets(&mut [], &mut up, &mut |_| {}).unwrap();
        server
            .handle_octets(&mut up, &mut down, &mut |_| {})
            .unwrap();
        up.clear();
        let left = client.handle_octets(&mut down, &mut up, &mut |_| {});
        assert!(matches!(left, Err(LinkError::Alpn)), "{left:?}");
        assert!(client.encrypt(b"x", &mut Vec::new()).is_err());
        // The server finds the missing ALPN itself, or would see the end.
        let _ = server.handle_octets(&mut up, &mut down, &mut |_| {});
        assert!(server.is_peer_closed() || server.failed);
    }

    impl Tls {
        fn refresh(&mut self) {
            let refreshed = match &mut self.connection {
                Connection::Client(connection) => {
                    match connection.process_tls_records(&mut []).state.unwrap() {
                        ConnectionState::WriteTraffic(state) => state.refresh_traffic_keys(),
                        state => panic!("{state:?}"),
                    }
                }
                Connection::Server(connection) => {
                    match connection.process_tls_records(&mut []).state.unwrap() {
                        ConnectionState::WriteTraffic(state) => state.refresh_traffic_keys(),
                        state => panic!("{state:?}"),
                    }
                }
            };
            refreshed.unwrap();
        }
    }

    fn carry(from: &mut Tls, to: &mut Tls, message: &[u8], back: &mut Vec<u8>) {
        let mut sealed = Vec::new();
        from.encrypt(message, &mut sealed).unwrap();
        let mut got = Vec::new();
        // Cut so that a key update's record straddles too.
        for chunk in sealed.chunks_mut(7) {
            to.handle_octets(chunk, back, &mut |plain| got.extend_from_slice(plain))
                .unwrap();
        }
        assert!(got == message);
    }

    /// RFC 8446 §4.6.3: either end renews its keys and asks the other to, in mid-traffic,
    /// also while part of a record has arrived.
    #[test]
    fn keys_are_renewed_both_ways() {
        let (client, server) = configs();
        let (mut client, mut server) = (
            Tls::client(client, "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        shake(&mut client, &mut server).unwrap();
        let message: Vec<u8> = (0..40_000u32).map(|n| (n % 251) as u8).collect();
        for round in 0..6 {
            let (from, to) = if round % 2 == 0 {
                (&mut client, &mut server)
            } else {
                (&mut server, &mut client)
            };
            from.refresh();
            let mut answer = Vec::new();
            carry(from, to, &message, &mut answer);
            // What the update made the other end say at once, if anything, is only an update.
            from.handle_octets(&mut answer, &mut Vec::new(), &mut |_| {
                panic!("no plaintext was sent")
            })
            .unwrap();
            carry(to, from, &message, &mut Vec::new());
            carry(from, to, b"after", &mut Vec::new());
        }
        // Half a record of the peer is held while we renew and write.
        let mut sealed = Vec::new();
        server.encrypt(&message, &mut sealed).unwrap();
        let (first, second) = sealed.split_at_mut(20_000);
        let mut got = Vec::new();
        client
            .handle_octets(first, &mut Vec::new(), &mut |p| got.extend_from_slice(p))
            .unwrap();
        assert!(!client.held.is_empty());
        carry(&mut client, &mut server, b"between", &mut Vec::new());
        client
            .handle_octets(second, &mut Vec::new(), &mut |p| got.extend_from_slice(p))
            .unwrap();
        assert!(got == message);
    }

    #[test]
    fn another_name_is_refused() {
        let (client, server) = configs();
        let (mut client, mut server) = (
            Tls::client(client, "other.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        let error = shake(&mut client, &mut server).unwrap_err();
        assert_eq!(error.reason(), super::super::LinkFailure::Certificate);
    }

    #[test]
    fn pinned_accepts_any_certificate() {
        let (_, server) = configs();
        let client = config::client(Verify::Pinned).unwrap();
        let (mut client, mut server) = (
            Tls::client(client, "other.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        shake(&mut client, &mut server).unwrap();
        assert!(client.is_established());
    }

    #[test]
    fn traffic_survives_any_cut() {
        let (client, server) = configs();
        let (mut client, mut server) = (
            Tls::client(client, "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        shake(&mut client, &mut server).unwrap();
        let message: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        for cut in [1, 3, 5, 7, 1000, 16_389, 65_536] {
            let mut sealed = Vec::new();
            client.encrypt(&message, &mut sealed).unwrap();
            let (mut got, mut out) = (Vec::new(), Vec::new());
            for chunk in sealed.chunks_mut(cut) {
                server
                    .handle_octets(chunk, &mut out, &mut |plain| got.extend_from_slice(plain))
                    .unwrap();
            }
            assert!(got == message, "cut at {cut}");
            assert!(server.held.is_empty());
        }
    }

    #[test]
    fn close_notify_is_seen() {
        let (client, server) = configs();
        let (mut client, mut server) = (
            Tls::client(client, "agent.test").unwrap(),
            Tls::server(&server).unwrap(),
        );
        shake(&mut client, &mut server).unwrap();
        let mut out = Vec::new();
        client.close(&mut out).unwrap();
        client.close(&mut out).unwrap();
        server
            .handle_octets(&mut out, &mut Vec::new(), &mut |_| {})
            .unwrap();
        assert!(server.is_peer_closed());
    }

    #[test]
    fn handshake_survives_any_cut() {
        for cut in [1, 2, 100, 517, 4096] {
            let (client, server) = configs();
            let (mut client, mut server) = (
                Tls::client(client, "agent.test").unwrap(),
                Tls::server(&server).unwrap(),
            );
            let (mut up, mut down) = (Vec::new(), Vec::new());
            client.handle_octets(&mut [], &mut up, &mut |_| {}).unwrap();
            while !up.is_empty() || !down.is_empty() {
                for chunk in std::mem::take(&mut up).chunks_mut(cut) {
                    server.handle_octets(chunk, &mut down, &mut |_| {}).unwrap();
                }
                for chunk in std::mem::take(&mut down).chunks_mut(cut) {
                    client.handle_octets(chunk, &mut up, &mut |_| {}).unwrap();
                }
            }
            assert!(client.is_established() && server.is_established());
        }
    }

    #[test]
    fn garbage_gets_an_alert() {
        let (_, server) = configs();
        let mut server = Tls::server(&server).unwrap();
        let mut out = Vec::new();
        let mut garbage = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        assert!(
            server
                .handle_octets(&mut garbage, &mut out, &mut |_| {})
                .is_err()
        );
        assert!(!out.is_empty(), "an alert tells the peer");
    }
}
