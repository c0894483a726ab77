use std::fmt::Write;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::EventJournal;
use super::journal::{Batch, now};
use crate::wire::events::{Event, EventLevel, LOST};

/// Largest number of events that are taken from the journal at a time. It bounds the memory of a
/// stream.
const BATCH: usize = 64;
/// Interval between comments on a stream without events.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Selects events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Types; empty: every type.
    kinds: Vec<String>,
    subject: Option<String>,
}

impl Filter {
    /// `kinds` has commas between types.
    pub(crate) fn new(kinds: Option<&str>, subject: Option<&str>) -> Filter {
        let kinds = kinds.unwrap_or_default().split(',').map(str::trim);
        let kinds = kinds.filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
        let subject = subject.filter(|subject| !subject.is_empty()).map(str::to_owned);
        Filter { kinds, subject }
    }

    fn admits(&self, event: &Event) -> bool {
        let is_kind = |kind: &String| is_within(&event.kind, kind, '.');
        let is_subject = |subject: &String| is_within(&event.subject, subject, '/');
        (self.kinds.is_empty() || self.kinds.iter().any(is_kind))
            && self.subject.as_ref().is_none_or(is_subject)
    }
}

/// Whether `name` is `of`, or begins with it and the separator.
fn is_within(name: &str, of: &str, separator: char) -> bool {
    name.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

/// Reads a journal at its own pace. It holds no events, so a slow one loses events and takes no
/// memory.
#[derive(Debug)]
pub(crate) struct Reader {
    journal: Arc<EventJournal>,
    filter: Filter,
    /// Number of the last event that was taken or left out.
    seen: u64,
    /// The reader came with an id that is not of this process.
    is_foreign: bool,
}

impl Reader {
    /// A reader that continues after the event `after`, or begins with the oldest kept event.
    pub(crate) fn new(journal: &Arc<EventJournal>, filter: Filter, after: Option<&str>) -> Reader {
        let number = after.and_then(|id| journal.number(id));
        let is_foreign = after.is_some() && number.is_none();
        let seen = number.unwrap_or_else(|| journal.forgotten());
        Reader { journal: Arc::clone(journal), filter, seen, is_foreign }
    }

    /// The id from which another reader continues.
    pub(crate) fn last(&self) -> String {
        self.journal.id(self.seen)
    }

    /// All events that are kept and not taken yet.
    pub(crate) fn rest(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        let newest = *self.journal.newest().borrow();
        loop {
            self.take(|event| all.push(event.clone()));
            if self.seen >= newest {
                return all;
            }
        }
    }

    /// Takes up to [`BATCH`] events, and passes on those that the filter admits.
    fn take(&mut self, mut each: impl FnMut(&Event)) {
        let Batch { lost, events, seen } = self.journal.after(self.seen, BATCH);
        if std::mem::take(&mut self.is_foreign) {
            let words = "the given id is not of this process, whose earlier events are not known \
                         here: it was restarted or replaced";
            each(&self.loss(self.seen, None, words));
        }
        if lost > 0 {
            let words = format!("{lost} events were not read in time, and are not kept any more");
            each(&self.loss(self.seen + lost, Some(lost), &words));
        }
        self.seen = seen;
        events.iter().filter(|event| self.filter.admits(event)).for_each(|event| each(event));
    }

    /// Stands for the events up to the number `number`.
    fn loss(&self, number: u64, lost: Option<u64>, words: &str) -> Event {
        Event {
            id: self.journal.id(number),
            time: now(),
            level: EventLevel::Warning,
            kind: LOST.into(),
            subject: String::new(),
            words: words.into(),
            lost,
        }
    }

    /// Waits for events, and returns them as a part of an event stream; a comment if there are none
    /// for a while. `None` once `stopping` and all events are taken.
    pub(crate) async fn next_part(&mut self, stopping: &mut Option<Stopping>) -> Option<String> {
        let mut newest = self.journal.newest();
        loop {
            let mut part = String::new();
            self.take(|event| write_event(&mut part, event));
            if !part.is_empty() {
                return Some(part);
            }
            let seen = self.seen;
            if *newest.borrow() > seen {
                continue;
            }
            let more = newest.wait_for(|newest| *newest > seen);
            tokio::select! {
                biased;
                more = timeout(HEARTBEAT, more) => if more.is_err() {
                    // The id moves a reader on that left all events out.
                    return Some(format!(":\nid: {}\n\n", self.last()));
                },
                () = stopped(stopping) => return None,
            }
        }
    }
}

/// The end of the listener of a request.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(pub(crate) watch::Receiver<()>);

/// Returns when the listener stops.
async fn stopped(stopping: &mut Option<Stopping>) {
    match stopping {
        // Dropping the sender also ends the wait.
        Some(Stopping(stopping)) => drop(stopping.changed().await),
        None => pending().await,
    }
}

fn write_event(part: &mut String, event: &Event) {
    let data = serde_json::to_string(event).expect("an event has string keys");
    // Cannot fail: a string accepts all text.
    let _ = write!(part, "id: {}\ndata: {data}\n\n", event.id);
}
