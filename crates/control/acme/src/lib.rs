//! Certificates from an ACME directory (RFC 8555), such as Let's Encrypt.
//!
//! **In**: the names of front doors, the directory, and a folder. **Out**: a file with certificate
//! and key for each name ([`AcmeFolder`]), which front doors follow like any other, and the state
//! of each name ([`OrderState`]). The answers to challenges go to
//! [`Challenges`](equipoise_tls::Challenges), from which the session level reads them.
//! **Fails** by waiting: the last certificate stays in its file, and the next attempt comes later
//! ([`pace`]).
//!
//! One order runs at a time. Each certificate is for one name, so that a name that cannot be
//! verified keeps no other name from its certificate.

mod account;
mod client;
mod folder;
mod options;
mod order;
mod orders;
mod pace;
mod thread;

pub use folder::AcmeFolder;
pub use options::{Acme, Method, OrderedName};
pub use orders::{OrderState, Orders, Stage};
