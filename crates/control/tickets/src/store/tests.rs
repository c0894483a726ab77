#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use equipoise_store::{Embedded, EmbeddedOptions, Store, Transaction};
use equipoise_testkit::LogBuffer;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn at(hours: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((1_000 + hours) * 3600)
}

/// A look of a controller that has not looked before.
async fn look(store: &SealedStore, wall: SystemTime) -> Result<TicketKeys, SharedError> {
    let now = Now { wall, steady: Instant::now() };
    super::look(store, now, &mut Clocks::default()).await
}

/// A controller with a clock that is some hours ahead.
struct Controller {
    store: SealedStore,
    clocks: Clocks,
    begun: Instant,
    ahead: u64,
}

impl Controller {
    fn new(store: &Arc<dyn Store>, ahead: u64) -> Controller {
        let store = SealedStore::new(Arc::clone(store), &[7; 32]);
        Controller { store, clocks: Clocks::default(), begun: Instant::now(), ahead }
    }

    /// Looks when this number of hours has passed.
    async fn look(&mut self, hours: u64) -> TicketKeys {
        let steady = self.begun + hours as u32 * HOUR;
        let now = Now { wall: at(hours + self.ahead), steady };
        super::look(&self.store, now, &mut self.clocks).await.unwrap()
    }
}

#[tokio::test]
async fn controllers_with_different_clocks_agree_on_keys_and_warn_once() {
    let written = LogBuffer::default();
    let writer = written.clone();
    let log =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    for (ahead, behind_writes) in [(7, true), (11, true), (12, false), (13, false), (10_000, false)]
    {
        let [mut right, mut same] = [(); 2].map(|()| Controller::new(&store, ahead));
        let mut behind = Controller::new(&store, 0);
        written.take();
        let (mut last, mut rotations) = (right.look(0).await, 0);
        for hour in 0..48 {
            behind.look(hour).await;
            let keys = right.look(hour).await;
            assert_eq!(behind.look(hour).await, keys, "{ahead}, {hour}");
            assert_eq!(same.look(hour).await, keys, "{ahead}, {hour}");
            rotations += usize::from(keys != last);
            last = keys;
        }
        assert_eq!(rotations > 7, behind_writes, "{rotations} rotations: {ahead}");
        assert!(rotations <= 16, "{rotations} rotations: {ahead}");
        // If the other clock is ahead by more than two rotations, the controller that is behind
        // replaces no keys.
        assert_eq!(behind.clocks.own.is_some(), ahead <= 12, "{ahead}");
        let log = written.text();
        let warned = log.lines().filter(|line| line.contains("check NTP")).count();
        assert_eq!(warned, 1, "{log}");
        assert!(log.contains(&format!("at least {ahead} h ahead")), "{log}");
        let key = Key::new("tickets/keys").unwrap();
        store.commit(Transaction::new().delete(key)).await.unwrap().done().unwrap();
    }
}

#[tokio::test]
async fn keys_from_the_future_that_are_not_renewed_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let [mut wrong, mut right] = [1000, 0].map(|ahead| Controller::new(&store, ahead));
    let future = wrong.look(0).await;
    for hour in 1..8 {
        assert_eq!(right.look(hour).await, future, "{hour}");
    }
    let new = right.look(8).await;
    assert_ne!(new, future);
    assert_eq!(right.look(14).await, Controller::new(&store, 0).look(14).await);
    assert_ne!(right.look(14).await, new, "it goes on rotating");
}

#[tokio::test]
async fn a_controller_replaces_its_future_keys_once_its_clock_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let mut one = Controller::new(&store, 1000);
    let future = one.look(0).await;
    one.ahead = 0;
    let new = one.look(1).await;
    assert_ne!(new, future);
    assert_eq!(Controller::new(&store, 0).look(1).await, new);
}

async fn opened(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    let options = EmbeddedOptions::new(folder.path().join("store"));
    Arc::new(Embedded::open(options).await.unwrap())
}

#[tokio::test]
async fn members_agree_on_keys_and_one_of_them_rotates() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let [a, b] = [(); 2].map(|()| SealedStore::new(Arc::clone(&store), &[7; 32]));
    let (first, same) = tokio::join!(look(&a, at(0)), look(&b, at(0)));
    let (first, same) = (first.unwrap(), same.unwrap());
    assert_eq!(first, same);
    assert_eq!(look(&b, at(5)).await.unwrap(), first);
    // The clocks differ: one rotates earlier.
    let second = look(&b, at(6)).await.unwrap();
    assert_ne!(second, first);
    assert_eq!(look(&a, at(5)).await.unwrap(), second);
    let mut written = Vec::new();
    for hour in 6..60 {
        let (a, b) = tokio::join!(look(&a, at(hour)), look(&b, at(hour)));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a, b);
        if written.last() != Some(&a) {
            written.push(a);
        }
    }
    assert_eq!(written.len(), 9, "a rotation each six hours");
}

#[tokio::test]
async fn stored_keys_are_encrypted_and_replaced_under_another_authority() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder).await;
    let of = |secret| SealedStore::new(Arc::clone(&store), &[secret; 32]);
    let old = look(&of(1), at(0)).await.unwrap();
    let key = Key::new("tickets/keys").unwrap();
    let value = store.get(&key).await.unwrap().unwrap().value;
    assert!(serde_json::from_slice::<TicketKeys>(&value).is_err());
    let new = look(&of(2), at(0)).await.unwrap();
    assert_ne!(new, old);
    assert_eq!(look(&of(2), at(1)).await.unwrap(), new);
}
