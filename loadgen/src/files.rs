//! How many files this process may have open: each association is one, two with
//! the responder in this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Beside associations: rings, listeners, handshakes under way (which have a second descriptor for a moment).
const OTHERS: u64 = 1024;

/// Raises the limit so that `associations` fit, with both ends here or one.
pub fn make_room(associations: u64, both_ends: bool) -> Result<(), String> {
    let needed = associations * if both_ends { 2 } else { 1 } + OTHERS;
    let limit = getrlimit(Resource::Nofile);
    // None is no limit.
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum.map(|maximum| maximum.max(needed)),
    };
    setrlimit(Resource::Nofile, raised).map_err(|error| {
        format!(
            "{associations} associations need {needed} open files, but the limit is {} and cannot be raised ({error}); \
             raise the hard limit first, as with `ulimit -Hn {needed}` by root",
            limit
                .maximum
                .map_or_else(|| "none".to_owned(), |maximum| maximum.to_string())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_few_is_there_and_for_too_many_is_not() {
        make_room(10, true).unwrap();
        let refused = make_room(1 << 40, false).unwrap_err();
        assert!(refused.contains("open files"), "{refused}");
    }
}
