//! A backend as a source reports it, and the form of a set. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use equipoise_core::{BackendAddress, Weight};
use serde::{Deserialize, Serialize};

/// A backend that a source reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its address, which identifies it.
    pub address: HostPort,
    /// Its name; `None`: its address.
    pub name: Option<String>,
    /// Its share.
    pub weight: Weight,
    /// It gets new work only while no other kind of backend can take any.
    pub backup: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// The address of a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HostPort {
    /// An IP address and a port.
    Ip(SocketAddr),
    /// `HOST:PORT`, in lower case.
    Host(String),
}

/// A text that is no address of a backend.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a backend's address; accepted: IP:PORT or HOST:PORT, such as \"10.0.0.11:8080\""
)]
pub struct WrongAddress(String);

impl FromStr for HostPort {
    type Err = WrongAddress;

    fn from_str(text: &str) -> Result<HostPort, WrongAddress> {
        match text.parse() {
            Ok(BackendAddress::Ip(address)) => Ok(HostPort::Ip(address)),
            Ok(BackendAddress::Host(host)) => Ok(HostPort::Host(host.to_ascii_lowercase())),
            Ok(BackendAddress::Unix(_)) | Err(()) => {
                Err(WrongAddress(text.chars().take(80).collect()))
            }
        }
    }
}

impl HostPort {
    /// The address of a host, which is an IP address or a name, and a port.
    ///
    /// # Errors
    /// [`WrongAddress`].
    pub(crate) fn of(host: &str, port: u16) -> Result<HostPort, WrongAddress> {
        match host.parse::<IpAddr>() {
            Ok(ip) if port > 0 => Ok(HostPort::Ip((ip, port).into())),
            _ => format!("{host}:{port}").parse(),
        }
    }
}

impl TryFrom<String> for HostPort {
    type Error = WrongAddress;

    fn try_from(text: String) -> Result<HostPort, WrongAddress> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> String {
        address.to_string()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostPort::Ip(address) => address.fmt(f),
            HostPort::Host(host) => f.write_str(host),
        }
    }
}

impl Found {
    /// A backend at this address, with the default weight and without labels.
    pub fn at(address: HostPort) -> Found {
        let (name, weight, backup, labels) = (None, Weight::DEFAULT, false, BTreeMap::new());
        Found { address, name, weight, backup, labels }
    }

    /// Whether it has all of these labels, `KEY=VALUE`.
    fn has_all(&self, wanted: &[String]) -> bool {
        let has = |label: &String| {
            label
                .split_once('=')
                .is_some_and(|(key, value)| self.labels.get(key).is_some_and(|own| own == value))
        };
        wanted.iter().all(has)
    }
}

/// A set has more backends than the pool may have.
#[derive(Debug, thiserror::Error)]
#[error(
    "{count} backends, and `backends-max` is {max}; accepted: a larger `backends-max`, or `labels` that select fewer"
)]
pub(crate) struct TooMany {
    count: usize,
    max: usize,
}

/// Brings a set into its form: backends with the wanted labels, sorted by address, each address
/// once (the first counts), and each name valid and once.
pub(crate) fn settled(
    mut found: Vec<Found>,
    labels: &[String],
    max: usize,
) -> Result<Vec<Found>, TooMany> {
    found.retain(|backend| backend.has_all(labels));
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found.dedup_by(|next, first| next.address == first.address);
    if found.len() > max {
        return Err(TooMany { count: found.len(), max });
    }
    let mut names = std::collections::HashSet::new();
    for backend in &mut found {
        backend.name.take_if(|name| !is_name(name) || !names.insert(name.clone()));
    }
    Ok(found)
}

/// Whether the configuration would accept it as the name of a backend.
fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn at(address: &str) -> Found {
        Found::at(address.parse().unwrap())
    }

    fn named(address: &str, name: &str) -> Found {
        Found { name: Some(name.into()), ..at(address) }
    }

    #[test]
    fn a_set_is_sorted_and_has_each_address_and_each_name_once() {
        let long = "x".repeat(65);
        let set = vec![
            at("web.internal:80"),
            named("10.0.0.2:80", "b"),
            named("10.0.0.1:80", "b"),
            named("10.0.0.3:80", "no name"),
            named("10.0.0.4:80", &long),
            Found { weight: Weight::new(7).unwrap(), ..at("10.0.0.2:80") },
        ];
        let found = settled(set, &[], 9).unwrap();
        let seen: Vec<_> =
            found.iter().map(|it| (it.address.to_string(), it.name.as_deref())).collect();
        let seen: Vec<_> = seen.iter().map(|(address, name)| (&**address, *name)).collect();
        assert_eq!(
            seen,
            [
                ("10.0.0.1:80", Some("b")),
                ("10.0.0.2:80", None),
                ("10.0.0.3:80", None),
                ("10.0.0.4:80", None),
                ("web.internal:80", None)
            ]
        );
        assert_eq!(found[1].weight, Weight::DEFAULT, "the first of an address counts");
    }

    #[test]
    fn labels_select_and_the_rest_is_bounded() {
        let with = |address: &str, zone: &str| Found {
            labels: [("zone".to_string(), zone.to_string())].into(),
            ..at(address)
        };
        let set = vec![with("10.0.0.1:80", "a"), with("10.0.0.2:80", "b"), at("10.0.0.3:80")];
        let of = |labels: &[&str], max| {
            let labels: Vec<_> = labels.iter().map(ToString::to_string).collect();
            settled(set.clone(), &labels, max).map(|found| found.len())
        };
        assert_eq!(of(&["zone=a"], 1).unwrap(), 1);
        assert_eq!(of(&["zone=a", "zone=b"], 9).unwrap(), 0);
        assert_eq!(
            of(&[], 2).unwrap_err().to_string(),
            "3 backends, and `backends-max` is 2; accepted: a larger `backends-max`, or `labels` that select fewer"
        );
    }

    #[test]
    fn an_address_is_an_ip_or_a_host_with_a_port() {
        assert_eq!("WEB.internal:80".parse::<HostPort>().unwrap().to_string(), "web.internal:80");
        for text in ["", "web", "10.0.0.1", "10.0.0.1:0", "unix:/run/app.sock", "http://a:80"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }
}
