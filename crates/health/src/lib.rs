//! Health of backends: what is believed of them, and the checks that it rests on.
//!
//! The decisions ([`BackendHealth`], [`ramp`], [`mod@panic`]) are pure; only [`probe`] and [`Checker`] touch
//! a socket or a clock. A backend is out while its checks say so *or* while it is ejected for failing
//! requests; it takes work again when neither holds.

mod check;
mod checker;
mod config;
mod error;
mod named;
pub mod panic;
mod place;
pub mod ramp;
mod state;

pub use check::{CHECK_FIELD, probe};
pub use checker::{CheckReport, Checker, Outcome, Schedule};
pub use config::{ActiveHealth, CheckMethod, HealthCheck, HttpCheck, PassiveHealth};
pub use error::CheckError;
pub use place::{Place, Resolved, ips, is_stand_in, more_telling, stand_in};
pub use state::{BackendHealth, EjectionCause, Verdict};
