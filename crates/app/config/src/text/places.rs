//! Strings that stand for addresses, ports and files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPrefix(pub IpAddr, pub u8);

impl FromStr for AddressPrefix {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length.parse::<u8>().map_err(|_| ())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.unwrap_or(bits);
        if length <= bits { Ok(AddressPrefix(address, length)) } else { Err(()) }
    }
}

/// The addresses and lengths of prefixes, for the levels.
pub(crate) fn prefixes(texts: Option<Vec<AddressPrefix>>) -> Vec<(IpAddr, u8)> {
    let texts = texts.unwrap_or_default().into_iter();
    texts.map(|AddressPrefix(address, length)| (address, length)).collect()
}

/// Listen addresses of a front door. `*:80` stands for all addresses of both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some(port) = text.strip_prefix("*:") else {
            return text.parse().map(|address| Listen(vec![address])).map_err(|_| ());
        };
        let port: u16 = port.parse().map_err(|_| ())?;
        let every: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        Ok(Listen(every.map(|address| (address, port).into()).into()))
    }
}

/// Listen address of the API besides its unix socket; `None` if there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApiListen(pub Option<SocketAddr>);

impl FromStr for ApiListen {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "off" {
            return Ok(ApiListen(None));
        }
        text.parse().map(|address| ApiListen(Some(address))).map_err(|_| ())
    }
}

/// `free` (`None`), or the first and last port of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortRange(pub Option<(u16, u16)>);

impl FromStr for PortRange {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "free" {
            return Ok(PortRange(None));
        }
        let (first, last) = text.split_once('-').ok_or(())?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or(());
        let (first, last) = (port(first)?, port(last)?);
        if first <= last { Ok(PortRange(Some((first, last)))) } else { Err(()) }
    }
}

/// Destination of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Standard error, with the other logs.
    #[default]
    Stderr,
    /// Standard output.
    Stdout,
    /// A syslog server.
    Syslog(SyslogTo),
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// Address of a syslog server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTo {
    /// Its socket on this machine.
    Unix(PathBuf),
    /// Its UDP address.
    Udp(SocketAddr),
}

impl FromStr for AccessLog {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "stderr" => Ok(AccessLog::Stderr),
            "stdout" => Ok(AccessLog::Stdout),
            "syslog" => Ok(AccessLog::Syslog(SyslogTo::Unix("/dev/log".into()))),
            text if text.starts_with("syslog:") => match &text["syslog:".len()..] {
                path if path.starts_with('/') && !path.ends_with('/') => {
                    Ok(AccessLog::Syslog(SyslogTo::Unix(path.into())))
                }
                address => match address.parse::<SocketAddr>() {
                    Ok(address) if address.port() != 0 => {
                        Ok(AccessLog::Syslog(SyslogTo::Udp(address)))
                    }
                    _ => Err(()),
                },
            },
            // A bare word is more likely a typing mistake than a file in the working directory.
            path if path.contains('/') && !path.ends_with('/') => Ok(AccessLog::File(path.into())),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_every_address_of_both_families() {
        let listen = |text: &str| text.parse().map(|Listen(addresses)| addresses);
        let both = ["0.0.0.0:80", "[::]:80"].map(|address| address.parse().unwrap());
        assert_eq!(listen("*:80"), Ok(both.to_vec()));
        assert_eq!(listen("[::]:80"), Ok(both[1..].to_vec()));
        for text in ["", "*", "*:", ":80", "*:99999", "web:80", "**:80", "80"] {
            assert_eq!(listen(text), Err(()), "{text}");
        }
    }
}
