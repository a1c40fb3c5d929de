//! Which cores the process may use, and pinning a thread to one.

/// Cores this process may run on, by number.
pub fn available() -> Vec<usize> {
    core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect()
}

/// Pins the calling thread. False when the kernel refuses, which costs speed only.
pub fn pin(core: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core })
}
