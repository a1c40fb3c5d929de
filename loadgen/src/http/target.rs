//! Where an ingress is: `http://host:port/path`.

use std::fmt;
use std::str::FromStr;

/// An `http` URL of a JSON-RPC interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// `host:port`.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl FromStr for HttpTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is no http://host:port/path");
        let uri: http::Uri = text.parse().map_err(|_| refuse())?;
        let authority = uri.authority().ok_or_else(refuse)?;
        if uri.scheme_str() != Some("http") || authority.as_str().contains('@') {
            return Err(refuse());
        }
        let port = authority.port_u16().unwrap_or(80);
        if port == 0 || authority.host().is_empty() {
            return Err(refuse());
        }
        Ok(Self {
            authority: format!("{}:{port}", authority.host()),
            path: uri
                .path_and_query()
                .map_or("/", http::uri::PathAndQuery::as_str)
                .to_owned(),
        })
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let target: HttpTarget = "http://[::1]:8080/agents/a?b=c".parse().unwrap();
        assert_eq!(
            (target.authority.as_str(), target.path.as_str()),
            ("[::1]:8080", "/agents/a?b=c")
        );
        assert_eq!(target.to_string(), "http://[::1]:8080/agents/a?b=c");
        let target: HttpTarget = "http://a.example".parse().unwrap();
        assert_eq!(target.to_string(), "http://a.example:80/");
        for wrong in [
            "",
            "a:1",
            "/path",
            "https://a:1/",
            "npamp://a:1",
            "http://a:0/",
            "http://u:p@a:1/",
        ] {
            assert!(wrong.parse::<HttpTarget>().is_err(), "{wrong}");
        }
    }
}
