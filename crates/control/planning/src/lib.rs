//! Planning in one process: measures load, runs the controller if the configuration asks for one,
//! and applies plans.
//!
//! ```text
//! monitor (thread) --utilisation--> reports, each period --> controller --instructions--> weights of pools
//! level's counters --meter--^                ^-- premises: file and pools
//! ```
//!
//! **In**: a [`PlanningConfig`], counters and states of the session level ([`Measured`]). **Out**:
//! weights, shares and drains for that level ([`Steered`]), elastic backends ([`Planner::joined`]),
//! peers and shares of names. **Fails**: a controller that cannot start stops no traffic. Pools
//! keep their weights, and elastic pools keep their number of backends, which are created again if
//! they are missing; `equipoise plan` shows the reason. If no pool asks for a controller, only the
//! monitor runs and keeps a history of utilisation.

mod complaint;
mod config;
mod error;
mod follow;
mod held;
mod level;
mod limit_share;
mod meter;
mod monitor;
mod peers;
mod planner;
mod planning_config;
mod rosters;
mod saved;
mod scaling;
mod seat;
mod shares;

pub use config::{Declaration, Maker, NamesByLoad, Planning};
pub use error::PlanningError;
pub use level::{
    BackendNow, LearningBackend, LimitDemand, Measured, PoolNow, Refused, SessionLevel, Steered,
};
pub use meter::{BackendCounts, PermitCounts, QueueCounts};
pub use monitor::{begin, capacity};
pub use peers::Learnt;
pub use planner::{
    ControllerNow, LEAVE_PATIENCE, NoOffice, Planner, PlannerOptions, ReadDeclaration,
};
pub use planning_config::PlanningConfig;
pub use rosters::JoinedBackend;
pub use seat::{addresses, look_out, member};
pub use shares::{PlannedShare, PlannedShares};
