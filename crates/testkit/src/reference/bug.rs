//! The bugs that can be planted in the reference engine, to prove that the kit finds them.
//!
//! Each breaks one promise of the contract as a real engine might.
//!
//! Invariant: for each there is a test in which the kit rejects the engine; without a bug the kit
//! accepts it.
//!
//! Source: the idea is mutation testing, DeMillo, Lipton and Sayward, "Hints on Test Data
//! Selection", Computer 11(4), 1978.

/// A bug of the reference engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Returns from a synced write without a sync.
    ForgetsSync,
    /// Keeps unsynced writes in its own memory, so that a process crash loses them.
    ForgetsBuffered,
    /// Logs each operation of a batch on its own.
    TearsBatch,
    /// Does not log deletions.
    ResurrectsDeleted,
    /// Does not check checksums.
    TrustsBytes,
    /// Panics where it should report damage.
    PanicsOnDamage,
    /// Takes whatever follows damage for a torn tail.
    DropsBehindDamage,
    /// Returns later writes from reads at a snapshot.
    SeesTheFuture,
    /// A cursor skips an entry when it changes direction.
    SkipsOnTurn,
    /// Returns expired entries.
    IgnoresExpiry,
    /// Ignores a failed sync.
    HidesFailedSync,
    /// Leaves a partially written record in the journal.
    KeepsRefused,
    /// Closes without an error after a failed sync.
    ClosesInDoubt,
    /// Stays read-only after the disk was full.
    FullForEver,
    /// Makes the operations of a batch visible one by one.
    ShowsHalfBatches,
    /// Returns from a get the value before the last batch.
    LagsBehind,
    /// Accepts a key over the limit.
    TakesLongKey,
    /// Applies the valid operations of a batch that it refuses.
    AppliesRefused,
}
