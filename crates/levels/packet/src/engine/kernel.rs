//! State of the kernel on which replies under nat depend.

use std::fs;

/// Whether the kernel forwards packets from an interface; true for a missing interface, which may
/// appear later.
pub(super) fn forwards(interface: &str, v6: bool) -> bool {
    is_on(if v6 { "ipv6" } else { "ipv4" }, interface, "forwarding")
}

/// Whether the kernel routes packets from an interface that have one of its own IPv4 addresses as
/// their source; true for a missing interface.
pub(super) fn accepts_local(interface: &str) -> bool {
    is_on("ipv4", "all", "accept_local") || is_on("ipv4", interface, "accept_local")
}

fn is_on(family: &str, interface: &str, setting: &str) -> bool {
    let file = format!("/proc/sys/net/{family}/conf/{interface}/{setting}");
    fs::read_to_string(file).map_or(true, |text| text.trim() != "0")
}
