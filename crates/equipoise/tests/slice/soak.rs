//! `make soak`: one process balances requests and a stream while processes are paused, slices move,
//! and invalid data arrives from the network.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use equipoise_testkit::free_port;

use crate::bed::{Bed, python};
use crate::common::Load;
use crate::junk::JUNK;
use crate::pauses::{PAUSE, done_all, published, start_publisher};

/// DDS domain of the stream.
const DOMAIN: u16 = 27;
/// Number of clients of the HTTP front door.
const CLIENTS: usize = 4;
/// Time between two pauses.
const REST: Duration = Duration::from_secs(1);

/// Sends invalid data to the ports of DDS and to the front door.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Flood {
    fn start(door: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let (socket, mut sent) = (UdpSocket::bind("127.0.0.1:0").unwrap(), 0);
            let discovery = ("127.0.0.1", 7400 + 250 * DOMAIN);
            while !until.load(Relaxed) {
                for _ in 0..100 {
                    sent += u64::from(socket.send_to(JUNK, discovery).is_ok());
                }
                if let Ok(mut stream) = TcpStream::connect(door) {
                    // The front door may have closed the connection.
                    let _ = stream.write_all(b"\x16\x03\x01junk\r\n\r\n");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            sent
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Relaxed);
        self.thread.take().map_or(0, |thread| thread.join().unwrap())
    }
}

/// A backend that answers every request and keeps none, because the requests of an hour would fill
/// the memory.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || answer(client));
        }
    });
    address
}

/// Answers requests without a body until the connection ends.
fn answer(mut client: TcpStream) -> io::Result<()> {
    let mut requests = BufReader::new(client.try_clone()?);
    let mut line = String::new();
    while requests.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        line.clear();
    }
    Ok(())
}

fn bed(door: SocketAddr) -> Bed {
    let addresses = [backend(), backend()].map(|it| it.to_string());
    let web = format!(
        "[[pool]]\nname = \"web\"\nbackends = {addresses:?}\n\
         [[session]]\nname = \"web\"\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n"
    );
    Bed::at_the_defaults("slice-soak", DOMAIN.into(), &web)
}

#[test]
#[ignore = "takes SOAK_MINUTES: make soak"]
fn pauses_and_floods_fail_no_request_and_lose_no_item() {
    assert!(python(), "the workers' program needs Python");
    let minutes = std::env::var("SOAK_MINUTES").map_or(1.0, |text| text.parse::<f64>().unwrap());
    let port = free_port();
    let door = port.address();
    let bed = bed(door);
    let publisher = start_publisher(&bed);
    let (load, flood) = (Load::start(door, CLIENTS), Flood::start(door));
    let paused = [
        ("one", bed.workers["one"].pid()),
        ("equipoise", bed.controller.as_ref().unwrap().pid()),
        ("two", bed.workers["two"].pid()),
        ("publisher", publisher.pid()),
    ];
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut rounds = 0_u32;
    while Instant::now() < end {
        let (name, pid) = paused[rounds as usize % paused.len()];
        // Slices move back and forth, also while a process is paused.
        let drain = ["drain", "undrain"][rounds as usize / 3 % 2];
        bed.said(&[drain, "one"]);
        crate::pauses::pause(&[pid], PAUSE * (rounds % 4 + 1) / 4);
        load.wait_for(CLIENTS);
        rounds += 1;
        println!("pause {rounds} of {name} is over");
        std::thread::sleep(REST);
    }
    let junk = flood.end();
    let (good, bad) = load.finish();
    std::fs::write(bed.folder.path("stop"), "").unwrap();
    let items = published(&publisher);
    println!("{rounds} pauses, {junk} datagrams of junk, {good} requests, {items} items");
    assert!(bad.is_empty(), "{} of {} requests failed: {bad:?}", bad.len(), good + bad.len());
    done_all(&bed, items);
}
