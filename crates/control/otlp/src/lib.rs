//! Exports the spans of sampled requests to an OpenTelemetry collector.
//!
//! **In**: the traces of requests that have ended ([`equipoise_core::trace`]), from data threads,
//! which never wait. **Out**: batches of spans by OTLP over HTTP/1.1 in JSON, by the semantic
//! conventions for HTTP. **Fails** by losing spans, which are counted by reason: the queue was
//! full, or the collector did not accept them. Failures are logged once a minute.

mod collector;
mod encode;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use equipoise_basics::{OncePerMinute, with_causes};
use equipoise_core::trace::{RequestTrace, TraceSink};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use collector::{Collector, ExportError};
use encode::Resource;

/// Largest number of requests with spans that wait for their export.
const REQUESTS_QUEUED: usize = 2048;
/// Spans after which a batch is sent, and the time after which it is sent with fewer.
const BATCH_SPANS: usize = 512;
const BATCH_WITHIN: Duration = Duration::from_secs(1);
/// Tries to send a batch, and the wait before the second one. Each wait is twice the one before.
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// How spans are exported.
#[derive(Clone, Debug)]
pub struct OtlpOptions {
    /// The collector: `http://HOST[:PORT][/PATH]` or `https://...`, without `/v1/traces`.
    pub url: String,
    /// Authorities that the collector's certificate may be of, in PEM; `None`: those of the system.
    pub ca: Option<String>,
    /// Share of requests that are sampled, `0.0..=1.0`.
    pub sample: f64,
    /// Name of the service.
    pub service: String,
    /// Name of this instance of it.
    pub instance: String,
    /// Version of the program.
    pub version: String,
}

/// Counts of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Accepted by the collector.
    pub exported: u64,
    /// Lost, because too many waited.
    pub queue_full: u64,
    /// Lost, because the collector did not accept them.
    pub not_accepted: u64,
}

/// The running export.
pub struct Exporter {
    counters: Arc<Counters>,
    task: Mutex<JoinHandle<()>>,
}

#[derive(Default)]
struct Counters {
    exported: AtomicU64,
    queue_full: AtomicU64,
    not_accepted: AtomicU64,
}

impl Exporter {
    /// Starts the export as a task. It ends when all copies of the sink are dropped.
    ///
    /// # Errors
    /// The URL cannot be used, or its authorities.
    pub fn start(options: OtlpOptions) -> Result<(TraceSink, Exporter), ExportError> {
        let counters = Arc::new(Counters::default());
        let collector = Collector::new(&options.url, options.ca.as_deref())?;
        let (sender, queue) = mpsc::channel(REQUESTS_QUEUED);
        let (full, share) = (Arc::clone(&counters), options.sample);
        let take = move |trace: RequestTrace| {
            let spans = spans_of(&trace);
            if sender.try_send(trace).is_err() {
                full.queue_full.fetch_add(spans as u64, Relaxed);
            }
        };
        let sink = TraceSink { share, take: Arc::new(take) };
        let OtlpOptions { service, instance, version, .. } = options;
        let resource = Resource { service, instance, version };
        let warnings = OncePerMinute::default();
        let run = Run { queue, collector, resource, counters: Arc::clone(&counters), warnings };
        Ok((sink, Exporter { counters, task: Mutex::new(tokio::spawn(run.until_closed())) }))
    }

    /// The counts.
    pub fn counts(&self) -> SpanCounts {
        self.counters.read()
    }

    /// Waits until the last spans are exported, once all copies of the sink are dropped.
    pub async fn finish(&self, within: Duration) {
        let mut task = self.task.lock().await;
        if timeout(within, &mut *task).await.is_err() {
            tracing::warn!("the collector did not accept the last spans in time; they are lost");
        }
    }
}

impl Counters {
    fn read(&self) -> SpanCounts {
        SpanCounts {
            exported: self.exported.load(Relaxed),
            queue_full: self.queue_full.load(Relaxed),
            not_accepted: self.not_accepted.load(Relaxed),
        }
    }
}

/// The export's task.
struct Run {
    queue: mpsc::Receiver<RequestTrace>,
    collector: Collector,
    resource: Resource,
    counters: Arc<Counters>,
    warnings: OncePerMinute,
}

impl Run {
    async fn until_closed(mut self) {
        while let Some(first) = self.queue.recv().await {
            let batch = self.batch(first).await;
            self.export(&batch).await;
        }
    }

    /// The next batch, which begins with `first`.
    async fn batch(&mut self, first: RequestTrace) -> Vec<RequestTrace> {
        let end = Instant::now() + BATCH_WITHIN;
        let (mut spans, mut batch) = (spans_of(&first), vec![first]);
        while spans < BATCH_SPANS
            && let Ok(Some(next)) = timeout_at(end, self.queue.recv()).await
        {
            spans += spans_of(&next);
            batch.push(next);
        }
        batch
    }

    /// Sends a batch, again if the collector is overloaded or cannot be reached.
    async fn export(&mut self, batch: &[RequestTrace]) {
        let spans = batch.iter().map(spans_of).sum::<usize>() as u64;
        let body = encode::body(&self.resource, batch);
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match self.collector.send(body.clone()).await {
                Err(error) if error.is_passing() && !self.queue.is_closed() => {
                    self.warn(&error);
                    sleep(wait).await;
                    wait *= 2;
                }
                outcome => return self.count(outcome, spans),
            }
        }
        let outcome = self.collector.send(body).await;
        self.count(outcome, spans);
    }

    fn count(&mut self, outcome: Result<u64, ExportError>, spans: u64) {
        let rejected = match outcome {
            Ok(rejected) => rejected.min(spans),
            Err(error) => {
                self.warn(&error);
                spans
            }
        };
        self.counters.exported.fetch_add(spans - rejected, Relaxed);
        self.counters.not_accepted.fetch_add(rejected, Relaxed);
    }

    fn warn(&mut self, error: &ExportError) {
        if self.warnings.may_write() {
            let SpanCounts { queue_full, not_accepted, .. } = self.counters.read();
            let lost = queue_full + not_accepted;
            tracing::warn!(
                lost,
                "cannot export spans to {}: {}",
                self.collector,
                with_causes(error)
            );
        }
    }
}

/// Spans of a request: its own, and one for each attempt.
fn spans_of(trace: &RequestTrace) -> usize {
    1 + trace.attempts.len()
}
