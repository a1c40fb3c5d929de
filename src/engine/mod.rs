//! The engine: the only home of threads, io_uring, the clock and randomness.
//!
//! - [`control`] runs tokio-uring: it accepts and dials, performs the TLS and
//!   N-PAMP handshakes and hands each established association to a shard.
//! - [`shard`] owns sockets, associations and a provided buffer ring on a ring
//!   of its own thread; nothing of it is shared and nothing on its path locks.
//! - [`queue`] carries values to and from mapping workers without locks.
//!
//! `unsafe` lives here: in [`buffers`] and [`ring`], each block with its invariant.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(clippy::disallowed_methods)] // this is the home of the clock and of threads

pub mod buffers;
pub mod clock;
pub mod control;
pub mod cores;
pub mod establish;
pub mod queue;
pub mod ring;
pub mod shard;
pub mod wake;
