//! From policy, inventory and load history to a plan.
//!
//! - In: [`Policy`] (what the operator set), [`Inventory`] (what there is and what is wanted of it), [`History`]
//!   (what nodes and pools said), the plan before, and how much time has passed.
//! - Out: a [`Plan`]: instructions for every level, and scaling decisions, each with its reason.
//! - It cannot fail: what is wrong in the input is refused where it comes in ([`Policy::checked`], [`Inventory::new`],
//!   [`History::record`]).
//!
//! [`plan`] is a function of its arguments. All that it remembers is in the plan before, so that a new leader goes on
//! where the old one stopped with nothing but the plan from the store. Time comes as lengths, never as a date: a
//! clock that jumps changes nothing.
//!
//! | part | decides | file |
//! |---|---|---|
//! | liveness | which nodes take part, and how much of their share they get | `liveness.rs` |
//! | steering | shares of nodes in names, weights of backends in pools | `steering.rs`, `room.rs`, `names.rs`, `weights.rs` |
//! | dispatch | what overloaded nodes keep, and who takes the rest | `dispatch.rs` |
//! | elasticity | how many backends of which size a pool has | `elastic/` |

mod along;
mod dispatch;
pub mod elastic;
mod history;
mod inventory;
mod liveness;
mod names;
mod plan;
mod planner;
mod policy;
mod room;
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
