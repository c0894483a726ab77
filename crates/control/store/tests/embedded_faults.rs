//! Faults of real files: killed processes, damaged bytes, full disks.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use equipoise_store::{
    Election, Embedded, EmbeddedOptions, OpenError, Outcome, Prefix, Store, StoreError, Transaction,
};
use equipoise_testkit::Folder;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::key;

/// Makes this binary run as the child of one of its tests; the value is the path of the store.
const CHILD: &str = "EQUIPOISE_STORE_CHILD";

async fn open(path: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(EmbeddedOptions::new(path)).await
}

/// Starts this binary again with one ignored test.
fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(CHILD, path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command
}

fn pair(number: u64) -> Transaction {
    let text = number.to_string();
    Transaction::new()
        .put(key("a/one"), text.as_bytes())
        .put(key("a/two"), text.as_bytes())
        .put(key(&format!("many/{}", number % 50)), vec![number as u8; number as usize % 4000])
}

async fn number(store: &Embedded, name: &str) -> u64 {
    let entry = store.get(&key(name)).await.unwrap();
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

#[tokio::test]
#[ignore = "a child of the test below"]
async fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut options = EmbeddedOptions::new(path);
    // Copies continuously, so that the kill may also interrupt a copy.
    (options.backup_every, options.backup_revisions) = (Duration::from_millis(60), 1);
    let store = Embedded::open(options).await.unwrap();
    for i in number(&store, "a/one").await + 1.. {
        let done = store.commit(pair(i)).await.unwrap().done();
        done.unwrap();
        println!("\nacknowledged {i}");
        std::io::stdout().flush().unwrap();
    }
}

#[tokio::test]
async fn a_killed_process_loses_no_acknowledged_write() {
    let folder = Folder::new("killed");
    let path = folder.path("state");
    let mut rng = StdRng::seed_from_u64(11);
    let mut total = 0;
    for round in 0..40 {
        let mut writer =
            equipoise_testkit::spawn_bound(child("writes_until_it_is_killed", &path)).unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let acknowledged = lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("acknowledged ").map(|number| number.parse::<u64>().unwrap())
        });
        // Kills the child after so many writes, at a random time during the next one.
        let (enough, moment_us) = (rng.random_range(1..30), rng.random_range(0..3000));
        let mut last = 0;
        let mut killed = false;
        for (count, number) in acknowledged.enumerate() {
            last = number;
            if count + 1 >= enough && !killed {
                std::thread::sleep(Duration::from_micros(moment_us));
                writer.kill().unwrap();
                killed = true;
            }
        }
        assert!(killed, "round {round}: the writer ended by itself");
        writer.wait().unwrap();
        let store = open(&path).await.unwrap();
        let (one, two) = (number(&store, "a/one").await, number(&store, "a/two").await);
        assert_eq!(one, two, "round {round}: half a transaction");
        assert!(one == last || one == last + 1, "round {round}: {one} of {last}");
        assert_eq!(store.restored(), None, "round {round}: nothing was lost");
        store.close().await;
        // The copy from the start of the process, and an older one.
        for copy in ["state.backup", "state.backup.1"].map(|name| folder.path(name)) {
            if !copy.exists() {
                continue;
            }
            let look = folder.path("look");
            std::fs::copy(&copy, &look).unwrap();
            let looked = open(&look).await.expect("a copy is whole, whenever it was begun");
            assert!(number(&looked, "a/one").await <= one, "round {round}");
            looked.close().await;
            let _ = std::fs::remove_file(folder.path("look.mark"));
        }
        total = one;
    }
    println!("{total} writes acknowledged in 40 lives");
}

/// Files with some history: one after a clean stop, one of a killed process.
async fn two_files(folder: &Folder) -> [(&'static str, Vec<u8>); 2] {
    let path = folder.path("made");
    let store = open(&path).await.unwrap();
    for i in 0..120 {
        store.commit(pair(i)).await.unwrap().done().unwrap();
    }
    let killed = std::fs::read(&path).unwrap();
    store.close().await;
    [("stopped", std::fs::read(&path).unwrap()), ("killed", killed)]
}

fn damage(bytes: &mut Vec<u8>, rng: &mut StdRng) -> String {
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..4) {
        0 => {
            bytes[at] ^= 1 << rng.random_range(0..8);
            format!("a bit of byte {at} turned")
        }
        1 => {
            let page = at / 4096 * 4096;
            let end = bytes.len().min(page + 4096);
            bytes[page..end].fill(0);
            format!("page {page} zeroed")
        }
        2 => {
            bytes.truncate(at);
            format!("cut off at {at}")
        }
        _ => {
            let end = bytes.len().min(at + 64);
            rng.fill(&mut bytes[at..end]);
            format!("noise at {at}")
        }
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_unchanged_or_opens_with_equal_content() {
    let folder = Folder::new("damaged");
    let mut rng = StdRng::seed_from_u64(13);
    let path = folder.path("state");
    for (how, whole) in two_files(&folder).await {
        std::fs::write(&path, &whole).unwrap();
        let store = open(&path).await.unwrap();
        let content = store.list(&Prefix::all()).await.unwrap();
        store.close().await;
        let (mut refused, mut harmless) = (0, 0);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            let what = damage(&mut bytes, &mut rng);
            std::fs::write(&path, &bytes).unwrap();
            match open(&path).await {
                Ok(store) => {
                    let found = store.list(&Prefix::all()).await.unwrap();
                    assert_eq!(found, content, "{how}, {what}: opened with other content");
                    store.close().await;
                    harmless += 1;
                }
                Err(error @ OpenError::Damaged { .. }) => {
                    assert_eq!(std::fs::read(&path).unwrap(), bytes, "{how}, {what}: touched");
                    let text = error.to_string();
                    assert!(text.contains("state.backup") && text.contains("mv "), "{text}");
                    refused += 1;
                }
                Err(error) => panic!("{how}, {what}: {error:?}"),
            }
        }
        println!("{how}: {refused} refused, {harmless} harmless");
        assert!(refused > 0, "{how}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let folder = Folder::new("foreign");
    let path = folder.path("state");
    for bytes in [&b""[..], b"[instance]\nname = \"edge-1\"\n", &[0; 100_000]] {
        std::fs::write(&path, bytes).unwrap();
        let error = open(&path).await.unwrap_err();
        assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("no copy"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}

#[tokio::test]
async fn the_backup_holds_the_content_of_the_last_open() {
    let folder = Folder::new("backup");
    let path = folder.path("state");
    for i in 1..=3 {
        let store = open(&path).await.unwrap();
        store.commit(pair(i)).await.unwrap().done().unwrap();
        store.close().await;
    }
    std::fs::write(&path, b"").unwrap();
    assert!(matches!(open(&path).await, Err(OpenError::Damaged { backup: Some(_), .. })));
    std::fs::copy(folder.path("state.backup"), &path).unwrap();
    assert_eq!(number(&open(&path).await.unwrap(), "a/one").await, 2);
}

/// Leads for a moment and returns the term.
async fn term(store: &Embedded) -> u64 {
    let store = Arc::new(store.clone());
    let election = Election::new(store, "office", Duration::from_secs(60)).unwrap();
    let leadership = election.campaign("one").await.unwrap();
    let term = leadership.term().0.0;
    leadership.resign().await.unwrap();
    term
}

#[tokio::test]
async fn a_restored_older_copy_continues_above_every_issued_term() {
    let folder = Folder::new("put-back");
    let path = folder.path("state");
    let store = open(&path).await.unwrap();
    store.commit(pair(1)).await.unwrap().done().unwrap();
    store.close().await;
    let copy = std::fs::read(&path).unwrap();
    let mut told = 0;
    // Twice, because the copy is equally old the second time.
    for round in 2..4 {
        let store = open(&path).await.unwrap();
        assert_eq!(store.restored().is_some(), round > 2, "{:?}", store.restored());
        let first = term(&store).await;
        assert!(first > told, "round {round}: term {first} was told before ({told})");
        store.commit(pair(round)).await.unwrap().done().unwrap();
        told = term(&store).await;
        store.close().await;
        std::fs::write(&path, &copy).unwrap();
    }
    let store = open(&path).await.unwrap();
    let restored = store.restored().expect("it is older than what was written");
    assert_eq!(restored.found.0, 1);
    assert!(restored.lost.0 >= told && restored.written.is_some(), "{restored:?}");
    assert_eq!(number(&store, "a/one").await, 1, "what the copy holds");
    assert!(term(&store).await > told);
    store.close().await;
    let again = open(&path).await.unwrap();
    assert_eq!(again.restored(), None, "it is the newest there is");
}

#[tokio::test]
async fn a_new_store_replacing_a_lost_file_continues_above_its_terms() {
    let folder = Folder::new("lost");
    let path = folder.path("state");
    let store = open(&path).await.unwrap();
    store.commit(pair(1)).await.unwrap().done().unwrap();
    let told = term(&store).await;
    store.close().await;
    std::fs::remove_file(&path).unwrap();
    let store = open(&path).await.unwrap();
    assert_eq!(store.restored().unwrap().found.0, 0);
    assert!(term(&store).await > told);
}

#[tokio::test]
async fn backups_are_written_while_the_store_is_running() {
    let folder = Folder::new("copies");
    let path = folder.path("state");
    let mut options = EmbeddedOptions::new(&path);
    (options.backup_every, options.backup_revisions) = (Duration::from_millis(60), 5);
    let store = Embedded::open(options).await.unwrap();
    let copied = || async {
        // The copy is renamed into place, so it is complete at any time.
        let look = folder.path("look");
        std::fs::copy(folder.path("state.backup"), &look).ok()?;
        let looked = open(&look).await.unwrap();
        let found = number(&looked, "a/one").await;
        looked.close().await;
        std::fs::remove_file(folder.path("look.mark")).ok();
        Some(found)
    };
    for round in 1..=8 {
        for i in 1..=20 {
            store.commit(pair(20 * round + i)).await.unwrap().done().unwrap();
        }
        // After the last write: the last change is copied when the interval has passed, even if it
        // was written during the previous copy.
        let last = Some(20 * round + 20);
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while copied().await != last {
            assert!(std::time::Instant::now() < end, "{:?}", copied().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    std::fs::write(&path, b"").unwrap();
    let error = open(&folder.path("state")).await.unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error:?}");
    store.close().await;
    let error = open(&path).await.unwrap_err();
    let OpenError::Damaged { backup: Some(copy), .. } = &error else { panic!("{error:?}") };
    assert_eq!(copy.path, folder.path("state.backup"));
    assert!(error.to_string().contains(", of 20"), "{error}");
}

#[tokio::test]
async fn the_error_names_a_missing_folder() {
    let folder = Folder::new("missing");
    let error = open(&folder.path("not/there/state")).await.unwrap_err();
    assert!(
        matches!(error, OpenError::Io { .. }) && error.to_string().contains("not/there"),
        "{error}"
    );
}

#[tokio::test]
#[ignore = "a child of the test below"]
async fn fills_a_small_disk() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let mut mount = Command::new("mount");
    let mounted =
        mount.args(["-t", "tmpfs", "-o", "size=8m", "small"]).arg(folder).status().unwrap();
    assert!(mounted.success());
    let store = open(&folder.join("state")).await.unwrap();
    store.put(&key("a/before"), b"x".as_slice().into()).await.unwrap();
    let others = folder.join("others");
    let mut last = 0;
    let mut fill = std::fs::File::create(&others).unwrap();
    while fill.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    // An open file would keep its space after its removal.
    drop(fill);
    let mut failures = 0;
    for i in 1..2000 {
        match store.commit(pair(i)).await {
            Ok(committed) => last = committed.done().map(|_| i).unwrap(),
            Err(StoreError::DiskFull { outcome, .. }) => {
                assert_eq!(outcome, Outcome::NotDone);
                failures += 1;
                if failures > 20 {
                    break;
                }
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(failures > 20, "the disk never was full");
    assert_eq!(number(&store, "a/one").await, last);
    std::fs::remove_file(&others).unwrap();
    store.commit(pair(last + 1)).await.unwrap().done().unwrap();
    store.close().await;
    let store = open(&folder.join("state")).await.unwrap();
    assert_eq!(number(&store, "a/one").await, last + 1);
    println!("\nsmall disk filled");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_writes_succeed_once_space_returns() {
    let folder = Folder::new("small");
    let direct = child("fills_a_small_disk", folder.root());
    // In a separate mount namespace, so that no mount remains.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(direct.get_program());
    command.args(direct.get_args()).env(CHILD, folder.root()).stdin(Stdio::null());
    let allowed = Command::new("unshare").args(["--mount", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a mount namespace needs root (CAP_SYS_ADMIN)");
        return;
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("small disk filled"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
