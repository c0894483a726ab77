//! The engine with real sockets.
#![allow(clippy::unwrap_used, reason = "the functions that tests share are tests, too")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use equipoise_core::{Generation, LineFormat, LogLine};
use equipoise_dns::config::{DnsConfig, NameConfig, NameServer, NodeConfig, ZoneConfig};
use equipoise_dns::engine::{Engine, EngineOptions, TcpLimits, shards};
use equipoise_dns::{
    Fill, Mode, Name, NodeState, QueryLog, Snapshot, SnapshotInput, Standing, build,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const THREADS: usize = 2;
const PATIENT: Duration = Duration::from_secs(60);

fn name(text: &str) -> Name {
    Name::vec_from_str(text).unwrap()
}

fn config() -> DnsConfig {
    let zone = ZoneConfig {
        origin: name("cluster.example."),
        ttl: 3600,
        negative_ttl: 30,
        serial: 1,
        mailbox: name("hostmaster.cluster.example."),
        servers: vec![NameServer {
            name: name("ns.cluster.example."),
            addresses: vec!["192.0.2.1".parse().unwrap()],
        }],
        nodes: (1..=3u8)
            .map(|n| NodeConfig {
                pool: "web".into(),
                name: format!("n{n}").into(),
                port: 80,
                v4: vec![[192, 0, 2, n].into()],
                v6: Vec::new(),
            })
            .collect(),
        names: vec![NameConfig {
            name: name("www.cluster.example."),
            mode: Mode::Ordered,
            nodes: vec![0, 1, 2],
            ttl: 60,
            ttl_draining: 10,
            ttl_heavy: 20,
            elastic: None,
            port: None,
            alpn: Vec::new(),
        }],
        records: Vec::new(),
    };
    let mut config = DnsConfig { zones: vec![Arc::new(zone)], ..DnsConfig::default() };
    config.options.rate_limit.per_second = 0;
    config
}

fn snapshot(generation: u64, standings: [Standing; 3]) -> Arc<Snapshot> {
    snapshot_of(&config(), generation, standings)
}

fn snapshot_of(config: &DnsConfig, generation: u64, standings: [Standing; 3]) -> Arc<Snapshot> {
    let states = vec![standings.map(|standing| NodeState { standing, share: 1.0 }).to_vec()];
    let input = SnapshotInput {
        generation: Generation(generation),
        config,
        states: &states,
        threads: shards(THREADS),
        before: None,
        secrets: (1, 2),
    };
    Arc::new(build(&input, &mut SmallRng::seed_from_u64(1)))
}

const LIMITS: TcpLimits = TcpLimits { connections_max: 4, idle: PATIENT };

fn options(tcp: TcpLimits) -> EngineOptions {
    EngineOptions {
        threads: THREADS,
        tcp,
        query_log: QueryLog::new(|_| false),
        inherited: Default::default(),
    }
}

fn engine(listen: &[&str], tcp: TcpLimits) -> Engine {
    let listen: Vec<SocketAddr> = listen.iter().map(|text| text.parse().unwrap()).collect();
    Engine::start(options(tcp), &listen, snapshot(1, [Standing::Serving; 3])).unwrap()
}

fn query(id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend(name("www.cluster.example.").as_slice());
    bytes.extend([0, 1, 0, 1]);
    bytes
}

fn ask(from: &UdpSocket, to: SocketAddr, id: u16) -> (Vec<u8>, SocketAddr) {
    from.set_read_timeout(Some(PATIENT)).unwrap();
    from.send_to(&query(id), to).unwrap();
    let mut answer = [0; 2048];
    let (length, peer) = from.recv_from(&mut answer).unwrap();
    (answer[..length].to_vec(), peer)
}

/// Number of records in the answer section.
fn answers(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[6], message[7]])
}

fn framed(ids: impl IntoIterator<Item = u16>) -> Vec<u8> {
    ids.into_iter()
        .flat_map(|id| {
            let query = query(id);
            [&(query.len() as u16).to_be_bytes()[..], &query].concat()
        })
        .collect()
}

fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    message
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream
}

/// Waits until a count has the expected value: counters may change after the client has read its
/// answer.
#[track_caller]
fn soon<T: PartialEq + std::fmt::Debug>(count: impl Fn() -> T, expected: T) {
    let begun = std::time::Instant::now();
    while count() != expected && begun.elapsed() < PATIENT {
        std::thread::yield_now();
    }
    assert_eq!(count(), expected);
}

/// Number of drops with this reason.
fn drops(engine: &Engine, reason: &str) -> u64 {
    let drops = engine.figures().drops;
    drops.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count)
}

#[test]
fn datagrams_are_answered_over_both_families() {
    let engine = engine(&["127.0.0.1:0", "[::1]:0"], LIMITS);
    for to in engine.addresses() {
        let from: SocketAddr =
            if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }.parse().unwrap();
        let client = UdpSocket::bind(from).unwrap();
        for id in 0..200 {
            let (answer, peer) = ask(&client, to, id);
            assert_eq!((&answer[..2], peer, answers(&answer)), (&id.to_be_bytes()[..], to, 3));
        }
    }
    let counted = || {
        let figures = engine.figures();
        (figures.queries_udp, figures.queries_tcp, figures.latency.iter().sum::<u64>())
    };
    soon(counted, (400, 0, 400));
}

#[test]
fn an_answer_is_sent_from_the_queried_address() {
    let engine = engine(&["0.0.0.0:0"], LIMITS);
    let port = engine.addresses()[0].port();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    for address in ["127.0.0.1", "127.0.0.2", "127.1.2.3"] {
        let to = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        assert_eq!(ask(&client, to, 7).1, to);
    }
    let v6 = self::engine(&["[::]:0"], LIMITS);
    let to = SocketAddr::new("::1".parse().unwrap(), v6.addresses()[0].port());
    assert_eq!(ask(&UdpSocket::bind("[::1]:0").unwrap(), to, 7).1, to);
}

#[test]
fn every_query_of_a_burst_is_answered() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let to = engine.addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENT)).unwrap();
    for id in 0..150 {
        client.send_to(&query(id), to).unwrap();
    }
    let mut seen = std::collections::BTreeSet::new();
    let mut answer = [0; 2048];
    while seen.len() < 150 {
        client.recv(&mut answer).unwrap();
        seen.insert([answer[0], answer[1]]);
    }
}

#[test]
fn a_datagram_that_is_no_query_is_dropped_and_the_next_one_answered() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let to = engine.addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(&[1, 2, 3], to).unwrap();
    client.send_to(&[], to).unwrap();
    client.send_to(&[0; 9000], to).unwrap();
    assert_eq!(answers(&ask(&client, to, 9).0), 3);
    soon(|| (drops(&engine, "too_short"), drops(&engine, "too_long")), (2, 1));
}

#[test]
fn queries_in_line_on_a_connection_are_answered_in_their_order() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let mut stream = connect(engine.addresses()[0]);
    let bytes = framed(0..1000);
    let mut writer = stream.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        // In pieces that end inside messages.
        bytes.chunks(777).for_each(|chunk| writer.write_all(chunk).unwrap());
    });
    for id in 0..1000u16 {
        assert_eq!(read_message(&mut stream)[..2], id.to_be_bytes());
    }
    writing.join().unwrap();
    soon(|| engine.figures().queries_tcp, 1000);
}

/// Whether the peer closes the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

fn asks(stream: &mut TcpStream, id: u16) {
    stream.write_all(&framed([id])).unwrap();
    assert_eq!(read_message(stream)[..2], id.to_be_bytes());
}

#[test]
fn a_connection_beyond_the_limit_replaces_the_longest_idle_connection() {
    let limits = TcpLimits { connections_max: 2, ..LIMITS };
    let options = EngineOptions { threads: 1, ..options(limits) };
    let listen = ["127.0.0.1:0".parse().unwrap()];
    let engine = Engine::start(options, &listen, snapshot(1, [Standing::Serving; 3])).unwrap();
    let mut kept: Vec<_> = (0..2).map(|_| connect(engine.addresses()[0])).collect();
    for stream in &mut kept {
        asks(stream, 1);
    }
    // The second connection has been idle for longer.
    asks(&mut kept[0], 2);
    soon(|| engine.connections_open(), 2);
    let mut third = connect(engine.addresses()[0]);
    asks(&mut third, 3);
    assert!(is_closed(&mut kept[1]));
    soon(|| (engine.connections_open(), drops(&engine, "connections_max")), (2, 1));
    asks(&mut kept[0], 4);
    asks(&mut third, 5);
}

#[test]
fn idle_connections_lock_out_no_new_client() {
    let engine = engine(&["127.0.0.1:0"], TcpLimits { connections_max: 16, ..LIMITS });
    let to = engine.addresses()[0];
    let mut flood = Vec::new();
    for id in 0..100 {
        flood.push(connect(to));
        asks(&mut connect(to), id);
        // Each thread may have one connection beyond the limit, and one more while it closes
        // another.
        let begun = std::time::Instant::now();
        while engine.connections_open() >= 16 + THREADS {
            assert!(begun.elapsed() < PATIENT, "{}", engine.connections_open());
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_connection_with_an_incomplete_query_is_closed_when_idle() {
    let engine = engine(&["127.0.0.1:0"], TcpLimits { idle: Duration::from_millis(100), ..LIMITS });
    let mut stream = connect(engine.addresses()[0]);
    // The server may close it earlier, because a busy machine delays this test.
    let _ = stream.write_all(&framed([1])[..10]);
    assert!(is_closed(&mut stream));
    soon(|| drops(&engine, "connection_idle"), 1);
}

#[test]
fn a_message_that_is_too_long_ends_its_connection() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let mut stream = connect(engine.addresses()[0]);
    stream.write_all(&framed([1])).unwrap();
    stream.write_all(&[0xff, 0xff, 0, 0]).unwrap();
    assert_eq!(read_message(&mut stream)[..2], [0, 1], "what came before is answered");
    assert!(is_closed(&mut stream));
}

#[test]
fn the_next_query_is_answered_from_the_last_published_snapshot() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let to = engine.addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut stream = connect(to);
    use Standing::{Down, Serving};
    for (generation, standings, nodes) in
        [(2, [Serving, Serving, Down], 2), (3, [Down, Serving, Down], 1), (4, [Serving; 3], 3)]
    {
        assert!(engine.publish(snapshot(generation, standings)));
        assert_eq!(answers(&ask(&client, to, 1).0), nodes);
        stream.write_all(&framed([1])).unwrap();
        assert_eq!(answers(&read_message(&mut stream)), nodes);
    }
    assert!(!engine.publish(snapshot(3, [Down, Serving, Down])), "an older one never wins");
    assert_eq!(answers(&ask(&client, to, 1).0), 3);
}

#[test]
fn listen_addresses_are_added_and_removed_without_affecting_others() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let first = engine.addresses()[0];
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let asked: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let other: SocketAddr = "127.0.0.2:0".parse().unwrap();
    engine.listen(&[asked, other], LIMITS).unwrap();
    let [same, second] = engine.addresses()[..] else { panic!() };
    assert_eq!(same, first);
    assert_eq!(answers(&ask(&client, first, 1).0), 3);
    assert_eq!(answers(&ask(&client, second, 1).0), 3);
    // A failed change has no effect.
    let taken = UdpSocket::bind("127.0.0.3:0").unwrap();
    let error = engine.listen(&[other, taken.local_addr().unwrap()], LIMITS).unwrap_err();
    let cause = std::error::Error::source(&error).expect("the error of the kernel").to_string();
    assert!(cause.contains("this process listens there already"), "{cause}");
    assert_eq!(engine.addresses(), [first, second]);
    engine.listen(&[other], LIMITS).unwrap();
    assert_eq!(engine.addresses(), [second]);
    assert_eq!(answers(&ask(&client, second, 1).0), 3);
}

#[test]
fn two_engines_do_not_share_a_port() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let second =
        Engine::start(options(LIMITS), &engine.addresses(), snapshot(1, [Standing::Serving; 3]));
    assert!(second.is_err());
}

#[test]
fn the_busiest_resolver_is_known() {
    let engine = engine(&["127.0.0.1:0"], LIMITS);
    let client = UdpSocket::bind("127.0.0.5:0").unwrap();
    (0..320).for_each(|id| drop(ask(&client, engine.addresses()[0], id)));
    assert_eq!(engine.top_resolvers(3)[0].0, "127.0.0.5".parse::<IpAddr>().unwrap());
}

/// The text of a line, without its time and kind.
fn text_of(fill: &Fill<'_>) -> String {
    let mut out = Vec::new();
    let mut line = LogLine::begin(LineFormat::TEXT, "query", Duration::ZERO, &mut out);
    fill(&mut line);
    let text = String::from_utf8(out).expect("it is text");
    text.split_once("kind=query").expect("it has a kind").1.to_owned()
}

#[test]
fn with_query_logging_each_answer_is_logged_on_its_own_line() {
    let (told, lines) = mpsc::sync_channel(2);
    let query_log = QueryLog::new(move |fill| told.try_send(text_of(fill)).is_ok());
    let options = EngineOptions { query_log, ..options(LIMITS) };
    let listen = ["127.0.0.1:0".parse().unwrap()];
    let engine = Engine::start(options, &listen, snapshot(1, [Standing::Serving; 3])).unwrap();
    let (client, to) = (UdpSocket::bind("127.0.0.6:0").unwrap(), engine.addresses()[0]);
    ask(&client, to, 1);
    assert!(lines.try_recv().is_err(), "the default is not to log");

    let mut config = config();
    config.options.query_log = 1.0;
    engine.publish(snapshot_of(&config, 2, [Standing::Serving, Standing::Down, Standing::Down]));
    ask(&client, to, 2);
    let line = lines.recv_timeout(PATIENT).unwrap();
    let expected = " client=127.0.0.6 transport=udp name=\"www.cluster.example\" type=A rcode=NOERROR bytes=53 truncated=false addresses=192.0.2.1";
    assert_eq!(line, expected);

    // Characters of a name cannot end its log line.
    let mut odd = query(3);
    odd[13..16].copy_from_slice(b"\n\"\\");
    client.send_to(&odd, to).unwrap();
    let line = lines.recv_timeout(PATIENT).unwrap();
    assert!(line.contains("rcode=NXDOMAIN") && !line.contains('\n'), "{line}");

    let mut stream = connect(to);
    stream.write_all(&framed(0..3)).unwrap();
    (0..3).for_each(|_| drop(read_message(&mut stream)));
    // The log had space for two lines.
    soon(|| engine.figures().log_dropped, 1);
    let logged: Vec<_> = lines.try_iter().collect();
    assert!(logged.iter().all(|line| line.contains("transport=tcp")), "{logged:?}");
    assert_eq!(logged.len(), 2);
}

#[test]
fn a_panic_loses_only_its_own_datagrams_or_connection() {
    // A log that panics on demand.
    let (panics, armed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let (told, whether) = (Arc::clone(&panics), Arc::clone(&armed));
    let query_log = QueryLog::new(move |_| {
        if whether.swap(false, Ordering::Relaxed) {
            told.store(true, Ordering::Relaxed);
            panic!("on purpose");
        }
        true
    });
    let mut config = config();
    config.options.query_log = 1.0;
    let options = EngineOptions { threads: 1, query_log, ..options(LIMITS) };
    let listen = ["127.0.0.1:0".parse().unwrap()];
    let snapshot = snapshot_of(&config, 1, [Standing::Serving; 3]);
    let engine = Engine::start(options, &listen, snapshot).unwrap();
    let (client, to) = (UdpSocket::bind("127.0.0.1:0").unwrap(), engine.addresses()[0]);
    client.send_to(&query(1), to).unwrap();
    while !panics.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let (answer, _) = ask(&client, to, 2);
    assert_eq!(answer[..2], [0, 2], "the first one is lost, the thread answers the next");

    let (mut other, mut stream) = (connect(to), connect(to));
    asks(&mut other, 3);
    armed.store(true, Ordering::Relaxed);
    stream.write_all(&framed([4])).unwrap();
    assert!(is_closed(&mut stream));
    asks(&mut other, 5);
    asks(&mut connect(to), 6);
    soon(|| drops(&engine, "panicked"), 2);
}
