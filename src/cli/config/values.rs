//! How single values of a configuration are spelled. Each function takes the
//! text and gives the value or a message that says what would be right.

use rustls_pki_types::DnsName;
use std::net::SocketAddr;
use url::Url;

/// `address:port` to listen on.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!(
            "{text:?} is no address to listen on; write it like \"127.0.0.1:8080\" or \"[::]:8080\""
        )
    })
}

/// A peer's identity in its only spelling.
pub(crate) fn peer(text: &str) -> Result<String, String> {
    match text.parse::<crate::crypto::IdentityPublic>() {
        Ok(identity) => Ok(identity.to_string()),
        Err(_) => Err(format!(
            "{text:?} is no identity; expected \"ed25519:\" and 43 characters of base64url, as `npamp-relay identity show` prints it"
        )),
    }
}

/// A host name that TLS can carry, in lower case.
pub(crate) fn server_name(text: &str) -> Result<String, String> {
    match DnsName::try_from(text) {
        Ok(_) => Ok(text.to_ascii_lowercase()),
        Err(_) => Err(format!(
            "{text:?} is no host name; letters, digits, hyphens and dots make one"
        )),
    }
}

/// `npamp://host:port`, given back as `host:port`.
pub(crate) fn upstream(text: &str) -> Result<String, String> {
    let wrong = || {
        let shown = shown(text);
        format!("{shown} is no upstream; expected \"npamp://host:port\"")
    };
    let url = Url::parse(text).map_err(|_| wrong())?;
    let plain = url.scheme() == "npamp"
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) if plain && !host.is_empty() && port != 0 => {
            let bracketed = host.starts_with('[');
            if !bracketed
                && DnsName::try_from(host).is_err()
                && host.parse::<std::net::Ipv4Addr>().is_err()
            {
                return Err(wrong());
            }
            Ok(format!("{host}:{port}"))
        }
        _ => Err(wrong()),
    }
}

/// A URL as a message may show it: not where it could hold a credential.
fn shown(text: &str) -> String {
    if text.contains('@') {
        "what is written".to_owned()
    } else {
        format!("{text:?}")
    }
}

fn http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("{} is no URL: {e}", shown(text)))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(format!("{} is no http or https URL", shown(text)));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL must not hold credentials".to_owned());
    }
    if url.fragment().is_some() {
        return Err(format!("{text:?} must not have a fragment"));
    }
    Ok(url)
}

/// An agent's http or https URL.
pub(super) fn agent_url(text: &str) -> Result<String, String> {
    http_url(text).map(String::from)
}

/// A base URL, given back without a slash at its end.
pub(super) fn public_url(text: &str) -> Result<String, String> {
    let url = http_url(text)?;
    if url.query().is_some() {
        return Err(format!("{text:?} must not have a query"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// A path prefix, given back without a slash at its end unless it is `/`.
pub(super) fn route_path(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} is no path prefix: {why}"));
    if !text.starts_with('/') {
        return wrong("it must begin with \"/\"");
    }
    let path = text.strip_suffix('/').unwrap_or(text);
    if path.is_empty() {
        return Ok("/".to_owned());
    }
    for segment in path.split('/').skip(1) {
        match segment {
            "" | "." | ".." => return wrong("empty, \".\" and \"..\" segments never arrive"),
            ".well-known" => return wrong("\".well-known\" is where the card is served"),
            _ => {}
        }
        let plain = |b: u8| {
            b.is_ascii_graphic()
                && !matches!(
                    b,
                    b'?' | b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}'
                )
        };
        if !segment.bytes().all(plain) {
            return wrong("percent-encode what a URL cannot hold");
        }
    }
    Ok(path.to_owned())
}

/// Whether a TLV type may serve as the DocumentBinding tag (ruling R9): assigned
/// and reserved types may not, and by ruling R8 only types whose first octet is
/// zero are told from the foreign message.
pub(super) fn document_binding(tag: u16) -> Result<(), String> {
    let why = match tag {
        0x0011 => "is StreamControl",
        0x0000..=0x000d | 0x0010 | 0x0012..=0x0018 => {
            "is assigned or reserved by the specification"
        }
        0x8000.. => "lies in the reserved range 0x8000 to 0xffff",
        0x0100..=0x7fff => "could not be told from a foreign message; types up to 0x00ff can",
        0x000e..=0x000f | 0x0019..=0x00ff => return Ok(()),
    };
    Err(format!("TLV type {tag:#06x} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams() {
        assert_eq!(
            upstream("npamp://relay.example:7443").unwrap(),
            "relay.example:7443"
        );
        assert_eq!(upstream("npamp://10.0.0.1:7443/").unwrap(), "10.0.0.1:7443");
        assert_eq!(upstream("npamp://[::1]:7443").unwrap(), "[::1]:7443");
        for wrong in [
            "",
            "relay.example:7443",
            "http://relay.example:7443",
            "npamp://relay.example",
            "npamp://:7443",
            "npamp://relay.example:0",
            "npamp://relay.example:70000",
            "npamp://u:p@relay.example:1",
            "npamp://relay.example:1/x",
            "npamp://relay.example:1?x",
            "npamp://a b:1",
            "npamp:relay:1",
        ] {
            assert!(upstream(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn route_paths() {
        assert_eq!(route_path("/").unwrap(), "/");
        assert_eq!(route_path("/agents/x/").unwrap(), "/agents/x");
        for wrong in [
            "",
            "agents",
            "/a//b",
            "/a/../b",
            "/a?b",
            "/a b",
            "/ä",
            "/.well-known",
            "//",
        ] {
            assert!(route_path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn public_urls() {
        assert_eq!(
            public_url("https://a.example/x/").unwrap(),
            "https://a.example/x"
        );
        assert_eq!(
            public_url("https://a.example").unwrap(),
            "https://a.example"
        );
        assert!(public_url("ftp://a.example").is_err());
        assert!(public_url("https://a.example/?q").is_err());
        for credential in [
            "http://user:hunter2@a.example",
            "http://user:hunter2@a.example:99999/",
            "ftp://user:hunter2@a.example",
            "user:hunter2@a.example",
        ] {
            let told = agent_url(credential).unwrap_err();
            assert!(!told.contains("hunter2"), "{told}");
            let told = upstream(credential).unwrap_err();
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    /// Rulings R8 and R9.
    #[test]
    fn document_binding_tags() {
        for tag in [
            0, 1, 0x0d, 0x10, 0x11, 0x12, 0x13, 0x14, 0x18, 0x100, 0x7fff, 0x8000, 0xffff,
        ] {
            assert!(document_binding(tag).is_err(), "{tag:#x}");
        }
        for tag in [0x19, 0xd0, 0xff] {
            assert!(document_binding(tag).is_ok(), "{tag:#x}");
        }
    }
}
