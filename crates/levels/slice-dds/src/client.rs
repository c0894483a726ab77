//! A client: publishes items, each into its slice's group, and keeps each item until its reply has
//! arrived.
//!
//! If workers never die, any DDS publisher can replace this client. It writes to the topic of
//! items, in no partition or in that of the item's group ([`crate::partition`]). The items of this
//! client also survive the loss of a worker: the worker's successor asks for them.

pub(crate) mod replies;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use equipoise_dds::items::{DataItem, Reply};
use equipoise_dds::{Error, Reader, Sample, Serialized, Waitset, Writer as DdsWriter};
pub use equipoise_slice::client::Assignment;
use equipoise_slice::client::{Asked, Retention};
use equipoise_slice::{Group, HandoverId, Keeps, Numbering as SliceNumbers, SliceId, Writer};

use crate::client::replies::ReplyReaders;
use crate::mail::{CLIENTS, Mail};
use crate::stream::{Numbering, Stream, Topics, fnv1a, is_late, item_qos, mail_qos};

/// Tokens of the waitset.
pub(crate) const REPLIES: u32 = 0;
const ASKS: u32 = 1;
pub(crate) const KEYED_REPLIES: u32 = 2;
/// First token of new readers of a group, to which the group's number is added.
const READERS: u32 = 3;
/// Interval between two requests for checkpoints.
const WANT_EVERY: Duration = Duration::from_millis(100);

/// Options of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Id of the sender, which replies repeat.
    pub sender_id: i32,
    /// Largest number of items without a reply; with `checkpoints`, of kept items.
    pub window: usize,
    /// The stream's workers take checkpoints: an item is kept until a checkpoint contains it, so
    /// that it can be processed again after the loss of a worker.
    pub checkpoints: bool,
    /// Shortest time after which an item without a reply is published again. The client waits
    /// longer if replies take longer, but not for items that the successor of a lost worker asks
    /// for.
    pub resend: Duration,
    /// Longest time before an item is published again for the first time.
    pub resend_max: Duration,
    /// A new group's writer starts to publish when it has readers, and discovered no further one
    /// for this long.
    pub settle: Duration,
}

impl Options {
    /// The default options.
    pub fn new(sender_id: i32) -> Self {
        let (resend, settle) = (Duration::from_secs(1), Duration::from_millis(200));
        let resend_max = Duration::from_secs(60);
        Self { sender_id, window: 10_000, checkpoints: false, resend, resend_max, settle }
    }
}

/// Why an item was not published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// As many items as the window allows have no reply yet, or are in no checkpoint.
    #[error("{0} items have no reply, or are in no checkpoint yet: as many as the client keeps")]
    WindowFull(usize),
    /// A kept item has this id.
    #[error("item {0} was published, and has no reply or is in no checkpoint yet")]
    SameId(i64),
    /// No worker reads the group.
    #[error("no worker reads slice {}", .0.0)]
    NoWorker(SliceId),
    /// An error of DDS.
    #[error(transparent)]
    Dds(#[from] Error),
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The item's id.
    pub id: i64,
    /// Time from the publication to the receipt of the reply.
    pub delay: Duration,
    /// The worker's answer.
    pub message: Vec<u8>,
}

/// A client of a stream.
#[derive(Debug)]
pub struct Client {
    options: Options,
    seed: u64,
    groups: BTreeMap<Group, GroupWriter>,
    /// By id, as an unsigned number.
    pending: Retention<Pending>,
    begun: Instant,
    /// Largest source timestamp of all items. The next one is larger.
    position: i64,
    replies: ReplyReaders,
    /// Requests of successors, and the answers to them.
    asks: Reader,
    answers: DdsWriter,
    waitset: Waitset,
    topics: Topics,
    /// The item that is being published.
    cdr: Vec<u8>,
    samples: Vec<Sample>,
    resent: u64,
    strange: u64,
    /// When checkpoints were last requested.
    wanted: Option<Duration>,
}

#[derive(Debug)]
struct GroupWriter {
    id: u64,
    first: DdsWriter,
    again: DdsWriter,
    /// Numbers of readers that each writer has ever discovered.
    met: (u32, u32),
}

#[derive(Debug)]
struct Pending {
    /// The item, with its position.
    sample: Serialized,
    group: Group,
    position: i64,
    /// Replies repeat it, so the client can ignore replies to an earlier incarnation.
    timestamp: i64,
}

impl Client {
    /// Joins the stream.
    ///
    /// # Errors
    /// [`Error`] of DDS.
    pub fn join(stream: &Stream, options: Options) -> Result<Self, Error> {
        let topics = stream.join()?;
        let replies = ReplyReaders::new(&topics)?;
        let asks = topics.again.reader(&item_qos(Group::BASE, Vec::new()))?;
        let answers = topics.down.writer(&mail_qos())?;
        let waitset = topics.participant.waitset()?;
        replies.attach(&waitset)?;
        waitset.attach(&asks, ASKS)?;
        let pending = Retention::new(options.resend, options.resend_max);
        let pending = pending.with_checkpoints(options.checkpoints);
        let seed = fnv1a(&topics.participant.guid()?.0);
        Ok(Self {
            options,
            seed,
            groups: BTreeMap::new(),
            pending,
            begun: Instant::now(),
            position: 0,
            replies,
            asks,
            answers,
            waitset,
            topics,
            cdr: Vec::new(),
            samples: Vec::new(),
            resent: 0,
            strange: 0,
            wanted: None,
        })
    }

    /// Number of kept items, with and without a reply.
    pub fn kept(&self) -> usize {
        self.pending.kept()
    }

    /// Items without a reply.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Items that were published again.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Replies for which no item waits: repeated ones, and those to other clients.
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// Opens the group of `slice`, and waits at most `patience` until workers read it.
    /// [`Client::publish`] does this at the first item of a group.
    ///
    /// # Errors
    /// [`PublishError::NoWorker`], or an error of DDS.
    pub fn open(&mut self, slice: SliceId, patience: Duration) -> Result<(), PublishError> {
        let group = Group::of(slice);
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let id =
            fnv1a(&[self.seed.to_le_bytes(), u64::from(group.number()).to_le_bytes()].concat());
        let writer = |numbering: Numbering| {
            self.topics.items.writer(&item_qos(group, numbering.user_data()))
        };
        let (first, again) = (writer(Numbering::First(id))?, writer(Numbering::Again(id))?);
        let of = GroupWriter { id, first, again, met: (0, 0) };
        for writer in [&of.first, &of.again] {
            self.waitset.attach_matches(writer, READERS + u32::from(group.number()))?;
        }
        let end = Instant::now() + patience;
        let mut seen = (0, Instant::now());
        loop {
            let matched = of.first.matched()?.min(of.again.matched()?);
            if matched != seen.0 {
                seen = (matched, Instant::now());
            }
            if matched > 0 && seen.1.elapsed() >= self.options.settle {
                break;
            }
            if Instant::now() >= end {
                return Err(PublishError::NoWorker(slice));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.groups.insert(group, of);
        Ok(())
    }

    /// Publishes an item. Blocks in DDS while workers are too slow.
    ///
    /// # Errors
    /// [`PublishError`]; the item is not published, and not kept.
    pub fn publish(&mut self, slice: SliceId, id: i64, message: &[u8]) -> Result<(), PublishError> {
        if self.pending.kept() >= self.options.window {
            self.want_checkpoints()?;
            return Err(PublishError::WindowFull(self.pending.kept()));
        }
        if self.pending.contains(id as u64) {
            return Err(PublishError::SameId(id));
        }
        self.open(slice, Duration::from_secs(10))?;
        let group = Group::of(slice);
        let Some(of) = self.groups.get(&group) else {
            return Err(PublishError::NoWorker(slice));
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = i64::try_from(since.as_nanos()).unwrap_or(i64::MAX);
        self.position = time.max(self.position + 1);
        let item = DataItem {
            slice_id: slice.0 as i32,
            id,
            sender_id: self.options.sender_id,
            timestamp: time,
            message,
        };
        self.cdr.clear();
        item.encode(&mut self.cdr);
        // DDS keeps the item until it is acknowledged, and the client until its reply comes. Both
        // have the same memory.
        let sample = of.first.serialized(&self.cdr, self.position)?;
        let now = self.begun.elapsed();
        // An item that DDS does not accept reaches no worker.
        of.first.write_again(&sample)?;
        let place = (Writer { group, id: of.id }, self.position as u64);
        let kept = Pending { sample, group, position: self.position, timestamp: time };
        self.pending.keep(now, id as u64, slice, place, kept);
        Ok(())
    }

    /// Waits at most `patience` for replies, and adds them to `answers`. Publishes items without a
    /// reply again when they are due.
    ///
    /// # Errors
    /// [`Error`] of DDS.
    pub fn replies(&mut self, patience: Duration, answers: &mut Vec<Answer>) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.waitset.wait(patience, &mut ready)?;
        if ready.contains(&ASKS) {
            self.hear_asks()?;
        }
        self.meet(&ready)?;
        self.replies.take(&ready, &mut self.samples)?;
        let now = self.begun.elapsed();
        for sample in self.samples.drain(..) {
            let Ok(reply) = Reply::decode(sample.cdr()) else {
                self.strange += 1;
                continue;
            };
            let id = reply.id as u64;
            let ours = reply.sender_id == self.options.sender_id
                && self.pending.get(id).is_some_and(|item| item.timestamp == reply.timestamp);
            match ours.then(|| self.pending.reply(now, id)).flatten() {
                Some(delay) => {
                    let message = reply.message.to_vec();
                    answers.push(Answer { id: reply.id, delay, message });
                }
                None => self.strange += 1,
            }
        }
        self.publish_again()
    }

    /// The reader of a lost worker's successor lacks the items that were published before its
    /// discovery, whether or not the successor has asked for them already.
    fn meet(&mut self, ready: &[u32]) -> Result<(), Error> {
        let now = self.begun.elapsed();
        for group in ready.iter().filter_map(|token| Group::numbered(token.checked_sub(READERS)?)) {
            let Some(of) = self.groups.get_mut(&group) else { continue };
            let met = (of.first.matched_ever()?.1, of.again.matched_ever()?.1);
            if met != std::mem::replace(&mut of.met, met) {
                self.pending.met(now, group);
            }
        }
        Ok(())
    }

    fn hear_asks(&mut self) -> Result<(), Error> {
        self.asks.take(&mut self.samples)?;
        let mut asked: BTreeMap<HandoverId, (SliceNumbers, Vec<SliceId>)> = BTreeMap::new();
        for sample in self.samples.drain(..) {
            match Mail::decode(sample.cdr(), CLIENTS) {
                Ok(Some(Mail::Again(slices, numbering))) => {
                    let of = asked.entry(numbering.epoch);
                    of.or_insert_with(|| (numbering, Vec::new())).1.extend(slices);
                }
                Ok(Some(Mail::Covered(covered, numbering))) => {
                    self.pending.covered(&covered, &numbering);
                }
                Ok(Some(Mail::Lacks(lacks))) => self.pending.lacks(self.begun.elapsed(), &lacks),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "a message of a slice worker cannot be decoded")
                }
            }
        }
        for (numbering, slices) in asked.into_values() {
            let asked = Asked::new(&slices, &numbering);
            self.pending.asked(self.begun.elapsed(), &asked);
            self.answer(&asked, &numbering)?;
        }
        Ok(())
    }

    /// Asks workers for checkpoints, as no more items can be kept.
    fn want_checkpoints(&mut self) -> Result<(), Error> {
        let now = self.begun.elapsed();
        let slices = self.pending.replied_slices();
        let is_early = self.wanted.is_some_and(|at| now.saturating_sub(at) < WANT_EVERY);
        if slices.is_empty() || is_early {
            return Ok(());
        }
        self.wanted = Some(now);
        let mut cdr = Vec::new();
        if Mail::Wanted(slices).encode(&mut cdr).is_err() {
            return Ok(());
        }
        match self.answers.write(&cdr) {
            // It asks again.
            Err(error) if is_late(&error) => Ok(()),
            written => written,
        }
    }

    /// Answers a successor with the items of these slices that have no reply.
    fn answer(&self, asked: &Asked<'_>, numbering: &SliceNumbers) -> Result<(), Error> {
        let mut answers: BTreeMap<Group, Keeps> = BTreeMap::new();
        for (slice, group) in asked.groups() {
            let Some(of) = self.groups.get(&group) else { continue };
            let writer = Writer { group, id: of.id };
            // The next item's position is larger, in any group.
            let through = u64::try_from(self.position).unwrap_or(0);
            let keeps =
                answers.entry(group).or_insert_with(|| Keeps::new(writer, through, numbering));
            keeps.slices.insert(slice, Vec::new());
        }
        for (slice, item) in self.pending.of(asked) {
            let position = u64::try_from(item.position).unwrap_or(0);
            if let Some(keeps) = answers.get_mut(&item.group) {
                keeps.slices.entry(slice).or_default().push(position);
            }
        }
        let mut cdr = Vec::new();
        for keeps in answers.into_values() {
            cdr.clear();
            // Encoding does not fail. A worker without an answer waits longer.
            if Mail::Keeps(keeps).encode(&mut cdr).is_err() {
                continue;
            }
            match self.answers.write(&cdr) {
                Err(error) if is_late(&error) => {}
                written => written?,
            }
        }
        Ok(())
    }

    fn publish_again(&mut self) -> Result<(), Error> {
        let now = self.begun.elapsed();
        while let Some(pending) = self.pending.again(now) {
            if let Some(of) = self.groups.get(&pending.group) {
                match of.again.write_again(&pending.sample) {
                    // It will be published again.
                    Err(error) if is_late(&error) => return Ok(()),
                    written => written?,
                }
                self.resent += 1;
            }
        }
        Ok(())
    }
}
