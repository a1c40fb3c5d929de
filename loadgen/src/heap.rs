//! What the allocator has given out. The only unsafe code of the load generator:
//! two calls of the C library that take no pointer.
#![allow(unsafe_code)]

/// Makes all threads share one arena, the only one that the allocator tells about. Slower, so only
/// where memory is what is measured. To be called before there are threads.
pub fn one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers; a refusal leaves things as they were.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Octets allocated and not freed, of the one arena and of what was mapped alone; none where the C library does not tell.
#[allow(clippy::unnecessary_wraps)] // only with this C library
pub fn allocated() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing and returns a struct of integers.
        let told = unsafe { libc::mallinfo2() };
        Some(told.uordblks as u64 + told.hblkhd as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    #[test]
    fn what_is_allocated_counts() {
        super::one_arena();
        let before = super::allocated().unwrap();
        // Large enough to be mapped alone, whatever arena this thread has.
        let octets = std::hint::black_box(vec![1u8; 64 << 20]);
        let with = super::allocated().unwrap();
        assert!(with >= before + (60 << 20), "{before} {with}");
        drop(octets);
    }
}
