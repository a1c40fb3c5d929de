//! Reads the upstreams of a route: one URL, or a list of URLs and of tables,
//! each of which may say for itself what the route says for all.

use super::files::FileKind;
use super::reader::{At, Found, Item, Section};
use super::sections::Reading;
use super::values;
use crate::limits;
use crate::relay::settings::UpstreamSettings;

/// What a route says for every upstream that says nothing itself.
pub(super) struct Common {
    pub server_name: Option<String>,
    /// The route has the key, right or wrong.
    pub names: bool,
    pub peer: Option<String>,
    pub tls_ca: Option<std::path::PathBuf>,
}

/// The upstreams of a route, and whether each that was written has a `peer` of its own.
pub(super) struct Upstreams {
    pub settings: Vec<UpstreamSettings>,
    pub each_has_peer: bool,
    /// Everything that was written could be read.
    pub whole: bool,
}

/// Reads the key `upstream` of a route. Problems are reported; what has one is left out.
pub(super) fn read(route: &mut Section<'_>, common: &Common, r: &mut Reading<'_>) -> Upstreams {
    let items = route.texts_or_tables("upstream", limits::UPSTREAMS_PER_ROUTE_MAX, r.problems);
    let mut upstreams = Upstreams {
        settings: Vec::new(),
        each_has_peer: !items.is_empty(),
        whole: !items.is_empty(),
    };
    let alone = items.len() == 1;
    for item in items {
        let read = match item {
            Item::Text(url) => {
                upstreams.each_has_peer = false;
                // Of the only upstream the name would be the route's.
                let at = if alone { route.at() } else { url.at.clone() };
                one(url, &at, common, r)
            }
            Item::Table(section) => {
                upstreams.each_has_peer &= section.has("peer");
                table(section, common, r)
            }
        };
        let Some((at, settings)) = read else {
            upstreams.whole = false;
            continue;
        };
        let again = upstreams.settings.iter().any(|other| {
            other.address.eq_ignore_ascii_case(&settings.address)
                && other.server_name == settings.server_name
        });
        if again {
            r.problems.report(
                &at,
                format_args!("npamp://{} is listed twice", settings.address),
            );
            upstreams.whole = false;
            continue;
        }
        upstreams.settings.push(settings);
    }
    upstreams
}

/// An upstream of which only the URL is written.
fn one(
    url: Found<String>,
    at: &At,
    common: &Common,
    r: &mut Reading<'_>,
) -> Option<(At, UpstreamSettings)> {
    let found = r.parsed(Some(url), values::upstream)?;
    let server_name = server_name(&found.value, at, common, r)?;
    let settings = UpstreamSettings {
        address: found.value,
        server_name,
        peer: common.peer.clone(),
        tls_ca: common.tls_ca.clone(),
    };
    Some((found.at, settings))
}

/// An upstream that has a table of its own.
fn table(
    mut section: Section<'_>,
    common: &Common,
    r: &mut Reading<'_>,
) -> Option<(At, UpstreamSettings)> {
    let at = section.at();
    let url = section.required_string("url", r.problems);
    let url = r.parsed(url, values::upstream);
    let has_name = section.has("server_name");
    let name = section.string("server_name", r.problems);
    let name = r.parsed(name, values::server_name);
    let peer = section.string("peer", r.problems);
    let peer = r.parsed(peer, values::peer);
    let tls_ca = r.optional_file(&mut section, "tls_ca", FileKind::Roots);
    section.finish(r.problems);
    let address = url?.value;
    let server_name = match (name, has_name) {
        (Some(name), _) => name.value,
        (None, true) => return None,
        (None, false) => server_name(&address, &at, common, r)?,
    };
    let settings = UpstreamSettings {
        address,
        server_name,
        peer: peer.map(|peer| peer.value).or_else(|| common.peer.clone()),
        tls_ca: tls_ca.or_else(|| common.tls_ca.clone()),
    };
    Some((at, settings))
}

/// The route's name, or the upstream's host if it can be one.
fn server_name(address: &str, at: &At, common: &Common, r: &mut Reading<'_>) -> Option<String> {
    if common.names {
        return common.server_name.clone();
    }
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let name = values::server_name(host);
    if name.is_err() {
        r.problems.report(
            at,
            "missing key server_name: the upstream is an address, not a name that TLS could carry",
        );
    }
    name.ok()
}
