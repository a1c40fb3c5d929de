//! A2A over HTTP: clients of an ingress, and an agent behind an egress. Knows
//! nothing of N-PAMP.

pub mod agent;
pub mod client;
pub mod events;
pub mod objects;
pub mod pace;
mod run;
pub mod target;

pub use run::run;
