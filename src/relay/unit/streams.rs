//! What streams that outlive their association ask of a unit: a new association
//! for those that an ingress waits for, room for those that an egress sends
//! again, and a way to the mapper or unit that has them (rulings R17, R18).

use super::{Loop, Message};
use crate::a2a::port::{AssociationId, Input};
use crate::a2a::streams::MapperId;
use crate::crypto::Random;
use crate::engine::clock::{SystemRandom, now};
use crate::engine::control::Origin;
use crate::engine::shard::LinkInfo;
use crate::relay::mapping::association_id;
use crate::relay::pools::{PoolId, PoolState};
use tokio::sync::mpsc;

pub(super) fn jitter() -> u32 {
    let mut octets = [0; 4];
    SystemRandom.fill(&mut octets);
    u32::from_ne_bytes(octets)
}

impl Loop {
    /// Names a new association. One that takes the place of another goes to the
    /// same mapper, which has the streams that wait.
    pub(super) fn name_association(&mut self, info: &LinkInfo) -> AssociationId {
        let lost = match info.origin {
            Origin::Dialled { token } => self.dials.get(&token).and_then(|&pool| {
                self.port
                    .pools
                    .borrow_mut()
                    .get(pool)
                    .and_then(|pool| pool.lost)
            }),
            Origin::Accepted { .. } => None,
        };
        loop {
            self.next_association += 1;
            let association = association_id(self.unit, self.next_association);
            if lost.is_none_or(|lost| self.mapping.is_same_mapper(association, lost)) {
                return association;
            }
        }
    }

    /// Gives an input to a certain mapper, wherever it is.
    pub(super) fn give(&mut self, mapper: MapperId, input: Input) {
        if let Err(input) = self.mapping.give(self.unit, mapper, input) {
            self.pass_on(mapper.0, Message::Input(input));
        }
    }

    /// Gives something to another unit. One that is gone has no use for it.
    pub(super) fn pass_on(&self, unit: usize, message: Message) {
        let peer = self
            .peers
            .get(unit)
            .and_then(mpsc::WeakUnboundedSender::upgrade);
        if let Some(peer) = peer {
            let _ = peer.send(message);
        }
    }

    /// A mapper has more for the association than it may send at once.
    pub(super) fn want_room(&mut self, association: AssociationId, mapper: MapperId) {
        let Some(line) = self.lines.get(&association) else {
            return;
        };
        let octets = self.shard.queued_octets(line.link).unwrap_or(0);
        let high = {
            let mut pressure = self.port.pressure.borrow_mut();
            pressure.queued(association, octets);
            pressure.is_high(association)
        };
        self.busy.insert(association);
        if high {
            self.rooms.push((association, mapper));
        } else {
            self.give(mapper, Input::Room { association });
        }
    }

    /// Tells the mappers that wait where room has come about. True when there was some.
    pub(super) fn make_room(&mut self) -> bool {
        if self.rooms.is_empty() {
            return false;
        }
        let mut worked = false;
        for (association, mapper) in std::mem::take(&mut self.rooms) {
            if !self.lines.contains_key(&association) {
                continue;
            }
            if self.port.pressure.borrow().is_high(association) {
                self.rooms.push((association, mapper));
            } else {
                worked = true;
                self.give(mapper, Input::Room { association });
            }
        }
        worked
    }

    /// Streams wait for an association in place of a lost one.
    pub(super) fn want_association(&mut self, lost: AssociationId) {
        let draining = self.drain_by.is_some();
        let time = self.relay.settings.stream.resume_time();
        let wanted = !draining
            && self
                .port
                .pools
                .borrow_mut()
                .want(lost, now(), time, jitter());
        if wanted {
            return;
        }
        // Also when another has taken its place meanwhile, with its streams.
        self.map(Input::GiveUp { association: lost });
    }

    /// Dials where it is time. True when it was anywhere.
    pub(super) fn redial(&mut self) -> bool {
        if self.port.pools.borrow().next_redial().is_none() {
            return false;
        }
        let due = self.port.pools.borrow_mut().due(now());
        let worked = !due.is_empty();
        for pool_id in due {
            let state = self
                .port
                .pools
                .borrow_mut()
                .get(pool_id)
                .map(|pool| (pool.state, pool.outstanding));
            match state {
                Some((_, 0)) => self.give_up(pool_id),
                Some((PoolState::Down, _)) => self.dial(pool_id),
                // A call has had it dialled.
                Some(_) | None => {}
            }
        }
        worked
    }

    /// A dial failed: once more later, as long as the streams wait.
    pub(super) fn redial_later(&mut self, pool_id: PoolId) {
        let again = {
            let mut pools = self.port.pools.borrow_mut();
            let Some(pool) = pools.get(pool_id).filter(|pool| pool.redial.is_wanted()) else {
                return;
            };
            self.drain_by.is_none() && pool.redial.failed(now(), jitter())
        };
        if !again {
            self.give_up(pool_id);
        }
    }

    /// No association will come for the streams that wait.
    pub(super) fn give_up(&mut self, pool_id: PoolId) {
        let lost = {
            let mut pools = self.port.pools.borrow_mut();
            pools.get(pool_id).and_then(|pool| {
                pool.redial.end();
                pool.lost.take()
            })
        };
        if let Some(association) = lost {
            self.map(Input::GiveUp { association });
        }
    }
}
