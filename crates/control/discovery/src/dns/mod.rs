//! Names of the DNS: the addresses of a name ([`Lookups`]), and sources of backends.

mod lookup;
mod lookups;
mod source;
mod weights;

pub use lookup::{Found, LookupError};
pub use lookups::Lookups;
pub(crate) use source::DnsSource;
