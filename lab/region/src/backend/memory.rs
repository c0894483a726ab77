//! Memory that requests in flight need, each its own, while all have a limit.

use std::fs::{File, remove_file};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const PAGE: usize = 4096;
/// Memory of a request in flight.
const REGION_BYTES: usize = 1 << 20;
/// How often a request goes over its region.
const PASSES: u32 = 8;

/// Regions of a mapped file. The kernel takes pages of it away when the control group is at its
/// limit, and a request that touches them again waits for them. The file is a hole: no disk takes
/// part, only the kernel's work.
pub(crate) struct Regions {
    base: usize,
    free: Mutex<Vec<usize>>,
}

impl Regions {
    /// `count` regions, in a file of the temporary folder that is unlinked at once.
    pub(crate) fn new(name: &str, count: usize) -> io::Result<Regions> {
        let path = std::env::temp_dir().join(format!("equipoise-region-{name}"));
        let file = make(&path)?;
        let length = count * REGION_BYTES;
        file.set_len(length as u64)?;
        // SAFETY: a new shared mapping of a file that is as long as the mapping and that no other
        // process has.
        let base = unsafe {
            let protection = libc::PROT_READ;
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: advice about the mapping made above. Without it the kernel reads many pages for
        // one.
        unsafe { libc::madvise(base, length, libc::MADV_RANDOM) };
        Ok(Regions { base: base as usize, free: Mutex::new((0..count).rev().collect()) })
    }

    /// A request: takes a region and goes over it again and again, `time` in all if its pages stay
    /// in memory.
    pub(crate) fn work(&self, time: Duration) {
        let taken = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(region) = taken else { return };
        for _ in 0..PASSES {
            for page in 0..REGION_BYTES / PAGE {
                let at = (self.base + region * REGION_BYTES + page * PAGE) as *const u8;
                // SAFETY: within the mapping, which lives as long as the process and is only read.
                unsafe { at.read_volatile() };
            }
            thread::sleep(time / PASSES);
        }
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(region);
    }
}

fn make(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
    remove_file(path)?;
    Ok(file)
}
