//! A client that publishes steadily, on a separate thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_slice::SliceId;
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::client::{Client, Options, PublishError};

use crate::role::SLICES;
use crate::stage::PATIENCE;

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    published: Arc<AtomicI64>,
    thread: JoinHandle<Outcome>,
}

/// The results of the client.
pub(crate) struct Outcome {
    pub(crate) published: i64,
    /// Number of replies to each item.
    pub(crate) answered: BTreeMap<i64, u32>,
    pub(crate) resent: u64,
}

impl Load {
    /// `spawn` starts the thread, in the network namespace for its sockets.
    pub(crate) fn start(
        stream: Stream,
        spawn: impl FnOnce(Box<dyn FnOnce() -> Outcome + Send>) -> JoinHandle<Outcome>,
    ) -> Self {
        Self::windowed(stream, Options::new(0).window, spawn)
    }

    /// The same with this limit of items without a reply.
    pub(crate) fn windowed(
        stream: Stream,
        window: usize,
        spawn: impl FnOnce(Box<dyn FnOnce() -> Outcome + Send>) -> JoinHandle<Outcome>,
    ) -> Self {
        let (stop, published) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
        let (stopped, counted) = (stop.clone(), published.clone());
        let thread = spawn(Box::new(move || publish(&stream, window, &stopped, &counted)));
        let load = Self { stop, published, thread };
        load.published_more(1);
        load
    }

    /// Waits until this number of further items were published.
    pub(crate) fn published_more(&self, count: i64) {
        let (begun, end) = (self.published.load(Relaxed), Instant::now() + PATIENCE);
        while self.published.load(Relaxed) < begun + count {
            assert!(Instant::now() < end && !self.thread.is_finished(), "nothing is published");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Number of published items. Ids count from 0.
    pub(crate) fn published(&self) -> i64 {
        self.published.load(Relaxed)
    }

    /// Stops publishing, and checks that every item has one reply.
    pub(crate) fn finish(self) -> Outcome {
        self.stop.store(true, Relaxed);
        let outcome = self.thread.join().unwrap();
        let expected: BTreeMap<_, _> = (0..outcome.published).map(|id| (id, 1)).collect();
        assert_eq!(outcome.answered, expected, "each item is answered once");
        outcome
    }
}

fn publish(stream: &Stream, window: usize, stop: &AtomicBool, published: &AtomicI64) -> Outcome {
    // A late reply because of missing CPU time is no measure for later replies.
    let (resend, resend_max) = (Duration::from_millis(150), Duration::from_secs(2));
    let options = Options { resend, resend_max, window, ..Options::new(3) };
    let mut client = Client::join(stream, options).unwrap();
    for slice in 0..SLICES {
        client.open(SliceId(slice), PATIENCE).unwrap();
    }
    let (mut answers, mut answered, mut stopped) = (Vec::new(), BTreeMap::new(), None);
    loop {
        let id = published.load(Relaxed);
        if !stop.load(Relaxed) {
            let slice = SliceId(id as u32 % SLICES);
            match client.publish(slice, id, &id.to_le_bytes()) {
                Ok(()) => published.store(id + 1, Relaxed),
                // No reply for a long time, because workers were lost and the machine is busy.
                Err(PublishError::WindowFull(_)) => {}
                Err(error) => panic!("{error}"),
            }
        } else if client.pending() == 0 {
            return Outcome { published: id, answered, resent: client.resent() };
        } else {
            let since: &mut Instant = stopped.get_or_insert_with(Instant::now);
            assert!(since.elapsed() < PATIENCE, "{} items have no reply", client.pending());
        }
        client.replies(Duration::from_millis(1), &mut answers).unwrap();
        for answer in answers.drain(..) {
            assert_eq!(answer.message, answer.id.to_le_bytes());
            *answered.entry(answer.id).or_default() += 1;
        }
    }
}
