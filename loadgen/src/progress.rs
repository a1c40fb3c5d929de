//! What the generator's thread shows of its run, and the bar that shows it on a
//! terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts that another thread may read at any time. They include the warm-up.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests sent.
    pub sent: AtomicU64,
    /// Exchanges completed.
    pub completed: AtomicU64,
    /// Errors.
    pub errors: AtomicU64,
    /// Nanoseconds since the schedule's start plus one; 0 before.
    pub elapsed: AtomicU64,
}

impl Progress {
    /// Adds one.
    pub fn count(cell: &AtomicU64, n: u64) {
        cell.fetch_add(n, Ordering::Relaxed);
    }
}

/// The bar. Draws nothing where standard error is no terminal.
pub struct Bar {
    drawn: ProgressBar,
    sent: u64,
    at: Instant,
}

impl Bar {
    /// For a schedule of `time`.
    pub fn new(time: Duration) -> Self {
        let bar = ProgressBar::new(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3}% {msg}") {
            bar.set_style(style);
        }
        bar.set_message("connecting");
        Self {
            drawn: bar,
            sent: 0,
            at: Instant::now(),
        }
    }

    /// Draws what is so now.
    pub fn draw(&mut self, progress: &Progress) {
        let elapsed = progress.elapsed.load(Ordering::Relaxed);
        if elapsed == 0 {
            self.drawn.tick();
            return;
        }
        let sent = progress.sent.load(Ordering::Relaxed);
        let seconds = self.at.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // shown rounded
        let rate = if seconds > 0.0 {
            (sent - self.sent) as f64 / seconds
        } else {
            0.0
        };
        (self.sent, self.at) = (sent, Instant::now());
        self.drawn.set_position(elapsed / 1_000_000);
        self.drawn.set_message(format!(
            "{rate:.0}/s, {sent} sent, {} completed, {} errors",
            progress.completed.load(Ordering::Relaxed),
            progress.errors.load(Ordering::Relaxed)
        ));
    }

    /// Takes it off the terminal.
    pub fn clear(self) {
        self.drawn.finish_and_clear();
    }
}
