//! The nouns of equipoise and its pure algorithms.
//!
//! Nothing here owns a socket, a file, a clock or a thread: `now` and the random
//! number generator are arguments (ARCHITECTURE.md, invariant 2).

mod backend;
mod backend_address;
pub mod concurrency;
pub mod delegation;
pub mod hash;
pub mod load;
mod log_line;
mod pool;
pub mod scheduler;
mod source;
mod state;
pub mod trace;
mod weight;

pub use backend::Backend;
pub use backend_address::BackendAddress;
pub use log_line::{Combined, LineForm, LineFormat, LogField, LogFields, LogLine, Rfc3339};
pub use pool::{Generation, Pool};
pub use scheduler::{
    Ask, Candidate, Loads, Prepared, Scheduler, SchedulerKind, ServiceTime, UnknownScheduler,
};
pub use source::SourcePrefix;
pub use state::{AdminState, Eligibility, Health, eligibility};
pub use weight::{Weight, WeightOutOfRange};
