//! Values of arguments: how they are written and what is refused.

use npamp_relay::crypto::IdentityPublic;
use npamp_relay::limits;
use std::net::IpAddr;
use std::time::Duration;

/// Highest rate that can be asked for, in requests per second.
const RATE_MAX: f64 = 10_000_000.0;
/// Longest time that can be asked for, in seconds.
const SECONDS_MAX: f64 = 24.0 * 3600.0;
/// Shortest message that can be asked for: the JSON-RPC object around an empty text.
pub const MESSAGE_OCTETS_MIN: u64 = 256;
/// Shortest bulk request: the built-in responder knows them by their length.
pub const BULK_OCTETS_MIN: u64 = 16 * 1024;

pub fn host_of(target: &str) -> &str {
    let host = target.rsplit_once(':').map_or(target, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

pub fn target(text: &str) -> Result<String, String> {
    let upstream = text
        .strip_prefix("npamp://")
        .ok_or("a target is npamp://host:port")?;
    let upstream = upstream.strip_suffix('/').unwrap_or(upstream);
    let (host, port) = upstream
        .rsplit_once(':')
        .ok_or("a target is npamp://host:port")?;
    if host.is_empty() || host.contains(['/', '@']) {
        return Err("a target is npamp://host:port".into());
    }
    match port.parse::<u16>() {
        Ok(1..) => Ok(upstream.to_owned()),
        _ => Err(format!("{port:?} is no port")),
    }
}

/// Whether a target is an ingress.
pub fn is_http(target: &str) -> bool {
    target.starts_with("http://")
}

/// A responder, as [`target`] has it, or the URL of an ingress.
pub fn any_target(text: &str) -> Result<String, String> {
    if is_http(text) {
        return text
            .parse::<crate::http::target::HttpTarget>()
            .map(|target| target.to_string());
    }
    target(text)
}

pub fn server_name(text: &str) -> Result<String, String> {
    let refuse = || format!("{text:?} is no DNS name");
    if text.parse::<IpAddr>().is_ok() {
        return Err(refuse());
    }
    match rustls_pki_types::DnsName::try_from(text) {
        Ok(name) => Ok(name.as_ref().to_ascii_lowercase()),
        Err(_) => Err(refuse()),
    }
}

pub fn peer(text: &str) -> Result<IdentityPublic, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is no ed25519:<base64url> identity"))
}

pub fn rate(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, factor) = match number.strip_suffix('k') {
        Some(number) => (number, 1000.0),
        None => (number, 1.0),
    };
    match number.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate * factor <= RATE_MAX => Ok(rate * factor),
        _ => Err(format!(
            "a rate is a number of requests per second above 0 and at most {RATE_MAX}"
        )),
    }
}

pub fn range(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text
        .split_once("..")
        .ok_or("a range of rates is FROM..TO")?;
    let (from, to) = (rate(from)?, rate(to)?);
    if from >= to {
        return Err("a range of rates rises".into());
    }
    Ok((from, to))
}

pub fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor >= 1.0 && factor.is_finite() => Ok(factor),
        _ => Err("a factor is a number from 1 on".into()),
    }
}

/// A part above 0 and up to 1, also in percent.
pub fn fraction(text: &str) -> Result<f64, String> {
    let part = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match part {
        Ok(part) if part > 0.0 && part <= 1.0 => Ok(part),
        _ => Err("a part is a number above 0 and up to 1, or such a percentage".into()),
    }
}

pub fn seconds(text: &str) -> Result<Duration, String> {
    match seconds_or_zero(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(format!(
            "a time is a number of seconds above 0 and at most {SECONDS_MAX}"
        )),
    }
}

pub fn seconds_or_zero(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('s').unwrap_or(text).parse::<f64>() {
        Ok(time) if (0.0..=SECONDS_MAX).contains(&time) => Ok(Duration::from_secs_f64(time)),
        _ => Err(format!(
            "a time is a number of seconds, at most {SECONDS_MAX}"
        )),
    }
}

pub fn milliseconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("ms").unwrap_or(text);
    match number.parse::<f64>() {
        Ok(time) if time > 0.0 && time <= SECONDS_MAX * 1000.0 => {
            Ok(Duration::from_secs_f64(time / 1000.0))
        }
        _ => Err("a number of milliseconds above 0".into()),
    }
}

pub fn positive(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n @ 1..) => Ok(n),
        _ => Err("a number above 0".into()),
    }
}

pub fn message_octets() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(MESSAGE_OCTETS_MIN..=limits::FOREIGN_MESSAGE_OCTETS_MAX as u64)
}

pub fn bulk_octets() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(BULK_OCTETS_MIN..=limits::FOREIGN_MESSAGE_OCTETS_MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        assert_eq!(rate("5000/s"), Ok(5000.0));
        assert_eq!(rate("2.5k"), Ok(2500.0));
        for wrong in ["", "0", "-1", "nan", "inf", "fast", "1e9"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(range("1k..2.5k/s"), Ok((1000.0, 2500.0)));
        assert_eq!((fraction("80%"), fraction("1")), (Ok(0.8), Ok(1.0)));
        for wrong in ["0", "1.1", "120%", "much", "nan"] {
            assert!(fraction(wrong).is_err(), "{wrong}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds_or_zero("0s"), Ok(Duration::ZERO));
        for wrong in ["0", "-1", "nan", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(target("npamp://[::1]:7443"), Ok("[::1]:7443".into()));
        for wrong in [
            "http://a:1",
            "npamp://a",
            "npamp://:1",
            "npamp://a:0",
            "npamp://a:1/b",
            "npamp://a:99999",
        ] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
        assert_eq!(server_name("Agent.Example"), Ok("agent.example".into()));
        assert!(server_name("127.0.0.1").is_err());
        assert!(server_name("::1").is_err());
    }
}
