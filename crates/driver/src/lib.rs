//! What adds and removes the backends of an elastic pool.
//!
//! ```text
//! planner's Scaling --scaler::roster (pure)--> Task --scaler (tokio task)--> Driver --> process, script, webhook
//!         what exists <-- watch of PoolView <-------- outcomes and events <-----'
//! ```
//!
//! A [`Driver`] is asked for one backend, or to take one away; it keeps no count. The [`Scaler`] of a pool keeps what exists,
//! tries again what failed, waits until what is to leave is drained, and writes down what it made before it
//! makes it, so that nothing is leaked when equipoise is killed. What a backend is used for is none of this
//! crate's business: the wiring gives the published backends to the levels, and says when one has nothing left in flight.

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
pub use scaler::desire::{Desired, Wish};
pub use scaler::record::{Record, RecordError, RecordFile, RecordKeeper, Recorded, RecordedState};
pub use scaler::recovery::{Damage, Opened};
pub use scaler::view::{BackendState, ElasticBackend, PoolView};
pub use scaler::{ChangeError, Limits, Scaler, ScalerOptions, StartError, Stopped};
pub use webhook::{Token, WebhookDriver, WebhookError, WebhookOptions};
