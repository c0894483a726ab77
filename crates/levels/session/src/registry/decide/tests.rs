use std::sync::Arc;

use equipoise_core::AdminState::{Down, Drain, Up};

use super::super::fixtures::*;
use super::*;
use crate::config::PassiveHealth;
use equipoise_health::CheckError;

fn weight(weight: u16) -> Option<Weight> {
    Some(Weight::new(weight).unwrap())
}

fn slowly(pool: PoolConfig, over: u64) -> PoolConfig {
    PoolConfig { slow_start: Some(seconds(over)), ..pool }
}

#[test]
fn only_healthy_backends_that_are_up_and_have_weight_are_eligible() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("web", 5))], now);
    inventory.set_admin("web", "b1", Drain).unwrap();
    inventory.set_admin("web", "b2", Down).unwrap();
    inventory.set_weight("web", "b3", weight(0)).unwrap();
    check(&mut inventory, "b4", false, now);
    assert_eq!(eligible(&inventory), ["b5"]);
    inventory.set_admin("web", "b1", Up).unwrap();
    inventory.set_admin("web", "b2", Up).unwrap();
    inventory.set_weight("web", "b3", None).unwrap();
    check(&mut inventory, "b4", true, now);
    assert_eq!(eligible(&inventory), ["b1", "b2", "b3", "b4", "b5"]);
}

#[test]
fn setting_an_unchanged_admin_state_or_weight_returns_no_notice() {
    let mut inventory = inventory(vec![pool("web", 1)], Instant::now());
    assert_eq!(inventory.set_admin("web", "b1", Up).unwrap(), None);
    assert_eq!(inventory.set_weight("web", "b1", None).unwrap(), None);
    assert!(inventory.set_admin("web", "b1", Drain).unwrap().is_some());
    assert_eq!(inventory.set_admin("web", "b1", Drain).unwrap(), None);
}

#[test]
fn cut_downed_cuts_a_down_backend_until_its_admin_state_changes() {
    let mut inventory = inventory(vec![pool("web", 2)], Instant::now());
    let live = Arc::clone(&entry(&inventory, "web", "b1").live);
    let other = Arc::clone(&entry(&inventory, "web", "b2").live);
    inventory.set_admin("web", "b1", Down).unwrap();
    assert!(!live.cut.load(Relaxed), "cut before the snapshot without it is out");
    inventory.cut_downed();
    assert!(live.cut.load(Relaxed) && !other.cut.load(Relaxed));
    for admin in [Drain, Up] {
        inventory.set_admin("web", "b1", Down).unwrap();
        inventory.cut_downed();
        inventory.set_admin("web", "b1", admin).unwrap();
        inventory.cut_downed();
        assert!(!live.cut.load(Relaxed), "{admin:?}");
    }
}

#[test]
fn failed_checks_cut_a_backend_only_if_configured_to_close() {
    let now = Instant::now();
    let closing = |closes| {
        let mut pool = checked(pool("web", 2));
        pool.health.as_mut().unwrap().closes = closes;
        pool
    };
    let mut inventory = inventory(vec![closing(true)], now);
    let live = |inventory: &Inventory, name| Arc::clone(&entry(inventory, "web", name).live);
    let (b1, b2) = (live(&inventory, "b1"), live(&inventory, "b2"));
    check(&mut inventory, "b1", false, now);
    assert!(!b1.cut.load(Relaxed), "cut before the snapshot without it is out");
    assert!(inventory.cut_downed() && !inventory.cut_downed(), "once");
    assert!(b1.cut.load(Relaxed) && !b2.cut.load(Relaxed));
    check(&mut inventory, "b1", true, now);
    assert!(!b1.cut.load(Relaxed), "healthy again");
    assert!(!inventory.cut_downed());

    check(&mut inventory, "b1", false, now);
    inventory.cut_downed();
    inventory.set_admin("web", "b1", Down).unwrap();
    let mut without = reload(&inventory, vec![closing(false)], now);
    assert!(b1.cut.load(Relaxed), "an operator has disabled it");
    without.set_admin("web", "b1", Up).unwrap();
    settle(&mut without, now);
    assert!(!without.cut_downed() && !b1.cut.load(Relaxed), "without the option it goes on");
}

#[test]
fn only_setting_a_backend_up_restores_its_multiplexing() {
    let now = Instant::now();
    let mut inventory = inventory(vec![pool("web", 2)], now);
    let live = Arc::clone(&entry(&inventory, "web", "b1").live);
    live.lose_multiplexing(0);
    fail(&mut inventory, "b1", now);
    settle(&mut inventory, now + seconds(10));
    let mut inventory = reload(&inventory, vec![pool("web", 2)], now + seconds(10));
    inventory.set_admin("web", "b1", Drain).unwrap();
    assert!(live.is_multiplexing_lost());
    inventory.set_admin("web", "b1", Up).unwrap();
    assert!(!live.is_multiplexing_lost());
    live.lose_multiplexing(1);
    inventory.set_admin("web", "b1", Up).unwrap();
    assert!(!live.is_multiplexing_lost(), "though it was up before");
    assert_eq!(live.stats.sum(|s| s.multiplex_faults.get()), 2);
}

#[test]
fn an_ejected_backend_returns_with_its_failure_count_reset() {
    let start = Instant::now();
    let mut inventory = inventory(vec![pool("web", 2)], start);
    assert_eq!(
        fail(&mut inventory, "b1", start),
        [concat!(
            "pool web: backend b1 is ejected for 10s: it failed 5 times in a row, ",
            "the last time with upstream_closed"
        )]
    );
    assert_eq!(eligible(&inventory), ["b2"]);
    let back = inventory.next_wake(start).unwrap();
    assert_eq!(back - start, seconds(10));
    assert_eq!(
        settle(&mut inventory, back),
        ["pool web: backend b1 is back: its ejection is over"]
    );
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
    assert_eq!(entry(&inventory, "web", "b1").live.failures_in_row.load(Relaxed), 0);
    assert_eq!(inventory.next_wake(back), None);
    fail(&mut inventory, "b1", back);
    assert_eq!(inventory.next_wake(back), Some(back + seconds(20)));
}

#[test]
fn late_stale_and_unknown_reports_change_nothing() {
    let now = Instant::now();
    let mut inventory = inventory(vec![pool("web", 4)], now);
    fail(&mut inventory, "b1", now);
    assert!(fail(&mut inventory, "b1", now + seconds(1)).is_empty(), "already ejected");
    inventory.set_admin("web", "b2", Drain).unwrap();
    assert!(fail(&mut inventory, "b2", now).is_empty(), "draining");

    let (pool, b3) = (inventory.pools[0].id, entry(&inventory, "web", "b3").id);
    entry(&inventory, "web", "b3").live.failures_in_row.store(4, Relaxed);
    let reason = Reason::UpstreamClosed;
    for event in [
        BackendEvent::Failing { pool, backend: b3, reason },
        BackendEvent::Failing { pool, backend: 999, reason },
        BackendEvent::Failing { pool: 999, backend: b3, reason },
    ] {
        assert_eq!(inventory.heard(event, now), None, "{event:?}");
    }
    assert_eq!(eligible(&inventory), ["b3", "b4"]);
}

#[test]
fn no_failures_eject_when_passive_health_is_off() {
    let passive = PassiveHealth { failures: 0, panic_threshold: 0.0, ..PassiveHealth::default() };
    let now = Instant::now();
    let mut inventory = inventory(vec![PoolConfig { passive, ..pool("web", 2) }], now);
    assert!(fail(&mut inventory, "b1", now).is_empty());
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
}

#[test]
fn ejection_stops_at_the_panic_threshold_and_logs_once_a_minute() {
    let now = Instant::now();
    let mut inventory = inventory(vec![pool("web", 3)], now);
    fail(&mut inventory, "b1", now);
    let refused = fail(&mut inventory, "b2", now);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].contains("b2 failed 5 times in a row but stays"), "{refused:?}");
    assert!(fail(&mut inventory, "b2", now + seconds(9)).is_empty());
    assert_eq!(eligible(&inventory), ["b2", "b3"]);

    let passive = PassiveHealth { panic_threshold: 1.0, ..PassiveHealth::default() };
    let mut all =
        super::super::fixtures::inventory(vec![PoolConfig { passive, ..pool("web", 3) }], now);
    assert_eq!(fail(&mut all, "b1", now).len(), 1);
    assert_eq!(fail(&mut all, "b1", now + seconds(59)).len(), 0);
    assert_eq!(fail(&mut all, "b1", now + seconds(60)).len(), 1);
    assert_eq!(eligible(&all), ["b1", "b2", "b3"]);
}

fn with_backups(number: u8, backups: &[usize]) -> PoolConfig {
    let mut pool = checked(pool("web", number));
    backups.iter().for_each(|at| pool.backends[*at].backup = true);
    pool
}

#[test]
fn backups_are_eligible_only_while_no_other_backend_is() {
    let now = Instant::now();
    let mut inventory = inventory(vec![with_backups(4, &[2, 3])], now);
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
    check(&mut inventory, "b1", false, now);
    assert_eq!(eligible(&inventory), ["b2"]);
    inventory.set_admin("web", "b2", Drain).unwrap();
    let lines = settle(&mut inventory, now);
    assert_eq!(lines, ["pool web: only backups can take work, and they do"]);
    assert_eq!(eligible(&inventory), ["b3", "b4"]);
    check(&mut inventory, "b3", false, now);
    assert_eq!(eligible(&inventory), ["b4"]);
    assert_eq!(
        check(&mut inventory, "b4", false, now)[1],
        "pool web: no backend can take work; requests are refused"
    );
    check(&mut inventory, "b3", true, now);
    assert_eq!(eligible(&inventory), ["b3"]);
    assert_eq!(
        check(&mut inventory, "b1", true, now)[1],
        "pool web: its backups rest: another backend takes work again"
    );
    assert_eq!(eligible(&inventory), ["b1"]);
    assert!(settle(&mut inventory, now).is_empty());
}

#[test]
fn a_pool_of_backups_alone_serves() {
    let inventory = inventory(vec![with_backups(2, &[0, 1])], Instant::now());
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
}

#[test]
fn a_backup_that_can_take_over_lifts_the_panic_threshold() {
    let now = Instant::now();
    let mut inventory = inventory(vec![with_backups(3, &[2])], now);
    for backend in ["b1", "b2"] {
        assert!(fail(&mut inventory, backend, now)[0].contains("is ejected"), "{backend}");
    }
    assert_eq!(eligible(&inventory), ["b3"]);
    // The last eligible backend stays, even if it fails: the ejected ones that are due first
    // return.
    assert!(fail(&mut inventory, "b3", now)[0].contains("but stays"));
    check(&mut inventory, "b3", false, now);
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
}

#[test]
fn the_only_backend_is_never_ejected_unless_the_threshold_is_zero() {
    let now = Instant::now();
    for (panic_threshold, left) in [(0.5, 1), (0.01, 1), (0.0, 0)] {
        let passive = PassiveHealth { panic_threshold, ..PassiveHealth::default() };
        let mut inventory = inventory(vec![PoolConfig { passive, ..pool("web", 1) }], now);
        fail(&mut inventory, "b1", now);
        assert_eq!(eligible(&inventory).len(), left, "{panic_threshold}");
    }
}

#[test]
fn ejected_backends_come_back_early_when_too_few_others_are_left() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("web", 4))], now);
    fail(&mut inventory, "b2", now);
    fail(&mut inventory, "b1", now + seconds(1));
    assert_eq!(eligible(&inventory), ["b3", "b4"]);
    // One more becomes unhealthy by its checks: the ejected one that was due first replaces it.
    let lines = check(&mut inventory, "b3", false, now + seconds(2));
    assert_eq!(eligible(&inventory), ["b2", "b4"]);
    assert!(lines[1].contains("b2 is back before its ejection is over"), "{lines:?}");
    inventory.set_admin("web", "b4", Drain).unwrap();
    settle(&mut inventory, now + seconds(3));
    assert_eq!(eligible(&inventory), ["b1", "b2"]);
}

#[test]
fn an_ejected_backend_that_fails_checks_stays_out() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("web", 2))], now);
    fail(&mut inventory, "b1", now);
    check(&mut inventory, "b1", false, now);
    check(&mut inventory, "b2", false, now);
    assert!(eligible(&inventory).is_empty());
    let lines = settle(&mut inventory, now + seconds(10));
    assert_eq!(lines, ["pool web: backend b1 ends its ejection and stays out: its checks fail"]);
    assert!(eligible(&inventory).is_empty());
}

#[test]
fn active_checks_can_remove_every_backend_and_the_log_reports_it() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("web", 2))], now);
    assert_eq!(
        check(&mut inventory, "b1", false, now),
        ["pool web: backend b1 is unhealthy: connection refused (first check)"]
    );
    assert_eq!(
        check(&mut inventory, "b2", false, now)[1],
        "pool web: no backend can take work; requests are refused"
    );
    assert!(eligible(&inventory).is_empty());
    assert_eq!(
        check(&mut inventory, "b2", true, now),
        [
            "pool web: backend b2 is healthy (1 of 1 checks)",
            "pool web: a backend can take work again"
        ]
    );
}

#[test]
fn a_starting_pool_logs_a_warning_only_after_its_start_time() {
    let now = Instant::now();
    let made = |n| PoolConfig { starts_within: Some(seconds(40)), ..pool("web", n) };
    let starting = "pool web: starting its first backends; none serves yet";
    let empty = "pool web: no backend can take work; requests are refused";
    let settled = |inventory: &mut Inventory, now| -> Vec<(bool, String)> {
        let notices = inventory.settle(now);
        notices.iter().map(|notice| (notice.is_warning(), notice.to_string())).collect()
    };
    let new = |one: PoolConfig| {
        Inventory::default().reloaded(&config(vec![one]), THREADS, now).unwrap().0
    };
    let mut late = new(made(0));
    assert_eq!(settled(&mut late, now), [(false, starting.to_string())]);
    assert_eq!(late.next_wake(now), Some(now + seconds(40)));
    assert!(settled(&mut late, now + seconds(39)).is_empty());
    assert_eq!(settled(&mut late, now + seconds(40)), [(true, empty.to_string())]);
    assert!(settled(&mut late, now + seconds(50)).is_empty() && late.next_wake(now).is_none());

    let mut timely = new(made(0));
    settle(&mut timely, now);
    let join = |inventory: &Inventory, n| {
        inventory.reloaded(&config(vec![made(n)]), THREADS, now + seconds(5)).unwrap().0
    };
    let mut timely = join(&timely, 1);
    assert_eq!(settle(&mut timely, now + seconds(5)), ["pool web: its first backend takes work"]);
    // The pool has served requests: from now on, having no backend is reported as a loss.
    let mut timely = join(&timely, 0);
    assert_eq!(settled(&mut timely, now + seconds(6)), [(true, empty.to_string())]);
    // Listed backends exist from the beginning.
    let mut listed = new(checked(made(1)));
    settle(&mut listed, now);
    assert_eq!(check(&mut listed, "b1", false, now)[1], empty);
}

#[test]
fn a_passing_check_ends_only_ejections_for_statuses() {
    let now = Instant::now();
    let statuses = PassiveHealth { statuses: [(503, 503)].into(), ..PassiveHealth::default() };
    let mut inventory =
        inventory(vec![PoolConfig { passive: statuses, ..checked(pool("web", 4)) }], now);
    check(&mut inventory, "b1", true, now);
    check(&mut inventory, "b2", true, now);
    fail_with(&mut inventory, "b1", Reason::BackendError, now);
    fail_with(&mut inventory, "b2", Reason::UpstreamClosed, now);
    assert_eq!(eligible(&inventory), ["b3", "b4"]);
    assert!(check(&mut inventory, "b1", false, now)[0].contains("unhealthy"));
    assert_eq!(
        check(&mut inventory, "b1", true, now),
        [
            "pool web: backend b1 is healthy (1 of 1 checks)",
            "pool web: backend b1 is back before its ejection is over: its active check passed"
        ]
    );
    assert!(check(&mut inventory, "b2", true, now).is_empty());
    assert_eq!(eligible(&inventory), ["b1", "b3", "b4"]);
    assert_eq!(entry(&inventory, "web", "b1").live.failures_in_row.load(Relaxed), 0);
    assert!(check(&mut inventory, "b1", true, now).is_empty(), "the news is told once");
}

#[test]
fn removing_listed_statuses_ends_ejections_for_statuses() {
    let now = Instant::now();
    let statuses = PassiveHealth { statuses: [(503, 503)].into(), ..PassiveHealth::default() };
    let listed = PoolConfig { passive: statuses, ..pool("web", 4) };
    let mut inventory = inventory(vec![listed.clone()], now);
    fail_with(&mut inventory, "b1", Reason::BackendError, now);
    fail_with(&mut inventory, "b2", Reason::ConnectRefused, now);
    let same = reload(&inventory, vec![listed], now);
    assert_eq!(eligible(&same), ["b3", "b4"]);
    let unlisted = reload(&inventory, vec![pool("web", 4)], now);
    assert_eq!(eligible(&unlisted), ["b1", "b3", "b4"]);
}

#[test]
fn a_check_that_could_not_run_is_recorded_but_not_counted() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("web", 1))], now);
    let result = Err(CheckError::NotChecked("no file descriptor left on this machine"));
    let backend = entry(&inventory, "web", "b1").id;
    let report =
        CheckReport { backend, when: now, took: Duration::ZERO, result, addresses: Vec::new() };
    assert_eq!(inventory.checked(report.clone()), []);
    assert_eq!(eligible(&inventory), ["b1"]);
    assert_eq!(entry(&inventory, "web", "b1").last_check, Some(report));
}

#[test]
fn a_returning_backend_gets_a_slow_start_after_any_absence() {
    let start = Instant::now();
    type Change = fn(&mut Inventory, bool, Instant);
    let out_and_back: [(&str, Change); 4] = [
        ("check", |i, out, now| drop(check(i, "b1", !out, now))),
        ("ejection", |i, out, now| match out {
            true => drop(fail(i, "b1", now)),
            false => drop(settle(i, now)),
        }),
        ("down", |i, out, _| drop(i.set_admin("web", "b1", if out { Down } else { Up }))),
        ("weight", |i, out, _| {
            drop(i.set_weight("web", "b1", out.then_some(Weight::new(0).unwrap())))
        }),
    ];
    for (what, change) in out_and_back {
        let mut inventory = inventory(vec![slowly(checked(pool("web", 2)), 10)], start);
        let share = |i: &Inventory, now| i.pools[0].ramp_permille(entry(i, "web", "b1"), now);
        assert_eq!(share(&inventory, start), 1000, "{what}");
        change(&mut inventory, true, start);
        settle(&mut inventory, start);
        assert_eq!(eligible(&inventory), ["b2"], "{what}");
        let back = start + seconds(10);
        change(&mut inventory, false, back);
        settle(&mut inventory, back);
        assert_eq!(share(&inventory, back), 100, "{what}");
        assert_eq!(share(&inventory, back + seconds(5)), 550, "{what}");
    }
}

#[test]
fn a_slow_start_reaches_full_weight_in_ten_wakes() {
    let start = Instant::now();
    let before = inventory(vec![slowly(pool("web", 1), 30)], start);
    assert_eq!(before.next_wake(start), None, "a new pool does not ramp");
    let mut inventory = reload(&before, vec![slowly(pool("web", 2), 30)], start);
    let (mut now, mut wakes) = (start, 0);
    while let Some(wake) = inventory.next_wake(now) {
        assert!(wake > now);
        now = wake;
        wakes += 1;
        settle(&mut inventory, now);
    }
    assert_eq!((wakes, now - start), (10, seconds(30)));
    let joined = entry(&inventory, "web", "b2");
    assert_eq!(inventory.pools[0].ramp_permille(joined, now), 1000);
    assert_eq!(joined.ramp_from, None);
}

#[test]
fn planned_weights_survive_reloads_and_a_new_backend_gets_their_mean() {
    let now = Instant::now();
    let by_load = |n| PoolConfig { weights_by_load: true, ..pool("web", n) };
    let planned = |inventory: &Inventory, names: &[&str]| -> Vec<u16> {
        names.iter().map(|name| entry(inventory, "web", name).weight().get()).collect()
    };
    let told = |pairs: &[(&str, u16)]| -> Vec<(String, Weight)> {
        pairs.iter().map(|(name, w)| (name.to_string(), Weight::new(*w).unwrap())).collect()
    };
    let mut inventory = inventory(vec![by_load(2)], now);
    assert_eq!(planned(&inventory, &["b1", "b2"]), [1, 1], "as configured, before a plan");
    assert!(inventory.set_planned("web", &told(&[("b1", 30), ("b2", 170), ("gone", 9)])).unwrap());
    assert!(!inventory.set_planned("web", &told(&[("b1", 30)])).unwrap(), "nothing new");
    assert_eq!(planned(&inventory, &["b1", "b2"]), [30, 170]);
    let mut inventory = reload(&inventory, vec![by_load(3)], now);
    assert_eq!(planned(&inventory, &["b1", "b2", "b3"]), [30, 170, 100]);
    inventory.set_weight("web", "b2", weight(0)).unwrap();
    assert_eq!(eligible(&inventory), ["b1", "b3"], "a wish for none holds at once");
    inventory.set_weight("web", "b2", None).unwrap();
    let inventory = reload(&inventory, vec![pool("web", 3)], now);
    assert_eq!(planned(&inventory, &["b1", "b2", "b3"]), [1, 1, 1], "no longer asked for");
}

#[test]
fn a_pool_without_weights_by_load_ignores_planned_weights() {
    let mut inventory = inventory(vec![pool("web", 1)], Instant::now());
    let planned = vec![("b1".to_string(), Weight::new(7).unwrap())];
    assert!(!inventory.set_planned("web", &planned).unwrap());
    assert_eq!(entry(&inventory, "web", "b1").weight(), Weight::DEFAULT);
    assert!(inventory.set_planned("nope", &planned).is_err());
}

#[test]
fn node_mode_without_a_usable_backend_logs_that_peers_serve() {
    let now = Instant::now();
    let mut inventory = inventory(vec![checked(pool("app", 1)), pool("app.peers", 1)], now);
    inventory.front_doors[0].peers = Some(1);
    assert_eq!(
        check(&mut inventory, "b1", false, now)[1],
        "pool app: no backend can take work; peers serve its requests, and unhealthy backends get \
         what peers cannot serve"
    );
}
