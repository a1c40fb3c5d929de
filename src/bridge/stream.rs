//! The event_id invariant of one stream, seen from each end. Serves
//! NPAMP-CC-STREAM §5.1. Holds no event.

/// Assigns event_ids: 1, 2, 3 … and one terminal id above them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Producer {
    last: u64,
}

impl Producer {
    /// The id for the next event or for the terminating frame.
    pub fn next_event_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes over an id that another producer assigned, of a stream that passes through.
    pub fn advance_to(&mut self, event_id: u64) -> Result<(), NotMonotonic> {
        if event_id <= self.last {
            return Err(NotMonotonic);
        }
        self.last = event_id;
        Ok(())
    }

    /// The last id handed out, 0 before the first: what a cancel_ack names (§7.2).
    pub fn last_event_id(&self) -> u64 {
        self.last
    }
}

/// Checks event_ids as they arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Consumer {
    last: u64,
}

/// An event_id that does not exceed the one before it (§5.1, §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotMonotonic;

impl Consumer {
    /// Takes the id of a data frame, a terminating frame or an in-stream error.
    /// Gaps are allowed, repetition and going back are not.
    pub fn accept(&mut self, event_id: u64) -> Result<(), NotMonotonic> {
        if event_id <= self.last {
            return Err(NotMonotonic);
        }
        self.last = event_id;
        Ok(())
    }

    /// Whether the id was consumed before: a repeat that follows a resume, to be discarded (§6.3).
    pub fn has_consumed(&self, event_id: u64) -> bool {
        event_id <= self.last
    }

    /// Highest id accepted, 0 before the first: what a cancel names (§7.1).
    pub fn last_event_id(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NPAMP-CC-STREAM §5.1: 1 first, strictly rising, the end above all.
    #[test]
    fn producer_counts_from_one() {
        let mut producer = Producer::default();
        assert_eq!(producer.last_event_id(), 0);
        assert_eq!(producer.next_event_id(), 1);
        assert_eq!(producer.next_event_id(), 2);
        assert_eq!(producer.last_event_id(), 2);
    }

    /// NPAMP-CC-STREAM §5.1: ids of a stream that passes through stay, gaps included; what is
    /// added here goes above them.
    #[test]
    fn producer_takes_ids_over() {
        let mut producer = Producer::default();
        assert_eq!(producer.advance_to(3), Ok(()));
        assert_eq!(producer.advance_to(3), Err(NotMonotonic));
        assert_eq!(producer.advance_to(9), Ok(()));
        assert_eq!(producer.last_event_id(), 9);
        assert_eq!(producer.next_event_id(), 10);
    }

    /// NPAMP-CC-STREAM §5.1, §9: gaps pass, repeats and steps back do not.
    #[test]
    fn consumer_enforces_strict_order() {
        let mut consumer = Consumer::default();
        assert_eq!(consumer.accept(0), Err(NotMonotonic));
        assert_eq!(consumer.accept(1), Ok(()));
        assert_eq!(consumer.accept(1), Err(NotMonotonic));
        assert_eq!(consumer.accept(9), Ok(()));
        assert_eq!(consumer.accept(8), Err(NotMonotonic));
        assert_eq!(consumer.last_event_id(), 9);
    }
}
