//! Mutated messages against a running engine. `fuzz/README.md` lists what must hold and how to run
//! longer.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Plan, Proxy, get};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Answer, Client, Ending, HttpBackend, Step, eventually};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Inputs of one target in an ordinary test run.
const INPUTS: u64 = 1500;

/// Inputs between checks, so that a failure names few.
const BATCH: u64 = 25;

/// Pieces that are significant to parsers.
const TOKENS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\0",
    " ",
    "\t",
    ":",
    ",",
    ";",
    "\"",
    "0",
    "-1",
    "+1",
    "0x1",
    "ffffffffffffffff",
    "18446744073709551616",
    "Content-Length: 3\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: content-length\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\n",
    "X_Underscored: 1\r\n",
    "Forwarded: for=\"x\r\n",
    "Host: b\r\n",
    "Expect: 100-continue\r\n",
    "chunked",
    "HTTP/1.0",
    "HTTP/1.1",
    "0\r\n\r\n",
    "3\r\nabc\r\n",
    "GET /inserted HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL",
    "\u{0b}",
    "\u{7f}",
    "\u{e9}",
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz").join(name)
}

/// The files of a folder, sorted by name, so that a seed is reproducible; none if the folder is
/// missing.
fn inputs_in(name: &str) -> Vec<Vec<u8>> {
    let files = fs::read_dir(folder(name)).into_iter().flatten();
    let paths = files.map(|file| file.expect("the corpus can be listed").path());
    let bytes: BTreeMap<_, _> =
        paths.map(|path| (path.clone(), fs::read(path).expect("the corpus can be read"))).collect();
    bytes.into_values().collect()
}

/// The start of mutations: messages of one kind, and chunk streams after a head.
fn corpus(kind: &str, head: &str) -> Vec<Vec<u8>> {
    let mut corpus = inputs_in(&format!("corpus/{kind}"));
    let chunks = inputs_in("corpus/chunks");
    corpus.extend(chunks.iter().map(|chunks| [head.as_bytes(), chunks].concat()));
    assert!(corpus.len() > 40, "the corpus is gone");
    corpus
}

fn mutated(corpus: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut input = corpus[rng.random_range(0..corpus.len())].clone();
    for _ in 0..rng.random_range(0..5) {
        let at = rng.random_range(0..=input.len());
        let end = (at + rng.random_range(0..12)).min(input.len());
        match rng.random_range(0..7) {
            0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
            1 if at < input.len() => input[at] = rng.random(),
            2 => drop(input.drain(at..end)),
            3 => {
                let again = input[at..end].to_vec();
                drop(input.splice(at..at, again));
            }
            4 => {
                let other = &corpus[rng.random_range(0..corpus.len())];
                let from = rng.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let token = TOKENS[rng.random_range(0..TOKENS.len())];
                drop(input.splice(at..at, token.bytes()));
            }
        }
    }
    input
}

/// Feeds `check` the inputs found before, then mutations, for the number or time set in the
/// environment.
fn run(kind: &str, head: &str, mut check: impl FnMut(&[Vec<u8>])) {
    let found = inputs_in(&format!("found/{kind}"));
    found.iter().for_each(|input| check(std::slice::from_ref(input)));
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("EQUIPOISE_FUZZ_SECONDS");
    let seed = number("EQUIPOISE_FUZZ_SEED")
        .unwrap_or_else(|| if seconds.is_some() { rand::random() } else { 1 });
    println!("EQUIPOISE_FUZZ_SEED={seed}");
    let (corpus, mut rng) = (corpus(kind, head), StdRng::seed_from_u64(seed));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    for batch in 0.. {
        match end {
            Some(end) if Instant::now() > end => break,
            None if batch * BATCH >= INPUTS => break,
            _ => check(&(0..BATCH).map(|_| mutated(&corpus, &mut rng)).collect::<Vec<_>>()),
        }
    }
}

fn shown(inputs: &[Vec<u8>]) -> String {
    inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect()
}

/// A proxy with short timeouts, so that an incomplete mutation does not hold up the test.
fn proxy(backend: &HttpBackend) -> Proxy {
    let short = Duration::from_secs(1);
    let plan = Plan::new(Upstream::Exclusive, &[backend.address()]).pool(|pool| {
        pool.response_timeout = short;
        pool.retries = 0;
    });
    let plan = plan.front(|front| {
        front.timeouts.header = short;
        front.timeouts.idle = short;
    });
    plan.start()
}

/// The number of final responses in the bytes that a client read.
fn responses(read: &[u8]) -> usize {
    let heads = read.windows(9).filter(|w| w.starts_with(b"HTTP/1.1 ")).count();
    let interim = read.windows(11).filter(|w| w.starts_with(b"HTTP/1.1 10")).count();
    heads - interim
}

/// The text of the answer to a valid request. Repeats the request if the short timeouts expired on
/// a busy machine.
fn good(proxy: &Proxy) -> String {
    let mut text = String::new();
    let answered = eventually(|| {
        let response = Client::connect(proxy.address).ask(get("/good")).ok();
        response.filter(|it| it.status() == 200).map(|it| text = it.text()).is_some()
    });
    assert!(answered, "a good request is not answered");
    text
}

#[test]
fn mutated_requests_reach_the_backend_as_the_proxy_understood_them() {
    let backend = HttpBackend::start(|r| Answer::sized(200, r.head.method()));
    let proxy = proxy(&backend);
    let sent_upstream = || proxy.backends[0].live.stats.sum(|s| s.requests.get());
    run("request", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", |inputs| {
        let mut answered = 0;
        for input in inputs {
            let mut client = proxy.connect();
            let _ = client.try_send(input);
            let (read, ending) = client.finish().read_to_end();
            assert_ne!(ending, Ending::StillOpen, "{}", shown(std::slice::from_ref(input)));
            answered += responses(&read);
        }
        assert_eq!(good(&proxy), "GET", "{}", shown(inputs));
        proxy.assert_nothing_in_flight();
        // Requests of a client that has left may still be in transit to the backend.
        let seen = || backend.requests().len() as u64;
        assert!(
            eventually(|| seen() == sent_upstream()),
            "{} requests at the backend of {} sent:\n{}",
            seen(),
            sent_upstream(),
            shown(inputs)
        );
        let seen = seen();
        assert_eq!(backend.malformed(), Vec::<String>::new(), "{}", shown(inputs));
        let requests = proxy.stats.sum(|s| s.requests.get());
        assert!(seen <= requests, "{seen} at the backend of {requests}:\n{}", shown(inputs));
        let most = inputs.iter().map(|i| 1 + i.windows(5).filter(|w| *w == b"HTTP/").count());
        assert!(answered <= most.sum(), "{answered} responses:\n{}", shown(inputs));
    });
}

#[test]
fn mutated_responses_are_whole_refused_or_cut_and_never_mixed_up() {
    let next = Arc::<Mutex<Vec<u8>>>::default();
    let answer = next.clone();
    let backend = HttpBackend::start(move |r| match r.head.target() {
        "/good" => Answer::ok("good"),
        _ => Answer::raw(&*answer.lock().expect("no script panics")).then(Step::Close),
    });
    let proxy = proxy(&backend);
    run("response", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", |inputs| {
        for (n, input) in inputs.iter().enumerate() {
            next.lock().expect("no script panics").clone_from(input);
            let mut client: Client = proxy.connect();
            let _ = client.try_send(get("/mutated"));
            client.finish();
            let (_, ending) = client.read_to_end();
            assert_ne!(ending, Ending::StillOpen, "{}", shown(std::slice::from_ref(input)));
            if n % 5 == 0 {
                assert_eq!(good(&proxy), "good", "{}", shown(&inputs[..=n]));
            }
        }
        proxy.assert_nothing_in_flight();
    });
}
