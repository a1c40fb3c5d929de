//! The command as people run it: what it prints, where, and how it exits.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn relay(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_npamp-relay"))
        .args(args)
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A directory with an identity, a certificate and a configuration that names them.
fn site() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let made = relay(&["identity", "new", "--out", &path("identity.pem")]);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let pair = rcgen::generate_simple_self_signed(vec!["r.example".to_owned()]).unwrap();
    std::fs::write(path("cert.pem"), pair.cert.pem()).unwrap();
    std::fs::write(path("key.pem"), pair.signing_key.serialize_pem()).unwrap();
    std::fs::write(path("tokens"), "s3cret-token\n").unwrap();
    let config = "[identity]
key = \"identity.pem\"
[[listen]]
address = \"127.0.0.1:0\"
tls_cert = \"cert.pem\"
tls_key = \"key.pem\"
peers = [\"*\"]
hello = \"optional\"
[[agent]]
name = \"r\"
url = \"http://127.0.0.1:9/\"
[[ingress]]
address = \"127.0.0.1:0\"
token_file = \"tokens\"
[[route]]
path = \"/\"
upstream = \"npamp://r.example:7443\"
tls_ca = \"cert.pem\"
";
    std::fs::write(path("relay.toml"), config).unwrap();
    let config = path("relay.toml");
    (directory, config)
}

#[test]
fn wrong_arguments_exit_with_2() {
    for args in [
        &[][..],
        &["frobnicate"],
        &["check"],
        &["check", "--config"],
        &["check", "--config", "x", "y"],
        &["identity"],
        &["identity", "new"],
        &["identity", "show"],
    ] {
        let output = relay(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(
            err(&output).contains("--help"),
            "{args:?}: {}",
            err(&output)
        );
    }
}

#[test]
fn help_and_version_exit_with_0() {
    let help = relay(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for command in ["check", "identity"] {
        assert!(out(&help).contains(command));
    }
    let version = relay(&["--version"]);
    assert!(out(&version).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn identities_round_trip_and_are_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("identity.pem");
    let name = file.to_str().unwrap();
    let made = relay(&["identity", "new", "--out", name]);
    assert_eq!(made.status.code(), Some(0));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let public = out(&made);
    assert!(
        public.starts_with("ed25519:") && public.len() == "ed25519:".len() + 43 + 1,
        "{public}"
    );
    let shown = relay(&["identity", "show", name]);
    assert_eq!(out(&shown), public);
    let pem = std::fs::read_to_string(&file).unwrap();
    assert!(pem.starts_with("-----BEGIN PRIVATE KEY-----\n"));

    let again = relay(&["identity", "new", "--out", name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        err(&again).contains("is not overwritten"),
        "{}",
        err(&again)
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), pem);

    let other = directory.path().join("other.pem");
    let other = relay(&["identity", "new", "--out", other.to_str().unwrap()]);
    assert_ne!(out(&other), public);
}

#[test]
fn identity_show_refuses_what_is_no_identity() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key.pem");
    let pair = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap();
    let pem = pair.signing_key.serialize_pem();
    for text in [
        pem.as_str(),
        "",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let shown = relay(&["identity", "show", file.to_str().unwrap()]);
        assert_eq!(shown.status.code(), Some(1));
        assert!(err(&shown).contains("no Ed25519 key"), "{}", err(&shown));
        assert!(out(&shown).is_empty());
    }
    let gone = relay(&["identity", "show", "/nonexistent/identity.pem"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(err(&gone).contains("cannot read /nonexistent/identity.pem"));
}

#[test]
fn check_prints_the_effective_configuration_without_secrets() {
    let (directory, config) = site();
    let checked = relay(&["check", "--config", &config]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let text = out(&checked);
    for part in [
        "valid",
        "# aead: ",
        "# cores: ",
        "is outside conformance",
        "unary_s = 60.0",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for secret in ["identity.pem", "key.pem", "tokens"] {
        let content = std::fs::read_to_string(directory.path().join(secret)).unwrap();
        for line in content.lines().filter(|line| !line.starts_with('-')) {
            assert!(!text.contains(line), "{secret} is shown");
        }
    }
    // What it prints is a configuration, and checking that prints the same.
    let again = directory.path().join("again.toml");
    std::fs::write(&again, &text).unwrap();
    let again = relay(&["check", "--config", again.to_str().unwrap()]);
    let body = |text: &str| text.split_once("\n\n").unwrap().1.to_owned();
    assert_eq!(body(&out(&again)), body(&text));
}

#[test]
fn check_tells_every_problem_and_exits_with_1() {
    let (_directory, config) = site();
    let text = std::fs::read_to_string(&config).unwrap();
    let broken = text
        .replace("key.pem", "gone.pem")
        .replace("peers =", "peer =");
    std::fs::write(&config, broken).unwrap();
    let checked = relay(&["check", "--config", &config]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(out(&checked).is_empty());
    let told = err(&checked);
    for part in [
        ":3: listen[0].peers: missing key",
        ":6: listen[0].tls_key: cannot read",
        ":7: listen[0].peer: unknown key",
    ] {
        assert!(
            told.contains(&format!("{config}{part}")),
            "{part} is not in\n{told}"
        );
    }
}

#[test]
fn a_configuration_that_is_not_there() {
    let checked = relay(&["check", "--config", "/nonexistent/relay.toml"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        err(&checked).starts_with("/nonexistent/relay.toml: cannot read"),
        "{}",
        err(&checked)
    );
    let directory = tempfile::tempdir().unwrap();
    let checked = relay(&["check", "--config", Path::to_str(directory.path()).unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
}
