//! Datagrams from forged sources to a process with a low limit of open files.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{EQUIPOISE, Folder, Process, equipoise, get, stderr, stdout, text};
use equipoise_testkit::{HttpBackend, PATIENCE, UdpPort, eventually, free_port};

/// Limit of open files of the process, soft and hard.
const LIMIT: &str = "256";

/// Number of addresses that send two datagrams each.
const FORGED: u32 = 2_000;

/// Time until a client repeats a datagram. A flood makes sockets overflow, and UDP loses the
/// excess.
const RESEND: Duration = Duration::from_millis(500);

/// A backend that answers with the sender's address, except to datagrams that begin with a zero.
fn answering_backend() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut datagram) {
            if datagram[0] != 0 {
                let _ = socket.send_to(from.to_string().as_bytes(), from);
            }
        }
    });
    address
}

/// Time for which a client must send until its address does not count as forged.
const PROOF: Duration = Duration::from_secs(1);

/// Sends the datagram twice from each of many loopback addresses.
fn flood(door: SocketAddr, datagram: &[u8]) {
    let first = u32::from(Ipv4Addr::new(127, 64, 0, 1));
    for source in first..first + FORGED {
        let socket = UdpSocket::bind((Ipv4Addr::from(source), 0)).unwrap();
        socket.send_to(datagram, door).unwrap();
        socket.send_to(datagram, door).unwrap();
    }
}

fn client(door: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(door).unwrap();
    socket.set_read_timeout(Some(RESEND)).unwrap();
    socket
}

/// The client's address as seen by the backend: that of the socket which the process holds for it.
/// The client sends until a datagram is answered.
fn place(client: &UdpSocket) -> String {
    let mut answer = [0; 64];
    let mut bytes = None;
    let answered = eventually(|| {
        client.send(b"hello").unwrap();
        bytes = client.recv(&mut answer).ok();
        bytes.is_some()
    });
    assert!(answered, "no datagram of {:?} is answered", client.local_addr());
    String::from_utf8(answer[..bytes.unwrap()].to_vec()).unwrap()
}

#[test]
fn forged_datagrams_take_neither_http_nor_status_nor_metrics_nor_checks_descriptors() {
    let (folder, http, api) = (Folder::new("udp-flood"), free_port(), free_port());
    let udp = UdpPort::reserve();
    let web = HttpBackend::named("web");
    let socket = folder.path("api.sock");
    let config = format!(
        "[api]\nsocket = \"{}\"\nlisten = \"{}\"\n[instance]\nthreads = 2\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
         [[session]]\nlisten = \"{}\"\nprotocol = \"udp\"\npool = \"datagrams\"\n\
         [[pool]]\nname = \"web\"\nbackends = [\"{}\"]\n\
         health = {{ tcp = true, interval = \"100ms\", timeout = \"10s\" }}\n\
         [[pool]]\nname = \"datagrams\"\nbackends = [\"{}\"]\n",
        socket.display(),
        api.address(),
        http.address(),
        udp.address(),
        web.address(),
        answering_backend(),
    );
    let file = folder.write("equipoise.toml", &config);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {LIMIT} && exec \"$@\"")]);
    command.args(["sh", EQUIPOISE, "run", text(&file)]);
    let door = udp.address();
    drop(udp);
    let process = Process::of(command);
    process.wait_for_text(" ready ");
    let proven = client(door);
    let its_place = place(&proven);
    thread::sleep(PROOF);
    assert_eq!(place(&proven), its_place);

    let everything_works = || {
        assert_eq!(get(http.address(), "/").text(), "web");
        let metrics = get(api.address(), "/metrics").text();
        assert!(metrics.contains("equipoise_drops_total"), "{metrics}");
        let status = equipoise(&["status", "--json", "--api", text(&socket)]);
        assert!(status.status.success(), "{}{}", stdout(&status), stderr(&status));
        let status = stdout(&status);
        assert!(!status.contains("last check failed"), "{status}");
        assert_eq!(place(&proven), its_place, "a client that goes on sending keeps its place");
        metrics
    };
    // The backend answers none of the first flood, and all of the second.
    for datagram in [&[0][..], b"1"] {
        let flooding = thread::spawn(move || flood(door, datagram));
        let begun = Instant::now();
        while !flooding.is_finished() {
            everything_works();
            assert!(begun.elapsed() < PATIENCE, "the flood does not end");
        }
        flooding.join().unwrap();
        everything_works();
        // The flood's remaining entries make room.
        place(&client(door));
    }
    let metrics = everything_works();
    let evicted = "equipoise_drops_total{front_door=\"udp:";
    let line =
        metrics.lines().find(|line| line.starts_with(evicted) && line.contains("client_evicted"));
    let count: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap();
    assert!(count > 1_000.0, "{line:?}");
}
