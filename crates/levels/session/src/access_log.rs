//! The access log: lines go through a bounded queue to a thread that writes them.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use equipoise_basics::OncePerMinute;
use equipoise_core::{LineFormat, LogField, LogLine};
use tokio::sync::oneshot;

use crate::door::Door;
use crate::lease::Lease;
use crate::proxy_protocol::Extensions;
use crate::reason::Reason;
use crate::stats::{Counter, FrontDoorStats, Sharded};
use crate::worker::Worker;

/// Lines waiting to be written at the most; beyond it lines are given up and counted.
const QUEUE_LINES: usize = 8192;

/// Empty buffers that a thread gets back at the most, and how large each may have grown.
const BUFFERS: usize = 256;
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// The end of a line.
const END: &[u8] = b"\n";

/// Bytes after which a batch of lines is written.
const BATCH_BYTES: usize = 64 << 10;

/// Destination of the access log. It may block; only the thread that writes lines waits for it.
pub enum LogOutput {
    /// Takes the bytes of lines one after the other: a file, a pipe.
    Stream(Box<dyn Write + Send>),
    /// Takes a line at a time, without its end: a socket for datagrams.
    Lines(Box<SendLine>),
}

/// Sends a line, or fails.
pub(crate) type SendLine = dyn FnMut(&[u8]) -> io::Result<()> + Send;

/// A line, the thread that its buffer returns to, and the counter of its loss.
struct Queued {
    line: Vec<u8>,
    back: Option<SyncSender<Vec<u8>>>,
    losses: Losses,
}

/// Where the writing thread counts a line that it cannot write.
enum Losses {
    Door(Arc<Sharded<FrontDoorStats>>),
    Guest(Arc<Counter>),
}

impl Losses {
    fn add(&self) {
        match self {
            Losses::Door(stats) => stats.shard(0).access_log_unwritten.add(1),
            Losses::Guest(unwritten) => unwritten.add(1),
        }
    }
}

/// Where the data plane puts its lines.
#[derive(Clone)]
pub(crate) struct AccessLog {
    lines: Arc<SyncSender<Queued>>,
    format: LineFormat,
    /// Lines of guests that could not be written.
    unwritten: Arc<Counter>,
}

/// One data-plane thread's way to the access log. The writing thread sends buffers back, so that
/// lines cost no allocation.
pub(crate) struct ThreadLog {
    log: AccessLog,
    back: SyncSender<Vec<u8>>,
    buffers: Receiver<Vec<u8>>,
}

impl AccessLog {
    /// Starts the writing thread. After the last handle is dropped it writes the rest, reports
    /// that, and ends.
    pub(crate) fn start(
        to: LogOutput,
        format: LineFormat,
    ) -> io::Result<(AccessLog, oneshot::Receiver<()>)> {
        let (lines, queue) = mpsc::sync_channel(QUEUE_LINES);
        let (done, ended) = oneshot::channel();
        thread::Builder::new().name("access-log".into()).spawn(move || {
            write_lines(&queue, to);
            // The engine may have given up waiting.
            let _ = done.send(());
        })?;
        Ok((AccessLog { lines: Arc::new(lines), format, unwritten: Arc::default() }, ended))
    }

    /// For one data-plane thread.
    pub(crate) fn of_thread(&self) -> ThreadLog {
        let (back, buffers) = mpsc::sync_channel(BUFFERS);
        ThreadLog { log: self.clone(), back, buffers }
    }

    /// For lines of others.
    pub(crate) fn guest(&self) -> LogLines {
        let unwritten = Arc::clone(&self.unwritten);
        LogLines { lines: Arc::downgrade(&self.lines), format: self.format, unwritten }
    }

    /// Queues a line about a `kind` of event, in `buffer`; false if there was no room.
    fn write(
        &self,
        kind: &str,
        mut buffer: Vec<u8>,
        back: Option<SyncSender<Vec<u8>>>,
        losses: Losses,
        fill: impl FnOnce(&mut LogLine<'_>),
    ) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut line = LogLine::begin(self.format, kind, now, &mut buffer);
        fill(&mut line);
        line.end();
        // The combined format has a form for requests only.
        buffer.len() > END.len()
            && self.lines.try_send(Queued { line: buffer, back, losses }).is_ok()
    }
}

impl ThreadLog {
    /// Queues a line about a `kind` of event; false if there was no room.
    fn write(&self, kind: &str, losses: Losses, fill: impl FnOnce(&mut LogLine<'_>)) -> bool {
        let buffer = self.buffers.try_recv().unwrap_or_default();
        self.log.write(kind, buffer, Some(self.back.clone()), losses, fill)
    }
}

/// The access log for lines of another level. It does not keep the log open: lines that come after
/// the engine's end are lost.
#[derive(Clone, Debug)]
pub struct LogLines {
    lines: Weak<SyncSender<Queued>>,
    format: LineFormat,
    unwritten: Arc<Counter>,
}

impl LogLines {
    /// Queues a line about a `kind` of event, with the fields that `fill` adds; false if there was
    /// no room.
    pub fn write(&self, kind: &str, fill: impl FnOnce(&mut LogLine<'_>)) -> bool {
        let Some(lines) = self.lines.upgrade() else { return false };
        let (format, unwritten) = (self.format, Arc::clone(&self.unwritten));
        let losses = Losses::Guest(Arc::clone(&unwritten));
        AccessLog { lines, format, unwritten }.write(kind, Vec::new(), None, losses, fill)
    }

    /// Lines that were queued here and could not be written.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.get()
    }
}

/// The writing thread's end of the queue.
struct Writer {
    to: LogOutput,
    /// The lines that the next write takes.
    batch: Vec<u8>,
    /// Where each line in `batch` ends, and the counter of its loss.
    ends: Vec<(usize, Losses)>,
    /// Only a part of the last line was written.
    is_cut: bool,
    /// Lines lost so far.
    lost: u64,
    warnings: OncePerMinute,
}

fn write_lines(queue: &Receiver<Queued>, to: LogOutput) {
    let (batch, ends) = (Vec::new(), Vec::new());
    let mut writer =
        Writer { to, batch, ends, is_cut: false, lost: 0, warnings: OncePerMinute::default() };
    while let Ok(first) = queue.recv() {
        writer.add(first);
        while writer.batch.len() < BATCH_BYTES
            && let Ok(next) = queue.try_recv()
        {
            writer.add(next);
        }
        writer.write();
    }
}

impl Writer {
    fn add(&mut self, Queued { mut line, back, losses }: Queued) {
        if self.is_cut && self.batch.is_empty() {
            self.batch.push(b'\n');
        }
        self.batch.extend_from_slice(&line);
        self.ends.push((self.batch.len(), losses));
        if let Some(back) = back
            && line.capacity() <= BUFFER_BYTES_MAX
        {
            line.clear();
            // A thread that has enough buffers, or has ended, takes no more.
            let _ = back.try_send(line);
        }
    }

    /// Writes the batch, and counts the lines that were not written whole.
    fn write(&mut self) {
        let result = match &mut self.to {
            LogOutput::Stream(to) => {
                let (written, result) = write_most(&mut **to, &self.batch);
                if let Some(last) = self.batch[..written].last() {
                    self.is_cut = *last != b'\n';
                }
                for (_, losses) in self.ends.drain(..).filter(|(end, _)| *end > written) {
                    losses.add();
                    self.lost += 1;
                }
                result
            }
            LogOutput::Lines(send) => {
                let (mut begin, mut result) = (0, Ok(()));
                for (end, losses) in self.ends.drain(..) {
                    let line = &self.batch[begin..end];
                    begin = end;
                    if let Err(error) = send(line.strip_suffix(END).unwrap_or(line)) {
                        losses.add();
                        self.lost += 1;
                        result = Err(error);
                    }
                }
                result
            }
        };
        self.batch.clear();
        if let Err(error) = result
            && self.warnings.may_write()
        {
            let lost = self.lost;
            tracing::warn!(%error, lost, "cannot write the access log; lines are lost");
        }
    }
}

/// Writes as many of the bytes as `to` takes; returns how many, and why not all.
fn write_most(to: &mut (dyn Write + Send), bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match to.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, to.flush())
}

/// Whether the next connection or client is one of the share that is logged.
pub(crate) fn is_sampled(worker: &Worker, door: &Door) -> bool {
    let share = door.view().config.access_log;
    share > 0.0 && worker.sample() < share
}

/// Queues a line about a `kind` of event, or counts that there was no room for it.
pub(crate) fn write(worker: &Worker, door: &Door, kind: &str, fill: impl FnOnce(&mut LogLine<'_>)) {
    let losses = Losses::Door(Arc::clone(&door.view().stats));
    if !worker.access_log.write(kind, losses, fill) {
        door.stats(|stats| stats.access_log_dropped.add(1));
    }
}

/// The pool and backend of a lease, if there is one.
pub(crate) fn write_backend(line: &mut LogLine<'_>, lease: Option<&Lease>) {
    line.optional(LogField::Pool, lease.map(|lease| lease.pool().name.as_bytes()));
    line.optional(LogField::Backend, lease.map(|lease| lease.backend().name.as_bytes()));
}

/// Why something was refused or cut, if it was.
pub(crate) fn write_reason(line: &mut LogLine<'_>, reason: Option<Reason>) {
    match reason {
        Some(reason) => line.word(LogField::Reason, reason.name()),
        None => line.none(LogField::Reason),
    }
}

/// A TCP connection or a UDP client that has ended.
pub(crate) struct FlowLine<'a> {
    pub(crate) client: SocketAddr,
    /// None if no backend could be reached.
    pub(crate) lease: Option<&'a Lease>,
    pub(crate) took: Duration,
    /// From the client.
    pub(crate) bytes_in: u64,
    /// To the client.
    pub(crate) bytes_out: u64,
    /// Time that it waited for a backend with room, if it had to.
    pub(crate) queued: Option<Duration>,
    /// `None`: in good order.
    pub(crate) reason: Option<Reason>,
    /// Extensions of the client's PROXY header.
    pub(crate) extensions: Option<&'a Extensions>,
}

/// Writes the extensions that a PROXY header had.
pub(crate) fn write_extensions(line: &mut LogLine<'_>, extensions: Option<&Extensions>) {
    let Some(all) = extensions else { return };
    let tls = all.tls.as_ref();
    let texts = [
        (LogField::ProxyAuthority, all.authority.as_deref()),
        (LogField::ProxyTlsVersion, tls.and_then(|tls| tls.version.as_deref())),
        (LogField::ProxyTlsCipher, tls.and_then(|tls| tls.cipher.as_deref())),
        (LogField::ProxyTlsClient, tls.and_then(|tls| tls.common_name.as_deref())),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            line.text(key, text.as_bytes());
        }
    }
    if let Some(id) = &all.unique_id {
        line.text(LogField::ProxyUniqueId, id);
    }
}

impl FlowLine<'_> {
    /// Queues it as a line about a `kind` of flow.
    pub(crate) fn write(&self, worker: &Worker, door: &Door, kind: &str) {
        write(worker, door, kind, |line| {
            line.text(LogField::FrontDoor, door.view().config.name.as_bytes());
            line.word(LogField::Client, self.client);
            line.number(LogField::BytesIn, self.bytes_in);
            line.number(LogField::BytesOut, self.bytes_out);
            line.seconds(LogField::Seconds, self.took);
            match self.queued {
                Some(queued) => line.seconds(LogField::QueueSeconds, queued),
                None => line.none(LogField::QueueSeconds),
            }
            write_backend(line, self.lease);
            write_reason(line, self.reason);
            write_extensions(line, self.extensions);
        });
    }
}
