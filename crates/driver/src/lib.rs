//! What adds and removes the backends of an elastic pool.
//!
//! ```text
//! leader's roster --desired state--> scaler::roster (pure) --Task--> Driver --> process, script, webhook
//!    what exists <-- watch of PoolView <-------- outcomes and events <-----'
//! ```
//!
//! A [`Driver`] is asked for one backend, or to take one away; it keeps no count. The [`Scaler`] of a pool makes what exists
//! what the leader desires, tries again what failed, and writes down what it made before it makes it, so that nothing is
//! leaked when equipoise is killed. What a backend is used for is none of this crate's business: the wiring gives the
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
pub use scaler::record::{Record, RecordError, RecordFile, RecordKeeper, Recorded, RecordedState};
pub use scaler::recovery::{Damage, Opened};
pub use scaler::view::{BackendState, ElasticBackend, PoolView};
pub use scaler::{ChangeError, Limits, Scaler, ScalerOptions, StartError, Stopped};
pub use webhook::{Token, WebhookDriver, WebhookError, WebhookOptions};
