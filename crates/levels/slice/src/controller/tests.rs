//! The complete state table: every state with every event; and the admission of workers.

use std::time::Duration;

use super::{
    Controller, HandoverAction, HandoverEvent, HandoverState, MoveRefused, Output, Stored,
};
use crate::config::Config;
use crate::ids::{Group, HandoverId, Incarnation, Process, SliceId, Term, WorkerId, Writer};
use crate::message::{Address, Claims, Envelope, Message, Past};
use crate::positions::Positions;

#[test]
fn the_handover_state_table_yields_the_expected_states_and_actions() {
    use HandoverEvent as E;
    use HandoverState as S;
    let events = [
        E::Ready,
        E::Cut,
        E::Active,
        E::Recovered,
        E::Closed,
        E::SourceAborted,
        E::TargetAborted,
        E::SourceLost,
        E::TargetLost,
        E::TimedOut,
    ];
    let source = |target_lost| S::AbortingSource { target_lost };
    let target = |source_lost| S::AbortingTarget { source_lost };
    let activating = |source_lost| S::Activating { source_lost };
    let settling = |source_lost| S::Settling { source_lost };
    let (moved, kept, returned, lost) = (S::Moved, S::Kept, S::Returned, S::Lost);
    #[rustfmt::skip]
    let table = [
        // Ready, Cut, Active, Recovered, Closed
        // SourceAborted, TargetAborted, SourceLost, TargetLost, TimedOut
        (S::Preparing, [
            S::Releasing, S::Preparing, S::Preparing, S::Preparing, S::Preparing,
            S::Preparing, kept, target(true), kept, target(false)]),
        (S::Releasing, [
            S::Releasing, activating(false), settling(false), settling(false), moved,
            target(false), source(true), target(true), source(true), source(false)]),
        (source(false), [
            source(false), activating(false), settling(false), settling(false), moved,
            target(false), source(true), target(true), source(true), source(false)]),
        (source(true), [
            source(true), returned, source(true), source(true), moved,
            kept, source(true), lost, source(true), source(true)]),
        (target(false), [
            target(false), target(false), settling(false), settling(false), target(false),
            target(false), kept, target(true), kept, target(false)]),
        (target(true), [
            target(true), target(true), settling(true), settling(true), target(true),
            target(true), kept, target(true), lost, target(true)]),
        (activating(false), [
            activating(false), activating(false), settling(false), settling(false), moved,
            activating(false), returned, activating(true), returned, activating(false)]),
        (activating(true), [
            activating(true), activating(true), settling(true), settling(true), moved,
            activating(true), lost, activating(true), lost, activating(true)]),
        (settling(false), [
            settling(false), settling(false), settling(false), settling(false), moved,
            settling(false), settling(false), settling(true), returned, settling(false)]),
        (settling(true), [
            settling(true), settling(true), settling(true), moved, moved,
            settling(true), settling(true), settling(true), lost, settling(true)]),
        (moved, [moved; 10]),
        (kept, [kept; 10]),
        (returned, [returned; 10]),
        (lost, [lost; 10]),
    ];
    for (state, cells) in table {
        for (event, expected) in events.into_iter().zip(cells) {
            let (next, actions) = state.on(event);
            assert_eq!(next, expected, "{state:?} on {event:?}");
            // The target's ownership is recorded once: when it becomes known.
            let known = |state| matches!(state, S::Settling { .. } | S::Moved);
            let owns = !known(state) && known(next);
            let expected: &[_] = if owns { &[HandoverAction::Own] } else { &[] };
            assert_eq!(actions, expected, "{state:?} on {event:?}");
        }
    }
}

/// A controller with its store, and its last messages.
struct Office {
    controller: Controller<()>,
    stored: Stored,
    said: Vec<(Incarnation, Message<()>)>,
    now: Duration,
    number: u64,
}

fn config() -> Config {
    let (lease, margin) = (Duration::from_millis(300), Duration::from_millis(100));
    Config { lease, margin, retire: Duration::from_secs(2), ..Config::default() }
}

fn incarnation(worker: u64, number: u64) -> Incarnation {
    Incarnation { worker: WorkerId(worker), number }
}

impl Office {
    fn new(stored: Stored) -> Self {
        let now = Duration::from_secs(1);
        let controller = Controller::new(now, Term(1), config(), 4, &stored);
        let mut office = Self { controller, stored, said: Vec::new(), now, number: 0 };
        office.carry_out();
        office
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.controller.poll() {
            match output {
                Output::Record(record) | Output::Note(record) => self.stored.apply(&record),
                Output::Send(envelope) => {
                    if let Address::Worker(to) = envelope.to {
                        self.said.push((to, envelope.message));
                    }
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        for left in (0..ms).rev().step_by(10) {
            self.now += Duration::from_millis((left + 1).min(10));
            self.controller.tick(self.now);
            self.carry_out();
        }
    }

    /// The controller is paused.
    fn stand_still(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.controller.tick(self.now);
        self.carry_out();
    }

    /// Sends claims of an incarnation and a process; returns the answers.
    fn claims(
        &mut self,
        from: Incarnation,
        key: u64,
        slices: Vec<(SliceId, HandoverId)>,
    ) -> Vec<Message<()>> {
        let process = Process { key, host: "rack".into(), pid: key as u32, since_unix_ms: 5 };
        self.say(from, Claims { process, slices, ..Claims::default() })
    }

    /// Sends any claims; returns the answers.
    fn say(&mut self, from: Incarnation, claims: Claims) -> Vec<Message<()>> {
        self.number += 1;
        let claims = Claims { number: self.number, ..claims };
        let (from, to) = (Address::Worker(from), Address::Controller);
        let message = Message::Claims(Box::new(claims));
        self.said.clear();
        self.controller.message(
            self.now,
            Envelope { from, to, term: Term(1), numbering: HandoverId(0), message },
        );
        self.carry_out();
        self.said.iter().map(|(_, message)| message.clone()).collect()
    }
}

#[test]
fn a_taken_worker_name_is_refused_until_its_holders_lease_expires() {
    let mut office = Office::new(Stored::default());
    assert!(matches!(office.claims(incarnation(1, 10), 7, vec![])[0], Message::Grant { .. }));
    for number in [9, 10, 11] {
        office.pass(100);
        office.claims(incarnation(1, 10), 7, vec![]);
        office.pass(30);
        let said = office.claims(incarnation(1, number), 8, vec![]);
        let [Message::Refuse { last: 10, holder, heard }] = &said[..] else {
            panic!("{number}: {said:?}")
        };
        assert_eq!((holder.key, holder.host.as_str(), holder.pid), (7, "rack", 7));
        assert_eq!(*heard, Duration::from_millis(30));
    }
    let (twin, _) = office.controller.members().next().unwrap().twin.clone().unwrap();
    assert_eq!(twin.key, 8);
    // Its lease is over: now the other process may have the name, whatever its clock shows.
    office.pass(450);
    assert!(office.stored.lost.contains_key(&WorkerId(1)));
    let said = office.claims(incarnation(1, 9), 8, vec![]);
    assert!(matches!(said[..], [Message::Expel { last: 10 }]), "{said:?}");
    assert!(matches!(office.claims(incarnation(1, 11), 8, vec![])[0], Message::Grant { .. }));
    let said = office.claims(incarnation(1, 10), 7, vec![]);
    assert!(matches!(&said[..], [Message::Refuse { holder, .. }] if holder.key == 8), "{said:?}");
}

#[test]
fn a_paused_controller_declares_no_worker_lost_because_of_its_pause() {
    let mut office = Office::new(Stored::default());
    office.claims(incarnation(1, 10), 7, vec![]);
    office.claims(incarnation(2, 10), 8, vec![]);
    office.pass(200);
    office.claims(incarnation(2, 10), 8, vec![]);
    office.stand_still(1_000);
    assert!(office.stored.lost.is_empty(), "{:?}", office.stored.lost);
    // They keep the rest of their leases, minus one claims interval.
    office.pass(140);
    assert!(office.stored.lost.is_empty(), "{:?}", office.stored.lost);
    office.claims(incarnation(2, 10), 8, vec![]);
    office.pass(30);
    assert_eq!(office.stored.lost.keys().collect::<Vec<_>>(), [&WorkerId(1)]);
}

#[test]
fn a_repeatedly_paused_controller_still_declares_a_silent_worker_lost() {
    let mut office = Office::new(Stored::default());
    office.claims(incarnation(1, 10), 7, vec![]);
    let mut before = Duration::ZERO;
    for _ in 0..20 {
        office.stand_still(150);
        match &office.claims(incarnation(1, 11), 8, vec![])[..] {
            [Message::Refuse { heard, .. }] => {
                assert!(
                    *heard >= before + Duration::from_millis(150),
                    "{heard:?} after {before:?}"
                );
                before = *heard;
            }
            [Message::Grant { .. }, ..] => {
                assert!(before >= Duration::from_millis(400), "its lease was not over: {before:?}");
                return;
            }
            said => panic!("{said:?}"),
        }
    }
    panic!("it is not given up");
}

#[test]
fn workers_known_only_from_the_store_have_one_lease_to_return() {
    let owners = [(SliceId(0), (incarnation(1, 10), HandoverId(3)))];
    let stored = Stored { owners: owners.into(), ..Stored::default() };
    let mut office = Office::new(stored.clone());
    assert!(office.claims(incarnation(1, 11), 8, vec![]).is_empty(), "nobody knows yet who is who");
    let owned = vec![(SliceId(0), HandoverId(3))];
    assert!(matches!(office.claims(incarnation(1, 10), 7, owned)[0], Message::Grant { .. }));
    assert!(matches!(office.claims(incarnation(1, 11), 8, vec![])[0], Message::Refuse { .. }));
    let mut office = Office::new(stored);
    office.pass(450);
    assert!(matches!(office.claims(incarnation(1, 11), 8, vec![])[0], Message::Grant { .. }));
}

#[test]
fn lost_workers_are_forgotten_after_their_slices_are_reassigned() {
    let mut office = Office::new(Stored::default());
    for worker in 2..6000 {
        office.claims(incarnation(worker, 1), worker, vec![]);
    }
    // Only one of them goes on; it takes over the slices of the others.
    for _ in 0..9 {
        office.pass(100);
        office.claims(incarnation(1, 1), 1, vec![]);
    }
    assert_eq!(office.stored.lost.len(), 4096, "no more than that are remembered");
    for _ in 0..30 {
        office.pass(100);
        let open = office.controller.handovers().keys().next().copied();
        let slices = (0..4).map(|slice| (SliceId(slice), open.unwrap_or_default())).collect();
        office.claims(incarnation(1, 1), 1, slices);
        let assigned: Vec<_> = office.controller.handovers().keys().copied().collect();
        for handover in assigned {
            let (from, to) = (Address::Worker(incarnation(1, 1)), Address::Controller);
            let slices = office.controller.handovers()[&handover].slices.clone();
            let claimed = slices.iter().map(|slice| (*slice, handover)).collect();
            office.claims(incarnation(1, 1), 1, claimed);
            let (cut, progress) = Default::default();
            let message = Message::Active { handover, cut, progress };
            let envelope = Envelope { from, to, term: Term(1), numbering: HandoverId(0), message };
            office.controller.message(office.now, envelope);
            office.carry_out();
        }
    }
    assert!(office.stored.lost.is_empty(), "{} are left", office.stored.lost.len());
    assert_eq!(office.controller.members().count(), 1);
    // One of them returns: it is not admitted with its old slices, as these belong to another now.
    let said = office.claims(incarnation(9, 1), 9, vec![(SliceId(0), HandoverId(1))]);
    assert!(matches!(said[..], [Message::Expel { last: 1 }]), "{said:?}");
    assert!(matches!(office.claims(incarnation(9, 2), 9, vec![])[0], Message::Grant { .. }));
}

#[test]
fn a_stuck_worker_receives_slices_only_if_all_workers_are_stuck() {
    let mut office = Office::new(Stored::default());
    office.claims(incarnation(1, 1), 1, vec![]);
    assert_eq!(office.controller.handovers().values().next().unwrap().target, incarnation(1, 1));
    let mut office = Office::new(Stored::default());
    // Both report before anything is assigned.
    office.controller.members.heard(incarnation(1, 1), Claims::default(), true, office.now);
    office.controller.members.heard(incarnation(2, 1), Claims::default(), true, office.now);
    office.controller.set_stuck(WorkerId(1), true);
    office.pass(1);
    let open = office.controller.handovers();
    assert!(open.values().all(|open| open.target == incarnation(2, 1)), "{open:?}");
    let asked = office.controller.move_slices(office.now, &[SliceId(0)], WorkerId(1));
    assert!(matches!(asked, Err(MoveRefused::Busy(..))), "{asked:?}");
    let mut office = Office::new(Stored::default());
    office.controller.members.heard(incarnation(1, 1), Claims::default(), true, office.now);
    office.controller.set_stuck(WorkerId(1), true);
    office.pass(1);
    assert_eq!(office.controller.handovers().len(), 1, "somebody has to have them");
}

#[test]
fn slices_of_one_group_are_assigned_together_and_every_worker_has_its_share() {
    for (slices, workers) in [(1000_u32, 5_u64), (50, 5), (10, 3), (7, 9)] {
        let controller =
            Controller::new(Duration::from_secs(1), Term(1), config(), slices, &Stored::default());
        let mut office = Office { controller, ..Office::new(Stored::default()) };
        for worker in 1..=workers {
            let members = &mut office.controller.members;
            members.heard(incarnation(worker, 1), Claims::default(), true, office.now);
        }
        office.pass(1);
        let assigned = office.controller.handovers().values();
        let counts: Vec<_> = assigned.clone().map(|open| open.slices.len()).collect();
        let groups = assigned.map(|open| {
            let groups = open.slices.iter().map(|slice| Group::of(*slice));
            groups.collect::<std::collections::BTreeSet<_>>().len()
        });
        let share = (slices as usize).div_ceil(workers as usize);
        assert!(counts.iter().all(|count| *count <= share), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), slices as usize);
        let bound = slices.min(64) as usize + workers as usize;
        assert!(groups.clone().sum::<usize>() <= bound, "{:?}", groups.collect::<Vec<_>>());
    }
}

#[test]
fn a_lost_targets_slices_are_recovered_from_its_sources_reported_positions() {
    let (source, target) = (incarnation(1, 1), incarnation(2, 1));
    let done = |position| -> Positions {
        [(Writer { group: Group::BASE, id: 7 }, position)].into_iter().collect()
    };
    let owners = (0..4).map(|slice| (SliceId(slice), (target, HandoverId(5)))).collect();
    let heard = [(source.worker, source.number)].into();
    let mut office = Office::new(Stored { owners, heard, ..Stored::default() });
    let past = |slices: &[u32], position| {
        let slices = slices.iter().copied().map(SliceId).collect();
        Past { slices, done: done(position), backlog: Vec::new() }
    };
    office
        .say(source, Claims { past: vec![past(&[0, 1], 10), past(&[2], 20)], ..Claims::default() });
    // Later claims lack it.
    for _ in 0..5 {
        office.pass(100);
        office.say(source, Claims::default());
    }
    let open = office.controller.handovers().values();
    let mut after: Vec<_> =
        open.map(|open| (open.slices.to_vec(), open.after.clone().unwrap_or_default())).collect();
    after.sort_by(|a, b| a.0.cmp(&b.0));
    let of = |slices: &[u32]| slices.iter().copied().map(SliceId).collect::<Vec<_>>();
    let nothing = Positions::default();
    assert_eq!(after, [(of(&[0, 1]), done(10)), (of(&[2]), done(20)), (of(&[3]), nothing)]);
}

#[test]
fn slices_of_a_lost_source_are_recovered_from_their_own_positions() {
    let (source, target) = (incarnation(1, 1), incarnation(2, 1));
    let writer = Writer { group: Group::BASE, id: 7 };
    let done = |position| -> Positions { [(writer, position)].into_iter().collect() };
    let owners = (0..4).map(|slice| (SliceId(slice), (source, HandoverId(5)))).collect();
    let heard = [source, target].map(|incarnation| (incarnation.worker, incarnation.number)).into();
    let mut office = Office::new(Stored { owners, heard, ..Stored::default() });
    // Two slices had another owner, which finished more than the source reports for the others.
    let past = Past { slices: [0, 1].map(SliceId).into(), done: done(20), backlog: Vec::new() };
    let owned: Vec<_> = (0..4).map(|slice| (SliceId(slice), HandoverId(5))).collect();
    let claims = Claims { slices: owned, marks: done(10), ..Claims::default() };
    office.say(target, Claims { past: vec![past], ..Claims::default() });
    office.say(source, claims);
    let slices: Vec<_> = (0..4).map(SliceId).collect();
    let moved = office.controller.move_slices(office.now, &slices, target.worker).unwrap();
    let say = |office: &mut Office, from, message| {
        let (from, to) = (Address::Worker(from), Address::Controller);
        let envelope = Envelope { from, to, term: Term(1), numbering: HandoverId(0), message };
        office.controller.message(office.now, envelope);
        office.carry_out();
    };
    let (positions, handover) = (done(30), moved);
    say(&mut office, target, Message::Ready { handover, positions, settled: true });
    say(&mut office, source, Message::Cut { handover, positions: done(30), backlog: Vec::new() });
    let active = Message::Active { handover, cut: done(30), progress: Default::default() };
    say(&mut office, target, active);
    office.said.clear();
    for _ in 0..9 {
        office.pass(100);
        office.claims(target, 0, (0..4).map(|slice| (SliceId(slice), moved)).collect());
        if !office.stored.lost.is_empty() {
            break;
        }
        office.said.clear();
    }
    office.pass(100);
    let after = office.said.iter().find_map(|(_, message)| match message {
        Message::Recover { after, .. } => Some(after.clone()),
        _ => None,
    });
    let after = after.expect("the target is told that the source is lost");
    let of = |slice| after.of(SliceId(slice)).map(|at| at.of(writer));
    assert_eq!([0, 1, 2, 3].map(of), [Some(20), Some(20), Some(10), Some(10)]);
}
