//! Health of backends: active checks, passive ejection, and the resulting state.
//!
//! The decisions ([`BackendHealth`], [`ramp`], [`mod@panic`]) are pure; only [`Checker`] uses
//! sockets and clocks. A backend is out of use while its checks fail *or* while it
//! is ejected for failed requests. It is in use again when neither holds.

mod checker;
pub mod checks;
mod config;
mod error;
mod fields;
mod named;
pub mod panic;
mod place;
mod probe;
pub mod ramp;
mod secure;
mod state;

pub use checker::{CheckReport, Checker, Outcome, Schedule};
pub use checks::HealthCheck;
pub use config::{ActiveHealth, PassiveHealth};
pub use error::CheckError;
pub use fields::CHECK_FIELD;
pub use place::{Place, Resolved, ips, is_stand_in, more_telling, stand_in};
pub use secure::CertificateSeen;
pub use state::{BackendHealth, EjectionCause, Verdict};
