//! Asks a DNS server as much as it answers, from one thread.
//!
//! dnsperf makes two system calls a query and is at its end before a fast server is. This one keeps
//! `--window` queries open on each of `--sockets` sockets, and sends and receives up to a window
//! with one call. Each socket asks one of the questions. It prints answers a second. Answers are
//! counted and not read: use it beside a client that reads them.

mod batch;

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use batch::{Answers, WINDOW_MAX};
use clap::Parser;

/// Asks a DNS server as much as it answers; prints answers a second.
#[derive(Parser)]
struct Arguments {
    /// Address of the server.
    server: SocketAddr,
    /// Questions, as `NAME TYPE`. Types: A, AAAA, TXT, SOA, NS.
    #[arg(required = true)]
    questions: Vec<String>,
    /// For how long, in seconds.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Sockets, each with a port of its own, so that the server's kernel may spread them.
    #[arg(long, default_value_t = 8)]
    sockets: usize,
    /// Queries open on each.
    #[arg(long, default_value_t = 32)]
    window: usize,
}

/// Without an answer for so long, what is open on a socket is taken for lost.
const LOST_AFTER: Duration = Duration::from_millis(200);

struct Socket {
    socket: UdpSocket,
    /// A window of its query.
    queries: Vec<u8>,
    query_bytes: usize,
    open: usize,
    heard: Instant,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ensure!((1..=WINDOW_MAX).contains(&arguments.window), "--window: 1 to {WINDOW_MAX}");
    ensure!((1..=1024).contains(&arguments.sockets), "--sockets: 1 to 1024");
    let queries: Vec<Vec<u8>> =
        arguments.questions.iter().map(|text| query(text)).collect::<Result<_, _>>()?;
    let asked = queries.iter().cycle().take(arguments.sockets);
    let mut sockets = asked
        .map(|query| Socket::connect(arguments.server, query, arguments.window))
        .collect::<Result<Vec<_>, _>>()?;
    let mut room = Answers::new();
    let (began, length) = (Instant::now(), Duration::from_secs_f64(arguments.seconds));
    let (mut answers, mut lost) = (0u64, 0u64);
    while began.elapsed() < length {
        let mut heard = 0;
        for one in &mut sockets {
            let received = room.receive(&one.socket)?;
            heard += received;
            one.open = one.open.saturating_sub(received);
            if received > 0 {
                one.heard = Instant::now();
            } else if one.open > 0 && one.heard.elapsed() > LOST_AFTER {
                lost += one.open as u64;
                (one.open, one.heard) = (0, Instant::now());
            }
            // Half a window at a time: a batch each way, rather than one query for one answer.
            if one.open <= arguments.window / 2 {
                one.ask(arguments.window - one.open)?;
            }
        }
        answers += heard as u64;
        if heard == 0 {
            std::thread::yield_now();
        }
    }
    if answers == 0 {
        bail!("{} answers nothing", arguments.server);
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{answers} answers, {lost} lost, {:.0} a second", answers as f64 / seconds);
    Ok(())
}

impl Socket {
    fn connect(server: SocketAddr, query: &[u8], window: usize) -> anyhow::Result<Socket> {
        let here: SocketAddr = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }.parse()?;
        let socket = UdpSocket::bind(here)?;
        socket.connect(server).with_context(|| format!("cannot reach {server}"))?;
        socket.set_nonblocking(true)?;
        batch::cut(&socket, query.len()).context("the kernel cuts no datagrams (UDP_SEGMENT)")?;
        let (queries, query_bytes) = (query.repeat(window), query.len());
        Ok(Socket { socket, queries, query_bytes, open: 0, heard: Instant::now() })
    }

    /// Sends so many more, if the kernel has room for them.
    fn ask(&mut self, count: usize) -> std::io::Result<()> {
        match self.socket.send(&self.queries[..count * self.query_bytes]) {
            Ok(bytes) => self.open += bytes / self.query_bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The message that asks `NAME TYPE`.
fn query(text: &str) -> anyhow::Result<Vec<u8>> {
    let (name, rtype) = text.split_once(' ').context("a question is `NAME TYPE`")?;
    let rtype: u8 = match rtype {
        "A" => 1,
        "NS" => 2,
        "SOA" => 6,
        "TXT" => 16,
        "AAAA" => 28,
        other => bail!("the type {other} is not known"),
    };
    let mut bytes = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        ensure!((1..=63).contains(&label.len()), "{name}: a label has 1 to 63 bytes");
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, rtype, 0, 1]);
    Ok(bytes)
}
