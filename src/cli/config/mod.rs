//! The configuration file: TOML in, [`Settings`] out, and back for `check`.
//!
//! Every key is documented in `relay.example.toml`. Unknown keys are errors,
//! all problems of a file are reported together, each with its line and key,
//! and limits can only be lowered. Nothing here starts anything.

mod effective;
mod error;
pub(crate) mod files;
mod reader;
mod relations;
mod sections;
mod upstreams;
pub(crate) mod values;

pub use effective::render;
pub use error::{ConfigError, ConfigErrors};

use crate::limits;
use crate::relay::settings::Settings;
use reader::Problems;
use std::path::Path;

/// A valid configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the relay is told.
    pub settings: Settings,
    /// What is allowed but worth knowing, one sentence each.
    pub notes: Vec<String>,
    /// Every key that a configuration may hold, array indices left out (`listen[].address`).
    pub accepted_keys: Vec<String>,
}

/// Reads and checks a configuration file, the files that it names included.
/// Paths in it are relative to its directory.
pub fn load(file: &Path) -> Result<Config, ConfigErrors> {
    let text = crate::edge::files::text(file, limits::CONFIG_OCTETS_MAX).map_err(|error| {
        ConfigErrors(vec![ConfigError {
            file: file.to_path_buf(),
            line: None,
            key: String::new(),
            message: error.to_string(),
        }])
    })?;
    read(&text, file, true)
}

/// Checks the text of a configuration, but not the files that it names. `file`
/// is where it came from: errors name it, and paths are relative to its directory.
pub fn parse(text: &str, file: &Path) -> Result<Config, ConfigErrors> {
    read(text, file, false)
}

fn read(text: &str, file: &Path, with_files: bool) -> Result<Config, ConfigErrors> {
    let mut problems = Problems::new(file, text);
    let (document, syntax) = toml::de::DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        // A document that was guessed at would give rise to false complaints.
        for error in syntax {
            let offset = error.span().map_or(0, |span| span.start);
            problems.report_at(offset, "", error.message());
        }
        // What follows the first complaint of a line is mostly its echo.
        let mut errors = problems.into_sorted();
        errors.dedup_by_key(|error| error.line);
        return Err(ConfigErrors(errors));
    }
    let base = file.parent().unwrap_or_else(|| Path::new(""));
    let mut draft = sections::read(&document, base, &mut problems);
    relations::connect(&mut draft, &mut problems);
    let mut notes = relations::notes(&draft.settings);
    if with_files {
        notes.extend(files::check(&draft.files, &mut problems));
    }
    if !problems.is_empty() {
        return Err(ConfigErrors(problems.into_sorted()));
    }
    Ok(Config {
        settings: draft.settings,
        notes,
        accepted_keys: problems.accepted.into_iter().collect(),
    })
}
