//! The tables, whole: every state with every event.

use super::{GiverAction as G, GiverEvent, GiverState, TakerAction as T, TakerEvent, TakerState};

#[test]
fn the_giver_does_this_in_each_state() {
    use GiverEvent as E;
    use GiverState as S;
    let events =
        [E::Release, E::ReleaseForeign, E::Passed, E::Active, E::Finished, E::Abort, E::Forget];
    type Cell = (GiverState, &'static [G]);
    let aborted: Cell = (S::Aborted, &[G::SendAborted]);
    let stopped: Cell = (S::Aborted, &[G::StopWaiting, G::SendAborted]);
    let closed: Cell = (S::Closed, &[G::SendClosed]);
    let nothing = |state: GiverState| -> Cell { (state, &[]) };
    let cut = |state: GiverState| -> Cell { (state, &[G::SendCut]) };
    let alone: Cell = (S::Draining, &[G::DropReleased, G::DropTail]);
    #[rustfmt::skip]
    let table = [
        // Release                     ReleaseForeign    Passed
        // Active                      Finished          Abort             Forget
        (S::Unknown, [
            (S::Waiting, &[G::Wait][..]), aborted, nothing(S::Unknown),
            nothing(S::Unknown), nothing(S::Unknown), aborted, closed]),
        (S::Waiting, [
            nothing(S::Waiting), stopped, (S::Cut, &[G::MakeCut, G::SendCut]),
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
fn the_taker_does_this_in_each_state() {
    use TakerEvent as E;
    use TakerState as S;
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
    type Cell = (TakerState, &'static [T]);
    let nothing = |state: TakerState| -> Cell { (state, &[]) };
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
