//! What the tables of a configuration say about each other: routes find their
//! ingress, names and addresses are taken once, and there is something to do.

use super::reader::Problems;
use super::sections::{Draft, Entrance};
use crate::edge::settings::RoutePath;
use crate::relay::settings::{HelloMode, INBOUND_REST, Settings, TlsVerify};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

/// Reports contradictions and connects routes with the ingresses that serve them.
pub(super) fn connect(draft: &mut Draft, problems: &mut Problems) {
    let nothing = draft.listen_addresses.is_empty() && draft.ingress_addresses.is_empty();
    if nothing && problems.is_empty() {
        problems.report_file("nothing to do: neither [[listen]] nor [[ingress]]");
    }

    let mut taken: HashSet<SocketAddr> = HashSet::new();
    let addresses = draft
        .listen_addresses
        .iter()
        .chain(&draft.ingress_addresses)
        .chain(&draft.admin_address);
    for found in addresses {
        // Port 0 asks for any free port, as often as one likes.
        if found.value.port() != 0 && !taken.insert(found.value) {
            problems.report(
                &found.at,
                format_args!("{} is listened on twice", found.value),
            );
        }
    }

    let mut names = HashSet::new();
    for name in &draft.agent_names {
        if !names.insert(name.value.as_str()) {
            problems.report(
                &name.at,
                format_args!("there is another agent {:?}", name.value),
            );
        }
    }
    for at in draft.agent_defaults.iter().skip(1) {
        problems.report(at, "there is another default agent");
    }
    let mut inbound = false;
    for entrance in &draft.routes {
        let Entrance::Inbound(name) = entrance else {
            continue;
        };
        inbound = true;
        if name.value == INBOUND_REST && !draft.agent_defaults.is_empty() {
            problems.report(&name.at, "the default agent takes the rest already");
        }
        if !names.insert(name.value.as_str()) {
            problems.report(
                &name.at,
                format_args!("there is another agent or inbound route {:?}", name.value),
            );
        }
    }
    if let (Some(at), true) = (
        &draft.workers,
        draft.settings.ingresses.is_empty()
            && draft.settings.agents.is_empty()
            && !inbound
            // What was written may be there and wrong.
            && problems.is_empty(),
    ) {
        problems.report(
            at,
            "workers have nothing to map without an ingress, an agent or an inbound route",
        );
    }

    let mut paths: HashMap<(usize, &str), usize> = HashMap::new();
    for (index, entrance) in draft.routes.iter().enumerate() {
        let Entrance::Path(path, only) = entrance else {
            continue;
        };
        let mut served = false;
        for (position, address) in draft.ingress_addresses.iter().enumerate() {
            if only
                .as_ref()
                .is_some_and(|only| only.value != address.value)
            {
                continue;
            }
            served = true;
            if paths
                .insert((position, path.value.as_str()), index)
                .is_some()
            {
                problems.report(
                    &path.at,
                    format_args!(
                        "there is another route for {:?} on ingress {}",
                        path.value, address.value
                    ),
                );
                break;
            }
            if let Some(ingress) = draft.settings.ingresses.get_mut(position) {
                ingress.routes.push(RoutePath {
                    path: path.value.clone(),
                    route: index,
                });
            }
        }
        match only {
            Some(only) if !served && draft.ingresses_whole => {
                problems.report(
                    &only.at,
                    format_args!("no [[ingress]] has the address {}", only.value),
                );
            }
            None if !served && draft.ingresses_whole => {
                problems.report(&path.at, "no [[ingress]] serves this route");
            }
            _ => {}
        }
    }
}

/// What is allowed but worth knowing, one sentence each.
pub(super) fn notes(settings: &Settings) -> Vec<String> {
    let mut notes = Vec::new();
    for listen in &settings.listeners {
        let address = listen.address;
        if listen.hello == HelloMode::Optional {
            notes.push(format!(
                "listen {address}: hello = \"optional\" is outside conformance"
            ));
        }
        if listen.peers.is_empty() {
            notes.push(format!(
                "listen {address}: peers is empty, so every initiator is refused"
            ));
        }
        if listen.peers.iter().any(|peer| peer == "*") {
            notes.push(format!(
                "listen {address}: peers = [\"*\"] allows every initiator"
            ));
        }
    }
    let inbound = settings.routes.iter().any(|route| route.inbound.is_some());
    if !settings.listeners.is_empty() && settings.agents.is_empty() && !inbound {
        notes.push(
            "no [[agent]] and no inbound [[route]]: what arrives at [[listen]] cannot be delivered"
                .to_owned(),
        );
    }
    if settings.listeners.is_empty() && inbound {
        notes.push("no [[listen]]: nothing reaches the inbound routes".to_owned());
    }
    if settings.listeners.is_empty() && !settings.agents.is_empty() {
        notes.push("no [[listen]]: nothing reaches the agents".to_owned());
    }
    for ingress in &settings.ingresses {
        let address = ingress.address;
        if ingress.routes.is_empty() {
            notes.push(format!(
                "ingress {address}: no route, so every path is not found"
            ));
        }
        if address.ip().is_loopback() {
            continue;
        }
        if ingress.token_file.is_none() {
            notes.push(format!(
                "ingress {address}: without token_file whoever reaches it may call the agents"
            ));
        }
        if ingress.tls.is_none() {
            notes.push(format!(
                "ingress {address}: plain HTTP on an address that is not loopback"
            ));
        }
    }
    for route in &settings.routes {
        let path = match &route.inbound {
            Some(name) => format!("from {name}"),
            None => route.path.clone(),
        };
        if route.hello == HelloMode::Optional {
            notes.push(format!(
                "route {path}: hello = \"optional\" is outside conformance"
            ));
        }
        if route.tls_verify == TlsVerify::Pinned {
            notes.push(format!(
                "route {path}: the certificate is not checked, the pinned identity is"
            ));
            if route
                .upstreams
                .iter()
                .any(|upstream| upstream.tls_ca.is_some())
            {
                notes.push(format!(
                    "route {path}: tls_ca is not used with tls_verify = \"pinned\""
                ));
            }
        }
    }
    if let Some(admin) = settings
        .observe
        .admin
        .filter(|admin| !admin.ip().is_loopback())
    {
        notes.push(format!(
            "observe: the admin listener {admin} has no authentication and is not on loopback"
        ));
    }
    if settings.policy.document_binding.is_none() {
        notes.push("policy: without docbind no agent card can be carried".to_owned());
    }
    notes
}
