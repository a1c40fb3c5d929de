//! `call`: what is to be sent where, made of its arguments, and how replies are
//! printed. The exchange itself is the relay's.

use super::CliError;
use super::args::{CallArgs, Hello, Kind};
use super::config::values;
use crate::a2a::port::{CallRequest, ServiceParameters};
use crate::bridge::discovery::{Filter, RecordKind};
use crate::edge::files;
use crate::limits;
use crate::relay::settings::{HelloMode, RouteSettings, TlsVerify, UpstreamSettings};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One exchange that was asked for on the command line.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// The responder, and how it proves itself. Its `path` is `/`.
    pub route: RouteSettings,
    /// Our identity; a new one when absent.
    pub identity: Option<PathBuf>,
    /// Service parameters (ruling R13).
    pub parameters: ServiceParameters,
    /// What to carry.
    pub request: CallRequest,
    /// Time without a reply or an event after which to give up.
    pub timeout: Duration,
}

impl CallPlan {
    /// Checks the arguments, and reads files and standard input that they name.
    pub fn new(args: &CallArgs) -> Result<Self, CliError> {
        let upstream = values::upstream(&args.url).map_err(CliError)?;
        let host = upstream.rsplit_once(':').map_or("", |(host, _)| host);
        let server_name = match &args.server_name {
            Some(name) => values::server_name(name).map_err(CliError)?,
            None => values::server_name(host).map_err(|_| {
                CliError(format!(
                    "{host} is an address, not a name that TLS could carry; give --server-name"
                ))
            })?,
        };
        let peer = args
            .peer
            .as_deref()
            .map(values::peer)
            .transpose()
            .map_err(CliError)?;
        let mut parameters = ServiceParameters::default();
        if let Some(version) = &args.a2a_version {
            let plain = version.len() <= limits::PARAMETER_VALUE_OCTETS_MAX
                && !version.is_empty()
                && version.bytes().all(|b| b.is_ascii_graphic());
            if !plain {
                return Err(CliError(format!(
                    "{version:?} is no A2A version, such as 1.0"
                )));
            }
            parameters
                .lines
                .push(("a2a-version".to_owned(), version.clone()));
        }
        let pinned = args.pinned;
        let hello = match args.hello {
            Hello::Optional if pinned => {
                return Err(CliError(
                    "--pinned needs --hello required: only HELLO protects the server name then"
                        .to_owned(),
                ));
            }
            Hello::Optional => HelloMode::Optional,
            Hello::Required => HelloMode::Required,
        };
        Ok(Self {
            route: RouteSettings {
                path: "/".to_owned(),
                inbound: None,
                upstreams: vec![UpstreamSettings {
                    address: upstream,
                    server_name,
                    peer,
                    tls_ca: args.tls_ca.clone(),
                }],
                tls_verify: if pinned {
                    TlsVerify::Pinned
                } else {
                    TlsVerify::Full
                },
                hello,
            },
            identity: args.identity.clone(),
            parameters,
            request: request(args)?,
            timeout: args.timeout,
        })
    }
}

#[derive(Deserialize)]
struct Envelope<'b> {
    #[serde(borrow)]
    jsonrpc: Cow<'b, str>,
    #[serde(borrow, rename = "method")]
    _method: Cow<'b, str>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'b RawValue>,
}

/// Tells an `id` of null from none.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

fn request(args: &CallArgs) -> Result<CallRequest, CliError> {
    if args.card {
        return Ok(CallRequest::Card);
    }
    if args.discover {
        let kinds: Vec<RecordKind> = args
            .kind
            .iter()
            .map(|kind| match kind {
                Kind::Protocol => RecordKind::PROTOCOL,
                Kind::CarriageClass => RecordKind::CARRIAGE_CLASS,
                Kind::Tool => RecordKind::TOOL,
                Kind::Agent => RecordKind::AGENT,
            })
            .collect();
        return Ok(CallRequest::Discover {
            filter: Filter {
                kinds: (!kinds.is_empty()).then_some(kinds),
                protocol_ids: None,
                name_prefix: args.prefix.clone(),
            },
            tolerant: args.tolerant,
        });
    }
    let object = if let Some(data) = &args.data {
        text_of(data, "--data")?
    } else {
        let method = args.method.as_ref().or(args.method_name.as_ref());
        let method = serde_json::to_string(method.map_or("", String::as_str))
            .map_err(|e| CliError(e.to_string()))?;
        match &args.params {
            Some(params) => {
                let params = text_of(params, "--params")?;
                serde_json::from_str::<&RawValue>(&params)
                    .map_err(|e| CliError(format!("--params is no JSON: {e}")))?;
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method},"params":{params}}}"#)
            }
            None => format!(r#"{{"jsonrpc":"2.0","id":1,"method":{method}}}"#),
        }
    };
    let envelope: Envelope<'_> = serde_json::from_str(&object)
        .map_err(|e| CliError(format!("this is no JSON-RPC request: {e}")))?;
    if envelope.jsonrpc != "2.0" {
        return Err(CliError(
            "this is no JSON-RPC request: jsonrpc is not \"2.0\"".to_owned(),
        ));
    }
    let is_notification = envelope.id.is_none();
    let object = Bytes::from(object);
    Ok(if is_notification {
        CallRequest::Notification { object }
    } else {
        CallRequest::Request { object }
    })
}

/// The text itself, or what `@file` or `-` stand for.
fn text_of(argument: &str, option: &str) -> Result<String, CliError> {
    let octets_max = limits::FOREIGN_MESSAGE_OCTETS_MAX;
    if argument == "-" {
        let mut text = String::new();
        std::io::stdin()
            .take(octets_max as u64 + 1)
            .read_to_string(&mut text)
            .map_err(|e| CliError(format!("cannot read {option} from standard input: {e}")))?;
        if text.len() > octets_max {
            return Err(CliError(format!(
                "{option} is longer than {octets_max} octets"
            )));
        }
        return Ok(text);
    }
    match argument.strip_prefix('@') {
        Some(file) => files::text(Path::new(file), octets_max)
            .map(|text| text.to_string())
            .map_err(|error| CliError(error.to_string())),
        None => Ok(argument.to_owned()),
    }
}

/// A JSON text on one line: line ends in JSON can only be white space between tokens.
pub fn one_line(object: &[u8]) -> String {
    String::from_utf8_lossy(object)
        .trim()
        .replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn plan(args: &[&str]) -> Result<CallPlan, String> {
        let command = CallArgs::augment_args(clap::Command::new("call"));
        let matches = command
            .try_get_matches_from(std::iter::once("call").chain(args.iter().copied()))
            .map_err(|e| e.to_string())?;
        let args = CallArgs::from_arg_matches(&matches).map_err(|e| e.to_string())?;
        CallPlan::new(&args).map_err(|e| e.to_string())
    }

    #[test]
    fn methods_and_objects() {
        let url = "npamp://relay.example:7443";
        let call = plan(&[url, "tasks/get", "--params", r#"{"id" : 1}"#]).unwrap();
        let CallRequest::Request { object } = call.request else {
            panic!()
        };
        assert_eq!(
            object,
            r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id" : 1}}"#
        );
        assert_eq!(call.route.upstreams[0].server_name, "relay.example");
        assert_eq!(call.route.upstreams[0].address, "relay.example:7443");

        let whole = r#" {"method":"x","jsonrpc":"2.0","id":null} "#;
        let call = plan(&[url, "--data", whole]).unwrap();
        let CallRequest::Request { object } = call.request else {
            panic!()
        };
        assert_eq!(object, whole);

        let call = plan(&[url, "--data", r#"{"method":"x","jsonrpc":"2.0"}"#]).unwrap();
        assert!(matches!(call.request, CallRequest::Notification { .. }));

        let card = ["--card", "--docbind", "0x00d0", "--a2a-version", "1.0"];
        let call = plan(&[&[url], &card[..], &["--timeout", "0.5"]].concat()).unwrap();
        assert!(matches!(call.request, CallRequest::Card));
        assert_eq!(
            call.parameters.lines,
            [("a2a-version".to_owned(), "1.0".to_owned())]
        );
        assert_eq!(call.timeout, Duration::from_millis(500));
        assert_eq!(call.route.hello, HelloMode::Required);
    }

    /// NPAMP-DISC §6.1: the filter, and nothing else beside it.
    #[test]
    fn discovery() {
        let url = "npamp://relay.example:7443";
        let more = ["--kind", "agent", "--kind", "carriage-class"];
        let prefix = ["--prefix", "lit", "--tolerant", "--json"];
        let call = plan(&[&[url, "--discover"], &more[..], &prefix[..]].concat()).unwrap();
        let CallRequest::Discover { filter, tolerant } = call.request else {
            panic!()
        };
        assert!(tolerant);
        assert_eq!(
            filter,
            Filter {
                kinds: Some(vec![RecordKind::AGENT, RecordKind::CARRIAGE_CLASS]),
                protocol_ids: None,
                name_prefix: Some("lit".into()),
            }
        );
        let call = plan(&[url, "--discover"]).unwrap();
        let CallRequest::Discover { filter, tolerant } = call.request else {
            panic!()
        };
        assert_eq!((filter, tolerant), (Filter::default(), false));
    }

    /// Ruling R6; R12 for the pinned case.
    #[test]
    fn hello_modes() {
        let url = "npamp://relay.example:7443";
        let call = plan(&[url, "x", "--hello", "optional"]).unwrap();
        assert_eq!(call.route.hello, HelloMode::Optional);
        let peer = crate::crypto::Identity::from_seed(&[1; 32])
            .public()
            .to_string();
        let pinned = [url, "x", "--peer", &peer, "--pinned", "--hello"];
        assert!(plan(&[&pinned[..], &["required"]].concat()).is_ok());
        let refused = plan(&[&pinned[..], &["optional"]].concat()).unwrap_err();
        assert!(refused.contains("--hello"), "{refused}");
    }

    #[test]
    fn wrong_arguments() {
        let url = "npamp://relay.example:7443";
        for wrong in [
            &[url][..],
            &["http://relay.example", "x"],
            &["npamp://127.0.0.1:1", "x"],
            &[url, "x", "--card", "--docbind", "0x00d0"],
            &[url, "--card"],
            &[url, "--discover", "x"],
            &[url, "--discover", "--kind", "5"],
            &[url, "x", "--kind", "agent"],
            &[url, "x", "--json"],
            &[url, "x", "--data", "{}"],
            &[url, "x", "--params", "{"],
            &[url, "--data", "{}"],
            &[url, "--data", "[]"],
            &[url, "--data", r#"{"jsonrpc":"1.0","method":"x"}"#],
            &[url, "x", "--pinned"],
            &[url, "x", "--peer", "ed25519:AAAA"],
            &[url, "x", "--hello", "never"],
            &[url, "x", "--timeout", "0"],
            &[url, "x", "--timeout", "soon"],
            &[url, "x", "--a2a-version", "1.0\r\nx: y"],
            &[url, "--data", "@/nonexistent"],
        ] {
            assert!(plan(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn replies_fit_a_line() {
        assert_eq!(one_line(b"{\n  \"a\": 1\r\n}\n"), "{   \"a\": 1  }");
    }
}
