//! A program that connects to a unix socket of the worker, instead of using its standard input and
//! output.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::serve::{self, serve};
use super::{Dealings, Program, Shared};

/// The socket. A drop removes it.
#[derive(Debug)]
pub(super) struct Listening {
    path: PathBuf,
}

/// Why the worker does not listen on the socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A file that is not a socket has this path.
    #[error("{} exists and is not a unix socket: choose another path", .0.display())]
    NoSocket(PathBuf),
    /// Another process listens there.
    #[error("another process listens on {}: choose another path, or stop that process", .0.display())]
    InUse(PathBuf),
    /// An error of the system.
    #[error("cannot listen on {}", path.display())]
    Io {
        /// The path of the socket.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
}

impl Program {
    /// Listens on a unix socket for a program that the worker does not start. It serves one
    /// connection at a time. The next connection receives again all jobs that the one before did
    /// not acknowledge. The format is the same.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn listen(path: &Path) -> Result<Self, ListenError> {
        Self::listen_with(Dealings::default(), path)
    }

    /// The same, with other options.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn listen_with(dealings: impl Into<Dealings>, path: &Path) -> Result<Self, ListenError> {
        let refused = |source| ListenError::Io { path: path.to_path_buf(), source };
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(refused)?;
        let shared = Shared::of(dealings.into());
        let accepting = shared.clone();
        std::thread::Builder::new()
            .name("slice-program".into())
            .spawn(move || accept(&accepting, &listener))
            .map_err(refused)?;
        Ok(Self { shared, listening: Some(Listening { path: path.to_path_buf() }) })
    }
}

/// Removes the socket of a process that was killed.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let Ok(there) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !there.file_type().is_socket() {
        return Err(ListenError::NoSocket(path.to_path_buf()));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse(path.to_path_buf()));
    }
    std::fs::remove_file(path)
        .map_err(|source| ListenError::Io { path: path.to_path_buf(), source })
}

fn accept(shared: &Arc<Shared>, listener: &UnixListener) {
    for stream in listener.incoming() {
        if shared.desk().closed {
            return;
        }
        let read = match stream.and_then(|stream| connected(shared, stream)) {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%error, "a slice worker's program cannot connect");
                0
            }
        };
        if !shared.again(read) {
            return;
        }
    }
}

/// Serves a program until its connection ends. Returns how many bytes it may have read.
fn connected(shared: &Arc<Shared>, stream: UnixStream) -> io::Result<u64> {
    let (input, output) = (Input(stream.try_clone()?), stream.try_clone()?);
    let end = || {
        // The connection may have ended already.
        let _ = stream.shutdown(std::net::Shutdown::Both);
    };
    Ok(serve(shared, input, output, end))
}

/// The input of the program. A drop shuts it down, although the other half of the socket is still
/// open.
struct Input(UnixStream);

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl serve::Input for Input {
    fn unread(&self) -> u64 {
        // Unread bytes are lost with the connection.
        0
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // The connection may have ended already.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Ends the thread that accepts. Another process may have removed the file.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}
