//! Hosts on one machine: network namespaces that veth pairs connect, and CPU quotas. For the demo,
//! tests and the lab.
//!
//! In: names, addresses, links. Out: [`Host`]s that run processes and closures, each with its own
//! interfaces, routes and sysctls. Fails with the error of the kernel or of `ip` (iproute2, the
//! only program needed).
//!
//! A namespace has no name in the file system: it lives as long as its [`Host`] or a process
//! inside. A panic or a SIGKILL therefore leaves nothing behind, and tests that run in parallel do
//! not interfere. To inspect a namespace, use a process inside: `nsenter --net=/proc/PID/ns/net`.

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

/// Returns the reason why this process cannot create namespaces; `None` if it can.
pub fn unavailable() -> Option<String> {
    match Host::new("probe") {
        Ok(_) => None,
        Err(error) if !rustix::process::geteuid().is_root() => {
            Some(format!("network namespaces need root ({error})"))
        }
        Err(error) => Some(error.to_string()),
    }
}
