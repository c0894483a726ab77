//! Mutated messages: no input causes a panic, and every output is a response.

use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::Transport;

/// Number of mutations in an ordinary test run.
const ROUNDS: u64 = 60_000;

/// Messages that broke other servers, or that reach a corner case of the reader.
fn corpus() -> Vec<Vec<u8>> {
    let names = [
        "www.cluster.example",
        "cluster.example",
        "all.cluster.example",
        "_web._tcp.cluster.example",
        "app.cluster.example",
        "a.sub.cluster.example",
        "x.wild.cluster.example",
        "none.cluster.example",
        "large.more.cluster.example",
        ".",
        "chain.cluster.example",
        "spread.cluster.example",
        "other.example",
    ];
    let mut all = Vec::new();
    for name in names {
        for rtype in [A, AAAA, ANY, TXT, SRV, HTTPS, NS, DS, OPT, 0, 252, 65_535] {
            let plain = query(name, rtype);
            let options = [
                &[][..],
                &[0, 3, 0, 0],
                &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8],
                &[
                    0, 10, 0, 24, 1, 2, 3, 4, 5, 6, 7, 8, 1, 0, 0, 0, 0x65, 0x53, 0xf1, 0, 1, 2, 3,
                    4, 5, 6, 7, 8,
                ],
                &[0, 8, 0, 7, 0, 1, 24, 0, 203, 0, 113],
                &[0, 8, 0, 4, 0, 2, 0, 0],
                &[0, 11, 0, 0, 0, 12, 0, 3, 0, 0, 0],
                &[0xff; 12],
            ];
            all.extend(options.map(|options| with_opt(plain.clone(), 1232, 0x8000, options)));
            all.push(plain);
        }
    }
    all.extend(found());
    all.extend(others());
    all
}

/// Messages of the folder `EQUIPOISE_DNS_CORPUS`, one per file, in the format that other projects
/// publish.
fn others() -> Vec<Vec<u8>> {
    let Some(folder) = std::env::var_os("EQUIPOISE_DNS_CORPUS") else { return Vec::new() };
    let files = std::fs::read_dir(folder).expect("the folder EQUIPOISE_DNS_CORPUS is there");
    let read: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    println!("{} messages of others", read.len());
    read
}

/// The cases of `fuzz/corpus/dns`, hexadecimal, one per file.
fn found() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../fuzz/corpus/dns");
    let files = std::fs::read_dir(folder).expect("fuzz/corpus/dns is there");
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    let read = |text: String| -> Vec<u8> {
        let code: String = text.lines().filter(|line| !line.starts_with('#')).collect();
        let digits: Vec<u8> = code.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    };
    texts.map(read).collect()
}

fn holds(server: &mut Server, bytes: &[u8]) {
    for transport in [Transport::Udp, Transport::Tcp] {
        let Ok(answer) = server.over(transport, bytes) else { continue };
        assert!(transport == Transport::Tcp || answer.len() <= 1232);
        assert!(answer.len() >= 12 && answer[2] & 0x80 != 0);
        assert_eq!(answer[..2], bytes[..2]);
        let chaos = answer.len() > 18
            && answer[6..8] == [0, 1]
            && answer.windows(4).any(|w| w == [0, 16, 0, 3]);
        if !chaos {
            told(&answer);
        }
    }
}

#[test]
fn the_corpus_is_answered_or_dropped() {
    let mut server = Server::new();
    assert!(found().len() >= 15, "the corpus has been read");
    corpus().iter().for_each(|bytes| holds(&mut server, bytes));
}

#[test]
fn mutated_messages_are_answered_or_dropped() {
    let given = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let end = given("EQUIPOISE_FUZZ_SECONDS")
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seed =
        given("EQUIPOISE_FUZZ_SEED").unwrap_or_else(|| end.map_or(1, |_| rand::rng().random()));
    println!("EQUIPOISE_FUZZ_SEED={seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut server = Server::new();
    let corpus = corpus();
    for round in 0.. {
        if end.map_or(round == ROUNDS, |end| round % 1024 == 0 && Instant::now() > end) {
            println!("{round} messages");
            break;
        }
        let mut bytes = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(1..6) {
            mutate(&mut bytes, &corpus, &mut rng);
        }
        bytes.truncate(2048);
        let kept = bytes.clone();
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| holds(&mut server, &bytes)));
        assert!(outcome.is_ok(), "seed {seed}: {kept:02x?}");
    }
}

fn mutate(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut SmallRng) {
    if bytes.is_empty() {
        bytes.push(rng.random());
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..7) {
        0 => bytes[at] = rng.random(),
        1 => bytes[at] ^= 1 << rng.random_range(0..8),
        2 => bytes.truncate(at),
        3 => bytes.insert(at, rng.random()),
        4 => {
            bytes.remove(at);
        }
        5 => bytes[at] = [0, 0xff, 0xc0, 0x3f, 0x40, 41, 1][rng.random_range(0..7)],
        _ => {
            let other = &corpus[rng.random_range(0..corpus.len())];
            bytes.extend(&other[rng.random_range(0..other.len().max(1)).min(other.len())..]);
        }
    }
}
