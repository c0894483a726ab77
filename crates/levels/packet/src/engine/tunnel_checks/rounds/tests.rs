use equipoise_health::ActiveHealth;

use super::*;
use crate::abi::Forward;

const INTERVAL: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(1);

/// Records sent segments; sending may be disabled.
#[derive(Default)]
struct Recorder {
    sent: Vec<(BackendId, Outgoing)>,
    obstacle: Option<TunnelError>,
}

impl Way for Recorder {
    fn send(&mut self, check: &TunnelCheck, segment: Outgoing) -> Result<(), TunnelError> {
        if let Some(obstacle) = &self.obstacle {
            return Err(obstacle.clone());
        }
        self.sent.push((check.backend, segment));
        Ok(())
    }
}

impl Recorder {
    fn take(&mut self) -> Vec<Outgoing> {
        self.sent.drain(..).map(|(_, segment)| segment).collect()
    }

    /// Returns the sequence number of the only SYN sent.
    fn syn(&mut self) -> u32 {
        match self.take()[..] {
            [Outgoing::Syn { sequence }] => sequence,
            ref other => panic!("{other:?}"),
        }
    }
}

fn check(last: u8) -> TunnelCheck {
    TunnelCheck {
        vip: "203.0.113.1:80/tcp".parse().unwrap(),
        port: 80,
        forward: Forward::Tunnel,
        backend: BackendId { address: [192, 0, 2, last].into(), port: None },
        rules: ActiveHealth {
            interval: INTERVAL,
            timeout: TIMEOUT,
            rise: 2,
            fall: 2,
            ..ActiveHealth::default()
        },
    }
}

struct Bench {
    rounds: Rounds,
    way: Recorder,
    now: Instant,
}

impl Bench {
    /// Sends the first SYN to each backend.
    fn new(backends: &[u8]) -> Bench {
        let checks: Vec<_> = backends.iter().map(|last| check(*last)).collect();
        let mut bench =
            Bench { rounds: Rounds::default(), way: Recorder::default(), now: Instant::now() };
        bench.rounds.follow(&checks, bench.now);
        assert_eq!(bench.after(STAGGER_MAX), []);
        bench
    }

    fn after(&mut self, time: Duration) -> Vec<Notice> {
        self.now += time;
        self.rounds.tick(self.now, &mut self.way)
    }

    fn answer(&mut self, flags: u8, acknowledged: u32) -> Option<Notice> {
        let segment = Segment {
            from: "203.0.113.1:80".parse().unwrap(),
            to: "192.0.2.2:40000".parse().unwrap(),
            sequence: 77,
            acknowledged,
            flags,
        };
        self.rounds.hear(&segment, self.now, &mut self.way)
    }

    /// Waits until the next check begins. Returns the sequence number of its SYN.
    fn next_check(&mut self) -> u32 {
        self.way.take();
        assert_eq!(self.after(INTERVAL.mul_f64(1.1)), []);
        self.way.syn()
    }

    fn report(&self) -> (Health, Option<TunnelError>) {
        let report = self.rounds.reports().into_values().next().unwrap();
        (report.health, report.error)
    }
}

#[test]
fn a_syn_ack_passes_and_the_half_open_connection_is_reset() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    assert_eq!(bench.report(), (Health::Unknown, None));
    let expected = sequence.wrapping_add(1);
    let found = bench.answer(SYN | ACK, expected);
    assert!(matches!(found, Some(Notice::TunnelFound { .. })), "{found:?}");
    assert_eq!(bench.way.take(), [Outgoing::Rst { sequence: expected }]);
    assert_eq!(bench.report(), (Health::Healthy, None));
    assert_ne!(bench.next_check(), sequence);
}

#[test]
fn a_lost_syn_is_sent_again_twice_before_the_check_fails() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    for pause in [TIMEOUT / 4, TIMEOUT / 2] {
        assert_eq!(bench.after(pause - Duration::from_millis(1)), []);
        assert_eq!(bench.way.take(), []);
        assert_eq!(bench.after(Duration::from_millis(1)), []);
        assert_eq!(bench.way.take(), [Outgoing::Syn { sequence }]);
    }
    let notices = bench.after(TIMEOUT / 4);
    let [Notice::TunnelFailed { checks: 1, why, .. }] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(*why, TunnelError::NoAnswer(TIMEOUT));
    let rst = Outgoing::Rst { sequence: sequence.wrapping_add(1) };
    assert_eq!(bench.way.take(), [rst], "its answer may have been lost");
    assert_eq!(bench.report(), (Health::Unhealthy, Some(TunnelError::NoAnswer(TIMEOUT))));
}

#[test]
fn rise_and_fall_turn_a_verdict() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    bench.answer(SYN | ACK, sequence.wrapping_add(1));
    bench.next_check();
    assert_eq!(bench.after(TIMEOUT), [], "one failure of two");
    assert_eq!(bench.report().0, Health::Healthy);
    bench.next_check();
    assert_eq!(bench.after(TIMEOUT).len(), 1);
    assert_eq!(bench.report().0, Health::Unhealthy);
    for notice in [false, true] {
        let sequence = bench.next_check();
        assert_eq!(bench.answer(SYN | ACK, sequence.wrapping_add(1)).is_some(), notice);
    }
    assert_eq!(bench.report(), (Health::Healthy, None));
}

#[test]
fn a_reset_fails_the_check_as_refused() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    let notice = bench.answer(RST | ACK, sequence.wrapping_add(1));
    assert!(matches!(notice, Some(Notice::TunnelFailed { why: TunnelError::Refused, .. })));
    assert_eq!(bench.way.take(), []);
}

#[test]
fn an_answer_with_an_unexpected_acknowledgement_number_is_ignored() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    for number in [0, 1, sequence, sequence.wrapping_add(2)] {
        assert_eq!(bench.answer(SYN | ACK, number), None);
        assert_eq!(bench.answer(RST | ACK, number), None);
    }
    // Without ACK, the acknowledgement number is meaningless.
    assert_eq!(bench.answer(RST, sequence.wrapping_add(1)), None);
    assert_eq!(bench.way.take(), []);
    assert_eq!(bench.after(TIMEOUT).len(), 1, "the check fails");
}

#[test]
fn sequence_numbers_carry_the_mark_and_recent_numbers_do_not_repeat() {
    let mut bench = Bench::new(&[11]);
    let mark = u32::from(bench.rounds.mark());
    let mut seen = vec![bench.way.syn()];
    for _ in 0..1000 {
        bench.after(TIMEOUT);
        bench.way.take();
        bench.after(INTERVAL);
        let sequence = bench.way.syn();
        // Older numbers may repeat: 24 bits are random.
        assert!(!seen.iter().rev().take(SENT_KEPT).any(|it| *it == sequence));
        seen.push(sequence);
    }
    assert!(seen.iter().all(|it| it.wrapping_add(1) >> MARK_SHIFT == mark));
}

#[test]
fn an_answer_counts_for_the_backend_that_was_asked() {
    let mut bench = Bench::new(&[11, 12]);
    let sent = std::mem::take(&mut bench.way.sent);
    let Outgoing::Syn { sequence } = sent[1].1 else { panic!("{sent:?}") };
    bench.answer(SYN | ACK, sequence.wrapping_add(1));
    assert_eq!(bench.way.sent[0].0, sent[1].0);
    bench.after(TIMEOUT);
    let health = |last| {
        let key = (check(last).vip, check(last).backend);
        bench.rounds.reports()[&key].health
    };
    assert_eq!((health(11), health(12)), (Health::Unhealthy, Health::Healthy));
}

#[test]
fn a_late_answer_to_an_earlier_check_is_reset_and_ignored() {
    let mut bench = Bench::new(&[11]);
    let first = bench.way.syn();
    bench.answer(SYN | ACK, first.wrapping_add(1));
    // That RST is lost, so the backend answers for its connection that is still half open.
    let second = bench.next_check();
    for flags in [SYN | ACK, ACK] {
        assert_eq!(bench.answer(flags, first.wrapping_add(1)), None);
        assert_eq!(bench.way.take(), [Outgoing::Rst { sequence: first.wrapping_add(1) }]);
        assert_eq!(bench.after(Duration::ZERO), []);
        assert_eq!(bench.way.take(), [Outgoing::Syn { sequence: second }], "sent again at once");
    }
    assert_eq!(bench.after(TIMEOUT), []);
    assert_eq!(bench.report(), (Health::Healthy, Some(TunnelError::NoAnswer(TIMEOUT))));
    for _ in 0..SENT_KEPT {
        bench.next_check();
        bench.after(TIMEOUT);
    }
    bench.way.take();
    bench.answer(ACK, first.wrapping_add(1));
    assert_eq!(bench.way.take(), [], "old numbers are forgotten");
}

#[test]
fn sequence_numbers_are_bounded_per_backend_and_deleted_with_its_check() {
    let mut bench = Bench::new(&[11, 12]);
    for _ in 0..100 {
        bench.after(INTERVAL * 2);
        bench.after(TIMEOUT);
    }
    assert_eq!(bench.rounds.sent.len(), 2 * SENT_KEPT);
    bench.rounds.follow(&[check(12)], bench.now);
    assert_eq!(bench.rounds.sent.len(), SENT_KEPT);
    bench.rounds.follow(&[TunnelCheck { port: 81, ..check(12) }], bench.now);
    assert_eq!(bench.rounds.sent.len(), 0);
}

#[test]
fn a_verdict_holds_for_no_other_check_of_the_same_backend() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    bench.answer(SYN | ACK, sequence.wrapping_add(1));
    assert_eq!(bench.rounds.reports_of(&[check(11)]).len(), 1);
    assert!(bench.rounds.reports_of(&[TunnelCheck { port: 81, ..check(11) }]).is_empty());
    assert!(bench.rounds.reports_of(&[]).is_empty());
}

#[test]
fn a_check_passes_if_its_next_hop_resolves_within_the_timeout() {
    let mut bench = Bench::new(&[]);
    bench.rounds.follow(&[check(11)], bench.now);
    bench.way.obstacle = Some(TunnelError::NoNextHop);
    bench.after(STAGGER_MAX);
    bench.way.obstacle = None;
    bench.after(TIMEOUT / 4);
    let sequence = bench.way.syn();
    bench.answer(SYN | ACK, sequence.wrapping_add(1));
    assert_eq!(bench.report(), (Health::Healthy, None));
}

#[test]
fn a_missing_source_address_changes_no_verdict_and_is_reported_once() {
    let mut bench = Bench::new(&[11]);
    let sequence = bench.way.syn();
    bench.answer(SYN | ACK, sequence.wrapping_add(1));
    bench.way.obstacle = Some(TunnelError::NoSource);
    let mut notices = Vec::new();
    for _ in 0..4 {
        notices.extend(bench.after(INTERVAL.mul_f64(1.1)));
        notices.extend(bench.after(TIMEOUT));
    }
    assert!(matches!(notices[..], [Notice::NotCheckedThroughTunnel { .. }]), "{notices:?}");
    assert_eq!(bench.report(), (Health::Healthy, Some(TunnelError::NoSource)));
    bench.way.obstacle = Some(TunnelError::NoNextHop);
    let mut notices = Vec::new();
    for _ in 0..2 {
        notices.extend(bench.after(INTERVAL.mul_f64(1.1)));
        notices.extend(bench.after(TIMEOUT));
    }
    assert!(matches!(notices[..], [Notice::TunnelFailed { checks: 2, .. }]), "{notices:?}");
}

#[test]
fn a_verdict_survives_a_new_interval_but_not_a_new_method() {
    let mut bench = Bench::new(&[11]);
    bench.after(TIMEOUT);
    assert_eq!(bench.report().0, Health::Unhealthy);
    let mut slower = check(11);
    slower.rules.interval *= 2;
    bench.rounds.follow(&[slower, check(12)], bench.now);
    assert_eq!(bench.report().0, Health::Unhealthy);
    let other_way = TunnelCheck { forward: Forward::Gue, ..check(11) };
    bench.rounds.follow(&[other_way], bench.now);
    assert_eq!(bench.report().0, Health::Unknown);
    bench.rounds.follow(&[], bench.now);
    assert_eq!(bench.rounds.next_tick(), None);
}
