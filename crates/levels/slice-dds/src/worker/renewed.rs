//! A writer of samples with ever new keys.
//!
//! Cyclone DDS keeps something of every key that a writer has written, at the writer and at each of its readers, until the writer takes
//! the key back or ends (`dds_whc.c`, `whc_default_insert`; some 500 bytes). Replies have the ids of their items for keys. So their
//! writer ends now and then, when the next one has long met every reader, and all that it wrote is acknowledged.
//!
//! | instead | because |
//! |---|---|
//! | take each key back (`dds_unregister_instance`) | a second message for each reply |
//! | replies without a key | our own clients alone read them (`outlets.rs`) |

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use equipoise_dds::{Error, Incompatible, Qos, Topic, Writer as DdsWriter};

/// After so many samples the next writer is made.
const RENEW: u64 = 1 << 14;
/// By then it has met every reader there is.
const SETTLE: Duration = Duration::from_secs(3);
/// A writer whose time is over waits so long for acknowledgements, as of a client that stands still.
const KEPT: Duration = Duration::from_secs(60);
/// One of so many samples looks whether there is anything to do.
const LOOK: u64 = 1 << 8;

/// A writer, and who succeeds and preceded it.
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
    /// `keyed`: samples have keys, each another one. Otherwise the writer stays as it is.
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
    /// What DDS says.
    pub(super) fn write(&self, cdr: &[u8]) -> Result<(), Error> {
        if self.keyed && (self.written.fetch_add(1, Relaxed) + 1).is_multiple_of(LOOK) {
            self.look();
        }
        self.now().write(cdr)
    }

    /// The writer that writes now.
    pub(super) fn writer(&self) -> Arc<DdsWriter> {
        self.now()
    }

    /// Waits until all that was written has been acknowledged.
    ///
    /// # Errors
    /// What DDS says; that it was not, in time.
    pub(super) fn wait_for_acknowledgements(&self, patience: Duration) -> Result<(), Error> {
        self.now().wait_for_acknowledgements(patience)
    }

    /// Readers that it has met and does not reach.
    ///
    /// # Errors
    /// What DDS says.
    pub(super) fn incompatible(&self) -> Result<Incompatible, Error> {
        self.now().incompatible()
    }

    fn now(&self) -> Arc<DdsWriter> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the next writer, or lets it take over, if it is time; ends those that nobody needs any more.
    fn look(&self) {
        // Another thread is at it.
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
                Err(error) => tracing::debug!(%error, "the writer of replies stays"),
            },
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use equipoise_dds::{Domain, Participant, Settings, items};

    use super::*;
    use crate::stream::item_qos;

    #[test]
    fn what_is_written_while_writers_take_turns_comes_once_and_each_ends() {
        let settings = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
        let domain = Domain::open(93, &settings).unwrap();
        let participant = Participant::new(domain, &[]).unwrap();
        let topic = participant.topic("renewed", &items::REPLY).unwrap();
        let qos = item_qos(equipoise_slice::Group::BASE, Vec::new());
        let reader = topic.reader(&qos).unwrap();
        let writer = Renewed::new(&topic, qos, true).unwrap();
        let (mut taken, mut samples, mut written) = (0, Vec::new(), 0_i64);
        let mut cdr = Vec::new();
        let end = Instant::now() + Duration::from_secs(60);
        let mut most = 0;
        // Until the third one writes.
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
            taken += samples.drain(..).count();
            most = most.max(reader.writers().unwrap().len());
            let now = Arc::as_ptr(&writer.now());
            if met.last() != Some(&now) {
                met.push(now);
            }
        }
        while taken < written as usize {
            assert!(Instant::now() < end, "{taken} of {written}");
            reader.take(&mut samples).unwrap();
            taken += samples.drain(..).count();
        }
        assert_eq!(taken, written as usize);
        assert!((2..=3).contains(&most), "{most} at a time");
    }
}
