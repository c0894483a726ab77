//! Pools that grow and shrink: L3B's Resource Management Module.
//!
//! ```text
//! PoolSample (in flight, queued, limits) --demand.rs--> demand --decide.rs--> Scaling, with its reason
//!     --(a driver, not here)--> backends come and go
//! ```
//!
//! Utilisation is the demand over the sum of the backends' concurrency limits. The session level
//! holds each backend at its limit, and further requests wait in a queue, so both are counted and
//! neither is estimated. A learnt limit includes headroom in which the backend serves no more. Its
//! knee, the number in flight at which it serves most, is therefore used instead.
//!
//! # Source
//! L3B (Ristov, Cvetkov, Gusev 2016) names the RMM and leaves it as future work. The end of L3B's
//! region, the number in flight at which `V = N/T` is largest, is the concurrency limit here. Its
//! efficiency is speed over price.

mod decide;
mod sizes;

pub use crate::demand::{BackendSample, PoolHistory, PoolSample};
pub use crate::elasticity::{Elasticity, ElasticityRefused, Mode, ScheduledMin, Size, Target};
pub(crate) use decide::decide;
pub use decide::{FullRate, Scaling, ScalingPlan};
