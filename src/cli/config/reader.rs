//! Reads typed values out of a parsed TOML document and remembers where each
//! stood, so that every complaint can name its line and its dotted key.
//!
//! It knows nothing of the relay's settings, and it never stops at the first
//! problem: whoever reads goes on and all problems are reported together.

use super::error::ConfigError;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value stood in the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct At {
    /// Octet offset in the document.
    pub offset: usize,
    /// Dotted key, array elements by index from 0.
    pub key: String,
}

/// A value and where it stood.
#[derive(Debug, Clone)]
pub(super) struct Found<T> {
    pub value: T,
    pub at: At,
}

impl<T> Found<T> {
    /// The same place with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Found<U> {
        Found {
            value: f(self.value),
            at: self.at,
        }
    }
}

/// What was found wrong so far, and which keys were asked for.
pub(super) struct Problems {
    file: PathBuf,
    line_starts: Vec<usize>,
    errors: Vec<ConfigError>,
    /// Every key that reading asked for, array indices left out (`listen[].address`).
    pub accepted: BTreeSet<String>,
}

impl Problems {
    pub fn new(file: &Path, text: &str) -> Self {
        let starts = std::iter::once(0)
            .chain(
                text.bytes()
                    .enumerate()
                    .filter_map(|(i, b)| (b == b'\n').then_some(i + 1)),
            )
            .collect();
        Self {
            file: file.to_path_buf(),
            line_starts: starts,
            errors: Vec::new(),
            accepted: BTreeSet::new(),
        }
    }

    fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset)
    }

    /// Reports a problem with the value at `at`.
    pub fn report(&mut self, at: &At, message: impl Display) {
        self.report_at(at.offset, &at.key, message);
    }

    /// Reports a problem at an octet offset; `key` may be empty.
    pub fn report_at(&mut self, offset: usize, key: &str, message: impl Display) {
        self.errors.push(ConfigError {
            file: self.file.clone(),
            line: Some(self.line(offset)),
            key: key.to_owned(),
            message: message.to_string(),
        });
    }

    /// Reports a problem with the file as a whole.
    pub fn report_file(&mut self, message: impl Display) {
        self.errors.push(ConfigError {
            file: self.file.clone(),
            line: None,
            key: String::new(),
            message: message.to_string(),
        });
    }

    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The problems in the order of their lines.
    pub fn into_sorted(mut self) -> Vec<ConfigError> {
        self.errors.sort_by_key(|e| e.line.unwrap_or(0));
        self.errors
    }
}

/// An entry of an array of strings and tables.
pub(super) enum Item<'t> {
    Text(Found<String>),
    Table(Section<'t>),
}

/// One table of the document, possibly absent, that is being read.
pub(super) struct Section<'t> {
    table: Option<&'t DeTable<'t>>,
    path: String,
    pattern: String,
    offset: usize,
    asked: Vec<&'static str>,
}

impl<'t> Section<'t> {
    /// The document itself.
    pub fn root(table: &'t Spanned<DeTable<'t>>) -> Self {
        Self {
            table: Some(table.get_ref()),
            path: String::new(),
            pattern: String::new(),
            offset: 0,
            asked: Vec::new(),
        }
    }

    /// Where the table stands; for problems of the table as a whole.
    pub fn at(&self) -> At {
        At {
            offset: self.offset,
            key: self.path.clone(),
        }
    }

    fn dotted(prefix: &str, key: &str) -> String {
        // A key that is no bare key is shown as the document must spell it.
        let bare = !key.is_empty()
            && key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        let key = if bare {
            key.to_owned()
        } else {
            format!("{key:?}")
        };
        if prefix.is_empty() {
            key
        } else {
            format!("{prefix}.{key}")
        }
    }

    fn get(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<(At, Range<usize>, &'t DeValue<'t>)> {
        self.asked.push(key);
        problems.accepted.insert(Self::dotted(&self.pattern, key));
        let (name, value) = self.table?.get_key_value(key)?;
        let at = At {
            offset: name.span().start,
            key: Self::dotted(&self.path, key),
        };
        Some((at, value.span(), value.get_ref()))
    }

    fn wrong_type(problems: &mut Problems, at: &At, wanted: &str, value: &DeValue<'_>) {
        problems.report(
            at,
            format_args!("expected {wanted}, found {}", value.type_str()),
        );
    }

    fn missing(&self, key: &str, problems: &mut Problems) {
        problems.report_at(self.offset, &Self::dotted(&self.path, key), "missing key");
    }

    /// A sub-table; absent ones read as empty.
    pub fn table(&mut self, key: &'static str, problems: &mut Problems) -> Section<'t> {
        let mut section = Section {
            table: None,
            path: Self::dotted(&self.path, key),
            pattern: Self::dotted(&self.pattern, key),
            offset: self.offset,
            asked: Vec::new(),
        };
        if let Some((at, _, value)) = self.get(key, problems) {
            section.offset = at.offset;
            match value.as_table() {
                Some(table) => section.table = Some(table),
                None => Self::wrong_type(problems, &at, &format!("a table, [{key}]"), value),
            }
        }
        section
    }

    /// An array of tables, at most `max` of them.
    pub fn tables(
        &mut self,
        key: &'static str,
        max: usize,
        problems: &mut Problems,
    ) -> Vec<Section<'t>> {
        let Some((at, _, value)) = self.get(key, problems) else {
            return Vec::new();
        };
        let Some(array) = value.as_array() else {
            Self::wrong_type(
                problems,
                &at,
                &format!("an array of tables, [[{key}]]"),
                value,
            );
            return Vec::new();
        };
        if array.len() > max {
            problems.report(
                &at,
                format_args!("{} entries, at most {max} are supported", array.len()),
            );
            return Vec::new();
        }
        let mut sections = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let path = format!("{}[{index}]", at.key);
            let offset = item.span().start;
            match item.get_ref().as_table() {
                Some(table) => sections.push(Section {
                    table: Some(table),
                    path,
                    pattern: format!("{}[]", Self::dotted(&self.pattern, key)),
                    offset,
                    asked: Vec::new(),
                }),
                None => Self::wrong_type(
                    problems,
                    &At { offset, key: path },
                    &format!("a table, [[{key}]]"),
                    item.get_ref(),
                ),
            }
        }
        sections
    }

    /// Every key of this table, whatever its name, with the array of strings that it holds.
    pub fn string_lists(
        &self,
        problems: &mut Problems,
    ) -> Vec<(Found<String>, Vec<Found<String>>)> {
        let mut lists = Vec::new();
        for (name, value) in self.table.into_iter().flatten() {
            let at = At {
                offset: name.span().start,
                key: Self::dotted(&self.path, name.get_ref()),
            };
            let items = Self::strings_of(&at, value.get_ref(), problems);
            let name = Found {
                value: name.get_ref().to_string(),
                at,
            };
            if let Some(items) = items {
                lists.push((name, items));
            }
        }
        lists
    }

    /// A string, or an array of 1 to `max` strings and tables; something must be there.
    pub fn texts_or_tables(
        &mut self,
        key: &'static str,
        max: usize,
        problems: &mut Problems,
    ) -> Vec<Item<'t>> {
        let Some((at, _, value)) = self.get(key, problems) else {
            self.missing(key, problems);
            return Vec::new();
        };
        let Some(array) = value.as_array() else {
            let text = Self::text_of(at, "a string or an array", value, problems);
            return text.map(Item::Text).into_iter().collect();
        };
        if array.is_empty() || array.len() > max {
            problems.report(
                &at,
                format_args!("{} entries, 1 to {max} are supported", array.len()),
            );
            return Vec::new();
        }
        let mut items = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let item_at = At {
                offset: item.span().start,
                key: format!("{}[{index}]", at.key),
            };
            if let Some(table) = item.get_ref().as_table() {
                items.push(Item::Table(Section {
                    table: Some(table),
                    path: item_at.key,
                    pattern: format!("{}[]", Self::dotted(&self.pattern, key)),
                    offset: item_at.offset,
                    asked: Vec::new(),
                }));
            } else {
                let text = Self::text_of(item_at, "a string or a table", item.get_ref(), problems);
                items.extend(text.map(Item::Text));
            }
        }
        items
    }

    /// A string that is not empty.
    pub fn string(&mut self, key: &'static str, problems: &mut Problems) -> Option<Found<String>> {
        let (at, _, value) = self.get(key, problems)?;
        Self::text_of(at, "a string", value, problems)
    }

    fn text_of(
        at: At,
        wanted: &str,
        value: &DeValue<'_>,
        problems: &mut Problems,
    ) -> Option<Found<String>> {
        match value.as_str() {
            Some("") => {
                problems.report(&at, "must not be empty");
                None
            }
            Some(text) if text.contains(char::is_control) => {
                problems.report(&at, "must not hold control characters");
                None
            }
            Some(text) => Some(Found {
                value: text.to_owned(),
                at,
            }),
            None => {
                Self::wrong_type(problems, &at, wanted, value);
                None
            }
        }
    }

    /// A string that must be there.
    pub fn required_string(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<Found<String>> {
        if self.has(key) {
            return self.string(key, problems);
        }
        let _ = self.get(key, problems);
        self.missing(key, problems);
        None
    }

    /// Whether the key is in the document, whatever its value.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// A path, relative ones taken from `base`.
    pub fn path(
        &mut self,
        key: &'static str,
        base: &Path,
        problems: &mut Problems,
    ) -> Option<Found<PathBuf>> {
        self.string(key, problems)
            .map(|found| found.map(|text| base.join(text)))
    }

    /// A path that must be there.
    pub fn required_path(
        &mut self,
        key: &'static str,
        base: &Path,
        problems: &mut Problems,
    ) -> Option<Found<PathBuf>> {
        self.required_string(key, problems)
            .map(|found| found.map(|text| base.join(text)))
    }

    fn strings_of(
        at: &At,
        value: &DeValue<'_>,
        problems: &mut Problems,
    ) -> Option<Vec<Found<String>>> {
        let Some(array) = value.as_array() else {
            Self::wrong_type(problems, at, "an array of strings", value);
            return None;
        };
        let mut strings = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let at = At {
                offset: item.span().start,
                key: format!("{}[{index}]", at.key),
            };
            match item.get_ref().as_str() {
                Some(text) => strings.push(Found {
                    value: text.to_owned(),
                    at,
                }),
                None => Self::wrong_type(problems, &at, "a string", item.get_ref()),
            }
        }
        Some(strings)
    }

    /// An array of strings.
    pub fn strings(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<Vec<Found<String>>> {
        let (at, _, value) = self.get(key, problems)?;
        Self::strings_of(&at, value, problems)
    }

    /// An array of strings that must be there.
    pub fn required_strings(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
    ) -> Option<Vec<Found<String>>> {
        let Some((at, _, value)) = self.get(key, problems) else {
            self.missing(key, problems);
            return None;
        };
        Self::strings_of(&at, value, problems)
    }

    /// An array of integers.
    pub fn integers(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<Vec<Found<u64>>> {
        let (at, _, value) = self.get(key, problems)?;
        let Some(array) = value.as_array() else {
            Self::wrong_type(problems, &at, "an array of integers", value);
            return None;
        };
        let mut integers = Vec::new();
        for (index, item) in array.iter().enumerate() {
            let at = At {
                offset: item.span().start,
                key: format!("{}[{index}]", at.key),
            };
            if let Some(value) = Self::integer_of(&at, item.get_ref(), range, problems) {
                integers.push(Found { value, at });
            }
        }
        Some(integers)
    }

    fn integer_of(
        at: &At,
        value: &DeValue<'_>,
        range: &RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<u64> {
        let Some(integer) = value.as_integer() else {
            Self::wrong_type(problems, at, "an integer", value);
            return None;
        };
        let wide = i128::from_str_radix(integer.as_str(), integer.radix()).ok();
        let fits = wide
            .and_then(|n| u64::try_from(n).ok())
            .filter(|n| range.contains(n));
        if fits.is_none() {
            problems.report(
                at,
                format_args!(
                    "{integer} is out of range, allowed are {} to {}",
                    range.start(),
                    range.end()
                ),
            );
        }
        fits
    }

    /// An integer within `range`.
    pub fn integer(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<Found<u64>> {
        let (at, _, value) = self.get(key, problems)?;
        Self::integer_of(&at, value, range, problems).map(|value| Found { value, at })
    }

    /// A time in seconds, whole or fractional, within `range`.
    pub fn seconds(
        &mut self,
        key: &'static str,
        range: &RangeInclusive<Duration>,
        problems: &mut Problems,
    ) -> Option<Found<Duration>> {
        let (at, _, value) = self.get(key, problems)?;
        let seconds = match value {
            DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
                .ok()
                .and_then(|n| u64::try_from(n).ok())
                .map(Duration::from_secs),
            DeValue::Float(float) => {
                let seconds = float.as_str().parse::<f64>().ok();
                seconds.and_then(|s| Duration::try_from_secs_f64(s).ok())
            }
            other => {
                Self::wrong_type(problems, &at, "a number of seconds", other);
                return None;
            }
        };
        if let Some(value) = seconds.filter(|s| range.contains(s)) {
            return Some(Found { value, at });
        }
        problems.report(
            &at,
            format_args!(
                "out of range, allowed are {} to {} seconds",
                range.start().as_secs_f64(),
                range.end().as_secs_f64()
            ),
        );
        None
    }

    /// True or false.
    pub fn boolean(&mut self, key: &'static str, problems: &mut Problems) -> Option<Found<bool>> {
        let (at, _, value) = self.get(key, problems)?;
        let Some(value) = value.as_bool() else {
            Self::wrong_type(problems, &at, "true or false", value);
            return None;
        };
        Some(Found { value, at })
    }

    /// One of a few words, each with its meaning.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        problems: &mut Problems,
    ) -> Option<Found<T>> {
        let found = self.string(key, problems)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == found.value) {
            return Some(Found {
                value: *value,
                at: found.at,
            });
        }
        problems.report(
            &found.at,
            unknown_word(&found.value, choices.iter().map(|c| c.0)),
        );
        None
    }

    /// Reports every key that nobody asked for.
    pub fn finish(self, problems: &mut Problems) {
        for name in self.table.into_iter().flat_map(|table| table.keys()) {
            if self.asked.contains(&name.get_ref().as_ref()) {
                continue;
            }
            let message = format!("unknown key, known here are {}", self.asked.join(", "));
            problems.report_at(
                name.span().start,
                &Self::dotted(&self.path, name.get_ref()),
                message,
            );
        }
    }
}

/// Complains of a word that is none of `known`.
pub(super) fn unknown_word<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<String> = known.map(|word| format!("{word:?}")).collect();
    format!("{word:?} is not one of {}", known.join(", "))
}
