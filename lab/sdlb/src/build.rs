//! How long a build takes, and what it leaves.

use anyhow::Result;
use equipoise_lab_runner::{Case, Row, measure, memory};
use equipoise_pog::PogBuilder;

use crate::keys::{self, Random};

/// Builds under different seeds: how many hash seeds one takes is chance.
const BUILDS: u64 = 5;

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64) -> Result<()> {
    let keys = keys::set::<u64>(&Random::new(seed), case.count("keys")?);
    let (mut seconds, mut tried, mut bytes, mut peak, mut data_plane) = (Vec::new(), 0, 0, 0, 0);
    for build in 0..BUILDS {
        let builder = PogBuilder::<u16>::new().random_seed(seed + build);
        let entries = keys.iter().map(|key| (*key, *key as u16));
        let start = std::time::Instant::now();
        let (controller, kept, most) = memory::of(|| builder.build(entries));
        seconds.push(start.elapsed().as_secs_f64());
        let controller = controller?;
        tried += controller.seeds_tried();
        (bytes, peak) = (kept.max(bytes), most.max(peak));
        data_plane = controller.pog().memory_bytes();
    }
    let count = keys.len() as f64;
    row.figure("build_s", measure::median(&seconds))
        .figure("build_s_worst", seconds.iter().copied().fold(0.0, f64::max))
        .figure("ns_per_key", 1e9 * measure::median(&seconds) / count)
        .figure("seeds_tried", tried as f64 / BUILDS as f64)
        .figure("bytes_per_key_beyond_keys", bytes as f64 / count - size_of::<u64>() as f64)
        .figure("peak_bytes_per_key", peak as f64 / count)
        .figure("data_plane_bytes_per_key", data_plane as f64 / count);
    Ok(())
}
