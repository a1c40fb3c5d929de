//! The admin listener over real connections.
#![allow(
    clippy::disallowed_methods,
    reason = "tests may use threads and the clock"
)]

use npamp_relay::limits;
use npamp_relay::observe::admin::{Admin, AdminError, Readiness};
use npamp_relay::observe::metrics::Registry;
use npamp_relay::observe::process;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

fn start() -> (Admin, Readiness) {
    let registry = Arc::new(Registry::new());
    process::register(&registry).unwrap();
    registry.counter("tests", "Tests that ask", || 1).unwrap();
    let readiness = Readiness::new();
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), registry, readiness.clone()).unwrap();
    (admin, readiness)
}

#[test]
fn readiness_follows_the_relay_and_health_does_not() {
    let (admin, readiness) = start();
    let address = admin.address();
    let ready = || ask(address, "GET", "/readyz");
    assert_eq!(ready().0, 503);
    assert!(ready().1.ends_with("starting\n"));
    assert_eq!(ask(address, "GET", "/healthz").0, 200);
    readiness.ready();
    assert_eq!(ready().0, 200);
    readiness.not_ready("shutting down");
    assert_eq!(ready().0, 503);
    assert!(ready().1.ends_with("shutting down\n"));
    assert_eq!(ask(address, "GET", "/healthz").0, 200);
}

#[test]
fn metrics_are_open_metrics_text() {
    let (admin, _) = start();
    let (status, answer) = ask(admin.address(), "GET", "/metrics");
    assert_eq!(status, 200);
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("content-type: application/openmetrics-text")
    );
    assert!(answer.contains("\nnpamp_relay_tests_total 1\n"), "{answer}");
    assert!(answer.ends_with("# EOF\n"));
    // Every sample belongs to a family with a help text and obeys the naming law.
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split([' ', '{']).next().unwrap();
        assert!(name.starts_with("npamp_relay_"), "{line}");
        let family = name.strip_suffix("_total").unwrap_or(name);
        assert!(text.contains(&format!("# HELP {family} ")), "{line}");
        let kind = if name.ends_with("_total") {
            "counter"
        } else {
            "gauge"
        };
        assert!(text.contains(&format!("# TYPE {family} {kind}")), "{line}");
    }
}

#[test]
fn anything_else_is_refused() {
    let (admin, _) = start();
    for path in ["/", "/metrics/", "/debug", "/healthz?x=1/../metrics"] {
        let status = ask(admin.address(), "GET", path).0;
        assert_eq!(status, if path.contains('?') { 200 } else { 404 }, "{path}");
    }
    assert_eq!(ask(admin.address(), "POST", "/metrics").0, 405);
    assert_eq!(ask(admin.address(), "HEAD", "/healthz").0, 200);
}

#[test]
fn a_taken_address_is_an_error() {
    let (admin, _) = start();
    let again = Admin::start(admin.address(), Arc::new(Registry::new()), Readiness::new());
    assert!(matches!(again, Err(AdminError::Bind(address, _)) if address == admin.address()));
}

#[test]
fn silent_clients_hold_bounded_places_and_stopping_does_not_wait_for_them() {
    let (admin, _) = start();
    let address = admin.address();
    let silent: Vec<TcpStream> = (0..limits::ADMIN_CONNECTIONS_MAX)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // With every place taken a further client waits, and is served once one is free.
    let waiting = std::thread::spawn(move || ask(address, "GET", "/healthz").0);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished());
    drop(silent);
    assert_eq!(waiting.join().unwrap(), 200);
    let _silent = TcpStream::connect(address).unwrap();
    drop(admin);
    assert!(TcpStream::connect(address).is_err());
}
