//! Sends jobs to a program and receives its acknowledgements, during one run of the program.

use std::io::{self, BufReader, Read, Write};
use std::process::ChildStdin;
use std::sync::mpsc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::desk::Desk;
use super::{Format, Shared, batches, lines};

/// Size from which a batch to the program is closed.
const BATCH_BYTES: usize = 256 << 10;
/// Interval between checks of jobs that may not begin: the worker's lease has lapsed, or the
/// program has a job that it must have alone.
const LAPSED: Duration = Duration::from_millis(20);
/// Longest wait for the number of bytes that the program had read when it ended. The thread that
/// counts them answers at once, unless it has no CPU time or another process has the program's
/// input.
const READ: Duration = Duration::from_secs(5);

/// The input of a program.
pub(super) trait Input: Write + Send + 'static {
    /// Bytes that were written and that the program has not read, as far as the system knows.
    fn unread(&self) -> u64;
}

impl Input for ChildStdin {
    fn unread(&self) -> u64 {
        // Also works at the writing end of a pipe.
        rustix::io::ioctl_fionread(self).unwrap_or(0)
    }
}

/// Sends and receives until the program's output ends. Then `end` makes sure that the program has
/// ended. Returns how many bytes the program had read.
pub(super) fn serve(
    shared: &Arc<Shared>,
    input: impl Input,
    output: impl Read,
    end: impl FnOnce(),
) -> u64 {
    let serving = shared.desk().running;
    let source = shared.clone();
    let (read, reads) = mpsc::channel();
    let giving = move || {
        let mut given = Given { input, bytes: 0 };
        if let Err(error) = give(&source, &mut given, serving) {
            tracing::debug!(%error, "cannot write to the slice worker's program");
        }
        // The receiver may have stopped waiting.
        let _ = read.send(given.bytes.saturating_sub(given.input.unread()));
    };
    let giving = std::thread::Builder::new().name("slice-program-in".into()).spawn(giving);
    match take(shared, output) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(%error, "the slice worker's program wrote an invalid acknowledgement");
        }
        Err(error) => tracing::debug!(%error, "cannot read from the slice worker's program"),
        Ok(()) => tracing::debug!("the slice worker's program has closed its output"),
    }
    end();
    shared.desk().running += 1;
    shared.changed.notify_all();
    // The thread ends when it sees that another run is served, or that the program's input is
    // closed. If a child of the program has the input open, the number of bytes is unknown, and the
    // program counts as having read all.
    drop(giving);
    reads.recv_timeout(READ).unwrap_or(u64::MAX)
}

/// The input of a program, with a count.
struct Given<I> {
    input: I,
    /// Number of bytes that the system has accepted.
    bytes: u64,
}

impl<I: Write> Given<I> {
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.input.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.bytes += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.input.flush()
    }
}

/// Sends waiting jobs to the program, until it ends or no more will come.
fn give(shared: &Shared, given: &mut Given<impl Write>, serving: u64) -> io::Result<()> {
    let mut batch = Vec::new();
    loop {
        let desk = shared.desk();
        let idle = |desk: &mut Desk| !desk.has_more() && !desk.closed && desk.running == serving;
        let mut desk =
            shared.changed.wait_while(desk, idle).unwrap_or_else(PoisonError::into_inner);
        if desk.running != serving || (desk.closed && !desk.has_more()) {
            return Ok(());
        }
        batch.clear();
        if shared.format == Format::Batches {
            batch.extend_from_slice(&[0; batches::LENGTH_BYTES]);
        }
        let empty = batch.len();
        while batch.len() < BATCH_BYTES
            && let Some((number, job)) = desk.next(given.bytes + batch.len() as u64)
        {
            match shared.format {
                Format::Batches => batches::entry(number, job, shared.tokens, &mut batch),
                Format::Lines => lines::entry(number, job, shared.tokens, &mut batch),
            }
        }
        if batch.len() == empty {
            // No waiting job may begin now.
            drop(shared.changed.wait_timeout(desk, LAPSED));
            continue;
        }
        drop(desk);
        if shared.format == Format::Batches {
            batches::close(&mut batch);
        }
        given.write_all(&batch)?;
    }
}

/// Receives acknowledgements until the program's output ends.
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
        for acknowledged in batches::read(&mut output, &mut batch)? {
            let (number, reply) = acknowledged?;
            acknowledge(shared, number, reply.to_vec(), &mut last);
        }
    }
}

/// Handles an acknowledgement. `last`: the time of the one before.
fn acknowledge(shared: &Shared, number: u64, reply: Vec<u8>, last: &mut Instant) {
    let job = {
        let mut desk = shared.desk();
        let job = desk.acknowledged(number);
        if desk.has_more() {
            // A waiting job may have needed the end of this one.
            shared.changed.notify_all();
        }
        job
    };
    // `None`: the program has acknowledged it before.
    if let Some(job) = job {
        // A program is assumed to process its jobs one after the other.
        job.begun(*last);
        *last = Instant::now();
        job.done(Some(reply));
    }
}
