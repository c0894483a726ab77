//! Failing disks, simulated in memory: full at any write, without power at any write, or hanging.

use std::io::{Error, ErrorKind};
use std::sync::{Arc, Condvar, Mutex};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redb::{Database, DatabaseError, StorageBackend};

use super::file::{Ledger, Medium, set_up};
use super::state::Stamp;
use super::*;
use crate::{Election, Expect, Outcome};

/// Contents of a disk, and writes that it may still lose.
#[derive(Debug, Default)]
struct Platter {
    synced: Vec<u8>,
    now: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Number of writes and syncs that still succeed; `None`: all.
    left: Option<u64>,
    done: u64,
    /// Syncs block while this is set.
    stands_still: bool,
    waiting_syncs: u32,
}

#[derive(Clone, Debug, Default)]
struct Disk(Arc<Drive>);

#[derive(Debug, Default)]
struct Drive {
    platter: Mutex<Platter>,
    /// Signals a change of `stands_still` or `waiting_syncs`.
    changed: Condvar,
}

impl Disk {
    fn of(platter: Platter) -> Disk {
        Disk(Arc::new(Drive { platter: Mutex::new(platter), changed: Condvar::new() }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Platter) -> T) -> T {
        work(&mut self.0.platter.lock().unwrap())
    }

    fn stand_still(&self, stands_still: bool) {
        self.with(|platter| platter.stands_still = stands_still);
        self.0.changed.notify_all();
    }

    /// Returns when a sync is blocked.
    async fn until_a_sync_waits(&self) {
        let drive = Arc::clone(&self.0);
        let waits = move || {
            let none_waits = |platter: &mut Platter| platter.waiting_syncs == 0;
            drop(drive.changed.wait_while(drive.platter.lock().unwrap(), none_waits).unwrap());
        };
        tokio::task::spawn_blocking(waits).await.unwrap();
    }

    fn fail_after(&self, left: Option<u64>) {
        self.with(|platter| platter.left = left);
    }

    fn operations(&self) -> u64 {
        self.with(|platter| platter.done)
    }

    /// The disk after a power cut: everything synced, and a random part of later writes.
    fn after_power_cut(&self, rng: &mut StdRng) -> Disk {
        let now = self.with(|platter| {
            let mut now = platter.synced.clone();
            now.resize(platter.now.len().max(now.len()), 0);
            for (at, bytes) in &platter.unsynced {
                if rng.random_bool(0.5) {
                    now[*at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
            now
        });
        let (synced, now) = (now.clone(), now);
        Disk::of(Platter { synced, now, ..Platter::default() })
    }
}

fn count(platter: &mut Platter) -> Result<(), Error> {
    if platter.left == Some(0) {
        return Err(ErrorKind::StorageFull.into());
    }
    platter.left = platter.left.map(|left| left - 1);
    platter.done += 1;
    Ok(())
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.with(|platter| platter.now.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.with(|platter| {
            let bytes = platter.now.get(offset as usize..).and_then(|b| b.get(..out.len()));
            out.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.with(|platter| {
            platter.now.resize(len as usize, 0);
            Ok(())
        })
    }

    fn sync_data(&self) -> Result<(), Error> {
        let mut platter = self.0.platter.lock().unwrap();
        platter.waiting_syncs += 1;
        self.0.changed.notify_all();
        platter = self.0.changed.wait_while(platter, |platter| platter.stands_still).unwrap();
        platter.waiting_syncs -= 1;
        count(&mut platter)?;
        platter.synced = platter.now.clone();
        platter.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.with(|platter| {
            count(platter)?;
            let at = offset as usize;
            platter.now[at..at + data.len()].copy_from_slice(data);
            platter.unsynced.push((at, data.to_vec()));
            Ok(())
        })
    }
}

impl Medium for Disk {
    fn open(&self, builder: redb::Builder) -> Result<Database, DatabaseError> {
        builder.create_with_backend(self.clone())
    }

    fn name(&self) -> String {
        "a disk of the tests".to_string()
    }
}

fn limits() -> Limits {
    EmbeddedOptions::new("").limits()
}

async fn formatted(disk: &Disk) -> Embedded {
    set_up(&Database::builder().create_with_backend(disk.clone()).unwrap()).unwrap();
    let content = Content { stamp: Stamp::default(), written: None, entries: Vec::new() };
    Embedded::start(limits(), content, Ledger::new(disk.clone()).unwrap(), None).await
}

/// Opens the disk like a restarted process, with all checks.
async fn restarted(disk: &Disk) -> Embedded {
    let bytes = disk.with(|platter| platter.now.clone());
    let content = file::inspect_bytes(&bytes).expect("it is whole").1;
    Embedded::start(limits(), content, Ledger::new(disk.clone()).unwrap(), None).await
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn value(store: &Embedded, name: &str) -> Option<Vec<u8>> {
    store.get(&key(name)).await.unwrap().map(|entry| entry.value.to_vec())
}

#[tokio::test]
async fn a_disk_that_is_full_at_any_write_loses_nothing_and_recovers() {
    for fails_at in 0.. {
        let disk = Disk::default();
        let store = formatted(&disk).await;
        store.put(&key("a/before"), b"x".as_slice().into()).await.unwrap();
        disk.fail_after(Some(fails_at));
        let written = store.put(&key("a/1"), vec![1; 5000].into()).await;
        let error = match written {
            Ok(_) => {
                assert!(fails_at > 3, "a commit takes more than {fails_at} writes");
                return;
            }
            Err(error) => error,
        };
        assert!(matches!(error, StoreError::DiskFull { .. }), "at {fails_at}: {error:?}");
        // Reads and leases continue, writes are rejected, and no write is half done.
        assert_eq!(value(&store, "a/before").await.unwrap(), b"x");
        store.grant(Duration::from_secs(60)).await.unwrap();
        let refused = store.put(&key("a/2"), b"y".as_slice().into()).await.unwrap_err();
        assert!(matches!(refused, StoreError::DiskFull { .. }), "at {fails_at}: {refused:?}");
        assert_eq!(refused.outcome(), Outcome::NotDone, "it was not even tried");
        disk.fail_after(None);
        store.put(&key("a/3"), b"z".as_slice().into()).await.unwrap();
        if error.outcome() == Outcome::NotDone {
            assert_eq!(value(&store, "a/1").await, None, "at {fails_at}");
        }
        let held = store.list(&Prefix::all()).await.unwrap();
        store.close().await;
        assert_eq!(restarted(&disk).await.list(&Prefix::all()).await.unwrap(), held);
    }
}

#[tokio::test]
async fn a_power_cut_at_any_write_loses_nothing_that_was_acknowledged() {
    let mut rng = StdRng::seed_from_u64(7);
    for round in 0..150 {
        let disk = Disk::default();
        let store = formatted(&disk).await;
        let start = disk.operations();
        let cut_after = rng.random_range(0..150);
        disk.fail_after(Some(cut_after));
        let mut acknowledged = 0_u64;
        for i in 1.. {
            let text = i.to_string();
            let pair = Transaction::new()
                .require(key("a/one"), if i == 1 { Expect::Absent } else { Expect::Present })
                .put(key("a/one"), text.as_bytes())
                .put(key("a/two"), text.as_bytes())
                .put(key(&format!("many/{i}")), vec![0; rng.random_range(0..3000)]);
            match store.commit(pair).await {
                Ok(committed) => assert!(matches!(committed, Committed::Done(_))),
                Err(_) => break,
            }
            acknowledged = i;
        }
        let after = disk.after_power_cut(&mut rng);
        drop(store);
        let store = restarted(&after).await;
        let number = |value: Option<Vec<u8>>| -> u64 {
            value.map_or(0, |v| String::from_utf8(v).unwrap().parse().unwrap())
        };
        let (one, two) =
            (number(value(&store, "a/one").await), number(value(&store, "a/two").await));
        assert_eq!(one, two, "round {round}: half a transaction");
        let at = format!("round {round}, cut {cut_after} operations after {start}");
        assert!(one == acknowledged || one == acknowledged + 1, "{at}: {one} of {acknowledged}");
        let many = store.list(&Prefix::of("many").unwrap()).await.unwrap().entries.len();
        assert_eq!(many as u64, one, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_stands_still_deposes_no_leader() {
    let disk = Disk::default();
    let store = formatted(&disk).await;
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    let election = Election::new(shared, "controller", Duration::from_secs(2)).unwrap();
    let mut leadership = election.campaign("one").await.unwrap();
    for _ in 0..3 {
        disk.stand_still(true);
        let writer = store.clone();
        let put = tokio::spawn(async move { writer.put(&key("a/1"), Arc::from(*b"x")).await });
        disk.until_a_sync_waits().await;
        // Keep-alives wait behind the blocked write.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(leadership.is_held());
        disk.stand_still(false);
        put.await.unwrap().unwrap();
    }
    let lost = tokio::time::timeout(Duration::from_secs(600), leadership.lost()).await;
    assert!(lost.is_err() && leadership.is_held());
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.term, leadership.term(), "it leads in its first term");
    drop(leadership);
    let mut next = election.campaign("two").await.unwrap();
    assert!(next.term() > leader.term, "a dropped leadership makes room");
    store.close().await;
    next.lost().await;
}
