//! `check`: validates a configuration with the files that it names, and prints
//! what it amounts to. No secret is printed, because none is kept.

use super::config::{self, Config, ConfigErrors};
use crate::relay::settings::Settings;
use std::fmt::Write;
use std::path::Path;

/// Validates `file`; gives what to print.
pub(crate) fn check(file: &Path) -> Result<String, ConfigErrors> {
    config::load(file).map(|config| report(&config, file))
}

fn report(config: &Config, file: &Path) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(text, "# {}: valid", file.display());
    let _ = writeln!(text, "# aead: {}", config.settings.engine.aead.resolved());
    let _ = writeln!(text, "# cores: {}", cores(&config.settings));
    for note in &config.notes {
        let _ = writeln!(text, "# note: {note}");
    }
    let _ = writeln!(text, "\n{}", config::render(&config.settings).trim_end());
    text
}

/// The cores that units will be pinned to.
fn cores(settings: &Settings) -> String {
    let usable: Vec<usize> = core_affinity::get_core_ids()
        .unwrap_or_default()
        .into_iter()
        .map(|core| core.id)
        .collect();
    let list = |cores: &[usize]| {
        let words: Vec<String> = cores.iter().map(ToString::to_string).collect();
        words.join(", ")
    };
    let configured = &settings.engine.cores;
    if configured.is_empty() {
        return format!("{} (every core this process may use)", list(&usable));
    }
    let missing: Vec<usize> = configured
        .iter()
        .copied()
        .filter(|core| !usable.contains(core))
        .collect();
    if missing.is_empty() {
        format!("{}, as configured", list(configured))
    } else {
        format!(
            "{}, as configured, but this process may not use {}",
            list(configured),
            list(&missing)
        )
    }
}
