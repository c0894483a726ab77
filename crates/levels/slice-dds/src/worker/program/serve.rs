//! Gives a program its jobs, and takes its acknowledgements, while one start of it lasts.

use std::io::{self, BufReader, Read, Write};
use std::process::ChildStdin;
use std::sync::mpsc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::desk::Desk;
use super::{Format, Shared, batches, lines};

/// A batch to the program is closed when it has this many bytes.
const BATCH_BYTES: usize = 256 << 10;
/// What may not be begun, as the worker's lease has lapsed or the program has one that it is to have alone, is looked at again after
/// this.
const LAPSED: Duration = Duration::from_millis(20);
/// What a program has read of what it was given is known at once when it has ended, unless others have its input: this long a busy
/// machine may leave the thread that knows it without any time.
const READ: Duration = Duration::from_secs(5);

/// The way to a program.
pub(super) trait Input: Write + Send + 'static {
    /// Bytes on their way that it has not read, as far as that can be told.
    fn unread(&self) -> u64;
}

impl Input for ChildStdin {
    fn unread(&self) -> u64 {
        // At the end of a pipe where one writes, too.
        rustix::io::ioctl_fionread(self).unwrap_or(0)
    }
}

/// Gives and takes until the program says nothing more; then `end` makes sure that it has ended. Returns how many bytes it had read.
pub(super) fn serve(
    shared: &Arc<Shared>,
    input: impl Input,
    output: impl Read,
    end: impl FnOnce(),
) -> u64 {
    let serving = shared.desk().running;
    let giver = shared.clone();
    let (read, reads) = mpsc::channel();
    let giving = move || {
        let mut given = Given { input, bytes: 0 };
        if let Err(error) = give(&giver, &mut given, serving) {
            tracing::debug!(%error, "the slice worker's program takes nothing");
        }
        // Who waited for it may have given up.
        let _ = read.send(given.bytes.saturating_sub(given.input.unread()));
    };
    let giving = std::thread::Builder::new().name("slice-program-in".into()).spawn(giving);
    match take(shared, output) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            tracing::error!(%error, "the slice worker's program wrote what is no acknowledgement");
        }
        Err(error) => tracing::debug!(%error, "the slice worker's program says nothing more"),
        Ok(()) => tracing::debug!("the slice worker's program says nothing more"),
    }
    end();
    shared.desk().running += 1;
    shared.changed.notify_all();
    // It ends as soon as it sees that another start is served, or the program's input is gone. Where a child of the program's holds
    // that open, nobody knows: then it has read all.
    drop(giving);
    reads.recv_timeout(READ).unwrap_or(u64::MAX)
}

/// What a program was given.
struct Given<I> {
    input: I,
    /// How many bytes the system has taken.
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

/// Gives the program what waits, until it ends or nothing more is to come.
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
            // Nothing of what waits may be begun.
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
        for acknowledged in batches::read(&mut output, &mut batch)? {
            let (number, reply) = acknowledged?;
            acknowledge(shared, number, reply.to_vec(), &mut last);
        }
    }
}

/// A job is done. `last`: when the one before was.
fn acknowledge(shared: &Shared, number: u64, reply: Vec<u8>, last: &mut Instant) {
    let job = {
        let mut desk = shared.desk();
        let job = desk.acknowledged(number);
        if desk.has_more() {
            // Something may have waited for it to be over.
            shared.changed.notify_all();
        }
        job
    };
    // One that it has acknowledged before is done.
    if let Some(job) = job {
        // It does them one after the other, as far as anybody can tell.
        job.begun(*last);
        *last = Instant::now();
        job.done(Some(reply));
    }
}
