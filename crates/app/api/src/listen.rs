//! Opens the API's listeners.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use equipoise_basics::{Transport, explain_listen};
use equipoise_handover::{Inherited, Listening, SocketName};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::tls::ApiTls;

/// Largest number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Reasons why the API could not be opened. Each text names the option to change.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another running process has the socket.
    #[error("{} is in use by another equipoise (option `api.socket`): stop it, or configure another path", path.display())]
    InUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket (option `api.socket`): choose a path that is free", path.display())]
    NotASocket {
        /// The requested path.
        path: PathBuf,
    },
    /// The operating system refused the unix socket.
    #[error("cannot {step} {} (option `api.socket`)", path.display())]
    Unix {
        /// The failed operation.
        step: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The operating system refused the address.
    #[error("cannot listen on {address} (option `api.listen`)")]
    Tcp {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

/// The API's listening unix socket. Dropping it removes the socket.
#[derive(Debug)]
pub struct ApiUnix {
    listener: UnixListener,
    owned: OwnedPath,
}

/// Removes the socket's path when dropped, if the path still belongs to this socket.
#[derive(Debug)]
pub(crate) struct OwnedPath {
    path: PathBuf,
    device_inode: (u64, u64),
    /// False while another process has the socket too, and uses it.
    is_ours: Arc<AtomicBool>,
    /// Locked while this process uses the path, so that two starting processes cannot replace each
    /// other's socket.
    lock: File,
}

impl Drop for OwnedPath {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == self.device_inode);
        if ours
            && self.is_ours.load(Relaxed)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "could not remove the API socket");
        }
    }
}

impl ApiUnix {
    /// Listens at `path`, which only this user can read and write. Creates the folder (mode 0700)
    /// if it does not exist. Replaces the socket of a dead process.
    ///
    /// # Errors
    /// [`ListenError`]; the socket of a running process is never changed.
    pub fn bind(path: &Path) -> Result<ApiUnix, ListenError> {
        let failed = |step| move |source| ListenError::Unix { step, path: path.to_owned(), source };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(failed("create the folder of"))?;
        }
        let lock = lock_beside(path)?;
        remove_stale(path)?;
        let listener = bind_private(path).map_err(failed("listen on"))?;
        let meta = std::fs::symlink_metadata(path).map_err(failed("look at"))?;
        let owned = OwnedPath {
            path: path.to_owned(),
            device_inode: (meta.dev(), meta.ino()),
            is_ours: Arc::new(AtomicBool::new(true)),
            lock,
        };
        Ok(ApiUnix { listener, owned })
    }

    /// Takes the socket and its lock over from the process that has them, or else listens at
    /// `path`. A socket that was taken over is not removed before [`ApiUnix::ownership`] is set.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(path: &Path, inherited: &Inherited) -> Result<ApiUnix, ListenError> {
        let Some(socket) = taken(inherited, SocketName::Unix(path.to_owned())) else {
            return ApiUnix::bind(path);
        };
        let failed = |step| move |source| ListenError::Unix { step, path: path.to_owned(), source };
        let lock = match taken(inherited, SocketName::UnixLock(path.to_owned())) {
            Some(lock) => lock.into(),
            // systemd has bound the socket, and removes it.
            None => lock_beside(path)?,
        };
        let listener = Socket::from(socket);
        listener.set_nonblocking(true).map_err(failed("listen on"))?;
        let listener = UnixListener::from_std(OwnedFd::from(listener).into());
        let listener = listener.map_err(failed("listen on"))?;
        let meta = std::fs::symlink_metadata(path).map_err(failed("look at"))?;
        let (device_inode, path) = ((meta.dev(), meta.ino()), path.to_owned());
        let owned = OwnedPath { path, device_inode, is_ours: Arc::default(), lock };
        Ok(ApiUnix { listener, owned })
    }

    /// Whether this process removes the socket when it drops it.
    pub fn ownership(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.owned.is_ours)
    }

    /// Duplicates of the socket and its lock, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn listening(&self) -> io::Result<[Listening; 2]> {
        let path = &self.owned.path;
        let (socket, lock) = (
            self.listener.as_fd().try_clone_to_owned()?,
            self.owned.lock.as_fd().try_clone_to_owned()?,
        );
        Ok([
            Listening { name: SocketName::Unix(path.clone()), sockets: vec![socket] },
            Listening { name: SocketName::UnixLock(path.clone()), sockets: vec![lock] },
        ])
    }

    pub(crate) fn into_parts(self) -> (UnixListener, OwnedPath) {
        (self.listener, self.owned)
    }
}

/// Locks a file next to the socket. The kernel releases the lock when the process dies. The file
/// stays: if it were removed, a third process could lock a file without a name. Links are not
/// followed, because the folder may be writable by everyone.
fn lock_beside(path: &Path) -> Result<File, ListenError> {
    let failed = |source| ListenError::Unix { step: "lock", path: path.to_owned(), source };
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(PathBuf::from(name))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(ListenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn taken(inherited: &Inherited, name: SocketName) -> Option<OwnedFd> {
    inherited.take(&name)?.pop()
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |step| move |source| ListenError::Unix { step, path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at")(error)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(ListenError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(ListenError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed("remove the stale socket"))
        }
        Err(error) => Err(failed("look at")(error)),
    }
}

/// Binds a socket that is private from the start. Linux gives the path the mode that the socket has
/// when it is bound (`unix_bind_bsd`, masked by the umask). A chmod of the path would be too late,
/// and the umask belongs to all threads.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let file = File::from(OwnedFd::from(socket));
    file.set_permissions(Permissions::from_mode(0o600))?;
    let socket = Socket::from(OwnedFd::from(file));
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    UnixListener::from_std(OwnedFd::from(socket).into())
}

/// The API's TCP listener. The configuration decides whether it may use an address that other
/// machines can reach.
#[derive(Debug)]
pub struct ApiTcp {
    listener: TcpListener,
    /// The configured address, which may have port 0.
    asked: SocketAddr,
    tls: Arc<ApiTls>,
}

impl ApiTcp {
    /// Listens on `address`.
    ///
    /// # Errors
    /// [`ListenError::Tcp`].
    pub async fn bind(address: SocketAddr) -> Result<ApiTcp, ListenError> {
        ApiTcp::open(address, &Inherited::default()).await
    }

    /// Takes the listener of `address` over from the process that has it, or else listens there.
    ///
    /// # Errors
    /// [`ListenError::Tcp`].
    pub async fn open(address: SocketAddr, inherited: &Inherited) -> Result<ApiTcp, ListenError> {
        let listener = match taken(inherited, SocketName::Stream(address)) {
            Some(socket) => {
                let socket = Socket::from(socket);
                let set = socket.set_nonblocking(true);
                set.and_then(|()| TcpListener::from_std(socket.into()))
            }
            None => TcpListener::bind(address).await,
        };
        let listener = listener.map_err(|source| {
            let source = explain_listen(source, address, Transport::Tcp);
            ListenError::Tcp { address, source }
        })?;
        Ok(ApiTcp { listener, asked: address, tls: Arc::default() })
    }

    /// Serves with this TLS, in place of none.
    #[must_use]
    pub fn with_tls(self, tls: Arc<ApiTls>) -> ApiTcp {
        ApiTcp { tls, ..self }
    }

    /// A duplicate of the listener, for a successor.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn listening(&self) -> io::Result<Listening> {
        let socket = self.listener.as_fd().try_clone_to_owned()?;
        Ok(Listening { name: SocketName::Stream(self.asked), sockets: vec![socket] })
    }

    /// The listening address, with the chosen port if 0 was requested.
    ///
    /// # Errors
    /// The error of `getsockname`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn into_parts(self) -> (TcpListener, Arc<ApiTls>) {
        (self.listener, self.tls)
    }
}
