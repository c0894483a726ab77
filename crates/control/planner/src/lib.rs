//! From policy, inventory and load history to a plan.
//!
//! - In: [`Policy`] (the operator's settings), [`Inventory`] (nodes, names and pools, and their
//!   desired state), [`History`] (reports of nodes and pools), the plan before, and the time that
//!   has passed.
//! - Out: a [`Plan`]: instructions for every level, and scaling decisions, each with its reason.
//! - It cannot fail: invalid input is refused where it enters ([`Policy::checked`],
//!   [`Inventory::new`], [`History::record`]).
//!
//! [`plan`] is a function of its arguments. Its only memory is the previous plan, so that a new
//! leader needs only the plan from the store. Times are durations, never dates, so a clock that
//! jumps changes nothing.
//!
//! | part | decides | file |
//! |---|---|---|
//! | liveness | which nodes take part, and the part of their share | `liveness.rs` |
//! | steering | shares in names, weights of backends | `steering.rs`, `names.rs`, `weights.rs` |
//! | dispatch | keep shares, and the weights of targets | `dispatch.rs` |
//! | elasticity | the number and sizes of a pool's backends | `elastic/` |

mod along;
mod demand;
mod dispatch;
pub mod elastic;
mod elasticity;
mod history;
mod inventory;
mod liveness;
mod names;
mod plan;
mod planner;
mod policy;
mod room;
mod row;
mod steering;
mod weights;

pub use history::{History, Report};
pub use inventory::{
    BackendSpec, Inventory, InventoryRefused, NameSpec, NodeSpec, Permits, PoolSpec,
};
pub use plan::{
    BackendPlan, DispatchPlan, NamePlan, NodePlan, Plan, PlannedLoad, PoolPlan, Share, Standing,
};
pub use planner::{PASSED_MAX, Tick, plan};
pub use policy::{DispatchPolicy, Liveness, Policy, PolicyRefused, Steering};
