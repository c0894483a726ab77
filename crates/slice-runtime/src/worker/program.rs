//! An application that is a program: it gets items over its standard input, and acknowledges them over its standard output;
//! or both over a unix socket ([`Program::listen`]).
//!
//! Numbers are little-endian. Both ways go *batches*: the number of bytes that follow (4), then entries, one after the other.
//!
//! | to the program, an entry | bytes | from the program, an entry | bytes |
//! |---|---|---|---|
//! | job | 8 | job | 8 |
//! | slice | 4 | length of the reply | 4 |
//! | id | 8 | reply | |
//! | sender | 4 | | |
//! | timestamp | 8 | | |
//! | length of the message | 4 | | |
//! | message | | | |
//!
//! The two highest bits of a job say what it is; the program repeats them. All but items come only where state moves with slices
//! ([`equipoise_slice::Order::Stateful`]), and have 0 for id, sender and timestamp:
//!
//! | bits | what | message | the reply |
//! |---|---|---|---|
//! | 0 | an item | the item's | to the client |
//! | 1 | take over the state of the slice | as another worker's program exported it; none if that had none | none |
//! | 2 | the state of the slice is lost with its worker: begin anew | none | none |
//! | 3 | export the state of the slice, which goes to another worker | none | the state |
//!
//! A program that is started again has to have kept its state itself.
//!
//! With [`Format::Lines`] all of it is lines of text (`program/lines.rs`).
//!
//! An acknowledgement means: the item is done and need not come again; it is the reply to the client, too. Jobs may be
//! acknowledged in any order. A program that ends is started again, and gets what it had not acknowledged once more.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use equipoise_dds::items::DataItem;

mod lines;
mod socket;

pub use self::socket::ListenError;
use self::socket::Listening;
use crate::worker::{Application, Job, Work};

/// What a job is stands above its number.
const KIND_SHIFT: u32 = 62;
const NUMBER: u64 = (1 << KIND_SHIFT) - 1;

/// The largest batch that is taken from a program, bytes.
const BATCH_MAX: u32 = 256 << 20;
/// A batch to the program is closed when it has this many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// What may not be begun, as the worker's lease has lapsed, is looked at again after this.
const LAPSED: Duration = Duration::from_millis(20);
/// Between an end of the program and the next start.
const PAUSE: Duration = Duration::from_millis(500);

/// How jobs and acknowledgements are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Batches of bytes, as above.
    #[default]
    Batches,
    /// A line of text each, with messages and replies in base64.
    Lines,
}

/// The program, started anew whenever it ends. Dropped, it ends with its input.
#[derive(Debug)]
pub struct Program {
    shared: Arc<Shared>,
    /// Where it is listened for, if it is.
    listening: Option<Listening>,
}

#[derive(Debug, Default)]
struct Shared {
    desk: Mutex<Desk>,
    changed: Condvar,
    restarts: AtomicU64,
    format: Format,
}

#[derive(Debug, Default)]
struct Desk {
    /// Jobs that the program has, or is to get.
    jobs: BTreeMap<u64, Job>,
    /// Those it is to get.
    waiting: VecDeque<u64>,
    /// How often the program ended while it had a job.
    ends: BTreeMap<u64, u32>,
    last: u64,
    /// No more to come.
    closed: bool,
    /// Which start of the program is served: an earlier one's thread gives nothing out.
    running: u64,
}

impl Desk {
    /// The next job that the program is to get, if it may be begun now. What waits and is the worker's no more goes.
    fn next(&mut self) -> Option<(u64, &Job)> {
        while let Some(number) = self.waiting.front().copied() {
            match self.jobs.get(&number) {
                Some(job) if job.may_begin() => {
                    self.waiting.pop_front();
                    return self.jobs.get(&number).map(|job| (number, job));
                }
                Some(job) if job.is_current() => return None,
                _ => {
                    self.waiting.pop_front();
                    if let Some(job) = self.jobs.remove(&number) {
                        job.withdraw();
                    }
                }
            }
        }
        None
    }
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// When the program cannot be started the first time.
    pub fn start(command: impl FnMut() -> Command + Send + 'static) -> io::Result<Self> {
        Self::start_with(Format::default(), command)
    }

    /// Starts one that reads and writes `format`.
    ///
    /// # Errors
    /// When the program cannot be started the first time.
    pub fn start_with(
        format: Format,
        command: impl FnMut() -> Command + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { format, ..Shared::default() });
        let mut command = command;
        let first = spawn(&mut command)?;
        let keeper = Keeper { shared: shared.clone() };
        std::thread::Builder::new()
            .name("slice-program".into())
            .spawn(move || keeper.keep(first, command))?;
        Ok(Self { shared, listening: None })
    }

    /// How often it had to be started again.
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Relaxed)
    }
}

impl Application for Program {
    fn start(&mut self, job: Job) {
        if job.work().is_none() {
            // An item that is none.
            return job.done(None);
        }
        let mut desk = self.shared.desk();
        desk.last += 1;
        let number = desk.last;
        desk.jobs.insert(number, job);
        desk.waiting.push_back(number);
        self.shared.changed.notify_all();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.shared.desk().closed = true;
        self.shared.changed.notify_all();
        self.listening = None;
    }
}

impl Shared {
    /// What the program had is given once more, in the old order, to the next one. `false`: there is to be none.
    fn again(&self) -> bool {
        let mut desk = self.desk();
        desk.running += 1;
        let Desk { jobs, waiting, ends, .. } = &mut *desk;
        ends.retain(|number, _| jobs.contains_key(number));
        for (number, job) in jobs.iter().filter(|(number, _)| !waiting.contains(number)) {
            let ends = ends.entry(*number).or_insert(0);
            *ends += 1;
            // Once may be chance.
            if *ends > 1 {
                tell_of_poison(job, *ends);
            }
        }
        *waiting = jobs.keys().copied().collect();
        !desk.closed
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The item may be what ends the program, here and then at the next worker.
fn tell_of_poison(job: &Job, ends: u32) {
    let slice = job.slice().0;
    if let Some(Work::Item(item)) = job.work() {
        let (id, sender) = (item.id, item.sender_id);
        tracing::warn!(
            slice,
            id,
            sender,
            ends,
            "the slice worker's program has ended again with this item in hand: if that is why, have it answer such items"
        );
    }
}

fn spawn(command: &mut impl FnMut() -> Command) -> io::Result<Child> {
    command().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

struct Keeper {
    shared: Arc<Shared>,
}

impl Keeper {
    fn keep(self, first: Child, mut command: impl FnMut() -> Command) {
        let mut child = Some(first);
        loop {
            if let Some(mut child) = child.take().or_else(|| self.again(&mut command)) {
                self.serve(&mut child);
                // It may have closed its output alone.
                let _ = child.kill();
                match child.wait() {
                    Ok(status) => tracing::warn!(%status, "the slice worker's program has ended"),
                    Err(error) => tracing::warn!(%error, "the slice worker's program is lost"),
                }
            }
            let desk = self.shared.desk();
            let closed = |desk: &mut Desk| !desk.closed;
            let waited = self.shared.changed.wait_timeout_while(desk, PAUSE, closed);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
            if !self.shared.again() {
                return;
            }
        }
    }

    fn again(&self, command: &mut impl FnMut() -> Command) -> Option<Child> {
        self.shared.restarts.fetch_add(1, Relaxed);
        spawn(command)
            .inspect_err(|error| tracing::error!(%error, "the slice worker's program"))
            .ok()
    }

    fn serve(&self, child: &mut Child) {
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else { return };
        serve(&self.shared, input, output);
    }
}

/// Gives and takes until the program says nothing more.
fn serve(shared: &Arc<Shared>, input: impl Write + Send + 'static, output: impl Read) {
    let serving = shared.desk().running;
    let giver = shared.clone();
    let giving = move || {
        if let Err(error) = give(&giver, input, serving) {
            tracing::debug!(%error, "the slice worker's program takes nothing");
        }
    };
    let giving = std::thread::Builder::new().name("slice-program-in".into()).spawn(giving);
    match take(shared, output) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(%error, "the slice worker's program wrote what is no acknowledgement");
        }
        Err(error) => tracing::debug!(%error, "the slice worker's program says nothing more"),
        Ok(()) => tracing::debug!("the slice worker's program says nothing more"),
    }
    shared.desk().running += 1;
    shared.changed.notify_all();
    // It ends as soon as it sees that another start is served, or the program's input is gone.
    drop(giving);
}

/// Gives the program what waits, until it ends or nothing more is to come.
fn give(shared: &Shared, mut input: impl Write, serving: u64) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        let desk = shared.desk();
        let idle =
            |desk: &mut Desk| desk.waiting.is_empty() && !desk.closed && desk.running == serving;
        let mut desk =
            shared.changed.wait_while(desk, idle).unwrap_or_else(PoisonError::into_inner);
        if desk.running != serving || (desk.closed && desk.waiting.is_empty()) {
            return Ok(());
        }
        batch.clear();
        if shared.format == Format::Batches {
            batch.extend_from_slice(&[0; 4]);
        }
        let empty = batch.len();
        while batch.len() < BATCH_BYTES
            && let Some((number, job)) = desk.next()
        {
            match shared.format {
                Format::Batches => entry(number, job, &mut batch),
                Format::Lines => lines::entry(number, job, &mut batch),
            }
        }
        if batch.len() == empty {
            // Nothing of what waits may be begun.
            drop(shared.changed.wait_timeout(desk, LAPSED));
            continue;
        }
        drop(desk);
        if shared.format == Format::Batches {
            let length = (batch.len() - 4) as u32;
            batch[..4].copy_from_slice(&length.to_le_bytes());
        }
        input.write_all(&batch)?;
        input.flush()?;
    }
}

/// Adds what is to be done to `batch`.
fn entry(number: u64, job: &Job, batch: &mut Vec<u8>) {
    let state = |message| DataItem {
        slice_id: job.slice().0 as i32,
        id: 0,
        sender_id: 0,
        timestamp: 0,
        message,
    };
    let (kind, item) = match job.work() {
        None => return,
        Some(Work::Item(item)) => (0, item),
        Some(Work::Import(Some(bytes))) => (1, state(bytes)),
        Some(Work::Import(None)) => (2, state(&[])),
        Some(Work::Export) => (3, state(&[])),
    };
    batch.extend_from_slice(&(number | kind << KIND_SHIFT).to_le_bytes());
    batch.extend_from_slice(&item.slice_id.to_le_bytes());
    batch.extend_from_slice(&item.id.to_le_bytes());
    batch.extend_from_slice(&item.sender_id.to_le_bytes());
    batch.extend_from_slice(&item.timestamp.to_le_bytes());
    batch.extend_from_slice(&(item.message.len() as u32).to_le_bytes());
    batch.extend_from_slice(item.message);
}

/// Takes acknowledgements until the program ends.
fn take(shared: &Shared, output: impl Read) -> io::Result<()> {
    let mut output = BufReader::new(output);
    let mut batch = Vec::new();
    let mut last = Instant::now();
    if shared.format == Format::Lines {
        while let Some((number, reply)) = lines::read(&mut output)? {
            acknowledge(shared, number, reply, &mut last);
        }
        return Ok(());
    }
    loop {
        let mut length = [0; 4];
        output.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length);
        if length > BATCH_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a batch that is too long"));
        }
        batch.resize(length as usize, 0);
        output.read_exact(&mut batch)?;
        for acknowledged in acknowledgements(&batch) {
            let (number, reply) = acknowledged?;
            acknowledge(shared, number & NUMBER, reply.to_vec(), &mut last);
        }
    }
}

/// A job is done. `last`: when the one before was.
fn acknowledge(shared: &Shared, number: u64, reply: Vec<u8>, last: &mut Instant) {
    let job = shared.desk().jobs.remove(&number);
    // One that it has acknowledged before is done.
    if let Some(job) = job {
        // It does them one after the other, as far as anybody can tell.
        job.begun(*last);
        *last = Instant::now();
        job.done(Some(reply));
    }
}

/// The entries of a batch from a program, by job.
fn acknowledgements(batch: &[u8]) -> impl Iterator<Item = io::Result<(u64, &[u8])>> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = acknowledgement(rest);
        rest = entry.map_or(&[][..], |(_, _, rest)| rest);
        let short = || io::Error::new(io::ErrorKind::InvalidData, "a batch that ends too early");
        Some(entry.map(|(number, reply, _)| (number, reply)).ok_or_else(short))
    })
}

fn acknowledgement(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (reply, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u64::from_le_bytes(*number), reply, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64, reply: &[u8]) -> Vec<u8> {
        [&number.to_le_bytes()[..], &(reply.len() as u32).to_le_bytes(), reply].concat()
    }

    #[test]
    fn acknowledgements_are_read_one_after_the_other() {
        let batch = [entry(7, b"a"), entry(9, b""), entry(u64::MAX, b"xyz")].concat();
        let read: Vec<_> = acknowledgements(&batch).map(Result::unwrap).collect();
        assert_eq!(read, [(7, &b"a"[..]), (9, b""), (u64::MAX, b"xyz")]);
    }

    #[test]
    fn a_batch_that_ends_too_early_is_an_error_and_no_more() {
        let batch = [entry(7, b"a"), entry(9, b"bc")].concat();
        for length in 14..batch.len() {
            let read: Vec<_> = acknowledgements(&batch[..length]).collect();
            assert_eq!(read.len(), 2, "{length}");
            assert!(read[0].is_ok() && read[1].is_err(), "{length}");
        }
    }
}
