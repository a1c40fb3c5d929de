//! What stays over all measurements of one command: whom to dial, and the
//! responder in this process if there is one. Each measurement dials anew.

use crate::args::{RunArguments, Scenario};
use crate::connector::Connector;
use crate::dialler::{Dialler, Target};
use crate::drive::{self, Control, Mailbox};
use crate::files;
use crate::gate::Gate;
use crate::generator::{Generator, Holder, Plan};
use crate::heap;
use crate::measurement::Measurement;
use crate::observer::{Observation, Observer};
use crate::progress::Progress;
use crate::respond::{self, Pool};
use crate::schedule::Share;
use crate::trust::{self, Certificate};
use npamp_relay::crypto::Identity;
use npamp_relay::engine::clock::SystemRandom;
use npamp_relay::engine::cores;
use npamp_relay::handshake::PeerPolicy;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// One load to make.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests per second.
    pub rate: f64,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
}

/// See the module.
pub struct Session<'a> {
    pub arguments: &'a RunArguments,
    pub target: Arc<Target>,
    /// Cores of the generator's threads; none when they may move.
    cores: Vec<usize>,
    own: Option<(Pool, Control)>,
    /// The user has seen enough.
    interrupt: Arc<AtomicBool>,
}

impl<'a> Session<'a> {
    /// Reads what must be read, and starts the responder if it is ours.
    pub fn start(arguments: &'a RunArguments) -> Result<Self, Box<dyn Error>> {
        let interrupt = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second one ends the process at once.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                interrupt.clone(),
            )?;
            signal_hook::flag::register(signal, interrupt.clone())?;
        }
        let identity = trust::identity(arguments.identity.as_deref())?;
        let server_name = arguments.link_name();
        let sources = arguments.sources.clone();
        if arguments.scenario == Scenario::Idle {
            heap::one_arena();
            files::make_room(arguments.idle, arguments.is_self())?;
        }
        if !arguments.is_self() {
            return Ok(Self {
                arguments,
                target: Arc::new(Target {
                    upstream: arguments.target.clone().unwrap_or_default(),
                    server_name,
                    tls: trust::client(arguments.pinned, arguments.tls_ca.as_deref())?,
                    peer: arguments.peer,
                    identity,
                    sources,
                }),
                cores: Vec::new(),
                own: None,
                interrupt,
            });
        }
        let (near, far) = apart(arguments);
        let responder = Arc::new(Identity::generate(&mut SystemRandom));
        let certificate = Certificate::generate()?;
        let tls = certificate.client()?;
        let peers = PeerPolicy::only(identity.public());
        let listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        let (address, acceptor) = respond::acceptor(listen, responder.clone(), peers, certificate)?;
        let pool = Pool::start(&arguments.replies, &far)?;
        let control = Control::start(
            "responder-ctl",
            far.first().copied(),
            vec![acceptor],
            pool.mailboxes.clone(),
            Vec::new(),
        )?;
        Ok(Self {
            arguments,
            target: Arc::new(Target {
                upstream: address.to_string(),
                server_name,
                tls,
                peer: Some(responder.public()),
                identity,
                sources,
            }),
            cores: near,
            own: Some((pool, control)),
            interrupt,
        })
    }

    /// Whether the user has seen enough.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    /// Ends the responder.
    pub fn stop(self) -> io::Result<()> {
        if let Some((pool, control)) = self.own {
            control.stop()?;
            pool.stop()?;
        }
        Ok(())
    }

    fn core(&self, index: usize) -> Option<usize> {
        self.cores.get(index % self.cores.len().max(1)).copied()
    }

    /// Makes a load and measures it.
    pub fn measure(&self, load: Load) -> Result<(Measurement, Observation), Box<dyn Error>> {
        let arguments = self.arguments;
        let threads = arguments.threads as usize;
        let gate = Arc::new(Gate::new(
            threads,
            arguments.process(),
            self.interrupt.clone(),
        ));
        let progress = Arc::new(Progress::default());
        let (mut mailboxes, mut inboxes) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (mailbox, inbox) = drive::mailbox()?;
            mailboxes.push(mailbox);
            inboxes.push(inbox);
        }
        let control = Control::start(
            "generator-ctl",
            self.core(0),
            Vec::new(),
            Vec::<Mailbox>::new(),
            mailboxes,
        )?;
        let connections = usize::try_from(arguments.lines())?;
        let dialler = |unit| Dialler::new(self.target.clone(), control.commands.clone(), unit);
        for (token, unit) in (0..arguments.lines()).zip((0..threads).cycle()) {
            if !dialler(unit).dial(token, token) {
                return Err("the control thread ended".into());
            }
        }
        let (result, results) = mpsc::channel();
        // Threads stay until the observer has read their CPU time.
        let (mut handles, mut holds) = (Vec::new(), Vec::new());
        for (index, inbox) in inboxes.into_iter().enumerate() {
            let plan = Plan {
                mix: arguments.mix(),
                arrivals: arguments.arrivals,
                rate: load.rate,
                share: Share {
                    index: u32::try_from(index)?,
                    of: arguments.threads,
                },
                warmup: load.warmup,
                duration: load.duration,
                seed: arguments.seed,
                connections: part(connections, threads, index),
                concurrency_max: part(arguments.concurrency_max, threads, index),
                payload: usize::try_from(arguments.payload)?,
                bulk_payload: usize::try_from(arguments.bulk_payload)?,
                timeout: arguments.timeout,
                lag_max: arguments.lag_max,
                target: format!("npamp://{}", self.target.upstream),
                identity: self.target.identity.public().to_string(),
            };
            let (gate, progress) = (gate.clone(), progress.clone());
            let (result, core, spin) = (result.clone(), self.core(index), arguments.spin);
            let (hold, release) = mpsc::channel::<()>();
            holds.push(hold);
            let (dialler, connects) = (dialler(index), arguments.scenario == Scenario::Connect);
            let exchange = arguments.exchange;
            let idle = usize::try_from(arguments.held())?;
            let held = part(idle, threads, index) as u64;
            let before: usize = (0..index).map(|index| part(idle, threads, index)).sum();
            let first = arguments.lines() + before as u64;
            #[allow(clippy::cast_precision_loss)] // a rate
            let open_rate = arguments.open_rate / threads as f64;
            let thread = std::thread::Builder::new()
                .name(format!("generator-{index}"))
                .spawn(move || {
                    drive::pin(core);
                    let measured = if connects {
                        let mut connector =
                            Connector::new(plan, dialler, exchange, gate.clone(), progress);
                        let ended = drive::drive(&mut connector, &inbox, spin);
                        ended.map(|()| connector.measurement)
                    } else {
                        let holder = Holder::new(dialler, held, first, open_rate);
                        let mut generator =
                            Generator::new(plan, Some(holder), gate.clone(), progress);
                        let ended = drive::drive(&mut generator, &inbox, spin);
                        ended.map(|()| generator.measurement)
                    };
                    if measured.is_err() {
                        gate.fail();
                    }
                    let _ = result.send(measured);
                    // Ends when the other end is dropped.
                    let _ = release.recv();
                })?;
            handles.push(thread);
        }
        drop(result);
        let observer = Observer::new(arguments.process(), load, &gate, &progress);
        let measured = observer.watch(&results, threads);
        drop(holds);
        for thread in handles {
            let _ = thread.join();
        }
        control.stop()?;
        Ok(measured?)
    }
}

/// The `index`th of `of` parts of `whole`.
fn part(whole: usize, of: usize, index: usize) -> usize {
    whole / of + usize::from(index < whole % of)
}

/// Cores for the generator and for the responder in this process, apart from one another; none when
/// there is only one or pinning is not wanted.
fn apart(arguments: &RunArguments) -> (Vec<usize>, Vec<usize>) {
    let mut near = cores::available();
    if arguments.no_pin || near.len() < 2 {
        return (Vec::new(), Vec::new());
    }
    let responders = arguments.replies.responder_threads as usize;
    let far = near.split_off(near.len() - responders.clamp(1, near.len() - 1));
    (near, far)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_the_whole() {
        let parts: Vec<usize> = (0..3).map(|index| part(11, 3, index)).collect();
        assert_eq!(parts, [4, 4, 3]);
    }
}
