//! The controller: measures, plans, sends every level its instructions.
//!
//! | comes in | goes out |
//! |---|---|
//! | [`NodeReport`]s, one a period from each node, through [`Intake`] | [`Instructions`], one a period |
//! | what there is and what is wanted of it, from a [`Source`] | how the cluster stands: [`ClusterView`] |
//! | operators' wishes about pools | the plan in the store, fenced by the leader's term |
//!
//! Every node reports to *every* controller, and controllers forward nothing: so each of them knows the past, whoever
//! of them leads next, and a controller that dies takes no knowledge with it. One leads (`equipoise_store::Election`):
//! it plans each period, from the plan before, and writes the plan into the store; the others publish what they read
//! there. A node takes instructions from any of them and goes by the newest ([`Edition`]).
//!
//! It fails softly: without a store, a leader or a controller, nodes go on with their last instructions, whose age is
//! said. What is refused has a counted reason ([`ReportRefused`]).
//!
//! | file | job |
//! |---|---|
//! | `report.rs`, `instructions.rs`, `intake.rs` | the contract with nodes, in one process or over a network |
//! | `roll.rs` | who is there and what they said; pure |
//! | `roll/gone.rs` | which members are gone, by which evidence; pure |
//! | `hearing.rs` | which members this controller and the others hear, and what may follow; pure |
//! | `listening.rs` | that, each period, and this controller's record of it in the store |
//! | `roster.rs`, `making.rs` | backends of elastic pools: which member makes which, and what came of it; pure |
//! | `roster/forgotten.rs` | backends that a roster does not know, and some member has |
//! | `candidate.rs` | the loop: each period, and the way to the office and out of it |
//! | `leader.rs`, `draft.rs` | a period of the leader; what is planned in it |
//! | `condition.rs` | whether plans come, and if not, why |
//! | `term.rs` | the leader's term, above all that nodes were told; pure |
//! | `controller.rs` | start, stop, what is read from the store |
//! | `sources.rs` | what clients of each prefix bring to all nodes; pure |
//! | `wishes.rs` | what operators said |
//! | `mirror.rs` | a folder of the store, kept in memory |
//! | `pressure.rs` | how long a node's work waits |
//! | `recorder.rs` | the resource utilisation repository on this machine's clock |

mod candidate;
mod capacity;
mod causes;
mod condition;
mod controller;
mod counts;
mod draft;
mod hearing;
mod instructions;
mod intake;
mod leader;
mod listening;
mod making;
mod mirror;
mod options;
mod pressure;
mod recorder;
mod report;
mod roll;
mod roster;
mod sources;
mod term;
mod view;
mod wishes;

pub use causes::with_causes;
pub use condition::Condition;
pub use controller::{Controller, ControllerError, ControllerHandle};
pub use counts::Counted;
pub use instructions::{Edition, Enrolled, Instructions, Secret};
pub use intake::{ClusterView, Intake, IntakeError, MemberState, MemberView, StoreView, Tallies};
pub use making::{Made, MadeState, Making};
pub use options::{ControllerOptions, MadePool, Premises, Source};
pub use pressure::Pressure;
pub use recorder::Recorder;
pub use report::{Fault, NodeKind, NodeReport, ReportRefused, SharedBackend};
pub use roster::{Entry, Forgotten, Roster, Wanted};
pub use sources::{SOURCES_REPORTED_MAX, SourceRates, largest};
pub use view::{Figures, LoadFigures};
pub use wishes::SizeWish;
