//! The life of an association as a table of moves. Holds no data; what a move
//! entails is in `machine`.

/// Where an association stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The peer's HELLO is due.
    AwaitHello,
    /// Frames flow.
    Ready,
    /// Our CLOSE waits for its CLOSE_ACK.
    Closing,
    /// Over.
    Ended,
}

/// What moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// HELLO came and was agreed on.
    HelloAgreed,
    /// The peer does without HELLO, and may.
    HelloForgone,
    /// We close.
    Close,
    /// The peer closes.
    PeerClosed,
    /// The peer acknowledged our CLOSE.
    CloseAcked,
    /// It did not in time.
    CloseTimedOut,
    /// A fault.
    Failed,
}

/// A move that the phase does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IllegalMove;

impl Phase {
    /// Makes the move, or leaves the phase as it is.
    pub(super) fn step(&mut self, by: Move) -> Result<(), IllegalMove> {
        *self = match (*self, by) {
            (Self::AwaitHello, Move::HelloAgreed | Move::HelloForgone) => Self::Ready,
            (Self::AwaitHello | Self::Ready, Move::Close) => Self::Closing,
            (Self::AwaitHello | Self::Ready | Self::Closing, Move::PeerClosed | Move::Failed)
            | (Self::Closing, Move::CloseAcked | Move::CloseTimedOut) => Self::Ended,
            _ => return Err(IllegalMove),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Move, Phase};
    use std::fmt::Write as _;

    const PHASES: [Phase; 4] = [
        Phase::AwaitHello,
        Phase::Ready,
        Phase::Closing,
        Phase::Ended,
    ];
    const MOVES: [Move; 7] = [
        Move::HelloAgreed,
        Move::HelloForgone,
        Move::Close,
        Move::PeerClosed,
        Move::CloseAcked,
        Move::CloseTimedOut,
        Move::Failed,
    ];

    /// Every pair, the illegal ones included, written out.
    #[test]
    fn table_of_moves() {
        let mut table = String::new();
        for phase in PHASES {
            for by in MOVES {
                let mut next = phase;
                let legal = next.step(by).is_ok();
                assert!(legal || next == phase, "an illegal move changes nothing");
                let next = if legal {
                    format!("{next:?}")
                } else {
                    "-".into()
                };
                writeln!(table, "{phase:?} {by:?} {next}").unwrap();
            }
        }
        assert_eq!(
            table,
            "AwaitHello HelloAgreed Ready\n\
             AwaitHello HelloForgone Ready\n\
             AwaitHello Close Closing\n\
             AwaitHello PeerClosed Ended\n\
             AwaitHello CloseAcked -\n\
             AwaitHello CloseTimedOut -\n\
             AwaitHello Failed Ended\n\
             Ready HelloAgreed -\n\
             Ready HelloForgone -\n\
             Ready Close Closing\n\
             Ready PeerClosed Ended\n\
             Ready CloseAcked -\n\
             Ready CloseTimedOut -\n\
             Ready Failed Ended\n\
             Closing HelloAgreed -\n\
             Closing HelloForgone -\n\
             Closing Close -\n\
             Closing PeerClosed Ended\n\
             Closing CloseAcked Ended\n\
             Closing CloseTimedOut Ended\n\
             Closing Failed Ended\n\
             Ended HelloAgreed -\n\
             Ended HelloForgone -\n\
             Ended Close -\n\
             Ended PeerClosed -\n\
             Ended CloseAcked -\n\
             Ended CloseTimedOut -\n\
             Ended Failed -\n"
        );
    }
}
