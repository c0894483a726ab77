use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};

use crate::{Entry, Key, KeyError, Refusal, Store, StoreError};

/// A store, and the secret that seals the values of private keys in it.
///
/// The store, its copies and its backups have such values encrypted with AES-256-GCM. A sealed
/// value is valid for its key alone, so that it cannot take the place of another one.
pub struct SealedStore {
    store: Arc<dyn Store>,
    secret: RandomizedNonceKey,
}

/// A value cannot be sealed: the operating system has no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("cannot encrypt a value for the store: there are no random numbers")]
pub struct CannotSeal;

/// A value that members of a cluster share could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// The store failed.
    #[error("the cluster's store cannot be used: {0}")]
    Store(#[from] StoreError),
    /// The value cannot be sealed.
    #[error(transparent)]
    Seal(#[from] CannotSeal),
    /// The key of the value is not valid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Another member writes the value.
    #[error("another member of the cluster writes it now ({0})")]
    Replaced(Box<Refusal>),
}

impl SealedStore {
    /// Uses `store` with this secret, which must not be in the store.
    pub fn new(store: Arc<dyn Store>, secret: &[u8; 32]) -> SealedStore {
        let secret = RandomizedNonceKey::new(&AES_256_GCM, secret);
        SealedStore { store, secret: secret.expect("a key of AES-256 has 32 bytes") }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Encrypts a value for this key.
    ///
    /// # Errors
    /// [`CannotSeal`].
    pub fn seal(&self, key: &Key, value: &[u8]) -> Result<Arc<[u8]>, CannotSeal> {
        let mut sealed = value.to_vec();
        let nonce = self.secret.seal_in_place_append_tag(Aad::from(key.as_str()), &mut sealed);
        let nonce = nonce.map_err(|_| CannotSeal)?;
        Ok([nonce.as_ref().as_slice(), &sealed].concat().into())
    }

    /// Decrypts the value of an entry. `None`: it was not sealed with this secret for this key.
    pub fn open(&self, entry: &Entry) -> Option<Vec<u8>> {
        let (nonce, sealed) = entry.value.split_first_chunk::<NONCE_LEN>()?;
        let mut value = sealed.to_vec();
        let nonce = Nonce::from(nonce);
        let opened = self.secret.open_in_place(nonce, Aad::from(entry.key.as_str()), &mut value);
        let length = opened.ok()?.len();
        value.truncate(length);
        Some(value)
    }
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedStore").field("store", &self.store).finish_non_exhaustive()
    }
}
