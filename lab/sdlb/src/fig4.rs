//! Figure 4: updates and rebalance.

use anyhow::Result;
use equipoise_lab_runner::{Case, Row, measure};
use equipoise_pog::{AesHash, KeyHash, PogBuilder, SipHash13, Update};

use crate::keys::{self, Kind, Random};

/// Changes between two looks at the clock, and in one batch.
const BATCH: u64 = 1024;

pub(crate) fn measure(case: &Case, row: &mut Row, seed: u64, repetitions: usize) -> Result<()> {
    of::<SipHash13>("", case, row, seed, repetitions)?;
    of::<AesHash>("aes_", case, row, seed, repetitions)
}

/// With the hash `H`. `name` stands before the columns' names.
fn of<H: KeyHash>(
    name: &str,
    case: &Case,
    row: &mut Row,
    seed: u64,
    repetitions: usize,
) -> Result<()> {
    let random = Random::new(seed);
    let (keys, updates) = (case.count("keys")?, case.count("updates")?);
    let entries = keys::set::<u64>(&random, keys).into_iter().map(|key| (key, key as u16));
    let mut controller = PogBuilder::<u16>::new().hash::<H>().random_seed(seed).build(entries)?;
    let tried = controller.seeds_tried();
    // Adds and deletes in turn: each add is of the next new key, each delete of a random key of the
    // set.
    let mut script = Script { random, live: (0..keys as u64).collect(), next: keys as u64 };
    let (mut single, mut batched) = (Vec::new(), Vec::new());
    let mut outcomes = Vec::new();
    for _ in 0..repetitions {
        let mut seconds = 0.0;
        for _ in 0..updates as u64 / BATCH {
            let changes = script.take();
            seconds += measure::seconds(|| {
                for change in changes {
                    let done = match change {
                        Update::Insert(key, tau) => controller.insert(key, tau),
                        Update::Delete(key) | Update::Alter(key, _) => controller.delete(&key),
                    };
                    done.expect("the script adds new keys and deletes old ones");
                }
            });
        }
        single.push(seconds);
        let mut seconds = 0.0;
        for _ in 0..updates as u64 / BATCH {
            let changes = script.take();
            seconds += measure::seconds(|| _ = controller.update(changes, &mut outcomes));
            assert!(
                outcomes.iter().all(Result::is_ok),
                "the script adds new keys and deletes old ones"
            );
        }
        batched.push(seconds);
    }
    let million = (updates as u64 / BATCH * BATCH) as f64 / 1e6;
    row.figure(&format!("{name}updates_mps_single"), million / measure::median(&single))
        .figure(&format!("{name}updates_mps_batched"), million / measure::median(&batched))
        .figure(
            &format!("{name}updates_mps_single_worst"),
            million / single.iter().copied().fold(0.0, f64::max),
        )
        .figure(&format!("{name}seeds_tried"), (controller.seeds_tried() - tried) as f64);
    let rebalances: Vec<f64> =
        (0..repetitions).map(|_| measure::seconds(|| _ = controller.rebalance())).collect();
    row.figure(&format!("{name}rebalance_ms"), 1e3 * measure::median(&rebalances));
    Ok(())
}

struct Script {
    random: Random,
    /// Numbers of the keys of the set.
    live: Vec<u64>,
    next: u64,
}

impl Script {
    /// The next [`BATCH`] changes.
    fn take(&mut self) -> Vec<Update<u64, u16>> {
        let mut changes = Vec::with_capacity(BATCH as usize);
        while changes.len() < BATCH as usize {
            let number = self.next;
            self.next += 1;
            changes.push(Update::Insert(u64::make(&self.random, number), number as u16));
            let at = self.random.below(number, self.live.len() as u64) as usize;
            let deleted = std::mem::replace(&mut self.live[at], number);
            changes.push(Update::Delete(u64::make(&self.random, deleted)));
        }
        changes
    }
}
