//! TLS: certificates from PEM, the choice among them by name and key type, and the versions and
//! suites of a profile. In: texts and options. Out: configurations of rustls, or errors that name
//! the part at fault. No file is read and no socket is used here. [`Challenges`] has the answers of
//! this process to an ACME directory.

mod automatic;
mod certificate;
mod challenges;
mod client;
mod clients;
mod error;
mod fault;
mod files;
mod names;
mod ocsp;
mod peer;
mod profile;
mod server;
mod ticket_keys;
mod tickets;
mod verifier;

pub use automatic::AutomaticName;
pub use certificate::{Certificate, CertificateFiles, KeyKind, chain_names, expiry, valid_until};
pub use challenges::{ChallengeAnswer, Challenges};
pub use client::{ClientOptions, ClientTls};
pub use clients::{ClientIdentity, Clients, alternative_names, common_name, is_subject};
pub use error::{CertificateError, Part};
pub use fault::{Fault, FaultKind};
pub use files::FileError;
pub use ocsp::OcspError;
pub use peer::{NotThePeer, PeerCertificate, PeerCertificates, PeerIdentity, PeerTls};
pub use profile::Profile;
pub use server::{Protocols, ServerTls, TlsOptions};
pub use ticket_keys::{NoRandomNumbers, TicketKeys};
pub use tickets::{TicketNames, Tickets};
pub use verifier::Trust;
