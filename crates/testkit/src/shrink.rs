//! Shrinks a failing history.
//!
//! Delta debugging by removal: ever smaller pieces are removed, and stay removed while the rest
//! still fails.
//!
//! Invariant: the result fails, and holds a subsequence of the steps.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
//! 28(2), 2002, without the return to coarser pieces.

/// The search stops after this many runs.
const MAX_RUNS: usize = 500;

/// Removes from `steps` what is not needed to fail.
pub fn shrink<T: Clone>(mut steps: Vec<T>, fails: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut runs = 0;
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() && runs < MAX_RUNS {
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
    fn needed_steps_stay() {
        let steps: Vec<u32> = (0..200).collect();
        let fails = |steps: &[u32]| [17, 18, 150].iter().all(|n| steps.contains(n));
        assert_eq!(shrink(steps, fails), [17, 18, 150]);
    }
}
