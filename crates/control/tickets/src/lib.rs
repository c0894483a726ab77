//! Keys of session tickets that the machines of a cluster share.
//!
//! **In**: the cluster's store, or questions of nodes. **Out**: keys in [`Tickets`], from which
//! front doors take them. **Fails** by waiting: keys that were read serve their time, and after
//! that each process uses keys of its own.
//!
//! Each controller looks at the key `tickets/keys` of the store. Its value is the set of all keys
//! ([`TicketKeys`]), sealed as private keys of certificates are. The first controller that finds
//! that a rotation is due replaces the set, if no other one has (compare and swap). A next key is
//! in the store for a whole rotation before its use, so a look a minute is often enough. Nodes ask
//! a controller for the keys of their front doors' names ([`TicketQuestion`]).

mod nodes;
mod store;

pub use equipoise_tls::{TicketKeys, TicketNames, Tickets};
pub use nodes::{TicketAnswer, TicketQuestion};
pub use store::follow_store;
