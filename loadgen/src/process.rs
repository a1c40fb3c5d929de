//! What `/proc` says of a process: resident memory, and the CPU time of its threads.

use std::collections::BTreeMap;
use std::fs;

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// This one.
    Own,
    /// Another one, by its number.
    Other(u32),
}

impl Process {
    fn path(self) -> String {
        match self {
            Self::Own => "/proc/self".into(),
            Self::Other(id) => format!("/proc/{id}"),
        }
    }

    /// Resident memory in octets; none when the process is gone.
    pub fn rss_octets(self) -> Option<u64> {
        let status = fs::read_to_string(format!("{}/status", self.path())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kibibytes * 1024)
    }

    /// CPU time of every thread alive, by number: its name and nanoseconds on a CPU.
    pub fn threads(self) -> BTreeMap<u32, (String, u64)> {
        let Ok(entries) = fs::read_dir(format!("{}/task", self.path())) else {
            return BTreeMap::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let id = entry.file_name().to_str()?.parse().ok()?;
                let name = fs::read_to_string(entry.path().join("comm")).ok()?;
                let times = fs::read_to_string(entry.path().join("schedstat")).ok()?;
                let on_cpu = times.split_whitespace().next()?.parse().ok()?;
                Some((id, (name.trim().to_owned(), on_cpu)))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process() {
        assert!(Process::Own.rss_octets().unwrap() > 100_000);
        let id = std::process::id();
        assert!(Process::Other(id).rss_octets().is_some());
        let threads = Process::Own.threads();
        assert!(threads.values().any(|(_, on_cpu)| *on_cpu > 0));
        assert!(!threads[&id].0.is_empty());
    }

    #[test]
    fn no_process() {
        let none = Process::Other(u32::MAX);
        assert_eq!(none.rss_octets(), None);
        assert!(none.threads().is_empty());
    }
}
