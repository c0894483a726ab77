//! Certificates from an ACME directory (RFC 8555), such as Let's Encrypt.
//!
//! **In**: the names of front doors, the directory, and a folder. **Out**: a file with certificate
//! and key for each name ([`AcmeFolder`]), which front doors follow like any other, and the state
//! of each name ([`OrderState`]). The answers to challenges go to
//! [`Challenges`](equipoise_tls::Challenges), from which the session level reads them.
//! **Fails** by waiting: the last certificate stays in its file, and the next attempt comes later
//! ([`pace`]).
//!
//! In a cluster, its controllers share account, certificates and answers in their store
//! ([`ClusterMember`]): one of them orders, and all answer the challenges and get the certificates.
//! A controller writes those into its folder, as if it had ordered them. Nodes that are not
//! controllers ask them for both ([`NodeDesk`], [`Controllers`]).
//!
//! One order runs at a time. Each certificate is for one name, so that a name that cannot be
//! verified keeps no other name from its certificate.

mod account;
mod answer;
mod attempt;
mod client;
mod desk;
mod folder;
mod home;
mod member;
mod names;
mod node;
mod options;
mod order;
mod order_error;
mod orders;
mod pace;
mod shared;
mod task;
mod thread;

pub use desk::{NodeAnswer, NodeDesk, NodeQuestion};
pub use folder::AcmeFolder;
pub use names::{OrderState, Stage};
pub use node::Controllers;
pub use options::{Acme, Method, OrderedName, TextRecords};
pub use orders::{CertificateSharing, ClusterMember, Orders};
