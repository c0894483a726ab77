//! What workers and controllers write to each other, as samples of the control topics.
//!
//! A sample's body is a version and a [`Mail`] in postcard's encoding. What cannot be read is counted and forgotten: the
//! protocol says again what is not answered.

use std::sync::OnceLock;
use std::time::Duration;

use equipoise_dds::cdr::{Decoder, Encoder};
use equipoise_slice::worker::CheckpointStatus;
use equipoise_slice::{
    Address, Covered, Envelope, HandoverId, Keeps, Lacks, Life, Numbering, Order, Process, SliceId,
    WorkerId,
};
use serde::{Deserialize, Serialize};

use crate::hello::Listens;
use crate::payload::Payload;

/// Of the encoding. Both sides have to have the same.
const VERSION: u8 = 8;

/// The number of whom mail to controllers is for.
pub const CONTROLLERS: u64 = 0;
/// And to all workers.
pub(crate) const WORKERS: u64 = 0;
/// And to clients, on a topic of its own.
pub(crate) const CLIENTS: u64 = 0;

/// A letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Mail {
    /// Of the protocol.
    Envelope(Envelope<Payload>),
    /// Of a worker, to controllers.
    Report(Report),
    /// Of a controller candidate, to all workers: where it accepts their connections.
    Listens(Listens),
    /// Of a worker, to clients: publish again what you have of these slices, which are named by
    /// these numbers.
    Again(Vec<SliceId>, Numbering),
    /// Of a client, to all workers: the answer to `Again`. Clients that do not know it say nothing.
    Keeps(Keeps),
    /// Of a worker, to clients: items in checkpoints, which need not be kept.
    Covered(Vec<Covered>, Numbering),
    /// Of a client, to all workers: it can keep no more items of these slices.
    Wanted(Vec<SliceId>),
    /// Of a worker, to clients: publish these items again, which it lacks.
    Lacks(Vec<Lacks>),
}

/// What a worker says of itself, several times a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Whose it is.
    pub life: Life,
    /// By which numbers it names slices ([`Numbering::epoch`]).
    pub numbering: HandoverId,
    /// What the worker is called.
    pub name: String,
    /// Where it runs.
    pub process: Process,
    /// Its share of the load: 0 to 1000.
    pub weight: u16,
    /// What it was started with.
    pub terms: Terms,
    /// It wants to leave.
    pub leaving: bool,
    /// Of what time it tells.
    pub period: Duration,
    /// Items that wait or are being done.
    pub queued: u64,
    /// Of those, the ones that the application has.
    pub in_hand: u64,
    /// For how long it has had some and finished none. Zero while it has none.
    pub stalled: Duration,
    /// The item that the application has had longest.
    pub oldest: Option<InHand>,
    /// Items that were done since it started.
    pub done: u64,
    /// Items that were let go since it started, by reason.
    pub drops: Vec<(String, u64)>,
    /// Slices of which something was done or waits.
    pub slices: Vec<SliceReport>,
    /// Its checkpoints, if it takes any.
    pub checkpoints: Option<CheckpointStatus>,
}

/// An item that an application has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InHand {
    /// Its slice.
    pub slice: SliceId,
    /// What its publisher calls it. `None`: it is no item, but the state of its slice.
    pub id: Option<i64>,
    /// For how long.
    pub age: Duration,
}

/// What workers and controllers have to have alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Slices of the stream.
    pub slices: u32,
    /// In which order items are done.
    pub order: Order,
    /// When a worker fences itself.
    pub lease: Duration,
    /// The topics of items and replies and their types, as a number.
    pub topics: u64,
    /// Whether checkpoints are taken.
    pub checkpoints: bool,
}

impl Terms {
    /// What is wrong with a worker that has these where `ours` are the controller's, in words. A
    /// worker that was started with the number of slices before a resize follows that: `numbering`.
    pub fn problem(&self, ours: &Terms, numbering: &Numbering) -> Option<String> {
        let differs = |option: &str, theirs: String, ours: String| {
            format!(
                "was started with {option} {theirs}, the controller has {ours}: start it with the same"
            )
        };
        if self.slices != ours.slices && !numbering.is_of(self.slices) {
            return Some(differs("slices", self.slices.to_string(), ours.slices.to_string()));
        }
        if self.order != ours.order {
            return Some(
                differs("order", format!("{:?}", self.order), format!("{:?}", ours.order))
                    .to_lowercase(),
            );
        }
        if self.checkpoints != ours.checkpoints {
            let taken = |it: bool| if it { "a `checkpoint`" } else { "no `checkpoint`" };
            return Some(format!(
                "was started with {}, the controller has {}: start it with the same",
                taken(self.checkpoints),
                taken(ours.checkpoints)
            ));
        }
        if self.topics != ours.topics {
            let text = "was started with other topics of items and replies, or other types of them, than the controller has: \
                        start it with the same `items`, `replies`, `item-type` and `reply-type`";
            return Some(text.to_string());
        }
        let differ = self.lease != ours.lease;
        differ.then(|| differs("lease", format!("{:?}", self.lease), format!("{:?}", ours.lease)))
    }
}

/// What a worker says of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceReport {
    /// Which.
    pub slice: SliceId,
    /// How long its items were being done in the period.
    pub busy: Duration,
    /// Items that were done in the period.
    pub done: u64,
    /// Items that wait or are being done.
    pub queued: u64,
    /// Items that came with the slice in the period, from its last owner.
    pub handed_over: u64,
    /// How long the oldest of those has waited that are not being done.
    pub queue_age: Duration,
}

/// Mail that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mail that cannot be read")]
pub struct Unreadable;

/// Where a message of the protocol is, in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// About to be sent.
    Sends,
    /// Sent.
    Sent,
    /// Received, and not heeded yet.
    Received,
}

static WATCHER: OnceLock<fn(Passing, &'static str)> = OnceLock::new();

/// Tells `watcher` of each message of the protocol that passes in this process, by its name: for traces, and for tests that
/// end a process at one of them. Once; a second watcher is not told.
#[doc(hidden)]
pub fn watch_messages(watcher: fn(Passing, &'static str)) {
    let _ = WATCHER.set(watcher);
}

impl Mail {
    /// Tells who watches.
    pub fn passes(&self, where_to: Passing) {
        if let (Some(watcher), Self::Envelope(envelope)) = (WATCHER.get(), self) {
            watcher(where_to, envelope.message.name());
        }
    }

    fn to(&self) -> u64 {
        match self {
            Self::Envelope(Envelope { to: Address::Worker(life), .. }) => life.worker.0,
            Self::Envelope(_) | Self::Report(_) => CONTROLLERS,
            Self::Listens(_) => WORKERS,
            Self::Again(..) | Self::Covered(..) | Self::Lacks(_) => CLIENTS,
            Self::Keeps(_) | Self::Wanted(_) => WORKERS,
        }
    }

    /// As a sample, into `cdr`.
    ///
    /// # Errors
    /// Those of the encoding.
    pub fn encode(&self, cdr: &mut Vec<u8>) -> Result<(), postcard::Error> {
        let body = postcard::to_extend(self, vec![VERSION])?;
        let mut encoder = Encoder::new(cdr);
        encoder.u64(self.to());
        encoder.octets(&body);
        encoder.finish();
        Ok(())
    }

    /// Of a sample, if it is for `to`.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn decode(cdr: &[u8], to: u64) -> Result<Option<Self>, Unreadable> {
        let mut decoder = Decoder::new(cdr).map_err(|_| Unreadable)?;
        if decoder.u64().map_err(|_| Unreadable)? != to {
            return Ok(None);
        }
        let body = decoder.octets().map_err(|_| Unreadable)?;
        let (version, body) = body.split_first().ok_or(Unreadable)?;
        if *version != VERSION {
            return Err(Unreadable);
        }
        let mail: Self = postcard::from_bytes(body).map_err(|_| Unreadable)?;
        mail.passes(Passing::Received);
        Ok(Some(mail))
    }
}

impl Report {
    /// Which worker's.
    pub fn worker(&self) -> WorkerId {
        self.life.worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_slice::{Group, Item, Message, TailEntry, Term, Writer};

    fn tail() -> Mail {
        let life = Life { worker: WorkerId(5), number: 1 };
        let writer = Writer { group: Group::BASE, id: 9 };
        let item = Item {
            key: 3,
            slice: SliceId(3),
            writer,
            position: 77,
            again: false,
            payload: Payload::Passed([1, 2, 3][..].into()),
        };
        Mail::Envelope(Envelope {
            from: Address::Worker(Life { worker: WorkerId(4), number: 2 }),
            to: Address::Worker(life),
            term: Term(6),
            numbering: HandoverId(0),
            message: Message::Tail {
                handover: equipoise_slice::HandoverId(8),
                first: 0,
                entries: vec![TailEntry::Item(item), TailEntry::End(writer)],
            },
        })
    }

    #[test]
    fn mail_comes_back_as_it_was_and_only_to_whom_it_is_for() {
        let (mut cdr, mut again) = (Vec::new(), Vec::new());
        tail().encode(&mut cdr).unwrap();
        let read = Mail::decode(&cdr, 5).unwrap().expect("it is for 5");
        read.encode(&mut again).unwrap();
        assert_eq!(cdr, again);
        assert!(Mail::decode(&cdr, 4).unwrap().is_none());
    }

    #[test]
    fn clients_of_other_languages_can_decode_which_slices_are_asked_for() {
        let mut cdr = Vec::new();
        let numbering = Numbering::new(100).resized(200, HandoverId(5));
        let slices = [3, 200, 70_000].map(SliceId).to_vec();
        Mail::Again(slices, numbering).encode(&mut cdr).unwrap();
        // As `slices_asked_for` of examples/dpslb.py expects it: version, kind, length, slices;
        // epoch, number of slices, and the largest ever.
        let body = [VERSION, 3, 3, 3, 0xc8, 1, 0xf0, 0xa2, 4, 5, 0xc8, 1, 0xc8, 1];
        let (head, rest) = cdr.split_at(4 + 8);
        assert_eq!((head[4..].to_vec(), rest[..4].to_vec()), (vec![0; 8], vec![14, 0, 0, 0]));
        assert_eq!(rest[4..4 + body.len()], body);
    }

    #[test]
    fn mail_that_is_cut_or_changed_makes_nothing_panic() {
        let mut cdr = Vec::new();
        tail().encode(&mut cdr).unwrap();
        for length in 0..cdr.len() - 4 {
            let _ = Mail::decode(&cdr[..length], 5);
        }
        for at in 0..cdr.len() {
            for value in 0..=255 {
                let mut changed = cdr.clone();
                changed[at] = value;
                let _ = Mail::decode(&changed, 5);
            }
        }
    }
}
