//! The controller: measures load, plans, and sends instructions to every level.
//!
//! | comes in | goes out |
//! |---|---|
//! | [`NodeReport`]s, one per node and period, by [`Intake`] | [`Instructions`], one per period |
//! | inventory and policy, from a [`Source`] | the state of the cluster: [`ClusterView`] |
//! | operators' changes to pools and nodes | the plan in the store, fenced by the leader's term |
//!
//! Every node reports to *every* controller, and controllers forward nothing. So all of them know
//! the past, and no knowledge is lost when a controller dies. One controller leads
//! (`equipoise_store::Election`): each period it makes a plan from the previous one and writes it
//! into the store. The others publish the plan that they read there. A node takes instructions from
//! any controller and follows the newest ([`Edition`]).
//!
//! Failure: without a store, a leader or a controller, nodes continue with their last instructions,
//! and report their age. Every refused report has a counted reason ([`ReportRefused`]).
//!
//! | file | job |
//! |---|---|
//! | `report.rs`, `instructions.rs`, `intake.rs` | the contract with nodes, local or remote |
//! | `roll.rs` | the members and their last reports; pure |
//! | `roll/gone.rs` | which members are gone, by which evidence; pure |
//! | `hearing.rs` | judges which members this controller and the others hear; pure |
//! | `listening.rs` | does so each period, and keeps this controller's record in the store |
//! | `roster.rs`, `making.rs` | backends of elastic pools: their executors and their states; pure |
//! | `roster/forgotten.rs` | backends that a member has and the roster does not know |
//! | `candidate.rs` | the loop of a period; winning and losing leadership |
//! | `leader.rs`, `draft.rs` | a period of the leader; the content of its plan |
//! | `condition.rs` | whether plans arrive, and if not, why |
//! | `term.rs` | the leader's term, later than every term that nodes know; pure |
//! | `controller.rs` | start, stop, reading from the store |
//! | `sources.rs` | rates of the clients of each prefix at all nodes; pure |
//! | `wishes.rs` | changes that operators ask for |
//! | `mirror.rs` | a folder of the store, kept in memory |
//! | `pressure.rs` | the time for which a node's work waits |
//! | `recorder.rs` | the history of utilisation, on this machine's clock |

mod candidate;
mod capacity;
mod condition;
mod controller;
mod counts;
mod draft;
mod edition;
mod failing;
mod fault;
mod heard;
mod hearing;
mod instructions;
mod intake;
mod kind;
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
mod settings;
mod shared;
mod sources;
mod term;
mod view;
mod wishes;

pub use condition::Condition;
pub use controller::Controller;
pub use counts::Counted;
pub use edition::Edition;
pub use fault::{Fault, ReportRefused};
pub use instructions::{Enrolled, Instructions, Secret};
pub use intake::{ClusterView, Intake, IntakeError, MemberState, MemberView, StoreView, Tallies};
pub use kind::NodeKind;
pub use making::{Made, MadeState, Making};
pub use options::{ControllerOptions, MadePool, Premises, Source};
pub use pressure::Pressure;
pub use recorder::Recorder;
pub use report::{NodeReport, SharedBackend};
pub use roster::{Entry, Forgotten, Roster, Wanted};
pub use shared::{ControllerError, ControllerHandle};
pub use sources::{SOURCES_REPORTED_MAX, SourceRates, largest};
pub use view::{Figures, LoadFigures};
pub use wishes::SizeWish;
