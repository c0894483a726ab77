//! A real etcd, alone on a host.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use equipoise_netns::{Guest, Host};

/// Where it listens, on its host.
pub(crate) const ENDPOINT: &str = "http://127.0.0.1:2379";
const ADDRESS: &str = "127.0.0.1:2379";

pub(crate) struct Etcd {
    _guest: Guest,
}

impl Etcd {
    /// Starts one member with its files in `folder`; it answers when this returns.
    pub(crate) fn start(host: &Host, folder: &Path) -> Result<Etcd> {
        let folder = folder.join("etcd").to_string_lossy().into_owned();
        let (client, peer) = (ENDPOINT, "http://127.0.0.1:2380");
        let arguments = [
            ["--name", "m"],
            ["--data-dir", &folder],
            ["--listen-client-urls", client],
            ["--advertise-client-urls", client],
            ["--listen-peer-urls", peer],
            ["--initial-advertise-peer-urls", peer],
            ["--initial-cluster", "m=http://127.0.0.1:2380"],
        ];
        let guest = host
            .start("etcd", arguments.as_flattened())
            .context("etcd does not start (Debian: apt-get install etcd-server)")?;
        let end = Instant::now() + Duration::from_secs(20);
        while messages(host).is_err() {
            ensure!(Instant::now() < end, "etcd does not answer:\n{}", guest.printed());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Etcd { _guest: guest })
    }
}

/// Requests that an etcd has received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Messages of clients: each operation, keep-alives of leases among them.
    pub(crate) all: f64,
    /// Transactions: everything that is written.
    pub(crate) transactions: f64,
}

/// By its own metrics, since it started.
pub(crate) fn messages(host: &Host) -> Result<Asked> {
    let text = host.enter(|| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(ADDRESS)?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\nhost: etcd\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    })?;
    let mut asked = Asked::default();
    for line in text.lines().filter(|it| it.starts_with("grpc_server_msg_received_total{")) {
        let count: f64 = line.rsplit(' ').next().unwrap_or_default().parse().context("a count")?;
        asked.all += count;
        if line.contains("grpc_method=\"Txn\"") {
            asked.transactions += count;
        }
    }
    ensure!(
        text.contains("grpc_server_msg_received_total{"),
        "etcd's metrics lack `grpc_server_msg_received_total`"
    );
    Ok(asked)
}
