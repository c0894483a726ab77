//! The slice level: a stream of data items, balanced over workers by moving slices of it.
//!
//! Clients publish items; each is of a slice, and each slice is owned by one worker. The controller moves slices from
//! *givers* to *takers*. Clients know nothing of it.
//!
//! - In: items in each writer's order, messages, `now`. Out: what to send, to store, to execute, in order. There is no
//!   socket, clock or thread here; [`transport::Driver`] runs a worker over any [`transport::Transport`].
//! - [`worker::Worker`] and [`controller::Controller`] are the two sides of the protocol; [`balance::Balancer`] says
//!   which slices should move.
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
//! | TAIL | giver to taker | items above C of writers that matched the taker's readers late |
//! | CLOSED | giver to controller | all is drained, and the taker lacks nothing |
//!
//! Each message names its handover, may come late, twice or never, and is said again until there is an answer. The
//! states are tables (`worker/*_table.rs`, `controller/handover.rs`), each tested whole.
//!
//! # What holds
//!
//! - Planned moves, and crashes of controllers: every item that was published is executed once. In strict order items of
//!   one writer in one slice are executed in their order, one after the other, across all workers.
//! - Crashes of workers, **as it is meant; the simulation still finds runs in which it does not hold** (the ignored tests
//!   of `sim`): what a lost worker had not committed is executed when its client publishes it again, which
//!   clients do until there is a reply. What it had executed without saying so, between the last claims that were
//!   heard and the crash, may be executed *twice*; clients drop the second reply. Order holds among what is published
//!   once.
//! - A worker stops by itself (*fenced*) before it is given up, so that two owners never execute at a time.
//!
//! It is assumed that DDS is reliable, that a client publishes when it has matched the readers there were when it began,
//! and that a reader is not called *settled* before writers have matched it and what they wrote before has arrived.
//!
//! # Source
//! Vasconcelos, DPSLB (PUC-Rio): slices, assignment, load balancing sessions. Deviates: the cut is taken at positions of
//! writers instead of after a pause, which is why it takes well under a millisecond instead of 400; crashes, late
//! readers and order are our own.

pub mod balance;
pub mod client;
pub mod controller;
mod ids;
mod message;
mod positions;
#[cfg(test)]
mod sim;
pub mod transport;
pub mod worker;

pub use ids::{GROUPS, Group, HandoverId, Life, SliceId, Term, WorkerId, Writer};
pub use message::{Address, Claims, Config, Envelope, Item, Message, Order, Progress, TailEntry};
pub use positions::Positions;
