//! The access log: lines go through a bounded queue to a thread that writes them.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::door::Door;
use crate::reason::Reason;
use crate::worker::Worker;

/// Lines waiting to be written at the most; beyond it lines are given up and counted.
const QUEUE_LINES: usize = 8192;

/// Where the data plane puts its lines.
#[derive(Clone)]
pub(crate) struct AccessLog {
    lines: Arc<SyncSender<String>>,
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
        Ok((AccessLog { lines: Arc::new(lines) }, thread))
    }

    /// Queues a line (without its newline) behind the time; false if there was no room.
    pub(crate) fn write(&self, line: &dyn fmt::Display) -> bool {
        self.lines.try_send(format!("time={Now} {line}")).is_ok()
    }

    /// For lines of others.
    pub(crate) fn guest(&self) -> LogLines {
        LogLines(Arc::downgrade(&self.lines))
    }
}

/// The access log for lines of another level. It does not keep the log open: lines that come after the engine's end are lost.
#[derive(Clone, Debug)]
pub struct LogLines(Weak<SyncSender<String>>);

impl LogLines {
    /// Queues a line (without its newline) behind the time; false if there was no room.
    pub fn write(&self, line: &dyn fmt::Display) -> bool {
        self.0.upgrade().is_some_and(|lines| AccessLog { lines }.write(line))
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

/// Whether the next connection or client is one of the share that is logged.
pub(crate) fn is_sampled(worker: &Worker, door: &Door) -> bool {
    let share = door.view().config.access_log;
    share > 0.0 && worker.sample() < share
}

/// Queues a line, or counts that there was no room for it.
pub(crate) fn write(worker: &Worker, door: &Door, line: &impl fmt::Display) {
    if !worker.shared.access_log.write(line) {
        door.stats(|stats| stats.access_log_dropped.add(1));
    }
}

/// The line of a request, written when its response has ended.
pub(crate) struct RequestLine<'a> {
    pub(crate) front_door: &'a str,
    pub(crate) client: SocketAddr,
    /// None if none was picked.
    pub(crate) backend: Option<&'a str>,
    pub(crate) took: Duration,
    /// Method and target.
    pub(crate) request: &'a str,
    /// What the client was told; 0 if nothing.
    pub(crate) status: u16,
}

impl fmt::Display for RequestLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "front_door={:?} client={} backend={:?} seconds={:.6} request={:?} status={}",
            self.front_door,
            self.client,
            self.backend.unwrap_or("-"),
            self.took.as_secs_f64(),
            self.request,
            self.status,
        )
    }
}

/// Seconds since 1970, to the millisecond.
struct Now;

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        write!(f, "{}.{:03}", at.as_secs(), at.subsec_millis())
    }
}

/// The line of a TCP connection or a UDP client, written when it has ended.
pub(crate) struct FlowLine<'a> {
    pub(crate) front_door: &'a str,
    pub(crate) client: SocketAddr,
    /// None if none could be reached.
    pub(crate) backend: Option<&'a str>,
    pub(crate) took: Duration,
    /// From the client.
    pub(crate) bytes_in: u64,
    /// To the client.
    pub(crate) bytes_out: u64,
    /// `None`: in good order.
    pub(crate) end: Option<Reason>,
}

impl fmt::Display for FlowLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "front_door={:?} client={} backend={:?} seconds={:.6} bytes_in={} bytes_out={} end={}",
            self.front_door,
            self.client,
            self.backend.unwrap_or("-"),
            self.took.as_secs_f64(),
            self.bytes_in,
            self.bytes_out,
            self.end.map_or("done", Reason::name),
        )
    }
}
