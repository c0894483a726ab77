//! The address of a backend as an operator writes it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a backend as a file or a source of backends states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendAddress {
    /// IP address and port.
    Ip(SocketAddr),
    /// Host name to resolve, with a port: `web.internal:80`.
    Host(String),
    /// Path of a unix socket: `unix:/run/app.sock`.
    Unix(PathBuf),
}

/// Size of `sun_path`, its final NUL included (unix(7)).
const UNIX_PATH_BYTES: usize = 108;

impl FromStr for BackendAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fits =
                path.starts_with('/') && !path.ends_with('/') && path.len() < UNIX_PATH_BYTES;
            return if fits { Ok(BackendAddress::Unix(path.into())) } else { Err(()) };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return if address.port() == 0 { Err(()) } else { Ok(BackendAddress::Ip(address)) };
        }
        let (host, port) = text.rsplit_once(':').ok_or(())?;
        let port_ok = port.parse::<u16>().is_ok_and(|port| port > 0);
        let label_ok = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let labels = host.strip_suffix('.').unwrap_or(host);
        // A name with a number as its last label is a mistyped IPv4 address (10.0.0.300).
        let numeric =
            labels.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if port_ok && !numeric && host.len() <= 253 && labels.split('.').all(label_ok) {
            Ok(BackendAddress::Host(text.to_string()))
        } else {
            Err(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_address_is_an_ip_or_a_name_with_a_port() {
        for text in ["10.0.0.1:80", "[::1]:80"] {
            assert!(matches!(text.parse(), Ok(BackendAddress::Ip(_))), "{text}");
        }
        for text in ["web:80", "web.internal:80", "web.internal.:80", "a_b.c-d:65535"] {
            assert!(matches!(text.parse(), Ok(BackendAddress::Host(_))), "{text}");
        }
        for text in [
            "",
            "web",
            ":80",
            "web:",
            "web:0",
            "web:65536",
            "10.0.0.1",
            "10.0.0.1:0",
            "10.0.0.300:80",
            "::1:80",
            "http://web:80",
            "web..internal:80",
            "we b:80",
        ] {
            assert_eq!(text.parse::<BackendAddress>(), Err(()), "{text}");
        }
    }
}
