//! An application that does jobs on threads.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Instant;

use equipoise_dds::items::DataItem;
use equipoise_slice::SliceId;

use crate::worker::{Application, Job, Work};

/// What a program does with items. Of one slice there is one call at a time.
pub trait Process: Send + Sync + 'static {
    /// Does an item; the reply.
    fn process(&self, item: &DataItem<'_>) -> Vec<u8>;

    /// Takes a slice's state over. `None`: it was lost.
    fn import(&self, _slice: SliceId, _state: Option<&[u8]>) {}

    /// Gives a slice's state away.
    fn export(&self, _slice: SliceId) -> Option<Vec<u8>> {
        None
    }
}

impl<F: Fn(&DataItem<'_>) -> Vec<u8> + Send + Sync + 'static> Process for F {
    fn process(&self, item: &DataItem<'_>) -> Vec<u8> {
        self(item)
    }
}

/// Threads that do jobs by a [`Process`]. They end when this is dropped.
pub struct Threads {
    jobs: mpsc::Sender<Job>,
    count: usize,
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Threads")
    }
}

impl Threads {
    /// Starts `count` threads, at least one.
    ///
    /// # Errors
    /// When the system has no thread for us.
    pub fn start(count: usize, process: impl Process) -> std::io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<Job>();
        let (jobs, process) = (Arc::new(Mutex::new(jobs)), Arc::new(process));
        let count = count.max(1);
        for number in 0..count {
            let (jobs, process) = (jobs.clone(), process.clone());
            let name = format!("slice-{number}");
            std::thread::Builder::new().name(name).spawn(move || {
                loop {
                    let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    do_job(job, process.as_ref());
                }
            })?;
        }
        Ok(Self { jobs: sender, count })
    }
}

fn do_job(job: Job, process: &impl Process) {
    job.begun(Instant::now());
    let answer = match job.work() {
        None => None,
        Some(Work::Item(item)) => Some(process.process(&item)),
        Some(Work::Import(state)) => {
            process.import(job.slice(), state);
            None
        }
        Some(Work::Export) => process.export(job.slice()),
    };
    job.done(answer);
}

impl Application for Threads {
    /// One in hand and one in reserve for each thread.
    fn jobs(&self) -> usize {
        2 * self.count
    }

    fn start(&mut self, job: Job) {
        // All threads have panicked: the job is dropped, and its item stays undone.
        let _ = self.jobs.send(job);
    }
}
