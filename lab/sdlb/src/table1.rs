//! Table 1: memory of the data plane.

use anyhow::{Result, bail};
use equipoise_lab_runner::{Case, Row, Value, memory};
use equipoise_pog::{FiveTupleV4, HostTable, OpenFlowMatch, PogBuilder};

use crate::keys::{self, Kind, Random};
use crate::ring::{BrownTable, HOSTS, SortedRing, StdTable, TableAndRing};

const MIB: f64 = (1 << 20) as f64;

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64) -> Result<()> {
    match case.word("kind")? {
        "64-bit value" => of::<u64>(case, row, seed),
        "five-tuple" => of::<FiveTupleV4>(case, row, seed),
        "OpenFlow match" => of::<OpenFlowMatch>(case, row, seed),
        other => bail!("no kind of key is called `{other}`"),
    }
}

fn of<K: Kind>(case: &Case, row: &mut Row, seed: u64) -> Result<()> {
    let random = Random::new(seed);
    let keys = keys::set::<K>(&random, case.count("keys")?);
    let entries = || keys.iter().cloned().zip((0..HOSTS).cycle());
    let controller = PogBuilder::<u16>::new().random_seed(seed).build(entries())?;
    let (_data_plane, pog, _) = memory::of(|| (controller.pog().clone(), HostTable::new(16)));
    drop(controller);
    let (std, std_bytes, _) =
        memory::of(|| TableAndRing::<StdTable<K>, SortedRing>::new(&random, entries()));
    drop(std);
    let (_brown, brown_bytes, _) =
        memory::of(|| TableAndRing::<BrownTable<K>, SortedRing>::new(&random, entries()));
    row.figure("pog_mib", pog as f64 / MIB)
        .figure("std_mib", std_bytes as f64 / MIB)
        .figure("hashbrown_mib", brown_bytes as f64 / MIB)
        .figure("ratio_std", pog as f64 / std_bytes as f64)
        .figure("ratio_hashbrown", pog as f64 / brown_bytes as f64);
    let (paper_pog, paper_table) = (case.number("paper_pog_mib")?, case.number("paper_table_mib")?);
    row.figure("paper_ratio", paper_pog / paper_table);
    let demanded = case.number("demanded")?;
    row.figure("ratio_over_demanded", pog as f64 / std_bytes as f64 / demanded);
    row.set("key_bytes", Value::Number(size_of::<K>() as f64));
    Ok(())
}
