//! The program against a peer that speaks N-PAMP itself and sends no HELLO, in
//! both roles over real connections, with `hello = "optional"` (ruling R6).
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

#[path = "association/rig.rs"]
#[allow(dead_code, reason = "each test binary uses its part")]
mod rig;
mod support;

use npamp_relay::bridge::envelope::{
    ContentType, Envelope, EnvelopeFlags, MessageKind, ProtocolId,
};
use npamp_relay::bridge::payload::{self, Payload};
use npamp_relay::bridge::safety::{Effect, SafetyLabel};
use npamp_relay::bridge::stream_control::StreamControl;
use npamp_relay::crypto::{Identity, SeededRandom};
use npamp_relay::handshake::{
    Established, HandshakeError, Initiator, InitiatorConfig, PeerPolicy, Progress, Responder,
    ResponderConfig,
};
use npamp_relay::link::config::{self, Verify};
use npamp_relay::wire::{ChannelId, FrameType, Header};
use rig::{BRIDGE, CONTROL, Got, Puppet, marker};
use rustls::{ClientConnection, RootCertStore, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use support::{Relay, agent};

const SERVER_NAME: &str = "agent.relay.test";
const QUIET: Duration = Duration::from_secs(10);

trait Link: Read + Write {}
impl<T: Read + Write> Link for T {}

/// Reads one frame, header and payload.
fn read_frame(link: &mut dyn Link) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; Header::LEN];
    link.read_exact(&mut frame)?;
    let header = Header::decode(&frame).expect("a valid header");
    frame.resize(Header::LEN + header.payload_length as usize, 0);
    link.read_exact(&mut frame[Header::LEN..])?;
    Ok(frame)
}

/// A peer of the program: a puppet on a link.
struct Native {
    link: Box<dyn Link>,
    puppet: Puppet,
}

impl Native {
    /// Connects to `port` and completes both handshakes.
    fn connect(port: u16, certificate: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(certificate).unwrap())
            .unwrap();
        let config = config::client(Verify::Roots(roots)).unwrap();
        let name = ServerName::try_from(SERVER_NAME).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let tls = ClientConnection::new(config, name).unwrap();
        let link = StreamOwned::new(tls, prepared(socket));
        let identity = Arc::new(Identity::from_seed(&[5; 32]));
        let mut random = SeededRandom::new(5);
        let mut initiator = Initiator::new(InitiatorConfig::new(identity, None), &mut random);
        let mut sending = Vec::new();
        initiator.poll_transmit(&mut sending);
        Self::established(Box::new(link), sending, |header, payload, out| {
            let progress = initiator.handle_frame(header, payload)?;
            initiator.poll_transmit(out);
            Ok(progress)
        })
    }

    /// Takes a connection and completes both handshakes.
    fn accept(socket: TcpStream, certificate: &Path, key: &Path) -> Self {
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let tls = ServerConnection::new(config::server(chain, key).unwrap()).unwrap();
        let link = StreamOwned::new(tls, prepared(socket));
        let identity = Arc::new(Identity::from_seed(&[6; 32]));
        let config = ResponderConfig::new(identity, PeerPolicy::Any);
        let mut random = SeededRandom::new(6);
        let mut responder = Responder::new(config, &mut random);
        Self::established(Box::new(link), Vec::new(), |header, payload, out| {
            let progress = responder.handle_frame(header, payload)?;
            responder.poll_transmit(out);
            Ok(progress)
        })
    }

    fn established(
        mut link: Box<dyn Link>,
        mut sending: Vec<u8>,
        mut handle: impl FnMut(&Header, &mut [u8], &mut Vec<u8>) -> Result<Progress, HandshakeError>,
    ) -> Self {
        let mut done: Option<Box<Established>> = None;
        while done.is_none() {
            link.write_all(&sending).unwrap();
            link.flush().unwrap();
            sending.clear();
            let mut frame = read_frame(&mut *link).unwrap();
            let header = Header::decode(&frame).unwrap();
            let payload = &mut frame[Header::LEN..];
            if let Progress::Done(established) = handle(&header, payload, &mut sending).unwrap() {
                done = Some(established);
            }
        }
        link.write_all(&sending).unwrap();
        link.flush().unwrap();
        Self {
            link,
            puppet: Puppet {
                established: *done.unwrap(),
                sending: BTreeMap::new(),
                receiving: BTreeMap::new(),
            },
        }
    }

    fn write(&mut self, octets: &[u8]) {
        self.link.write_all(octets).unwrap();
        self.link.flush().unwrap();
    }

    fn send(&mut self, channel: ChannelId, frame_type: FrameType, payload: &[u8]) {
        let frame = self.puppet.seal(channel, frame_type, payload);
        self.write(&frame);
    }

    fn update_keys(&mut self, channel: ChannelId) {
        let frame = self.puppet.key_update(channel);
        self.write(&frame);
    }

    /// The next frame, acknowledgements of key updates apart.
    fn next(&mut self) -> Got {
        loop {
            let octets = read_frame(&mut *self.link).expect("a frame");
            let frame = self.puppet.read(octets).remove(0);
            if frame.frame_type != FrameType::KEY_UPDATE_ACK {
                return frame;
            }
            let epoch = self.puppet.sending[&frame.channel].epoch;
            assert!((1..=epoch).any(|epoch| frame.payload == marker(epoch)));
        }
    }

    fn expect(&mut self, channel: ChannelId, frame_type: FrameType) -> Vec<u8> {
        let frame = self.next();
        assert_eq!(
            (frame.channel, frame.frame_type),
            (channel, frame_type),
            "{frame:?}"
        );
        frame.payload
    }

    fn has_ended(&mut self) -> bool {
        matches!(self.link.read(&mut [0]), Ok(0))
            || matches!(self.link.read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }

    fn request(&mut self, correlation_id: &[u8], method: &str, object: &str) {
        let payload = bridge(
            MessageKind::Request,
            correlation_id,
            method,
            object.as_bytes(),
        );
        self.send(BRIDGE, FrameType::BRIDGE_REQUEST, &payload);
    }

    /// One unary exchange; the agent gives back what it got.
    fn echo(&mut self, correlation_id: &[u8]) {
        let object = request_object("message/send");
        self.request(correlation_id, "message/send", &object);
        let reply = self.expect(BRIDGE, FrameType::BRIDGE_RESPONSE);
        let reply = payload::decode(FrameType::BRIDGE_RESPONSE.0, &reply).unwrap();
        assert_eq!(reply.envelope.correlation_id, correlation_id);
        assert_eq!(reply.foreign, response_object(object.as_bytes()).as_bytes());
    }
}

fn prepared(socket: TcpStream) -> TcpStream {
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(QUIET)).unwrap();
    socket
}

fn payload_of<'a>(
    kind: MessageKind,
    correlation_id: &'a [u8],
    method: &'a str,
    foreign: &'a [u8],
) -> Payload<'a> {
    Payload {
        envelope: Envelope {
            protocol_id: ProtocolId::A2A,
            kind,
            content_type: ContentType::JSON,
            flags: if kind == MessageKind::StreamEnd {
                EnvelopeFlags::FINAL
            } else {
                EnvelopeFlags::NONE
            },
            correlation_id,
            method,
        },
        safety: None,
        stream_control: None,
        document_binding: None,
        foreign,
    }
}

fn bridge(kind: MessageKind, correlation_id: &[u8], method: &str, foreign: &[u8]) -> Vec<u8> {
    let mut payload = payload_of(kind, correlation_id, method, foreign);
    if kind == MessageKind::Request {
        payload.safety = Some(SafetyLabel::new(Effect::NON_IDEMPOTENT_WRITE));
    }
    payload::encode(kind.frame_type(), &payload).unwrap()
}

fn request_object(method: &str) -> String {
    format!(
        "{{ \"jsonrpc\":\"2.0\", \"id\" : 1,\"method\":{method:?},\"params\":{{\"x\":1e400,\"x\":2}} }} "
    )
}

/// A Response that holds the request's octets in hexadecimal.
fn response_object(request: &[u8]) -> String {
    let mut hex = String::new();
    for octet in request {
        let _ = write!(hex, "{octet:02x}");
    }
    format!(
        " {{\"id\":1 ,\"jsonrpc\":\"2.0\",\n\"result\":{{\"kind\":\"message\",\"was\":\"{hex}\"}}}}\n"
    )
}

fn event_object(number: u64, last: bool) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1, "result":{{"kind":"status-update","taskId":"t","contextId":"c","n":{number},"status":{{"state":"working"}},"final":{last}}}}}"#
    )
}

const EVENTS: u64 = 12;

fn answer(request: &agent::Request, conversation: &mut agent::Conversation) -> io::Result<()> {
    if String::from_utf8_lossy(&request.body).contains("message/stream") {
        conversation.stream()?;
        for number in 1..=EVENTS {
            conversation.event(event_object(number, number == EVENTS).as_bytes())?;
            thread::sleep(Duration::from_millis(5));
        }
        return conversation.end();
    }
    conversation.reply(200, response_object(&request.body).as_bytes())
}

/// As initiator towards an egress. Rulings R4, R21, R26: key updates on the peer's account at any
/// moment, also before the first request; PING on its channel; an unreadable frame is answered with
/// ERROR and costs nobody else anything; CLOSE is acknowledged.
#[test]
fn initiator_without_hello() {
    let agent = agent::Agent::start(answer);
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = support::certificate(dir.path(), &[SERVER_NAME]);
    let (identity, _) = support::identity(dir.path(), "egress");
    let port = support::free_port();
    let egress = Relay::start(
        dir.path(),
        "egress",
        &format!(
            "[identity]\nkey = '{}'\n[[listen]]\naddress = \"127.0.0.1:{port}\"\ntls_cert = '{}'\ntls_key = '{}'\npeers = [\"*\"]\nhello = \"optional\"\n[[agent]]\nname = \"agent\"\nurl = \"{}\"\n",
            identity.display(),
            certificate.display(),
            key.display(),
            agent.url(""),
        ),
    );
    let mut native = Native::connect(port, &certificate);

    native.update_keys(BRIDGE);
    native.update_keys(CONTROL);
    native.send(CONTROL, FrameType::PING, b"before anything");
    assert_eq!(native.expect(CONTROL, FrameType::PONG), b"before anything");
    native.echo(b"first");
    for round in 0..4 {
        native.update_keys(BRIDGE);
        native.echo(&[b'k', round]);
    }
    native.send(BRIDGE, FrameType::PING, b"");
    assert_eq!(native.expect(BRIDGE, FrameType::PONG), b"");

    native.request(
        b"stream",
        "message/stream",
        &request_object("message/stream"),
    );
    for number in 1..=EVENTS {
        let frame_type = if number == EVENTS {
            FrameType::BRIDGE_STREAM_END
        } else {
            FrameType::BRIDGE_STREAM_DATA
        };
        let event = native.expect(BRIDGE, frame_type);
        let event = payload::decode(frame_type.0, &event).unwrap();
        assert_eq!(event.stream_control, Some(StreamControl::resumable(number)));
        assert_eq!(
            event.foreign,
            event_object(number, number == EVENTS).as_bytes()
        );
        if number % 4 == 1 {
            native.update_keys(BRIDGE);
        }
    }

    native.send(BRIDGE, FrameType::BRIDGE_REQUEST, b"no envelope");
    let error = native.expect(BRIDGE, FrameType::ERROR);
    assert_eq!(error[..2], [0, 1], "{error:?}");
    native.echo(b"goes on");
    native.send(ChannelId::MEMORY, FrameType(0x0120), b"unadvertised");
    native.echo(b"goes on still");

    native.send(CONTROL, FrameType::CLOSE, b"");
    native.expect(CONTROL, FrameType::CLOSE_ACK);
    assert!(native.has_ended());
    let metrics = support::wait_for("the association is down", QUIET, || {
        let metrics = egress.metrics();
        let down = metrics.sum("npamp_relay_associations_down_total", &[]);
        (down > 0.0).then_some(metrics)
    });
    for (metric, label) in [
        ("associations_down_total", "reason=\"closed\""),
        ("frames_dropped_total", "reason=\"channel_unadvertised\""),
        ("bridge_dropped_total", "reason=\"malformed\""),
    ] {
        let counted = metrics.sum(&format!("npamp_relay_{metric}"), &[label]);
        assert!((0.9..1.1).contains(&counted), "{metric}: {metrics:?}");
    }
}

/// As responder towards `call --hello optional`: HELLO is passed over in silence, keys are updated
/// before each reply, and the CLOSE that ends the call is acknowledged.
#[test]
fn responder_without_hello() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = support::certificate(dir.path(), &[SERVER_NAME]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let call = |method: &str, more: &[&str]| {
        let mut command = support::npamp_relay();
        command
            .arg("call")
            .arg(format!("npamp://127.0.0.1:{port}"))
            .args(["--data", &request_object(method)])
            .args(["--server-name", SERVER_NAME, "--timeout", "20", "--tls-ca"])
            .arg(&certificate)
            .args(more);
        thread::spawn(move || command.output().unwrap())
    };
    let accept = || Native::accept(listener.accept().unwrap().0, &certificate, &key);
    let one_line = |object: &str| object.trim().replace('\n', " ");

    let output = call("message/send", &["--hello", "optional"]);
    let mut native = accept();
    let (request, correlation_id) = take_request(&mut native);
    native.update_keys(BRIDGE);
    native.update_keys(CONTROL);
    native.send(CONTROL, FrameType::PING, b"probe");
    assert_eq!(native.expect(CONTROL, FrameType::PONG), b"probe");
    let reply = response_object(&request);
    let payload = bridge(MessageKind::Response, &correlation_id, "", reply.as_bytes());
    native.send(BRIDGE, FrameType::BRIDGE_RESPONSE, &payload);
    native.expect(CONTROL, FrameType::CLOSE);
    native.send(CONTROL, FrameType::CLOSE_ACK, b"");
    let output = output.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), one_line(&reply));

    let output = call("message/stream", &["--hello", "optional"]);
    let mut native = accept();
    let (_, correlation_id) = take_request(&mut native);
    let mut expected = String::new();
    for number in 1..=EVENTS {
        let last = number == EVENTS;
        let kind = if last {
            MessageKind::StreamEnd
        } else {
            MessageKind::StreamData
        };
        let object = event_object(number, last);
        let mut payload = payload_of(kind, &correlation_id, "", object.as_bytes());
        payload.stream_control = Some(StreamControl::data(number));
        let payload = payload::encode(kind.frame_type(), &payload).unwrap();
        native.update_keys(BRIDGE);
        native.send(BRIDGE, FrameType(kind.frame_type()), &payload);
        let _ = writeln!(expected, "{}", one_line(&object));
    }
    native.expect(CONTROL, FrameType::CLOSE);
    native.send(CONTROL, FrameType::CLOSE_ACK, b"");
    let output = output.join().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);

    // The default insists on HELLO.
    let output = call("message/send", &[]);
    let mut native = accept();
    native.expect(CONTROL, FrameType::HELLO);
    native.expect(CONTROL, FrameType::HELLO_DONE);
    native.expect(CONTROL, FrameType::CLOSE);
    let output = output.join().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("HELLO"), "{said}");
}

/// The program's HELLO, then its request: foreign message and correlation_id.
fn take_request(native: &mut Native) -> (Vec<u8>, Vec<u8>) {
    native.expect(CONTROL, FrameType::HELLO);
    native.expect(CONTROL, FrameType::HELLO_DONE);
    let request = native.expect(BRIDGE, FrameType::BRIDGE_REQUEST);
    let request = payload::decode(FrameType::BRIDGE_REQUEST.0, &request).unwrap();
    (
        request.foreign.to_vec(),
        request.envelope.correlation_id.to_vec(),
    )
}
