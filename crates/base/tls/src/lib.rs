//! TLS: certificates from PEM, the choice among them by name and key type, and the versions and
//! suites of a profile. In: texts and options. Out: configurations of rustls, or errors that name
//! the part at fault. No file is read and no socket is used here.

mod certificate;
mod clients;
mod error;
mod files;
mod names;
mod profile;
mod server;

pub use certificate::{Certificate, CertificateFiles, KeyKind};
pub use clients::{ClientIdentity, Clients};
pub use error::{CertificateError, Part};
pub use files::FileError;
pub use profile::Profile;
pub use server::{Protocols, ServerTls, TlsOptions};
