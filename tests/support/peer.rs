//! A peer that speaks TLS and N-PAMP from the library's own rooms and keeps no
//! rule that a test does not want kept.

use npamp_relay::association::{Hello, ParamValue};
use npamp_relay::crypto::{Identity, TAG_LEN};
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::handshake::{Established, Initiator, InitiatorConfig, Progress};
use npamp_relay::link::config::{self, Verify};
use npamp_relay::link::tls::Tls;
use npamp_relay::wire::{ChannelId, Flags, FrameType, Header};
use rustls::ClientConfig;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for what must come at once.
const SOON: Duration = Duration::from_secs(3);

/// A TLS client configuration that takes any certificate.
pub fn any_certificate() -> Arc<ClientConfig> {
    config::client(Verify::Pinned).expect("client configuration")
}

/// A TLS connection and the decrypted octets that came over it.
pub struct Link {
    socket: TcpStream,
    tls: Tls,
    plain: Vec<u8>,
    ended: bool,
}

impl Link {
    /// Connects and shakes hands; an error when the other end does not.
    pub fn connect(port: u16, config: Arc<ClientConfig>, name: &str) -> io::Result<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_nodelay(true)?;
        let mut link = Self {
            socket,
            tls: Tls::client(config, name).map_err(io::Error::other)?,
            plain: Vec::new(),
            ended: false,
        };
        let end = Instant::now() + SOON;
        link.feed(&mut [])?;
        while !link.tls.is_established() {
            link.receive(SOON)?;
            if link.ended || Instant::now() > end {
                return Err(io::Error::other("the link ended in its handshake"));
            }
        }
        Ok(link)
    }

    fn feed(&mut self, octets: &mut [u8]) -> io::Result<()> {
        let (mut out, plain) = (Vec::new(), &mut self.plain);
        let fed = self.tls.handle_octets(octets, &mut out, &mut |octets| {
            plain.extend_from_slice(octets);
        });
        self.socket.write_all(&out)?;
        fed.map_err(io::Error::other)
    }

    /// Encrypts and sends.
    pub fn send(&mut self, plain: &[u8]) -> io::Result<()> {
        let mut out = Vec::new();
        self.tls
            .encrypt(plain, &mut out)
            .map_err(io::Error::other)?;
        self.socket.write_all(&out)
    }

    /// Ends our direction without a word.
    pub fn finish(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    fn receive(&mut self, time: Duration) -> io::Result<()> {
        self.socket
            .set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        let mut octets = vec![0; 64 * 1024];
        match self.socket.read(&mut octets) {
            Ok(0) => self.ended = true,
            Ok(read) => self.feed(&mut octets[..read])?,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => {
                self.ended = true;
                return Err(error);
            }
        }
        Ok(())
    }

    /// The next frame as it came; `None` when the link ends or `time` is over.
    pub fn frame(&mut self, time: Duration) -> Option<(Header, Vec<u8>)> {
        let end = Instant::now() + time;
        loop {
            if self.plain.len() >= Header::LEN {
                let header = Header::decode(&self.plain).expect("a header of the relay's");
                let whole = Header::LEN + header.payload_length as usize;
                if self.plain.len() >= whole {
                    let rest = self.plain.split_off(whole);
                    let frame = std::mem::replace(&mut self.plain, rest);
                    return Some((header, frame[Header::LEN..].to_vec()));
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if self.ended || left.is_zero() || self.receive(left).is_err() {
                return None;
            }
        }
    }

    /// Whether the other end closes the connection within `time`.
    pub fn ends(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !self.ended && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            if self.receive(left).is_err() {
                return true;
            }
        }
        self.ended
    }
}

/// What a peer received, opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    /// Channel.
    pub channel: ChannelId,
    /// Type.
    pub frame_type: FrameType,
    /// Payload without its tag.
    pub payload: Vec<u8>,
}

/// An initiator with an association.
pub struct Peer {
    /// Its link.
    pub link: Link,
    established: Established,
    sending: BTreeMap<ChannelId, u64>,
}

impl Peer {
    /// Shakes hands on a link; `tamper` may change each flight before it goes.
    pub fn shake_hands(
        mut link: Link,
        identity: &Arc<Identity>,
        mut tamper: impl FnMut(&mut Vec<u8>),
    ) -> Result<Self, Link> {
        let config = InitiatorConfig::new(identity.clone(), None);
        let mut initiator = Initiator::new(config, &mut SystemRandom);
        loop {
            let mut flight = Vec::new();
            initiator.poll_transmit(&mut flight);
            if !flight.is_empty() {
                tamper(&mut flight);
                if link.send(&flight).is_err() {
                    return Err(link);
                }
            }
            let Some((header, mut payload)) = link.frame(SOON) else {
                return Err(link);
            };
            match initiator.handle_frame(&header, &mut payload) {
                Ok(Progress::Continue) => {}
                Ok(Progress::Done(established)) => {
                    let mut last = Vec::new();
                    initiator.poll_transmit(&mut last);
                    tamper(&mut last);
                    if link.send(&last).is_err() {
                        return Err(link);
                    }
                    return Ok(Self {
                        link,
                        established: *established,
                        sending: BTreeMap::new(),
                    });
                }
                Err(_) => return Err(link),
            }
        }
    }

    /// A sealed frame with any sequence.
    pub fn seal_at(
        &self,
        sequence: u64,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: &[u8],
    ) -> Vec<u8> {
        let established = &self.established;
        let key = established.master.traffic_key(
            established.side.send_direction(),
            0,
            established.suite,
            channel,
        );
        let header = Header {
            flags: flags | Flags::ENC,
            frame_type,
            channel,
            sequence,
            payload_length: (payload.len() + TAG_LEN) as u32,
        };
        let mut frame = vec![0; Header::LEN];
        frame.extend_from_slice(payload);
        frame.resize(frame.len() + TAG_LEN, 0);
        key.seal(&header, &mut frame);
        frame
    }

    /// The sequence of the channel's next frame.
    pub fn next(&self, channel: ChannelId) -> u64 {
        self.sending.get(&channel).copied().unwrap_or(0)
    }

    /// The channel's next frame, sealed.
    pub fn seal(
        &mut self,
        channel: ChannelId,
        frame_type: FrameType,
        flags: Flags,
        payload: &[u8],
    ) -> Vec<u8> {
        let sequence = self.next(channel);
        self.sending.insert(channel, sequence + 1);
        self.seal_at(sequence, channel, frame_type, flags, payload)
    }

    /// Seals and sends the channel's next frame.
    pub fn send(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) {
        let frame = self.seal(channel, frame_type, Flags::NONE, payload);
        self.link.send(&frame).expect("the link takes a frame");
    }

    /// The next frame, opened; announcements are nothing that a test has asked for.
    pub fn read(&mut self, time: Duration) -> Option<Got> {
        let end = Instant::now() + time;
        loop {
            let got = self.read_any(end.saturating_duration_since(Instant::now()))?;
            if (got.channel, got.frame_type.0) != (ChannelId::DISCOVERY, 0x0103) {
                return Some(got);
            }
        }
    }

    /// The next frame of whatever kind, opened.
    pub fn read_any(&mut self, time: Duration) -> Option<Got> {
        let (header, mut payload) = self.link.frame(time)?;
        let established = &self.established;
        let key = established.master.traffic_key(
            established.side.receive_direction(),
            0,
            established.suite,
            header.channel,
        );
        let payload = key
            .open(&header, &mut payload)
            .expect("an authentic frame")
            .to_vec();
        Some(Got {
            channel: header.channel,
            frame_type: header.frame_type,
            payload,
        })
    }

    /// Exchanges HELLO, repeating `server_name`.
    pub fn greet(&mut self, server_name: &str) {
        self.send(ChannelId::CONTROL, FrameType::HELLO, &hello(server_name));
        self.send(ChannelId::CONTROL, FrameType::HELLO_DONE, &[]);
        for expected in [FrameType::HELLO, FrameType::HELLO_DONE] {
            let got = self.read(SOON).expect("an answer to HELLO");
            assert_eq!(got.frame_type, expected);
        }
    }

    /// Every frame until the link ends, which must be soon.
    pub fn goodbye(&mut self) -> Vec<FrameType> {
        let mut types = Vec::new();
        while let Some(got) = self.read(SOON) {
            types.push(got.frame_type);
        }
        assert!(self.link.ends(Duration::from_millis(1)), "the link ends");
        types
    }
}

/// A HELLO payload of version 1 that repeats `server_name`.
pub fn hello(server_name: &str) -> Vec<u8> {
    Hello {
        version: 1,
        protocols: vec![0x02, 0x0d, 0x10, 0],
        params: vec![
            ("server-name".into(), ParamValue::Text(server_name.into())),
            ("docbind".into(), ParamValue::Uint(0xd0)),
        ],
    }
    .encode(0xf00f)
}
