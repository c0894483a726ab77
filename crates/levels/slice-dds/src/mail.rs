//! Messages between workers, controllers and clients, as samples of the control topics.
//!
//! The body of a sample is a version and a [`Mail`] in postcard's encoding. A message that cannot
//! be decoded is counted and dropped. The protocol repeats messages without an answer.

use std::sync::OnceLock;
use std::time::Duration;

use equipoise_dds::cdr::{Decoder, Encoder};
use equipoise_slice::worker::CheckpointStatus;
use equipoise_slice::{
    Address, Covered, Envelope, HandoverId, Incarnation, Keeps, Lacks, Numbering, Order, Process,
    SliceId, WorkerId,
};
use serde::{Deserialize, Serialize};

use crate::hello::Listens;
use crate::payload::Payload;

/// Version of the encoding, the same on both sides.
const VERSION: u8 = 9;

/// Recipient id of messages to controllers.
pub const CONTROLLERS: u64 = 0;
/// Recipient id of messages to all workers.
pub(crate) const WORKERS: u64 = 0;
/// Recipient id of messages to clients, on a separate topic.
pub(crate) const CLIENTS: u64 = 0;

/// A message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Mail {
    /// A message of the protocol.
    Envelope(Envelope<Payload>),
    /// From a worker to controllers.
    Report(Box<Report>),
    /// From a controller candidate to all workers: the addresses for their connections.
    Listens(Listens),
    /// From a worker to clients: a request to publish their items of these slices again. The slices
    /// have the numbers of this numbering.
    Again(Vec<SliceId>, Numbering),
    /// From a client to all workers: the answer to `Again`. Clients of earlier versions send none.
    Keeps(Keeps),
    /// From a worker to clients: items in checkpoints, which need not be kept.
    Covered(Vec<Covered>, Numbering),
    /// From a client to all workers: it can keep no more items of these slices.
    Wanted(Vec<SliceId>),
    /// From a worker to clients: a request to publish these missing items again.
    Lacks(Vec<Lacks>),
}

/// A worker's report about itself, several times per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The incarnation that reports.
    pub incarnation: Incarnation,
    /// The numbering of the slices ([`Numbering::epoch`]).
    pub numbering: HandoverId,
    /// The worker's name.
    pub name: String,
    /// The worker's host and process.
    pub process: Process,
    /// Its share of the load: 0 to 1000.
    pub weight: u16,
    /// Settings that must agree with the controller's.
    pub terms: Terms,
    /// The worker is about to end.
    pub leaving: bool,
    /// The time that the report covers.
    pub period: Duration,
    /// Items that wait or are in progress.
    pub queued: u64,
    /// Items of these that the application has.
    pub in_hand: u64,
    /// Time for which the application has had items and has finished none. Zero without items.
    pub stalled: Duration,
    /// The item that the application has had longest.
    pub oldest: Option<InHand>,
    /// Items that were processed since the worker started.
    pub done: u64,
    /// Items that were dropped since the worker started, by reason.
    pub drops: Vec<(String, u64)>,
    /// Slices with processed or waiting items.
    pub slices: Vec<SliceReport>,
    /// Its checkpoints, if it takes any.
    pub checkpoints: Option<CheckpointStatus>,
    /// Why the last checkpoints are not in their folder.
    pub folder_problem: Option<String>,
}

/// An item that an application has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InHand {
    /// Its slice.
    pub slice: SliceId,
    /// The publisher's id of the item. `None`: the state of the slice instead of an item.
    pub id: Option<i64>,
    /// Time since the application received it.
    pub age: Duration,
}

/// Settings that must be the same at workers and controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Slices of the stream.
    pub slices: u32,
    /// The order of items.
    pub order: Order,
    /// Time without an answer of a controller after which a worker fences itself.
    pub lease: Duration,
    /// Hash of the topics of items and replies, and of their types.
    pub topics: u64,
    /// Whether checkpoints are taken.
    pub checkpoints: bool,
    /// Whether checkpoints are stored in a folder.
    pub folder: bool,
}

impl Terms {
    /// A text about the difference between these settings of a worker and the controller's, `ours`.
    /// A worker that was started with the number of slices before a resize follows `numbering`.
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
        if self.folder != ours.folder {
            let stored = |it: bool| if it { "a folder" } else { "no folder" };
            return Some(format!(
                "was started with {} of checkpoints, the controller has {}: start it with the same `checkpoint.folder`",
                stored(self.folder),
                stored(ours.folder)
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

/// A worker's report about a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceReport {
    /// The slice.
    pub slice: SliceId,
    /// Processing time of its items in the period.
    pub busy: Duration,
    /// Items that were processed in the period.
    pub done: u64,
    /// Items that wait or are in progress.
    pub queued: u64,
    /// Items that the previous owner handed over in the period.
    pub handed_over: u64,
    /// Waiting time of the oldest item that is not in progress.
    pub queue_age: Duration,
}

/// A message that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message cannot be decoded")]
pub struct Unreadable;

/// The step of a message of the protocol in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// About to be sent.
    Sends,
    /// Sent.
    Sent,
    /// Received, and not handled yet.
    Received,
}

static WATCHER: OnceLock<fn(Passing, &'static str)> = OnceLock::new();

/// Calls `watcher` with each step of each message of the protocol in this process, and its name.
/// For traces, and for tests that end a process at a message. Only the first watcher is called.
#[doc(hidden)]
pub fn watch_messages(watcher: fn(Passing, &'static str)) {
    let _ = WATCHER.set(watcher);
}

impl Mail {
    /// Calls the watcher.
    pub fn passes(&self, where_to: Passing) {
        if let (Some(watcher), Self::Envelope(envelope)) = (WATCHER.get(), self) {
            watcher(where_to, envelope.message.name());
        }
    }

    fn to(&self) -> u64 {
        match self {
            Self::Envelope(Envelope { to: Address::Worker(incarnation), .. }) => {
                incarnation.worker.0
            }
            Self::Envelope(_) | Self::Report(_) => CONTROLLERS,
            Self::Listens(_) => WORKERS,
            Self::Again(..) | Self::Covered(..) | Self::Lacks(_) => CLIENTS,
            Self::Keeps(_) | Self::Wanted(_) => WORKERS,
        }
    }

    /// Encodes it as a sample, into `cdr`.
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

    /// Decodes a sample. `None`: it is for another recipient.
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
    /// The worker that reports.
    pub fn worker(&self) -> WorkerId {
        self.incarnation.worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use equipoise_slice::{Group, Item, Message, TailEntry, Term, Writer};

    fn tail() -> Mail {
        let incarnation = Incarnation { worker: WorkerId(5), number: 1 };
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
            from: Address::Worker(Incarnation { worker: WorkerId(4), number: 2 }),
            to: Address::Worker(incarnation),
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
    fn a_message_round_trips_and_is_decoded_only_by_its_recipient() {
        let (mut cdr, mut again) = (Vec::new(), Vec::new());
        tail().encode(&mut cdr).unwrap();
        let read = Mail::decode(&cdr, 5).unwrap().expect("it is for 5");
        read.encode(&mut again).unwrap();
        assert_eq!(cdr, again);
        assert!(Mail::decode(&cdr, 4).unwrap().is_none());
    }

    #[test]
    fn a_request_for_slices_has_the_bytes_that_python_clients_expect() {
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
    fn keeps_and_lacks_messages_have_the_bytes_of_the_python_client() {
        let (mut cdr, writer) = (Vec::new(), Writer { group: Group::BASE, id: 300 });
        let mut keeps = Keeps::new(writer, 1_000, &Numbering::new(100).resized(200, HandoverId(5)));
        keeps.slices.insert(SliceId(3), vec![7, 200]);
        keeps.slices.insert(SliceId(9), vec![]);
        Mail::Keeps(keeps).encode(&mut cdr).unwrap();
        // As `keeps` of examples/dpslb.py writes it: version, kind, group, writer, position,
        // length, slices, epoch.
        let body = [VERSION, 4, 64, 0xac, 2, 0xe8, 7, 2, 3, 2, 7, 0xc8, 1, 9, 0, 5];
        assert_eq!(cdr[4 + 8 + 4..][..body.len()], body);
        let mut cdr = Vec::new();
        Mail::Lacks(vec![Lacks { writer, positions: vec![7, 200] }]).encode(&mut cdr).unwrap();
        // As `lacking` of it expects it.
        let body = [VERSION, 7, 1, 64, 0xac, 2, 2, 7, 0xc8, 1];
        assert_eq!(cdr[4 + 8 + 4..][..body.len()], body);
    }

    #[test]
    fn truncated_or_modified_messages_never_make_decoding_panic() {
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
