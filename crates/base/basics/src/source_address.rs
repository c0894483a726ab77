use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address of this machine from which the kernel's routes send to `to`. Nothing is sent.
///
/// # Errors
/// There is no route, or no address of that family.
pub fn source_towards(to: impl Into<SocketAddr>) -> io::Result<IpAddr> {
    let to = to.into();
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_reaches_its_own_address_from_that_address() {
        let own: IpAddr = Ipv4Addr::LOCALHOST.into();
        assert_eq!(source_towards((own, 9)).expect("loopback"), own);
    }
}
