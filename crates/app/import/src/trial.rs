//! A trial of a translation beside the old proxy: the copy that runs, the questions for both, and
//! the comparison of their answers. The caller runs the copy and asks.
//!
//! | file | job |
//! |---|---|
//! | `copy.rs` | the translation with other addresses, so that it disturbs nothing |
//! | `questions.rs` | the questions for a front door, from its routes |
//! | `example.rs` | a text that a regular expression matches |
//! | `compare.rs` | answers, and the differences of two |

mod compare;
mod copy;
mod example;
mod questions;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use toml::{Table, Value};

pub use compare::{Comparison, Difference, IGNORED_HEADERS, Likeness, ProxyAnswer, compare};
pub use questions::{HttpQuestion, TrialQuestion};

/// A translation that can be tried.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The addresses of its front doors that can be asked, in the file's order.
    pub doors: Vec<TriedDoor>,
    /// The parts that are not tried, each with its reason.
    pub left_out: Vec<String>,
    config: Table,
}

/// An address of a front door.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedDoor {
    /// The name of the front door.
    pub name: String,
    /// The address at which the old proxy serves the same clients.
    pub old: SocketAddr,
    /// True if clients use TLS.
    pub is_tls: bool,
    /// True if connections begin with a PROXY protocol header.
    pub has_proxy_header: bool,
    /// The questions for both proxies.
    pub questions: Vec<TrialQuestion>,
    /// Number of its table among those of `[[session]]`.
    table: usize,
}

impl Trial {
    /// Plans the trial of a translation. `names` has the names of the certificates in a file.
    ///
    /// # Errors
    /// The text is not TOML.
    pub fn of(text: &str, names: &dyn Fn(&str) -> Vec<String>) -> Result<Trial, toml::de::Error> {
        let config: Table = text.parse()?;
        let (mut doors, mut left_out) = (Vec::new(), Vec::new());
        for (table, door) in tables(&config, "session").enumerate() {
            let name = text_of(door, "name").unwrap_or_default();
            if let Some(why) = obstacle(door) {
                left_out.push(format!("front door {name}: {why}"));
                continue;
            }
            let mut questions = questions::of(door, names, &mut left_out);
            for old in texts(door, "listen").iter().filter_map(|listen| reached(listen)) {
                doors.push(TriedDoor {
                    name: name.to_string(),
                    old,
                    is_tls: door.contains_key("tls"),
                    has_proxy_header: door.get("accept-proxy") == Some(&Value::Boolean(true)),
                    questions: questions.clone(),
                    table,
                });
                // Further addresses have the same options.
                questions.truncate(1);
            }
        }
        for vip in tables(&config, "packet") {
            let address = texts(vip, "vip").join(", ");
            left_out.push(format!("VIP {address}: the packets of clients reach one balancer"));
        }
        Ok(Trial { doors, left_out, config })
    }

    /// The names of the pools with health checks.
    pub fn checked_pools(&self) -> Vec<&str> {
        let checked = tables(&self.config, "pool").filter(|it| it.contains_key("health"));
        checked.filter_map(|it| text_of(it, "name")).collect()
    }
}

/// The reason why a front door cannot be asked.
fn obstacle(door: &Table) -> Option<&'static str> {
    let tls = door.get("tls").and_then(Value::as_table);
    let clients = tls.and_then(|it| it.get("clients")).and_then(Value::as_table);
    let is_required = clients.is_some_and(|it| it.get("required") != Some(&Value::Boolean(false)));
    match text_of(door, "protocol") {
        Some("udp") => Some("a datagram may change something"),
        _ if is_required => Some("its clients need certificates"),
        Some("http") if tls.is_none() && door.contains_key("http2") => {
            Some("its clients use HTTP/2 without TLS")
        }
        _ => None,
    }
}

/// The address at which this machine reaches a listener, which may listen on all addresses.
fn reached(listen: &str) -> Option<SocketAddr> {
    if let Some(port) = listen.strip_prefix("*:") {
        return Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
    }
    let address: SocketAddr = listen.parse().ok()?;
    Some(match address.ip() {
        ip if !ip.is_unspecified() => address,
        ip if ip.is_ipv4() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        _ => (Ipv6Addr::LOCALHOST, address.port()).into(),
    })
}

/// The tables of a list.
fn tables<'a>(of: &'a Table, key: &str) -> impl Iterator<Item = &'a Table> + use<'a> {
    let all = of.get(key).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_table)
}

fn text_of<'a>(of: &'a Table, key: &str) -> Option<&'a str> {
    of.get(key).and_then(Value::as_str)
}

/// The texts of an option, which may have one or a list.
fn texts<'a>(of: &'a Table, key: &str) -> Vec<&'a str> {
    match of.get(key) {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        Some(one) => one.as_str().into_iter().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
