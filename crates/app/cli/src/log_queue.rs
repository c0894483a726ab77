//! The queue between the threads that log and standard error, which may block for a while.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use equipoise_basics::lock;

/// Limits of the waiting lines. A line beyond a limit is lost and counted.
const LINES_MAX: usize = 8192;
const BYTES_MAX: usize = 4 << 20;

/// A bounded queue of lines, with a thread that writes them. Adding a line never waits for a write.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    state: Mutex<State>,
    /// A line was added.
    added: Condvar,
    /// Every line that was added is written.
    written: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<Vec<u8>>,
    /// Total size of `lines`, in bytes.
    bytes: usize,
    /// The thread is writing lines that it took from the queue.
    is_writing: bool,
    /// Lines lost since the start.
    lost: u64,
    /// Lines lost since the last report.
    unreported: u64,
}

impl State {
    fn lose(&mut self, lines: u64) {
        self.lost += lines;
        self.unreported += lines;
    }
}

impl LogQueue {
    /// Starts the thread that writes to `to`. After lines were lost, it calls `report` with their
    /// number once writing works again.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn start(
        to: impl Write + Send + 'static,
        report: fn(u64),
    ) -> io::Result<Arc<LogQueue>> {
        let queue = Arc::new(LogQueue::default());
        let of_thread = Arc::clone(&queue);
        let thread = thread::Builder::new().name("log".into());
        thread.spawn(move || of_thread.write_lines(to, report))?;
        Ok(queue)
    }

    /// Adds a line, or counts it as lost if the queue is full.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut state = lock(&self.state);
        if state.lines.len() < LINES_MAX && state.bytes + line.len() <= BYTES_MAX {
            self.add(state, line);
        } else {
            state.lose(1);
        }
    }

    /// Adds the last line of the process, even if the queue is full.
    pub(crate) fn push_last(&self, line: &[u8]) {
        self.add(lock(&self.state), line);
    }

    fn add(&self, mut state: MutexGuard<'_, State>, line: &[u8]) {
        state.bytes += line.len();
        state.lines.push(line.to_vec());
        self.added.notify_one();
    }

    /// Waits until every line is written, for at most `within`.
    pub(crate) fn flush(&self, within: Duration) {
        let waits = |state: &mut State| state.is_writing || !state.lines.is_empty();
        // Lines that are not written in time are lost when the process ends.
        drop(self.written.wait_timeout_while(lock(&self.state), within, waits));
    }

    /// Lines lost since the start.
    pub(crate) fn lost(&self) -> u64 {
        lock(&self.state).lost
    }

    fn write_lines(&self, mut to: impl Write, report: fn(u64)) {
        let mut is_writable = true;
        loop {
            let (lines, lost) = self.take(is_writable);
            if lost > 0 {
                // The queue was just emptied: the report follows the lines before the lost ones.
                report(lost);
            }
            let mut failed = 0;
            for line in lines {
                is_writable = to.write_all(&line).is_ok();
                failed += u64::from(!is_writable);
            }
            lock(&self.state).lose(failed);
        }
    }

    /// Waits for lines and takes them all. Also returns the number of lost lines to report, which
    /// is 0 while writing fails, since the report would be lost too.
    fn take(&self, is_writable: bool) -> (Vec<Vec<u8>>, u64) {
        let mut state = lock(&self.state);
        state.is_writing = false;
        while state.lines.is_empty() {
            self.written.notify_all();
            let waited = self.added.wait(state);
            state = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.is_writing = true;
        state.bytes = 0;
        let lost = if is_writable { std::mem::take(&mut state.unreported) } else { 0 };
        (std::mem::take(&mut state.lines), lost)
    }
}

/// Writes one event of `tracing`, which passes each event in one call.
#[derive(Debug)]
pub(crate) struct EventWriter(pub(crate) Arc<LogQueue>);

impl Write for EventWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::mpsc;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    /// A writer that blocks until the test takes the bytes, and fails once the test has dropped the
    /// receiver.
    struct Blocking(mpsc::SyncSender<Vec<u8>>);

    impl Write for Blocking {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let sent = self.0.send(bytes.to_vec());
            sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_find_the_queue_full_are_counted_and_reported_when_writing_works_again() {
        static REPORTED: AtomicU64 = AtomicU64::new(0);
        let (writer, written) = mpsc::sync_channel(0);
        let report = |lost| {
            REPORTED.fetch_add(lost, Relaxed);
        };
        let queue = LogQueue::start(Blocking(writer), report).unwrap();
        // The thread takes this line and blocks. The queue then has room for exactly the lines
        // below.
        queue.push(b"first\n");
        while !lock(&queue.state).is_writing {
            thread::yield_now();
        }
        for _ in 0..LINES_MAX + 7 {
            queue.push(b"line\n");
        }
        assert_eq!(queue.lost(), 7);
        queue.flush(Duration::from_millis(10));
        queue.push_last(b"last\n");
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != b"last\n") {
            lines.push(written.recv_timeout(SOON).unwrap());
        }
        assert_eq!((lines.len(), lines[0].as_slice()), (LINES_MAX + 2, &b"first\n"[..]));
        queue.flush(SOON);
        assert_eq!((REPORTED.load(Relaxed), queue.lost()), (7, 7));
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (writer, written) = mpsc::sync_channel(0);
        drop(written);
        let queue = LogQueue::start(Blocking(writer), |_| {}).unwrap();
        for _ in 0..3 {
            queue.push(b"line\n");
            queue.flush(SOON);
        }
        assert_eq!(queue.lost(), 3);
    }
}
