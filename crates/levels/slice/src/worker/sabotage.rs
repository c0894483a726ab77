//! Faults to inject, for tests of the tests.

/// Faults to inject, for tests of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sabotage {
    #[default]
    None,
    /// Executes late items, below the cut.
    NoLateDrop,
    /// Cuts at once, without passing P.
    NoPosition,
    /// Does not wait for the tail of writers that matched late.
    NoTail,
    /// Starts before the source has drained.
    NoHold,
    /// Starts recovered items as they arrive.
    NoRecoveryHold,
    /// Goes on when the lease has expired.
    NoFence,
    /// Treats items that are published again as new ones.
    TrustAgain,
    /// Commits a checkpoint before the replies to its items have arrived.
    CommitUnreplied,
    /// Commits a checkpoint before it is in the folder.
    CommitUnstored,
    /// Does not wait for the answers of all workers that may have a checkpoint.
    NoAskAll,
    /// Counts an item that was started before a state is replaced.
    NoDiscard,
    /// Not the worker's: clients keep nothing that has a reply.
    ForgetReplied,
    /// Claims items that came by the tail as finished.
    ClaimTail,
    /// Claims the unstarted items of its source as finished.
    ClaimBacklog,
    /// Claims items that it handed over unstarted as finished.
    ClaimHanded,
    /// Forgets items that it handed over before the controller knows that the target has them.
    NoClaimed,
    /// Claims items without a reply as committed.
    ClaimUnreplied,
    /// Ignores orphans.
    NoOrphans,
    /// Does not ask clients for the items that it recovers.
    NoAsk,
    /// In the store: forgets the workers that were given up.
    ForgetLost,
    /// In the store: forgets the reserved numbers.
    ForgetNumbers,
    /// In the store: forgets the workers that reported.
    ForgetHeard,
    /// In the controller: does not ask for moves that the last controller left in progress.
    NoSurvey,
    /// Cuts for a controller that has a successor.
    NoPromise,
    /// Forgets the handovers that it finished as the source.
    NoPast,
    /// In the controller: gives a worker up when its connection closes, without a probe.
    TrustClose,
    /// Accepts messages with another numbering.
    HeedsOldNumbers,
    /// Leaves waiting items in the queues of slices that it split or joined.
    NoRefile,
}
