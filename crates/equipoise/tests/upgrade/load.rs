//! Clients of every kind that work without pause, and count what fails.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use equipoise_testkit::{Client, PATIENCE, eventually};

use crate::bed::{Bed, NAME, url};
use crate::common::dns::{A, query};
use crate::common::{stderr, stdout};

/// UDP clients, each of which must keep its backend's view of it.
pub const UDP_CLIENTS: usize = 16;

/// Requests of each curl process.
const CURL_REQUESTS: usize = 20;

pub struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<One>,
}

struct One {
    kind: &'static str,
    done: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<String>>,
}

impl Load {
    /// Starts clients of every kind.
    pub fn start(bed: &Bed) -> Load {
        let mut load = Load { stop: Arc::default(), clients: Vec::new() };
        let (http, tls, tcp) = (bed.http.address(), bed.tls.address(), bed.tcp.address());
        let (udp, dns) = (bed.udp.address(), bed.dns.address());
        for _ in 0..2 {
            load.add("new TCP connections", move || echo_once(tcp));
            load.add("new HTTP connections", move || fresh(http));
            load.add("kept HTTP connections", kept(http, Duration::ZERO));
            load.add("idle HTTP connections", kept(http, Duration::from_millis(30)));
        }
        load.add("a TCP tunnel", tunnel(TcpStream::connect(tcp).expect("it listens")));
        load.add("a WebSocket", tunnel(web_socket(http)));
        load.add("UDP", datagrams(udp));
        load.add("DNS", move || dns_udp(dns));
        load.add("DNS over TCP", move || dns_tcp(dns));
        for version in ["--http1.1", "--http2"] {
            let authority = bed.certificates.path("ca.pem");
            load.add(version, move || curl(tls, &authority, version));
        }
        load
    }

    fn add(
        &mut self,
        kind: &'static str,
        mut once: impl FnMut() -> Result<(), String> + Send + 'static,
    ) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&done);
        let work = move || {
            let mut failed = Vec::new();
            while !stop.load(Relaxed) {
                match once() {
                    Ok(()) => drop(count.fetch_add(1, Relaxed)),
                    Err(error) => failed.push(error),
                }
            }
            failed
        };
        let thread = thread::spawn(work);
        self.clients.push(One { kind, done, thread });
    }

    /// Waits until each client has done `more` further pieces of work.
    pub fn wait_for(&self, more: usize) {
        let counts = || self.clients.iter().map(|one| one.done.load(Relaxed));
        let goals: Vec<_> = counts().map(|done| done + more).collect();
        let is_there = || counts().zip(&goals).all(|(done, goal)| done >= *goal);
        assert!(eventually(is_there), "a load stands still: {}", self.shown());
    }

    fn shown(&self) -> String {
        let each =
            self.clients.iter().map(|one| format!("{}: {}", one.kind, one.done.load(Relaxed)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Ends the load. Returns the pieces of work as text, and the failures.
    pub fn finish(self) -> (String, Vec<String>) {
        self.stop.store(true, Relaxed);
        let shown = self.shown();
        let mut failed = Vec::new();
        for One { kind, thread, .. } in self.clients {
            let errors = thread.join().expect("no client panics");
            failed.extend(errors.into_iter().map(|error| format!("{kind}: {error}")));
        }
        (shown, failed)
    }
}

fn said(step: &str) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{step}: {error}")
}

fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(said("connect"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(said("time-out"))?;
    Ok(stream)
}

/// Sends bytes, and expects them back.
fn echo(stream: &mut TcpStream, number: u64) -> Result<(), String> {
    let sent = number.to_le_bytes();
    let mut back = [0; 8];
    stream.write_all(&sent).map_err(said("write"))?;
    stream.read_exact(&mut back).map_err(said("read"))?;
    if back == sent { Ok(()) } else { Err("other bytes came back".into()) }
}

fn echo_once(address: SocketAddr) -> Result<(), String> {
    echo(&mut connect(address)?, 7)
}

fn tunnel(mut stream: TcpStream) -> impl FnMut() -> Result<(), String> {
    stream.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let mut number = 0;
    move || {
        number += 1;
        // A tunnel that has failed once fails always: one failure says it.
        thread::sleep(Duration::from_millis(1));
        echo(&mut stream, number)
    }
}

fn web_socket(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request =
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("it answers");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

fn ask(client: &mut Client) -> Result<bool, String> {
    let answer = client.ask("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let response = answer.map_err(|error| format!("{error:?}"))?;
    match response.status() {
        200 => Ok(response.header("connection") != Some("close")),
        status => Err(format!("status {status}")),
    }
}

fn fresh(address: SocketAddr) -> Result<(), String> {
    ask(&mut Client::over(connect(address)?)).map(drop)
}

/// Asks on one connection until a response announces its close. `pause` is before each request.
fn kept(address: SocketAddr, pause: Duration) -> impl FnMut() -> Result<(), String> {
    let mut client: Option<Client> = None;
    move || {
        thread::sleep(pause);
        let mut open = match client.take() {
            Some(client) => client,
            None => Client::over(connect(address)?),
        };
        if ask(&mut open)? {
            client = Some(open);
        }
        Ok(())
    }
}

fn datagrams(address: SocketAddr) -> impl FnMut() -> Result<(), String> {
    let bind = |_| {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.connect(address).expect("loopback works");
        socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
        socket
    };
    let sockets: Vec<_> = (0..UDP_CLIENTS).map(bind).collect();
    let mut number = 0_u64;
    move || {
        for socket in &sockets {
            number += 1;
            let mut back = [0; 8];
            socket.send(&number.to_le_bytes()).map_err(said("send"))?;
            let length = socket.recv(&mut back).map_err(said("receive"))?;
            if (length, u64::from_le_bytes(back)) != (8, number) {
                return Err("another datagram came back".into());
            }
        }
        Ok(())
    }
}

fn is_answer(query: &[u8], answer: &[u8]) -> Result<(), String> {
    match answer.get(..2) == query.get(..2) && answer.ends_with(&[192, 0, 2, 11]) {
        true => Ok(()),
        false => Err(format!("the answer is {answer:?}")),
    }
}

fn dns_udp(address: SocketAddr) -> Result<(), String> {
    let query = query("cluster.example", A);
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(said("bind"))?;
    socket.connect(address).map_err(said("connect"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(said("time-out"))?;
    socket.send(&query).map_err(said("send"))?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).map_err(said("receive"))?;
    is_answer(&query, &answer[..length])
}

fn dns_tcp(address: SocketAddr) -> Result<(), String> {
    let query = query("cluster.example", A);
    let mut stream = connect(address)?;
    let mut framed = (query.len() as u16).to_be_bytes().to_vec();
    framed.extend(&query);
    stream.write_all(&framed).map_err(said("write"))?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).map_err(said("read"))?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).map_err(said("read"))?;
    is_answer(&query, &answer)
}

fn curl(address: SocketAddr, authority: &str, version: &str) -> Result<(), String> {
    let port = address.port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert", authority, version])
        .args(["--resolve", &format!("{NAME}:{port}:127.0.0.1"), "--output", "/dev/null"])
        .args(["--write-out", "%{http_code}\\n"])
        .arg(format!("{}/[1-{CURL_REQUESTS}]", url(address)))
        .output()
        .map_err(said("curl (`make test-setup` installs it)"))?;
    let codes = stdout(&output).lines().filter(|code| *code == "200").count();
    match output.status.success() && codes == CURL_REQUESTS {
        true => Ok(()),
        false => Err(format!("{codes} of {CURL_REQUESTS}: {}", stderr(&output))),
    }
}
