//! Solving f(x) = y for a rising f on x ≥ 0, by Newton's steps kept inside a bracket.
//!
//! The bracket starts at a guess and doubles until it holds the answer; a Newton step that would
//! leave it is replaced by bisection, so the search ends whatever the slope.

/// Relative precision of x.
const PRECISION: f64 = 1e-13;
pub(crate) const MOST_STEPS: usize = 200;

/// The x ≥ 0 with `f(x).0 = y`, where `f` gives its value and its slope, rises from f(0) ≤ y, and
/// passes y somewhere. `guess` > 0 is where to begin.
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
    for _ in 0..MOST_STEPS {
        let (value, slope) = f(x);
        if value < y {
            low = x;
        } else {
            high = x;
        }
        let newton = x - (value - y) / slope;
        // The end points themselves are no progress.
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
    fn roots_are_found_from_any_guess() {
        for guess in [1e-6, 1.0, 1e9] {
            let x = solve(5.0, guess, |x| (x * x, 2.0 * x));
            assert!((x - 5f64.sqrt()).abs() < 1e-9, "{x}");
            // Flat where Newton would leave: saturating towards 10.
            let x = solve(9.999, guess, |x| (10.0 * -(-x).exp_m1(), 10.0 * (-x).exp()));
            assert!((x - (10_000f64).ln()).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn what_is_never_reached_is_infinity() {
        assert_eq!(solve(2.0, 1.0, |x| (-(-x).exp_m1(), (-x).exp())), f64::INFINITY);
    }
}
