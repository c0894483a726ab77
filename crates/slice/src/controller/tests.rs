//! The table, whole: every state with every event.

use super::{HandoverAction, HandoverEvent, HandoverState};

#[test]
fn a_handover_goes_this_way_in_each_state() {
    use HandoverEvent as E;
    use HandoverState as S;
    let events = [
        E::Ready,
        E::Cut,
        E::Active,
        E::Recovered,
        E::Closed,
        E::GiverAborted,
        E::TakerAborted,
        E::GiverLost,
        E::TakerLost,
        E::TimedOut,
    ];
    let giver = |taker_lost| S::AbortingGiver { taker_lost };
    let taker = |giver_lost| S::AbortingTaker { giver_lost };
    let activating = |giver_lost| S::Activating { giver_lost };
    let settling = |giver_lost| S::Settling { giver_lost };
    let (moved, kept, returned, lost) = (S::Moved, S::Kept, S::Returned, S::Lost);
    #[rustfmt::skip]
    let table = [
        // Ready, Cut, Active, Recovered, Closed
        // GiverAborted, TakerAborted, GiverLost, TakerLost, TimedOut
        (S::Preparing, [
            S::Releasing, S::Preparing, S::Preparing, S::Preparing, S::Preparing,
            S::Preparing, kept, taker(true), kept, taker(false)]),
        (S::Releasing, [
            S::Releasing, activating(false), settling(false), settling(false), moved,
            taker(false), giver(true), taker(true), giver(true), giver(false)]),
        (giver(false), [
            giver(false), activating(false), settling(false), settling(false), moved,
            taker(false), giver(true), taker(true), giver(true), giver(false)]),
        (giver(true), [
            giver(true), returned, giver(true), giver(true), moved,
            kept, giver(true), lost, giver(true), giver(true)]),
        (taker(false), [
            taker(false), taker(false), settling(false), settling(false), taker(false),
            taker(false), kept, taker(true), kept, taker(false)]),
        (taker(true), [
            taker(true), taker(true), settling(true), settling(true), taker(true),
            taker(true), kept, taker(true), lost, taker(true)]),
        (activating(false), [
            activating(false), activating(false), settling(false), settling(false), moved,
            activating(false), returned, activating(true), returned, activating(false)]),
        (activating(true), [
            activating(true), activating(true), settling(true), settling(true), moved,
            activating(true), lost, activating(true), lost, activating(true)]),
        (settling(false), [
            settling(false), settling(false), settling(false), settling(false), moved,
            settling(false), settling(false), settling(true), S::Orphaned, settling(false)]),
        (settling(true), [
            settling(true), settling(true), settling(true), moved, moved,
            settling(true), settling(true), settling(true), lost, settling(true)]),
        (S::Orphaned, [
            S::Orphaned, S::Orphaned, S::Orphaned, S::Orphaned, moved,
            S::Orphaned, S::Orphaned, lost, S::Orphaned, S::Orphaned]),
        (moved, [moved; 10]),
        (kept, [kept; 10]),
        (returned, [returned; 10]),
        (lost, [lost; 10]),
    ];
    for (state, cells) in table {
        for (event, expected) in events.into_iter().zip(cells) {
            let (next, actions) = state.on(event);
            assert_eq!(next, expected, "{state:?} on {event:?}");
            // The taker's ownership is noted once: where it becomes known.
            let known = |state| matches!(state, S::Settling { .. } | S::Orphaned | S::Moved);
            let owns = !known(state) && known(next);
            let expected: &[_] = if owns { &[HandoverAction::Own] } else { &[] };
            assert_eq!(actions, expected, "{state:?} on {event:?}");
        }
    }
}
