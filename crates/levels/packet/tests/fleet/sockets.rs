//! The exchange over real connections, each balancer with a thread of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use equipoise_core::AdminState;
use equipoise_packet::FlowScheduler::{Maglev, RoundRobin};
use equipoise_packet::config::{FleetConfig, FleetSecret};
use equipoise_packet::fleet::{Exchange, PeerState, Tables};
use equipoise_packet::{Capacity, Control, FlowTags};

use crate::world::{ACK, Backend, SYN, World, backend, settings, tcp, vip};

/// Longest wait; a busy machine needs it.
const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "correct horse battery staple";

type Ask = Box<dyn FnOnce(&mut World) + Send>;

/// Access to a balancer's thread.
#[derive(Clone)]
struct Handle {
    inputs: Sender<Ask>,
    states: Arc<Mutex<Vec<(SocketAddr, PeerState)>>>,
}

impl Handle {
    fn run<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut World) -> R + Send + 'static,
    ) -> Option<R> {
        let (reply, answer) = channel();
        self.inputs.send(Box::new(move |world| drop(reply.send(question(world))))).ok()?;
        answer.recv().ok()
    }
}

impl Tables for Handle {
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Control) -> R + Send + 'static,
    ) -> Option<R> {
        self.run(|world| question(world.control()))
    }

    fn report(&self, peer: SocketAddr, state: &PeerState) {
        self.states.lock().unwrap().push((peer, state.clone()));
    }
}

struct Node {
    handle: Handle,
    exchange: Arc<Exchange>,
}

fn capacity() -> Capacity {
    Capacity {
        flows: 300_000,
        pins: 200_000,
        pending: 1 << 18,
        ring_entries: 65_537,
        log_events: 1 << 17,
        sample_every: 0,
        tags: FlowTags::Long,
        ..crate::world::capacity()
    }
}

impl Node {
    fn start(
        scheduler: equipoise_packet::FlowScheduler,
        pool: &[Backend],
        config: FleetConfig,
        secret: &str,
    ) -> Node {
        let (inputs, receive) = channel::<Ask>();
        let handle = Handle { inputs, states: Arc::default() };
        let pool = pool.to_vec();
        let bell: Arc<Mutex<Option<Arc<Exchange>>>> = Arc::default();
        let rings = Arc::clone(&bell);
        std::thread::spawn(move || {
            let mut world = World::new(1, capacity(), settings());
            world.control().share(Instant::now());
            world.apply(vec![vip(1, scheduler, &pool)]);
            live(&mut world, &receive, &rings);
        });
        let secret = FleetSecret::new(secret).unwrap();
        let exchange = Arc::new(Exchange::start(config, secret, handle.clone()).unwrap());
        *bell.lock().unwrap() = Some(Arc::clone(&exchange));
        let node = Node { handle, exchange };
        assert!(soon(|| node.ask(|world| world.status().publications > 0)));
        node
    }

    fn ask<R: Send + 'static>(&self, question: impl FnOnce(&mut World) -> R + Send + 'static) -> R {
        self.handle.run(question).expect("the thread runs")
    }

    fn flows(&self) -> usize {
        self.ask(World::flows)
    }

    fn pins(&self) -> usize {
        self.ask(|world| world.status().pins)
    }

    fn state(&self, peer: usize) -> PeerState {
        self.exchange.status(1).peers[peer].state.clone()
    }

    /// Opens flows, with time for their SYNs and packets to be read.
    fn open(&self, clients: std::ops::Range<u32>) {
        for first in clients.clone().step_by(10_000) {
            let last = (first + 10_000).min(clients.end);
            self.ask(move |world| {
                for client in first..last {
                    world.send(tcp(1, client, SYN));
                    world.send(tcp(1, client, ACK));
                }
                world.now = Instant::now();
                world.tick();
            });
        }
    }
}

/// The thread of a balancer, like the engine's.
fn live(world: &mut World, receive: &Receiver<Ask>, bell: &Mutex<Option<Arc<Exchange>>>) {
    loop {
        let wait = world.control().next_tick().saturating_duration_since(Instant::now());
        match receive.recv_timeout(wait) {
            Ok(ask) => ask(world),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if world.control().next_tick() <= Instant::now() {
            world.now = Instant::now();
            world.tick();
            if let Some(exchange) = &*bell.lock().unwrap() {
                exchange.ring(world.control().fleet_news());
            }
        }
    }
}

fn soon(mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Free ports; another process may take one before it is bound.
fn addresses(count: usize) -> Vec<SocketAddr> {
    let sockets: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    sockets.iter().map(|socket| socket.local_addr().unwrap()).collect()
}

fn fleet(count: usize, scheduler: equipoise_packet::FlowScheduler, pool: &[Backend]) -> Vec<Node> {
    let peers = addresses(count);
    let node = |listen: &SocketAddr| {
        let config = FleetConfig { listen: *listen, peers: peers.clone() };
        Node::start(scheduler, pool, config, SECRET)
    };
    let nodes: Vec<Node> = peers.iter().map(node).collect();
    let have_all = |node: &Node| {
        let status = node.exchange.status(1);
        status.peers.iter().filter(|it| it.has_all && it.gave_all).count() == count - 1
    };
    assert!(soon(|| nodes.iter().all(have_all)), "{:?}", nodes[0].exchange.status(1));
    nodes
}

/// CPU time of this process.
fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes the structure.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |it: libc::timeval| {
        Duration::from_secs(it.tv_sec as u64) + Duration::from_micros(it.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn a_hundred_thousand_flows_reach_four_balancers() {
    const FLOWS: usize = 100_000;
    let nodes = fleet(4, RoundRobin, &[0, 1, 2, 3, 4, 5]);
    let knows_itself = |(node, own): (&Node, usize)| node.state(own) == PeerState::Own;
    assert!(soon(|| nodes.iter().zip(0..).all(knows_itself)));
    nodes[0].open(0..FLOWS as u32);
    let (start, cpu_before) = (Instant::now(), cpu());
    assert!(soon(|| nodes.iter().all(|node| node.flows() == FLOWS)));
    let known = start.elapsed();
    // One in six is where the table would send it.
    assert!(soon(|| nodes.iter().all(|node| node.pins() > FLOWS * 4 / 5)));
    let (pinned, used) = (start.elapsed(), cpu() - cpu_before);
    let status = nodes[0].exchange.status(1);
    let (sent, bytes) = status
        .peers
        .iter()
        .fold((0, 0), |(flows, bytes), peer| (flows + peer.flows_sent, bytes + peer.bytes_sent));
    println!(
        "{FLOWS} flows of a turn known by 4 balancers {known:?} after the last one opened, pinned after {pinned:?}; \
         {sent} sent, {:.1} bytes each; {:?} of CPU for each flow and balancer, with its pin",
        bytes as f64 / sent as f64,
        used / (4 * FLOWS as u32)
    );
}

#[test]
fn a_hundred_thousand_pins_after_a_change_are_on_four_balancers() {
    const FLOWS: usize = 100_000;
    let nodes = fleet(4, Maglev, &[0, 1, 2]);
    nodes[0].open(0..FLOWS as u32);
    assert!(soon(|| nodes.iter().all(|node| node.flows() == FLOWS)));
    let start = Instant::now();
    for node in &nodes {
        node.ask(|world| {
            world.now = Instant::now();
            world.change(1, |pool| {
                pool.iter_mut().for_each(|it| it.admin = AdminState::Drain);
                pool.extend([3, 4, 5].map(backend));
            });
        });
    }
    assert!(soon(|| nodes.iter().all(|node| node.pins() >= FLOWS)));
    println!("{FLOWS} pins after a change on 4 balancers within {:?}", start.elapsed());
}

#[test]
fn strangers_insert_nothing() {
    let [listen, other] = addresses(2)[..] else { unreachable!() };
    let config = FleetConfig { listen, peers: vec![other] };
    let node = Node::start(Maglev, &[0, 1], config, SECRET);
    assert!(soon(|| node.exchange.status(1).listens.is_some()));
    // Another secret.
    let config = FleetConfig { listen: other, peers: vec![listen] };
    let stranger = Node::start(Maglev, &[0, 1], config, "another secret of a fleet");
    stranger.open(0..100);
    let is_refused = |node: &Node| match node.state(0) {
        PeerState::Failed(why) => why == "the other side has another [flows] seed",
        _ => false,
    };
    assert!(soon(|| is_refused(&stranger) && is_refused(&node)), "{:?}", stranger.state(0));
    // Other bytes, and a repeated beginning of a connection.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], b"EQPFLT01"] {
        let mut stream = TcpStream::connect(listen).unwrap();
        stream.write_all(bytes).unwrap();
        // It may have refused these bytes already.
        let _ = stream.write_all(&[7; 64]);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 40, "a stranger gets a random number alone");
    }
    assert!(soon(|| node.exchange.status(1).refused >= 4), "{:?}", node.exchange.status(1));
    assert_eq!((node.flows(), node.ask(|world| world.control().fleet_totals().received)), (0, 0));
}

#[test]
fn a_deaf_peer_delays_no_other() {
    let [one, two, deaf] = addresses(3)[..] else { unreachable!() };
    // It takes connections, and never reads.
    let socket = TcpListener::bind(deaf).unwrap();
    let node = |listen| {
        let config = FleetConfig { listen, peers: vec![deaf, one, two] };
        Node::start(RoundRobin, &[0, 1], config, SECRET)
    };
    let nodes = [node(one), node(two)];
    let deaf_streams = [socket.accept().unwrap().0, socket.accept().unwrap().0];
    nodes[0].open(0..2000);
    assert!(soon(|| nodes[1].flows() == 2000));
    let is_known = |node: &Node| matches!(node.state(0), PeerState::Failed(_));
    assert!(soon(|| nodes.iter().all(is_known)), "{:?}", nodes[0].state(0));
    drop(deaf_streams);
    // A peer that comes back, as another process, gets all flows.
    drop(socket);
    let third = node(deaf);
    assert!(soon(|| third.flows() == 2000), "{:?}", third.exchange.status(1));
}
