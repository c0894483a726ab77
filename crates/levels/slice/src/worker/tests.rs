//! The complete state tables: every state with every event; and the effects of single items.

use super::{
    SourceAction as G, SourceEvent, SourceState, TargetAction as T, TargetEvent, TargetState,
};

#[test]
fn the_source_state_table_yields_the_expected_states_and_actions() {
    use SourceEvent as E;
    use SourceState as S;
    let events =
        [E::Release, E::ReleaseForeign, E::Passed, E::Active, E::Finished, E::Abort, E::Forget];
    type Cell = (SourceState, &'static [G]);
    let aborted: Cell = (S::Aborted, &[G::SendAborted]);
    let stopped: Cell = (S::Aborted, &[G::StopWaiting, G::SendAborted]);
    let closed: Cell = (S::Closed, &[G::SendClosed]);
    let nothing = |state: SourceState| -> Cell { (state, &[]) };
    let cut = |state: SourceState| -> Cell { (state, &[G::SendCut]) };
    let alone: Cell = (S::Draining, &[G::DropReleased, G::DropTail]);
    #[rustfmt::skip]
    let table = [
        // Release                     ReleaseForeign    Passed
        // Active                      Finished          Abort             Forget
        (S::Unknown, [
            (S::Waiting, &[G::Wait][..]), aborted, nothing(S::Unknown),
            nothing(S::Unknown), nothing(S::Unknown), aborted, closed]),
        (S::Waiting, [
            nothing(S::Waiting), stopped, (S::Cut, &[G::MakeCut]),
            nothing(S::Waiting), nothing(S::Waiting), stopped, stopped]),
        (S::Cut, [
            cut(S::Cut), cut(S::Cut), nothing(S::Cut),
            (S::Draining, &[G::DropReleased]), nothing(S::Cut), cut(S::Cut), alone]),
        (S::Draining, [
            cut(S::Draining), cut(S::Draining), nothing(S::Draining),
            nothing(S::Draining), closed, cut(S::Draining), alone]),
        (S::Closed, [
            closed, closed, nothing(S::Closed),
            nothing(S::Closed), nothing(S::Closed), closed, closed]),
        (S::Aborted, [
            aborted, aborted, nothing(S::Aborted),
            nothing(S::Aborted), nothing(S::Aborted), aborted, aborted]),
    ];
    for (state, cells) in table {
        for (event, expected) in events.into_iter().zip(cells) {
            assert_eq!(state.on(event), expected, "{state:?} on {event:?}");
        }
    }
}

#[test]
fn the_target_state_table_yields_the_expected_states_and_actions() {
    use TargetEvent as E;
    use TargetState as S;
    let events = [
        E::Prepare,
        E::PrepareForeign,
        E::Subscribed,
        E::Overflow,
        E::Cut,
        E::Assign,
        E::Recover,
        E::Abort,
        E::End,
    ];
    type Cell = (TargetState, &'static [T]);
    let nothing = |state: TargetState| -> Cell { (state, &[]) };
    let aborted: Cell = (S::Aborted, &[T::SendAborted]);
    let dropped: Cell = (S::Aborted, &[T::DropShadow, T::SendAborted]);
    let ready: Cell = (S::Shadowing, &[T::SendReady]);
    let active: Cell = (S::Active, &[T::SendActive]);
    #[rustfmt::skip]
    let table = [
        // Prepare      PrepareForeign  Subscribed
        // Overflow     Cut             Assign
        // Recover      Abort           End
        (S::Unknown, [
            (S::Subscribing, &[T::Subscribe][..]), aborted, nothing(S::Unknown),
            nothing(S::Unknown), nothing(S::Unknown), (S::Active, &[T::Assume, T::SendActive]),
            nothing(S::Unknown), aborted, nothing(S::Unknown)]),
        (S::Subscribing, [
            nothing(S::Subscribing), nothing(S::Subscribing),
            (S::Shadowing, &[T::StartShadow, T::SendReady]),
            nothing(S::Subscribing), nothing(S::Subscribing), nothing(S::Subscribing),
            nothing(S::Subscribing), aborted, aborted]),
        (S::Shadowing, [
            ready, ready, nothing(S::Shadowing),
            dropped, (S::Active, &[T::TakeOver, T::SendActive]), nothing(S::Shadowing),
            nothing(S::Shadowing), dropped, dropped]),
        (S::Active, [
            active, active, nothing(S::Active),
            nothing(S::Active), active, active,
            (S::Active, &[T::StartRecovery, T::SendActive]), active, nothing(S::Ended)]),
        (S::Ended, [nothing(S::Ended); 9]),
        (S::Aborted, [
            aborted, aborted, nothing(S::Aborted),
            nothing(S::Aborted), aborted, nothing(S::Aborted),
            nothing(S::Aborted), aborted, nothing(S::Aborted)]),
    ];
    for (state, cells) in table {
        for (event, expected) in events.into_iter().zip(cells) {
            assert_eq!(state.on(event), expected, "{state:?} on {event:?}");
        }
    }
}

mod items {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::by_slice::BySlice;
    use crate::config::{Config, Order};
    use crate::ids::{Group, HandoverId, Incarnation, SliceId, Term, WorkerId, Writer};
    use crate::message::{Address, Envelope, Item, Keeps, Message, Progress};
    use crate::positions::Positions;
    use crate::worker::{Output, Reason, Worker};

    const SLICE: SliceId = SliceId(0);
    const OTHER: SliceId = SliceId(1);
    const WRITER: Writer = Writer { group: Group::BASE, id: 7 };

    fn incarnation(worker: u64) -> Incarnation {
        Incarnation { worker: WorkerId(worker), number: 1 }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn item(position: u64, again: bool) -> Item<u64> {
        Item {
            key: u64::from(SLICE.0),
            slice: SLICE,
            writer: WRITER,
            position,
            again,
            payload: position,
        }
    }

    fn tell(worker: &mut Worker<u64>, now: Duration, message: Message<u64>) {
        let (from, to) = (Address::Controller, Address::Worker(worker.incarnation()));
        worker
            .message(now, Envelope { from, to, term: Term(1), numbering: HandoverId(0), message });
    }

    /// The outputs that are not messages.
    fn does(worker: &mut Worker<u64>) -> Vec<Output<u64>> {
        let outputs = outputs(worker).into_iter();
        outputs.filter(|output| !matches!(output, Output::Send(_))).collect()
    }

    /// All outputs. The caller has started every item.
    fn outputs(worker: &mut Worker<u64>) -> Vec<Output<u64>> {
        let mut outputs = Vec::new();
        while let Some(output) = worker.poll() {
            match output {
                Output::Recall { handover, .. } => worker.recalled(ms(3), handover, Vec::new()),
                output => outputs.push(output),
            }
        }
        outputs
    }

    /// A worker that owns the slice and recovers nothing.
    fn owner() -> Worker<u64> {
        owner_for(Duration::from_secs(100))
    }

    /// The same, with a lease.
    fn owner_for(lease: Duration) -> Worker<u64> {
        let config = Config { recovery: ms(0), lease, ..Config::default() };
        let mut worker = Worker::new(incarnation(1), config);
        worker.tick(ms(1));
        tell(&mut worker, ms(1), Message::Grant { number: 1 });
        let (handover, slices) = (HandoverId(1), [SLICE].into());
        tell(&mut worker, ms(1), Message::Assign { handover, slices, after: None });
        worker.tick(ms(1));
        assert_eq!(worker.recovering().count(), 0);
        does(&mut worker);
        worker
    }

    #[test]
    fn a_source_waits_again_for_a_writer_that_returned() {
        let mut worker = owner();
        worker.item(ms(2), item(10, false));
        worker.writer_gone(ms(3), WRITER);
        worker.item(ms(4), item(11, false));
        let (handover, slices, target) = (HandoverId(2), [SLICE].into(), incarnation(2));
        let positions: Positions = [(WRITER, 13)].into_iter().collect();
        let release = Message::Release { handover, slices, target, positions, settled: false };
        tell(&mut worker, ms(5), release);
        worker.item(ms(6), item(12, false));
        assert_eq!(worker.slice_count(), 1, "it has not passed P");
        worker.item(ms(7), item(13, false));
        assert_eq!(worker.slice_count(), 0);
        // And it is not forgotten as a writer that is gone.
        worker.tick(Duration::from_secs(80));
        assert_eq!(worker.last(WRITER), Some(13));
    }

    #[test]
    fn an_orphaned_item_is_processed_when_it_is_republished_repeatedly() {
        let mut worker = owner_for(ms(300));
        for position in [10, 14] {
            worker.item(ms(2), item(position, false));
            worker.finished(ms(2), SLICE, WRITER, position);
        }
        does(&mut worker);
        for position in [12, 20] {
            worker.item(ms(10), item(position, true));
            assert!(does(&mut worker).is_empty(), "it may only be late");
            worker.item(ms(1_010), item(position, true));
            assert_eq!(does(&mut worker), [Output::Execute(item(position, true))]);
            worker.item(ms(1_020), item(position, true));
            assert!(does(&mut worker).is_empty(), "it is in hand");
        }
    }

    #[test]
    fn an_orphaned_item_is_processed_only_after_a_lease_has_passed() {
        let mut worker = owner();
        worker.item(ms(2), item(14, false));
        does(&mut worker);
        // The lease of this worker is 100 s.
        for at in [10, 5_000, 99_000] {
            worker.item(ms(at), item(12, true));
            assert!(does(&mut worker).is_empty(), "at {at} ms");
        }
        worker.item(Duration::from_secs(101), item(12, true));
        assert_eq!(does(&mut worker), [Output::Execute(item(12, true))]);
    }

    #[test]
    fn a_finished_item_is_answered_again_even_after_its_slice_moved() {
        let mut worker = owner();
        worker.item(ms(2), item(10, false));
        worker.item(ms(3), item(10, true));
        assert_eq!(does(&mut worker), [Output::Execute(item(10, false))], "it is in hand");
        worker.finished(ms(4), SLICE, WRITER, 10);
        worker.item(ms(400), item(10, true));
        assert!(does(&mut worker).is_empty(), "the reply may be on its way");
        worker.item(ms(600), item(10, true));
        assert_eq!(does(&mut worker), [Output::Answer(item(10, true))]);
        let (handover, slices, target) = (HandoverId(2), [SLICE].into(), incarnation(2));
        let positions = Positions::default();
        let release = Message::Release { handover, slices, target, positions, settled: false };
        tell(&mut worker, ms(606), release);
        assert_eq!(worker.slice_count(), 0);
        worker.item(ms(607), item(10, true));
        assert_eq!(does(&mut worker), [Output::Answer(item(10, true))]);
        // It is not remembered any more, and the slice is another's.
        worker.tick(Duration::from_secs(60));
        let before = worker.drops().of(Reason::NotOwned);
        worker.item(Duration::from_secs(60), item(10, true));
        assert!(does(&mut worker).is_empty());
        assert_eq!(worker.drops().of(Reason::NotOwned), before + 1);
    }

    #[test]
    fn each_recovered_item_restarts_the_recovery_time() {
        let config =
            Config { recovery: ms(100), lease: Duration::from_secs(100), ..Config::default() };
        let mut worker = Worker::new(incarnation(1), config);
        worker.tick(ms(1));
        tell(&mut worker, ms(1), Message::Grant { number: 1 });
        let (handover, slices) = (HandoverId(1), [SLICE].into());
        let after = Some([(WRITER, 5)].into_iter().collect());
        tell(&mut worker, ms(1), Message::Assign { handover, slices, after });
        for (at, position) in [(90, 6), (180, 7), (270, 8)] {
            worker.item(ms(at), item(position, true));
            worker.tick(ms(at));
        }
        // A new item does not extend the recovery.
        worker.item(ms(360), item(9, false));
        worker.tick(ms(369));
        assert_eq!(worker.recovering().count(), 1);
        worker.tick(ms(370));
        assert_eq!(worker.recovering().count(), 0);
    }

    #[test]
    fn a_long_recovery_time_applies_only_to_slices_of_lost_workers() {
        for (after, remains) in [(None, 0), (Some(Positions::default()), 1)] {
            let (recovery, lease) = (Duration::from_secs(600), Duration::from_secs(100));
            let config = Config { recovery, lease, order: Order::Strict, ..Config::default() };
            let mut worker = Worker::new(incarnation(1), config);
            worker.tick(ms(1));
            tell(&mut worker, ms(1), Message::Grant { number: 1 });
            let (handover, slices) = (HandoverId(1), [SLICE].into());
            tell(&mut worker, ms(1), Message::Assign { handover, slices, after });
            worker.tick(ms(1_999));
            assert_eq!(worker.recovering().count(), 1);
            worker.tick(ms(2_001));
            assert_eq!(worker.recovering().count(), remains);
        }
    }

    /// Takes slices 0 and 1 over from worker 2; both are at position 5.
    fn target(order: Order) -> Worker<u64> {
        let mut worker = fresh(order);
        let (handover, slices): (_, Arc<[SliceId]>) = (HandoverId(1), [SLICE, OTHER].into());
        let prepare = Message::Prepare { handover, slices: slices.clone(), source: incarnation(2) };
        tell(&mut worker, ms(1), prepare);
        for group in [Group::BASE, Group::of(SLICE), Group::of(OTHER)] {
            worker.settled(ms(1), group);
        }
        let positions = [(WRITER, 5)].into_iter().collect();
        tell(&mut worker, ms(2), Message::Cut { handover, positions, backlog: Vec::new() });
        worker
    }

    /// The slices that the last claims of `worker` list as taken.
    fn taken(worker: &mut Worker<u64>) -> Vec<Vec<SliceId>> {
        worker.say_claims(ms(3));
        let claims = outputs(worker).into_iter().filter_map(|output| match output {
            Output::Send(Envelope { message: Message::Claims(claims), .. }) => Some(claims),
            _ => None,
        });
        let claims = claims.last().expect("it says what it holds");
        claims.taken.into_iter().map(|taken| taken.slices.to_vec()).collect()
    }

    #[test]
    fn slices_given_on_are_no_longer_claimed_as_taken() {
        let mut worker = target(Order::Free);
        assert_eq!(taken(&mut worker), [[SLICE, OTHER]]);
        for (number, slice, left) in [(2, SLICE, vec![vec![OTHER]]), (3, OTHER, vec![])] {
            let (handover, slices, target) = (HandoverId(number), [slice].into(), incarnation(3));
            let positions = Positions::default();
            let release = Message::Release { handover, slices, target, positions, settled: false };
            tell(&mut worker, ms(3), release);
            assert_eq!(taken(&mut worker), left);
        }
    }

    #[test]
    fn slices_of_a_lost_source_are_recovered_after_their_own_positions() {
        let mut worker = target(Order::Strict);
        does(&mut worker);
        let after = BySlice::grouped(
            [SLICE, OTHER],
            |slice| slice,
            |slice| Arc::new([(WRITER, if slice == SLICE { 2 } else { 4 })].into_iter().collect()),
        );
        tell(&mut worker, ms(4), Message::Recover { handover: HandoverId(1), after });
        for position in 1..=6 {
            for slice in [SLICE, OTHER] {
                worker.item(ms(5), Item { key: u64::from(slice.0), ..item(position, true) });
            }
        }
        assert_eq!(executed(&mut worker), [], "more may come again");
        let recovery = worker.config().recovery;
        worker.tick(ms(5) + recovery);
        let done = [(SLICE, 3), (SLICE, 4), (SLICE, 5), (OTHER, 5)];
        assert_eq!(executed(&mut worker), done);
    }

    fn executed(worker: &mut Worker<u64>) -> Vec<(SliceId, u64)> {
        let done = does(worker).into_iter().filter_map(|output| match output {
            Output::Execute(item) => Some((item.slice, item.position)),
            _ => None,
        });
        done.collect()
    }

    #[test]
    fn in_strict_order_items_of_a_lost_worker_precede_new_items() {
        for (order, done) in [(Order::Free, [8, 9, 6, 7]), (Order::Strict, [6, 7, 8, 9])] {
            let mut worker = fresh(order);
            let (handover, slices) = (HandoverId(1), [SLICE].into());
            let after = Some([(WRITER, 5)].into_iter().collect());
            tell(&mut worker, ms(1), Message::Assign { handover, slices, after });
            for (position, again) in [(8, false), (9, false), (6, true), (5, true), (7, true)] {
                worker.item(ms(2), item(position, again));
            }
            worker.tick(ms(2) + worker.config().recovery);
            assert_eq!(executed(&mut worker), done.map(|position| (SLICE, position)));
            // No worker has it any more, so it is processed in the end.
            for seconds in [100, 250] {
                worker.item(Duration::from_secs(seconds), item(3, true));
            }
            assert_eq!(executed(&mut worker), [(SLICE, 3)]);
            let late = u64::from(order == Order::Strict);
            assert_eq!(worker.drops().of(Reason::OutOfOrder), late);
        }
    }

    #[test]
    fn a_recovery_does_not_wait_for_a_client_that_has_answered() {
        let mut worker = fresh(Order::Strict);
        let (handover, slices) = (HandoverId(1), [SLICE].into());
        let after = Some([(WRITER, 5)].into_iter().collect());
        tell(&mut worker, ms(1), Message::Assign { handover, slices, after });
        let keeps = |through, positions: &[u64]| Keeps {
            numbering: HandoverId(0),
            writer: WRITER,
            through,
            slices: [(SLICE, positions.to_vec())].into(),
        };
        worker.item(ms(2), item(9, false));
        // 8 has a reply, and 4 was never this worker's.
        worker.keeps(Duration::ZERO, &keeps(7, &[4, 6, 7]));
        worker.item(ms(2), item(7, true));
        assert_eq!(executed(&mut worker), [], "6 is missing");
        worker.item(ms(2), item(6, true));
        assert_eq!(executed(&mut worker), [(SLICE, 6), (SLICE, 7)]);
        // Items between 7 and 9 are unknown before the next answer, which covers all.
        worker.keeps(Duration::ZERO, &keeps(9, &[6, 9]));
        worker.item(ms(2), item(12, false));
        assert_eq!(executed(&mut worker), [(SLICE, 9), (SLICE, 12)]);
        assert_eq!(worker.recovering().count(), 1, "others may publish again");
    }

    /// A worker that the controller knows, and that owns nothing.
    fn fresh(order: Order) -> Worker<u64> {
        let config = Config { lease: Duration::from_secs(100), order, ..Config::default() };
        let mut worker = Worker::new(incarnation(1), config);
        worker.tick(ms(1));
        tell(&mut worker, ms(1), Message::Grant { number: 1 });
        worker
    }

    #[test]
    fn a_target_receives_the_cut_before_the_drained_message() {
        let mut worker = target(Order::Strict);
        let (handover, slices) = (HandoverId(1), [SLICE, OTHER].map(|slice| (slice, None)).into());
        let (from, to) = (Address::Worker(incarnation(2)), Address::Worker(worker.incarnation()));
        let message = Message::Drained { handover, slices };
        worker.message(
            ms(3),
            Envelope { from, to, term: Term(1), numbering: HandoverId(0), message },
        );
        does(&mut worker);
        let (handover, slices) = (HandoverId(2), [SLICE, OTHER].into());
        let (target, positions) = (incarnation(3), Positions::default());
        let release = Message::Release { handover, slices, target, positions, settled: false };
        tell(&mut worker, ms(4), release);
        let said = outputs(&mut worker).into_iter().filter_map(|output| match output {
            Output::Send(envelope) if envelope.to == Address::Worker(target) => {
                Some(envelope.message.name())
            }
            _ => None,
        });
        assert_eq!(said.collect::<Vec<_>>(), ["cut", "drained"]);
    }

    /// Entries that come again sooner than a target can take them keep it from taking them.
    #[test]
    fn unacknowledged_tail_entries_are_repeated_with_a_growing_interval() {
        let mut worker = owner();
        worker.item(ms(2), item(10, false));
        let (handover, slices, target) = (HandoverId(2), [SLICE].into(), incarnation(2));
        let positions = Positions::default();
        let release = Message::Release { handover, slices, target, positions, settled: false };
        tell(&mut worker, ms(3), release);
        let mut sent = Vec::new();
        for at in (3..3_000).step_by(20) {
            worker.tick(ms(at));
            while let Some(output) = worker.poll() {
                match output {
                    // The item was not started.
                    Output::Recall { handover, .. } => {
                        worker.recalled(ms(at), handover, vec![item(10, false)]);
                    }
                    Output::Send(Envelope { message: Message::Tail { .. }, .. }) => sent.push(at),
                    _ => {}
                }
            }
        }
        assert_eq!(sent, [3, 23, 43, 83, 163, 323, 643, 1283, 2283]);
    }

    #[test]
    fn a_handover_that_ends_under_a_new_controller_is_reported() {
        let mut worker = owner();
        worker.item(ms(2), item(10, false));
        let (handover, slices, target) = (HandoverId(2), [SLICE].into(), incarnation(2));
        let positions = Positions::default();
        let release = Message::Release { handover, slices, target, positions, settled: false };
        tell(&mut worker, ms(3), release);
        let before = outputs(&mut worker);
        // The next controller asks before the handover of the first is over.
        let (from, to) = (Address::Controller, Address::Worker(worker.incarnation()));
        let message = Message::Grant { number: 2 };
        worker.message(
            ms(4),
            Envelope { from, to, term: Term(2), numbering: HandoverId(0), message },
        );
        worker.finished(ms(5), SLICE, WRITER, 10);
        // The tail has an end, and the target has received it.
        for tail_next in [0, 1] {
            let progress = Progress { settled: true, tail_next, ..Progress::default() };
            let cut = [(WRITER, 10)].into_iter().collect();
            let message = Message::Active { handover, cut, progress };
            let (from, term) = (Address::Worker(target), Term(2));
            worker.message(ms(6), Envelope { from, to, term, numbering: HandoverId(0), message });
        }
        for at in (100..1_000).step_by(100) {
            worker.tick(ms(at));
        }
        let said = before.into_iter().chain(outputs(&mut worker));
        let said = said.filter_map(|output| match output {
            Output::Send(Envelope { message: Message::Claims(claims), .. }) => Some(claims),
            _ => None,
        });
        let last = said.last().expect("it says what it holds");
        assert!(last.given.is_empty(), "the handover is over: {last:?}");
        let past: Vec<_> =
            last.past.iter().map(|past| (past.slices.to_vec(), &past.done)).collect();
        assert_eq!(past, [(vec![SLICE], &[(WRITER, 10)].into_iter().collect())]);
    }
}
