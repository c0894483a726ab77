//! A client at a steady rate, on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_runtime::Stream;
use equipoise_slice_runtime::client::{Client, Options, PublishError};

/// What is published.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) items_per_second: f64,
    pub(crate) message: Vec<u8>,
    pub(crate) slices: u32,
}

/// What the client saw.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) published: i64,
    /// Delays of replies, in the order of replies.
    pub(crate) delays: Vec<Duration>,
    pub(crate) unanswered: usize,
    pub(crate) resent: u64,
    pub(crate) strange: u64,
}

pub(crate) struct Load {
    thread: JoinHandle<anyhow::Result<Outcome>>,
    stop: Arc<AtomicBool>,
    pub(crate) answered: Arc<AtomicU64>,
    pub(crate) opened: Arc<AtomicBool>,
    /// Items for each second, to be changed at any time.
    pub(crate) rate: Arc<AtomicU64>,
}

impl Load {
    pub(crate) fn start(stream: &Stream, offer: Offer) -> anyhow::Result<Self> {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let opened = Arc::new(AtomicBool::new(false));
        let rate = Arc::new(AtomicU64::new(offer.items_per_second as u64));
        let mut client = Client::join(stream, Options::new(1))?;
        let thread = {
            let (stop, answered, opened, rate) =
                (stop.clone(), answered.clone(), opened.clone(), rate.clone());
            std::thread::Builder::new().name("client".into()).spawn(move || {
                for slice in 0..offer.slices.min(u32::from(equipoise_slice::GROUPS)) {
                    client.open(SliceId(slice), Duration::from_secs(20))?;
                }
                opened.store(true, Relaxed);
                publish(&mut client, &offer, &rate, &stop, &answered)
            })?
        };
        Ok(Self { thread, stop, answered, opened, rate })
    }

    pub(crate) fn wait_open(&self) {
        while !self.opened.load(Relaxed) && !self.thread.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Publishes no more, and waits for the replies that are due.
    pub(crate) fn finish(self) -> anyhow::Result<Outcome> {
        self.stop.store(true, Relaxed);
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn publish(
    client: &mut Client,
    offer: &Offer,
    rate: &AtomicU64,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let (mut answers, mut due, mut last) = (Vec::new(), 0.0, Instant::now());
    let mut stopped: Option<Instant> = None;
    loop {
        if stop.load(Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if client.pending() == 0 || since.elapsed() > Duration::from_secs(20) {
                break;
            }
        } else {
            let now = Instant::now();
            // What was missed while DDS held us up is not made good at once.
            due = (due + now.duration_since(last).as_secs_f64() * rate.load(Relaxed) as f64)
                .min(2000.0);
            last = now;
            while due >= 1.0 {
                let id = outcome.published;
                let slice = SliceId((id % i64::from(offer.slices)) as u32);
                match client.publish(slice, id, &offer.message) {
                    Ok(()) => outcome.published += 1,
                    Err(PublishError::WindowFull(_)) => break,
                    Err(error) => return Err(error.into()),
                }
                due -= 1.0;
            }
        }
        client.replies(Duration::from_micros(500), &mut answers)?;
        answered.fetch_add(answers.len() as u64, Relaxed);
        outcome.delays.extend(answers.drain(..).map(|answer| answer.delay));
    }
    outcome.unanswered = client.pending();
    outcome.resent = client.resent();
    outcome.strange = client.strange();
    Ok(outcome)
}
