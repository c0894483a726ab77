//! The folder of checkpoints. It may hang, be full or be missing, so threads of its own write and
//! read, and work that takes too long counts as failed.

mod files;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use equipoise_basics::lock;
use equipoise_slice::SliceId;
use equipoise_slice::transport::{FolderDone, FolderTask};
use equipoise_slice::worker::Checkpoint;

/// Limit of the time of a write or read. Then a checkpoint counts without the folder, and a slice
/// continues from the last checkpoint of the workers.
const WORK: Duration = Duration::from_secs(2);
/// The same of a read if no worker has a checkpoint of the slice. A failed read is repeated until
/// then. Afterwards the slice continues without a state.
const LOAD: Duration = Duration::from_secs(10);
/// Pause before a failed read is repeated.
const RETRY: Duration = Duration::from_millis(250);
/// Number of threads: each write waits for the disk, about twice.
const THREADS: usize = 4;

/// The folder of checkpoints.
pub(super) struct Folder {
    shared: Arc<Shared>,
    /// Work without an answer, and when it arrived.
    open: Vec<(Duration, FolderTask)>,
    problem: Option<String>,
}

/// Does work in the folder. The flag: earlier checkpoints of the slice could not be read.
type Does = dyn Fn(&FolderTask, bool) -> io::Result<Option<Checkpoint>> + Send + Sync;

struct Shared {
    path: PathBuf,
    does: Box<Does>,
    work: Mutex<Work>,
    changed: Condvar,
    /// Called when work is done.
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Work {
    waiting: VecDeque<FolderTask>,
    /// Slices with work in progress. Two threads never write one slice.
    busy: BTreeSet<SliceId>,
    done: Vec<Done>,
    /// Slices of which a checkpoint could not be read: it is kept.
    unread: BTreeSet<SliceId>,
    ended: bool,
}

/// Work that a thread has done.
struct Done {
    task: FolderTask,
    result: io::Result<Option<Checkpoint>>,
}

impl Folder {
    /// Starts the threads. The parent of `path` must exist. `wake` is called when work is done.
    pub(super) fn start(
        path: PathBuf,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let folder = path.clone();
        let does = move |task: &FolderTask, keeps_earlier: bool| match task {
            FolderTask::Store(slice, checkpoint) => {
                files::store(&folder, *slice, checkpoint, keeps_earlier).map(|()| None)
            }
            FolderTask::Load(slice, ..) => files::load(&folder, *slice),
        };
        Self::start_with(path, Box::new(does), Box::new(wake))
    }

    fn start_with(
        path: PathBuf,
        does: Box<Does>,
        wake: Box<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let (work, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { path, does, work, changed, wake });
        let folder = Self { shared, open: Vec::new(), problem: None };
        for _ in 0..THREADS {
            let shared = folder.shared.clone();
            // Not joined: the folder may never answer.
            let thread = std::thread::Builder::new().name("slice-folder".into());
            thread.spawn(move || shared.run())?;
        }
        Ok(folder)
    }

    /// Begins work.
    pub(super) fn begin(&mut self, now: Duration, task: FolderTask) {
        self.open.push((now, task.clone()));
        lock(&self.shared.work).waiting.push_back(task);
        self.shared.changed.notify_one();
    }

    /// Work that was done since the last call, or has taken too long.
    pub(super) fn done(&mut self, now: Duration) -> Vec<FolderDone> {
        if self.open.is_empty() && self.problem.is_none() {
            return Vec::new();
        }
        let mut work = lock(&self.shared.work);
        let mut all = Vec::new();
        for Done { task, result } in std::mem::take(&mut work.done) {
            if let Err(error) = &result {
                note(&mut self.problem, &self.shared, &task, error);
            } else if matches!(task, FolderTask::Store(..))
                && let Some(problem) = self.problem.take()
            {
                let folder = self.shared.path.display();
                tracing::info!(%folder, problem, "checkpoints are stored in the folder again");
            }
            let before = self.open.len();
            self.open.retain(|(_, open)| !is_same(open, &task));
            // Otherwise it took too long, and was answered then.
            if self.open.len() < before {
                all.push(answer(&task, result));
            }
        }
        // If every thread hangs, nothing that waits behind them is waited for.
        let is_hung = work.busy.len() == THREADS && self.problem.is_some();
        let late = self.open.extract_if(.., |(since, task)| {
            let limit = match task {
                FolderTask::Load(_, _, true) => LOAD,
                task if is_hung && !work.busy.contains(&slice_of(task)) => Duration::ZERO,
                FolderTask::Store(..) | FolderTask::Load(..) => WORK,
            };
            now.saturating_sub(*since) >= limit
        });
        for (_, task) in late.collect::<Vec<_>>() {
            work.waiting.retain(|waiting| !is_same(waiting, &task));
            let error = io::Error::from(io::ErrorKind::TimedOut);
            note(&mut self.problem, &self.shared, &task, &error);
            if let FolderTask::Load(slice, _, true) = task {
                work.unread.insert(slice);
            }
            all.push(answer(&task, Err(error)));
        }
        all
    }

    /// Why the last checkpoint is not in the folder.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        lock(&self.shared.work).ended = true;
        self.shared.changed.notify_all();
    }
}

fn slice_of(task: &FolderTask) -> SliceId {
    match task {
        FolderTask::Store(slice, _) | FolderTask::Load(slice, ..) => *slice,
    }
}

fn is_same(one: &FolderTask, other: &FolderTask) -> bool {
    match (one, other) {
        (FolderTask::Store(slice, of), FolderTask::Store(other, by)) => {
            (slice, of.version) == (other, by.version)
        }
        (FolderTask::Load(slice, epoch, _), FolderTask::Load(other, by, _)) => {
            (slice, epoch) == (other, by)
        }
        _ => false,
    }
}

fn answer(task: &FolderTask, result: io::Result<Option<Checkpoint>>) -> FolderDone {
    match task {
        FolderTask::Store(slice, of) => FolderDone::Stored(*slice, of.version, result.is_ok()),
        FolderTask::Load(slice, epoch, _) => {
            FolderDone::Loaded(*slice, *epoch, result.unwrap_or_default())
        }
    }
}

/// Logs a failure, unless the same one was the last.
fn note(problem: &mut Option<String>, shared: &Shared, task: &FolderTask, error: &io::Error) {
    let folder = shared.path.display();
    let text = format!("checkpoints are not stored in {folder}: {error}");
    if let FolderTask::Load(slice, _, true) = task {
        tracing::error!(
            slice = slice.0,
            %folder,
            %error,
            "the checkpoint of a slice cannot be read, and no worker has one: the slice begins without a state; the file is kept \
             as `.unread`"
        );
    } else if problem.as_ref() != Some(&text) {
        tracing::warn!(
            %folder,
            %error,
            "checkpoints are not stored in the folder: states are lost if all workers that have them end"
        );
    }
    *problem = Some(text);
}

impl Shared {
    fn run(&self) {
        while let Some(task) = self.next() {
            let slice = slice_of(&task);
            let result = match &task {
                FolderTask::Store(slice, _) => self.store(&task, *slice),
                FolderTask::Load(slice, _, is_last) => self.load(&task, *slice, *is_last),
            };
            let mut work = lock(&self.work);
            work.busy.remove(&slice);
            work.done.push(Done { task, result });
            drop(work);
            // Another task of the slice may wait.
            self.changed.notify_one();
            (self.wake)();
        }
    }

    /// Waits for work. `None`: the worker has ended.
    fn next(&self) -> Option<FolderTask> {
        let mut work = lock(&self.work);
        loop {
            if work.ended {
                return None;
            }
            let Work { waiting, busy, .. } = &mut *work;
            let next = waiting.iter().position(|task| !busy.contains(&slice_of(task)));
            if let Some(task) = next.and_then(|at| waiting.remove(at)) {
                busy.insert(slice_of(&task));
                return Some(task);
            }
            work = wait(&self.changed, work);
        }
    }

    fn store(&self, task: &FolderTask, slice: SliceId) -> io::Result<Option<Checkpoint>> {
        let keeps_earlier = lock(&self.work).unread.contains(&slice);
        (self.does)(task, keeps_earlier)?;
        lock(&self.work).unread.remove(&slice);
        Ok(None)
    }

    fn load(
        &self,
        task: &FolderTask,
        slice: SliceId,
        is_last: bool,
    ) -> io::Result<Option<Checkpoint>> {
        let end = Instant::now() + if is_last { LOAD } else { Duration::ZERO };
        loop {
            let error = match (self.does)(task, false) {
                Ok(loaded) => return Ok(loaded),
                Err(error) => error,
            };
            let is_over = Instant::now() >= end || lock(&self.work).ended;
            // A file that is not a checkpoint never becomes one. The folder may not be mounted yet.
            if is_over || error.kind() == io::ErrorKind::InvalidData {
                if is_last {
                    lock(&self.work).unread.insert(slice);
                }
                return Err(error);
            }
            std::thread::sleep(RETRY);
        }
    }
}

fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
