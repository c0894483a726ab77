//! The slice level: balances a stream of data items over workers by moving slices of it.
//!
//! Clients publish items; each item is in a slice, and each slice is owned by one worker. The
//! controller moves slices from a *source* to a *target*. Clients are
//! not involved.
//!
//! - Inputs: items in each writer's order, messages, `now`. Outputs: messages to send, records to
//!   store, items to execute, in order. There is no socket, clock or thread here;
//!   [`transport::Driver`] runs a worker over any [`transport::Transport`].
//! - [`worker::Worker`] and [`controller::Controller`] are the two sides of the protocol;
//!   [`balance::Balancer`] decides which slices should move; [`client::Client`] keeps items until
//!   there is a reply.
//!
//! # A handover
//!
//! | message | from, to | meaning |
//! |---|---|---|
//! | PREPARE | controller to target | open readers, *shadow* the slices: keep their items |
//! | READY(P) | target to controller | all items after P, per writer, are in the shadow |
//! | RELEASE(P) | controller to source | cut when you have passed P for every writer |
//! | CUT(C) | source to target and controller | I admitted items up to C, per writer, no others |
//! | ACTIVE | target to source and controller | I process items above C, from the shadow first |
//! | DRAINED | source to target | I have nothing of this slice unfinished; here is its state |
//! | TAIL | source to target | items that the target lacks |
//! | CLOSED | source to controller | all is drained, and the target lacks nothing |
//!
//! CUT is the only point at which ownership changes. After ACTIVE the target drops late items at or
//! below C. In strict order the target starts a slice at DRAINED. The tail contains first, in
//! order, the items at or below C that the source has not started, then items above C of writers
//! that matched the target's readers late.
//!
//! Each message names its handover, may arrive late, twice or never, and is repeated until there is
//! an answer. The states are tables (`worker/*_table.rs`, `controller/handover.rs`), each tested
//! completely.
//!
//! # Guarantees
//!
//! Every item that a client publishes, and publishes again until there is a reply, is executed and
//! replied to, whichever process crashes, is cut off or is paused. How often it is executed:
//!
//! - With planned moves and crashes of controllers: **once**. In strict order items of one writer
//!   in one slice are executed in their order, one after the other, across all workers.
//! - With losses of workers: once by workers that are not lost. An item that a lost worker had
//!   executed is executed *twice* if its client has no reply yet and publishes it again, or if the
//!   source still kept it for the lost target. Clients drop a second reply. An item that a worker
//!   has claimed as committed, which is one that was finished longer ago than a reply takes
//!   ([`Config::reply`]), is not executed again. The state of a lost worker's slices is lost. In
//!   free order items that are published again are executed out of order.
//! - With [checkpoints](CheckpointConfig), the state of each slice is that of a run without faults,
//!   if its clients keep items until a checkpoint contains them, and no owner is lost together with
//!   the keeper of its checkpoints. Items after the last checkpoint are executed again, each with a
//!   second reply.
//! - If two processes use one worker's name, the one that reported first works; the other is
//!   refused, with the name of the first. When the first is given up, another may take its place.
//! - A worker that is given up starts nothing before its successor starts: either its process has
//!   ended, or it fences itself when its lease expires, even after a pause. Items that it had
//!   started may still finish. A connection that the kernel closes shows the end of a process
//!   ([`controller::Connection`]). One exception is assumed not to happen: that something resets a
//!   connection while messages of the living worker are lost for [`Config::probe`].
//!
//! The simulation (`sim`) checks these guarantees after every run, in a network that drops,
//! duplicates, delays and reorders messages. Each of the mechanisms below can be switched off
//! there, and the simulation then finds wrong runs.
//!
//! # Succession of a lost worker
//!
//! Workers repeatedly claim which slices they own, and up to which position of each writer they
//! have finished. For a lost worker its last claims count, or else the positions known when it
//! received the slices. The new owner accepts items above these positions that clients publish
//! again, for [`Config::recovery`]; during this time it does not give the slices away. The same
//! holds for new slices: no worker may have received their first items.
//!
//! - In strict order the successor holds items of these slices until the recovery is over. Then it
//!   starts the items of each writer by their positions.
//! - An item that is published again does not show how far its writer is ([`Item::again`]).
//! - A slice counts as assigned, or as recovered, when the worker's own claims say so. Until then
//!   the next owner processes the unfinished items of the predecessor.
//! - Items that came by the tail are in progress, but not committed.
//! - The store keeps workers that were given up, so that the next controller does not admit them
//!   again. Such a worker is forgotten when it has begun a new incarnation by itself, which it does
//!   when no controller has answered it for [`Config::retire`]. An unknown worker is not admitted
//!   with slices. The store also keeps workers that reported, so that the next controller knows
//!   which to ask. Planned moves are not in the store: the controller asks for them
//!   ([`controller`]).
//! - The source of a finished handover remembers the positions it has finished, and reports them to
//!   the next controller ([`Past`]). Only the target also knows where it went on, and the next
//!   controller may never hear from it.
//! - A successor asks clients for the items that it recovers ([`worker::Worker::recovering`]).
//!   Without that, clients wait for as long as replies take, so that they do not publish items
//!   again that only wait.
//!
//! # Assumptions
//!
//! - DDS is reliable: between a reader and a writer that have matched, items arrive in order, and
//!   none is missing.
//! - A client publishes only after it has matched the readers that existed when it began.
//! - A reader is not reported as *settled* before writers have matched it and their earlier items
//!   have arrived.
//! - Clients publish the items that a successor asks for several times within `Config::recovery`.
//! - A controller stops before the store can elect another.
//!
//! # Source
//! Vasconcelos, DPSLB (PUC-Rio): slices, assignment, load balancing sessions. Deviates: the cut is
//! taken at positions of writers instead of after a pause, so it takes well under a millisecond
//! instead of 400 ms; crashes, late readers and order are our own.

pub mod balance;
mod by_slice;
pub mod client;
mod config;
pub mod controller;
mod ids;
mod message;
mod numbering;
mod positions;
mod repeat;
#[cfg(test)]
mod sim;
pub mod transport;
pub mod worker;

pub use by_slice::BySlice;
pub use config::{CheckpointConfig, Config, Order};
pub use ids::{GROUPS, Group, HandoverId, Incarnation, Process, SliceId, Term, WorkerId, Writer};
pub use message::{
    Address, Backlog, Claims, Covered, Envelope, Given, Item, Keeps, Lacks, Message, Past,
    Progress, SnapshotId, SnapshotPart, TailEntry, Taken,
};
pub use numbering::{Numbering, SLICES_MAX, number_key, text_key};
pub use positions::Positions;
