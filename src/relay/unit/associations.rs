//! Associations of a unit: named and counted from the moment they are established,
//! checked by what HELLO says before anything flows, and taken out when they end.

use super::{Line, Loop};
use crate::a2a::port::{AssociationInfo, DownReason, Input, ServiceParameters, Side};
use crate::association::{PROTOCOL_A2A, Peer};
use crate::engine::control::Origin;
use crate::engine::shard::{Down, LinkId, LinkInfo};
use crate::relay::hello;
use crate::relay::stats::UnitCount;
use crate::wire::ChannelId;

impl Loop {
    pub(super) fn up(&mut self, link: LinkId, info: LinkInfo) {
        let association = self.name_association(&info);
        tracing::info!(
            association = association.0,
            server_name = %info.server_name,
            peer = %info.peer,
            address = %info.address,
            "association established"
        );
        self.associations.insert(link, association);
        self.lines.insert(
            association,
            Line {
                link,
                info,
                ready: false,
                closing: None,
                pool: None,
            },
        );
        self.port.pressure.borrow_mut().open(association);
    }

    /// HELLO is done: check what it says, then let calls and requests flow.
    pub(super) fn ready(&mut self, link: LinkId, peer: &Peer) {
        let Some(&association) = self.associations.get(&link) else {
            return;
        };
        let Some(line) = self.lines.get_mut(&association) else {
            return;
        };
        let side = match line.info.side {
            crate::handshake::Side::Initiator => Side::Initiator,
            crate::handshake::Side::Responder => Side::Responder,
        };
        // Ruling R12: HELLO repeats the link's server name under the N-PAMP handshake.
        if let (Side::Responder, Some(hello)) = (side, &peer.hello)
            && !hello::repeats_server_name(hello, &line.info.server_name)
        {
            self.stats.count(UnitCount::ServerNameMismatches);
            let text = "HELLO does not repeat the link's server name";
            line.closing = Some(text.into());
            self.shard.close(link, 1, text);
            return;
        }
        let parameters = match (&peer.hello, side, line.info.origin) {
            (Some(hello), Side::Responder, _) => match hello::stated_parameters(hello) {
                Ok(parameters) => parameters,
                Err(text) => {
                    self.stats.count(UnitCount::ParametersRefused);
                    line.closing = Some(text.into());
                    self.shard.close(link, 1, text);
                    return;
                }
            },
            _ => ServiceParameters::default(),
        };
        let ours = self.relay.settings.policy.document_binding;
        let stated = peer.hello.as_ref().and_then(hello::document_binding);
        let document_binding = ours.filter(|&tag| stated == Some(u64::from(tag)));
        let info = AssociationInfo {
            side,
            server_name: line.info.server_name.clone(),
            peer: line.info.peer.to_string().into(),
            document_binding,
            carries_a2a: peer.hello.is_none()
                || (peer.selects(u64::from(PROTOCOL_A2A))
                    && peer.selects(u64::from(ChannelId::BRIDGE.0))),
            discovery: peer.hello.is_some() && peer.selects(u64::from(ChannelId::DISCOVERY.0)),
            hello: peer.hello.is_some(),
            parameters,
        };
        let pool = match line.info.origin {
            Origin::Dialled { token } => self.dials.remove(&token),
            Origin::Accepted { .. } => None,
        };
        if let Some(pool) = pool {
            self.upstream_back(pool);
            if self.port.pools.borrow_mut().get(pool).is_none() {
                // It was a probe, and its set of parameters has been evicted.
                self.shard.close(link, 0, "idle");
                return;
            }
        }
        if let Some(line) = self.lines.get_mut(&association) {
            line.ready = true;
            line.pool = pool;
        }
        let replaces = pool.and_then(|pool| self.upstream_up(pool, association));
        self.map(Input::Up {
            association,
            info,
            replaces,
        });
        if let Some(pool) = pool {
            self.release_waiting(pool);
        }
    }

    pub(super) fn down(&mut self, link: LinkId, reason: &Down) {
        let Some(association) = self.associations.remove(&link) else {
            return;
        };
        let Some(line) = self.lines.remove(&association) else {
            return;
        };
        let text = line.closing.unwrap_or_else(|| reason.to_string());
        tracing::info!(association = association.0, reason = %text, "association down");
        self.port.pressure.borrow_mut().close(association);
        self.busy.remove(&association);
        if let Origin::Dialled { token } = line.info.origin
            && let Some(pool) = self.dials.remove(&token)
        {
            // It never became ready. A responder judges our identity last, when our
            // side of the handshake is done, and can only hang up.
            let text =
                format!("{text}, before HELLO; does the responder allow this relay's identity?");
            let timed_out = matches!(reason, Down::Association(error) if error.is_silence());
            self.dial_failed(pool, &text, timed_out, &text);
        }
        if let Some(id) = line.pool {
            self.upstream_lost(id, association, reason, &text);
        }
        if line.ready {
            self.map(Input::Down {
                association,
                reason: DownReason(text.into()),
            });
        }
    }
}
