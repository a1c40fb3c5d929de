//! Waiting until a time to the microsecond, which the timers of the runtime,
//! that count milliseconds, do not.

use npamp_relay::engine::clock::now;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;
use tokio::io::unix::AsyncFd;

/// A timer. Must be made inside a runtime.
pub struct Pace(AsyncFd<OwnedFd>);

impl Pace {
    /// A new one.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // What it is deprecated for cannot be here: an `OwnedFd` keeps its number as long as it lives.
        #[allow(deprecated)]
        let timer = AsyncFd::new(timer)?;
        Ok(Self(timer))
    }

    /// Sleeps until `at`.
    pub async fn until(&self, at: Instant) -> io::Result<()> {
        let Some(time) = at
            .checked_duration_since(now())
            .filter(|time| !time.is_zero())
        else {
            return Ok(());
        };
        let value = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec::try_from(time).map_err(io::Error::other)?,
        };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &value)?;
        let mut ready = self.0.readable().await?;
        // Setting it again clears the expiry; only the readiness is left to forget.
        ready.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_waits_and_no_shorter() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pace = Pace::new().unwrap();
            for micros in [0, 200, 3000] {
                let due = now() + Duration::from_micros(micros);
                pace.until(due).await.unwrap();
                assert!(now() >= due);
            }
        });
    }
}
