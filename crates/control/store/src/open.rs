//! Opens a controller's store: a file on this machine, or etcd.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use equipoise_basics::files::read_text;

use crate::{
    ConnectError, Embedded, EmbeddedOptions, Etcd, EtcdOptions, EtcdTls, EtcdUser, OpenError,
    Restored, Store,
};

/// Largest size of a file with credentials, in bytes.
const CREDENTIALS_BYTES_MAX: u64 = 4 << 20;

/// Addresses of etcd, and files with credentials for it. The files hold secrets, so only their
/// paths are kept here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// URLs of etcd members.
    pub endpoints: Vec<String>,
    /// Folder in etcd under which this cluster's keys are.
    pub namespace: String,
    /// File with the certificate of etcd's authority.
    pub authority: Option<PathBuf>,
    /// Files with the client certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the certificates of etcd's members.
    pub server_name: Option<String>,
    /// User name, and the file with the password.
    pub user: Option<(String, PathBuf)>,
}

/// A controller's store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum CannotOpen {
    /// The file's folder cannot be created.
    #[error(
        "cannot create the folder {folder}; set [controller] state to a folder that this user can write"
    )]
    Folder {
        /// The folder's path.
        folder: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] OpenError),
    /// A file with credentials for etcd cannot be read.
    #[error("cannot read {path}, a file with credentials for etcd")]
    Credentials {
        /// The file's path.
        path: PathBuf,
        /// Error of the system call.
        #[source]
        source: io::Error,
    },
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] ConnectError),
}

/// A controller's store. An embedded one must be closed at the end.
pub struct OpenStore {
    /// The store.
    pub store: Arc<dyn Store>,
    embedded: Option<Arc<Embedded>>,
}

impl OpenStore {
    /// Opens the store's file of this machine. Creates it, and its folder, if it does not exist.
    ///
    /// # Errors
    /// [`CannotOpen::Folder`], [`CannotOpen::File`].
    pub async fn embedded(file: &Path) -> Result<OpenStore, CannotOpen> {
        if let Some(folder) = file.parent() {
            let mut make = DirBuilder::new();
            let made = make.recursive(true).mode(0o750).create(folder);
            made.map_err(|source| CannotOpen::Folder { folder: folder.to_path_buf(), source })?;
        }
        let embedded = Embedded::open(EmbeddedOptions::new(file)).await?;
        if let Some(restored) = embedded.restored() {
            say_restored(file, restored);
        }
        let embedded = Arc::new(embedded);
        Ok(OpenStore { store: Arc::clone(&embedded) as Arc<dyn Store>, embedded: Some(embedded) })
    }

    /// Connects to the store that all controllers share. Retries for a few seconds.
    ///
    /// # Errors
    /// [`CannotOpen::Credentials`], [`CannotOpen::Etcd`].
    pub async fn etcd(place: &EtcdPlace) -> Result<OpenStore, CannotOpen> {
        let etcd = Etcd::connect(etcd_options(place)?).await?;
        Ok(OpenStore { store: Arc::new(etcd), embedded: None })
    }

    /// Closes the store once nothing uses it any more.
    pub async fn close(self) {
        drop(self.store);
        if let Some(embedded) = self.embedded {
            Arc::unwrap_or_clone(embedded).close().await;
        }
    }
}

/// Logs the operator's tasks after a store was restored to an older state.
fn say_restored(file: &Path, restored: Restored) {
    let Restored { found, lost, .. } = restored;
    let file = file.display();
    tracing::warn!(
        %found, %lost,
        "the store's file {file} {restored}. Plans continue in a later term, so that every node follows them. All later changes are \
         lost: pins, pauses and drains. In a cluster, nodes that were evicted later may return, and join tokens that \
         were used or revoked later are valid again. The audit log has these changes: repeat them \
         (`equipoise cluster evict`, `equipoise cluster token revoke`), and remove backends that scripts or a service \
         created later and that `equipoise status --cluster` does not show"
    );
}

fn etcd_options(place: &EtcdPlace) -> Result<EtcdOptions, CannotOpen> {
    let read = |path: &PathBuf| {
        read_text(path, CREDENTIALS_BYTES_MAX)
            .map_err(|source| CannotOpen::Credentials { path: path.clone(), source })
    };
    let mut options = EtcdOptions::new(place.endpoints.iter().cloned());
    options.namespace.clone_from(&place.namespace);
    if let Some(authority) = &place.authority {
        let identity_pem = match &place.identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        let authority_pem = read(authority)?;
        let server_name = place.server_name.clone();
        options.tls = Some(EtcdTls { authority_pem, identity_pem, server_name });
    }
    if let Some((name, password)) = &place.user {
        let password = read(password)?.trim_end().to_string();
        options.user = Some(EtcdUser { name: name.clone(), password });
    }
    Ok(options)
}
