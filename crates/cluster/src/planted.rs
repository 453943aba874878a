//! Planted faults, with which tests show that the simulator finds them. Outside of tests none
//! exists and every check is constant.

/// A fault that a test can plant in the nodes of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A proposal completes when it is appended, not when it is committed.
    AckBeforeCommit,
    /// The log is not synced.
    SkippedSync,
    /// Term and vote are not written.
    ForgottenVote,
    /// A leader reads without asking a majority whether it still leads.
    SkippedReadIndex,
    /// The applied index is written in a batch of its own, before the writes that it describes.
    SeparateAppliedIndex,
    /// A damaged log ends before the damage.
    TruncatedLog,
    /// The log is replaced while the snapshot's table is not durable.
    EarlyLogReset,
    /// The log is compacted while the table has not made its writes durable.
    EarlyCompaction,
    /// The log is synced in the round after the one whose messages acknowledge it.
    LateSync,
    /// A round without entries does not sync term and vote.
    UnsyncedVote,
    /// The directory is not synced when a new log file replaces the old one.
    SkippedDirectorySync,
    /// The old log file is removed while the new one is not durable.
    EarlyLogRemoval,
    /// The old table is removed while the log still names it.
    EarlyTableRemoval,
    /// A proposal of a leader that has lost its leadership counts as applied.
    AckOfLostProposal,
    /// What depends on a read is proposed in a later term.
    OldTermProposal,
    /// Any node reads, as if it led.
    FollowerRead,
    /// A leader reads as long as it believes that no other has been elected, by its own clock.
    LongLease,
    /// A barrier ends before the node has applied what its leader has committed.
    EarlyBarrier,
    /// The rows of a snapshot are read as they are when each chunk is sent.
    MovingSnapshot,
    /// A change of membership is not written.
    ForgottenMembers,
    /// A leader sends entries of a term that it has not written.
    EarlyFirstAppend,
    /// A node that starts again takes the late answers to its earlier requests for its own.
    ReusedIncarnation,
    /// A node that was created again under its old id is taken for the earlier one.
    AcceptedRecreation,
    /// A new node takes part before the others have noted its directory, and the group commits
    /// none.
    SkippedRegistration,
    /// An older copy of a node's directory is taken for the present one.
    AcceptedCopy,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is_planted(_fault: Fault) -> bool {
    false
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.get() == Some(fault)
}

/// Runs `work` with a planted fault.
#[cfg(test)]
pub(crate) fn with_planted<T>(fault: Fault, work: impl FnOnce() -> T) -> T {
    PLANTED.set(Some(fault));
    let outcome = work();
    PLANTED.set(None);
    outcome
}
