//! Creates and removes the backends of elastic pools.
//!
//! ```text
//! leader's roster --desired state--> scaler::roster (pure) --Task--> Driver --> process, script, webhook
//!    what exists <-- watch of PoolView <-------- outcomes and events <-----'
//! ```
//!
//! A [`Driver`] creates or removes one backend at a time and keeps no count. The [`Scaler`] of a
//! pool compares the backends that exist with the desired state, asks the driver for the
//! difference, and retries what failed. The scaler stores nothing: the leader's roster names a
//! backend before a driver creates it, so nothing is leaked when equipoise is killed.
//!
//! This crate does not use the backends. The binary gives the published backends to the levels, and
//! the leader decides when a draining backend is removed.

mod driver;
mod exec;
mod options;
mod process;
mod scaler;
mod template;
mod webhook;
mod wire;

pub use driver::{Added, Ask, Driver, DriverError, Event, Listed};
pub use equipoise_basics::Backoff;
pub use exec::{ExecDriver, ExecError, ExecOptions};
pub use options::{DriverOptions, OptionRefused};
pub use process::{LogOptions, Ports, ProcessDriver, ProcessError, ProcessOptions, SizeLimit};
pub use scaler::desire::{Desired, DesiredState, Wish};
pub use scaler::view::{BackendState, ElasticBackend, PoolView};
pub use scaler::{ChangeError, Limits, Scaler, ScalerOptions, Stopped};
pub use webhook::{Token, WebhookDriver, WebhookError, WebhookOptions};
