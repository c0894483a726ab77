//! Values that the store has only encrypted.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by failing")]

use std::sync::Arc;

use equipoise_store::{Embedded, EmbeddedOptions, Key, SealedStore, Store};
use equipoise_testkit::Folder;

#[tokio::test]
async fn a_sealed_value_is_valid_for_its_key_and_secret_alone() {
    let folder = Folder::new("sealed");
    let store = Embedded::open(EmbeddedOptions::new(folder.path("store"))).await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    let sealed = SealedStore::new(Arc::clone(&store), &[7; 32]);
    let (key, other) = (Key::new("acme/a").unwrap(), Key::new("acme/b").unwrap());
    let value = sealed.seal(&key, b"a private key").unwrap();
    assert!(!value.windows(7).any(|part| part == b"private"));
    assert_ne!(value, sealed.seal(&key, b"a private key").unwrap());
    store.put(&key, Arc::clone(&value)).await.unwrap();
    store.put(&other, value).await.unwrap();
    let entry = store.get(&key).await.unwrap().unwrap();
    assert_eq!(sealed.open(&entry).unwrap(), b"a private key");
    assert_eq!(SealedStore::new(Arc::clone(&store), &[8; 32]).open(&entry), None);
    let moved = store.get(&other).await.unwrap().unwrap();
    assert_eq!(sealed.open(&moved), None);
    store.put(&key, b"short".as_slice().into()).await.unwrap();
    assert_eq!(sealed.open(&store.get(&key).await.unwrap().unwrap()), None);
}
