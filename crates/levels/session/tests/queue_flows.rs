//! Concurrency limits of TCP and UDP pools.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common_net;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common_net::{PATIENCE, Rig, backend, is_reset, until};
use equipoise_session::Reason;
use equipoise_session::config::{Concurrency, Protocol, QueueOptions};
use equipoise_testkit::{UdpEcho, undisturbed};

/// Slightly more than the time for which a UDP client has to send until it counts as genuine.
const PROVEN_AFTER: Duration = Duration::from_millis(1100);

/// A backend that hands its connections to the test.
fn handed_over() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let (sender, receiver) = mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let address = backend(move |stream| {
        let _ = sender.lock().unwrap().send(stream);
    });
    (address, receiver)
}

fn limited(protocol: Protocol, backend: SocketAddr, wait: Duration) -> Rig {
    let rig = Rig::start(protocol, &[backend], |wishes| wishes.options.queue.wait = wait);
    rig.backends[0].live.set_limit(NonZeroU32::new(1));
    rig
}

/// A rig with a learnt limit.
fn learning(protocol: Protocol, backend: SocketAddr) -> Rig {
    let rig = Rig::start(protocol, &[backend], |_| ());
    rig.backends[0].live.set_concurrency(Concurrency::Learnt, QueueOptions::default().wait);
    rig
}

#[test]
fn a_hundred_long_tcp_connections_are_served_where_the_limit_is_learnt() {
    undisturbed(|| {
        let (address, accepted) = handed_over();
        let rig = learning(Protocol::Tcp, address);
        assert_eq!(rig.backends[0].live.limit(), Some(4));
        let clients: Vec<_> = (0..100).map(|_| rig.connect()).collect();
        let served: Vec<_> =
            (0..100).map(|_| accepted.recv_timeout(PATIENCE).expect("a connection")).collect();
        assert_eq!(rig.drops(Reason::QueueTimeout) + rig.drops(Reason::QueueFull), 0);
        drop((clients, served));
        rig.settle();
        let live = &rig.backends[0].live;
        until("the limit is the learnt one", || {
            live.learned().is_some_and(|it| live.limit() == Some(it.limit))
        });
    });
}

#[test]
fn a_tcp_connection_waits_until_another_ends() {
    let (address, accepted) = handed_over();
    let rig = limited(Protocol::Tcp, address, PATIENCE);
    let first = (rig.connect(), accepted.recv_timeout(PATIENCE).unwrap());
    let mut second = rig.connect();
    second.write_all(b"early").unwrap();
    until("it waits", || rig.queue.len() == 1);
    assert!(accepted.try_recv().is_err(), "the backend has one connection");
    drop(first);
    let mut served = accepted.recv_timeout(PATIENCE).unwrap();
    let mut read = [0; 5];
    served.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"early");
    drop((second, served));
    rig.settle();
    assert!(rig.queue.is_empty());
}

#[test]
fn a_tcp_connection_that_waits_too_long_is_reset() {
    let (address, accepted) = handed_over();
    let rig = limited(Protocol::Tcp, address, Duration::from_millis(50));
    let first = (rig.connect(), accepted.recv_timeout(PATIENCE).unwrap());
    assert!(is_reset(&mut rig.connect()));
    until("it is counted", || rig.drops(Reason::QueueTimeout) == 1);
    drop(first);
    rig.settle();
    assert!(accepted.try_recv().is_err(), "it was never connected");
}

#[test]
fn a_tcp_client_that_leaves_while_it_waits_is_not_connected() {
    let (address, accepted) = handed_over();
    let rig = limited(Protocol::Tcp, address, PATIENCE);
    let first = (rig.connect(), accepted.recv_timeout(PATIENCE).unwrap());
    let leaving = rig.connect();
    until("it waits", || rig.queue.len() == 1);
    leaving.shutdown(Shutdown::Write).unwrap();
    until("it is taken out", || rig.queue.is_empty());
    until("it is counted", || rig.drops(Reason::ClientGone) == 1);
    drop((first, leaving));
    rig.settle();
    assert!(accepted.try_recv().is_err(), "it was never connected");
}

#[test]
fn datagrams_of_new_clients_are_dropped_where_no_backend_has_room() {
    let backend = UdpEcho::start();
    let rig = limited(Protocol::Udp, backend.address(), PATIENCE);
    let client = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(rig.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        socket
    };
    // A datagram may be lost, so each is sent until it is answered.
    let (first, second) = (client(), client());
    let is_answered = |socket: &UdpSocket| {
        socket.send(b"x").unwrap();
        socket.recv(&mut [0; 8]).is_ok()
    };
    until("the first is served", || is_answered(&first));
    // A client that has sent for less than a second may be forged, and could be evicted.
    let served = Instant::now();
    until("the first is proven", || {
        let proves = served.elapsed() > PROVEN_AFTER;
        is_answered(&first) && proves
    });
    until("the second is refused", || {
        assert!(!is_answered(&second), "there is room for one");
        rig.drops(Reason::QueueFull) > 0
    });
    until("the first is still served", || is_answered(&first));
    assert_eq!(rig.in_flight(), 1);
    rig.backends[0].live.set_limit(NonZeroU32::new(2));
    until("the second is served", || is_answered(&second));
}
