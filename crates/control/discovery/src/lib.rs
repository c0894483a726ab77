//! Where the backends of pools come from, beside the configuration file.
//!
//! **In**: for each pool a [`Discover`]: a source and its bounds. **Out**: the pool's backends
//! ([`Found`]), and a notification when they change. **Fails** by keeping the last good set: a
//! source that fails, or that answers something unusable, removes no backend.
//! [`DiscoveryState`] has the reason and the age of the set. A file has the sets for the next
//! process.
//!
//! A source implements [`Source`]: it reads a whole set, and waits until another read may give
//! another set. The rest is the same for all sources ([`Discovery`]): a set is checked,
//! sorted, bounded and compared with the last one.

mod backend;
mod background;
mod consul;
mod discovery;
pub mod dns;
mod etcd;
mod file;
mod http;
mod kept;
mod kubernetes;
mod list;
mod open;
mod options;
mod saved;
mod source;

pub use backend::{Found, HostPort};
pub use discovery::{Discovery, DiscoveryState};
pub use options::{
    Access, ConsulOptions, Discover, HttpOptions, KubernetesOptions, NameOptions, Records,
    SourceOptions,
};
pub use source::{Read, Source, SourceError};
