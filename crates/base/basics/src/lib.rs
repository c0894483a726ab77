//! Small parts that every floor uses, each written once.
//!
//! **In**: paths, locks, errors, counts of failures. **Out**: bounded contents and durable files
//! ([`files`]), guards ([`lock`]), bounded logs ([`LogLimit`],
//! [`OncePerMinute`]),
//! waits ([`Backoff`], [`Waits`]), texts ([`with_causes`],
//! [`rough`], [`two_units`]). **Fails** with [`std::io::Error`]; nothing here panics or logs.

mod backoff;
mod causes;
mod child;
mod durations;
pub mod files;
mod lock;
mod log_limit;

pub use backoff::{Backoff, Waits};
pub use causes::with_causes;
pub use child::die_with_parent;
pub use durations::{rough, two_units};
pub use lock::lock;
pub use log_limit::{LogLimit, OncePerMinute};
