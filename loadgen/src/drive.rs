//! Threads around the library: one control thread for handshakes, and one
//! thread per shard with what is to be done between its turns.

use npamp_relay::engine::clock::now;
use npamp_relay::engine::control::{self, Acceptor, Command, ControlLimits, Origin, Outcome};
use npamp_relay::engine::cores;
use npamp_relay::engine::shard::{Handler, Shard, ShardStats};
use npamp_relay::engine::wake::Wake;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

/// What one round of work came to.
pub struct Pace {
    /// Something was done, so there may be more.
    pub worked: bool,
    /// When there is something to do even if nothing arrives.
    pub wake_at: Option<Instant>,
    /// There will never be more.
    pub done: bool,
}

impl Pace {
    /// There may be more to do at once.
    pub const AGAIN: Self = Self {
        worked: true,
        wake_at: None,
        done: false,
    };

    /// Nothing to do before `at` unless something arrives.
    pub fn until(at: Instant) -> Self {
        Self {
            worked: false,
            wake_at: Some(at),
            done: false,
        }
    }
}

/// What a shard thread does between turns.
pub trait Work: Handler {
    /// The control thread has news.
    fn outcome(&mut self, outcome: Outcome, shard: &mut Shard);
    /// One bounded round.
    fn work(&mut self, shard: &mut Shard) -> Pace;
}

/// The inbox of a shard thread, for the thread that fills it.
#[derive(Clone)]
pub struct Mailbox {
    sender: Sender<Outcome>,
    wake: Arc<Wake>,
}

impl Mailbox {
    /// Leaves an outcome. A thread that has ended drops it.
    pub fn leave(&self, outcome: Outcome) {
        if self.sender.send(outcome).is_ok() {
            self.wake.ring();
        }
    }

    /// Makes the thread look up.
    pub fn ring(&self) {
        self.wake.ring();
    }
}

/// A mailbox and its other end.
pub fn mailbox() -> io::Result<(Mailbox, Inbox)> {
    let (sender, outcomes) = mpsc::channel();
    let wake = Arc::new(Wake::new()?);
    Ok((
        Mailbox {
            sender,
            wake: wake.clone(),
        },
        Inbox { outcomes, wake },
    ))
}

/// What a shard thread reads.
pub struct Inbox {
    outcomes: Receiver<Outcome>,
    wake: Arc<Wake>,
}

/// Keeps the calling thread on a core. The kernel may refuse, which costs speed only.
pub fn pin(core: Option<usize>) {
    if let Some(core) = core {
        cores::pin(core);
    }
}

/// Runs `work` with a shard of its own on the calling thread until it is done.
/// With `spin` it never sleeps.
pub fn drive(work: &mut impl Work, inbox: &Inbox, spin: bool) -> io::Result<()> {
    // The default slack of 50 µs would be the generator's own lag; it stays when the kernel refuses.
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
    let mut shard = Shard::new(inbox.wake.clone(), Arc::new(ShardStats::default()))?;
    loop {
        let pace = turn(work, &mut shard, inbox)?;
        if pace.done {
            return Ok(());
        }
        if pace.worked || spin {
            continue;
        }
        inbox.wake.prepare_sleep();
        // Also submits what the last flush queued.
        let pace = turn(work, &mut shard, inbox)?;
        if !pace.worked && !pace.done {
            let due = [pace.wake_at, shard.next_timer()]
                .into_iter()
                .flatten()
                .min();
            sleep(&inbox.wake, due)?;
        }
        inbox.wake.awake();
        if pace.done {
            return Ok(());
        }
    }
}

fn turn<W: Work>(work: &mut W, shard: &mut Shard, inbox: &Inbox) -> io::Result<Pace> {
    let mut worked = false;
    while let Ok(outcome) = inbox.outcomes.try_recv() {
        worked = true;
        work.outcome(outcome, shard);
    }
    worked |= shard.turn(work)?;
    let mut pace = work.work(shard);
    pace.worked |= worked;
    shard.flush();
    Ok(pace)
}

fn sleep(wake: &Wake, due: Option<Instant>) -> io::Result<()> {
    let timeout = match due {
        Some(due) => match due.checked_duration_since(now()) {
            Some(time) => Some(Timespec::try_from(time).map_err(io::Error::other)?),
            None => return Ok(()),
        },
        None => None,
    };
    let mut doorbell = [PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)];
    match poll(&mut doorbell, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The control thread.
pub struct Control {
    /// Takes dials.
    pub commands: UnboundedSender<Command>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Control {
    /// Starts it under a name and, if asked for, on one core. What is accepted goes to `accepted` in turn,
    /// what is dialled to the unit of `dialled` that asked.
    pub fn start(
        name: &str,
        core: Option<usize>,
        acceptors: Vec<Acceptor>,
        accepted: Vec<Mailbox>,
        dialled: Vec<Mailbox>,
    ) -> io::Result<Self> {
        let (commands, inbox) = tokio::sync::mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                pin(core);
                let turn = Cell::new(0);
                let deliver = move |outcome: Outcome| {
                    let mailbox = match &outcome {
                        Outcome::Joined(handed) => match (handed.origin, handed.unit) {
                            (Origin::Accepted { .. }, _) => {
                                turn.set(turn.get() + 1);
                                accepted.get(turn.get() % accepted.len().max(1))
                            }
                            (Origin::Dialled { .. }, unit) => dialled.get(unit.unwrap_or(0)),
                        },
                        Outcome::DialFailed { unit, .. } => dialled.get(*unit),
                    };
                    if let Some(mailbox) = mailbox {
                        mailbox.leave(outcome);
                    }
                };
                control::run(
                    acceptors,
                    ControlLimits::default(),
                    inbox,
                    stopped,
                    Arc::default(),
                    Box::new(deliver),
                )
            })?;
        Ok(Self {
            commands,
            stop,
            thread,
        })
    }

    /// Ends it and waits.
    pub fn stop(self) -> io::Result<()> {
        let _ = self.stop.send(true);
        self.wait()
    }

    /// Waits until it ends by itself, which is a failure.
    pub fn wait(self) -> io::Result<()> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the control thread panicked")))
    }
}
