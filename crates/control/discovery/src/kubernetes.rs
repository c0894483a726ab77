//! The ready endpoints of a service in Kubernetes: its EndpointSlices, listed and watched.
//!
//! A watch only tells that another list is due, which makes the version of a resource, its deletion
//! and a watch that is too old one case.
//!
//! # Source
//! Kubernetes API, discovery.k8s.io/v1, EndpointSlice; "API Concepts", Efficient detection of
//! changes.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use equipoise_http_client::HttpError;
use hyper::header::AUTHORIZATION;
use serde::Deserialize;
use tokio::time::timeout;

use crate::backend::{Found, HostPort};
use crate::http::Client;
use crate::list::BYTES_MAX;
use crate::options::KubernetesOptions;
use crate::source::{Read, Source, SourceError};

/// Longest time of a watch, in seconds; then the endpoints are listed again.
const WATCH_S: u64 = 60;
/// Longest time of any other step.
const WITHIN: Duration = Duration::from_secs(10);
/// Slices of a page of a list.
const PAGE: usize = 100;

/// The ready endpoints of a service.
pub(crate) struct KubernetesSource {
    client: Client,
    /// The request, without the parameters of pages and watches.
    url: String,
    port: Option<String>,
    /// The version of the last list.
    version: String,
}

/// An answer of the API server that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubernetesError {
    #[error("the answer is not a list of EndpointSlices: {0}")]
    Form(serde_json::Error),
    #[error("the service has several ports ({0}); accepted: `port` with one of them")]
    Ports(String),
    #[error("the service has no port {0:?}; its ports are {1}")]
    NoPort(String, String),
    #[error("endpoint {0}")]
    Endpoint(#[from] crate::backend::WrongAddress),
    #[error("the slices need more than {0} bytes")]
    Large(u64),
}

#[derive(Deserialize)]
struct SliceList {
    metadata: ListMeta,
    items: Vec<EndpointSlice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct EndpointSlice {
    /// Absent or null without endpoints.
    endpoints: Option<Vec<Endpoint>>,
    ports: Option<Vec<Port>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    /// All are of one endpoint; clients use the first.
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Conditions,
    target_ref: Option<Target>,
    node_name: Option<String>,
    zone: Option<String>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    /// Absent: unknown, which counts as ready.
    ready: Option<bool>,
}

#[derive(Deserialize)]
struct Target {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Port {
    name: Option<String>,
    port: Option<u16>,
}

impl KubernetesSource {
    pub(crate) fn new(options: KubernetesOptions) -> KubernetesSource {
        let KubernetesOptions { access, namespace, service, port } = options;
        let base = access.url.trim_end_matches('/');
        let url = format!(
            "{base}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
             ?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        );
        let client = Client::new(access, (AUTHORIZATION, "Bearer "));
        KubernetesSource { client, url, port, version: String::new() }
    }

    async fn list(&mut self) -> Result<Vec<EndpointSlice>, SourceError> {
        let (mut slices, mut next, mut left) = (Vec::new(), String::new(), BYTES_MAX);
        loop {
            let mut url = format!("{}&limit={PAGE}", self.url);
            if !next.is_empty() {
                url.push_str(&format!("&continue={next}"));
            }
            let answer = self.client.get(&url, WITHIN).await?;
            let body = match answer.body(left, WITHIN).await {
                Err(HttpError::Large { .. }) => Err(KubernetesError::Large(BYTES_MAX))?,
                body => body?,
            };
            left -= body.len() as u64;
            let page: SliceList = serde_json::from_slice(&body).map_err(KubernetesError::Form)?;
            slices.extend(page.items);
            if page.metadata.next.is_empty() {
                self.version = page.metadata.resource_version;
                return Ok(slices);
            }
            next = page.metadata.next;
        }
    }
}

fn endpoints(
    slices: Vec<EndpointSlice>,
    wanted: Option<&str>,
) -> Result<Vec<Found>, KubernetesError> {
    let mut found = Vec::new();
    for slice in slices {
        let all = slice.endpoints.unwrap_or_default();
        let ready = all.into_iter().filter(|it| it.conditions.ready.unwrap_or(true));
        let ready: Vec<_> = ready.collect();
        if ready.is_empty() {
            continue;
        }
        let port = port(&slice.ports.unwrap_or_default(), wanted)?;
        for endpoint in ready {
            found.extend(backend(endpoint, port)?);
        }
    }
    Ok(found)
}

/// The wanted port of a slice, or its only one.
fn port(ports: &[Port], wanted: Option<&str>) -> Result<u16, KubernetesError> {
    let shown = |it: &Port| {
        let (name, port) = (it.name.as_deref().unwrap_or_default(), it.port.unwrap_or_default());
        if name.is_empty() { port.to_string() } else { format!("{name} ({port})") }
    };
    let all = || ports.iter().map(shown).collect::<Vec<_>>().join(", ");
    let found = match (wanted, ports) {
        (None, [only]) => only.port,
        (None, _) => return Err(KubernetesError::Ports(all())),
        (Some(wanted), _) => {
            let is_it = |it: &&Port| {
                it.name.as_deref() == Some(wanted)
                    || it.port.is_some_and(|port| port.to_string() == wanted)
            };
            ports.iter().find(is_it).and_then(|it| it.port)
        }
    };
    let wanted = || wanted.unwrap_or_default().to_string();
    found.ok_or_else(|| KubernetesError::NoPort(wanted(), all()))
}

fn backend(endpoint: Endpoint, port: u16) -> Result<Option<Found>, KubernetesError> {
    let Some(host) = endpoint.addresses.first() else { return Ok(None) };
    let address = HostPort::of(host, port)?;
    let labels = [("zone", endpoint.zone), ("node", endpoint.node_name)];
    let labels = labels.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?)));
    let labels: BTreeMap<_, _> = labels.collect();
    let name = endpoint.target_ref.and_then(|target| target.name);
    Ok(Some(Found { name, labels, ..Found::at(address) }))
}

#[async_trait]
impl Source for KubernetesSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        let slices = self.list().await?;
        Ok(endpoints(slices, self.port.as_deref())?.into())
    }

    async fn changed(&mut self) -> Result<(), SourceError> {
        let url = format!(
            "{}&watch=true&resourceVersion={}&timeoutSeconds={WATCH_S}",
            self.url, self.version
        );
        let mut events = self.client.get(&url, WITHIN).await?;
        // The server ends a watch by itself. An event says that something changed, or that the
        // version is too old.
        let within = Duration::from_secs(WATCH_S) + WITHIN;
        match timeout(within, events.line(BYTES_MAX)).await {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    const SLICES: &str = r#"{"kind": "EndpointSliceList", "metadata": {"resourceVersion": "7"}, "items": [
        {"metadata": {"name": "web-a"}, "addressType": "IPv4",
         "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "admin", "port": 9090}],
         "endpoints": [
            {"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n1", "zone": "a",
             "targetRef": {"kind": "Pod", "name": "web-1"}},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
            {"addresses": ["10.0.0.3", "10.0.0.4"], "conditions": {}}]},
        {"metadata": {"name": "web-b"}, "addressType": "IPv6", "ports": null, "endpoints": null}]}"#;

    fn of(port: Option<&str>) -> Result<Vec<Found>, KubernetesError> {
        let list: SliceList = serde_json::from_str(SLICES).unwrap();
        assert_eq!((&*list.metadata.resource_version, &*list.metadata.next), ("7", ""));
        endpoints(list.items, port)
    }

    #[test]
    fn ready_endpoints_are_backends_at_the_wanted_port() {
        for port in ["http", "8080"] {
            let found = of(Some(port)).unwrap();
            let seen: Vec<_> = found.iter().map(|it| it.address.to_string()).collect();
            assert_eq!(seen, ["10.0.0.1:8080", "10.0.0.3:8080"]);
            assert_eq!(found[0].name.as_deref(), Some("web-1"));
            assert_eq!((&*found[0].labels["zone"], &*found[0].labels["node"]), ("a", "n1"));
        }
    }

    #[test]
    fn a_port_that_is_not_clear_is_an_error() {
        assert_eq!(
            of(None).unwrap_err().to_string(),
            "the service has several ports (http (8080), admin (9090)); accepted: `port` with one of them"
        );
        assert_eq!(
            of(Some("web")).unwrap_err().to_string(),
            "the service has no port \"web\"; its ports are http (8080), admin (9090)"
        );
    }
}
