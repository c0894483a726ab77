//! The healthy instances of a service in Consul, by blocking queries.
//!
//! # Source
//! Consul's HTTP API: "Health", List Service Instances for Service; "Blocking Queries".

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_core::Weight;
use hyper::body::Bytes;
use hyper::header::HeaderName;
use serde::Deserialize;

use crate::backend::{Found, HostPort};
use crate::http::Client;
use crate::list::BYTES_MAX;
use crate::options::ConsulOptions;
use crate::source::{Read, Source, SourceError};

/// Longest time of a blocking query. Consul adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(60);
/// Longest time of any other step.
const WITHIN: Duration = Duration::from_secs(10);

/// The healthy instances of a service.
pub(crate) struct ConsulSource {
    client: Client,
    /// The request, without the parameters of a blocking query.
    url: String,
    /// `X-Consul-Index` of the last response.
    index: u64,
}

/// An answer of Consul that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsulError {
    #[error("the answer is not that of Consul: {0}")]
    Form(serde_json::Error),
    #[error("the answer has no X-Consul-Index")]
    Index,
    #[error("instance {id}: {source}")]
    Instance { id: String, source: crate::backend::WrongAddress },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Instance {
    node: Node,
    service: Service,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    node: String,
    address: String,
    #[serde(default)]
    datacenter: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
    #[serde(rename = "ID")]
    id: String,
    /// Empty: the node's.
    #[serde(default)]
    address: String,
    port: u16,
    meta: Option<BTreeMap<String, String>>,
    weights: Option<Weights>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: u32,
}

impl ConsulSource {
    pub(crate) fn new(options: ConsulOptions) -> ConsulSource {
        let base = options.access.url.trim_end_matches('/');
        let mut url = format!("{base}/v1/health/service/{}?passing=true", options.service);
        for (name, value) in [("tag", &options.tag), ("dc", &options.datacenter)] {
            if let Some(value) = value {
                url.push_str(&format!("&{name}={value}"));
            }
        }
        let token = HeaderName::from_static("x-consul-token");
        ConsulSource { client: Client::new(options.access, (token, "")), url, index: 0 }
    }

    /// Sends the query; a blocking one if `url` says so. Returns the index and the body.
    async fn query(&mut self, url: &str, within: Duration) -> Result<(u64, Bytes), SourceError> {
        let answer = self.client.get(url, within).await?;
        let index = answer.header("x-consul-index").and_then(|it| it.parse().ok());
        let index = index.ok_or(ConsulError::Index)?;
        Ok((index, answer.body(BYTES_MAX, WITHIN).await?))
    }
}

fn instances(body: &[u8]) -> Result<Vec<Found>, ConsulError> {
    let all: Vec<Instance> = serde_json::from_slice(body).map_err(ConsulError::Form)?;
    all.into_iter().map(instance).collect()
}

fn instance(Instance { node, service }: Instance) -> Result<Found, ConsulError> {
    let host = if service.address.is_empty() { node.address } else { service.address };
    let address = HostPort::of(&host, service.port)
        .map_err(|source| ConsulError::Instance { id: service.id.clone(), source })?;
    let mut labels = service.meta.unwrap_or_default();
    labels.insert("node".into(), node.node);
    labels.insert("datacenter".into(), node.datacenter);
    let passing = service.weights.map_or(1, |weights| weights.passing.clamp(1, 1000));
    let weight = u16::try_from(passing).ok().and_then(|it| Weight::new(it).ok());
    let (name, weight) = (Some(service.id), weight.unwrap_or_default());
    Ok(Found { name, weight, labels, ..Found::at(address) })
}

#[async_trait]
impl Source for ConsulSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        let url = self.url.clone();
        let (index, body) = self.query(&url, WITHIN).await?;
        self.index = index;
        Ok(instances(&body)?.into())
    }

    /// A blocking query returns when the index is another one, or after its time. The set is then
    /// read again without an index, so that an index that goes backwards does no harm.
    async fn changed(&mut self) -> Result<(), SourceError> {
        let (index, wait) = (self.index.max(1), WAIT.as_secs());
        let url = format!("{}&index={index}&wait={wait}s", self.url);
        self.query(&url, WAIT + WAIT / 16 + WITHIN).await?;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_the_address_of_its_service_or_else_of_its_node() {
        let body = br#"[
            {"Node": {"ID": "x", "Node": "n1", "Address": "10.0.0.1", "Datacenter": "dc1", "Meta": null},
             "Service": {"ID": "web-1", "Service": "web", "Tags": ["a"], "Address": "", "Port": 80,
                         "Meta": {"zone": "a"}, "Weights": {"Passing": 7, "Warning": 1}},
             "Checks": []},
            {"Node": {"Node": "n2", "Address": "10.0.0.2", "Datacenter": "dc1"},
             "Service": {"ID": "web-2", "Service": "web", "Address": "2001:db8::2", "Port": 81,
                         "Meta": null, "Weights": {"Passing": 5000, "Warning": 1}}}]"#;
        let found = instances(body).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|it| (it.address.to_string(), it.name.clone().unwrap(), it.weight.get()))
            .collect();
        assert_eq!(
            seen,
            [
                ("10.0.0.1:80".into(), "web-1".into(), 7),
                ("[2001:db8::2]:81".into(), "web-2".into(), 1000)
            ]
        );
        assert_eq!((&*found[0].labels["zone"], &*found[0].labels["node"]), ("a", "n1"));
        assert_eq!(instances(b"[]").unwrap(), []);
        assert!(
            instances(b"{}")
                .unwrap_err()
                .to_string()
                .starts_with("the answer is not that of Consul")
        );
    }
}
