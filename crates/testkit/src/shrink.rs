//! From a long history that fails to a short one.
//!
//! Delta debugging by dropping: ever smaller pieces are left out, and stay out while the rest still
//! fails.
//!
//! Invariant: what comes back fails, and holds the same steps in the same order.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
//! 28(2), 2002, without the half of it that goes back to coarser pieces.

/// Runs after which the best so far is good enough.
const MOST_RUNS: usize = 500;

/// Leaves out of `steps` what is not needed to fail.
pub fn shrink<T: Clone>(mut steps: Vec<T>, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut runs = 0;
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() && runs < MOST_RUNS {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            runs += 1;
            if fails(&fewer) {
                steps = fewer;
            } else {
                at += piece;
            }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_stays() {
        let steps: Vec<u32> = (0..200).collect();
        let fails = |steps: &[u32]| [17, 18, 150].iter().all(|n| steps.contains(n));
        assert_eq!(shrink(steps, fails), [17, 18, 150]);
    }
}
