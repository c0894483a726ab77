//! Figures 5 and 6: lookups, against the hash table with its ring.

use std::hint::black_box;

use anyhow::{Result, bail};
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_pog::{AesHash, FiveTupleV4, HostTable, KeyHash, Pog, PogBuilder, SipHash13};

use crate::keys::{self, Kind, Random};
use crate::ring::{BrownTable, HOSTS, Ring, SortedRing, StdTable, Table, TableAndRing, TreeRing};

/// Lookups in one pass.
const LOOKUPS: usize = 1 << 20;

/// Keys of a batch.
const BATCH: usize = 256;

/// Columns of the contenders, in the order of [`contenders`].
const NAMES: [&str; 7] = [
    "pog_single",
    "pog_batched",
    "pog_aes_single",
    "pog_aes_batched",
    "std_ring",
    "std_tree",
    "hashbrown_ring",
];

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    match case.word("kind")? {
        "64-bit value" => of::<u64>(case, row, seed, repetitions),
        "five-tuple" => of::<FiveTupleV4>(case, row, seed, repetitions),
        other => bail!("no kind of key is called `{other}`"),
    }
}

fn of<K: Kind>(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    let random = Random::new(seed);
    let keys = keys::set::<K>(&random, case.count("keys")?);
    let queries = keys::queries::<K>(&random, keys.len(), case.number("stateful")?, LOOKUPS);
    let hosts = host_table();
    // The host of a key is the one that the POG gives it, in every contender.
    let entries = || keys.iter().cloned().zip((0..HOSTS).cycle());
    let sip: Pog<u16, SipHash13> = pog(&hosts, seed, entries())?;
    let aes: Pog<u16, AesHash> = pog(&hosts, seed, entries())?;
    let std_ring = TableAndRing::<StdTable<K>, SortedRing>::new(&random, entries());
    let std_tree = TableAndRing::<StdTable<K>, TreeRing>::new(&random, entries());
    let brown_ring = TableAndRing::<BrownTable<K>, SortedRing>::new(&random, entries());
    for (key, host) in entries().take(1000) {
        let others = [std_ring.host(&key), std_tree.host(&key), brown_ring.host(&key)];
        let taus = [sip.tau(&key), aes.tau(&key)];
        assert_eq!(taus.map(|tau| hosts.host(tau)), [host; 2]);
        assert_eq!(others, [host; 3]);
    }
    let seconds = measure::side_by_side(
        repetitions,
        &mut [
            &mut || single(&sip, &hosts, &queries),
            &mut || batched(&sip, &hosts, &queries),
            &mut || single(&aes, &hosts, &queries),
            &mut || batched(&aes, &hosts, &queries),
            &mut || table(&std_ring, &queries),
            &mut || table(&std_tree, &queries),
            &mut || table(&brown_ring, &queries),
        ],
    );
    for (name, seconds) in NAMES.iter().zip(&seconds) {
        row.figure(&format!("{name}_mps"), LOOKUPS as f64 / 1e6 / measure::median(seconds));
    }
    for (name, of) in NAMES.iter().zip(&seconds).take(4) {
        row.figure(&format!("{name}_ratio"), measure::ratio(&seconds[4], of));
    }
    row.figure("pog_batched_ratio_tree", measure::ratio(&seconds[5], &seconds[1]));
    row.figure("pog_single_ratio_tree", measure::ratio(&seconds[5], &seconds[0]));
    row.figure("pog_batched_ratio_hashbrown", measure::ratio(&seconds[6], &seconds[1]));
    Ok(())
}

/// All hosts alike.
fn host_table() -> HostTable {
    let mut hosts = HostTable::new(16);
    let capacities: Vec<_> = (0..HOSTS).map(|host| (host, 1)).collect();
    let shared = hosts.share_out(&capacities, |_| false, &mut Vec::new());
    shared.expect("every host has a capacity");
    hosts
}

/// A POG in which each key has an entry of its host.
fn pog<K: Kind, H: KeyHash>(
    hosts: &HostTable,
    seed: u64,
    entries: impl Iterator<Item = (K, u16)>,
) -> Result<Pog<u16, H>> {
    let mut entry_of = vec![0_u16; usize::from(HOSTS)];
    hosts
        .entries()
        .iter()
        .zip(0..=u16::MAX)
        .for_each(|(host, entry)| entry_of[usize::from(*host)] = entry);
    let entries = entries.map(|(key, host)| (key, entry_of[usize::from(host)]));
    let controller = PogBuilder::<u16>::new().hash::<H>().random_seed(seed).build(entries)?;
    Ok(controller.pog().clone())
}

fn single<K: Kind, H: KeyHash>(pog: &Pog<u16, H>, hosts: &HostTable, queries: &[K]) {
    let sum: u64 = queries.iter().map(|key| u64::from(hosts.host(pog.tau(key)))).sum();
    black_box(sum);
}

fn batched<K: Kind, H: KeyHash>(pog: &Pog<u16, H>, hosts: &HostTable, queries: &[K]) {
    let mut taus = [0; BATCH];
    let mut sum = 0_u64;
    for keys in queries.chunks(BATCH) {
        pog.tau_batch(keys, &mut taus[..keys.len()]);
        sum += taus[..keys.len()].iter().map(|tau| u64::from(hosts.host(*tau))).sum::<u64>();
    }
    black_box(sum);
}

fn table<K: Kind, T: Table<K>, R: Ring>(table: &TableAndRing<T, R>, queries: &[K]) {
    let sum: u64 = queries.iter().map(|key| u64::from(table.host(key))).sum();
    black_box(sum);
}
