//! A client, on a thread of its own: at a steady rate, or with as many items under way as it may.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Client, Options, PublishError};

/// The published load.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    /// Infinite: as fast as replies come.
    pub(crate) items_per_second: f64,
    pub(crate) message: Vec<u8>,
    pub(crate) slices: u32,
    /// Items without a reply, at most.
    pub(crate) window: usize,
    /// Time without a reply after which an item is published again.
    pub(crate) resend: Duration,
}

/// Where no worker is lost nothing need come again, however long it waits.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);
/// The client's own default.
pub(crate) const USUAL: Duration = Duration::from_secs(1);

/// Longest time without a look at replies, while DDS makes the client wait for slow workers.
const PUBLISH_MAX: Duration = Duration::from_millis(10);

/// A reply that came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) id: i64,
    pub(crate) at: Instant,
    pub(crate) delay: Duration,
}

/// Results of the client.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) published: i64,
    /// In the order of replies.
    pub(crate) answers: Vec<Answered>,
    pub(crate) unanswered: usize,
    pub(crate) resent: u64,
    pub(crate) strange: u64,
}

impl Outcome {
    /// Of replies that came from `from` on, until `to`: how many a second, and their delays.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> (f64, Vec<Duration>) {
        let first = self.answers.partition_point(|answer| answer.at < from);
        let end = self.answers.partition_point(|answer| answer.at < to).max(first);
        let delays: Vec<_> = self.answers[first..end].iter().map(|answer| answer.delay).collect();
        (delays.len() as f64 / (to - from).as_secs_f64(), delays)
    }

    pub(crate) fn delays(&self) -> Vec<Duration> {
        self.answers.iter().map(|answer| answer.delay).collect()
    }
}

pub(crate) struct Load {
    thread: JoinHandle<anyhow::Result<Outcome>>,
    control: Arc<Control>,
}

#[derive(Debug, Default)]
struct Control {
    stop: AtomicBool,
    opened: AtomicBool,
    answered: AtomicU64,
    /// The bits of items for each second.
    rate: AtomicU64,
}

impl Control {
    fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Relaxed))
    }
}

impl Load {
    /// Returns when workers read every group.
    pub(crate) fn start(stream: &Stream, offer: Offer) -> anyhow::Result<Self> {
        let control = Arc::new(Control::default());
        control.rate.store(offer.items_per_second.to_bits(), Relaxed);
        // On loopback readers match within milliseconds, and there are up to 64 groups, one after
        // the other.
        let settle = Duration::from_millis(50);
        let (window, resend) = (offer.window, offer.resend);
        let options = Options { window, resend, settle, ..Options::new(1) };
        let mut client = Client::join(stream, options)?;
        let of_thread = control.clone();
        let publishing = move || {
            for slice in 0..offer.slices.min(u32::from(equipoise_slice::GROUPS)) {
                client.open(SliceId(slice), Duration::from_secs(20))?;
            }
            of_thread.opened.store(true, Relaxed);
            publish(&mut client, &offer, &of_thread)
        };
        let thread = std::thread::Builder::new().name("client".into()).spawn(publishing)?;
        while !control.opened.load(Relaxed) && !thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { thread, control })
    }

    /// Replies so far.
    pub(crate) fn answered(&self) -> u64 {
        self.control.answered.load(Relaxed)
    }

    pub(crate) fn set_rate(&self, items_per_second: f64) {
        self.control.rate.store(items_per_second.to_bits(), Relaxed);
    }

    /// Publishes no more, and waits for the replies that are due.
    pub(crate) fn finish(self) -> anyhow::Result<Outcome> {
        self.control.stop.store(true, Relaxed);
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn publish(client: &mut Client, offer: &Offer, control: &Control) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut answers, mut due, mut last) = (Vec::new(), 0.0, Instant::now());
    let mut stopped: Option<Instant> = None;
    loop {
        let mut is_late = false;
        if control.stop.load(Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if client.pending() == 0 || since.elapsed() > Duration::from_secs(60) {
                break;
            }
        } else {
            let now = Instant::now();
            // Items that DDS delayed are not made up for at once.
            due = (due + now.duration_since(last).as_secs_f64() * control.rate()).min(2000.0);
            last = now;
            while due >= 1.0 && !is_late {
                let id = outcome.published;
                let slice = SliceId((id % i64::from(offer.slices)) as u32);
                match client.publish(slice, id, &offer.message) {
                    Ok(()) => outcome.published += 1,
                    Err(PublishError::WindowFull(_)) => break,
                    Err(error) => return Err(error.into()),
                }
                due -= 1.0;
                is_late = now.elapsed() >= PUBLISH_MAX;
            }
        }
        let patience = if is_late { Duration::ZERO } else { Duration::from_micros(500) };
        client.replies(patience, &mut answers)?;
        let at = Instant::now();
        control.answered.fetch_add(answers.len() as u64, Relaxed);
        let new = answers.drain(..).map(|one| Answered { id: one.id, at, delay: one.delay });
        outcome.answers.extend(new);
    }
    outcome.unanswered = client.pending();
    outcome.resent = client.resent();
    outcome.strange = client.strange();
    Ok(outcome)
}
