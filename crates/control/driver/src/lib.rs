//! What adds and removes the backends of an elastic pool.
//!
//! ```text
//! leader's roster --desired state--> scaler::roster (pure) --Task--> Driver --> process, script, webhook
//!    what exists <-- watch of PoolView <-------- outcomes and events <-----'
//! ```
//!
//! A [`Driver`] is asked for one backend, or to take one away; it keeps no count. The [`Scaler`] of a pool makes what exists
//! what the leader desires, and tries again what failed. It writes nothing down: the roster names a backend before a driver
//! is asked for it, so that nothing is leaked when equipoise is killed. What a backend is used for is none of this crate's business: the wiring gives the
//! published backends to the levels, and the leader decides when one that drains is to be taken away.

mod backoff;
mod driver;
mod exec;
mod options;
mod process;
mod scaler;
mod template;
mod webhook;
mod wire;

pub use backoff::Backoff;
pub use driver::{Added, Ask, Driver, DriverError, Event, Listed};
pub use exec::{ExecDriver, ExecError, ExecOptions};
pub use options::{DriverOptions, OptionRefused};
pub use process::{LogOptions, Ports, ProcessDriver, ProcessError, ProcessOptions, SizeLimit};
pub use scaler::desire::{Desired, DesiredState, Wish};
pub use scaler::view::{BackendState, ElasticBackend, PoolView};
pub use scaler::{ChangeError, Limits, Scaler, ScalerOptions, Stopped};
pub use webhook::{Token, WebhookDriver, WebhookError, WebhookOptions};
