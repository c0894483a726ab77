//! The rows of the comparison and the goal of each.

use anyhow::{Result, bail};

use crate::peers::Proxy;

/// A file that the upstream serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) path: &'static str,
    pub(crate) length: usize,
}

pub(crate) const KB_1: Object = Object { path: "/1k", length: 1 << 10 };
pub(crate) const KB_100: Object = Object { path: "/100k", length: 100 << 10 };
pub(crate) const MB_1: Object = Object { path: "/1m", length: 1 << 20 };
pub(crate) const OBJECTS: [Object; 3] = [KB_1, KB_100, MB_1];
/// [`KB_1`], of which the upstream delays some responses by 50 ms.
const KB_1_SLOW_01: Object = Object { path: "/slow-01", length: 1 << 10 };
const KB_1_SLOW_1: Object = Object { path: "/slow-1", length: 1 << 10 };

/// The answer to a gRPC call, which the upstream has in its configuration.
const CALL: Object = Object { path: "/grpc", length: 32 };

/// The protocol of the proxies in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Tcp,
}

/// TLS at the front doors of a row, 1.3 with every load here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Ecdsa,
    Rsa,
}

impl Tls {
    /// The name of its certificate's file.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Tls::Ecdsa => "ecdsa.pem",
            Tls::Rsa => "rsa.pem",
        }
    }
}

/// The load of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// wrk: every connection sends its next request when it has the answer to the last.
    Closed,
    /// h2load: HTTP/2, as many streams in flight as a closed load has connections.
    Streams { per_connection: u32 },
    /// The same with gRPC calls: a message in each request, and one in each response.
    Calls { per_connection: u32 },
    /// A new TLS connection for each request.
    Handshakes { resumed: bool },
    /// Requests at a share of HAProxy's saturation rate, however fast they are answered.
    Open { percent: u32 },
    /// Connections that made one request each and then say nothing.
    Idle,
}

/// The figure of a row's goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    CpuPerRequest,
    LatencyP99,
    MemoryPerConnection,
}

/// The goal of equipoise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this share of the figure of the row's first proxy.
    ShareOfFirst { figure: Figure, at_most: f64 },
    /// At most so many bytes.
    Bytes { at_most: f64 },
}

impl Goal {
    pub(crate) fn figure(self) -> Figure {
        match self {
            Goal::ShareOfFirst { figure, .. } => figure,
            Goal::Bytes { .. } => Figure::MemoryPerConnection,
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// In the order of the first repetition. The others are compared with the first.
    pub(crate) proxies: &'static [Proxy],
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<Tls>,
    /// The CPU time that the proxy may use, as a share of the time that passes.
    pub(crate) quota: Option<f64>,
    pub(crate) object: Object,
    /// `upstream` of equipoise's pool.
    pub(crate) sharing: &'static str,
    pub(crate) load: Load,
    /// Load that is not measured, before a closed load that is.
    pub(crate) warm_up_seconds: u64,
    pub(crate) goal: Goal,
}

/// equipoise beside its peers.
const PEERS: &[Proxy] = &[Proxy::Haproxy, Proxy::Nginx, Proxy::Equipoise];
/// equipoise without and with concurrency limits.
const LIMITS: &[Proxy] = &[Proxy::Unlimited, Proxy::Stated, Proxy::Learnt];

/// equipoise without and with features that no request uses.
const FEATURES: &[Proxy] = &[Proxy::Equipoise, Proxy::Features];

impl Row {
    /// The proxies that must reach the goal.
    pub(crate) fn judged(&self) -> impl Iterator<Item = Proxy> {
        self.proxies.iter().copied().skip(1).filter(|proxy| proxy.is_equipoise())
    }

    /// Whether the proxies speak HTTP/2 to the upstream.
    pub(crate) fn is_http2_upstream(&self) -> bool {
        self.sharing == HTTP2
    }

    /// Whether clients speak HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        matches!(self.load, Load::Streams { .. } | Load::Calls { .. })
    }
}

/// HTTP/2 to the upstream, as `upstream` of equipoise's pool.
const HTTP2: &str = "http2";

const WARM_UP_SECONDS: u64 = 1;
/// For a limit to be learnt: while it grows, it holds back many of the load's connections.
const LEARNING_SECONDS: u64 = 8;

const fn cpu(at_most: f64) -> Goal {
    Goal::ShareOfFirst { figure: Figure::CpuPerRequest, at_most }
}

/// The first row. The others name their differences from it.
const BASE: Row = Row {
    name: "http-1k",
    title: "HTTP, 1 KB responses, exclusive upstream sessions",
    proxies: PEERS,
    protocol: Protocol::Http,
    tls: None,
    quota: None,
    object: KB_1,
    sharing: "exclusive",
    load: Load::Closed,
    warm_up_seconds: WARM_UP_SECONDS,
    goal: cpu(0.85),
};

pub(crate) const ROWS: [Row; 25] = [
    BASE,
    Row {
        name: "http-1k-equal-rate",
        title: "HTTP, 1 KB responses at 70 % of HAProxy's saturation rate, exclusive upstream sessions",
        load: Load::Open { percent: 70 },
        ..BASE
    },
    Row {
        name: "http-1k-quota",
        title: "HTTP, 1 KB responses, exclusive upstream sessions, the proxy at half a core",
        quota: Some(0.5),
        ..BASE
    },
    Row {
        name: "http-1k-multiplexed",
        title: "HTTP, 1 KB responses, equipoise with multiplexed upstream sessions",
        sharing: "multiplexed",
        goal: cpu(0.62),
        ..BASE
    },
    Row {
        name: "http-1k-multiplexed-quota",
        title: "HTTP, 1 KB responses, equipoise with multiplexed upstream sessions, the proxy at half a core",
        quota: Some(0.5),
        sharing: "multiplexed",
        goal: cpu(0.6),
        ..BASE
    },
    Row {
        name: "http-1k-slow-01",
        title: "HTTP, 1 KB responses, 0.1 % of them after 50 ms, equipoise with multiplexed upstream sessions",
        object: KB_1_SLOW_01,
        sharing: "multiplexed",
        goal: cpu(0.65),
        ..BASE
    },
    Row {
        name: "http-1k-slow-1",
        title: "HTTP, 1 KB responses, 1 % of them after 50 ms, equipoise with multiplexed upstream sessions",
        object: KB_1_SLOW_1,
        sharing: "multiplexed",
        goal: cpu(0.75),
        ..BASE
    },
    Row {
        name: "http-100k",
        title: "HTTP, 100 KB responses, exclusive upstream sessions",
        object: KB_100,
        goal: cpu(0.52),
        ..BASE
    },
    Row {
        name: "tls-1k",
        title: "HTTPS (TLS 1.3), 1 KB responses, kept-open connections",
        tls: Some(Tls::Ecdsa),
        ..BASE
    },
    Row {
        name: "tls-100k",
        title: "HTTPS (TLS 1.3), 100 KB responses, kept-open connections",
        tls: Some(Tls::Ecdsa),
        object: KB_100,
        ..BASE
    },
    Row {
        name: "tls-handshakes-ecdsa",
        title: "HTTPS (TLS 1.3), a full handshake for each 1 KB response, ECDSA P-256",
        tls: Some(Tls::Ecdsa),
        load: Load::Handshakes { resumed: false },
        goal: cpu(1.0),
        ..BASE
    },
    Row {
        name: "tls-handshakes-rsa",
        title: "HTTPS (TLS 1.3), a full handshake for each 1 KB response, RSA 2048",
        tls: Some(Tls::Rsa),
        load: Load::Handshakes { resumed: false },
        goal: cpu(1.0),
        ..BASE
    },
    Row {
        name: "tls-resumed",
        title: "HTTPS (TLS 1.3), a resumed handshake for each 1 KB response",
        tls: Some(Tls::Ecdsa),
        load: Load::Handshakes { resumed: true },
        goal: cpu(1.0),
        ..BASE
    },
    Row {
        name: "http2-1k",
        title: "HTTP/2 over TLS 1.3 from clients, 16 streams a connection, 1 KB responses",
        tls: Some(Tls::Ecdsa),
        load: Load::Streams { per_connection: 16 },
        goal: cpu(0.8),
        ..BASE
    },
    Row {
        name: "http2-1k-multiplexed",
        title: "HTTP/2 over TLS 1.3 from clients, 16 streams a connection, 1 KB responses, equipoise with multiplexed upstream sessions",
        tls: Some(Tls::Ecdsa),
        sharing: "multiplexed",
        load: Load::Streams { per_connection: 16 },
        goal: cpu(0.8),
        ..BASE
    },
    Row {
        name: "http2-both-1k",
        title: "HTTP/2 over TLS 1.3 from clients, 16 streams a connection, and HTTP/2 to the upstream, 1 KB responses",
        tls: Some(Tls::Ecdsa),
        sharing: HTTP2,
        load: Load::Streams { per_connection: 16 },
        goal: cpu(0.8),
        ..BASE
    },
    Row {
        name: "grpc-unary",
        title: "gRPC over TLS 1.3 from clients, 16 calls a connection, and over HTTP/2 to the upstream, messages of 32 bytes",
        tls: Some(Tls::Ecdsa),
        object: CALL,
        sharing: HTTP2,
        load: Load::Calls { per_connection: 16 },
        goal: cpu(0.8),
        ..BASE
    },
    Row {
        name: "tcp-100k",
        title: "TCP, exchanges of 100 KB, HAProxy with its splice options",
        protocol: Protocol::Tcp,
        object: KB_100,
        goal: cpu(1.0),
        ..BASE
    },
    Row {
        name: "tcp-1m",
        title: "TCP, exchanges of 1 MB, HAProxy with its splice options",
        protocol: Protocol::Tcp,
        object: MB_1,
        goal: cpu(1.0),
        ..BASE
    },
    Row {
        name: "latency-70",
        title: "HTTP, 1 KB responses at 70 % of HAProxy's saturation rate, exclusive upstream sessions",
        load: Load::Open { percent: 70 },
        goal: Goal::ShareOfFirst { figure: Figure::LatencyP99, at_most: 1.0 },
        ..BASE
    },
    Row {
        name: "limit-1k",
        title: "HTTP, 1 KB responses, exclusive upstream sessions: equipoise without and with a concurrency limit",
        proxies: LIMITS,
        warm_up_seconds: LEARNING_SECONDS,
        goal: cpu(1.02),
        ..BASE
    },
    Row {
        name: "limit-1k-multiplexed",
        title: "HTTP, 1 KB responses, multiplexed upstream sessions: equipoise without and with a concurrency limit",
        proxies: LIMITS,
        sharing: "multiplexed",
        warm_up_seconds: LEARNING_SECONDS,
        goal: cpu(1.02),
        ..BASE
    },
    Row {
        name: "features-1k",
        title: "HTTP, 1 KB responses, exclusive upstream sessions: equipoise without and with features that no request uses",
        proxies: FEATURES,
        goal: cpu(1.01),
        ..BASE
    },
    Row {
        name: "idle-memory",
        title: "Memory per idle client connection, HTTP, one request made on each",
        load: Load::Idle,
        goal: Goal::Bytes { at_most: 4096.0 },
        ..BASE
    },
    Row {
        name: "idle-memory-tls",
        title: "Memory per idle client connection, HTTPS (TLS 1.3), one request made on each",
        tls: Some(Tls::Ecdsa),
        load: Load::Idle,
        goal: Goal::Bytes { at_most: 16384.0 },
        ..BASE
    },
];

/// The rows called `names`, in the table's order; all of them if there is no name.
///
/// # Errors
/// If there is no row of that name.
pub(crate) fn select(names: &[String]) -> Result<Vec<Row>> {
    for name in names {
        if !ROWS.iter().any(|row| row.name == name) {
            let known: Vec<_> = ROWS.iter().map(|row| row.name).collect();
            bail!("--rows: there is no row {name:?}; there are {}", known.join(", "));
        }
    }
    let chosen = |row: &Row| names.is_empty() || names.iter().any(|name| name == row.name);
    Ok(ROWS.into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_rows_keep_the_order_of_the_table() {
        let rows = select(&["tcp-1m".to_owned(), "http-1k".to_owned()]).unwrap();
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["http-1k", "tcp-1m"]);
    }

    #[test]
    fn an_unknown_row_is_refused_with_the_known_rows() {
        let error = select(&["http-2k".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"http-2k\"") && error.contains("http-100k"), "{error}");
    }
}
