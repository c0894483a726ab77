//! Clients. They resolve the name, connect, send requests, and record the serving node and the
//! time.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use equipoise_basics::lock;
use equipoise_netns::Host;

use super::stage::{NAME, PATIENCE, RESOLVER};

/// Requests on a connection before a client resolves the name again.
const REQUESTS: usize = 4;

/// How clients choose a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    /// By the name, which is resolved for each connection.
    Name,
    /// Always this node, like a client with an outdated DNS cache.
    Node(SocketAddr),
}

/// A request, with or without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) began: Instant,
    pub(crate) took: Duration,
    /// Node that received the request.
    pub(crate) door: IpAddr,
    /// Node with the application that served the request; `None` if it failed.
    pub(crate) by: Option<String>,
}

/// Running clients.
pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    asked: Arc<Mutex<Vec<Asked>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Starts `count` clients. Each has one request at a time, and pauses after each answer.
    pub(crate) fn start(host: &Host, count: usize, way: Way, pause: Duration) -> Clients {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Asked>>>::default());
        let client = || {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            host.spawn_thread(move || {
                while !stop.load(Relaxed) {
                    converse(way, pause, &stop, &asked);
                }
            })
        };
        let threads = (0..count).map(|_| client()).collect();
        Clients { stop, asked, threads }
    }

    /// The requests that began at `then` or later.
    pub(crate) fn since(&self, then: Instant) -> Vec<Asked> {
        let asked = lock(&self.asked);
        asked.iter().filter(|one| one.began >= then).cloned().collect()
    }

    /// Stops the clients, and returns all requests.
    pub(crate) fn stop(self) -> anyhow::Result<Vec<Asked>> {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("a client's thread died"))?;
        }
        Ok(std::mem::take(&mut *lock(&self.asked)))
    }
}

/// Sends the requests of one connection. A client that is refused at one address tries the next, as
/// browsers do.
fn converse(way: Way, pause: Duration, stop: &AtomicBool, asked: &Mutex<Vec<Asked>>) {
    let began = Instant::now();
    let note = |one: Asked| lock(asked).push(one);
    let doors = match way {
        Way::Node(door) => Ok(vec![door]),
        Way::Name => resolve(NAME, RESOLVER)
            .map(|addresses| addresses.into_iter().map(|ip| (ip, 80).into()).collect()),
    };
    let failed =
        |door: IpAddr, began: Instant| Asked { began, took: began.elapsed(), door, by: None };
    let doors: Vec<SocketAddr> = match doors {
        Ok(doors) => doors,
        Err(_) => return note(failed(RESOLVER.ip(), began)),
    };
    let timeout = Duration::from_secs(1);
    let connected = doors
        .iter()
        .find_map(|door| TcpStream::connect_timeout(door, timeout).ok().map(|s| (*door, s)));
    let Some((door, stream)) = connected else {
        return note(failed(doors.first().map_or(RESOLVER.ip(), SocketAddr::ip), began));
    };
    let mut began = began;
    let Ok(mut connection) = Connection::over(stream) else {
        return note(failed(door.ip(), began));
    };
    for _ in 0..REQUESTS {
        match connection.ask() {
            Ok(by) => {
                note(Asked { began, took: began.elapsed(), door: door.ip(), by: Some(by) });
            }
            Err(_) => return note(failed(door.ip(), began)),
        }
        if stop.load(Relaxed) {
            return;
        }
        thread::sleep(pause);
        began = Instant::now();
    }
}

struct Connection {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Connection {
    fn over(stream: TcpStream) -> anyhow::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { answers: BufReader::new(stream.try_clone()?), stream })
    }

    /// Sends a request; returns the serving node.
    fn ask(&mut self) -> anyhow::Result<String> {
        write!(self.stream, "GET /work HTTP/1.1\r\nHost: {NAME}\r\n\r\n")?;
        let (mut length, mut line) = (0, String::new());
        self.answers.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200 "), "answered `{}`", line.trim_end());
        loop {
            line.clear();
            self.answers.read_line(&mut line)?;
            if line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        self.answers.read_exact(&mut body)?;
        let told: serde_json::Value = serde_json::from_slice(&body)?;
        told["backend"].as_str().map(str::to_owned).context("an answer without a backend")
    }
}

/// The addresses of a name, in the order of the resolver.
pub(crate) fn resolve(name: &str, resolver: SocketAddr) -> anyhow::Result<Vec<IpAddr>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect(resolver)?;
    let mut query = rand::random::<u16>().to_be_bytes().to_vec();
    query.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    socket.send(&query)?;
    let mut answer = [0; 1500];
    let length = socket.recv(&mut answer)?;
    let answer = &answer[..length];
    ensure!(answer.get(..2) == Some(&query[..2]), "an answer to another question");
    ensure!(answer[3] & 0xf == 0, "rcode {}", answer[3] & 0xf);
    // Each record has a pointer to the name, type A, class IN, the TTL and four bytes.
    let records = answer.get(query.len()..).unwrap_or_default().chunks_exact(16);
    let addresses: Vec<IpAddr> = records
        .take_while(|record| record.starts_with(&[0xc0, 12, 0, 1, 0, 1]))
        .map(|record| IpAddr::from([record[12], record[13], record[14], record[15]]))
        .collect();
    ensure!(!addresses.is_empty(), "no address");
    Ok(addresses)
}

/// Results of some requests, for one line.
pub(crate) struct Summary {
    pub(crate) failed: usize,
    pub(crate) per_second: f64,
    p50: Duration,
    p99: Duration,
    /// Shares of the requests by receiving node and by serving node, in percent.
    doors: BTreeMap<String, f64>,
    pub(crate) by: BTreeMap<String, f64>,
}

impl Summary {
    pub(crate) fn of(asked: &[Asked], over: Duration) -> Summary {
        let mut times: Vec<Duration> =
            asked.iter().filter(|one| one.by.is_some()).map(|one| one.took).collect();
        times.sort();
        let at = |part: f64| {
            let place = (times.len().saturating_sub(1) as f64 * part) as usize;
            times.get(place).copied().unwrap_or_default()
        };
        let mut summary = Summary {
            failed: asked.len() - times.len(),
            per_second: times.len() as f64 / over.as_secs_f64(),
            p50: at(0.5),
            p99: at(0.99),
            doors: BTreeMap::new(),
            by: BTreeMap::new(),
        };
        let percent = 100.0 / asked.len().max(1) as f64;
        for one in asked {
            *summary.doors.entry(short(&one.door)).or_default() += percent;
            if let Some(by) = &one.by {
                *summary.by.entry(by.trim_start_matches("node-").into()).or_default() += percent;
            }
        }
        summary
    }

    pub(crate) fn line(&self) -> String {
        let parts = |parts: &BTreeMap<String, f64>| {
            let parts = parts.iter().map(|(node, percent)| format!("{node}: {percent:.0} %"));
            parts.collect::<Vec<_>>().join(", ")
        };
        format!(
            "{:.0} answers a second, median {:.0} ms, p99 {:.0} ms, {} failed\n  received by: {}\n  served by: {}",
            self.per_second,
            self.p50.as_secs_f64() * 1e3,
            self.p99.as_secs_f64() * 1e3,
            self.failed,
            parts(&self.doors),
            parts(&self.by),
        )
    }
}

/// The number of a node.
fn short(door: &IpAddr) -> String {
    match door {
        IpAddr::V4(v4) if v4.octets()[0] == 10 => (v4.octets()[3] - 10).to_string(),
        other => other.to_string(),
    }
}
