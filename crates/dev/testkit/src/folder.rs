//! A folder of a test's own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Free bytes of the file system in memory below which [`Folder::in_memory`] takes the disk.
const MEMORY_MIN: u64 = 4 << 30;

/// A new folder under the temporary one; gone, with what is in it, when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// `test` is a part of its name, so that a leftover folder shows its test.
    pub fn new(test: &str) -> Folder {
        Folder::within(&std::env::temp_dir(), test)
    }

    /// A folder in memory, for a program that waits for the disk at every write. Without room in
    /// memory, as [`new`](Folder::new).
    pub fn in_memory(test: &str) -> Folder {
        let memory = Path::new("/dev/shm");
        if free_bytes(memory) >= MEMORY_MIN {
            return Folder::within(memory, test);
        }
        Folder::new(test)
    }

    fn within(parent: &Path, test: &str) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = parent.join(format!("equipoise-test-{test}-{process}-{count}"));
        // Left by an earlier process with the same id.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary folder can be made");
        Folder(path)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Where `name` in it is, or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file atomically, so that a reader never sees half of it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, part) = (self.path(name), self.path("part"));
        std::fs::write(&part, text).expect("the folder is ours");
        std::fs::rename(&part, &path).expect("the folder is ours");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Free bytes of the file system at `path`; 0 if there is none.
pub fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |found| found.f_bavail * found.f_frsize)
}
