//! The scan of a JSON-RPC 2.0 body: what kind of object it is, its method and
//! its id token, over borrowed octets. Serves NPAMP-CC-JSONRPC §3–§8 and ruling
//! R23, and finds the final status-update of NPAMP-MAP-A2A §6.
//!
//! Never re-serialises, never allocates for a value, and nests to no depth: the
//! members are walked over by `json_text`. Only top-level members matter, and
//! two of a result's own; names are compared decoded.

use super::json_text::Walk;
use crate::reasons;
use serde::Deserialize;
use std::borrow::Cow;

reasons! {
    /// Why a body is not the JSON-RPC 2.0 object that was expected.
    #[derive(thiserror::Error)]
    pub enum ScanError {
        /// No JSON text, or nothing at all.
        #[error("not JSON")]
        NotJson => "not_json",
        /// An array.
        #[error("a batch")]
        Batch => "batch",
        /// JSON, yet neither object nor array.
        #[error("not an object")]
        NotAnObject => "not_an_object",
        /// `jsonrpc` is absent or not "2.0".
        #[error("jsonrpc is not \"2.0\"")]
        Version => "version",
        /// A second top-level `jsonrpc`, `method` or `id`.
        #[error("a member is repeated")]
        DuplicateMember => "duplicate_member",
        /// `method` is absent or no string.
        #[error("no method")]
        Method => "method",
        /// `id` is neither string, number nor null, or a Response has none.
        #[error("no usable id")]
        Id => "id",
        /// A Response without exactly one of `result` and `error`.
        #[error("not exactly one of result and error")]
        Outcome => "outcome",
    }
}

impl ScanError {
    /// The JSON-RPC error code with which an endpoint answers such a body (ruling R23).
    pub fn json_rpc_code(self) -> i32 {
        match self {
            Self::NotJson => -32700,
            _ => -32600,
        }
    }
}

/// A Request with an id, or a Notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The method, decoded.
    pub method: Cow<'a, str>,
    /// The id, absent in a Notification.
    pub id: Option<Id<'a>>,
}

/// A Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// The id.
    pub id: Id<'a>,
    /// Result or error.
    pub outcome: Outcome<'a>,
    /// `result` or `error` is there more than once, and `outcome` the last of them.
    pub repeated: bool,
    is_final: bool,
}

impl Response<'_> {
    /// Whether this may answer the Request with id `request`: equal ids, or an
    /// error whose id is Null because it could not be determined (NPAMP-CC-JSONRPC §8.4).
    pub fn answers(&self, request: Id<'_>) -> bool {
        self.id.equals(request)
            || (matches!(self.outcome, Outcome::Error(_)) && self.id.token() == "null")
    }

    /// Whether this is a v0.3 status-update whose `final` is true, which ends its
    /// stream (NPAMP-MAP-A2A §6, ruling R15). Only the result's own members count.
    pub fn is_final_status_update(&self) -> bool {
        self.is_final
    }
}

/// A Response's outcome as its raw JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// `result`.
    Result(&'a str),
    /// `error`.
    Error(&'a str),
    /// Neither member: how SDKs that leave out null values spell a null result.
    /// Carried as success, octet for octet (a recorded leniency).
    Absent,
}

impl Outcome<'_> {
    /// Whether the Response is an error.
    pub fn is_error(&self) -> bool {
        matches!(self, Self::Error(_))
    }
}

/// A JSON-RPC id as the raw token: a JSON string with its quotes, a number or `null`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// Takes a token that a scan found before.
    pub fn from_token(token: &'a str) -> Self {
        Self(token)
    }

    /// The token, octet for octet.
    pub fn token(self) -> &'a str {
        self.0
    }

    /// JSON equality: the same token, strings that decode to the same text, or
    /// the same number however it is written. A string never equals a number.
    pub fn equals(self, other: Id<'_>) -> bool {
        if self.0 == other.0 {
            return true;
        }
        match (self.0.as_bytes().first(), other.0.as_bytes().first()) {
            (Some(b'"'), Some(b'"')) => match (text(self.0), text(other.0)) {
                (Some(a), Some(b)) => a == b,
                _ => false,
            },
            (Some(b'"' | b'n'), _) | (_, Some(b'"' | b'n')) => false,
            _ => matches!((decimal(self.0), decimal(other.0)), (Some(a), Some(b)) if a == b),
        }
    }
}

/// Scans a body that must be a Request or a Notification.
pub fn scan_request(body: &[u8]) -> Result<Request<'_>, ScanError> {
    let members = members(body)?;
    let method = members.method.ok_or(ScanError::Method)?;
    let method = text(method).ok_or(ScanError::Method)?;
    let id = members.id.map(id_of).transpose()?;
    Ok(Request { method, id })
}

/// Scans a body that must be a Response.
pub fn scan_response(body: &[u8]) -> Result<Response<'_>, ScanError> {
    let members = members(body)?;
    let id = id_of(members.id.ok_or(ScanError::Id)?)?;
    let outcome = match (members.result, members.error) {
        (Some(result), None | Some("null")) => Outcome::Result(result),
        (None | Some("null"), Some(error)) => Outcome::Error(error),
        // A Request or Notification has no outcome either, but a method.
        (None, None) if members.method.is_none() => Outcome::Absent,
        _ => return Err(ScanError::Outcome),
    };
    Ok(Response {
        id,
        outcome,
        repeated: members.outcome_repeated,
        is_final: members.is_final && matches!(outcome, Outcome::Result(_)),
    })
}

/// A success Response with `result` octet for octet, when that is one JSON text (ruling R25).
pub fn success(id: Id<'_>, result: &[u8]) -> Option<Vec<u8>> {
    let result = std::str::from_utf8(result).ok()?;
    let mut walk = Walk::new(result);
    walk.value().filter(|_| walk.is_over())?;
    let parts = [
        r#"{"jsonrpc":"2.0","id":"#,
        id.token(),
        r#","result":"#,
        result,
        "}",
    ];
    Some(parts.concat().into_bytes())
}

/// The Response with `id` in place of its own, octet for octet otherwise. `None`
/// when it has that id already, is an error that could not name one, or is no Response.
pub fn with_id(response: &[u8], id: Id<'_>) -> Option<Vec<u8>> {
    let scanned = scan_response(response).ok()?;
    let own = scanned.id.token();
    if scanned.answers(id) {
        return None;
    }
    // The token is a slice of the Response.
    let at = own.as_ptr().addr() - response.as_ptr().addr();
    let parts = [
        &response[..at],
        id.token().as_bytes(),
        &response[at + own.len()..],
    ];
    Some(parts.concat())
}

/// The id of the task that a v0.3 stream event is about (A2A 0.3 §7.2): a Task's
/// own, otherwise the `taskId` of its result.
pub fn event_task_id(response: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        kind: Option<Cow<'a, str>>,
        #[serde(borrow)]
        id: Option<Cow<'a, str>>,
        #[serde(borrow, rename = "taskId")]
        task_id: Option<Cow<'a, str>>,
    }
    let Outcome::Result(result) = scan_response(response).ok()?.outcome else {
        return None;
    };
    let event: Event<'_> = serde_json::from_str(result).ok()?;
    let id = match event.kind.as_deref() {
        Some("task") => event.id,
        _ => event.task_id,
    };
    id.map(Cow::into_owned)
}

/// `params.id` of a Request: the task that `tasks/resubscribe` names.
pub fn params_id(request: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow)]
        params: Params<'a>,
    }
    let request: Request<'_> = serde_json::from_slice(request).ok()?;
    Some(request.params.id.into_owned())
}

/// Top-level members as raw tokens, `jsonrpc` already checked.
#[derive(Debug, Default)]
struct Members<'a> {
    version: Option<&'a str>,
    method: Option<&'a str>,
    id: Option<&'a str>,
    result: Option<&'a str>,
    error: Option<&'a str>,
    duplicate: bool,
    outcome_repeated: bool,
    /// `result` is a status-update whose `final` is true.
    is_final: bool,
}

fn members(body: &[u8]) -> Result<Members<'_>, ScanError> {
    let body = std::str::from_utf8(body).map_err(|_| ScanError::NotJson)?;
    let mut walk = Walk::new(body);
    let first = walk.peek();
    if first != Some(b'{') {
        // Whole and well-formed, else it is no JSON at all.
        walk.value()
            .filter(|_| walk.is_over())
            .ok_or(ScanError::NotJson)?;
        return Err(if first == Some(b'[') {
            ScanError::Batch
        } else {
            ScanError::NotAnObject
        });
    }
    let mut members = Members::default();
    walk.object(|name, walk| members.take(name, walk))
        .filter(|()| walk.is_over())
        .ok_or(ScanError::NotJson)?;
    if members.duplicate {
        return Err(ScanError::DuplicateMember);
    }
    if members.version.and_then(text).as_deref() != Some("2.0") {
        return Err(ScanError::Version);
    }
    Ok(members)
}

impl<'a> Members<'a> {
    /// Takes in the member whose value `walk` is at.
    fn take(&mut self, name: &str, walk: &mut Walk<'a>) -> Option<()> {
        // Names are compared decoded. One that is no text is none that matters.
        let name = text(name).unwrap_or_default();
        let slot = match &*name {
            "jsonrpc" => &mut self.version,
            "method" => &mut self.method,
            "id" => &mut self.id,
            "result" => {
                let (result, is_final) = result(walk)?;
                self.outcome_repeated |= self.result.replace(result).is_some();
                self.is_final = is_final;
                return Some(());
            }
            "error" => {
                self.outcome_repeated |= self.error.replace(walk.value()?).is_some();
                return Some(());
            }
            _ => return walk.value().map(drop),
        };
        // A repeated result or error is the endpoints' affair; the octets travel as they are.
        self.duplicate |= slot.replace(walk.value()?).is_some();
        Some(())
    }
}

/// A result's token, and whether it is a status-update whose `final` is true. Of
/// repeated members the last counts, as for most JSON parsers.
fn result<'a>(walk: &mut Walk<'a>) -> Option<(&'a str, bool)> {
    if walk.peek()? != b'{' {
        return Some((walk.value()?, false));
    }
    let (mut status_update, mut is_final) = (false, false);
    let result = walk.token(|walk| {
        walk.object(|name, walk| {
            let value = walk.value()?;
            match text(name).as_deref() {
                Some("kind") => status_update = text(value).as_deref() == Some("status-update"),
                Some("final") => is_final = value == "true",
                _ => {}
            }
            Some(())
        })
    })?;
    Some((result, status_update && is_final))
}

fn id_of(token: &str) -> Result<Id<'_>, ScanError> {
    match token.as_bytes().first() {
        Some(b'"' | b'-' | b'0'..=b'9' | b'n') => Ok(Id(token)),
        _ => Err(ScanError::Id),
    }
}

/// A JSON string token decoded, borrowed when it holds no escape. `None` when it
/// is no string, or one that no UTF-8 text can hold (a lone surrogate escape).
fn text(token: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    let content = token.strip_prefix('"')?;
    if memchr::memchr(b'\\', content.as_bytes()).is_none() {
        return content.strip_suffix('"').map(Cow::Borrowed);
    }
    serde_json::from_str::<Text<'_>>(token)
        .ok()
        .map(|text| text.0)
}

/// A JSON number as sign, significant digits and power of ten, so that every
/// spelling of one number is the same value. `None` for an exponent beyond 18 digits.
fn decimal(token: &str) -> Option<(bool, String, i64)> {
    let (negative, rest) = match token.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, token),
    };
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some((false, String::new(), 0));
    }
    if exponent.len() > 18 {
        return None;
    }
    let exponent: i64 = exponent.parse().ok()?;
    let fraction = i64::try_from(fraction.len()).ok()?;
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let power = exponent - fraction + zeros;
    Some((negative, significant.to_owned(), power))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &str) -> Result<Request<'_>, ScanError> {
        scan_request(body.as_bytes())
    }

    fn response(body: &str) -> Result<Response<'_>, ScanError> {
        scan_response(body.as_bytes())
    }

    /// NPAMP-CC-JSONRPC §4, §7: an id makes a Request, none a Notification; the token is raw.
    #[test]
    fn requests_and_notifications() {
        let scanned = request(" {\"jsonrpc\":\"2.0\",\"id\": 1 ,\"method\":\"m\"}\r\n").unwrap();
        assert_eq!(scanned.method, "m");
        assert_eq!(scanned.id.unwrap().token(), "1");
        let scanned = request(r#"{"method":"m","jsonrpc":"2.0"}"#).unwrap();
        assert_eq!(scanned.id, None);
        for id in [
            "null",
            "-1.5e+300",
            r#""7""#,
            r#""é\ud800""#,
            "123456789012345678901234567890",
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#);
            assert_eq!(request(&body).unwrap().id.unwrap().token(), id);
        }
    }

    /// NPAMP-CC-JSONRPC §4: the method is the decoded string.
    #[test]
    fn methods_are_decoded() {
        let scanned = request(r#"{"jsonrpc":"2.0","method":"message\/s\u0065nd"}"#).unwrap();
        assert_eq!(scanned.method, "message/send");
        let scanned = request(r#"{"jsonrpc":"2.0","\u006dethod":"x"}"#).unwrap();
        assert_eq!(scanned.method, "x");
    }

    /// Ruling R23: which bodies are no Request, and the code that says so.
    #[test]
    fn each_invalid_request_has_its_reason() {
        let cases = [
            ("", ScanError::NotJson, -32700),
            ("   ", ScanError::NotJson, -32700),
            ("hello", ScanError::NotJson, -32700),
            ("{", ScanError::NotJson, -32700),
            (
                r#"{"jsonrpc":"2.0","method":"m"} x"#,
                ScanError::NotJson,
                -32700,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m",}"#,
                ScanError::NotJson,
                -32700,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","p":01}"#,
                ScanError::NotJson,
                -32700,
            ),
            ("\u{feff}{}", ScanError::NotJson, -32700),
            ("[{}", ScanError::NotJson, -32700),
            ("[]", ScanError::Batch, -32600),
            (" [{}]", ScanError::Batch, -32600),
            ("1", ScanError::NotAnObject, -32600),
            ("null", ScanError::NotAnObject, -32600),
            ("{}", ScanError::Version, -32600),
            (
                r#"{"jsonrpc":2.0,"method":"m"}"#,
                ScanError::Version,
                -32600,
            ),
            (
                r#"{"jsonrpc":"1.0","method":"m"}"#,
                ScanError::Version,
                -32600,
            ),
            (r#"{"jsonrpc":"2.0"}"#, ScanError::Method, -32600),
            (r#"{"jsonrpc":"2.0","method":1}"#, ScanError::Method, -32600),
            (
                r#"{"jsonrpc":"2.0","method":"\ud800"}"#,
                ScanError::Method,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":{}}"#,
                ScanError::Id,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":true}"#,
                ScanError::Id,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":[1]}"#,
                ScanError::Id,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","id":1,"id":1}"#,
                ScanError::DuplicateMember,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","m\u0065thod":"n"}"#,
                ScanError::DuplicateMember,
                -32600,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","jsonrpc":"2.0"}"#,
                ScanError::DuplicateMember,
                -32600,
            ),
        ];
        for (body, error, code) in cases {
            assert_eq!(request(body), Err(error), "{body}");
            assert_eq!(error.json_rpc_code(), code);
        }
        assert_eq!(
            scan_request(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"),
            Err(ScanError::NotJson)
        );
    }

    /// Ruling R23: only top-level members count, and other duplicates pass.
    #[test]
    fn nested_and_other_members_do_not_matter() {
        let scanned = request(
            r#"{"jsonrpc":"2.0","params":{"id":9,"id":8,"method":"x","jsonrpc":1},"method":"m","params":1,"\ud800":0,"id":"a"}"#,
        )
        .unwrap();
        assert_eq!(scanned.method, "m");
        assert_eq!(scanned.id.unwrap().token(), "\"a\"");
    }

    /// Input must not be able to overflow the stack.
    #[test]
    fn deep_nesting_is_skipped_without_recursion() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let depth = 1_000_000;
            let inner = [&open.repeat(depth), "1", &close.repeat(depth)].concat();
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","id":1,"params":{inner}}}"#);
            assert_eq!(request(&body).unwrap().method, "m");
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"kind":"status-update","x":{inner},"final":true}}}}"#
            );
            assert!(response(&body).unwrap().is_final_status_update());
            let batch = [&open.repeat(depth), "1", &close.repeat(depth)].concat();
            assert!(request(&batch).is_err());
        }
    }

    /// NPAMP-CC-JSONRPC §5, §6: exactly one of result and error.
    #[test]
    fn responses() {
        let scanned = response(r#"{"jsonrpc":"2.0","id":1,"result": {"a" : 1} }"#).unwrap();
        assert_eq!(scanned.outcome, Outcome::Result(r#"{"a" : 1}"#));
        let scanned = response(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001}}"#).unwrap();
        assert!(matches!(scanned.outcome, Outcome::Error(_)));
        let scanned = response(r#"{"jsonrpc":"2.0","id":1}"#).unwrap();
        assert_eq!(scanned.outcome, Outcome::Absent);
        assert_eq!(
            response(r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#),
            Err(ScanError::Outcome)
        );
        let scanned = response(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#).unwrap();
        assert_eq!(scanned.outcome, Outcome::Result("null"));
        let scanned =
            response(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1}}"#).unwrap();
        assert!(matches!(scanned.outcome, Outcome::Error(_)));
        assert_eq!(
            response(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#),
            Err(ScanError::Outcome)
        );
        assert_eq!(
            response(r#"{"jsonrpc":"2.0","result":1}"#),
            Err(ScanError::Id)
        );
        assert_eq!(
            response(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":1}"#),
            Err(ScanError::DuplicateMember)
        );
        assert_eq!(response(r#"{"id":1,"result":1}"#), Err(ScanError::Version));
    }

    /// NPAMP-CC-JSONRPC §5, §8.2, §8.4: id equality, types kept apart, Null only for errors.
    #[test]
    fn ids_compare_as_json_values() {
        let equal = |a, b| Id::from_token(a).equals(Id::from_token(b));
        for (a, b) in [
            ("1", "1"),
            ("1", "1.0"),
            ("100", "1e2"),
            ("-0", "0"),
            ("0.10", "1E-1"),
            ("0e99999999999999999999", "0"),
            (r#""a""#, r#""\u0061""#),
            (r#""\/""#, r#""/""#),
            ("null", "null"),
        ] {
            assert!(equal(a, b) && equal(b, a), "{a} {b}");
        }
        for (a, b) in [
            ("1", "\"1\""),
            ("1", "2"),
            ("-1", "1"),
            ("null", "0"),
            ("null", "\"null\""),
            ("10", "1"),
            ("9007199254740993", "9007199254740992"),
            ("1e99999999999999999999", "1e99999999999999999998"),
            (r#""a""#, r#""A""#),
        ] {
            assert!(!equal(a, b) && !equal(b, a), "{a} {b}");
        }
        let result = response(r#"{"jsonrpc":"2.0","id":null,"result":1}"#).unwrap();
        let error = response(r#"{"jsonrpc":"2.0","id":null,"error":{}}"#).unwrap();
        assert!(!result.answers(Id::from_token("1")));
        assert!(result.answers(Id::from_token("null")));
        assert!(error.answers(Id::from_token("1")));
        let other = response(r#"{"jsonrpc":"2.0","id":2,"error":{}}"#).unwrap();
        assert!(!other.answers(Id::from_token("1")));
    }

    /// Ruling R22: the id token is replaced, every other octet stays.
    #[test]
    fn an_id_is_replaced_and_nothing_else() {
        let with = |body: &str, id| {
            with_id(body.as_bytes(), Id::from_token(id)).map(|o| String::from_utf8(o).unwrap())
        };
        assert_eq!(
            with(
                " { \"result\" : {\"id\":1, \"x\":1.0,\"x\":1e0} ,\"\\u0069d\"\t:  \"\\u0061\"\r\n, \"jsonrpc\":\"2.0\"}\n",
                "7"
            )
            .unwrap(),
            " { \"result\" : {\"id\":1, \"x\":1.0,\"x\":1e0} ,\"\\u0069d\"\t:  7\r\n, \"jsonrpc\":\"2.0\"}\n",
        );
        let body = r#"{"jsonrpc":"2.0","id":12,"result":{}}"#;
        assert_eq!(
            with(body, r#""a-b""#).unwrap(),
            r#"{"jsonrpc":"2.0","id":"a-b","result":{}}"#
        );
        assert_eq!(with(body, "12.0"), None, "the same number");
        let error = r#"{"jsonrpc":"2.0","id":null,"error":{}}"#;
        assert_eq!(with(error, "1"), None, "it could name none");
        let error = r#"{"jsonrpc":"2.0","id":2,"error":{}}"#;
        assert_eq!(
            with(error, "1").unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"error":{}}"#
        );
        assert_eq!(with("no JSON", "1"), None);
    }

    #[test]
    fn tasks_are_found() {
        let event = |result: &str| {
            event_task_id(format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).as_bytes())
        };
        let found = |id: &str| Some(id.to_owned());
        assert_eq!(
            event(r#"{"id":"t","kind":"task","contextId":"c"}"#),
            found("t")
        );
        assert_eq!(
            event(r#"{"taskId":"t\u0031","kind":"status-update","id":"x"}"#),
            found("t1")
        );
        assert_eq!(
            event(r#"{"kind":"message","messageId":"m","taskId":"t"}"#),
            found("t")
        );
        assert_eq!(event(r#"{"kind":"message","messageId":"m"}"#), None);
        assert_eq!(event(r#"{"kind":"task","id":7}"#), None);
        assert_eq!(event(r#""t""#), None);
        assert_eq!(
            event_task_id(br#"{"jsonrpc":"2.0","id":1,"error":{}}"#),
            None
        );
        let request = |params: &str| {
            params_id(
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m","params":{params}}}"#).as_bytes(),
            )
        };
        assert_eq!(request(r#"{"metadata":{"id":1},"id":"t"}"#), found("t"));
        assert_eq!(request(r#"{"id":7}"#), None);
        assert_eq!(request("{}"), None);
        assert_eq!(request("[]"), None);
        assert_eq!(params_id(br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#), None);
    }

    /// NPAMP-MAP-A2A §6, ruling R15: the final status-update, by the result's own members.
    #[test]
    fn the_final_status_update_is_found() {
        let is_final = |result: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            response(&body).unwrap().is_final_status_update()
        };
        assert!(is_final(r#"{"kind":"status-update","final":true}"#));
        assert!(is_final(
            r#"{"final" : true, "status":{"final":false}, "k\u0069nd":"status\u002dupdate"}"#
        ));
        assert!(!is_final(r#"{"kind":"status-update","final":false}"#));
        assert!(!is_final(r#"{"kind":"status-update","final":"true"}"#));
        assert!(!is_final(r#"{"kind":"status-update"}"#));
        assert!(!is_final(r#"{"kind":"artifact-update","final":true}"#));
        assert!(!is_final(r#"{"final":true}"#));
        assert!(!is_final(
            r#"{"kind":"task","x":{"kind":"status-update","final":true}}"#
        ));
        assert!(!is_final(r#"{"statusUpdate":{"final":true}}"#));
        assert!(!is_final("[]"));
        assert!(!is_final("null"));
        let error =
            response(r#"{"jsonrpc":"2.0","id":1,"error":{"kind":"status-update","final":true}}"#);
        assert!(!error.unwrap().is_final_status_update());
    }
}
