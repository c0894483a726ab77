//! Connections of workers, and which of their ends are evidence of a death; late writes of a lost
//! worker.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use equipoise_dds::items::DataItem;
use equipoise_slice::{Order, SliceId};
use equipoise_slice_dds::worker::{Process, Threads};
use equipoise_slice_dds::{Config, Token};
use equipoise_slices::WorkerState;
use rustix::net::Shutdown;

use crate::cluster::{Cluster, Load, PATIENCE, SLICES, protocol};

/// No lease expires during a test.
const LEASE: Duration = Duration::from_secs(600);

fn cluster(domain: u32, order: Order) -> (Cluster, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let cluster = Cluster::with(domain, |options| {
        options.protocol = Config { lease: LEASE, order, ..protocol() };
        options.connections = Some(port);
    });
    (cluster, port)
}

/// Connections of this process to `port`.
fn connections(port: u16) -> Vec<i32> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = fds.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_ours = |fd: &i32| {
        // SAFETY: used at once. The descriptor may have been closed and reused; the check of its
        // peer allows that.
        let fd = unsafe { BorrowedFd::borrow_raw(*fd) };
        let peer = rustix::net::getpeername(fd).ok().flatten();
        let peer = peer.and_then(|peer| rustix::net::SocketAddrAny::try_into(peer).ok());
        peer.is_some_and(|peer: std::net::SocketAddr| peer.port() == port)
    };
    numbers.filter(is_ours).collect()
}

fn is_connected(cluster: &Cluster, port: u16, workers: usize) {
    cluster.eventually("workers are connected", || connections(port).len() >= workers);
}

#[test]
fn the_end_of_a_worker_is_detected_before_its_lease_expires() {
    let (cluster, port) = cluster(91, Order::Free);
    let one = cluster.worker("one", Duration::ZERO);
    let two = cluster.worker("two", Duration::ZERO);
    cluster.share("one", "two");
    is_connected(&cluster, port, 2);
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(100);
    // As in a crash, it hands over nothing.
    drop(one);
    let ended = Instant::now();
    cluster.eventually("the other has its slices", || two.slices() == u64::from(SLICES));
    println!("the other had its slices after {:?}", ended.elapsed());
    load.publish(100);
    load.read_all();
    load.check();
    // The status may lag behind.
    cluster.eventually("one is lost", || {
        cluster.seen("one").is_some_and(|one| one.state == WorkerState::Lost)
    });
    let lost = cluster.seen("one").unwrap();
    assert!(lost.reason.as_ref().unwrap().contains("its connection closed"), "{lost:?}");
    two.stop().unwrap();
}

#[test]
fn a_reset_connection_does_not_make_its_worker_lost() {
    let (cluster, port) = cluster(93, Order::Free);
    let one = cluster.worker("one", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    let mut load = Load::new(&cluster);
    load.open_all();
    for _ in 0..5 {
        is_connected(&cluster, port, 1);
        for fd in connections(port) {
            // As a device on the way would: neither side closed it. SAFETY: it is a connection of
            // this process's worker, and its thread waits for the end.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = rustix::net::shutdown(fd, Shutdown::Both);
        }
        load.publish(50);
        load.read_all();
    }
    is_connected(&cluster, port, 1);
    load.check();
    let seen = cluster.seen("one").unwrap();
    assert!(!seen.lost && seen.slices == SLICES, "{seen:?}");
    assert_eq!(cluster.log.lock().unwrap().len(), 250, "each was done once");
    one.stop().unwrap();
}

#[test]
fn foreign_connections_end_no_worker_and_are_limited_and_counted() {
    let (cluster, port) = cluster(95, Order::Free);
    let one = cluster.worker("one", Duration::ZERO);
    cluster.eventually("all slices have owners", || cluster.all_owned());
    is_connected(&cluster, port, 1);
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    // Some send nothing, some an invalid frame, some a frame with the nonce of another controller.
    let mut silent: Vec<_> = (0..100).map(|_| connect()).collect();
    for length in [0, 1, 7, 55, 56, 57, 4096] {
        let mut stream = connect();
        let _ = stream.write_all(&vec![b'x'; length]);
    }
    for _ in 0..50 {
        let mut stream = connect();
        let frame = [&b"eqslice1"[..], &[7; 48]].concat();
        let _ = stream.write_all(&frame);
    }
    cluster.eventually("they are counted", || {
        cluster.controller.status().connections_strange >= 50 + 84
    });
    // The port still accepts workers, and has closed the connections beyond its limits.
    let mut gone = 0;
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        gone += usize::from(matches!(stream.read(&mut [0]), Ok(0)));
    }
    assert!(gone >= 80, "{gone}");
    let two = cluster.worker("two", Duration::ZERO);
    cluster.share("one", "two");
    is_connected(&cluster, port, 2);
    assert!(!cluster.seen("one").unwrap().lost);
    drop(one);
    cluster.eventually("the other has its slices", || two.slices() == u64::from(SLICES));
    two.stop().unwrap();
}

/// A sink that refuses writes of earlier owners: it keeps the largest epoch of each slice.
#[derive(Debug, Default)]
struct Sink {
    epochs: BTreeMap<SliceId, u64>,
    written: Vec<(i64, &'static str)>,
    refused: Vec<(i64, &'static str)>,
}

impl Sink {
    fn write(&mut self, token: Token, id: i64, who: &'static str) {
        let epoch = self.epochs.entry(token.slice).or_default();
        if token.epoch.0 < *epoch {
            return self.refused.push((id, who));
        }
        *epoch = token.epoch.0;
        self.written.push((id, who));
    }
}

/// Writes each item to the sink, but item 7 only after a signal.
struct Writes {
    who: &'static str,
    sink: Arc<Mutex<Sink>>,
    holds: Option<(Sender<()>, Mutex<Receiver<()>>)>,
}

impl Process for Writes {
    fn process(&self, item: &DataItem<'_>) -> Vec<u8> {
        item.message.to_vec()
    }

    fn process_fenced(&self, item: &DataItem<'_>, token: Token) -> Vec<u8> {
        if let Some((begun, goes_on)) = self.holds.as_ref().filter(|_| item.id == 7) {
            begun.send(()).unwrap();
            goes_on.lock().unwrap().recv().unwrap();
        }
        self.sink.lock().unwrap().write(token, item.id, self.who);
        self.process(item)
    }
}

#[test]
fn a_sink_refuses_writes_with_the_token_of_a_lost_worker() {
    let (cluster, port) = cluster(96, Order::Strict);
    let sink = Arc::<Mutex<Sink>>::default();
    let ((begun, begins), (go, goes_on)) = (channel(), channel());
    let holds = Some((begun, Mutex::new(goes_on)));
    let writes = |who, holds| Writes { who, sink: sink.clone(), holds };
    let one = cluster.worker_of("one", Threads::new(1, writes("one", holds)));
    cluster.eventually("all slices have owners", || cluster.all_owned());
    is_connected(&cluster, port, 1);
    let mut load = Load::new(&cluster);
    load.open_all();
    load.publish(8);
    begins.recv_timeout(PATIENCE).unwrap();
    // Its process seems to have ended, but one of its threads is still at the item.
    drop(one);
    let two = cluster.worker_of("two", Threads::new(1, writes("two", None)));
    load.read_all();
    load.check();
    go.send(()).unwrap();
    let end = Instant::now() + PATIENCE;
    while sink.lock().unwrap().refused.is_empty() {
        assert!(Instant::now() < end, "{sink:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let sink = sink.lock().unwrap();
    assert_eq!(sink.refused, [(7, "one")]);
    assert!(sink.written.contains(&(7, "two")), "{sink:?}");
    two.stop().unwrap();
}
