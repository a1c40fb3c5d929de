//! The HTTP part: two relays, two nginx and two haproxy in front of the same
//! agent, all running, loaded in turns.

use super::arguments::CompareArguments;
use super::chains::{self, Chain, Place};
use super::result::{Case, Comparison, Outcome};
use super::unary::{self, Unary};
use super::{Interrupt, rounds};
use crate::http::client::{self, HttpPlan, Pacing};
use crate::http::objects::A2aVersion;
use crate::kind::Kind;
use crate::progress::Progress;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Silence after which a stream is given up.
const SILENCE: Duration = Duration::from_secs(5);

/// Times that this is tried.
const PRIME_TRIES: u32 = 100;
/// Time of requests before anything is measured.
const PRIME_TIME: Duration = Duration::from_millis(50);

/// The relay's binary: as given, or beside this one.
pub fn relay_binary(given: Option<&Path>) -> Result<PathBuf, String> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .map_err(|error| error.to_string())?
            .with_file_name("npamp-relay"),
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(format!(
            "there is no relay at {}; give --relay",
            path.display()
        ))
    }
}

/// All chains that can be had; what cannot goes to `skipped`.
pub fn start(
    arguments: &CompareArguments,
    found: &mut Comparison,
) -> Result<(Place, Vec<Chain>), String> {
    let relay = relay_binary(arguments.relay.as_deref())?;
    let place = Place::new()?;
    let agent = chains::agent(arguments.events, arguments.event_octets, place.cores().1)?;
    let mut all = vec![chains::relay(&place, &relay, &agent)?];
    for (name, chain) in [
        ("nginx", chains::nginx(&place, &agent)),
        ("haproxy", chains::haproxy(&place, &agent)),
    ] {
        match chain {
            Ok(Some(chain)) => all.push(chain),
            Ok(None) => {
                found.skipped.insert(name.into(), "not installed".into());
            }
            Err(error) => {
                found.skipped.insert(name.into(), error);
            }
        }
    }
    all.push(agent);
    for chain in &all {
        found
            .programs
            .insert(chain.name.to_owned(), chain.version.clone());
    }
    Ok((place, all))
}

/// Has a request to each path answered, so that what is made once is made.
fn prime(chain: &mut Chain, arguments: &CompareArguments) -> Result<(), String> {
    for path in chains::PATHS {
        let mut example = String::new();
        for _ in 0..PRIME_TRIES {
            let outcome = unary::measure(&Unary {
                target: chain.target(path),
                connections: 1,
                payload: usize::try_from(arguments.payload).unwrap_or(usize::MAX),
                warmup: Duration::ZERO,
                duration: PRIME_TIME,
            });
            chain.check()?;
            let outcome = outcome.map_err(|error| format!("{}: {error}", chain.name))?;
            example = outcome.example;
            if outcome.per_s > 0.0 {
                break;
            }
        }
        if !example.is_empty() {
            return Err(format!("{} answers nothing: {example}", chain.name));
        }
    }
    Ok(())
}

/// Measures every case.
pub fn compare(
    arguments: &CompareArguments,
    interrupt: &Interrupt,
    found: &mut Comparison,
) -> Result<(), String> {
    let (place, mut all) = start(arguments, found)?;
    for chain in &mut all {
        prime(chain, arguments)?;
    }
    let names: Vec<String> = all.iter().map(|chain| chain.name.to_owned()).collect();
    let payload = usize::try_from(arguments.payload).unwrap_or(usize::MAX);
    for &connections in &arguments.http_connections {
        let measured = rounds(arguments.rounds, &names, interrupt, |which| {
            let chain = &mut all[which];
            let outcome = unary::measure(&Unary {
                target: chain.target("unary"),
                connections,
                payload,
                warmup: arguments.warmup,
                duration: arguments.duration,
            });
            chain.check()?;
            outcome.map_err(|error| format!("{}: {error}", chain.name))
        })?;
        found.cases.push(Case::of(
            &format!("http_unary_{connections}"),
            format!("unary over HTTP, {connections} connections, closed loop"),
            "requests/s",
            &measured,
        ));
    }
    for path in ["event", "bulk"] {
        let connections = arguments.sse_connections;
        let measured = rounds(arguments.rounds, &names, interrupt, |which| {
            let chain = &mut all[which];
            let plan = HttpPlan {
                target: chain.target(path),
                streams: true,
                version: A2aVersion::V0_3,
                bearer: None,
                pacing: Pacing::Closed,
                warmup: arguments.warmup,
                duration: arguments.duration,
                connections,
                payload,
                timeout: SILENCE,
                lag_max: SILENCE,
            };
            let measured = client::measure(plan, Arc::new(Progress::default()));
            chain.check()?;
            let mut measured = measured.map_err(|error| format!("{}: {error}", chain.name))?;
            if let Some(reason) = measured.aborted.take() {
                return Err(reason);
            }
            let example = measured
                .errors
                .iter()
                .next()
                .map(|(kind, error)| format!("{kind}: {}", error.example))
                .unwrap_or_default();
            Ok(Outcome::of(
                measured.events_within,
                arguments.duration,
                std::mem::take(&mut measured.of(Kind::Stream).first_event),
                measured.error_count(),
                example,
            ))
        })?;
        let written = if path == "event" {
            "one by one"
        } else {
            "64 KiB at a time"
        };
        found.cases.push(Case::of(
            &format!("http_sse_{path}"),
            format!(
                "server-sent events, {connections} connections, streams of {} events of {} octets that the agent writes {written}, closed loop; latency is that of the first event",
                arguments.events, arguments.event_octets
            ),
            "events/s",
            &measured,
        ));
    }
    // Programs before their files.
    drop(all);
    drop(place);
    Ok(())
}
