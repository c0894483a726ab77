//! A writer for samples of which each has a new key.
//!
//! Cyclone DDS stores every key of a writer, at the writer and at each of its readers, until the
//! writer unregisters the key or ends (`dds_whc.c`, `whc_default_insert`; about 500 bytes each).
//! The keys of replies are the ids of their items. So the writer of replies is replaced
//! periodically. The old writer ends when the new one has long discovered every reader, and all
//! samples of the old one are acknowledged.
//!
//! | alternative | disadvantage |
//! |---|---|
//! | unregister each key (`dds_unregister_instance`) | a second message for each reply |
//! | replies without a key | only our own clients read them (`outlets.rs`) |

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use equipoise_dds::{Error, Incompatible, Qos, Topic, Writer as DdsWriter};

/// Number of samples after which the next writer is created.
const RENEW: u64 = 1 << 14;
/// Time after which the next writer has discovered every present reader.
const SETTLE: Duration = Duration::from_secs(3);
/// Longest time that a replaced writer waits for acknowledgements, for example of a paused client.
const KEPT: Duration = Duration::from_secs(60);
/// One write in this number checks whether a writer has to be created or ended.
const LOOK: u64 = 1 << 8;

/// A DDS writer that is replaced periodically.
#[derive(Debug)]
pub(super) struct Renewed {
    topic: Topic,
    qos: Qos,
    keyed: bool,
    now: RwLock<Arc<DdsWriter>>,
    written: AtomicU64,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    next: Option<(Arc<DdsWriter>, Instant)>,
    last: Vec<(Arc<DdsWriter>, Instant)>,
}

impl Renewed {
    /// `keyed`: each sample has another key. Otherwise the writer is never replaced.
    pub(super) fn new(topic: &Topic, qos: Qos, keyed: bool) -> Result<Self, Error> {
        Ok(Self {
            now: RwLock::new(Arc::new(topic.writer(&qos)?)),
            topic: topic.clone(),
            qos,
            keyed,
            written: AtomicU64::new(0),
            turn: Mutex::default(),
        })
    }

    /// Writes a sample.
    ///
    /// # Errors
    /// An error of DDS.
    pub(super) fn write(&self, cdr: &[u8]) -> Result<(), Error> {
        if self.keyed && (self.written.fetch_add(1, Relaxed) + 1).is_multiple_of(LOOK) {
            self.look();
        }
        self.now().write(cdr)
    }

    /// The present writer.
    pub(super) fn writer(&self) -> Arc<DdsWriter> {
        self.now()
    }

    /// Waits until the present writer has all acknowledgements.
    ///
    /// # Errors
    /// An error of DDS, or a timeout.
    pub(super) fn wait_for_acknowledgements(&self, patience: Duration) -> Result<(), Error> {
        self.now().wait_for_acknowledgements(patience)
    }

    /// Incompatible readers.
    ///
    /// # Errors
    /// An error of DDS.
    pub(super) fn incompatible(&self) -> Result<Incompatible, Error> {
        self.now().incompatible()
    }

    fn now(&self) -> Arc<DdsWriter> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates the next writer or switches to it, if it is time. Ends old writers that are no
    /// longer needed.
    fn look(&self) {
        // If the lock is held, another thread is doing this.
        let Ok(mut turn) = self.turn.try_lock() else { return };
        let is_needed = |(writer, since): &(Arc<DdsWriter>, Instant)| {
            since.elapsed() < KEPT && writer.wait_for_acknowledgements(Duration::ZERO).is_err()
        };
        turn.last.retain(is_needed);
        match turn.next.take() {
            Some((next, since)) if since.elapsed() >= SETTLE => {
                let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
                let last = std::mem::replace(&mut *now, next);
                turn.last.push((last, Instant::now()));
            }
            Some(waiting) => turn.next = Some(waiting),
            None if self.written.load(Relaxed) >= RENEW => match self.topic.writer(&self.qos) {
                Ok(next) => {
                    turn.next = Some((Arc::new(next), Instant::now()));
                    self.written.store(0, Relaxed);
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot replace the writer of replies; it stays")
                }
            },
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_dds::{Domain, Participant, Sample, Settings, items};

    use super::*;
    use crate::stream::item_qos;

    #[test]
    fn samples_written_while_writers_rotate_arrive_exactly_once_and_old_writers_end() {
        let settings = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
        let domain = Domain::open(93, &settings).unwrap();
        let participant = Participant::new(domain, &[]).unwrap();
        let topic = participant.topic("renewed", &items::REPLY).unwrap();
        let qos = item_qos(equipoise_slice::Group::BASE, Vec::new());
        let reader = topic.reader(&qos).unwrap();
        let writer = Renewed::new(&topic, qos, true).unwrap();
        let (mut taken, mut samples, mut written) = (Vec::new(), Vec::new(), 0_i64);
        let id = |sample: Sample| items::Reply::decode(sample.cdr()).unwrap().id;
        let mut cdr = Vec::new();
        let end = Instant::now() + Duration::from_secs(60);
        let mut most = 0;
        // Until the third writer is in use.
        let first = Arc::as_ptr(&writer.now());
        let mut met = vec![first];
        while met.len() < 3 {
            assert!(Instant::now() < end, "{} writers, {written} written", met.len());
            let (sender_id, timestamp, message) = (0, 0, &[][..]);
            let reply = items::Reply { id: written, sender_id, timestamp, message };
            cdr.clear();
            reply.encode(&mut cdr);
            writer.write(&cdr).unwrap();
            written += 1;
            if written % 200 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
            reader.take(&mut samples).unwrap();
            taken.extend(samples.drain(..).map(id));
            most = most.max(reader.writers().unwrap().len());
            let now = Arc::as_ptr(&writer.now());
            if met.last() != Some(&now) {
                met.push(now);
            }
        }
        // An old writer ends at a look, when all its samples are acknowledged.
        while taken.len() < written as usize || !writer.turn.lock().unwrap().last.is_empty() {
            assert!(Instant::now() < end, "{} of {written}, {:?}", taken.len(), writer.turn);
            reader.take(&mut samples).unwrap();
            taken.extend(samples.drain(..).map(id));
            writer.look();
        }
        // The reader learns of the ends soon after them.
        let present = |turn: &Turn| 1 + usize::from(turn.next.is_some());
        while reader.writers().unwrap().len() != present(&writer.turn.lock().unwrap()) {
            assert!(Instant::now() < end, "{:?}", reader.writers());
            std::thread::sleep(Duration::from_millis(2));
        }
        reader.take(&mut samples).unwrap();
        taken.extend(samples.drain(..).map(id));
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..written), "each once: {} of {written}", taken.len());
        assert!((2..=3).contains(&most), "{most} at a time");
    }
}
