//! Small parts that every floor uses, each written once.
//!
//! **In**: paths, locks, errors, counts of failures, prefixes. **Out**: bounded contents and
//! durable files ([`files`]), guards ([`lock`]), bounded logs ([`LogLimit`], [`OncePerMinute`]),
//! waits ([`Backoff`], [`Waits`]), texts ([`with_causes`], [`rough`], [`two_units`], [`counted`],
//! [`explain_listen`]),
//! the addresses of a prefix ([`AddressRange`]) and of this machine ([`source_towards`]). **Fails**
//! with [`std::io::Error`]; nothing here panics or logs.

mod address_range;
mod backoff;
mod causes;
mod child;
mod counted;
mod durations;
pub mod files;
mod listening;
mod lock;
mod log_limit;
mod source_address;

pub use address_range::{AddressRange, mapped};
pub use backoff::{Backoff, Waits};
pub use causes::with_causes;
pub use child::die_with_parent;
pub use counted::counted;
pub use durations::{rough, two_units};
pub use listening::{Transport, explain_listen};
pub use lock::lock;
pub use log_limit::{LogLimit, OncePerMinute};
pub use source_address::source_towards;
