//! Reading a body whole, within its bound and never more than it.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;
use std::cell::Cell;
use std::time::Duration;

/// Octets of bodies that are being read on one edge. It grows with what
/// arrives, not with what a header announces.
#[derive(Debug)]
pub(super) struct Budget {
    held: Cell<usize>,
    max: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self {
            held: Cell::new(0),
            max,
        }
    }

    fn hold(&self) -> Held<'_> {
        Held {
            budget: self,
            octets: 0,
        }
    }
}

struct Held<'a> {
    budget: &'a Budget,
    octets: usize,
}

impl Held<'_> {
    fn grow(&mut self, octets: usize) -> bool {
        let held = self.budget.held.get() + octets;
        if held > self.budget.max {
            return false;
        }
        self.budget.held.set(held);
        self.octets += octets;
        true
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.held.set(self.budget.held.get() - self.octets);
    }
}

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum ReadError<E> {
    /// Announced or found larger than the bound.
    TooLarge,
    /// The edge holds too much already.
    OverBudget,
    /// No octet came for the time given.
    Stalled,
    /// The peer broke off.
    Broken(E),
}

/// The body of an agent's response broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyBroken {
    /// As the HTTP library tells it.
    #[error(transparent)]
    Http(hyper::Error),
    /// Its connection ended.
    #[error("the connection ended")]
    Ended,
}

/// Reads `body` to its end. `idle_time` bounds the wait for each further piece;
/// the caller may bound the whole. A body in one piece is not copied.
pub(super) async fn read_whole<B>(
    body: &mut B,
    octets_max: usize,
    idle_time: Option<Duration>,
    budget: &Budget,
) -> Result<Bytes, ReadError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > octets_max as u64 {
        return Err(ReadError::TooLarge);
    }
    let mut held = budget.hold();
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    loop {
        let frame = match idle_time {
            Some(time) => tokio::time::timeout(time, body.frame())
                .await
                .map_err(|_| ReadError::Stalled)?,
            None => body.frame().await,
        };
        let Some(frame) = frame else { break };
        let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else {
            continue;
        };
        if first.as_ref().map_or(0, Bytes::len) + whole.len() + data.len() > octets_max {
            return Err(ReadError::TooLarge);
        }
        if !held.grow(data.len()) {
            return Err(ReadError::OverBudget);
        }
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            Some(start) => {
                whole.reserve(start.len() + data.len());
                whole.extend_from_slice(&start);
                whole.extend_from_slice(&data);
            }
            None => whole.extend_from_slice(&data),
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::body::Frame;
    use std::convert::Infallible;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    struct Pieces(std::collections::VecDeque<&'static [u8]>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::Poll::Ready(
                self.0
                    .pop_front()
                    .map(|p| Ok(Frame::data(Bytes::from_static(p)))),
            )
        }
    }

    fn pieces(pieces: &[&'static [u8]]) -> Pieces {
        Pieces(pieces.iter().copied().collect())
    }

    #[test]
    fn pieces_are_joined_up_to_the_bound() {
        let budget = Budget::new(100);
        let read = |parts: &[&'static [u8]], max| {
            let mut body = pieces(parts);
            run(read_whole(&mut body, max, None, &budget))
        };
        assert_eq!(read(&[], 0).unwrap(), "");
        assert_eq!(read(&[b"abc"], 3).unwrap(), "abc");
        assert_eq!(read(&[b"", b"ab", b"", b"c", b"d"], 4).unwrap(), "abcd");
        assert!(matches!(
            read(&[b"ab", b"c", b"d"], 3),
            Err(ReadError::TooLarge)
        ));
        assert_eq!(budget.held.get(), 0, "what was held is returned");
    }

    #[test]
    fn an_announced_length_is_refused_unread() {
        let budget = Budget::new(100);
        let mut body = Full::new(Bytes::from_static(b"12345"));
        assert!(matches!(
            run(read_whole(&mut body, 4, None, &budget)),
            Err(ReadError::TooLarge)
        ));
        assert!(!body.is_end_stream());
    }

    #[test]
    fn budget_bounds_all_bodies_together() {
        let budget = Budget::new(5);
        let mut other = budget.hold();
        assert!(other.grow(3));
        let mut body = pieces(&[b"abc"]);
        assert!(matches!(
            run(read_whole(&mut body, 10, None, &budget)),
            Err(ReadError::OverBudget)
        ));
        drop(other);
        let mut body = pieces(&[b"abc"]);
        assert!(run(read_whole(&mut body, 10, None, &budget)).is_ok());
    }

    struct Never;

    impl Body for Never {
        type Data = Bytes;
        type Error = Infallible;
        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::Poll::Pending
        }
    }

    #[test]
    fn a_stalled_body_is_given_up() {
        let budget = Budget::new(5);
        let read = run(async {
            read_whole(&mut Never, 10, Some(Duration::from_millis(10)), &budget).await
        });
        assert!(matches!(read, Err(ReadError::Stalled)));
    }
}
