//! What the tests of the whole program share: processes that never outlive a
//! test, a pair of relays with everything they need, a link that can be cut,
//! and just enough HTTP to ask them questions.
//!
//! Ports are free ones, files are in a temporary directory, and the log of
//! every process is printed when its test fails.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

pub mod agent;
pub mod chain;
pub mod client;
pub mod peer;

use npamp_relay::crypto::{Random, SeededRandom};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take until it serves.
const START_TIME: Duration = Duration::from_secs(30);

/// A port on loopback that nobody listens on. Taken from below the range that
/// the kernel hands out to outgoing connections, each at most once per process.
pub fn free_port() -> u16 {
    const FIRST: u16 = 11_000;
    const COUNT: u16 = 20_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Several test processes may run at once; each begins somewhere else.
    let start = (std::process::id() % 200) as u16 * 100;
    for _ in 0..COUNT {
        let port = FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on loopback");
}

/// Waits until `ready` gives something, or panics naming `what`.
pub fn wait_for<T>(what: &str, time: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + time;
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < end, "{what}: not within {time:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A number below `below`, from a seed.
pub fn number(random: &mut SeededRandom, below: u64) -> u64 {
    let mut octets = [0; 8];
    random.fill(&mut octets);
    u64::from_le_bytes(octets) % below
}

/// A child process that is killed when this value goes, a panic included.
pub struct Process {
    name: String,
    child: std::process::Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both its outputs in a file in `dir`.
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Self {
        let log = dir.join(format!("{name}.log"));
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("log file");
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("log file"))
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("{name} does not start: {e}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// What it has written so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, once it has one.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait")
    }

    /// SIGKILL, and wait.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by name, such as `TERM`, `STOP` or `CONT`.
    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([format!("-{signal}"), self.id().to_string()])
            .status()
            .expect("kill");
        assert!(status.success(), "{} takes no signal {signal}", self.name);
    }

    /// Waits until it has ended by itself.
    pub fn wait_exit(&mut self, time: Duration) -> ExitStatus {
        let name = self.name.clone();
        wait_for(&format!("{name} ends"), time, || self.exited())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("---- log of {}", self.name);
            for line in tail.iter().rev() {
                eprintln!("{}", line.chars().take(400).collect::<String>());
            }
        }
    }
}

/// The `npamp-relay` program that this test was built with.
pub fn npamp_relay() -> Command {
    Command::new(env!("CARGO_BIN_EXE_npamp-relay"))
}

/// Makes a new identity with the program itself; gives its file and its public key.
pub fn identity(dir: &Path, name: &str) -> (PathBuf, String) {
    let file = dir.join(format!("{name}.identity.pem"));
    let run = |arguments: &[&std::ffi::OsStr]| {
        let output = npamp_relay()
            .args(arguments)
            .output()
            .expect("npamp-relay identity");
        assert!(
            output.status.success(),
            "npamp-relay {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    run(&[
        "identity".as_ref(),
        "new".as_ref(),
        "--out".as_ref(),
        file.as_os_str(),
    ]);
    let shown = run(&["identity".as_ref(), "show".as_ref(), file.as_os_str()]);
    let public = shown
        .split_whitespace()
        .find(|word| word.starts_with("ed25519:"))
        .unwrap_or_else(|| panic!("no public key in: {shown}"));
    (file, public.to_owned())
}

/// Writes a self-signed certificate for `names` and its key; gives both files.
pub fn certificate(dir: &Path, names: &[&str]) -> (PathBuf, PathBuf) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("certificate");
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    fs::write(&cert, made.cert.pem()).expect("certificate file");
    fs::write(&key, made.signing_key.serialize_pem()).expect("key file");
    (cert, key)
}

/// One `npamp-relay run` process.
pub struct Relay {
    /// The process.
    pub process: Process,
    /// Port of its admin listener.
    pub admin: u16,
    config: PathBuf,
    dir: PathBuf,
    name: String,
}

impl Relay {
    /// Writes `config` (without `[observe]`) to a file and runs it until it is ready.
    pub fn start(dir: &Path, name: &str, config: &str) -> Self {
        Self::start_logging(dir, name, config, "")
    }

    /// [`Relay::start`] with a log filter.
    pub fn start_logging(dir: &Path, name: &str, config: &str, log: &str) -> Self {
        let admin = free_port();
        let file = dir.join(format!("{name}.toml"));
        let log = match log {
            "" => std::env::var("NPAMP_TEST_LOG").unwrap_or_else(|_| "info".to_owned()),
            log => log.to_owned(),
        };
        let whole =
            format!("{config}\n[observe]\nadmin = \"127.0.0.1:{admin}\"\nlog = \"{log}\"\n");
        fs::write(&file, whole).expect("configuration file");
        let mut relay = Self {
            process: Self::spawn(dir, name, &file),
            admin,
            config: file,
            dir: dir.to_owned(),
            name: name.to_owned(),
        };
        relay.wait_ready();
        relay
    }

    fn spawn(dir: &Path, name: &str, config: &Path) -> Process {
        let mut command = npamp_relay();
        command.args(["run", "--config"]).arg(config);
        Process::start(name, command, dir)
    }

    /// Runs the same configuration again, after [`Process::kill`] or an exit.
    pub fn restart(&mut self) {
        self.process = Self::spawn(&self.dir, &self.name, &self.config);
        self.wait_ready();
    }

    fn wait_ready(&mut self) {
        let (admin, process) = (self.admin, &mut self.process);
        wait_for(&format!("{} is ready", self.name), START_TIME, || {
            if let Some(status) = process.exited() {
                panic!("{} ended instead of serving: {status}", process.name);
            }
            matches!(http(admin, "GET", "/readyz", &[], b""), Ok(reply) if reply.status == 200)
                .then_some(())
        });
    }

    /// Most octets of the process that were resident in memory at once.
    pub fn resident_max(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("the process");
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("a size") * 1024
    }

    /// What `/metrics` says now.
    pub fn metrics(&self) -> Metrics {
        let reply = http(self.admin, "GET", "/metrics", &[], b"").expect("metrics");
        assert_eq!(reply.status, 200, "{}", reply.text());
        Metrics::parse(&reply.text())
    }
}

/// Samples of a Prometheus text page by `name{labels}`, as written there.
#[derive(Debug, Clone, Default)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Reads a page.
    pub fn parse(page: &str) -> Self {
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        Self(
            samples
                .filter_map(|line| {
                    let (key, value) = line.rsplit_once(' ')?;
                    Some((key.to_owned(), value.parse().ok()?))
                })
                .collect(),
        )
    }

    /// Sum of the samples of metric `name` whose labels contain every one of
    /// `labels`, each written `key="value"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        self.0
            .iter()
            .filter(|(key, _)| {
                let (metric, rest) = key.split_once('{').unwrap_or((key, ""));
                metric == name && labels.iter().all(|label| rest.contains(label))
            })
            .map(|(_, value)| value)
            .sum()
    }
}

/// What a pair of relays is made from.
#[derive(Default)]
pub struct PairOptions {
    /// Agents by name and URL; each gets the route `/agents/<name>`.
    pub agents: Vec<(String, String)>,
    /// Put a [`Proxy`] on the link, so that it can be cut.
    pub proxy: bool,
    /// TOML tables added to both configurations, such as `[limits]`.
    pub both: String,
    /// TOML tables added to the egress's configuration.
    pub egress: String,
    /// TOML tables added to the ingress's configuration.
    pub ingress: String,
    /// Keys added to each `[[agent]]`.
    pub agent_keys: String,
    /// Keys added to the `[[ingress]]`.
    pub ingress_keys: String,
    /// Log filter; that of `NPAMP_TEST_LOG`, else `info`, when empty.
    pub log: String,
}

/// An egress and an ingress that trust each other, as two processes.
pub struct Pair {
    /// The HTTP side.
    pub ingress: Relay,
    /// The agents' side.
    pub egress: Relay,
    /// The link between them, if asked for.
    pub proxy: Option<Proxy>,
    /// Port of the ingress's HTTP listener.
    pub port: u16,
    /// Port of the egress's N-PAMP listener.
    pub link_port: u16,
    /// Where their files are. Goes last, after the processes.
    pub dir: tempfile::TempDir,
}

impl Pair {
    /// Starts both and waits until both are ready.
    pub fn start(options: &PairOptions) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (cert, key) = certificate(dir.path(), &["*.relay.test"]);
        let (egress_identity, egress_public) = identity(dir.path(), "egress");
        let (ingress_identity, ingress_public) = identity(dir.path(), "ingress");
        let (port, link_port) = (free_port(), free_port());
        let proxy = options.proxy.then(|| Proxy::start(link_port));
        let upstream = proxy.as_ref().map_or(link_port, |proxy| proxy.port);
        // Literal strings: a path needs no escapes in them.
        let mut egress = format!(
            "[identity]\nkey = '{}'\n[[listen]]\naddress = \"127.0.0.1:{link_port}\"\ntls_cert = '{}'\ntls_key = '{}'\npeers = [\"{ingress_public}\"]\n",
            egress_identity.display(),
            cert.display(),
            key.display(),
        );
        let mut ingress = format!(
            "[identity]\nkey = '{}'\n[[ingress]]\naddress = \"127.0.0.1:{port}\"\n{}\n",
            ingress_identity.display(),
            options.ingress_keys,
        );
        for (name, url) in &options.agents {
            let keys = &options.agent_keys;
            let _ = write!(
                egress,
                "[[agent]]\nname = \"{name}\"\nurl = \"{url}\"\n{keys}\n"
            );
            let _ = write!(
                ingress,
                "[[route]]\npath = \"/agents/{name}\"\nupstream = \"npamp://127.0.0.1:{upstream}\"\nserver_name = \"{name}.relay.test\"\npeer = \"{egress_public}\"\ntls_ca = '{}'\n",
                cert.display(),
            );
        }
        let policy = if options.both.contains("[policy]") {
            ""
        } else {
            "[policy]\ndocbind = 0x00d0\n"
        };
        for (config, own) in [
            (&mut egress, &options.egress),
            (&mut ingress, &options.ingress),
        ] {
            let _ = write!(config, "{policy}{}\n{own}\n", options.both);
        }
        let egress = Relay::start_logging(dir.path(), "egress", &egress, &options.log);
        let ingress = Relay::start_logging(dir.path(), "ingress", &ingress, &options.log);
        Self {
            ingress,
            egress,
            proxy,
            port,
            link_port,
            dir,
        }
    }

    /// Where clients of the agent `name` go, without a trailing slash.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/agents/{name}", self.port)
    }
}

/// A TCP forwarder on loopback whose connections can be cut.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    shared: Arc<ProxyShared>,
}

/// After how many octets, both directions together, a new connection is cut.
type Limiter = dyn FnMut() -> Option<u64> + Send;

#[derive(Default)]
struct ProxyShared {
    stopped: AtomicBool,
    refusing: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    limiter: Mutex<Option<Box<Limiter>>>,
    limited: AtomicUsize,
}

impl ProxyShared {
    fn cut(&self) {
        for connection in self.connections.lock().expect("lock").drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Proxy {
    /// Forwards to `upstream` on loopback.
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("proxy");
        let port = listener.local_addr().expect("address").port();
        let shared = Arc::new(ProxyShared::default());
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for inbound in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::Relaxed) {
                    return;
                }
                if accepting.refusing.load(Ordering::Relaxed) {
                    continue;
                }
                let _ = Self::forward(&accepting, inbound, upstream);
            }
        });
        Self { port, shared }
    }

    fn forward(shared: &Arc<ProxyShared>, inbound: TcpStream, upstream: u16) -> io::Result<()> {
        let outbound = TcpStream::connect(("127.0.0.1", upstream))?;
        for socket in [&inbound, &outbound] {
            socket.set_nodelay(true)?;
        }
        let limit = {
            let mut limiter = shared.limiter.lock().expect("lock");
            limiter.as_mut().and_then(|limiter| limiter())
        };
        let left = Arc::new(AtomicU64::new(limit.unwrap_or(u64::MAX)));
        for (mut from, mut to) in [
            (inbound.try_clone()?, outbound.try_clone()?),
            (outbound.try_clone()?, inbound.try_clone()?),
        ] {
            let (left, shared) = (left.clone(), shared.clone());
            thread::spawn(move || {
                if let Ok(true) = Self::pass(&mut from, &mut to, &left) {
                    shared.limited.fetch_add(1, Ordering::SeqCst);
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = to.shutdown(Shutdown::Both);
                }
                let _ = to.shutdown(Shutdown::Write);
            });
        }
        let mut connections = shared.connections.lock().expect("lock");
        connections.extend([inbound, outbound]);
        Ok(())
    }

    /// Passes octets on until the end, or until `left` is spent: then true, once for both directions.
    fn pass(from: &mut TcpStream, to: &mut TcpStream, left: &AtomicU64) -> io::Result<bool> {
        let mut octets = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut octets)?;
            if read == 0 {
                return Ok(false);
            }
            let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                Some(left.saturating_sub(read as u64))
            });
            let before = before.unwrap_or_default();
            let passed = usize::try_from(before).unwrap_or(usize::MAX).min(read);
            to.write_all(&octets[..passed])?;
            if before > 0 && before <= read as u64 {
                return Ok(true);
            }
        }
    }

    /// From now on each new connection is cut once it has passed as many octets as `limiter` says.
    pub fn limit(&self, limiter: impl FnMut() -> Option<u64> + Send + 'static) {
        *self.shared.limiter.lock().expect("lock") = Some(Box::new(limiter));
    }

    /// Connections that were cut by their limit.
    pub fn limited(&self) -> usize {
        self.shared.limited.load(Ordering::SeqCst)
    }

    /// Ends every connection; new ones are taken.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.cut();
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// An HTTP reply that has arrived whole.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The first value of a header, named in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One HTTP/1.0 request to a port on loopback: the end of the connection ends
/// the reply, so that no body framing is needed.
pub fn http(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Reply> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut head = format!(
        "{method} {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    let mut reply = Vec::new();
    socket.read_to_end(&mut reply)?;
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "no HTTP reply");
    let end = reply
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or_else(malformed)?;
    let head = String::from_utf8_lossy(&reply[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    Ok(Reply {
        status: status
            .and_then(|status| status.parse().ok())
            .ok_or_else(malformed)?,
        headers: lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body: reply.split_off(end + 4),
    })
}
