//! The controller's task: a candidate of the election. While it leads, it carries out the decisions
//! of its desk.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_dds::{Error as DdsError, Waker, Writer as DdsWriter};
use equipoise_slice::controller::{Output, Record};
use equipoise_slice::{Group, Incarnation, Term};
use equipoise_store::{Election, Key, Leadership, Store, Transaction};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::controller::connections::Connections;
use crate::controller::desk::Desk;
use crate::controller::kept::{Kept, KeptError};
use crate::controller::pen::Pen;
use crate::controller::status::Status;
use crate::controller::unread::{Lookout, Told};
use crate::controller::{Ask, AskError, Options};
use equipoise_slice_dds::DropReason;
use equipoise_slice_dds::Passing;
use equipoise_slice_dds::Stream;
use equipoise_slice_dds::leader::DropCounts;
use equipoise_slice_dds::leader::{CONTROLLERS, Mail};
use equipoise_slice_dds::leader::{Topics, is_late, item_qos, mail_qos};

/// Limit of messages that wait for the task. Beyond it they wait in DDS.
const MAIL_MAX: usize = 4096;
/// Pause after a failed campaign.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between announcements of the address for workers.
const ANNOUNCE: Duration = Duration::from_secs(1);
/// Time until the second announcement of a participant's death, in case the first is lost.
const AGAIN: Duration = Duration::from_millis(50);
/// Interval between status updates.
const STATUS: Duration = Duration::from_millis(100);

pub(super) struct Office {
    pub(super) options: Options,
    pub(super) stream: Stream,
    pub(super) store: Arc<dyn Store>,
    pub(super) key: Key,
    pub(super) wires: Wires,
    /// Connections of workers. Their ends show the ends of workers.
    pub(super) connections: Connections,
    /// Connections to the workers' port that are not from workers.
    pub(super) strangers: Arc<AtomicU64>,
    pub(super) asked: mpsc::Receiver<Ask>,
    pub(super) told: watch::Sender<Status>,
}

/// Messages in and out.
#[derive(Debug)]
pub(super) struct Wires {
    mail: mpsc::Receiver<Mail>,
    drops: Arc<DropCounts>,
    unread: Told,
    down: DdsWriter,
    waker: Waker,
    /// The thread that reads. It ends when the value is dropped.
    reading: Option<(Arc<()>, JoinHandle<()>)>,
    topics: Topics,
}

/// Why the controller no longer leads.
#[derive(Debug, thiserror::Error)]
pub(super) enum Deposed {
    #[error("another controller leads")]
    FencedOff,
    #[error(transparent)]
    Store(#[from] equipoise_store::StoreError),
    #[error(transparent)]
    Dds(#[from] DdsError),
    #[error(transparent)]
    Record(#[from] KeptError),
    #[error("a message cannot be encoded: {0}")]
    Message(#[from] postcard::Error),
    #[error("the lease of the leadership may have expired")]
    Lease,
    #[error("it no longer receives messages from workers")]
    Deaf,
}

impl Wires {
    pub(super) fn connect(stream: &Stream) -> Result<Self, DdsError> {
        let topics = stream.join()?;
        let up = topics.up.reader(&item_qos(Group::BASE, Vec::new()))?;
        let down = topics.down.writer(&mail_qos())?;
        let waitset = topics.participant.waitset()?;
        waitset.attach(&up, 0)?;
        let waker = waitset.waker();
        let (sender, mail) = mpsc::channel(MAIL_MAX);
        let alive = Arc::new(());
        let watched = Arc::downgrade(&alive);
        let drops = Arc::new(DropCounts::default());
        let counting = drops.clone();
        let unread = Told::default();
        let publications = topics.participant.publications(&stream.items)?;
        let keyed = topics.keyed_items;
        let mut lookout = Lookout::new(publications, &stream.item_type, keyed, unread.clone());
        let mut reading = move || -> Result<(), DdsError> {
            let (mut ready, mut samples) = (Vec::new(), Vec::new());
            while watched.strong_count() > 0 {
                ready.clear();
                waitset.wait(Duration::from_millis(100), &mut ready)?;
                up.take(&mut samples)?;
                for sample in samples.drain(..) {
                    match Mail::decode(sample.cdr(), CONTROLLERS) {
                        Ok(Some(letter)) => {
                            if sender.blocking_send(letter).is_err() {
                                return Ok(());
                            }
                        }
                        Ok(None) => {}
                        Err(error) => {
                            tracing::debug!(%error, "a message to the slice controller cannot be decoded");
                            counting.count(DropReason::MailUnreadable);
                        }
                    }
                }
                // After the messages, which have priority.
                lookout.look()?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("slice-mail".into());
        let thread = thread.spawn(move || {
            if let Err(error) = reading() {
                tracing::error!(%error, "the slice controller has stopped reading messages from workers");
            }
        });
        let reading = Some((alive, thread.map_err(|_| DdsError::Thread)?));
        Ok(Self { mail, drops, unread, down, waker, reading, topics })
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        let Some((alive, thread)) = self.reading.take() else { return };
        // The thread may wait for space in the channel.
        self.mail.close();
        drop(alive);
        self.waker.wake();
        // The thread holds the participant. After its end the domain can be opened with other
        // settings.
        let _ = thread.join();
    }
}

impl Office {
    pub(super) async fn run(mut self, election: Election) {
        let begun = Instant::now();
        loop {
            if let Err(error) = self.reconnect() {
                tracing::error!(stream = self.options.name, %error, "the slice level could not join its DDS domain");
                sleep(RETRY).await;
                continue;
            }
            let candidate = self.options.candidate.clone();
            let campaign = election.campaign(&candidate);
            tokio::pin!(campaign);
            let mut announcements = interval(ANNOUNCE);
            let won = loop {
                tokio::select! {
                    won = &mut campaign => break won,
                    // Only the leader needs messages; workers send everything again.
                    Some(_) = self.wires.mail.recv() => {}
                    // A new leader asks for the state of all connections.
                    _ = self.connections.change() => {}
                    _ = announcements.tick() => self.announce(),
                    ask = self.asked.recv() => match ask {
                        Some(Ask::Stop) | None => return,
                        Some(ask) => refuse(ask),
                    },
                }
            };
            match won {
                Ok(mut leadership) => {
                    let deposed = self.lead(&mut leadership, begun).await;
                    self.told.send_replace(Status::default());
                    let Err(why) = deposed else {
                        // If the store does not answer, the lease expires.
                        let _ = leadership.resign().await;
                        return;
                    };
                    tracing::warn!(event = "slice.leadership-lost", subject = self.options.name, stream = self.options.name, %why, "lost the leadership of the slice level");
                    if let Deposed::Deaf | Deposed::Dds(_) = why {
                        self.wires.mail.close();
                        // Another candidate may receive the workers' messages.
                        let _ = leadership.resign().await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a campaign for the leadership of the slice level failed")
                }
            }
            sleep(RETRY).await;
        }
    }

    /// Joins the stream again if the thread that reads messages has ended.
    fn reconnect(&mut self) -> Result<(), DdsError> {
        if self.wires.mail.is_closed() {
            self.wires = Wires::connect(&self.stream)?;
        }
        Ok(())
    }

    /// Leads until it is deposed. Returns `Ok` after [`Ask::Stop`], or when no handle is left.
    async fn lead(&mut self, leadership: &mut Leadership, begun: Instant) -> Result<(), Deposed> {
        let mut kept = match self.store.get(&self.key).await? {
            Some(entry) => Kept::decode(&entry.value)?,
            None if self.options.protocol.has_folder() => Kept::after_others(),
            None => Kept::default(),
        };
        let term = Term(leadership.term().0.0);
        let (options, topics) = (self.options.clone(), self.wires.topics.number);
        let mut desk = Desk::new(begun.elapsed(), term, options, topics, &kept);
        tracing::info!(
            event = "slice.leads",
            subject = self.options.name,
            stream = self.options.name,
            term = term.0,
            "became leader of the slice level"
        );
        let mut ticks = interval(self.options.protocol.resend / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for change in self.connections.now() {
            desk.connection(begun.elapsed(), change);
        }
        let (mut told, mut announced): (Option<Instant>, Option<Instant>) = (None, None);
        let mut pen = Pen::default();
        loop {
            let mut is_due = false;
            tokio::select! {
                () = leadership.lost() => return Err(Deposed::Lease),
                written = pen.written() => written?,
                letter = self.wires.mail.recv() => match letter {
                    Some(letter) => desk.mail(begun.elapsed(), letter),
                    None => return Err(Deposed::Deaf),
                },
                change = self.connections.change() => desk.connection(begun.elapsed(), change),
                ask = self.asked.recv() => match ask {
                    Some(Ask::Stop) | None => {
                        if pen.noted {
                            self.write(leadership, &kept, &mut pen).await?;
                        }
                        return pen.finish().await;
                    }
                    Some(ask) => desk.ask(begun.elapsed(), ask),
                },
                _ = ticks.tick() => is_due = true,
            }
            // Handles all waiting messages before the tick. One write covers them, and no worker is
            // declared lost while its message waits.
            while let Ok(letter) = self.wires.mail.try_recv() {
                desk.mail(begun.elapsed(), letter);
            }
            if is_due {
                desk.tick(begun.elapsed());
            }
            let carried_out = self.carry_out(&mut desk, leadership, &mut kept, &mut pen).await;
            let is_new = carried_out.inspect_err(|_| desk.refuse())?;
            // A new worker connects without waiting for the next announcement.
            if is_new || announced.is_none_or(|at| at.elapsed() >= ANNOUNCE) {
                announced = Some(Instant::now());
                self.announce();
            }
            if told.is_none_or(|told| told.elapsed() >= STATUS) {
                told = Some(Instant::now());
                self.tell(desk.status(begun.elapsed()));
            }
        }
    }

    /// Carries out the desk's outputs in order. It sends a message after the store has the records
    /// before it. A noted record delays no message. Returns whether a worker is new.
    async fn carry_out(
        &mut self,
        desk: &mut Desk,
        leadership: &Leadership,
        kept: &mut Kept,
        pen: &mut Pen,
    ) -> Result<bool, Deposed> {
        // The process may have been paused, and its messages may be out of date.
        if !leadership.is_held() {
            return Err(Deposed::Lease);
        }
        let mut unwritten = desk.wishes_changed(kept);
        let (mut letters, mut cdr, mut is_new) = (Vec::new(), Vec::new(), false);
        while let Some(output) = desk.poll() {
            match output {
                Output::Record(record) => {
                    match record {
                        Record::Lost(incarnation) => self.announce_death(incarnation),
                        Record::Heard(_) => is_new = true,
                        _ => {}
                    }
                    kept.stored.apply(&record);
                    unwritten = true;
                }
                Output::Note(record) => {
                    kept.stored.apply(&record);
                    pen.noted = true;
                }
                Output::Send(envelope) if unwritten => letters.push(Mail::Envelope(envelope)),
                Output::Send(envelope) => {
                    post(&self.wires.down, &Mail::Envelope(envelope), &mut cdr)?;
                }
            }
        }
        // One write for all records: the messages between them can wait for the last one.
        if unwritten {
            self.write(leadership, kept, pen).await?;
            pen.finish().await?;
        } else if pen.noted && !pen.is_writing() {
            self.write(leadership, kept, pen).await?;
        }
        for letter in letters {
            post(&self.wires.down, &letter, &mut cdr)?;
        }
        desk.answer();
        Ok(is_new)
    }

    /// Publishes the desk's status, with the counts of other parts.
    fn tell(&self, status: Status) {
        let mail_unreadable = self.wires.drops.of(DropReason::MailUnreadable);
        let connections_strange = self.strangers.load(Relaxed);
        let unread = self.wires.unread.now();
        self.told.send_replace(Status { mail_unreadable, connections_strange, unread, ..status });
    }

    /// Announces to workers the addresses for their connections.
    fn announce(&self) {
        let Some(listens) = self.connections.listens() else { return };
        let told = post(&self.wires.down, &Mail::Listens(listens.clone()), &mut Vec::new());
        if let Err(error) = told {
            tracing::debug!(%error, "failed to send an announcement to workers");
        }
    }

    /// Makes all members of the domain forget a worker after the end of its process. Otherwise its
    /// readers would block the writers of clients until its DDS lease expires.
    fn announce_death(&mut self, incarnation: Incarnation) {
        let Some(participant) = self.connections.lost(incarnation) else { return };
        let (domain, settings) = (self.stream.domain, self.stream.dds.clone());
        let announce = move || {
            for _ in 0..2 {
                if let Err(error) = equipoise_dds::announce_death(domain, &settings, participant) {
                    tracing::warn!(%error, "failed to announce the end of a worker: clients may wait for it until its DDS lease expires");
                }
                std::thread::sleep(AGAIN);
            }
        };
        drop(tokio::task::spawn_blocking(announce));
    }

    /// Starts a write of the whole record, after the end of the present write.
    async fn write(
        &self,
        leadership: &Leadership,
        kept: &Kept,
        pen: &mut Pen,
    ) -> Result<(), Deposed> {
        pen.finish().await?;
        let put = Transaction::new().put(self.key.clone(), kept.encode()?);
        pen.write(leadership.fence(put), &self.store);
        Ok(())
    }
}

fn post(down: &DdsWriter, letter: &Mail, cdr: &mut Vec<u8>) -> Result<(), Deposed> {
    letter.encode(cdr)?;
    letter.passes(Passing::Sends);
    match down.write(cdr) {
        // The protocol sends it again.
        Err(error) if is_late(&error) => {
            tracing::debug!("DDS did not accept a message to workers in time")
        }
        written => written?,
    }
    letter.passes(Passing::Sent);
    Ok(())
}

fn refuse(ask: Ask) {
    // The caller may no longer wait for the answer.
    match ask {
        Ask::Resize(_, answer) => drop(answer.send(Err(AskError::NotLeading))),
        Ask::Move(_, _, answer) => drop(answer.send(Err(AskError::NotLeading))),
        Ask::Leave(_, _, answer) => drop(answer.send(Err(AskError::NotLeading))),
        Ask::Pin(_, _, answer) => drop(answer.send(Err(AskError::NotLeading))),
        Ask::Plan(answer) => drop(answer.send(Err(AskError::NotLeading))),
        Ask::Stop => {}
    }
}
