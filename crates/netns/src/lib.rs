//! Hosts on one machine: network namespaces joined by veth pairs, and shares of its processors. For the demo, tests and the lab.
//!
//! In: names, addresses, links. Out: [`Host`]s in which processes and closures run, each with interfaces, routes and
//! sysctls of its own. Fails with what the kernel or `ip` (iproute2, the only program needed) said.
//!
//! A namespace has no name in the file system: it lives as long as its [`Host`] or a process inside. So nothing is left
//! behind by a panic or a SIGKILL, and hosts of tests that run side by side never meet. A person looks into one by a
//! process that runs there: `nsenter --net=/proc/PID/ns/net`.

mod cpu_group;
mod error;
mod guest;
mod host;
mod link;
mod offload;
mod pass;
mod site;

pub use cpu_group::CpuGroup;
pub use error::NetnsError;
pub use guest::Guest;
pub use host::Host;
pub use link::{Switch, veth};
pub use site::{Site, SiteShape};

/// Why namespaces cannot be made here, in words to print; `None` if they can.
pub fn unavailable() -> Option<String> {
    match Host::new("probe") {
        Ok(_) => None,
        Err(error) if !rustix::process::geteuid().is_root() => {
            Some(format!("network namespaces need root ({error})"))
        }
        Err(error) => Some(error.to_string()),
    }
}
