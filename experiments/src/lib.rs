//! Experiments of papers, other stores as peers, and network load generators.
//!
//! The product does not depend on this package: it is a workspace of its own, as `fuzz/` is.
//!
//! | module | contents |
//! | --- | --- |
//! | [`repro`] | claims of papers as runnable experiments with computed verdicts |
//! | [`peers`] | other stores under the same workload in the same session |
//! | [`compare`] | one table of our engines and the peers |
//! | [`net`] | load generators for servers over loopback or virtual interfaces |

pub mod compare;
pub mod net;
pub mod peers;
pub mod repro;
