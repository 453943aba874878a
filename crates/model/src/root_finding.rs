//! Solves f(x) = y for an increasing f on x ≥ 0 by Newton's method with a bracket.
//!
//! The bracket starts at a guess and doubles until it contains the root. A Newton step that would
//! leave it is replaced by bisection, so the search terminates for any slope.

/// Relative precision of x.
const PRECISION: f64 = 1e-13;
pub(crate) const MAX_STEPS: usize = 200;

/// The x ≥ 0 with `f(x).0 = y`; infinity if f never reaches y. `f` returns its value and its slope,
/// and increases from f(0) ≤ y. The search starts at `guess` > 0.
pub fn solve(y: f64, guess: f64, f: impl Fn(f64) -> (f64, f64)) -> f64 {
    let (mut low, mut high) = (0.0, guess.max(f64::MIN_POSITIVE));
    while f(high).0 < y {
        low = high;
        high *= 2.0;
        if !high.is_finite() {
            return f64::INFINITY;
        }
    }
    let mut x = if low == 0.0 { guess.min(high) } else { (low + high) / 2.0 };
    for _ in 0..MAX_STEPS {
        let (value, slope) = f(x);
        if value < y {
            low = x;
        } else {
            high = x;
        }
        let newton = x - (value - y) / slope;
        // A step to an end point would be no progress.
        let next = if newton > low && newton < high { newton } else { (low + high) / 2.0 };
        if (next - x).abs() <= PRECISION * next.abs() || high - low <= PRECISION * high {
            return next;
        }
        x = next;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_from_any_guess() {
        for guess in [1e-6, 1.0, 1e9] {
            let x = solve(5.0, guess, |x| (x * x, 2.0 * x));
            assert!((x - 5f64.sqrt()).abs() < 1e-9, "{x}");
            // Saturates towards 10, so that Newton steps would leave the bracket.
            let x = solve(9.999, guess, |x| (10.0 * -(-x).exp_m1(), 10.0 * (-x).exp()));
            assert!((x - (10_000f64).ln()).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn unreached_value_gives_infinity() {
        assert_eq!(solve(2.0, 1.0, |x| (-(-x).exp_m1(), (-x).exp())), f64::INFINITY);
    }
}
