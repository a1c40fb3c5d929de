//! The page of one comparison, or of two.

use super::html::{behind, count, date, number, ratio, table, text};
use super::plot::{Axis, Line, Plot, percentiles, time};
use super::{Named, typed, verdict, whole};
use crate::compare::result::{Case, Comparison, Contestant, Spread};
use crate::histogram::Times;
use std::fmt::Write as _;

/// Quantiles of the table behind a plot.
const QUANTILES: [(f64, &str); 6] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (1.0, "the longest"),
];

/// The page.
pub fn page(all: &[Named<Comparison>]) -> Result<String, String> {
    let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    let title = format!("Comparison: {}", names.join(" and "));
    let mut body = format!("<h1>{}</h1>\n", text(&title));
    if let [first, second] = all {
        body += &against(&first.value, &second.value);
    }
    for (index, one) in all.iter().enumerate() {
        body += &comparison(one, all.len() > 1, index)?;
    }
    Ok(whole(&title, &body))
}

/// A median with its least and most.
fn spread(spread: &Spread) -> String {
    format!(
        "{} <span class=\"soft\">({}–{})</span>",
        number(spread.median),
        number(spread.min),
        number(spread.max)
    )
}

fn ratios(ratios: Option<&Spread>, more_is_better: bool) -> String {
    let Some(ratios) = ratios else {
        return String::new();
    };
    let class = if ratios.rounds.len() > 1 && ratios.min > 1.0 {
        if more_is_better { "good" } else { "bad" }
    } else if ratios.rounds.len() > 1 && ratios.max < 1.0 {
        if more_is_better { "bad" } else { "good" }
    } else {
        ""
    };
    format!(
        "<span class=\"{class}\">{}</span> <span class=\"soft\">({}–{})</span>",
        ratio(ratios.median),
        ratio(ratios.min),
        ratio(ratios.max)
    )
}

#[allow(clippy::cast_sign_loss)] // times are positive
fn median_time(spread: Option<&Spread>) -> String {
    spread.map_or_else(
        || "–".to_owned(),
        |spread| time(spread.median.round() as u64),
    )
}

fn comparison(one: &Named<Comparison>, several: bool, index: usize) -> Result<String, String> {
    let found = &one.value;
    let mut out = String::new();
    if several {
        let _ = writeln!(out, "<h2>{}</h2>", text(&one.name));
    }
    let machine = &found.machine;
    let _ = writeln!(
        out,
        "<p>{} cores, {}, Linux {}; {}. {} rounds of {} s in turns: medians, and in brackets the least and the most. A ratio is the subject’s figure over the other’s in the same round; coloured where every round agrees.</p>\n<pre>{}</pre>",
        machine.cores,
        text(&machine.cpu_model),
        text(&machine.kernel),
        date(found.finished_unix_s),
        found.asked.rounds,
        found.asked.duration_s,
        typed(&found.command_line),
    );
    let mut rows: Vec<Vec<String>> = found
        .programs
        .iter()
        .map(|(name, what)| vec![text(name), text(what)])
        .collect();
    rows.extend(found.skipped.iter().map(|(name, reason)| {
        vec![
            text(name),
            format!("<span class=\"bad\">skipped: {}</span>", text(reason)),
        ]
    }));
    out += &table("", &[], &rows);
    for case in &found.cases {
        out += &show(case, &format!("{index}-{}", identifier(&case.name)))?;
    }
    Ok(out)
}

/// A name of letters and digits, for the page's own use.
fn identifier(name: &str) -> String {
    name.chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect()
}

fn show(case: &Case, id: &str) -> Result<String, String> {
    let mut out = format!(
        "<h2>{}</h2>\n<p>{}</p>\n",
        text(&case.name),
        text(&case.load)
    );
    let most = case
        .contestants
        .iter()
        .map(|contestant| contestant.per_s.median)
        .fold(1.0, f64::max);
    let subject = text(&case.subject);
    let heads = [
        String::new(),
        text(&case.unit),
        String::new(),
        "p50".into(),
        "p99".into(),
        "p99.9".into(),
        format!("{subject} against it"),
        format!("{subject}’s p99.9 against it"),
        "errors".into(),
    ];
    let rows: Vec<Vec<String>> = case
        .contestants
        .iter()
        .map(|contestant| {
            let Contestant {
                per_s,
                subject_ratio,
                ..
            } = contestant;
            vec![
                text(&contestant.name),
                spread(per_s),
                format!(
                    "<svg class=\"key\" width=\"140\" height=\"12\" aria-hidden=\"true\"><rect width=\"{:.1}\" height=\"12\" style=\"fill:var(--bar)\"/></svg>",
                    140.0 * per_s.median / most
                ),
                median_time(contestant.p50_ns.as_ref()),
                median_time(contestant.p99_ns.as_ref()),
                median_time(contestant.p99_9_ns.as_ref()),
                ratios(subject_ratio.as_ref().map(|ratios| &ratios.per_s), true),
                ratios(subject_ratio.as_ref().and_then(|ratios| ratios.p99_9.as_ref()), false),
                if contestant.errors == 0 {
                    "0".into()
                } else {
                    format!(
                        "<span class=\"bad\">{}: {}</span>",
                        count(contestant.errors),
                        text(&contestant.example)
                    )
                },
            ]
        })
        .collect();
    out += &table("", &heads, &rows);
    let timed: Vec<_> = case
        .contestants
        .iter()
        .filter_map(|contestant| Some((&contestant.name, contestant.latency.as_ref()?)))
        .collect();
    if timed.is_empty() {
        return Ok(out);
    }
    let spoken: Vec<String> = timed
        .iter()
        .map(|(name, summary)| {
            format!(
                "{name}: half within {}, 99.9 % within {}",
                time(summary.p50_ns),
                time(summary.p99_9_ns)
            )
        })
        .collect();
    let figure = Plot {
        id: format!("percentiles-{id}"),
        title: "Latency by percentile, all rounds".into(),
        description: spoken.join("; "),
        x: (Axis::Percentile, "percentile"),
        y: (Axis::Time, "latency"),
        lines: timed
            .iter()
            .enumerate()
            .map(|(colour, (name, summary))| Line {
                label: (*name).clone(),
                colour,
                run: 0,
                points: percentiles(&summary.buckets),
                dots: false,
            })
            .collect(),
        mark: None,
    }
    .figure()?;
    let mut heads = vec![String::new()];
    heads.extend(timed.iter().map(|(name, _)| text(name)));
    let rows: Vec<Vec<String>> = QUANTILES
        .iter()
        .map(|(quantile, name)| {
            let mut row = vec![(*name).to_owned()];
            row.extend(timed.iter().map(|(_, summary)| {
                let mut times = Times::default();
                times.add_buckets(&summary.buckets);
                time(times.quantile_ns(*quantile))
            }));
            row
        })
        .collect();
    out += &figure;
    out += &behind("The percentiles as a table", &table("", &heads, &rows));
    Ok(out)
}

/// The second comparison against the first.
fn against(first: &Comparison, second: &Comparison) -> String {
    let mut rows = Vec::new();
    for case in &first.cases {
        let Some(other) = second.cases.iter().find(|other| other.name == case.name) else {
            continue;
        };
        for contestant in &case.contestants {
            let Some(again) = other
                .contestants
                .iter()
                .find(|again| again.name == contestant.name)
            else {
                continue;
            };
            let relative = |contestant: &Contestant| {
                contestant
                    .subject_ratio
                    .as_ref()
                    .map_or_else(String::new, |ratios| ratio(ratios.per_s.median))
            };
            rows.push(vec![
                format!("{} {}", text(&case.name), text(&contestant.name)),
                number(contestant.per_s.median),
                number(again.per_s.median),
                ratio(again.per_s.median / contestant.per_s.median),
                verdict(&contestant.per_s.rounds, &again.per_s.rounds, true),
                relative(contestant),
                relative(again),
            ]);
        }
    }
    let heads = [
        "",
        "A, a second",
        "B, a second",
        "B / A",
        "B is",
        "A: subject against it",
        "B: subject against it",
    ]
    .map(str::to_owned);
    let mut out = String::from(
        "<h2>B against A</h2>\n<p class=\"soft\">A is the first file, B the second. A difference counts where the rounds of one lie beside those of the other. What both held the subject against says whether the machine was as fast.</p>\n",
    );
    out += &table("", &heads, &rows);
    if first.machine.cpu_model != second.machine.cpu_model
        || first.machine.cores != second.machine.cores
    {
        out += "<p class=\"bad\">The comparisons are of different machines.</p>\n";
    }
    out
}
