//! Certificates of front doors, which controllers give to nodes.

use async_trait::async_trait;
use serde_json::Value;

/// Answers nodes that ask for certificates. The process that runs the server implements it.
#[async_trait]
pub trait CertificateDesk: std::fmt::Debug + Send + Sync {
    /// Answers the question of a node, within the time in which nodes wait for answers. `None`: it
    /// is not understood.
    async fn answer(&self, node: &str, question: Value) -> Option<Value>;
}

/// For processes without certificates.
#[derive(Clone, Copy, Debug)]
pub struct NoCertificates;

#[async_trait]
impl CertificateDesk for NoCertificates {
    async fn answer(&self, _: &str, _: Value) -> Option<Value> {
        None
    }
}
