#![doc = include_str!("../README.md")]

pub mod aes;
mod block;
mod builder;
mod cell;
mod controller;
mod delta;
mod error;
mod forest;
mod form;
mod hash;
mod hosts;
mod key;
mod memory;
mod pog;
#[cfg(unix)]
pub mod publish;
mod sdlb;
mod sizes;
mod sync;
mod union;

pub use builder::PogBuilder;
pub use cell::Cell;
pub use controller::{PogController, Update};
pub use delta::{CellWrite, Delta, Scope};
pub use error::{ApplyError, BuildError, UpdateError};
pub use form::{Fingerprint, Form, Plain};
pub use hash::{AesHash, KeyHash, LANES, Seed, SipHash13};
pub use hosts::{
    EntryWrite, HostId, HostTable, Moved, NO_HOST, SharesError, TABLE_BITS_MAX, maglev, shares,
};
pub use key::{FiveTupleV4, FiveTupleV6, Key, MacAddress, OpenFlowMatch};
pub use pog::Pog;
pub use sdlb::{Change, Host, Sdlb, SdlbError};
pub use sizes::{KEYS_MAX, Sizes};
