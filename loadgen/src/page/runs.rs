//! The page of one run, or of two.

use super::html::{behind, count, date, number, ratio, table, text};
use super::plot::{Axis, Line, Plot, cumulative, percentiles, time};
use super::{Named, typed, verdict, whole};
use crate::args::Scenario;
use crate::histogram::{Summary, Times};
use crate::report::{Point, Report, Second, Sweep};
use std::fmt::Write as _;

/// Quantiles of the table behind the plots.
const QUANTILES: [(f64, &str); 10] = [
    (0.25, "25 %"),
    (0.5, "50 %"),
    (0.75, "75 %"),
    (0.9, "90 %"),
    (0.95, "95 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (0.99999, "99.999 %"),
    (1.0, "the longest"),
];

/// Seconds of a table at most; longer runs are shown in steps.
const ROWS_MAX: usize = 120;

fn label(latency: &str) -> String {
    latency.replace('_', " ")
}

/// The letter that stands for a run.
fn letter(run: usize) -> &'static str {
    if run == 0 { "A" } else { "B" }
}

/// What a line is called, with the run's letter where there are two.
fn named(runs: &[Named<Report>], run: usize, name: &str) -> String {
    if runs.len() == 1 {
        name.to_owned()
    } else {
        format!("{} {name}", letter(run))
    }
}

/// The page.
pub fn page(runs: &[Named<Report>]) -> Result<String, String> {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = format!("Load: {}", names.join(" and "));
    let mut body = format!("<h1>{}</h1>\n", text(&title));
    body += &head(runs);
    if runs.len() == 2 {
        body += &held_against(runs);
    }
    body += &sweep(runs)?;
    body += &over_time(runs)?;
    body += &latency(runs)?;
    body += &generator(runs);
    body += &errors(runs);
    body += &made_by(runs);
    Ok(whole(&title, &body))
}

#[allow(clippy::cast_precision_loss)] // shown rounded
fn head(runs: &[Named<Report>]) -> String {
    let mut heads = vec![String::new()];
    heads.extend(runs.iter().enumerate().map(|(index, run)| {
        if runs.len() == 1 {
            text(&run.name)
        } else {
            format!("{}: {}", letter(index), text(&run.name))
        }
    }));
    let mut rows = Vec::new();
    let mut row = |name: &str, cell: &dyn Fn(&Report) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(runs.iter().map(|run| cell(&run.value)));
        rows.push(cells);
    };
    row("scenario", &|run| {
        format!("{:?}", run.asked.scenario).to_lowercase()
    });
    row("to", &|run| {
        if run.in_process {
            "built-in responder".into()
        } else {
            text(&run.target)
        }
    });
    row("asked", &|run| {
        format!(
            "{}/s for {} s",
            number(run.asked.rate_per_s),
            run.asked.duration_s
        )
    });
    row("completed", &|run| {
        format!("{}/s", number(run.rates.completed_per_s))
    });
    if runs.iter().any(|run| run.value.counts.events > 0) {
        row("events", &|run| {
            format!("{}/s", number(run.rates.events_per_s))
        });
    }
    row("received", &|run| {
        format!("{:.2} MB/s", run.rates.octets_received_per_s / 1e6)
    });
    row("connections", &|run| count(run.asked.connections));
    row("errors", &|run| {
        let class = if run.counts.errors == 0 {
            "good"
        } else {
            "bad"
        };
        format!(
            "<span class=\"{class}\">{}</span>",
            count(run.counts.errors)
        )
    });
    row("finished", &|run| date(run.finished_unix_s));
    let mut out = table("", &heads, &rows);
    for (index, run) in runs.iter().enumerate() {
        if let Some(reason) = &run.value.aborted {
            let _ = writeln!(
                out,
                "<p class=\"bad\">{} ended early: {}</p>",
                text(named(runs, index, "The run").trim()),
                text(reason)
            );
        }
        if run.value.generator_bound {
            let _ = writeln!(
                out,
                "<p class=\"bad\">{}: the generator was too late too often. The figures are its own limit.</p>",
                text(named(runs, index, "the run").trim()),
            );
        }
    }
    out
}

/// A quantile's name, where a whole run has it and where a second has it.
type Quantile = (
    &'static str,
    fn(&Summary) -> u64,
    Option<fn(&Second) -> u64>,
);
/// A quantile's name and where a step of a sweep has it.
type StepQuantile = (&'static str, fn(&Point) -> u64);
/// Makes a line of a histogram.
type Points = fn(&[(u64, u64)]) -> Vec<(f64, f64)>;
/// A value of a second, when there is one.
type OfSecond<'a> = &'a dyn Fn(&Second) -> Option<u64>;

/// Seconds that are whole: the last one may be shorter.
#[allow(clippy::cast_precision_loss)] // few
fn seconds(run: &Report) -> &[Second] {
    let whole = run.rates.time_s.floor();
    let whole = (0..run.series.len())
        .take_while(|&second| second as f64 + 1.0 <= whole)
        .count();
    &run.series[..whole]
}

#[allow(clippy::cast_precision_loss)] // shown rounded
fn held_against(runs: &[Named<Report>]) -> String {
    let [first, second] = runs else {
        return String::new();
    };
    let (a, b) = (&first.value, &second.value);
    let mut rows = Vec::new();
    let per_second = |run: &Report, value: &dyn Fn(&Second) -> u64| -> Vec<f64> {
        seconds(run)
            .iter()
            .map(|second| value(second) as f64)
            .filter(|value| *value > 0.0)
            .collect()
    };
    let mut rate = |name: &str, of: &dyn Fn(&Report) -> f64, each: &dyn Fn(&Second) -> u64| {
        rows.push(vec![
            name.to_owned(),
            number(of(a)),
            number(of(b)),
            ratio(of(b) / of(a)),
            verdict(&per_second(a, each), &per_second(b, each), true),
        ]);
    };
    rate("completed/s", &|run| run.rates.completed_per_s, &|second| {
        second.completed
    });
    if a.counts.events + b.counts.events > 0 {
        rate("events/s", &|run| run.rates.events_per_s, &|second| {
            second.events
        });
    }
    // The seconds know what completed: the reply, or the end of the stream.
    let completion = |run: &Report| {
        run.latency
            .iter()
            .find(|(name, _)| name.as_str() == "reply" || name.as_str() == "stream_end")
            .map(|(name, _)| name.clone())
    };
    let of_seconds = completion(a);
    for (name, summary) in &a.latency {
        let Some(other) = b.latency.get(name) else {
            continue;
        };
        let known = of_seconds.as_ref() == Some(name);
        let quantiles: [Quantile; 4] = [
            (
                "p50",
                |summary| summary.p50_ns,
                Some(|second| second.p50_ns),
            ),
            (
                "p99",
                |summary| summary.p99_ns,
                Some(|second| second.p99_ns),
            ),
            ("p99.9", |summary| summary.p99_9_ns, None),
            (
                "longest",
                |summary| summary.max_ns,
                Some(|second| second.max_ns),
            ),
        ];
        for (quantile, of, each) in quantiles {
            let judged = match each.filter(|_| known) {
                Some(each) => verdict(&per_second(a, &each), &per_second(b, &each), false),
                None => "<span class=\"soft\">not known by second</span>".into(),
            };
            rows.push(vec![
                format!("{} {quantile}", text(label(name))),
                time(of(summary)),
                time(of(other)),
                ratio(of(other) as f64 / of(summary) as f64),
                judged,
            ]);
        }
    }
    let heads = ["", "A", "B", "B / A", "B is"].map(str::to_owned);
    let mut out = String::from(
        "<h2>B against A</h2>\n<p class=\"soft\">A difference counts where the middle nine tenths of one run’s seconds lie beside those of the other’s.</p>\n",
    );
    out += &table("", &heads, &rows);
    if a.asked.scenario != b.asked.scenario {
        out += "<p class=\"bad\">The runs are of different scenarios.</p>\n";
    }
    if a.machine.cpu_model != b.machine.cpu_model || a.machine.cores != b.machine.cores {
        out += "<p class=\"bad\">The runs are of different machines.</p>\n";
    }
    out
}

#[allow(clippy::cast_precision_loss)] // drawn
fn over_time(runs: &[Named<Report>]) -> Result<String, String> {
    if runs.iter().all(|run| seconds(&run.value).len() < 2) {
        return Ok(String::new());
    }
    let line =
        |run: usize, name: &str, colour: usize, value: &dyn Fn(&Second) -> Option<u64>| Line {
            label: named(runs, run, name),
            colour,
            run,
            points: seconds(&runs[run].value)
                .iter()
                .filter_map(|second| Some((second.second as f64, value(second)? as f64)))
                .collect(),
            dots: false,
        };
    let every = |lines: &[(&str, OfSecond<'_>)]| -> Vec<Line> {
        (0..runs.len())
            .flat_map(|run| {
                lines
                    .iter()
                    .enumerate()
                    .map(move |(colour, (name, value))| (run, *name, colour, *value))
            })
            .map(|(run, name, colour, value)| line(run, name, colour, value))
            .collect()
    };
    let timed = |ns: u64| (ns > 0).then_some(ns);
    let mut out = String::from("<h2>Over time</h2>\n");
    let mut plot = |id: &str, title: &str, description: String, y, lines| -> Result<(), String> {
        out += &Plot {
            id: id.to_owned(),
            title: title.to_owned(),
            description,
            x: (Axis::Seconds, "second of the measured time"),
            y,
            lines,
            mark: None,
        }
        .figure()?;
        Ok(())
    };
    let events = runs.iter().any(|run| run.value.counts.events > 0);
    plot(
        "throughput",
        "Exchanges completed in each second",
        format!(
            "{}. The figures are in the table below.",
            ranges(runs, &|second| second.completed)
        ),
        (Axis::Rate, "completed/s"),
        every(&[("completed", &|second| Some(second.completed))]),
    )?;
    if events {
        plot(
            "events",
            "Events received in each second",
            format!(
                "{}. The figures are in the table below.",
                ranges(runs, &|second| second.events)
            ),
            (Axis::Rate, "events/s"),
            every(&[("events", &|second| Some(second.events))]),
        )?;
    }
    plot(
        "latency-time",
        "Latency of what completed in each second",
        "Median, 99th percentile and longest time of each second. The figures are in the table below.".into(),
        (Axis::Time, "latency"),
        every(&[
            ("p50", &|second| timed(second.p50_ns)),
            ("p99", &|second| timed(second.p99_ns)),
            ("longest", &|second| timed(second.max_ns)),
        ]),
    )?;
    if runs.iter().any(|run| {
        run.value
            .series
            .iter()
            .any(|second| second.rss_octets.is_some())
    }) {
        let mut lines = every(&[("resident", &|second| second.rss_octets)]);
        for point in lines.iter_mut().flat_map(|line| &mut line.points) {
            point.1 /= f64::from(1 << 20);
        }
        plot(
            "memory",
            "Resident memory of the responder’s process",
            "At the end of each second. The figures are in the table below.".into(),
            (Axis::Mebibytes, "resident"),
            lines,
        )?;
    }
    let mut heads = vec!["second".to_owned()];
    for run in 0..runs.len() {
        for name in ["completed", "events", "p50", "p99", "longest", "resident"] {
            heads.push(named(runs, run, name));
        }
    }
    let longest = runs
        .iter()
        .map(|run| run.value.series.len())
        .max()
        .unwrap_or(0);
    let step = longest.div_ceil(ROWS_MAX).max(1);
    let rows: Vec<Vec<String>> = (0..longest)
        .step_by(step)
        .map(|at| {
            let mut cells = vec![at.to_string()];
            for run in runs {
                match run.value.series.get(at) {
                    Some(second) => cells.extend([
                        count(second.completed),
                        count(second.events),
                        time(second.p50_ns),
                        time(second.p99_ns),
                        time(second.max_ns),
                        second.rss_octets.map_or_else(
                            || "–".to_owned(),
                            |octets| format!("{:.1} MiB", octets as f64 / f64::from(1 << 20)),
                        ),
                    ]),
                    None => cells.extend(vec![String::new(); 6]),
                }
            }
            cells
        })
        .collect();
    let caption = if step > 1 {
        format!("Every {step}th second. Latency is of what completed in the second.")
    } else {
        "Latency is of what completed in the second.".to_owned()
    };
    out += &behind("The seconds as a table", &table(&caption, &heads, &rows));
    Ok(out)
}

/// Between what values the seconds lie, in words.
fn ranges(runs: &[Named<Report>], value: &dyn Fn(&Second) -> u64) -> String {
    let parts: Vec<String> = runs
        .iter()
        .enumerate()
        .map(|(index, run)| {
            let values = seconds(&run.value).iter().map(value);
            let (least, most) = (values.clone().min(), values.max());
            format!(
                "{} between {} and {}",
                named(runs, index, "").trim(),
                count(least.unwrap_or(0)),
                count(most.unwrap_or(0))
            )
        })
        .collect();
    parts.join(", ").trim().to_owned()
}

fn latency(runs: &[Named<Report>]) -> Result<String, String> {
    let mut names: Vec<&String> = runs
        .iter()
        .flat_map(|run| run.value.latency.keys())
        .collect();
    names.sort();
    names.dedup();
    let mut lines = Vec::new();
    let mut columns: Vec<(String, &Summary)> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for (colour, name) in names.iter().enumerate() {
            let Some(summary) = run
                .value
                .latency
                .get(*name)
                .filter(|summary| summary.count > 0)
            else {
                continue;
            };
            let label = named(runs, index, &label(name));
            columns.push((label.clone(), summary));
            lines.push((label, colour, index, summary));
        }
    }
    if lines.is_empty() {
        return Ok(String::new());
    }
    let draw = |points: Points| -> Vec<Line> {
        lines
            .iter()
            .map(|(label, colour, run, summary)| Line {
                label: label.clone(),
                colour: *colour,
                run: *run,
                points: points(&summary.buckets),
                dots: false,
            })
            .collect()
    };
    let spoken: Vec<String> = columns
        .iter()
        .map(|(label, summary)| {
            format!(
                "{label}: half within {}, 99 % within {}, 99.9 % within {}",
                time(summary.p50_ns),
                time(summary.p99_ns),
                time(summary.p99_9_ns)
            )
        })
        .collect();
    let spoken = spoken.join("; ");
    let mut out = String::from(
        "<h2>Latency</h2>\n<p class=\"soft\">From the time a request was meant to be sent, so that a stall shows in all that was due behind it; a gap is from one event to the next.</p>\n",
    );
    out += &Plot {
        id: "percentiles".into(),
        title: "Latency by percentile".into(),
        description: spoken.clone(),
        x: (Axis::Percentile, "percentile"),
        y: (Axis::Time, "latency"),
        lines: draw(percentiles),
        mark: None,
    }
    .figure()?;
    out += &Plot {
        id: "cumulative".into(),
        title: "Part of all that took no longer".into(),
        description: spoken,
        x: (Axis::Time, "latency"),
        y: (Axis::Part, "part"),
        lines: draw(cumulative),
        mark: None,
    }
    .figure()?;
    let mut heads = vec![String::new()];
    heads.extend(columns.iter().map(|(label, _)| text(label)));
    let histograms: Vec<Times> = columns
        .iter()
        .map(|(_, summary)| {
            let mut times = Times::default();
            times.add_buckets(&summary.buckets);
            times
        })
        .collect();
    let mut rows = vec![
        std::iter::once("times".to_owned())
            .chain(columns.iter().map(|(_, summary)| count(summary.count)))
            .collect::<Vec<_>>(),
    ];
    for (quantile, name) in QUANTILES {
        let mut row = vec![name.to_owned()];
        row.extend(
            histograms
                .iter()
                .map(|times| time(times.quantile_ns(quantile))),
        );
        rows.push(row);
    }
    out += &table("", &heads, &rows);
    Ok(out)
}

#[allow(clippy::cast_precision_loss)] // drawn
fn sweep(runs: &[Named<Report>]) -> Result<String, String> {
    let sweeps: Vec<(usize, &Sweep)> = runs
        .iter()
        .enumerate()
        .filter_map(|(index, run)| Some((index, run.value.sweep.as_ref()?)))
        .collect();
    if sweeps.is_empty() {
        return Ok(String::new());
    }
    let mut out = String::from("<h2>Latency against throughput</h2>\n");
    let mut lines = Vec::new();
    let (mut rows, mut mark) = (Vec::new(), None);
    for (run, sweep) in &sweeps {
        let mut points = sweep.points.clone();
        points.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
        let quantiles: [StepQuantile; 3] = [
            ("p50", |point| point.p50_ns),
            ("p99", |point| point.p99_ns),
            ("p99.9", |point| point.p99_9_ns),
        ];
        for (colour, (name, of)) in quantiles.iter().enumerate() {
            lines.push(Line {
                label: named(runs, *run, name),
                colour,
                run: *run,
                points: points
                    .iter()
                    .map(|point| (point.rate_per_s, of(point) as f64))
                    .filter(|point| point.1 > 0.0)
                    .collect(),
                dots: true,
            });
        }
        if let Some(knee) = sweep.knee_per_s {
            let _ = writeln!(
                out,
                "<p>{}: {}/s. {}</p>",
                text(named(runs, *run, "the highest rate that was served well").trim()),
                number(knee),
                sweep
                    .limited_by
                    .as_ref()
                    .map(|reason| format!("Above it: {}.", text(reason)))
                    .unwrap_or_default()
            );
            // One mark: with two runs the text says where the knees are.
            mark = (sweeps.len() == 1).then(|| (knee, "the highest rate served well".to_owned()));
        } else {
            let _ = writeln!(out, "<p class=\"bad\">No rate was served well.</p>");
        }
        for point in &points {
            rows.push(vec![
                named(runs, *run, &number(point.rate_per_s)),
                number(point.achieved_per_s),
                time(point.p50_ns),
                time(point.p99_ns),
                time(point.p99_9_ns),
                time(point.max_ns),
                count(point.errors),
                if point.passed {
                    "served well".into()
                } else {
                    text(point.reason.as_deref().unwrap_or("not served well"))
                },
            ]);
        }
    }
    out += &Plot {
        id: "sweep".into(),
        title: "Latency at each rate asked".into(),
        description: "Percentiles of latency against the rate. The figures are in the table below."
            .into(),
        x: (Axis::Rate, "requests/s asked"),
        y: (Axis::Time, "latency"),
        lines,
        mark,
    }
    .figure()?;
    let heads = [
        "asked/s",
        "completed/s",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "errors",
        "",
    ]
    .map(str::to_owned);
    out += &table("", &heads, &rows);
    Ok(out)
}

fn generator(runs: &[Named<Report>]) -> String {
    let heads = [
        "",
        "lag p50",
        "lag p99",
        "longest lag",
        "late sends",
        "longest wait",
    ]
    .map(str::to_owned);
    let rows: Vec<Vec<String>> = runs
        .iter()
        .enumerate()
        .map(|(index, run)| {
            let schedule = &run.value.schedule;
            vec![
                if runs.len() == 1 {
                    "this run"
                } else {
                    letter(index)
                }
                .to_owned(),
                time(schedule.lag.p50_ns),
                time(schedule.lag.p99_ns),
                time(schedule.lag.max_ns),
                count(schedule.late_sends),
                time(schedule.wait.max_ns),
            ]
        })
        .collect();
    format!(
        "<h2>The generator</h2>\n<p class=\"soft\">Lag is its own lateness, which is in the latencies; wait is for the bound of exchanges under way.</p>\n{}",
        table("", &heads, &rows)
    )
}

fn errors(runs: &[Named<Report>]) -> String {
    let mut rows = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        for (kind, error) in &run.value.errors {
            rows.push(vec![
                text(named(runs, index, kind)),
                count(error.count),
                text(&error.example),
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["", "count", "the first one"].map(str::to_owned);
    format!("<h2>Errors</h2>\n{}", table("", &heads, &rows))
}

#[allow(clippy::cast_precision_loss)] // shown rounded
fn made_by(runs: &[Named<Report>]) -> String {
    let mut out = String::from("<h2>Made by</h2>\n");
    for (index, run) in runs.iter().enumerate() {
        let machine = &run.value.machine;
        let _ = writeln!(
            out,
            "<p>{} {} cores, {}, Linux {}, {:.1} GiB of memory; {} {}</p>\n<pre>{}</pre>",
            if runs.len() == 1 {
                String::new()
            } else {
                format!("{}:", letter(index))
            },
            machine.cores,
            text(&machine.cpu_model),
            text(&machine.kernel),
            machine.memory_octets as f64 / f64::from(1 << 30),
            text(&run.value.tool),
            text(&run.value.version),
            typed(&run.value.command_line),
        );
    }
    if runs
        .iter()
        .any(|run| run.value.asked.scenario == Scenario::Unary && run.value.in_process)
    {
        out += "<p class=\"soft\">Generator and responder shared one process and its cores.</p>\n";
    }
    out
}
