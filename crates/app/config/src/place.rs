//! The name of a backend, and where it is reached.

use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_core::BackendAddress;
use equipoise_session::config::{Place, Resolved, stand_in};

use super::tables::Backend;
use super::view::View;

/// The name of a backend; its address if it has none.
pub(super) fn backend_name(backend: View<'_, Backend>) -> Option<Arc<str>> {
    if let Some(name) = backend.get(Backend::NAME) {
        return Some(name.into());
    }
    let name = match backend.get(Backend::ADDRESS)? {
        BackendAddress::Ip(address) => address.to_string(),
        BackendAddress::Host(host) => host,
        BackendAddress::Unix(path) => path.file_name()?.to_string_lossy().into_owned(),
    };
    Some(name.into())
}

/// The address that identifies a backend, and where the backend is reached.
pub(super) fn place(address: BackendAddress) -> Option<(SocketAddr, Place)> {
    Some(match address {
        BackendAddress::Ip(address) => (address, Place::Address),
        BackendAddress::Host(host) => {
            let host = host.to_ascii_lowercase();
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok())?;
            let resolved = Resolved::default();
            (stand_in(host.as_bytes(), port), Place::Host { name: host.into(), resolved })
        }
        BackendAddress::Unix(path) => {
            let address = stand_in(path.as_os_str().as_encoded_bytes(), 0);
            (address, Place::Socket(path.as_path().into()))
        }
    })
}

/// Whether a backend listens on a unix socket.
pub(super) fn is_unix_socket(backend: View<'_, Backend>) -> bool {
    matches!(backend.get(Backend::ADDRESS), Some(BackendAddress::Unix(_)))
}
