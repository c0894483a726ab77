//! Streams of requests that are mutated from well-formed and malformed ones.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{LINES, frame, head};

/// Inputs in an ordinary test run.
const INPUTS: u32 = 500;

/// Bytes that are significant to readers of frames and of QPACK.
const TOKENS: [&[u8]; 14] = [
    &[0],
    &[1],
    &[0xff],
    &[0x40, 0],
    &[0x80, 0, 0, 0],
    &[0xc0, 0, 0, 0, 0, 0, 0, 0],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0xd1],
    &[0x50, 1, b'a'],
    &[0x54, 1, b'5'],
    b"\x27\x03connection\x05close",
    b"\x26x\x01\r\n",
    &[0x5f, 0x1d, 0x02, b'\r', b'\n'],
];

/// Streams, for the number or time set in the environment, as `fuzz/README.md` says.
pub(crate) struct Mutations {
    corpus: Vec<Vec<u8>>,
    rng: StdRng,
    left: u32,
    end: Option<Instant>,
}

impl Mutations {
    pub(crate) fn start() -> Mutations {
        let number =
            |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seconds = number("EQUIPOISE_FUZZ_SECONDS");
        let seed = number("EQUIPOISE_FUZZ_SEED")
            .unwrap_or_else(|| if seconds.is_some() { rand::random() } else { 1 });
        println!("EQUIPOISE_FUZZ_SEED={seed}");
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        Mutations { corpus: corpus(), rng: StdRng::seed_from_u64(seed), left: INPUTS, end }
    }

    /// Whether a client resets the stream in the place of ending it.
    pub(crate) fn resets(&mut self) -> bool {
        self.rng.random_ratio(1, 8)
    }

    /// Whether the bytes go into a stream of one direction.
    pub(crate) fn is_one_way(&mut self) -> bool {
        self.rng.random_ratio(1, 8)
    }

    fn mutate(&mut self) -> Vec<u8> {
        let (corpus, rng) = (&self.corpus, &mut self.rng);
        let mut input = corpus[rng.random_range(0..corpus.len())].clone();
        for _ in 0..rng.random_range(0..5) {
            let at = rng.random_range(0..=input.len());
            let end = (at + rng.random_range(0..12)).min(input.len());
            match rng.random_range(0..6) {
                0 if at < input.len() => input[at] ^= 1 << rng.random_range(0..8),
                1 if at < input.len() => input[at] = rng.random(),
                2 => drop(input.drain(at..end)),
                3 => {
                    let again = input[at..end].to_vec();
                    drop(input.splice(at..at, again));
                }
                4 => {
                    let other = &corpus[rng.random_range(0..corpus.len())];
                    input.truncate(at);
                    input.extend_from_slice(&other[rng.random_range(0..other.len())..]);
                }
                _ => {
                    let token = TOKENS[rng.random_range(0..TOKENS.len())];
                    drop(input.splice(at..at, token.iter().copied()));
                }
            }
        }
        input
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        match self.end {
            Some(end) if Instant::now() > end => return None,
            None if self.left == 0 => return None,
            _ => self.left = self.left.saturating_sub(1),
        }
        Some(self.mutate())
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let [_, scheme, path, authority] = LINES;
    // `:method POST` with a length of 5, and a field in the Huffman code.
    let post = head(&[&[0xd4], scheme, path, authority, &[0x54, 1, b'5']]);
    let coded = head(&[&LINES.concat(), &[0x5f, 0x50, 0x82, 0x1c, 0x7f]]);
    let trailers = frame(1, &[0, 0, 0x22, b'x', b'y', 1, b'z']);
    vec![
        head(&LINES),
        [post.clone(), frame(0, b"12345")].concat(),
        [post.clone(), frame(0, b"123"), frame(0x21, b"unknown"), frame(0, b"45")].concat(),
        [post, frame(0, b"12345"), trailers.clone()].concat(),
        [head(&[&[0xd4], scheme, path, authority]), frame(0, b"no length"), trailers].concat(),
        coded,
        frame(4, &[6, 0x44, 0]),
        [vec![0], frame(4, &[6, 0x44, 0, 1, 0, 7, 0]), frame(7, &[0])].concat(),
        [vec![2], vec![0x3f, 0xe1, 0x1f], vec![0x41, b'a', 1, b'b']].concat(),
        vec![3, 0x80, 0x40],
        vec![1, 0],
    ]
}
