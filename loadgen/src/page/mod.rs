//! `report`: what one run or two found, as one page that needs nothing else: no
//! script, no font, no picture of another file.

mod comparisons;
mod html;
mod plot;
mod runs;

use crate::compare::result::{self, Comparison};
use crate::report::{self, Report};
use clap::Args;
use html::text;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Octets of a file that is read.
const FILE_OCTETS_MAX: u64 = 256 * 1024 * 1024;

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(
    after_help = "Takes what `run --json` or `compare --json` wrote, one file, or two of the same kind to hold the second against the first."
)]
pub struct PageArguments {
    /// JSON files, one or two
    #[arg(required = true, num_args = 1..=2, value_name = "JSON")]
    pub files: Vec<PathBuf>,
    /// Where the page goes; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
}

/// What a file holds.
enum Found {
    Run(Box<Report>),
    Comparison(Box<Comparison>),
}

/// A file's name and content.
struct Named<T> {
    name: String,
    value: T,
}

fn read(path: &Path) -> Result<Found, String> {
    let refuse = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
    let mut octets = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_OCTETS_MAX + 1).read_to_end(&mut octets))
        .map_err(|error| refuse(&error))?;
    if octets.len() as u64 > FILE_OCTETS_MAX {
        return Err(refuse(&format!(
            "it is longer than {FILE_OCTETS_MAX} octets"
        )));
    }
    let value: serde_json::Value = serde_json::from_slice(&octets)
        .map_err(|error| format!("{} is not JSON: {error}", path.display()))?;
    let schema = value["schema"].as_str().unwrap_or_default().to_owned();
    let wrong =
        |error: serde_json::Error| format!("{} is not what {schema} says: {error}", path.display());
    if schema == report::SCHEMA {
        serde_json::from_value(value)
            .map(|run| Found::Run(Box::new(run)))
            .map_err(wrong)
    } else if schema == result::SCHEMA {
        serde_json::from_value(value)
            .map(|comparison| Found::Comparison(Box::new(comparison)))
            .map_err(wrong)
    } else if schema.is_empty() {
        Err(format!(
            "{} has no schema: no report of this program",
            path.display()
        ))
    } else {
        Err(format!(
            "{} has the schema {schema:?}; {} and {} are known",
            path.display(),
            report::SCHEMA,
            result::SCHEMA
        ))
    }
}

/// Makes the page.
pub fn page(arguments: &PageArguments) -> Result<bool, Box<dyn Error>> {
    let (mut all_runs, mut all_comparisons) = (Vec::new(), Vec::new());
    for path in &arguments.files {
        let name = path.file_name().unwrap_or(path.as_os_str());
        let name = name.to_string_lossy().into_owned();
        match read(path)? {
            Found::Run(value) => all_runs.push(Named {
                name,
                value: *value,
            }),
            Found::Comparison(value) => all_comparisons.push(Named {
                name,
                value: *value,
            }),
        }
    }
    let page = match (all_runs.is_empty(), all_comparisons.is_empty()) {
        (false, true) => runs::page(&all_runs)?,
        (true, false) => comparisons::page(&all_comparisons)?,
        _ => return Err("a run and a comparison cannot be held against each other".into()),
    };
    if arguments.out.as_os_str() == "-" {
        io::stdout().write_all(page.as_bytes())?;
        return Ok(true);
    }
    std::fs::write(&arguments.out, page)
        .map_err(|error| format!("cannot write {}: {error}", arguments.out.display()))?;
    println!("{}", arguments.out.display());
    Ok(true)
}

/// The whole page around its body.
fn whole(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        text(title),
        include_str!("style.css"),
        plot::style(),
    )
}

/// A command line as somebody would type it.
fn typed(command_line: &[String]) -> String {
    let words: Vec<String> = command_line
        .iter()
        .enumerate()
        .map(|(index, word)| {
            // Where the program lay says nothing.
            let word = if index == 0 {
                word.rsplit('/').next().unwrap_or(word)
            } else {
                word
            };
            let plain = |character: char| {
                character.is_ascii_alphanumeric() || "-_./:=,@%+[]".contains(character)
            };
            if !word.is_empty() && word.chars().all(plain) {
                word.to_owned()
            } else {
                format!("'{}'", word.replace('\'', r"'\''"))
            }
        })
        .collect();
    text(words.join(" "))
}

/// Whether two sets of values differ by more than each of them varies: the middle
/// nine tenths of one lie wholly beside those of the other.
fn verdict(first: &[f64], second: &[f64], more_is_better: bool) -> String {
    /// Fewer values say nothing of how they vary.
    const VALUES_MIN: usize = 4;
    let middle = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let cut = sorted.len() / 20;
        (sorted[cut], sorted[sorted.len() - 1 - cut])
    };
    if first.len() < VALUES_MIN || second.len() < VALUES_MIN {
        return "<span class=\"soft\">too few values to tell</span>".into();
    }
    let (a, b) = (middle(first), middle(second));
    let more = b.0 > a.1;
    if !more && b.1 >= a.0 {
        return "<span class=\"soft\">within the noise</span>".into();
    }
    let word = if more { "more" } else { "less" };
    let class = if more == more_is_better {
        "good"
    } else {
        "bad"
    };
    format!("<span class=\"{class}\">{word}</span>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let steady = |value: f64| -> Vec<f64> { (0..10).map(|n| value + f64::from(n)).collect() };
        assert!(verdict(&steady(100.0), &steady(105.0), true).contains("within the noise"));
        assert!(verdict(&steady(100.0), &steady(200.0), true).contains("\"good\">more"));
        assert!(verdict(&steady(200.0), &steady(100.0), true).contains("\"bad\">less"));
        assert!(verdict(&steady(100.0), &steady(200.0), false).contains("\"bad\">more"));
        assert!(verdict(&[1.0], &steady(1.0), true).contains("too few"));
    }

    #[test]
    fn command_lines_can_be_typed() {
        let words = ["/some/where/npamp-loadgen", "run", "a b", "it's", "<x>"];
        assert_eq!(
            typed(&words.map(str::to_owned)),
            "npamp-loadgen run &#39;a b&#39; &#39;it&#39;\\&#39;&#39;s&#39; &#39;&lt;x&gt;&#39;"
        );
    }
}
