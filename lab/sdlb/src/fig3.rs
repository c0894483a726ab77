//! Figure 3: how tau is spread over random keys.

use anyhow::Result;
use equipoise_lab_runner::{Case, Row};
use equipoise_pog::PogBuilder;

use crate::keys::{self, Random};

/// Values of tau: 12 bits.
const VALUES: usize = 1 << 12;

/// Keys are looked up so many at a time.
const BATCH: usize = 4096;

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64) -> Result<Vec<Row>> {
    let random = Random::new(seed);
    let (keys, lookups) = (case.count("keys")?, case.count("lookups")?);
    let entries = keys::set::<u64>(&random, keys);
    // The keys' own values do not matter to others; random ones stand for an even use of hosts.
    let entries = entries.into_iter().map(|key| (key, random.at(key) as u16));
    let mut controller = PogBuilder::<u16>::new().random_seed(seed).build(entries)?;
    controller.rebalance();
    let pog = controller.pog();
    let mut counts = vec![0_u32; VALUES];
    let (mut queries, mut taus) = (vec![0; BATCH], vec![0; BATCH]);
    for batch in 0..lookups.div_ceil(BATCH) {
        let first = 1 << 41 | (batch * BATCH) as u64;
        queries.iter_mut().zip(first..).for_each(|(query, number)| *query = random.at(number));
        pog.tau_batch(&queries, &mut taus);
        taus.iter().for_each(|tau| counts[usize::from(*tau) % VALUES] += 1);
    }
    let looked_up = (lookups.div_ceil(BATCH) * BATCH) as f64;
    let values = VALUES as f64;
    let mean = looked_up / values;
    let variance =
        counts.iter().map(|count| (f64::from(*count) - mean).powi(2)).sum::<f64>() / values;
    // Of counting random keys, and of the arrays' own unevenness: with few cells, no value has
    // exactly its share of them. The share of a value has variance 1 / (values |A| |B|).
    let (a, b) = (f64::from(pog.sizes().a()), f64::from(pog.sizes().b()));
    let theoretical = mean + looked_up.powi(2) / (values * a * b);
    row.figure("cells", a + b)
        .figure("mu", mean)
        .figure("sigma", variance.sqrt())
        .figure("sigma_theoretical", theoretical.sqrt())
        .figure("sigma_of_counting", mean.sqrt())
        .figure("sigma_over_theoretical", (variance / theoretical).sqrt());
    histogram(case, &counts, mean, theoretical.sqrt())
}

/// How many values have how many keys, and the normal distribution for it.
fn histogram(case: &Case, counts: &[u32], mean: f64, sigma: f64) -> Result<Vec<Row>> {
    let set = case.number("keys")?;
    if !case.word("plot").is_ok_and(|plot| plot == "yes") {
        return Ok(Vec::new());
    }
    const BINS: usize = 41;
    let (width, first) = (8.0 * sigma / BINS as f64, mean - 4.0 * sigma);
    let mut bins = [0_u32; BINS];
    for count in counts {
        let bin = ((f64::from(*count) - first) / width).clamp(0.0, BINS as f64 - 1.0);
        bins[bin as usize] += 1;
    }
    let point = |(at, values): (usize, &u32)| {
        let middle = first + (at as f64 + 0.5) * width;
        let density = (-((middle - mean) / sigma).powi(2) / 2.0).exp()
            / (sigma * std::f64::consts::TAU.sqrt());
        let mut row = Row::new();
        row.figure("keys", set)
            .figure("random_keys_of_a_tau", middle)
            .figure("values_of_tau", f64::from(*values))
            .figure("normal", density * width * VALUES as f64);
        row
    };
    Ok(bins.iter().enumerate().map(point).collect())
}
