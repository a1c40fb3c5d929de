//! Associations on a virtual clock: one against a puppet that may send
//! anything, and two against each other under random traffic.

mod frames;
mod hello;
mod keys;
mod lifetime;
mod pair;
mod rig;
