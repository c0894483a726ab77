//! The client, on a separate thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::bail;
use equipoise_slice::{GROUPS, SliceId};
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Client, Options, PublishError};
use equipoise_slice_dds::greyscale::colour;

use super::{PATIENCE, SIZE, SLICES};

/// Number of different images.
const IMAGES: u64 = 8;
/// Time after which an image without a reply is published again. It is long, because no worker dies
/// in the demo, and images wait long while there are few workers.
const RESEND: Duration = Duration::from_secs(20);

/// The load that the client publishes.
pub(super) struct Offer {
    per_second: u32,
    pub(super) images: Vec<Vec<u8>>,
}

impl Offer {
    pub(super) fn new(per_second: u32) -> Self {
        let images = (0..IMAGES).map(|seed| colour(SIZE.0, SIZE.1, seed * 31));
        Self { per_second, images: images.collect() }
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) published: i64,
    pub(super) replied: i64,
}

#[derive(Default)]
struct Shared {
    open: AtomicBool,
    publish: AtomicBool,
    finish: AtomicBool,
    answered: AtomicU64,
    published: AtomicI64,
    idle_ms: AtomicU64,
    /// Sum of the delays of all replies so far.
    delay_us: AtomicU64,
    per_second: AtomicU32,
}

/// A running client.
pub(super) struct Load {
    thread: JoinHandle<anyhow::Result<Outcome>>,
    shared: Arc<Shared>,
}

impl Load {
    pub(super) fn start(stream: &Stream, offer: Offer) -> anyhow::Result<Self> {
        let options = Options { resend: RESEND, window: 100_000, ..Options::new(1) };
        let mut client = Client::join(stream, options)?;
        let shared = Arc::new(Shared::default());
        shared.publish.store(true, Relaxed);
        shared.per_second.store(offer.per_second, Relaxed);
        let told = shared.clone();
        let thread = std::thread::Builder::new().name("demo-client".into());
        let thread = thread.spawn(move || {
            for slice in 0..SLICES.min(u32::from(GROUPS)) {
                client.open(SliceId(slice), PATIENCE)?;
            }
            told.open.store(true, Relaxed);
            work(&mut client, &offer, &told)
        })?;
        Ok(Self { thread, shared })
    }

    /// Waits until the client has discovered the workers.
    pub(super) async fn wait_open(&self) -> anyhow::Result<()> {
        while !self.shared.open.load(Relaxed) {
            self.check()?;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Returns an error if the client has ended by itself; [`Load::finish`] has the reason.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.thread.is_finished() {
            bail!("the client ended: no worker reads, or DDS refused");
        }
        Ok(())
    }

    pub(super) fn answered(&self) -> u64 {
        self.shared.answered.load(Relaxed)
    }

    /// Sum of the times from image to reply, over all replies.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_micros(self.shared.delay_us.load(Relaxed))
    }

    /// Sets the number of images that are published per second.
    pub(super) fn set_rate(&self, per_second: u32) {
        self.shared.per_second.store(per_second, Relaxed);
    }

    /// Number of images without a reply.
    pub(super) fn waiting(&self) -> u64 {
        let published = u64::try_from(self.shared.published.load(Relaxed)).unwrap_or_default();
        published.saturating_sub(self.answered())
    }

    /// Time since the last reply.
    pub(super) fn idle(&self) -> Duration {
        Duration::from_millis(self.shared.idle_ms.load(Relaxed))
    }

    pub(super) fn stop_publishing(&self) {
        self.shared.publish.store(false, Relaxed);
    }

    /// Ends the client, and returns its outcome.
    pub(super) fn finish(self) -> anyhow::Result<Outcome> {
        self.shared.finish.store(true, Relaxed);
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn work(client: &mut Client, offer: &Offer, shared: &Shared) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut answers, mut due, mut last) = (Vec::new(), 0.0, Instant::now());
    let mut heard = Instant::now();
    while !shared.finish.load(Relaxed) {
        let now = Instant::now();
        // After a pause by DDS, at most 1000 of the missed images are published at once.
        let per_second = f64::from(shared.per_second.load(Relaxed));
        due = f64::min(due + (now - last).as_secs_f64() * per_second, 1000.0);
        last = now;
        while due >= 1.0 && shared.publish.load(Relaxed) {
            let id = outcome.published;
            let slice = SliceId((id % i64::from(SLICES)) as u32);
            let image = &offer.images[id as usize % offer.images.len()];
            match client.publish(slice, id, image) {
                Ok(()) => outcome.published += 1,
                Err(PublishError::WindowFull(_)) => break,
                Err(error) => return Err(error.into()),
            }
            due -= 1.0;
        }
        shared.published.store(outcome.published, Relaxed);
        client.replies(Duration::from_millis(2), &mut answers)?;
        if !answers.is_empty() {
            heard = Instant::now();
        }
        shared.idle_ms.store(heard.elapsed().as_millis() as u64, Relaxed);
        outcome.replied += answers.len() as i64;
        let delay: Duration = answers.iter().map(|answer| answer.delay).sum();
        shared.delay_us.fetch_add(delay.as_micros() as u64, Relaxed);
        shared.answered.fetch_add(answers.len() as u64, Relaxed);
        answers.clear();
    }
    Ok(outcome)
}
