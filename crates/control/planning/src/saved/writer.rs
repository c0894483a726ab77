//! The thread that writes the file, so that a disk that hangs delays nothing else.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use equipoise_basics::with_causes;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Saved;

/// Longest time to wait for the disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// Writes states in order. If several wait, it writes only the newest.
pub(crate) struct Writer {
    wanted: Sender<(u64, Saved)>,
    /// Number of the last completed write, and its problem.
    ended: watch::Receiver<(u64, Option<String>)>,
    /// Number of the last requested write.
    last: AtomicU64,
}

impl Writer {
    /// Starts the thread for the file in `folder`.
    pub(crate) fn new(folder: PathBuf) -> Writer {
        let (wanted, asked) = mpsc::channel();
        let (tell, ended) = watch::channel((0, None));
        let run = move || write_all(&folder, &asked, &tell);
        if let Err(error) = thread::Builder::new().name("elastic-file".into()).spawn(run) {
            tracing::error!(
                "rosters of elastic pools cannot be saved: cannot start a thread: {error}"
            );
        }
        Writer { wanted, ended, last: AtomicU64::new(0) }
    }

    /// Writes a state, and waits for the write if no earlier one hangs. A state behind a hanging
    /// write is written after it.
    ///
    /// # Errors
    /// The reason why the state is not written, or not yet.
    pub(crate) async fn write(&self, saved: Saved) -> Result<(), String> {
        let number = self.last.fetch_add(1, SeqCst) + 1;
        let mut ended = self.ended.clone();
        let hangs = ended.borrow().0 + 1 < number;
        if self.wanted.send((number, saved)).is_err() {
            return Err("its thread does not run".to_string());
        }
        let patience = if hangs { Duration::ZERO } else { PATIENCE };
        match timeout(patience, ended.wait_for(|(last, _)| *last >= number)).await {
            Ok(Ok(ended)) => ended.1.clone().map_or(Ok(()), Err),
            Ok(Err(_)) => Err("its thread does not run".to_string()),
            Err(_) => Err("the disk does not answer".to_string()),
        }
    }
}

fn write_all(
    folder: &Path,
    asked: &Receiver<(u64, Saved)>,
    tell: &watch::Sender<(u64, Option<String>)>,
) {
    while let Ok(mut newest) = asked.recv() {
        while let Ok(newer) = asked.try_recv() {
            newest = newer;
        }
        let (number, saved) = newest;
        let problem = super::save(folder, &saved).err().map(|error| with_causes(&error));
        tell.send_replace((number, problem));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use equipoise_controller::Roster;
    use equipoise_testkit::Folder;

    use super::super::load;
    use super::*;

    fn saved(next_number: u64) -> Saved {
        let roster = Roster { next_number, ..Roster::default() };
        Saved { rosters: [("web".to_string(), roster)].into(), ..Saved::default() }
    }

    #[tokio::test]
    async fn writes_fail_while_the_disk_hangs_and_the_newest_is_written_after_it_recovers() {
        let scratch = Folder::new("writer");
        let folder = scratch.path("state");
        let writer = Writer::new(folder.clone());
        assert_eq!(writer.write(saved(2)).await, Ok(()));
        assert_eq!(load(&folder, "a"), saved(2));
        // Opening a FIFO for writing blocks until a reader opens it.
        let (fifo, link) = (folder.join("elastic.json.new"), folder.join("link"));
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
        fs::hard_link(&fifo, &link).expect("the folder is ours");
        for next_number in 3..6 {
            let hangs = writer.write(saved(next_number)).await;
            assert_eq!(hangs, Err("the disk does not answer".to_string()));
        }
        assert_eq!(writer.ended.borrow().0, 1, "the first of them hangs");
        assert_eq!(load(&folder, "a"), saved(2));
        // The disk works again: the file has its name for itself. The write that hangs continues,
        // and fails, because a FIFO cannot be synchronised. The newest of the others is written.
        fs::remove_file(&fifo).expect("the folder is ours");
        let both_ends = fs::File::options().read(true).write(true).open(&link).expect("a FIFO");
        let mut ended = writer.ended.clone();
        let last = ended.wait_for(|(last, _)| *last == 4).await.expect("the thread runs").clone();
        drop(both_ends);
        assert_eq!(last, (4, None));
        assert_eq!(load(&folder, "a"), saved(5));
        assert_eq!(writer.write(saved(6)).await, Ok(()));
        assert_eq!(load(&folder, "a"), saved(6));
    }
}
