//! Figures of the process itself, read from `/proc` on every scrape: resident
//! memory, open descriptors, processor seconds, threads and start time. A figure
//! that cannot be read is shown as NaN, never as a made-up zero.
#![allow(
    clippy::disallowed_methods,
    reason = "the figures of this process include its age"
)]

use super::metrics::{NamingError, Registry};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Resident memory in octets.
pub fn resident_octets() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status_field(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024)
}

/// Threads of the process.
pub fn threads() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status_field(&status, "Threads:")
}

/// Open descriptors, the one that counts them left out.
pub fn open_descriptors() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    Some((entries.count() as u64).saturating_sub(1))
}

/// Processor time of all threads, user and system, in seconds.
#[allow(clippy::cast_precision_loss)] // exact up to 2^53
pub fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let [user, system] = stat_fields(&stat, [14, 15])?;
    Some((user + system) as f64 / ticks_per_second())
}

/// Start of the process as seconds since 1970.
#[allow(clippy::cast_precision_loss)] // exact up to 2^53
pub fn start_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let [ticks_after_boot] = stat_fields(&stat, [22])?;
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()?
        .as_secs_f64();
    Some(now - uptime + ticks_after_boot as f64 / ticks_per_second())
}

/// Linux fixes the unit of `/proc/PID/stat` at 100 ticks a second on every
/// architecture that the relay is built for (`USER_HZ`).
const fn ticks_per_second() -> f64 {
    100.0
}

fn status_field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields of `/proc/PID/stat` by their number in proc(5), from 3 on; the second
/// one, the command's name, may hold anything, so counting starts behind it.
fn stat_fields<const N: usize>(stat: &str, numbers: [usize; N]) -> Option<[u64; N]> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let mut values = [0; N];
    for (value, number) in values.iter_mut().zip(numbers) {
        *value = fields.get(number.checked_sub(3)?)?.parse().ok()?;
    }
    Some(values)
}

#[allow(clippy::cast_precision_loss)] // exact up to 2^53
fn shown(value: Option<u64>) -> f64 {
    value.map_or(f64::NAN, |value| value as f64)
}

/// Adds the process figures to a metric table.
pub fn register(registry: &Registry) -> Result<(), NamingError> {
    registry.gauge(
        "process_resident_memory_octets",
        "Resident memory of the process",
        || shown(resident_octets()),
    )?;
    registry.gauge(
        "process_open_descriptors",
        "Open file descriptors of the process",
        || shown(open_descriptors()),
    )?;
    registry.gauge("process_threads", "Threads of the process", || {
        shown(threads())
    })?;
    registry.counter_fractional(
        "process_processor_seconds",
        "User and system processor time of the process",
        || processor_seconds().unwrap_or(f64::NAN),
    )?;
    registry.counter(
        "log_lines_dropped",
        "Log lines dropped because the reader of the log was too slow",
        super::logs::dropped_lines,
    )?;
    let start = start_seconds().unwrap_or(f64::NAN);
    registry.gauge(
        "process_start_time_seconds",
        "Start of the process in seconds since 1970",
        move || start,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_strange_command_name() {
        let stat = "1 (a ) b) S 1 1 1 0 -1 4194560 1 2 3 4 55 66 0 0 20 0 7 0 888 9 9";
        assert_eq!(stat_fields(stat, [14, 15, 20, 22]), Some([55, 66, 7, 888]));
        assert_eq!(stat_fields(stat, [99]), None);
        assert_eq!(stat_fields("nonsense", [14]), None);
    }

    #[test]
    fn figures_are_plausible() {
        assert!(resident_octets().unwrap() > 100 * 1024);
        let before = open_descriptors().unwrap();
        let file = fs::File::open("/proc/self/status").unwrap();
        // Other tests open files at the same time, so only the bound is sure.
        assert!(open_descriptors().unwrap() >= 3);
        assert!(before >= 3);
        drop(file);
        assert!(processor_seconds().unwrap() >= 0.0);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs_f64();
        let age = now - start_seconds().unwrap();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(threads().unwrap() >= 1);
    }

    #[test]
    fn registers_lawfully() {
        let registry = Registry::new();
        register(&registry).unwrap();
        let text = registry.render();
        assert!(
            text.contains("npamp_relay_process_processor_seconds_total "),
            "{text}"
        );
        assert!(
            text.contains("npamp_relay_process_resident_memory_octets "),
            "{text}"
        );
    }
}
