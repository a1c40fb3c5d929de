//! What one thread of the generator is to do.

use crate::args::Arrivals;
use crate::kind::Mix;
use crate::schedule::Share;
use std::time::Duration;

/// The plan of one thread.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Exchanges.
    pub mix: Mix,
    /// Arrivals.
    pub arrivals: Arrivals,
    /// Requests per second, of all threads.
    pub rate: f64,
    /// This thread's share of them.
    pub share: Share,
    /// Not measured.
    pub warmup: Duration,
    /// Measured.
    pub duration: Duration,
    /// Seed of random arrivals.
    pub seed: Option<u64>,
    /// Associations of this thread.
    pub connections: usize,
    /// Exchanges of this thread at once.
    pub concurrency_max: usize,
    /// Octets of a request.
    pub payload: usize,
    /// Octets of a bulk request.
    pub bulk_payload: usize,
    /// Silence after which an exchange is given up.
    pub timeout: Duration,
    /// A send later than this after it could be is late.
    pub lag_max: Duration,
    /// What the target is called in messages.
    pub target: String,
    /// Our identity, for messages.
    pub identity: String,
}
