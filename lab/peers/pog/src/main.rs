//! The POG beside other ways to map keys to small values: the same keys and values through each, as
//! ratios.

mod fuse;

use std::hint::black_box;

use anyhow::{Context, Result};
use clap::Parser;
use equipoise_lab_runner::memory::{self, Counting};
use equipoise_lab_runner::{Case, Options, Row, Run, measure};
use equipoise_pog::{AesHash, KeyHash, Pog, PogBuilder, Seed, SipHash13};
use fuse::FuseMap;
use ptr_hash::{DefaultPtrHash, PtrHashParams};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Lookups in one pass.
const LOOKUPS: usize = 1 << 20;

/// Keys of a batch.
const BATCH: usize = 256;

/// Changes of one key that are timed.
const CHANGES: u64 = 100_000;

/// Puts the same keys through a POG, hashbrown, a perfect hash and a static function, and writes
/// ratios
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let options = Arguments::parse().options;
    let (seed, repetitions) = (options.seed, options.repetitions);
    let mut run = Run::new("peers-pog", options);
    let measure = |case: &Case, row: &mut Row| measure(case, row, seed, repetitions);
    run.add(include_str!("../experiments/peers.toml"), measure)?;
    run.run()
}

/// A contender that has been built.
struct Built<T> {
    map: T,
    /// The needs of a data plane.
    bytes: usize,
    seconds: f64,
}

fn build<T>(make: impl FnOnce() -> T) -> Built<T> {
    let start = std::time::Instant::now();
    let (map, bytes, _) = memory::of(make);
    Built { map, bytes, seconds: start.elapsed().as_secs_f64() }
}

fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let random = SipHash13::with_seed(Seed { k0: seed, k1: 0 });
    let count = case.count("keys")?;
    let keys: Vec<u64> = (0..count as u64).map(|number| random.hash(&number)).collect();
    let values: Vec<u16> = keys.iter().map(|key| *key as u16).collect();
    let entries = || keys.iter().copied().zip(values.iter().copied());
    // Only keys of the set: what the others answer for foreign keys differs in kind.
    let below = |at: u64| ((u128::from(random.hash(&!at)) * count as u128) >> 64) as usize;
    let queries: Vec<u64> = (0..LOOKUPS as u64).map(|at| keys[below(at)]).collect();

    let mut pog = build(|| PogBuilder::<u16>::new().random_seed(seed).build(entries()));
    let mut controller = pog.map.context("distinct keys")?;
    let aes = PogBuilder::<u16>::new().hash::<AesHash>().random_seed(seed).build(entries())?;
    let aes = aes.pog().clone();
    let plane = controller.pog().clone();
    pog.bytes = plane.memory_bytes();
    let mut brown = build(|| entries().collect::<hashbrown::HashMap<u64, u16>>());
    let perfect = build(|| Perfect::build(&keys, &values));
    let fuse = build(|| FuseMap::build(&keys, &values, seed));
    let fuse_map = fuse.map.context("distinct keys")?;
    for (key, value) in entries().take(10_000) {
        let found = [
            plane.tau(&key),
            aes.tau(&key),
            brown.map[&key],
            perfect.map.value(&key),
            fuse_map.value(&key),
        ];
        assert_eq!(found, [value; 5]);
    }

    let seconds = measure::side_by_side(
        repetitions,
        &mut [
            &mut || each(&queries, |key| plane.tau(key)),
            &mut || each(&queries, |key| aes.tau(key)),
            &mut || each(&queries, |key| brown.map.get(key).copied().unwrap_or(0)),
            &mut || each(&queries, |key| perfect.map.value(key)),
            &mut || each(&queries, |key| fuse_map.value(key)),
            &mut || batches(&plane, &queries),
            &mut || black_box_sum(perfect.map.stream(&queries)),
            &mut || fuse_batches(&fuse_map, &queries),
        ],
    );
    let names = [
        "pog",
        "pog_aes",
        "hashbrown",
        "ptr_hash",
        "fuse",
        "pog_batched",
        "ptr_hash_batched",
        "fuse_batched",
    ];
    for (name, of) in names.iter().zip(&seconds) {
        row.figure(&format!("{name}_ns"), 1e9 * measure::median(of) / LOOKUPS as f64);
        // Batched against batched where there is one.
        let pog = if name.ends_with("batched") { &seconds[5] } else { &seconds[0] };
        row.figure(&format!("{name}_time_over_pog"), measure::ratio(of, pog));
    }
    let built = [
        ("pog", pog.bytes, pog.seconds),
        ("hashbrown", brown.bytes, brown.seconds),
        ("ptr_hash", perfect.bytes, perfect.seconds),
        ("fuse", fuse.bytes, fuse.seconds),
    ];
    for (name, bytes, seconds) in built {
        row.figure(&format!("{name}_bytes_per_key"), bytes as f64 / count as f64)
            .figure(&format!("{name}_memory_over_pog"), bytes as f64 / pog.bytes as f64)
            .figure(&format!("{name}_build_ns_per_key"), 1e9 * seconds / count as f64);
    }
    let pog_change = change(CHANGES, &random, |key| controller.insert(key, 1).map(drop).is_ok());
    let brown_change = change(CHANGES, &random, |key| brown.map.insert(key, 1).is_none());
    row.figure("pog_insert_ns", pog_change).figure("hashbrown_insert_ns", brown_change);
    Ok(())
}

/// Nanoseconds of an insert of a new key.
fn change(changes: u64, random: &SipHash13, mut insert: impl FnMut(u64) -> bool) -> f64 {
    let new: Vec<u64> = (0..changes).map(|number| random.hash(&(number | 1 << 50))).collect();
    let seconds =
        measure::seconds(|| assert!(new.into_iter().all(&mut insert), "the keys are new"));
    1e9 * seconds / changes as f64
}

fn black_box_sum(values: impl Iterator<Item = u16>) {
    black_box(values.map(u64::from).sum::<u64>());
}

fn each(queries: &[u64], value: impl Fn(&u64) -> u16) {
    black_box_sum(queries.iter().map(value));
}

fn batches<H: KeyHash>(pog: &Pog<u16, H>, queries: &[u64]) {
    let mut taus = [0; BATCH];
    for keys in queries.chunks(BATCH) {
        pog.tau_batch(keys, &mut taus[..keys.len()]);
        black_box_sum(taus[..keys.len()].iter().copied());
    }
}

fn fuse_batches(map: &FuseMap, queries: &[u64]) {
    let mut values = [0; BATCH];
    for keys in queries.chunks(BATCH) {
        map.values(keys, &mut values[..keys.len()]);
        black_box_sum(values[..keys.len()].iter().copied());
    }
}

/// A minimal perfect hash and the values in its order.
struct Perfect {
    hash: DefaultPtrHash,
    values: Vec<u16>,
}

impl Perfect {
    fn build(keys: &[u64], values: &[u16]) -> Perfect {
        let hash = <DefaultPtrHash>::new(keys, PtrHashParams::default());
        let mut ordered = vec![0; keys.len()];
        keys.iter().zip(values).for_each(|(key, value)| ordered[hash.index(key)] = *value);
        Perfect { hash, values: ordered }
    }

    #[inline(always)]
    fn value(&self, key: &u64) -> u16 {
        self.values[self.hash.index(key)]
    }

    /// The crate's own way to look up many keys, which fetches 32 of them ahead.
    fn stream<'a>(&'a self, queries: &'a [u64]) -> impl Iterator<Item = u16> + 'a {
        self.hash.index_stream::<32, _>(queries).map(|index| self.values[index])
    }
}
