//! The bugs that can be planted in the reference engine, to prove that the kit finds them.
//!
//! Each breaks one promise of the contract in the way that a real engine would.
//!
//! Invariant: for each there is a test that the kit fails the engine, and one that without any bug
//! the kit passes it.
//!
//! Source: ours; the idea is mutation testing, DeMillo, Lipton and Sayward, "Hints on Test Data
//! Selection", Computer 11(4), 1978.

/// What the reference engine does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Answers a synced write without having synced.
    ForgetsSync,
    /// Keeps what is not synced in its own memory, so that it dies with the process.
    ForgetsBuffered,
    /// Logs each operation of a batch on its own.
    TearsBatch,
    /// Does not log deletions.
    ResurrectsDeleted,
    /// Does not look at checksums.
    TrustsBytes,
    /// Panics where it should report damage.
    PanicsOnDamage,
    /// Takes whatever follows damage for a torn tail.
    DropsBehindDamage,
    /// Reads at a snapshot what was written after it.
    SeesTheFuture,
    /// A cursor that turns back leaves out an entry.
    SkipsOnTurn,
    /// Shows entries that have expired.
    IgnoresExpiry,
    /// Goes on after a failed sync as if it had not been.
    HidesFailedSync,
    /// Leaves in the journal what could not be written whole.
    KeepsRefused,
    /// Closes after a failed sync as if all was well.
    ClosesInDoubt,
    /// Never writes again once the medium was full.
    FullForEver,
    /// Makes the operations of a batch visible one by one.
    ShowsHalfBatches,
    /// Answers a get with what was there before the last batch.
    LagsBehind,
    /// Takes an empty key.
    TakesEmptyKey,
    /// Applies the good operations of a batch that it refuses.
    AppliesRefused,
}
