use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use equipoise_basics::lock;
use tokio::sync::oneshot;

use super::target::Opened;
use super::{AuditTarget, Line};

/// Largest number of lines that wait for the file.
const LINES_MAX: usize = 1024;

/// Lines that wait for the writing thread.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Signals that a job was added or the log was closed.
    added: Condvar,
    /// Signals that a job was done.
    done: Condvar,
    pub(super) lost: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Waiting>,
    /// The job that the thread works on, unless [`Queue::finish`] gave it up.
    worked_on: Option<Job>,
    /// A caller has waited in vain for its line, and no line has been written since.
    is_blocked: bool,
    is_closed: bool,
}

impl State {
    fn waiting(&self) -> usize {
        self.jobs.len() + usize::from(self.worked_on.is_some())
    }
}

#[derive(Debug)]
struct Waiting {
    job: Job,
    /// Dropped when the job is done.
    _done: oneshot::Sender<()>,
}

#[derive(Clone, Debug)]
pub(super) enum Job {
    Write(Box<Line>),
    Reopen(AuditTarget),
}

impl Queue {
    /// Adds a job. The receiver ends when the job is done. If there is no room for a line, it goes
    /// to the process's log; a job with another file is always accepted.
    pub(super) fn add(&self, job: Job) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        let mut state = self.lock();
        if state.waiting() < LINES_MAX || matches!(job, Job::Reopen(_)) {
            state.jobs.push_back(Waiting { job, _done: done });
            self.added.notify_one();
        } else {
            drop(state);
            self.lose(&job);
        }
        ended
    }

    /// Whether callers need not wait for their lines, because an earlier caller has waited in vain.
    pub(super) fn is_blocked(&self) -> bool {
        self.lock().is_blocked
    }

    /// Records that a caller has waited in vain.
    pub(super) fn set_blocked(&self) {
        let mut state = self.lock();
        if state.waiting() > 0 && !state.is_blocked {
            state.is_blocked = true;
            drop(state);
            tracing::error!(
                "the audit log does not accept lines: changes are answered before their lines are written \
                 (option `api.audit-log`)"
            );
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Ends the thread once all jobs are done.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.added.notify_one();
    }

    /// Waits until all lines are written, for at most `within`. The remaining lines go to the
    /// process's log.
    pub(super) fn finish(&self, within: Duration) {
        let waits = |state: &mut State| state.waiting() > 0;
        let waited = self.done.wait_timeout_while(self.lock(), within, waits);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        let left = std::mem::take(&mut state.jobs);
        let left = left.into_iter().map(|waiting| waiting.job);
        let left: Vec<Job> = state.worked_on.take().into_iter().chain(left).collect();
        drop(state);
        left.iter().for_each(|job| self.lose(job));
    }

    /// The thread's loop: does all jobs until the log is closed.
    pub(super) fn work(&self, mut opened: Opened) {
        while let Some(Waiting { job, _done }) = self.next() {
            let mut unwritten = None;
            match job {
                Job::Write(line) => {
                    unwritten = opened.write(&line).err().map(|error| (error, line))
                }
                Job::Reopen(target) => match Opened::open(&target) {
                    Ok(anew) => opened = anew,
                    Err(error) => {
                        let cause = error.source().map(ToString::to_string).unwrap_or_default();
                        tracing::error!("{error}: {cause}; lines go to the previous target");
                    }
                },
            }
            let mut state = self.lock();
            let is_ours = state.worked_on.take().is_some();
            if let Some((error, line)) = unwritten.filter(|_| is_ours) {
                tracing::error!(%error, "cannot write the audit log; this log has the line");
                self.lose(&Job::Write(line));
            }
            if std::mem::take(&mut state.is_blocked) {
                tracing::info!("the audit log accepts lines again");
            }
            self.done.notify_all();
        }
    }

    fn next(&self) -> Option<Waiting> {
        let waits = |state: &mut State| state.jobs.is_empty() && !state.is_closed;
        let state = self.added.wait_while(self.lock(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let next = state.jobs.pop_front();
        state.worked_on = next.as_ref().map(|waiting| waiting.job.clone());
        next
    }

    /// Counts a line as lost, and writes it to the process's log.
    fn lose(&self, job: &Job) {
        if let Job::Write(line) = job {
            self.lost.fetch_add(1, Relaxed);
            line.to_log();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
