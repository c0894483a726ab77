//! Handover of sockets and states from a process to the process that replaces it.
//!
//! **In**: one end of a pair of unix sockets, and the sockets of each level. **Out**: messages with
//! descriptors (`SCM_RIGHTS`), and the store from which levels take their listening sockets
//! ([`Inherited`]). **Fails** with [`ChannelError`]; a successor that cannot read a message ends,
//! and the process that it would have replaced continues.
//!
//! The messages are those of [`HandoverMessage`]:
//!
//! | | the running process | its successor |
//! |---|---|---|
//! | 1 | `Sockets` of each group, `Prepare` | reads its file, adopts sockets, binds new ones |
//! | 2 | | `Prepared` or `Failed` |
//! | 3 | releases levels that one process can have; `Released` | starts these levels |
//! | 4 | | `Ready` or `Failed` |
//! | 5 | stops accepting; `Committed`, `Clients`, `Begin` | accepts |
//! | 6 | writes its connections to [`Departing`] until it exits | shows them in `status` |

mod channel;
mod departing;
mod message;
mod sockets;
mod systemd;

pub use channel::{Channel, ChannelError};
pub use departing::Departing;
pub use message::{
    AddedBackend, BackendState, HandoverMessage, Replaced, TicketKeysText, UdpClient, VERSION,
};
pub use sockets::{Inherited, Listening, SocketName};
pub use systemd::activated;
