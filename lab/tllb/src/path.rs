//! The cost of a request for equipoise: kept, beside a plain front door; and delegated, unencrypted
//! and encrypted.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};
use equipoise_netns::{Guest, Host, Switch};

use crate::client::Way;
use crate::crowd::closed;
use crate::site::Place;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const GIVER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 1);
const TAKER: Ipv4Addr = Ipv4Addr::new(10, 78, 2, 2);
const SECRET: &str = "0123456789abcdef0123456789abcdef\n";

/// Doors of one process that are compared: each is asked in turn, and the process's CPU time
/// divided by its answers.
struct Doors {
    doors: [SocketAddr; 2],
    /// Processes with counted CPU time.
    processes: Vec<u32>,
}

/// Rounds of two windows each, in changing order; medians of the costs, and of the ratio within
/// each round.
pub(crate) fn measure(place: &Place, rounds: usize, case: &Case, row: &mut Row) -> Result<()> {
    let switch = Host::new("switch")?;
    Switch::new(&switch, "lan")?;
    let client = place.host(&switch, "client", CLIENT)?;
    let hosts = [place.host(&switch, "giver", GIVER)?, place.host(&switch, "taker", TAKER)?];
    place.write("secret", SECRET)?;
    let mut guests = Vec::new();
    for host in &hosts {
        let words = ["sample-backend", "--name", host.name(), "--http", "8080"];
        guests.push(place.start(host, None, &words)?);
    }
    let doors = match case.word("what")? {
        "kept" => kept(place, &hosts[0], &mut guests)?,
        "delegated" => delegated(place, &hosts, &mut guests)?,
        other => return Err(anyhow!("no path `{other}`: accepted are kept, delegated")),
    };
    let window = Duration::from_secs_f64(case.number("window_s")?);
    let clients = case.count("clients")?;
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..2 {
            let which = (round + turn) % 2;
            let before = doors.cpu_s()?;
            let ways = [Way::Node(doors.doors[which])];
            let rate = closed(&client, &ways, clients, Duration::ZERO, window)?;
            let answers = rate.per_second * window.as_secs_f64();
            costs[which].push(1e6 * (doors.cpu_s()? - before) / answers);
        }
    }
    let ratios: Vec<f64> = costs[0].iter().zip(&costs[1]).map(|(one, other)| other / one).collect();
    row.figure("is_kept", f64::from(u8::from(case.word("what")? == "kept")));
    row.figure("first_us", median(&costs[0]))
        .figure("second_us", median(&costs[1]))
        .figure("cost_percent", 100.0 * (median(&ratios) - 1.0))
        .figure(
            "cost_percent_least",
            100.0 * (ratios.iter().copied().fold(f64::MAX, f64::min) - 1.0),
        )
        .figure(
            "cost_percent_most",
            100.0 * (ratios.iter().copied().fold(f64::MIN, f64::max) - 1.0),
        );
    Ok(())
}

impl Doors {
    fn cpu_s(&self) -> Result<f64> {
        self.processes.iter().map(|pid| cpu_s(*pid)).sum()
    }
}

/// A plain front door and one in node mode that keeps everything, of one process and pool.
fn kept(place: &Place, host: &Host, guests: &mut Vec<Guest>) -> Result<Doors> {
    let secret = place.path("secret");
    let text = format!(
        "{}[[session]]\nlisten = \"{GIVER}:80\"\nprotocol = \"http\"\npool = \"application\"\n\
         [[dispatch]]\nlisten = \"{GIVER}:81\"\npool = \"application\"\nsecret = {secret:?}\n\
         peers = [{{ node = \"taker\", address = \"{TAKER}:81\" }}]\n\
         class = [{{ class = \"light\", methods = [\"HEAD\", \"OPTIONS\"] }}, \
         {{ class = \"computing\", paths = [\"/render/\", \"/resize/\"] }}]\n",
        head(place, "giver"),
    );
    let process = run(place, host, "giver", &text, guests)?;
    Ok(Doors { doors: [80, 81].map(|port| (GIVER, port).into()), processes: vec![process] })
}

/// A giver that keeps nothing and a taker, once in the clear and once encrypted: two processes on
/// each host.
fn delegated(place: &Place, hosts: &[Host; 2], guests: &mut Vec<Guest>) -> Result<Doors> {
    let secret = place.path("secret");
    let mut processes = Vec::new();
    certificates(place)?;
    for (way, port) in [("clear", 80), ("tls", 81)] {
        for (host, name) in hosts.iter().zip(["giver", "taker"]) {
            let own = if name == "giver" { GIVER } else { TAKER };
            let tls = match way {
                "clear" => String::new(),
                _ => format!(
                    "tls = {{ certificate = {:?}, key = {:?}, authority = {:?} }}\n",
                    place.path(&format!("{name}.pem")),
                    place.path(&format!("{name}.key")),
                    place.path("ca.pem"),
                ),
            };
            let keep = if name == "giver" { 0.0 } else { 1.0 };
            let text = format!(
                "{}[[dispatch]]\nlisten = \"{own}:{port}\"\npool = \"application\"\nsecret = {secret:?}\nkeep = {keep:.1}\n{tls}\
                 peers = [{{ node = \"giver\", address = \"{GIVER}:{port}\" }}, {{ node = \"taker\", address = \"{TAKER}:{port}\" }}]\n",
                head_of(place, &format!("{name}-{way}"), name),
            );
            processes.push(run(place, host, &format!("{name}-{way}"), &text, guests)?);
        }
    }
    // The peers' checks have been made.
    std::thread::sleep(Duration::from_secs(2));
    Ok(Doors { doors: [80, 81].map(|port| (GIVER, port).into()), processes })
}

/// Certificates of both nodes, by an authority made for this.
fn certificates(place: &Place) -> Result<()> {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    place.write("ca.pem", &authority.pem())?;
    for name in ["giver", "taker"] {
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec![name.to_string()])?;
        let certificate = params.signed_by(&key, &authority)?;
        place.write(&format!("{name}.pem"), &certificate.pem())?;
        place.write(&format!("{name}.key"), &key.serialize_pem())?;
    }
    Ok(())
}

fn head(place: &Place, name: &str) -> String {
    head_of(place, name, name)
}

fn head_of(place: &Place, file: &str, name: &str) -> String {
    let socket = place.path(&format!("{file}.sock"));
    format!(
        "[instance]\nname = \"{name}\"\nthreads = 1\n[api]\nsocket = {socket:?}\nlisten = \"off\"\n\
         [[pool]]\nname = \"application\"\nbackends = [\"127.0.0.1:8080\"]\n"
    )
}

fn run(place: &Place, host: &Host, file: &str, text: &str, guests: &mut Vec<Guest>) -> Result<u32> {
    let file = place.write(&format!("{file}.toml"), text)?;
    let guest = place.start(host, None, &["run", &file])?;
    let pid = guest.pid();
    guests.push(guest);
    Ok(pid)
}

/// CPU time of a process's threads, seconds.
fn cpu_s(pid: u32) -> Result<f64> {
    let mut sum_ns = 0.0;
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has just ended has no account any more.
        let Ok(text) = fs::read_to_string(entry?.path().join("schedstat")) else { continue };
        let on_cpu: f64 =
            text.split(' ').next().unwrap_or_default().parse().context("schedstat")?;
        sum_ns += on_cpu;
    }
    Ok(sum_ns / 1e9)
}
