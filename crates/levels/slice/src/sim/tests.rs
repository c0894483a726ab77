//! Runs from seeds. `SLICE_SIM_SEED=17` sets the first seed, `SLICE_SIM_RUNS=1` their number, and
//! `SLICE_SIM_TRACE=1` prints every event.

use super::node::STEPS;
use super::*;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn seeds(runs: u64) -> std::ops::Range<u64> {
    let first = number("SLICE_SIM_SEED").unwrap_or(0);
    first..first + number("SLICE_SIM_RUNS").unwrap_or(runs)
}

/// Runs all scenarios, fails at the first wrong one, and adds up the verdicts.
fn all(scenarios: impl Iterator<Item = Scenario>) -> Verdict {
    let mut sum = Verdict::default();
    for scenario in scenarios {
        let verdict = World::run(scenario.clone());
        if number("SLICE_SIM_TRACE").is_some() {
            eprintln!("{verdict:#?}");
        }
        assert!(verdict.faults.is_empty(), "{scenario:#?}: {:#?}", verdict.faults);
        sum.add(&verdict);
    }
    sum
}

#[test]
fn planned_moves_lose_and_repeat_no_item_and_keep_the_order() {
    let sum = all(seeds(900).map(Scenario::planned));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.moved > 30_000, "{sum:?}");
        // The difficult cases have occurred: late items and late readers.
        assert!(sum.late > 1_000 && sum.tails > 1_000, "{sum:?}");
        assert!(sum.handed_over > 10_000, "{sum:?}");
    }
}

#[test]
fn a_new_controller_completes_the_handovers_of_a_crashed_controller() {
    let crashing = |seed| Scenario { faults: Faults::Controller, ..Scenario::crashing(seed) };
    let sum = all(seeds(200).map(crashing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.interrupted > 1_000 && sum.moved > 1_000, "{sum:?}");
    }
}

#[test]
fn items_of_lost_workers_are_processed_and_no_others_are_repeated() {
    let sum = all(seeds(600).map(Scenario::crashing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers > 500 && sum.recovered > 500, "{sum:?}");
        assert!(
            sum.executions > sum.items,
            "something was done twice, or nothing was lost: {sum:?}"
        );
    }
}

/// Each of these faults took about a hundred thousand runs to find.
#[test]
fn runs_that_were_wrong_once_are_right() {
    let seeds = [
        5_122, 7_000_146, 7_004_698, 7_006_811, 7_013_407, 7_014_581, 7_018_532, 7_024_208,
        7_024_520, 7_024_589, 7_036_730, 7_126_130, 7_132_291,
    ];
    all(seeds.into_iter().map(Scenario::crashing));
}

#[test]
fn a_crash_at_any_step_of_any_party_loses_nothing() {
    let parties = [Party::SenderBefore, Party::SenderAfter, Party::Receiver, Party::Controller];
    let each = (0..STEPS).flat_map(|step| parties.map(|party| (step, party)));
    let each = each.flat_map(|(step, party)| [1, 2, 5].map(|nth| (step, party, nth)));
    let runs = number("SLICE_SIM_RUNS").unwrap_or(3);
    let scenarios = each.flat_map(|(step, party, nth)| {
        (0..runs).map(move |seed| Scenario::at(seed, step, nth, party))
    });
    println!("{:?}", all(scenarios));
}

#[test]
fn a_standby_processes_a_lost_workers_items_without_republishing() {
    let sum = all(seeds(150).map(Scenario::succeeded));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers >= 150 && sum.recovered > 150, "{sum:?}");
    }
}

#[test]
fn without_standby_and_republishing_a_crashed_worker_loses_items() {
    let alone = |seed| Scenario { standby: false, ..Scenario::succeeded(seed) };
    assert!((0..50).any(|seed| !World::run(alone(seed)).faults.is_empty()));
}

#[test]
fn items_and_replies_lost_by_disconnection_are_processed_and_answered() {
    let sum = all(seeds(300).map(Scenario::cut_off));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_replies > 300 && sum.answered_again > 300, "{sum:?}");
    }
}

#[test]
fn a_worker_that_ignores_orphaned_items_is_caught() {
    assert!(is_caught(Sabotage::NoOrphans, Scenario::cut_off));
}

#[test]
fn a_paused_controller_declares_no_worker_lost() {
    let sum = all(seeds(150).map(Scenario::pausing));
    println!("{sum:?}");
    assert_eq!((sum.given_up, sum.lost_workers), (0, 0), "{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.controller_pauses > 150 && sum.moved > 500, "{sum:?}");
    }
}

#[test]
fn crashes_seen_by_closed_connections_and_resets_lose_no_item() {
    let sum = all(seeds(600).map(Scenario::connected));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.known_at_once > 200 && sum.resets > 200 && sum.recovered > 500, "{sum:?}");
    }
}

#[test]
fn pauses_shorter_than_the_lease_and_resets_lose_no_worker() {
    let sum = all(seeds(300).map(Scenario::short_pauses));
    println!("{sum:?}");
    assert_eq!((sum.given_up, sum.lost_workers), (0, 0), "{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.resets > 300, "{sum:?}");
    }
}

#[test]
fn a_controller_that_trusts_a_closed_connection_without_probing_is_caught() {
    assert!(is_caught(Sabotage::TrustClose, Scenario::connected));
}

/// Whether any of several runs is wrong.
fn is_caught(sabotage: Sabotage, scenario: impl Fn(u64) -> Scenario) -> bool {
    let run = |seed| World::run(Scenario { sabotage, ..scenario(seed) });
    (0..1_000).any(|seed| !run(seed).faults.is_empty())
}

#[test]
fn a_protocol_without_the_late_drop_is_caught() {
    assert!(is_caught(Sabotage::NoLateDrop, Scenario::planned));
}

#[test]
fn a_protocol_without_positions_is_caught() {
    assert!(is_caught(Sabotage::NoPosition, Scenario::planned));
}

#[test]
fn a_protocol_without_the_tail_is_caught() {
    assert!(is_caught(Sabotage::NoTail, Scenario::planned));
}

#[test]
fn a_protocol_that_does_not_wait_for_the_drain_is_caught() {
    let strict = |seed| Scenario { order: Order::Strict, ..Scenario::planned(seed) };
    assert!(is_caught(Sabotage::NoHold, strict));
}

#[test]
fn in_strict_order_items_stay_in_order_when_workers_are_killed() {
    let sum = all(seeds(300).map(Scenario::killing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers > 1_000 && sum.executions > sum.items, "{sum:?}");
    }
}

#[test]
fn with_checkpoints_kills_leave_every_state_as_without_faults() {
    let sum = all(seeds(300).map(Scenario::checkpointing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers > 1_200 && sum.checkpoints > 20_000, "{sum:?}");
    }
}

#[test]
fn with_a_folder_of_checkpoints_any_kills_leave_every_state_as_without_faults() {
    let sum = all(seeds(300).map(Scenario::with_folder));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers > 1_200 && sum.checkpoints > 10_000, "{sum:?}");
    }
}

#[test]
fn with_a_failing_folder_kills_leave_every_state_as_without_faults() {
    let sum = all(seeds(200).map(Scenario::with_failing_folder));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.lost_workers > 400 && sum.checkpoints > 10_000, "{sum:?}");
    }
}

#[test]
fn a_checkpoint_committed_before_it_is_in_the_folder_is_caught() {
    assert!(is_caught(Sabotage::CommitUnstored, Scenario::with_folder));
}

#[test]
fn a_checkpoint_committed_before_its_replies_have_arrived_is_caught() {
    assert!(is_caught(Sabotage::CommitUnreplied, Scenario::checkpointing));
}

#[test]
fn a_successor_that_takes_the_first_checkpoint_that_it_finds_is_caught() {
    assert!(is_caught(Sabotage::NoAskAll, Scenario::checkpointing));
}

#[test]
fn an_item_counted_for_a_replaced_state_is_caught() {
    assert!(is_caught(Sabotage::NoDiscard, Scenario::checkpointing));
}

#[test]
fn a_client_that_forgets_answered_items_before_a_checkpoint_is_caught() {
    assert!(is_caught(Sabotage::ForgetReplied, Scenario::checkpointing));
}

#[test]
fn a_successor_that_starts_recovered_items_on_arrival_is_caught() {
    assert!(is_caught(Sabotage::NoRecoveryHold, Scenario::killing));
}

#[test]
fn splitting_and_joining_slices_loses_repeats_and_reorders_no_item() {
    let sum = all(seeds(400).map(Scenario::resizing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.split > 400 && sum.joined > 400 && sum.lost_workers > 300, "{sum:?}");
    }
}

#[test]
fn a_worker_that_accepts_messages_with_an_old_numbering_is_caught() {
    assert!(is_caught(Sabotage::HeedsOldNumbers, Scenario::resizing));
}

#[test]
fn a_worker_that_does_not_refile_queues_on_resize_is_caught() {
    assert!(is_caught(Sabotage::NoRefile, Scenario::resizing));
}

#[test]
fn a_worker_that_treats_republished_items_as_new_is_caught() {
    // The fault shows when such an item is the first that a reader receives: with readers that
    // close, and late replies under load.
    let fresh = |seed| Scenario {
        linger_us: 0,
        standby: false,
        joining: 0,
        item_gap_us: 300,
        ..Scenario::planned(seed)
    };
    // Without the sabotage the same runs are right, so the load is not the cause.
    all((0..20).map(fresh));
    assert!(is_caught(Sabotage::TrustAgain, fresh));
}

#[test]
fn a_worker_that_is_not_fenced_is_caught() {
    assert!(is_caught(Sabotage::NoFence, Scenario::crashing));
}

#[test]
fn a_worker_that_claims_tail_items_as_finished_is_caught() {
    assert!(is_caught(Sabotage::ClaimTail, Scenario::crashing));
}

#[test]
fn a_worker_that_claims_items_without_a_reply_is_caught() {
    assert!(is_caught(Sabotage::ClaimUnreplied, Scenario::crashing));
}

#[test]
fn a_target_that_claims_unstarted_items_of_its_source_is_caught() {
    assert!(is_caught(Sabotage::ClaimBacklog, Scenario::queueing));
}

#[test]
fn a_source_that_claims_handed_over_items_as_finished_is_caught() {
    assert!(is_caught(Sabotage::ClaimHanded, Scenario::queueing));
}

#[test]
fn a_source_that_forgets_handed_over_items_too_early_is_caught() {
    // The target has to be lost when it has received a part of what was not started.
    const TAIL: usize = 6;
    let losing = |seed| {
        let faults =
            Faults::At { step: TAIL, nth: 1 + (seed / 3) as u32 % 40, party: Party::Receiver };
        Scenario { faults, ..Scenario::queueing(seed) }
    };
    all((0..250).map(losing));
    assert!(is_caught(Sabotage::NoClaimed, losing));
}

#[test]
fn queued_items_move_with_their_slice_despite_crashes_of_any_party() {
    let sum = all(seeds(400).map(Scenario::queueing));
    println!("{sum:?}");
    if number("SLICE_SIM_RUNS").is_none() {
        assert!(sum.handed_over > 10_000 && sum.lost_workers > 300, "{sum:?}");
    }
}

#[test]
fn a_successor_that_requests_no_items_from_clients_is_caught() {
    assert!(is_caught(Sabotage::NoAsk, Scenario::crashing));
}

#[test]
fn a_store_that_forgets_lost_workers_is_caught() {
    assert!(is_caught(Sabotage::ForgetLost, Scenario::crashing));
}

#[test]
fn a_store_that_forgets_reserved_numbers_is_caught() {
    let prepare = |seed| Scenario::at(seed, 0, 1 + seed as u32 % 9, Party::SenderAfter);
    assert!(is_caught(Sabotage::ForgetNumbers, prepare));
}

#[test]
fn a_store_that_forgets_workers_that_reported_is_caught() {
    assert!(is_caught(Sabotage::ForgetHeard, Scenario::crashing));
}

#[test]
fn a_controller_that_does_not_query_open_handovers_is_caught() {
    let crashing = |seed| Scenario { faults: Faults::Controller, ..Scenario::crashing(seed) };
    assert!(is_caught(Sabotage::NoSurvey, crashing));
}

#[test]
fn a_source_that_cuts_for_a_superseded_controller_is_caught() {
    let crashing = |seed| Scenario { faults: Faults::Controller, ..Scenario::crashing(seed) };
    assert!(is_caught(Sabotage::NoPromise, crashing));
}

#[test]
fn a_source_that_forgets_its_finished_handovers_is_caught() {
    // A target and the controller are lost together.
    let crashing = |seed| Scenario {
        faults: Faults::Everybody,
        order: Order::Free,
        standby: true,
        joining: 0,
        ..Scenario::crashing(seed)
    };
    assert!(is_caught(Sabotage::NoPast, crashing));
}

/// `make slice-soak`: runs for SLICE_SOAK_SECONDS on every core.
#[test]
#[ignore = "takes as long as it is told to"]
fn soak() {
    let seconds = number("SLICE_SOAK_SECONDS").unwrap_or(60);
    let until = std::time::Instant::now() + Duration::from_secs(seconds);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let first = number("SLICE_SIM_SEED").unwrap_or(1_000_000);
    let run = move |thread: u64| {
        let mut sum = Verdict::default();
        let mut seed = first + thread;
        while std::time::Instant::now() < until {
            let step = (seed / 16 % STEPS as u64) as usize;
            let parties =
                [Party::SenderBefore, Party::SenderAfter, Party::Receiver, Party::Controller];
            let party = parties[(seed / 4 % 4) as usize];
            let scenario = match seed / threads % 8 {
                0..3 => Scenario::planned(seed),
                3 => Scenario::connected(seed),
                4..6 => Scenario::crashing(seed),
                6 => Scenario::queueing(seed),
                _ => Scenario::at(seed, step, 1 + (seed / 7 % 6) as u32, party),
            };
            let verdict = World::run(scenario.clone());
            assert!(verdict.faults.is_empty(), "{scenario:#?}: {:#?}", verdict.faults);
            sum.add(&verdict);
            seed += threads;
        }
        sum
    };
    let running: Vec<_> =
        (0..threads).map(|thread| std::thread::spawn(move || run(thread))).collect();
    let mut sum = Verdict::default();
    for thread in running {
        sum.add(&thread.join().expect("no run is wrong"));
    }
    let (runs, begun) = (sum.runs, sum.begun);
    println!("{runs} runs with {begun} handovers, none wrong: {sum:?}");
}
