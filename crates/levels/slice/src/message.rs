//! What workers and the controller say to each other. Every message may come late, twice or not at all: each names
//! its handover, and whoever needs an answer asks again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::by_slice::BySlice;
use crate::ids::{HandoverId, Life, Process, SliceId, Term, Writer};
use crate::numbering::Numbering;
use crate::positions::Positions;

/// One data item, with as much of it as the protocol needs. `T` is what the application gets; it is cloned by the
/// protocol, so it should be a reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<T> {
    /// Says its slice, whatever the number of slices: see [`Numbering::slice_of`].
    pub key: u64,
    /// Its slice.
    pub slice: SliceId,
    /// Who wrote it.
    pub writer: Writer,
    /// Grows with each item of the writer; 1 or more. An item that was published before comes again with its first
    /// position.
    pub position: u64,
    /// It was published before, and comes again because there was no reply. It says nothing of how far its writer
    /// is, so it has to be told from the others even where it is the first that comes.
    pub again: bool,
    /// The item itself.
    pub payload: T,
}

/// What a client keeps of one writer's items, as it says to a worker that recovers their slices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeps {
    /// The writer.
    pub writer: Writer,
    /// Of items up to this position it says all that there is to say.
    pub through: u64,
    /// By slice, the positions of items that have no reply. All others have one.
    pub slices: BTreeMap<SliceId, Vec<u64>>,
    /// By the numbers of which resize slices are named: those of the question.
    pub numbering: HandoverId,
}

impl Keeps {
    /// Of `writer`, up to `through`: nothing. The question named slices by `numbering`.
    pub fn new(writer: Writer, through: u64, numbering: &Numbering) -> Self {
        Self { writer, through, slices: BTreeMap::new(), numbering: numbering.epoch }
    }
}

/// Where a message comes from or goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Address {
    /// The controller in office.
    Controller,
    /// One life of a worker: a later one does not take its mail.
    Worker(Life),
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// Who says it.
    pub from: Address,
    /// Who is told.
    pub to: Address,
    /// The controller's term, as the sender knows it.
    pub term: Term,
    /// By the numbers of which resize it names slices ([`Numbering::epoch`]). A recipient that has
    /// others does not heed it, unless it names none.
    pub numbering: HandoverId,
    /// What is said.
    pub message: Message<T>,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message<T> {
    /// Controller to taker: shadow these slices.
    Prepare {
        /// The handover.
        handover: HandoverId,
        /// The slices to be moved.
        slices: Arc<[SliceId]>,
        /// Who owns them.
        giver: Life,
    },
    /// Taker to controller: everything after these positions is in my shadow (P).
    Ready {
        /// The handover.
        handover: HandoverId,
        /// P.
        positions: Positions,
        /// Every writer has long matched my readers, so those that P does not know have no hole.
        settled: bool,
    },
    /// Controller to giver: cut, once you have passed P.
    Release {
        /// The handover.
        handover: HandoverId,
        /// The slices to be moved.
        slices: Arc<[SliceId]>,
        /// Who takes them.
        taker: Life,
        /// P.
        positions: Positions,
        /// As the taker said.
        settled: bool,
    },
    /// Giver to taker and controller: I admitted what is at or below these positions (C), and nothing above.
    Cut {
        /// The handover.
        handover: HandoverId,
        /// C.
        positions: Positions,
        /// Items at or below C that the giver has not started. They follow in the tail. Empty in messages from and to
        /// the controller.
        backlog: Vec<Backlog>,
    },
    /// Taker to giver and controller: the slices are mine, and this is how far I am.
    Active {
        /// The handover.
        handover: HandoverId,
        /// C.
        cut: Positions,
        /// How far.
        progress: Progress,
    },
    /// Giver to taker: of these slices I have nothing left to do. The state is there if the application has one.
    Drained {
        /// The handover.
        handover: HandoverId,
        /// Slices, with their state.
        slices: Vec<(SliceId, Option<Vec<u8>>)>,
    },
    /// Giver to taker: items that were not started, then items after C of writers that matched the taker's readers late.
    Tail {
        /// The handover.
        handover: HandoverId,
        /// The number of the first entry, from 0 on.
        first: u64,
        /// In order.
        entries: Vec<TailEntry<T>>,
    },
    /// Giver to controller: all is drained, and the taker lacks nothing.
    Closed {
        /// The handover.
        handover: HandoverId,
        /// C.
        cut: Positions,
    },
    /// Controller to giver or taker: call it off, if there is no cut yet.
    Abort {
        /// The handover.
        handover: HandoverId,
    },
    /// Giver or taker to controller: I shall never cut, or never heed a cut.
    Aborted {
        /// The handover.
        handover: HandoverId,
    },
    /// Controller to a worker: these slices are yours now; nobody hands them over.
    Assign {
        /// Counts as a handover.
        handover: HandoverId,
        /// The slices.
        slices: Arc<[SliceId]>,
        /// Their owner was lost, having committed this. `None`: nobody had them before.
        after: Option<Positions>,
    },
    /// Controller to taker: the giver was lost before it had drained, having committed this.
    Recover {
        /// The handover.
        handover: HandoverId,
        /// What it had committed, or was done before it had the slice.
        after: BySlice,
    },
    /// Controller to taker: it is over.
    End {
        /// The handover.
        handover: HandoverId,
    },
    /// Worker to controller, again and again: I live, and this is what I hold.
    Claims(Box<Claims>),
    /// Controller to worker: the claims of this number were heard. They renew the lease from when they were sent.
    Grant {
        /// The number of the claims.
        number: u64,
    },
    /// Controller to worker: you were given up as lost. Drop everything, and come as a new life, with a larger number
    /// than this.
    Expel {
        /// The last life of the worker's name.
        last: u64,
    },
    /// Controller to worker: another process works under your name. Drop everything.
    Refuse {
        /// The last life of the worker's name.
        last: u64,
        /// Which process.
        holder: Process,
        /// How long ago it was heard.
        heard: Duration,
    },
    /// Controller to worker: your connection closed without notice; answer if you live.
    Probe {
        /// Of the question.
        number: u64,
    },
    /// Worker to controller: I live.
    Alive {
        /// Of the question that it answers.
        number: u64,
    },
    /// Controller to worker, again and again: slices are numbered anew. The worker answers in its
    /// claims.
    Resize {
        /// The new numbers.
        numbering: Numbering,
        /// All can: take them now. Before: say when you can (`Claims::ready_for`).
        now: bool,
    },
    /// Controller to worker, again and again: keep what comes for these slices, and for no others.
    Standby {
        /// All of them, with what their owners have committed and need not be kept.
        committed: BySlice,
    },
}

impl<T> Message<T> {
    /// Whether it names slices, or handovers of slices.
    pub(crate) fn names_slices(&self) -> bool {
        !matches!(
            self,
            Self::Claims(_)
                | Self::Grant { .. }
                | Self::Expel { .. }
                | Self::Refuse { .. }
                | Self::Probe { .. }
                | Self::Alive { .. }
                | Self::Resize { .. }
        )
    }

    /// Its name, in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Prepare { .. } => "prepare",
            Self::Ready { .. } => "ready",
            Self::Release { .. } => "release",
            Self::Cut { .. } => "cut",
            Self::Active { .. } => "active",
            Self::Drained { .. } => "drained",
            Self::Tail { .. } => "tail",
            Self::Closed { .. } => "closed",
            Self::Abort { .. } => "abort",
            Self::Aborted { .. } => "aborted",
            Self::Assign { .. } => "assign",
            Self::Recover { .. } => "recover",
            Self::End { .. } => "end",
            Self::Claims(_) => "claims",
            Self::Grant { .. } => "grant",
            Self::Expel { .. } => "expel",
            Self::Refuse { .. } => "refuse",
            Self::Probe { .. } => "probe",
            Self::Alive { .. } => "alive",
            Self::Resize { .. } => "resize",
            Self::Standby { .. } => "standby",
        }
    }
}

/// How far the taker is, after the cut.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Slices that wait for the giver's `Drained`.
    pub held: Vec<SliceId>,
    /// What the tail lacks now it need not bring: every writer has long matched.
    pub settled: bool,
    /// Which tail entry is wanted next.
    pub tail_next: u64,
    /// Writers whose items have come here from this position on: the tail has to reach there.
    pub until: Vec<(Writer, u64)>,
    /// The backlog is in claims of the taker that the controller has received, or there is none. The giver keeps its part of
    /// the responsibility until then.
    pub claimed: bool,
    /// What the lost giver left is being recovered here: the number of the first claims that say so. Whoever
    /// succeeds this worker goes by those or later ones.
    pub recovered: Option<u64>,
}

/// A step of the tail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TailEntry<T> {
    /// An item at or below C that the giver has not started.
    Unstarted(Item<T>),
    /// Every item that the giver had not started is before this.
    UnstartedEnd,
    /// An item after C.
    Item(Item<T>),
    /// There are no more of this writer.
    End(Writer),
    /// There are no more at all.
    EndAll,
}

/// Items of one writer in one slice that the giver of a handover has not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backlog {
    /// The slice.
    pub slice: SliceId,
    /// The writer.
    pub writer: Writer,
    /// Position before the first of these items.
    pub after: u64,
}

/// What a worker holds: by it a lost worker is succeeded, and a new controller goes on with what the last one began. Claims
/// that are said under a controller's term include a promise: what an earlier one asked for and is not cut yet, never will be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Claims {
    /// Grows with each.
    pub number: u64,
    /// Whose they are.
    pub process: Process,
    /// The slices it owns, in order, with their epochs.
    pub slices: Vec<(SliceId, HandoverId)>,
    /// Committed: of what it owns or owned, all at or below is done.
    pub marks: Positions,
    /// Of these slices all at or below was another's, and is done or another's still. Left out once the marks have
    /// passed it.
    pub floors: BySlice,
    /// What it cut and has not drained.
    pub given: Vec<Given>,
    /// What it takes, or took and was not told that it is over.
    pub taken: Vec<Taken>,
    /// What it gave away lately and has done: to a controller that is new, until that has heard it.
    pub past: Vec<Past>,
    /// By which numbers slices are named.
    pub numbering: Numbering,
    /// The resize that was announced and that nothing here stands against: [`Message::Resize`].
    pub ready_for: Option<HandoverId>,
}

/// A handover at its giver, after the cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The handover.
    pub handover: HandoverId,
    /// The slices that were moved.
    pub slices: Arc<[SliceId]>,
    /// Who takes them.
    pub taker: Life,
    /// C.
    pub cut: Positions,
}

/// A handover at its giver, when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Slices that were moved.
    pub slices: Arc<[SliceId]>,
    /// Of these all at or below is done, or was another's and is done; except for `backlog`.
    pub done: Positions,
    /// Items that the giver did not start: the taker received them.
    pub backlog: Vec<Backlog>,
}

/// A handover at its taker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The handover.
    pub handover: HandoverId,
    /// The slices to be moved.
    pub slices: Arc<[SliceId]>,
    /// Who owned them.
    pub giver: Life,
}

impl Claims {
    /// Since when it owns `slice`; `None`: it does not.
    pub fn epoch(&self, slice: SliceId) -> Option<HandoverId> {
        let found = self.slices.binary_search_by_key(&slice, |(slice, _)| *slice).ok()?;
        self.slices.get(found).map(|(_, epoch)| *epoch)
    }

    /// Whether it owns all of `slices` since `epoch`.
    pub fn has_since(&self, slices: &[SliceId], epoch: HandoverId) -> bool {
        slices.iter().all(|slice| self.epoch(*slice) == Some(epoch))
    }

    /// What is committed of `slice`, which it owns.
    pub fn committed(&self, slice: SliceId) -> Positions {
        match self.floors.of(slice) {
            Some(floor) => self.marks.furthest(floor),
            None => self.marks.clone(),
        }
    }
}
