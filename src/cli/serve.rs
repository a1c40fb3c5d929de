//! The commands that run a relay: `run`, `demo` and `call`.

use super::CliError;
use super::args::{CallArgs, DemoArgs};
use super::call::{CallPlan, one_line};
use super::config;
use super::demo::Demo;
use super::discover;
use crate::a2a::port::CallEvent;
use crate::bridge::transport_error::TransportCode;
use crate::crypto::Identity;
use crate::engine::clock::SystemRandom;
use crate::engine::cores;
use crate::observe::logs;
use crate::relay::Relay;
use crate::relay::context::load_identity;
use crate::relay::settings::{ObserveSettings, Settings};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

/// How often a running relay is asked whether all its threads live.
const WATCH_TIME: Duration = Duration::from_millis(200);

/// `run`: the relay, until SIGTERM or SIGINT.
pub fn run(file: &Path) -> Result<(), CliError> {
    let config = config::load(file).map_err(|errors| CliError(errors.to_string()))?;
    let _logs =
        logs::init(&config.settings.observe).map_err(|error| CliError(error.to_string()))?;
    let signals = signals()?;
    let relay = Relay::start(config.settings).map_err(|error| CliError(error.to_string()))?;
    for address in &relay.listen_addresses {
        tracing::info!(%address, "listening for N-PAMP");
    }
    for address in &relay.ingress_addresses {
        tracing::info!(%address, "listening for A2A over HTTP");
    }
    if let Some(address) = relay.admin_address() {
        tracing::info!(%address, "admin listener");
    }
    until_stopped(relay, signals)
}

/// `demo`: agent, egress and ingress in one process, until SIGTERM or SIGINT.
pub fn demo(args: &DemoArgs) -> Result<(), CliError> {
    let demo = Demo::prepare(args)?;
    let _logs = logs::init(&demo.settings.observe).map_err(|error| CliError(error.to_string()))?;
    let signals = signals()?;
    let relay = Relay::start(demo.settings.clone()).map_err(|error| CliError(error.to_string()))?;
    let mut stdout = std::io::stdout().lock();
    // A reader that goes away does not end the demonstration.
    let _ = stdout.write_all(demo.banner().as_bytes());
    let _ = writeln!(stdout, "Ctrl-C ends it.");
    let _ = stdout.flush();
    drop(stdout);
    until_stopped(relay, signals)
}

fn signals() -> Result<Signals, CliError> {
    Signals::new([SIGTERM, SIGINT])
        .map_err(|error| CliError(format!("cannot wait for signals: {error}")))
}

fn until_stopped(relay: Relay, mut signals: Signals) -> Result<(), CliError> {
    let (signalled, stop) = mpsc::channel();
    let handle = signals.handle();
    let waiter = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut signals = signals.forever();
            let first = signals.next().map(|signal| signalled.send(signal));
            if let Some(Ok(())) = first
                && let Some(signal) = signals.next()
            {
                // Whoever asks twice does not want to wait for what is under way.
                tracing::warn!(signal, "ending at once");
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        })
        .map_err(|error| CliError(format!("cannot wait for signals: {error}")))?;
    let asked = loop {
        match stop.recv_timeout(WATCH_TIME) {
            Ok(signal) => {
                tracing::info!(signal, "shutting down");
                break true;
            }
            Err(mpsc::RecvTimeoutError::Timeout) if !relay.is_broken() => {}
            Err(_) => {
                tracing::error!("a thread of the relay ended; shutting down");
                break false;
            }
        }
    };
    let stopped = relay
        .shut_down()
        .map_err(|error| CliError(error.to_string()));
    handle.close();
    let _ = waiter.join();
    // A supervisor must see that nobody asked for this end.
    stopped.and(if asked {
        Ok(())
    } else {
        Err(CliError("a thread of the relay ended".into()))
    })
}

/// `call`: one exchange; prints the reply, or each event, on a line of its own.
pub fn call(args: &CallArgs) -> Result<(), CliError> {
    let plan = CallPlan::new(args)?;
    let failed = |error: crate::relay::RelayError| CliError(error.to_string());
    let identity = match &plan.identity {
        Some(file) => load_identity(file).map_err(|error| failed(error.into()))?,
        None => Identity::generate(&mut SystemRandom),
    };
    let mut settings = Settings::client(plan.route);
    settings.engine.cores = cores::available().into_iter().take(1).collect();
    settings.policy.document_binding = args.docbind;
    settings.observe = ObserveSettings {
        admin: None,
        log_json: false,
        log: "error".into(),
    };
    let _logs = logs::init(&settings.observe).map_err(|error| CliError(error.to_string()))?;
    let relay = Relay::start_as(settings, identity).map_err(failed)?;
    let (events, heard) = mpsc::channel();
    let (parameters, request) = (plan.parameters, plan.request);
    relay.on_unit(move |port| match port.start_call(0, &parameters, request) {
        Ok(mut call) => {
            tokio::task::spawn_local(async move {
                while let Some(event) = call.next().await {
                    if events.send(event).is_err() {
                        return;
                    }
                }
            });
        }
        Err(refusal) => drop(events.send(CallEvent::TransportError(
            crate::a2a::port::TransportError {
                code: TransportCode::NOT_DELIVERED.0,
                message: refusal.to_string(),
                timed_out: false,
            },
        ))),
    });
    let outcome = hear(&heard, plan.timeout, args.json);
    let stopped = relay.shut_down().map_err(failed);
    outcome.and(stopped)
}

fn hear(heard: &mpsc::Receiver<CallEvent>, timeout: Duration, json: bool) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    let mut line = |octets: &[u8]| {
        writeln!(stdout, "{}", one_line(octets))
            .and_then(|()| stdout.flush())
            .map_err(|error| CliError(format!("cannot print: {error}")))
    };
    let mut begun = false;
    loop {
        let event = match heard.recv_timeout(timeout) {
            Ok(event) => event,
            Err(mpsc::RecvTimeoutError::Timeout) if begun => {
                return Err(CliError(
                    "SetIncomplete: the document set is incomplete".into(),
                ));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(CliError(format!(
                    "no reply within {} s",
                    timeout.as_secs_f64()
                )));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(CliError("the exchange ended without a reply".into()));
            }
        };
        match event {
            CallEvent::Response(object) => return line(&object),
            CallEvent::DocumentBegun => begun = true,
            CallEvent::Document {
                document, proofs, ..
            } => {
                // Whoever verifies them finds them here; standard output is the document's.
                for (index, proof) in proofs.iter().enumerate() {
                    eprintln!(
                        "proof {index} ({:#06x}): {}",
                        proof.algorithm,
                        one_line(&proof.octets)
                    );
                }
                return line(&document);
            }
            CallEvent::Accepted => return Ok(()),
            CallEvent::StreamEvent { object, .. } => line(&object)?,
            CallEvent::StreamEnd { object, .. } => {
                return object.map_or(Ok(()), |object| line(&object));
            }
            CallEvent::ErrorResponse(object) | CallEvent::StreamError { object, .. } => {
                line(&object)?;
                return Err(CliError("the agent answered with an error".into()));
            }
            CallEvent::Records(records) => {
                let text = if json {
                    discover::json_lines(&records)
                } else {
                    discover::table(&records)
                };
                return text.lines().try_for_each(|text| line(text.as_bytes()));
            }
            CallEvent::DiscoveryError { code, reason } => {
                let reason = discover::plain(&reason);
                return Err(CliError(format!("{code} ({}): {reason}", code.0)));
            }
            CallEvent::TransportError(error) => {
                return Err(CliError(format!(
                    "{}: {}",
                    TransportCode(error.code).name(),
                    error.message
                )));
            }
        }
    }
}
