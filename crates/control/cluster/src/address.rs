use std::fmt;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// The address of a controller: `HOST:PORT`. Its certificate must be for the host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerAddress {
    host: String,
    port: u16,
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a controller's address; accepted: HOST:PORT, as in c1.example:9911, 10.0.0.1:9911 or [2001:db8::1]:9911"
)]
pub struct NotAnAddress(String);

impl ControllerAddress {
    /// The address of this host and port.
    ///
    /// # Errors
    /// [`NotAnAddress`] if the host is not valid, or the port is 0.
    pub fn new(host: &str, port: u16) -> Result<ControllerAddress, NotAnAddress> {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
            .parse()
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn server_name(&self) -> ServerName<'static> {
        let name = ServerName::try_from(self.host.clone());
        name.expect("it was one when the address was read")
    }
}

impl FromStr for ControllerAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<ControllerAddress, NotAnAddress> {
        let wrong = || NotAnAddress(text.chars().take(120).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) if v6.parse::<std::net::Ipv6Addr>().is_ok() => v6,
            None if !host.contains([':', '[', ']']) => host,
            _ => return Err(wrong()),
        };
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        ServerName::try_from(host).map_err(|_| wrong())?;
        Ok(ControllerAddress { host: host.to_string(), port })
    }
}

impl fmt::Display for ControllerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ControllerAddress { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl fmt::Debug for ControllerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controllers_address_has_a_host_and_a_port() {
        for good in ["c1.example:9911", "10.0.0.1:9911", "[2001:db8::1]:1", "localhost:65535"] {
            assert_eq!(good.parse::<ControllerAddress>().unwrap().to_string(), good);
        }
        for bad in
            ["", "c1", "c1:", ":9911", "c1:0", "c1:65536", "2001:db8::1:9911", "[c1]:1", "a b:1"]
        {
            assert!(bad.parse::<ControllerAddress>().is_err(), "{bad}");
        }
    }
}
