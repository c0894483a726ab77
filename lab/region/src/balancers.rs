//! The balancers between the clients and the backends.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;

use anyhow::{Context, Result};
use equipoise_lab_runner::guest::{Guest, free_address};

use crate::place::Place;

/// A balancer, and how it is configured.
#[derive(Clone, Debug)]
pub(crate) enum Balancer {
    /// HAProxy, its connections to each server limited or not, with this `balance`.
    Haproxy { balance: &'static str, maxconn: Option<usize> },
    /// equipoise with these lines in its pool.
    Equipoise { pool: String },
}

impl Balancer {
    pub(crate) fn leastconn(maxconn: Option<usize>) -> Balancer {
        Balancer::Haproxy { balance: "leastconn", maxconn }
    }

    pub(crate) fn equipoise(pool: &str) -> Balancer {
        Balancer::Equipoise { pool: pool.to_string() }
    }

    /// equipoise which learns its limits, and has no other option but these lines.
    pub(crate) fn learnt(pool: &str) -> Balancer {
        Balancer::Equipoise { pool: format!("concurrency = \"learnt\"\n{pool}") }
    }

    /// Starts it before the backends.
    pub(crate) fn start(&self, place: &Place, backends: &[SocketAddr]) -> Result<Guest> {
        let address = free_address()?;
        let command = match self {
            Balancer::Haproxy { balance, maxconn } => {
                let file = place.folder.join("haproxy.cfg");
                fs::write(&file, haproxy(place, address, backends, balance, *maxconn))?;
                let mut command = Command::new(&place.haproxy);
                command.arg("-db").arg("-q").arg("-f").arg(file);
                command
            }
            Balancer::Equipoise { pool } => {
                let file = place.folder.join("equipoise.toml");
                fs::write(&file, equipoise(place, address, backends, pool))?;
                let _ = fs::remove_file(place.socket());
                let mut command = Command::new(&place.equipoise);
                command.arg("run").arg(file);
                command
            }
        };
        Guest::start(command, address)
    }

    /// equipoise accepts this pool: an older one may not know an option.
    pub(crate) fn is_accepted(&self, place: &Place) -> Result<bool> {
        let Balancer::Equipoise { pool } = self else { return Ok(true) };
        let file = place.folder.join("checked.toml");
        let any = SocketAddr::from(([127, 0, 0, 1], 9));
        fs::write(&file, equipoise(place, any, &[any], pool))?;
        Ok(Command::new(&place.equipoise).arg("check").arg(file).output()?.status.success())
    }
}

/// Where HAProxy takes commands.
fn stats_socket(place: &Place) -> std::path::PathBuf {
    place.folder.join("haproxy.sock")
}

/// `timeout queue` is shorter than the deadline: whoever waits longer would be served in vain.
fn haproxy(
    place: &Place,
    address: SocketAddr,
    backends: &[SocketAddr],
    balance: &str,
    maxconn: Option<usize>,
) -> String {
    let limit = maxconn.map_or(String::new(), |maxconn| format!(" maxconn {maxconn}"));
    let servers: String = backends
        .iter()
        .enumerate()
        .map(|(number, backend)| format!("    server b{number} {backend} weight 100{limit}\n"))
        .collect();
    format!(
        "global\n    no strict-limits\n    maxconn 20000\n    stats socket {} level admin\n\
         defaults\n    mode http\n    timeout connect 5s\n    timeout client 1m\n    timeout server 1m\n\
         \x20   timeout queue 300ms\n\
         frontend front\n    bind {address} backlog 4096\n    default_backend web\n\
         backend web\n    balance {balance}\n{servers}",
        stats_socket(place).display(),
    )
}

fn equipoise(place: &Place, address: SocketAddr, backends: &[SocketAddr], pool: &str) -> String {
    let backends: Vec<String> = backends.iter().map(|one| format!("\"{one}\"")).collect();
    format!(
        "[api]\nsocket = \"{}\"\nlisten = \"off\"\n[log]\nlevel = \"error\"\n\
         [[pool]]\nname = \"web\"\nbackends = [{}]\n{pool}\n\
         [[session]]\nlisten = \"{address}\"\nprotocol = \"http\"\npool = \"web\"\naccess-log = 0.0\n",
        place.socket().display(),
        backends.join(", "),
    )
}

/// Sets the weight of one of HAProxy's servers.
pub(crate) fn set_weight(place: &Place, server: usize, weight: u32) -> Result<()> {
    let mut stream = UnixStream::connect(stats_socket(place)).context("HAProxy's socket")?;
    stream.write_all(format!("set server web/b{server} weight {weight}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(())
}

/// The concurrency limit that equipoise shows for its only backend; `None` if it has none.
pub(crate) fn limit(place: &Place) -> Result<Option<f64>> {
    let mut stream = UnixStream::connect(place.socket()).context("the API's socket")?;
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").context("the API's answer has no body")?.1;
    let status: serde_json::Value = serde_json::from_str(body).context("the API's answer")?;
    Ok(status["pools"][0]["backends"][0]["limit"].as_f64())
}
