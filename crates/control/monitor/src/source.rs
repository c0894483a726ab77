//! Kernel files that stay open and are read repeatedly into one buffer.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Maximum size of a file; `/proc/stat` grows with interrupts and CPUs.
const BYTES_MAX: usize = 1 << 20;

/// A file with contents that the kernel generates on each read. A missing file has no text.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    file: Option<File>,
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Source {
        let path = path.into();
        let file = File::open(&path).ok();
        Source { path, file }
    }

    pub(crate) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads its current text into `buffer`. After an error (the group or interface is gone), the
    /// next call opens the file again.
    pub(crate) fn read<'a>(&mut self, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let file = self.file.as_ref()?;
        match read_whole(file, buffer) {
            Ok(length) => std::str::from_utf8(&buffer[..length]).ok(),
            Err(_) => {
                self.file = None;
                None
            }
        }
    }
}

fn read_whole(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            if length >= BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            buffer.resize((length * 2).clamp(4096, BYTES_MAX), 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
