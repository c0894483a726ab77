//! Places where an API is served.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Address of an API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// `host:port` of a TCP listener.
    Tcp(String),
    /// `host:port` of a TCP listener with TLS.
    Tls(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tcp(authority) => write!(f, "http://{authority}"),
            Endpoint::Tls(authority) => write!(f, "https://{authority}"),
        }
    }
}

/// An endpoint and the reason for its choice, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the API.
    pub endpoint: Endpoint,
    /// The source of the address, such as `from --api`.
    pub origin: String,
    /// Advice for the operator if no process answers there.
    pub advice: String,
}

impl From<Endpoint> for Place {
    fn from(endpoint: Endpoint) -> Place {
        let advice = "start one with `equipoise run FILE`, or name the API of another with --api SOCKET or --config FILE";
        Place { endpoint, origin: String::new(), advice: advice.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)?;
        if self.origin.is_empty() { Ok(()) } else { write!(f, " ({})", self.origin) }
    }
}

/// The text is neither a path nor the URL of a server.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is neither the path of a unix socket nor http://HOST:PORT or https://HOST:PORT")]
pub struct BadEndpoint(String);

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        let url = |rest: &str, endpoint: fn(String) -> Endpoint| {
            let authority = rest.trim_end_matches('/');
            let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            match port {
                Some(Ok(_)) if !authority.contains('/') => Ok(endpoint(authority.into())),
                _ => Err(BadEndpoint(text.into())),
            }
        };
        if let Some(rest) = text.strip_prefix("http://") {
            return url(rest, Endpoint::Tcp);
        }
        if let Some(rest) = text.strip_prefix("https://") {
            return url(rest, Endpoint::Tls);
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Endpoint::Unix(path.into()));
        }
        if text.is_empty() || text == "unix:" || text.contains("://") {
            return Err(BadEndpoint(text.into()));
        }
        let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
        if !text.contains('/') && text.rsplit_once(':').is_some_and(is_port) {
            return Ok(Endpoint::Tcp(text.into()));
        }
        Ok(Endpoint::Unix(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_path_or_an_http_address() {
        assert_eq!("/run/x.sock".parse(), Ok(Endpoint::Unix("/run/x.sock".into())));
        assert_eq!("unix:/run/x.sock".parse(), Ok(Endpoint::Unix("/run/x.sock".into())));
        assert_eq!("unix:x:1234".parse(), Ok(Endpoint::Unix("x:1234".into())));
        assert_eq!("http://127.0.0.1:9000/".parse(), Ok(Endpoint::Tcp("127.0.0.1:9000".into())));
        assert_eq!("https://a:9000/".parse(), Ok(Endpoint::Tls("a:9000".into())));
        assert_eq!("127.0.0.1:9000".parse(), Ok(Endpoint::Tcp("127.0.0.1:9000".into())));
        assert_eq!("[::1]:9000".parse(), Ok(Endpoint::Tcp("[::1]:9000".into())));
        assert_eq!("./x:9000".parse(), Ok(Endpoint::Unix("./x:9000".into())));
        for bad in [
            "",
            "https://127.0.0.1",
            "ftp://127.0.0.1:1",
            "http://127.0.0.1",
            "http://h:1/path",
            "http://h:99999",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }
}
