//! Errors of listening on an address, with the cause and a remedy.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::address_range::mapped;

/// Transport protocol of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Descriptors of processes to look at before giving up: a busy proxy may have a million.
const DESCRIPTORS_MAX: usize = 20_000;

/// Adds a remedy to an error of listening on an address. For an address in use that is the process
/// which listens there, as far as `/proc` shows it; for a privileged port, the missing privilege.
/// Other errors stay as they are, and the kind stays.
///
/// # Source
/// proc(5): `/proc/net/tcp` has the inode of each socket, `/proc/PID/fd` those of each process.
pub fn explain_listen(source: io::Error, address: SocketAddr, transport: Transport) -> io::Error {
    let hint = match source.kind() {
        io::ErrorKind::AddrInUse if address.port() != 0 => in_use(address, transport),
        io::ErrorKind::PermissionDenied if address.port() < first_unprivileged_port() => {
            format!(
                "ports below {} need root or CAP_NET_BIND_SERVICE; in a unit of systemd: \
                 AmbientCapabilities=CAP_NET_BIND_SERVICE",
                first_unprivileged_port()
            )
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => return source,
    };
    io::Error::new(source.kind(), format!("{source}: {hint}"))
}

fn first_unprivileged_port() -> u16 {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    setting.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

fn in_use(address: SocketAddr, transport: Transport) -> String {
    named(holder(address, transport), address.port(), transport)
}

/// The hint for a port that `holder` has, or a process that cannot be seen.
fn named(holder: Option<Holder>, port: u16, transport: Transport) -> String {
    match holder {
        Some(holder) if holder.pid == std::process::id() => {
            "this process listens there already, for another part of its configuration".to_owned()
        }
        Some(Holder { pid, name }) => format!(
            "process {pid} ({name}) listens there; accepted: an address and port that are free"
        ),
        None => {
            let option = if transport == Transport::Tcp { "-ltnp" } else { "-lunp" };
            format!(
                "another process listens there (as root, try: ss {option} 'sport = :{port}'); \
                 accepted: an address and port that are free"
            )
        }
    }
}

/// A process that has a socket.
struct Holder {
    pid: u32,
    name: String,
}

fn holder(address: SocketAddr, transport: Transport) -> Option<Holder> {
    let links: Vec<String> =
        inodes(address, transport).iter().map(|inode| format!("socket:[{inode}]")).collect();
    if links.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // This process first: its own front doors conflict most often.
    let descriptors = std::iter::once(std::process::id()).chain(ids).flat_map(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.map(move |entry| (pid, entry.path()))
    });
    let has_one = |link: &std::path::Path| {
        fs::read_link(link).is_ok_and(|target| links.iter().any(|it| target.as_os_str() == &**it))
    };
    let mut looked_at = descriptors.take(DESCRIPTORS_MAX);
    let (pid, _) = looked_at.find(|(_, descriptor)| has_one(descriptor))?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    Some(Holder { pid, name: name.trim().to_owned() })
}

/// The inodes of the sockets that listen on an address in this thread's network namespace.
fn inodes(address: SocketAddr, transport: Transport) -> Vec<u64> {
    let files = match transport {
        Transport::Tcp => ["tcp", "tcp6"],
        Transport::Udp => ["udp", "udp6"],
    };
    let texts = files.map(|file| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"));
        listening(&text.unwrap_or_default(), address, transport)
    });
    texts.concat()
}

/// State of a listening TCP socket, and of a UDP socket without a peer.
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";

/// The inodes of a text as `/proc/net/tcp` has it. Its fields: number, local address, peer's
/// address, state, queues, timer, retransmissions, user, timeout, inode.
fn listening(text: &str, address: SocketAddr, transport: Transport) -> Vec<u64> {
    let state = if transport == Transport::Tcp { LISTEN } else { UNCONNECTED };
    let conflicts = |at: SocketAddr| {
        let [at_ip, ip] = [at.ip(), address.ip()].map(mapped);
        // `::` takes the port of IPv4 addresses too, unless it is restricted to IPv6.
        at.port() == address.port()
            && (at_ip == ip || at.ip().is_unspecified() || address.ip().is_unspecified())
    };
    let rows = text.lines().skip(1).map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let found = rows.filter_map(|row| {
        let is_there = *row.get(3)? == state && conflicts(local(row.get(1)?)?);
        is_there.then(|| row.get(9)?.parse().ok()).flatten()
    });
    found.collect()
}

/// Parses `0100007F:1F90`: words of 32 bits, each in the machine's byte order, and the port.
fn local(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let words: Option<Vec<[u8; 4]>> = (0..ip.len() / 8)
        .map(|word| u32::from_str_radix(ip.get(word * 8..word * 8 + 8)?, 16).ok())
        .map(|word| word.map(u32::to_ne_bytes))
        .collect();
    let ip = match words?.as_slice() {
        [word] => IpAddr::from(Ipv4Addr::from(*word)),
        words => {
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            IpAddr::from(Ipv6Addr::from(bytes))
        }
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn sockets_that_conflict_are_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n\
             1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0\n\
             2: 0100007F:1F90 0100007F:C000 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0\n\
             3: 00000000000000000000000001000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 14 1 0 100 0 0 10 0\n";
        for (address, inodes) in [
            ("127.0.0.1:8080", &[11][..]),
            ("127.0.0.2:8080", &[]),
            ("0.0.0.0:8080", &[11]),
            ("[::]:8080", &[11]),
            ("10.0.0.1:80", &[12]),
            ("[::1]:443", &[14]),
            ("[::2]:443", &[]),
        ] {
            let found = listening(table, address.parse().unwrap(), Transport::Tcp);
            assert_eq!(found, inodes, "{address}");
        }
    }

    #[test]
    fn the_process_that_has_the_port_is_found() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0")).unwrap();
        for (address, transport) in [
            (tcp.local_addr().unwrap(), Transport::Tcp),
            (udp.local_addr().unwrap(), Transport::Udp),
        ] {
            let found = holder(address, transport).expect("it is this process");
            assert_eq!(found.pid, std::process::id());
            let error = explain_listen(io::ErrorKind::AddrInUse.into(), address, transport);
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(error.to_string().contains("this process listens there already"), "{error}");
        }
        let hidden = named(None, 8080, Transport::Tcp);
        assert!(hidden.contains("ss -ltnp 'sport = :8080'"), "{hidden}");
    }

    #[test]
    fn a_missing_privilege_and_a_foreign_address_are_explained() {
        let denied = |port| {
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let source = io::ErrorKind::PermissionDenied.into();
            explain_listen(source, address, Transport::Tcp).to_string()
        };
        assert!(denied(65535).ends_with("permission denied"), "{}", denied(65535));
        if first_unprivileged_port() > 1 {
            assert!(
                denied(1).contains("AmbientCapabilities=CAP_NET_BIND_SERVICE"),
                "{}",
                denied(1)
            );
        }
        let address = SocketAddr::from(([192, 0, 2, 1], 80));
        let source = io::ErrorKind::AddrNotAvailable.into();
        let error = explain_listen(source, address, Transport::Tcp).to_string();
        assert!(error.ends_with(": this machine has no such address"), "{error}");
    }
}
