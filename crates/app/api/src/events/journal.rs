use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use equipoise_basics::lock;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::wire::events::{Event, EventLevel};

/// Number of events that are kept.
const EVENTS_MAX: usize = 1000;
/// Largest length of an event's description, in bytes. Longer ones are cut.
const WORDS_BYTES_MAX: usize = 1024;
/// The same of an event's subject.
const SUBJECT_BYTES_MAX: usize = 256;
/// Largest number of streams at a time.
const STREAMS_MAX: usize = 32;

/// The last events of this process.
#[derive(Debug)]
pub struct EventJournal {
    epoch: String,
    kept: Mutex<Kept>,
    /// Number of the newest event.
    newest: watch::Sender<u64>,
    streams: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Number of the newest event; 0 before the first.
    newest: u64,
    /// The newest events, without gaps.
    events: VecDeque<Arc<Event>>,
}

impl Kept {
    /// Number of the newest event that is not kept any more.
    fn forgotten(&self) -> u64 {
        self.newest - self.events.len() as u64
    }
}

/// Events that follow those that a reader has seen.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Number of events between the seen ones and these.
    pub(super) lost: u64,
    pub(super) events: Vec<Arc<Event>>,
    /// Number of the last event that is now seen.
    pub(super) seen: u64,
}

impl Default for EventJournal {
    fn default() -> EventJournal {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let started = since_1970.unwrap_or_default().as_millis();
        EventJournal {
            epoch: format!("{started:x}.{:x}", std::process::id()),
            kept: Mutex::default(),
            newest: watch::Sender::new(0),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }
}

impl EventJournal {
    /// Adds an event, and forgets the oldest one if there is no room.
    pub fn add(&self, level: EventLevel, kind: &str, subject: &str, words: &str) {
        let mut kept = lock(&self.kept);
        let number = kept.newest + 1;
        let event = Event {
            id: self.id(number),
            time: now(),
            level,
            kind: kind.to_owned(),
            subject: cut(subject, SUBJECT_BYTES_MAX),
            words: cut(words, WORDS_BYTES_MAX),
            lost: None,
        };
        if kept.events.len() == EVENTS_MAX {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::new(event));
        kept.newest = number;
        // Within the lock, so that the numbers never go back.
        self.newest.send_replace(number);
    }

    /// A place among the streams; `None` if there are too many.
    pub(crate) fn stream(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    /// The number of the newest event, and notifications of newer ones.
    pub(super) fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The id of the event with this number.
    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.epoch)
    }

    /// The number in an id; `None` if the id is not one of this process.
    pub(super) fn number(&self, id: &str) -> Option<u64> {
        let (epoch, number) = id.rsplit_once('-')?;
        let number = number.parse().ok().filter(|_| epoch == self.epoch)?;
        (number <= lock(&self.kept).newest).then_some(number)
    }

    /// Number of the newest event that is not kept any more.
    pub(super) fn forgotten(&self) -> u64 {
        lock(&self.kept).forgotten()
    }

    /// At most `max` events after the one with the number `seen`.
    pub(super) fn after(&self, seen: u64, max: usize) -> Batch {
        let kept = lock(&self.kept);
        let forgotten = kept.forgotten();
        let from = seen.max(forgotten);
        let skipped = usize::try_from(from - forgotten).unwrap_or(usize::MAX);
        let events: Vec<_> = kept.events.iter().skip(skipped).take(max).cloned().collect();
        Batch { lost: from - seen, seen: from + events.len() as u64, events }
    }
}

/// The time now (RFC 3339, UTC, milliseconds).
pub(super) fn now() -> String {
    text_of(OffsetDateTime::now_utc())
}

/// Three digits of milliseconds always: the columns of `equipoise events` are aligned, and texts
/// sort like times.
fn text_of(time: OffsetDateTime) -> String {
    let milliseconds = time.millisecond();
    let seconds = time.replace_nanosecond(0).unwrap_or(time);
    let text = seconds.format(&Rfc3339).unwrap_or_default();
    format!("{}.{milliseconds:03}Z", text.trim_end_matches('Z'))
}

fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    text[..text.floor_char_boundary(bytes_max)].to_owned() + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_milliseconds_though_they_end_with_zeros() {
        for (nanosecond, text) in [
            (0, "1970-01-01T00:00:05.000Z"),
            (100_000_000, "1970-01-01T00:00:05.100Z"),
            (41_999_999, "1970-01-01T00:00:05.041Z"),
        ] {
            let time = OffsetDateTime::from_unix_timestamp(5).expect("a time");
            let time = time.replace_nanosecond(nanosecond).expect("less than a second");
            assert_eq!(text_of(time), text);
        }
    }
}
