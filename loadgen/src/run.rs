//! `run`: threads for the generator and, if asked for, the responder; then the
//! report.

use crate::args::RunArguments;
use crate::drive::{self, Control};
use crate::generator::{Generator, Plan};
use crate::measurement::Measurement;
use crate::process::Process;
use crate::progress::{Bar, Progress};
use crate::report::Report;
use crate::respond;
use crate::responder::Responder;
use crate::series::Series;
use crate::trust::{self, Certificate};
use clap::CommandFactory;
use npamp_relay::crypto::{Identity, IdentityPublic};
use npamp_relay::engine::control::{Command, Dial};
use npamp_relay::handshake::PeerPolicy;
use rustls::ClientConfig;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Time between two drawings of the progress bar.
const DRAW_TIME: Duration = Duration::from_millis(100);

/// Whom to dial.
struct Target {
    upstream: String,
    server_name: String,
    tls: Arc<ClientConfig>,
    peer: Option<IdentityPublic>,
    identity: Arc<Identity>,
}

/// Runs the load and reports. True when everything was measured without an error.
pub fn run(arguments: &RunArguments) -> Result<bool, Box<dyn Error>> {
    if let Err(text) = arguments.check() {
        crate::args::Arguments::command()
            .error(clap::error::ErrorKind::ArgumentConflict, text)
            .exit();
    }
    if arguments.scenario.is_http() {
        return crate::http::run(arguments);
    }
    let identity = trust::identity(arguments.identity.as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    let (mut acceptors, mut own) = (Vec::new(), None);
    let target = if arguments.is_self() {
        let responder = Arc::new(Identity::generate(
            &mut npamp_relay::engine::clock::SystemRandom,
        ));
        let certificate = Certificate::generate()?;
        let tls = certificate.client()?;
        let peers = PeerPolicy::only(identity.public());
        let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let (address, acceptor) = respond::acceptor(listen, responder.clone(), peers, certificate)?;
        acceptors.push(acceptor);
        let (mailbox, inbox) = drive::mailbox()?;
        let mut work = Responder::new(&arguments.replies, stop.clone());
        let thread = std::thread::Builder::new()
            .name("responder".into())
            .spawn(move || drive::drive(&mut work, &inbox, false))?;
        own = Some((mailbox, thread));
        Target {
            upstream: address.to_string(),
            server_name: arguments.link_name(),
            tls,
            peer: Some(responder.public()),
            identity,
        }
    } else {
        Target {
            upstream: arguments.target.clone().unwrap_or_default(),
            server_name: arguments.link_name(),
            tls: trust::client(arguments.pinned, arguments.tls_ca.as_deref())?,
            peer: arguments.peer,
            identity,
        }
    };
    let accepted = own.as_ref().map(|(mailbox, _)| mailbox.clone());
    let measured = generate(arguments, &target, acceptors, accepted);
    stop.store(true, Ordering::Release);
    if let Some((mailbox, thread)) = own {
        mailbox.ring();
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the responder panicked")))?;
    }
    let (mut measurement, memory) = measured?;
    let mut series = measurement
        .series
        .take()
        .map(Series::finish)
        .unwrap_or_default();
    for (second, rss_octets) in series.iter_mut().zip(memory) {
        second.rss_octets = rss_octets;
    }
    Report::new(arguments, &target.upstream, &measurement, series)
        .write(arguments.json.as_deref())?;
    if let Some(reason) = &measurement.aborted {
        return Err(reason.clone().into());
    }
    Ok(measurement.is_clean())
}

fn generate(
    arguments: &RunArguments,
    target: &Target,
    acceptors: Vec<npamp_relay::engine::control::Acceptor>,
    accepted: Option<drive::Mailbox>,
) -> Result<(Measurement, Vec<Option<u64>>), Box<dyn Error>> {
    let connections = usize::try_from(arguments.connections)?;
    let progress = Arc::new(Progress::default());
    let (mailbox, inbox) = drive::mailbox()?;
    let control = Control::start(acceptors, accepted, Some(mailbox))?;
    let plan = Plan {
        scenario: arguments.scenario,
        arrivals: arguments.arrivals,
        rate: arguments.rate,
        warmup: arguments.warmup,
        duration: arguments.duration,
        seed: arguments.seed,
        connections,
        concurrency_max: arguments.concurrency_max,
        payload: usize::try_from(arguments.payload)?,
        timeout: arguments.timeout,
        target: format!("npamp://{}", target.upstream),
        identity: target.identity.public().to_string(),
    };
    let association = trust::initiator_association(&target.server_name);
    for token in 0..arguments.connections {
        let dial = Dial {
            token,
            unit: 0,
            upstream: target.upstream.clone(),
            server_name: target.server_name.as_str().into(),
            tls: target.tls.clone(),
            identity: target.identity.clone(),
            peer: target.peer,
            association: association.clone(),
        };
        control
            .commands
            .send(Command::Dial(Box::new(dial)))
            .map_err(|_| "the control thread ended")?;
    }
    let (result, results) = mpsc::channel();
    let thread = {
        let (progress, spin) = (progress.clone(), arguments.spin);
        std::thread::Builder::new()
            .name("generator".into())
            .spawn(move || {
                let mut generator = Generator::new(plan, progress);
                let ended = drive::drive(&mut generator, &inbox, spin);
                let _ = result.send(ended.map(|()| generator.measurement));
            })?
    };
    let process = arguments.process();
    let mut memory = Vec::new();
    let mut bar = Bar::new(arguments.warmup + arguments.duration);
    let measured = loop {
        match results.recv_timeout(DRAW_TIME) {
            Ok(measured) => break measured,
            Err(RecvTimeoutError::Timeout) => {
                bar.draw(&progress);
                let elapsed = Duration::from_nanos(progress.elapsed.load(Ordering::Relaxed));
                let next = arguments.warmup + Duration::from_secs(1 + memory.len() as u64);
                if elapsed >= next {
                    memory.push(process.and_then(Process::rss_octets));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                break Err(io::Error::other("the generator panicked"));
            }
        }
    };
    bar.clear();
    let _ = thread.join();
    control.stop()?;
    // The end of the last second.
    memory.push(process.and_then(Process::rss_octets));
    Ok((measured?, memory))
}
