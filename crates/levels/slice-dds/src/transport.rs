//! A worker's transport over DDS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use equipoise_basics::lock;
use equipoise_dds::cdr::Malformed;
use equipoise_dds::{Error, Mismatch, Reader, Sample, Waitset, Waker, Writer as DdsWriter};
use equipoise_slice::transport::{Arrival, Transport};
use equipoise_slice::{
    Covered, Envelope, Group, Incarnation, Item, Lacks, Numbering, SliceId, WorkerId,
};

use crate::connections::Connections;
use crate::drops::{DropCounts, DropReason};
use crate::form::Form;
use crate::mail::{Mail, Passing, Report, WORKERS};
use crate::payload::{Held, Payload};
use crate::sources::Sources;
use crate::stream::{Topics, is_late, item_qos, mail_qos};

/// Token of messages in the waitset. Tokens of groups are their numbers.
const MAIL: u32 = 1000;
/// Largest number of slices for which requests of clients are stored.
const WANTED_MAX: usize = 1 << 16;
/// Interval between searches for writers that have ended.
const WRITERS_EVERY: Duration = Duration::from_millis(100);

/// Reads groups and messages; sends messages.
#[derive(Debug)]
pub(crate) struct DdsTransport {
    me: WorkerId,
    numbering: Numbering,
    settle: Duration,
    groups: BTreeMap<Group, GroupReader>,
    mail_in: Reader,
    /// Messages to controllers, and to workers.
    mail_up: DdsWriter,
    mail_down: DdsWriter,
    /// Messages to clients.
    again: DdsWriter,
    /// For items, and for messages unless those have their own.
    bell: Bell,
    /// For messages.
    mail_bell: Bell,
    topics: Topics,
    writers_seen: Option<Duration>,
    /// Number of groups with readers that have not settled.
    unsettled: usize,
    drops: Arc<DropCounts>,
    /// Items of plain publishers are refused.
    pub(crate) full: Arc<std::sync::atomic::AtomicBool>,
    /// Bytes of all items in this process.
    pub(crate) held: Arc<AtomicUsize>,
    samples: Vec<Sample>,
    /// Slices for which clients want checkpoints.
    wanted: Mutex<Vec<SliceId>>,
    /// Connections to controllers that announce themselves.
    connections: Arc<Connections>,
    /// The last incarnation that sent a message.
    incarnation: Incarnation,
}

/// Waits for input.
#[derive(Debug, Clone)]
pub(crate) struct Bell {
    waitset: Arc<Waitset>,
    /// Tokens of inputs that have arrived.
    ready: Arc<Mutex<Vec<u32>>>,
}

impl Bell {
    /// Waits until input arrives, another thread wakes it, or `patience` is over.
    pub(crate) fn wait(&self, patience: Duration) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.waitset.wait(patience, &mut ready)?;
        self.ready().append(&mut ready);
        Ok(())
    }

    /// Records inputs that have arrived, without waiting.
    pub(crate) fn look(&self) -> Result<(), Error> {
        let mut ready = Vec::new();
        self.waitset.look(&mut ready)?;
        self.ready().append(&mut ready);
        Ok(())
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waitset.waker()
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        lock(&self.ready)
    }
}

#[derive(Debug)]
struct GroupReader {
    reader: Reader,
    sources: Sources,
    opened: Option<Duration>,
    settled: bool,
    /// Number of writers now, and of writers ever, at the last check.
    matched: Option<(u32, u32)>,
    /// Number of incompatible writers at the last count.
    incompatible: AtomicU32,
}

impl DdsTransport {
    /// `settle`: time after which a reader has discovered every existing writer and has received
    /// its earlier items. `apart`: different threads wait for messages and for items.
    pub(crate) fn new(
        topics: Topics,
        incarnation: Incarnation,
        numbering: Numbering,
        settle: Duration,
        apart: bool,
        drops: Arc<DropCounts>,
        connections: Arc<Connections>,
    ) -> Result<Self, Error> {
        let mail_in = topics.down.reader(&item_qos(Group::BASE, Vec::new()))?;
        let mail_up = topics.up.writer(&mail_qos())?;
        let mail_down = topics.down.writer(&mail_qos())?;
        let again = topics.again.writer(&mail_qos())?;
        let ready = Arc::default();
        let bell = Bell { waitset: Arc::new(topics.participant.waitset()?), ready };
        let mail_bell = match apart {
            true => Bell { waitset: Arc::new(topics.participant.waitset()?), ..bell.clone() },
            false => bell.clone(),
        };
        mail_bell.waitset.attach(&mail_in, MAIL)?;
        Ok(Self {
            me: incarnation.worker,
            numbering,
            settle,
            groups: BTreeMap::new(),
            mail_in,
            mail_up,
            mail_down,
            again,
            bell,
            mail_bell,
            topics,
            writers_seen: None,
            unsettled: 0,
            drops,
            full: Arc::default(),
            held: Arc::default(),
            samples: Vec::new(),
            wanted: Mutex::default(),
            connections,
            incarnation,
        })
    }

    pub(crate) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// For the thread that waits for messages only, if there is one.
    pub(crate) fn mail_bell(&self) -> Bell {
        self.mail_bell.clone()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.bell.waker()
    }

    /// Whether every reader has had the time to discover its writers.
    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// Serialization of items and replies.
    pub(crate) fn form(&self) -> &Form {
        &self.topics.form
    }

    /// Hash of its topics.
    pub(crate) fn topics(&self) -> u64 {
        self.topics.number
    }

    /// Number of other workers of the stream that DDS knows. Each worker has a reader of messages
    /// to workers, also this one.
    pub(crate) fn others(&self) -> Result<u32, Error> {
        Ok(self.mail_down.matched()?.saturating_sub(1))
    }

    /// Sends a report to controllers.
    pub(crate) fn report(&self, report: Report) -> Result<(), Error> {
        self.post(&self.mail_up, &Mail::Report(Box::new(report)))
    }

    /// Asks clients for their items of these slices.
    pub(crate) fn ask_again(&self, slices: Vec<SliceId>) -> Result<(), Error> {
        self.post(&self.again, &Mail::Again(slices, self.numbering))
    }

    /// The slices for which clients have requested checkpoints since the last call.
    pub(crate) fn wanted(&self) -> Vec<SliceId> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// Informs clients which items checkpoints contain.
    pub(crate) fn tell_covered(&self, covered: Vec<Covered>) -> Result<(), Error> {
        self.post(&self.again, &Mail::Covered(covered, self.numbering))
    }

    /// Asks clients to publish items again.
    pub(crate) fn ask_lacking(&self, lacks: Vec<Lacks>) -> Result<(), Error> {
        self.post(&self.again, &Mail::Lacks(lacks))
    }

    /// Samples that DDS dropped because they are not of the topic's type, by reason.
    pub(crate) fn dropped_by_dds(&self) -> [(DropReason, u64); 2] {
        let mail = self.topics.up.malformed() + self.topics.down.malformed();
        [(DropReason::Malformed, self.topics.items.malformed()), (DropReason::MailUnreadable, mail)]
    }

    /// Counts new publishers that are incompatible with the readers.
    pub(crate) fn count_incompatible(&self) -> Result<(), Error> {
        for of in self.groups.values() {
            let met = of.reader.incompatible()?;
            let new = met.count.saturating_sub(of.incompatible.swap(met.count, Relaxed));
            if new == 0 {
                continue;
            }
            let topic = of.reader.topic().name();
            tracing::warn!(topic, new, "a publisher's items reach no worker: {}", met.why);
            self.drops.add(of_publisher(met.why), new.into());
        }
        Ok(())
    }

    fn post(&self, writer: &DdsWriter, mail: &Mail) -> Result<(), Error> {
        let mut cdr = Vec::new();
        if mail.encode(&mut cdr).is_err() {
            // Encoding does not fail for our types. If it did, the message would be lost, as any
            // message may be.
            self.drops.count(DropReason::MailUnreadable);
            return Ok(());
        }
        mail.passes(Passing::Sends);
        match writer.write(&cdr) {
            Err(error) if is_late(&error) => self.drops.count(DropReason::MailRefused),
            written => written?,
        }
        mail.passes(Passing::Sent);
        Ok(())
    }

    fn read_mail(&mut self, arrivals: &mut Vec<Arrival<Payload>>) -> Result<(), Error> {
        self.mail_in.take(&mut self.samples)?;
        for sample in self.samples.drain(..) {
            match Mail::decode(sample.cdr(), self.me.0) {
                Ok(Some(Mail::Envelope(envelope))) => arrivals.push(Arrival::Control(envelope)),
                Ok(None) => match Mail::decode(sample.cdr(), WORKERS) {
                    Ok(Some(Mail::Keeps(keeps))) => arrivals.push(Arrival::Keeps(keeps)),
                    Ok(Some(Mail::Wanted(slices))) => {
                        let mut wanted = lock(&self.wanted);
                        if wanted.len() < WANTED_MAX {
                            wanted.extend(slices);
                        }
                    }
                    Ok(Some(Mail::Listens(listens))) => self.connections.heard(listens),
                    _ => {}
                },
                Ok(Some(_)) => {}
                Err(_) => self.drops.count(DropReason::MailUnreadable),
            }
        }
        Ok(())
    }

    /// Reports new readers, and readers that have existed for long enough.
    fn tell_settled(&mut self, now: Duration, arrivals: &mut Vec<Arrival<Payload>>) {
        for (group, of) in &mut self.groups {
            let opened = *of.opened.get_or_insert_with(|| {
                arrivals.push(Arrival::Subscribed(*group));
                now
            });
            if !of.settled && now.saturating_sub(opened) >= self.settle {
                of.settled = true;
                self.unsettled -= 1;
                arrivals.push(Arrival::Settled(*group));
            }
        }
    }

    fn read_group(
        &mut self,
        group: Group,
        look_for_gone: bool,
        arrivals: &mut Vec<Arrival<Payload>>,
    ) -> Result<(), Error> {
        let Some(of) = self.groups.get_mut(&group) else { return Ok(()) };
        // Before the samples are taken: a writer that has ended by then sends nothing after them.
        let matched = if look_for_gone { Some(of.reader.matched()?) } else { of.matched };
        let present = if matched == of.matched { None } else { Some(of.reader.writers()?) };
        of.matched = matched;
        of.reader.take(&mut self.samples)?;
        let full = self.full.load(Relaxed);
        for sample in self.samples.drain(..) {
            let numbering = &self.numbering;
            let key = self.topics.form.key(sample.cdr(), numbering);
            match of.item(sample, (key, numbering), full, &self.held, &self.drops) {
                Ok(item) => arrivals.push(Arrival::Item(item)),
                Err(reason) => self.drops.count(reason),
            }
        }
        if let Some(present) = present {
            for handle in &present {
                of.learn(*handle);
            }
            let present = present.into_iter().collect();
            arrivals.extend(of.sources.retain(&present).into_iter().map(Arrival::WriterGone));
        }
        Ok(())
    }
}

fn of_publisher(why: Mismatch) -> DropReason {
    match why {
        Mismatch::Type => DropReason::IncompatibleType,
        _ => DropReason::IncompatibleQos,
    }
}

impl GroupReader {
    fn learn(&mut self, handle: equipoise_dds::WriterHandle) {
        if !self.sources.knows(handle)
            && let Some(endpoint) = self.reader.writer(handle)
        {
            self.sources.learn(handle, &endpoint);
        }
    }

    fn item(
        &mut self,
        sample: Sample,
        (key, numbering): (Result<Option<u64>, Malformed>, &Numbering),
        full: bool,
        held: &Arc<AtomicUsize>,
        drops: &DropCounts,
    ) -> Result<Item<Payload>, DropReason> {
        self.learn(sample.writer());
        let key = key.map_err(|_| DropReason::Malformed)?;
        let origin = self.sources.origin(sample.writer(), sample.timestamp_ns());
        let origin = origin.ok_or(DropReason::UnknownWriter)?;
        let key = key.ok_or(DropReason::NoSuchSlice)?;
        if origin.is_counted {
            drops.count(DropReason::TimestampRepeated);
        }
        if full && origin.plain {
            return Err(DropReason::QueueFull);
        }
        Ok(Item {
            key,
            slice: numbering.slice_of(key),
            writer: origin.writer,
            position: origin.position,
            again: origin.again,
            payload: Payload::Sample(Held::new(sample, held)),
        })
    }
}

impl Transport<Payload> for DdsTransport {
    type Error = Error;

    fn subscribe(&mut self, group: Group) -> Result<(), Error> {
        let reader = self.topics.items.reader(&item_qos(group, Vec::new()))?;
        self.bell.waitset.attach(&reader, u32::from(group.number()))?;
        let sources = Sources::new(group);
        let (opened, settled, matched, incompatible) = (None, false, None, AtomicU32::new(0));
        let of = GroupReader { reader, sources, opened, settled, matched, incompatible };
        self.groups.insert(group, of);
        // Informs the worker of the subscription at once, before other input arrives.
        self.unsettled += 1;
        self.mail_bell.waker().wake();
        Ok(())
    }

    fn unsubscribe(&mut self, group: Group) -> Result<(), Error> {
        self.bell.waitset.detach(u32::from(group.number()));
        if self.groups.remove(&group).is_some_and(|of| !of.settled) {
            self.unsettled -= 1;
        }
        Ok(())
    }

    fn renumber(&mut self, numbering: &Numbering) {
        self.numbering = *numbering;
    }

    fn send(&mut self, envelope: &Envelope<Payload>) -> Result<(), Error> {
        if let equipoise_slice::Address::Worker(incarnation) = envelope.from
            && self.incarnation != incarnation
        {
            self.incarnation = incarnation;
            self.connections.reborn(incarnation);
        }
        let mail = Mail::Envelope(envelope.clone());
        match envelope.to {
            equipoise_slice::Address::Controller => self.post(&self.mail_up, &mail),
            equipoise_slice::Address::Worker(_) => self.post(&self.mail_down, &mail),
        }
    }

    fn arrivals(
        &mut self,
        now: Duration,
        arrivals: &mut Vec<Arrival<Payload>>,
    ) -> Result<(), Error> {
        let mut ready = std::mem::take(&mut *self.bell.ready());
        let look_for_gone =
            self.writers_seen.is_none_or(|seen| now.saturating_sub(seen) >= WRITERS_EVERY);
        if look_for_gone {
            self.writers_seen = Some(now);
            ready = self.groups.keys().map(|group| u32::from(group.number())).collect();
            ready.push(MAIL);
        }
        // Messages first: a handover does not wait for the queue of items.
        if ready.contains(&MAIL) {
            self.read_mail(arrivals)?;
        }
        for group in ready.iter().filter_map(|token| Group::numbered(*token)) {
            self.read_group(group, look_for_gone, arrivals)?;
        }
        if self.unsettled > 0 {
            self.tell_settled(now, arrivals);
        }
        Ok(())
    }
}
