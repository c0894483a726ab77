//! The slice level: a stream of data items, balanced over workers by moving slices of it.
//!
//! Clients publish items; each is of a slice, and each slice is owned by one worker. The controller moves slices from
//! *givers* to *takers*. Clients know nothing of it.
//!
//! - In: items in each writer's order, messages, `now`. Out: what to send, to store, to execute, in order. There is no
//!   socket, clock or thread here; [`transport::Driver`] runs a worker over any [`transport::Transport`].
//! - [`worker::Worker`] and [`controller::Controller`] are the two sides of the protocol; [`balance::Balancer`] says
//!   which slices should move; [`client::Client`] keeps items until there is a reply.
//!
//! # A handover
//!
//! | step | who | what |
//! |---|---|---|
//! | PREPARE | controller to taker | open readers, *shadow* the slices: keep what comes for them |
//! | READY(P) | taker to controller | everything after P, per writer, is in the shadow |
//! | RELEASE(P) | controller to giver | go on until you have passed P for every writer |
//! | CUT(C) | giver to taker and controller | what is at or below C, per writer, I admitted; nothing above. The one point where ownership changes |
//! | ACTIVE | taker to giver and controller | I do what is above C, from the shadow first. What comes late, at or below C, I drop |
//! | DRAINED | giver to taker | of this slice I have nothing unfinished; here is its state. In strict order the taker starts now |
//! | TAIL | giver to taker | items at or below C that I have not started, in order; then items above C of writers that matched the taker's readers late |
//! | CLOSED | giver to controller | all is drained, and the taker lacks nothing |
//!
//! Each message names its handover, may come late, twice or never, and is said again until there is an answer. The
//! states are tables (`worker/*_table.rs`, `controller/handover.rs`), each tested whole.
//!
//! # What holds
//!
//! Every item that a client publishes, and publishes again until there is a reply, is executed and replied to, whoever
//! crashes, is cut off or stands still. How often:
//!
//! - Planned moves, and crashes of controllers: **once**. In strict order items of one writer in one slice are executed
//!   in their order, one after the other, across all workers.
//! - Losses of workers: once by workers that are not lost. What a lost worker had executed is executed *twice* when its
//!   client has no reply yet as it publishes it again, or when the giver still had it in hand for the lost taker.
//!   Clients drop a second reply. What a worker has claimed to be committed is not executed again: that is what was
//!   finished longer ago than a reply takes ([`Config::reply`]). State that was with the lost worker is lost. In free
//!   order items that come again come out of order.
//! - Of two processes that live under one worker's name, the one that was heard first works; the other is refused, and
//!   told who that is. Given up, its place is taken.
//! - A worker that is given up starts nothing any more, before its successor starts anything: its process has ended, or it
//!   fences itself when its lease lapses, also when it stood still. What it was at may still end. The end of a process is
//!   known by a connection that its kernel closes ([`controller::Connection`]). One exception is assumed away: a connection
//!   that something on the way resets while messages of a worker that lives do not pass for [`Config::probe`].
//!
//! The simulation (`sim`) judges these after every run, in a network that drops, doubles, delays and reorders messages,
//! and with switches for each of the mechanisms below, without which it finds runs that are wrong.
//!
//! # How a lost worker is succeeded
//!
//! Workers claim, again and again, what they own and up to where they have finished each writer's items. Of a lost one
//! the last claims count, or what was known when the slices were given to it. Whoever gets the slices takes what its
//! clients publish again above that, for [`Config::recovery`]; meanwhile it does not give them away. The same goes for
//! slices that are new: nobody may have been there to read their first items.
//!
//! - In strict order the successor holds what comes of these slices until the recovery is over, and then starts the items
//!   of each writer by their positions.
//! - An item that comes again says nothing of how far its writer is ([`Item::again`]).
//! - A slice counts as assigned, or as recovered, when the worker's own claims say so; until then what its
//!   predecessor left is done by whoever comes next.
//! - What came by the tail is in hand, but not committed.
//! - Who was given up is in the store: the next controller must not let it in again. It is forgotten when it has begun a
//!   new life by itself, as it does when no controller has answered it for [`Config::retire`]; and one that nobody knows is
//!   not let in with slices. Who was heard of is in the store, too: the next controller must know whom to ask. Planned moves
//!   are not, they are asked for ([`controller`]).
//! - Who gave slices away remembers what it has done of them, and tells the next controller ([`Past`]): that one may never
//!   hear of the taker, which alone else knows from where it went on.
//! - A successor asks clients for what it recovers ([`worker::Worker::recovering`]). Otherwise they wait for replies as long as
//!   those take, and publish nothing again that only waits.
//!
//! # What is assumed
//!
//! DDS is reliable: between a reader and a writer that have matched, items come in order and none is missing. A client
//! publishes when it has matched the readers there were when it began. A reader is not called *settled* before writers
//! have matched it and what they wrote before has arrived. Clients publish again several times within
//! `Config::recovery` what a successor asks for. A controller stops before the store can elect another.
//!
//! # Source
//! Vasconcelos, DPSLB (PUC-Rio): slices, assignment, load balancing sessions. Deviates: the cut is taken at positions of
//! writers instead of after a pause, which is why it takes well under a millisecond instead of 400; crashes, late
//! readers and order are our own.

pub mod balance;
mod by_slice;
pub mod client;
mod config;
pub mod controller;
mod ids;
mod message;
mod numbering;
mod positions;
#[cfg(test)]
mod sim;
pub mod transport;
pub mod worker;

pub use by_slice::BySlice;
pub use config::{Config, Order};
pub use ids::{GROUPS, Group, HandoverId, Life, Process, SliceId, Term, WorkerId, Writer};
pub use message::{
    Address, Backlog, Claims, Envelope, Given, Item, Keeps, Message, Past, Progress, TailEntry,
    Taken,
};
pub use numbering::{Numbering, SLICES_MAX};
pub use positions::Positions;
