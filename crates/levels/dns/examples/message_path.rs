//! Measures the CPU time of a query in user space: parse, pick, copy.
//!
//! `cargo run --release -p equipoise-dns --example message_path`

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use equipoise_core::Generation;
use equipoise_dns::config::{NameConfig, NameServer, NodeConfig, ZoneConfig};
use equipoise_dns::stats::Shard;
use equipoise_dns::{
    DnsConfig, LoadTable, Mode, Name, Now, Published, Responder, SnapshotInput, Transport, build,
    zone,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const QUERIES: u32 = 2_000_000;

fn name(text: &str) -> Result<Name, Box<dyn Error>> {
    Ok(Name::vec_from_str(text)?)
}

fn balanced(text: &str, mode: Mode) -> Result<NameConfig, Box<dyn Error>> {
    let (ttl, ttl_draining, ttl_heavy) = (60, 10, 20);
    Ok(NameConfig {
        name: name(text)?,
        mode,
        nodes: vec![0, 1, 2, 3],
        ttl,
        ttl_draining,
        ttl_heavy,
        elastic: None,
        port: None,
        alpn: Vec::new(),
    })
}

fn config() -> Result<DnsConfig, Box<dyn Error>> {
    let origin = name("cluster.example.")?;
    let zone = ZoneConfig {
        ttl: 3600,
        negative_ttl: 30,
        serial: 1,
        mailbox: name("hostmaster.cluster.example.")?,
        servers: vec![NameServer {
            name: name("ns1.cluster.example.")?,
            addresses: vec![[192, 0, 2, 1].into()],
        }],
        nodes: (1..=4u8)
            .map(|n| NodeConfig {
                pool: "web".into(),
                name: format!("n{n}").into(),
                port: 80,
                v4: vec![[192, 0, 2, n].into()],
                v6: Vec::new(),
            })
            .collect(),
        names: vec![
            balanced("pair.cluster.example.", Mode::Pair)?,
            balanced("single.cluster.example.", Mode::Single)?,
            balanced("ordered.cluster.example.", Mode::Ordered)?,
            balanced("srv.cluster.example.", Mode::Srv)?,
            balanced("https.cluster.example.", Mode::Https)?,
        ],
        records: zone::file::read(Path::new("/a.zone"), &origin, &|_| {
            Ok("static IN A 192.0.2.9\nmx IN MX 10 static\n".to_owned())
        })?,
        origin,
    };
    Ok(DnsConfig { zones: vec![Arc::new(zone)], ..DnsConfig::default() })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut config = config()?;
    config.options.cookies =
        equipoise_dns::CookieSecrets::new(vec![equipoise_dns::CookieSecret::new([1; 16])]);
    config.options.rate_limit.per_second = std::env::args().nth(1).map_or(Ok(0), |n| n.parse())?;
    let input = SnapshotInput {
        generation: Generation(1),
        config: &config,
        states: &[],
        threads: 1,
        before: None,
        secrets: (1, 2),
    };
    let snapshot = Arc::new(build(&input, &mut SmallRng::seed_from_u64(1)));
    let published = Published { snapshot, loads: Arc::new(LoadTable::default()) };
    let mut responder = Responder::new(0, 1);
    let stats = Shard::default();
    let mut out = vec![0; 1232];
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let cookie = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 12, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
    println!("{:<24} {:<8} {:>9}", "name", "EDNS", "ns/query");
    for (text, rtype) in [
        ("pair", 1),
        ("single", 1),
        ("ordered", 1),
        ("srv", 33),
        ("https", 65),
        ("static", 1),
        ("mx", 15),
        ("none", 1),
        ("a.b.c.d.e.f.none", 1),
    ] {
        for (edns, extra) in [("none", &[][..]), ("plain", &opt), ("cookie", &cookie)] {
            let mut query =
                vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(!extra.is_empty())];
            query.extend(name(&format!("{text}.cluster.example."))?.as_slice());
            query.extend([0, rtype, 0, 1]);
            query.extend(extra);
            let began = Instant::now();
            for turn in 0..QUERIES {
                let now = Now { unix_seconds: 1, ticks: u64::from(turn) * 10_000 };
                let client = [198, 51, (turn >> 8) as u8, turn as u8].into();
                let from = (client, Transport::Udp);
                let length =
                    responder.respond(&published, &stats, from, now, black_box(&query), &mut out);
                black_box(length).map_err(|reason| reason.name())?;
            }
            let each = began.elapsed().as_nanos() as f64 / f64::from(QUERIES);
            println!("{text:<24} {edns:<8} {each:>9.1}");
        }
    }
    Ok(())
}
