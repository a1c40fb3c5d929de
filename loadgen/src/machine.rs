//! The machine a report was made on.

use serde::{Deserialize, Serialize};
use std::fs;

/// What a reader must know to compare figures.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Cores this process may use.
    pub cores: usize,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Kernel release.
    pub kernel: String,
    /// Memory in octets, 0 when unknown.
    pub memory_octets: u64,
}

impl Machine {
    /// Reads `/proc`; what it does not say is empty.
    pub fn read() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu_model: field(&cpu, "model name").unwrap_or_default().to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            memory_octets: field(&memory, "MemTotal")
                .and_then(|value| value.strip_suffix(" kB")?.trim().parse::<u64>().ok())
                .map_or(0, |kibibytes| kibibytes * 1024),
        }
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields() {
        let text = "processor\t: 0\nmodel name\t: Some CPU: fast\nMemTotal:        1024 kB\n";
        assert_eq!(field(text, "model name"), Some("Some CPU: fast"));
        assert_eq!(field(text, "MemTotal"), Some("1024 kB"));
        assert_eq!(field(text, "absent"), None);
    }

    #[test]
    fn this_machine() {
        let machine = Machine::read();
        assert!(
            machine.cores > 0 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
    }
}
