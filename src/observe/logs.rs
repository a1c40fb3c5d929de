//! Logs: `tracing` events as lines of text or JSON on standard error.
//!
//! What may be logged is decided where it is logged: identities, addresses,
//! correlation ids, reasons and figures. Keys, tokens, header values, message
//! bodies and agents' answers never are.

use crate::limits;
use crate::relay::settings::ObserveSettings;
use std::io::IsTerminal;
use std::sync::OnceLock;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// A subscriber of the process is there already.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot start logging: {0}")]
pub struct LogError(String);

/// Checks a filter in `tracing` syntax, such as `info` or `npamp_relay::engine=debug,info`.
pub fn filter(text: &str) -> Result<String, String> {
    EnvFilter::builder()
        .parse(text)
        .map(|_| text.to_owned())
        .map_err(|e| {
            format!("{text:?} is no log filter: {e}; try \"info\" or \"npamp_relay=debug\"")
        })
}

/// A subscriber that writes to `writer`; colours only where they are asked for.
pub fn subscriber<W>(
    settings: &ObserveSettings,
    colours: bool,
    writer: W,
) -> Result<Box<dyn tracing::Subscriber + Send + Sync>, LogError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder()
        .parse(&settings.log)
        .map_err(|e| LogError(e.to_string()))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours && !settings.log_json)
        .with_writer(writer);
    Ok(if settings.log_json {
        Box::new(builder.json().flatten_event(true).finish())
    } else {
        Box::new(builder.finish())
    })
}

/// Writes the last lines when it is dropped; hold it to the end of the process.
#[must_use]
#[derive(Debug)]
pub struct Logs(#[allow(dead_code, reason = "held for its drop")] WorkerGuard);

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Starts logging to standard error for the whole process, through a thread of
/// its own: a reader that stalls costs lines, never a stalled relay.
pub fn init(settings: &ObserveSettings) -> Result<Logs, LogError> {
    let colours = std::io::stderr().is_terminal();
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(limits::LOG_LINES_WAITING_MAX)
        .lossy(true)
        .finish(std::io::stderr());
    let dropped = writer.error_counter();
    let subscriber = subscriber(settings, colours, writer)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|e| LogError(e.to_string()))?;
    let _ = DROPPED.set(dropped);
    Ok(Logs(guard))
}

/// Lines that were dropped because the reader of the log was too slow.
pub fn dropped_lines() -> u64 {
    DROPPED
        .get()
        .map_or(0, |dropped| dropped.dropped_lines() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, octets: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn captured(log_json: bool, log: &str) -> String {
        let settings = ObserveSettings {
            admin: None,
            log_json,
            log: log.to_owned(),
        };
        let lines = Captured::default();
        let writer = lines.clone();
        let subscriber = subscriber(&settings, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(correlation_id = "00ff", "exchange ended");
            tracing::debug!("hidden");
        });
        let octets = lines.0.lock().unwrap().clone();
        String::from_utf8(octets).unwrap()
    }

    #[test]
    fn text_and_filter() {
        let text = captured(false, "info");
        assert!(
            text.contains("exchange ended") && text.contains("correlation_id"),
            "{text}"
        );
        assert!(
            !text.contains("hidden") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(captured(false, "debug").contains("hidden"));
    }

    #[test]
    fn json_lines() {
        let text = captured(true, "info");
        let event: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!(event["message"], "exchange ended");
        assert_eq!(event["correlation_id"], "00ff");
        assert_eq!(event["level"], "INFO");
    }

    #[test]
    fn wrong_filters_are_told() {
        assert!(filter("info,npamp_relay::engine=trace").is_ok());
        assert!(
            filter("npamp_relay=loud")
                .unwrap_err()
                .contains("no log filter")
        );
    }
}
