//! The access log: lines go through a bounded queue to a thread that writes them.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

/// Lines waiting to be written at the most; beyond it lines are given up and counted.
const QUEUE_LINES: usize = 8192;

/// Where the data plane puts its lines.
#[derive(Clone)]
pub(crate) struct AccessLog {
    lines: SyncSender<String>,
}

impl AccessLog {
    /// Starts the writing thread; it ends when the last handle is gone and all is written.
    pub(crate) fn start(
        to: Box<dyn Write + Send>,
    ) -> io::Result<(AccessLog, thread::JoinHandle<()>)> {
        let (lines, queue) = mpsc::sync_channel(QUEUE_LINES);
        let thread = thread::Builder::new()
            .name("access-log".into())
            .spawn(move || write_lines(queue, io::BufWriter::new(to)))?;
        Ok((AccessLog { lines }, thread))
    }

    /// Queues a line (without its newline); false if there was no room.
    pub(crate) fn write(&self, line: String) -> bool {
        self.lines.try_send(line).is_ok()
    }
}

fn write_lines(queue: Receiver<String>, mut to: io::BufWriter<Box<dyn Write + Send>>) {
    while let Ok(first) = queue.recv() {
        let written = std::iter::once(first)
            .chain(queue.try_iter())
            .try_for_each(|line| writeln!(to, "{line}"))
            .and_then(|()| to.flush());
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the access log; lines are lost");
        }
    }
}
