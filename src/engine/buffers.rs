//! A provided buffer ring: receive buffers that the kernel picks from by itself.
//! A buffer is with the kernel, or with the shard for one turn; never both.
#![allow(unsafe_code)]

use io_uring::{IoUring, types};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// Buffer group of the only ring of buffers there is.
pub const GROUP: u16 = 1;

/// Anonymous memory, page aligned, unmapped on drop.
struct Mapping {
    start: NonNull<u8>,
    octets: usize,
    kept: bool,
}

impl Mapping {
    fn new(octets: usize) -> io::Result<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                octets,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave address 0"))?;
        Ok(Self {
            start,
            octets,
            kept: false,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // SAFETY: the range is exactly what mmap returned, and `BufferRing` hands out no
        // slice that outlives it. The kernel's use has ended: see `Ring::drop`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.octets) };
    }
}

/// The ring and its buffers.
pub struct BufferRing {
    entries: Mapping,
    memory: Mapping,
    count: u16,
    buffer_octets: usize,
    tail: u16,
}

#[allow(clippy::cast_ptr_alignment)] // `entries` is page aligned
impl BufferRing {
    /// Registers `count` (a power of two) buffers of `buffer_octets` with the ring.
    pub fn new(io: &IoUring, count: u16, buffer_octets: usize) -> io::Result<Self> {
        assert!(count.is_power_of_two(), "the kernel masks with count - 1");
        let entries =
            Mapping::new(usize::from(count) * std::mem::size_of::<types::BufRingEntry>())?;
        let memory = Mapping::new(usize::from(count) * buffer_octets)?;
        // SAFETY: `entries` is page aligned, zeroed, holds `count` entries, and lives as long
        // as `self`, which `Ring` keeps until the ring is closed.
        unsafe {
            io.submitter().register_buf_ring_with_flags(
                entries.start.as_ptr() as u64,
                count,
                GROUP,
                0,
            )?;
        }
        let mut ring = Self {
            entries,
            memory,
            count,
            buffer_octets,
            tail: 0,
        };
        for buffer in 0..count {
            ring.give_back(buffer);
        }
        ring.commit();
        Ok(ring)
    }

    /// Octets the kernel put into `buffer`. The slice borrows the ring, so it ends before
    /// the buffer can be given back.
    pub fn received(&mut self, buffer: u16, octets: usize) -> &mut [u8] {
        assert!(
            buffer < self.count && octets <= self.buffer_octets,
            "a completion names a buffer of ours"
        );
        // SAFETY: in range by the assertion; the kernel does not touch a buffer between the
        // completion that names it and `give_back`, and `&mut self` excludes a second slice.
        unsafe {
            let start = self
                .memory
                .start
                .as_ptr()
                .add(usize::from(buffer) * self.buffer_octets);
            std::slice::from_raw_parts_mut(start, octets)
        }
    }

    /// Leaves the memory mapped for good.
    pub fn keep(&mut self) {
        self.entries.kept = true;
        self.memory.kept = true;
    }

    /// Puts a buffer back; the kernel sees it after [`BufferRing::commit`].
    pub fn give_back(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: `slot` is below `count`, so the entry is inside the mapping; entries beyond
        // the published tail belong to us alone.
        unsafe {
            let entry = &mut *self
                .entries
                .start
                .as_ptr()
                .cast::<types::BufRingEntry>()
                .add(slot);
            entry.set_addr(
                self.memory.start.as_ptr() as u64 + u64::from(buffer) * self.buffer_octets as u64,
            );
            #[allow(clippy::cast_possible_truncation)] // limits::RECEIVE_BUFFER_OCTETS fits
            entry.set_len(self.buffer_octets as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes what was given back.
    pub fn commit(&mut self) {
        // SAFETY: the tail lives in the first entry of the mapping, is 2-aligned, and the kernel
        // only reads it; the release store orders the entries before it.
        unsafe {
            let tail = types::BufRingEntry::tail(self.entries.start.as_ptr().cast());
            (*tail.cast::<AtomicU16>()).store(self.tail, Ordering::Release);
        }
    }
}

// SAFETY: the mappings are plain memory owned by this value; `BufferRing` has no shared state.
unsafe impl Send for BufferRing {}
