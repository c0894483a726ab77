//! Listening sockets by their configured address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use equipoise_basics::lock;
use serde::{Deserialize, Serialize};

/// The configured address of a socket, which may have port 0, or its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketName {
    /// TCP.
    Stream(SocketAddr),
    /// UDP.
    Datagram(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
    /// The lock of a unix socket's path: a file.
    UnixLock(PathBuf),
}

/// Sockets of one name: a group with `SO_REUSEPORT`, in the order in which they were bound, or one.
#[derive(Debug)]
pub struct Listening {
    /// Their name.
    pub name: SocketName,
    /// The sockets.
    pub sockets: Vec<OwnedFd>,
}

impl Listening {
    /// Duplicates of `sockets`.
    ///
    /// # Errors
    /// The process has too many descriptors.
    pub fn duplicate<'s>(
        name: SocketName,
        sockets: impl IntoIterator<Item = &'s OwnedFd>,
    ) -> io::Result<Listening> {
        let sockets = sockets.into_iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Listening { name, sockets })
    }
}

/// Listening sockets that were bound before this process began, by the process that it replaces or
/// by systemd. Levels take them in the place of binding. Clones share the sockets.
#[derive(Clone, Debug, Default)]
pub struct Inherited(Arc<Mutex<Vec<Listening>>>);

impl Inherited {
    /// Adds sockets to those of this name.
    pub fn add(&self, name: SocketName, sockets: Vec<OwnedFd>) {
        let mut all = lock(&self.0);
        match all.iter_mut().find(|group| group.name == name) {
            Some(group) => group.sockets.extend(sockets),
            None => all.push(Listening { name, sockets }),
        }
    }

    /// Takes the sockets of this name; `None` if there are none.
    pub fn take(&self, name: &SocketName) -> Option<Vec<OwnedFd>> {
        let mut all = lock(&self.0);
        let at = all.iter().position(|group| group.name == *name)?;
        Some(all.swap_remove(at).sockets)
    }

    /// Whether there are sockets of this name.
    pub fn has(&self, name: &SocketName) -> bool {
        lock(&self.0).iter().any(|group| group.name == *name)
    }

    /// Closes the sockets that no level has taken, and returns their names.
    pub fn close(&self) -> Vec<SocketName> {
        std::mem::take(&mut *lock(&self.0)).into_iter().map(|group| group.name).collect()
    }
}
