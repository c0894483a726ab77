use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::mpsc;

use equipoise_slice::{HandoverId, SnapshotId};
use equipoise_testkit as testkit;

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn checkpoint(number: u64) -> Checkpoint {
    let version = SnapshotId { epoch: HandoverId(2), number };
    Checkpoint { version, contained: Default::default(), state: Some(b"state"[..].into()) }
}

fn store(slice: u32, number: u64) -> FolderTask {
    FolderTask::Store(SliceId(slice), checkpoint(number))
}

/// A folder, and a channel with a message for each piece of work that is done.
fn folder(path: &Path) -> (Folder, mpsc::Receiver<()>) {
    let (done, waits) = mpsc::channel();
    let wake = move || done.send(()).unwrap_or_default();
    (Folder::start(path.to_path_buf(), wake).unwrap(), waits)
}

fn next(folder: &mut Folder, waits: &mpsc::Receiver<()>) -> FolderDone {
    waits.recv_timeout(PATIENCE).unwrap();
    let mut done = folder.done(Duration::ZERO);
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0)
}

#[test]
fn checkpoints_are_written_and_read() {
    let root = testkit::Folder::new("folder-read");
    let (mut folder, waits) = folder(&root.root().join("stream-8"));
    folder.begin(Duration::ZERO, store(3, 5));
    let done = next(&mut folder, &waits);
    assert!(matches!(done, FolderDone::Stored(SliceId(3), _, true)), "{done:?}");
    folder.begin(Duration::ZERO, FolderTask::Load(SliceId(3), HandoverId(9), true));
    let done = next(&mut folder, &waits);
    assert!(
        matches!(&done, FolderDone::Loaded(_, HandoverId(9), Some(it)) if *it == checkpoint(5)),
        "{done:?}"
    );
    assert_eq!(folder.problem(), None);
}

#[test]
fn a_failure_is_a_problem_until_the_next_success() {
    let root = testkit::Folder::new("folder-fails");
    let path = root.root().join("stream-8");
    // In place of the folder.
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &name, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let (mut folder, waits) = folder(&path);
    folder.begin(Duration::ZERO, store(3, 5));
    let done = next(&mut folder, &waits);
    assert!(matches!(done, FolderDone::Stored(_, _, false)), "{done:?}");
    let problem = folder.problem().unwrap();
    assert!(problem.contains("stream-8: File exists"), "{problem}");
    std::fs::remove_file(&path).unwrap();
    folder.begin(Duration::ZERO, store(3, 6));
    let done = next(&mut folder, &waits);
    assert!(matches!(done, FolderDone::Stored(_, _, true)), "{done:?}");
    assert_eq!(folder.problem(), None);
}

#[test]
fn a_folder_that_hangs_delays_one_checkpoint_and_no_later_one() {
    let (done, waits) = mpsc::channel();
    let (returns, returned) = mpsc::channel::<()>();
    let (entered, enters) = mpsc::channel();
    let (entered, returned) = (Mutex::new(entered), Arc::new(Mutex::new(returned)));
    let does = move |_: &FolderTask, _| {
        lock(&entered).send(()).unwrap();
        // Until the other end is dropped.
        let _ = lock(&returned).recv();
        Ok(None)
    };
    let wake = move || done.send(()).unwrap_or_default();
    let path = PathBuf::from("/none");
    let mut folder = Folder::start_with(path, Box::new(does), Box::new(wake)).unwrap();
    for slice in 0..THREADS {
        folder.begin(Duration::ZERO, store(slice as u32, 1));
        enters.recv_timeout(PATIENCE).unwrap();
    }
    folder.begin(SECOND, FolderTask::Load(SliceId(100), HandoverId(9), true));
    folder.begin(SECOND, store(101, 1));
    assert!(folder.done(SECOND).is_empty());
    let done = folder.done(2 * SECOND);
    assert_eq!(done.len(), THREADS, "{done:?}");
    assert!(done.iter().all(|done| matches!(done, FolderDone::Stored(_, _, false))));
    assert!(folder.problem().unwrap().contains("timed out"), "{:?}", folder.problem());
    // Now nothing waits for it but a state that is needed.
    let done = folder.done(2 * SECOND);
    assert!(matches!(done[..], [FolderDone::Stored(SliceId(101), _, false)]), "{done:?}");
    let done = folder.done(11 * SECOND);
    assert!(matches!(done[..], [FolderDone::Loaded(SliceId(100), _, None)]), "{done:?}");
    drop(returns);
    for _ in 0..THREADS {
        waits.recv_timeout(PATIENCE).unwrap();
    }
    assert!(folder.done(12 * SECOND).is_empty(), "all have been answered");
    assert_eq!(folder.problem(), None, "it returned, without an error");
}
