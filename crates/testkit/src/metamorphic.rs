//! One history must give the same results with every option set.
//!
//! The oracle shares its authors' misunderstandings; here the engine is compared with itself.
//! Clocks only go forward, since an expired entry may disappear (see the [oracle](crate::oracle))
//! earlier with one option set than with another.
//!
//! Checked: options change the cost of a result, never the result.
//!
//! Source: Chen, Cheung and Yiu, "Metamorphic Testing", HKUST-CS98-01, 1998; for storage engines,
//! the metamorphic tests of Pebble.

use crate::history::{self, HistoryShape};
use crate::scale::Case;
use crate::{CheckResult, EngineUnderTest, Scale, histories};

/// Runs histories with all option sets and compares their results.
///
/// # Errors
/// The option sets whose results differ, or what is wrong with one of them.
pub fn metamorphic(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let count = (scale.histories / 10).max(1);
    let mut compared = 0;
    let shape = HistoryShape { clock_goes_back: false, ..HistoryShape::EVERYTHING };
    for case in scale.cases(count, 1) {
        let history = history::draw(case.seed ^ 0x6d65_7461, &shape);
        // Sessions of odd and even option sets may differ in their operations: see `session`.
        let mut firsts: [Option<u64>; 2] = [None; 2];
        for option_set in 0..tested.option_set_count() {
            let case = Case { option_set, ..case };
            let digest = histories::run(tested, case, &history)
                .map_err(|failure| format!("step {}: {}; {case}", failure.at, failure.what))?;
            let first = option_set % 2;
            if *firsts[first as usize].get_or_insert(digest) != digest {
                return Err(format!(
                    "option set {option_set} ({}) and option set {first} ({}) give different \
                     results; {case}",
                    tested.describe(option_set),
                    tested.describe(first)
                ));
            }
            compared += 1;
        }
    }
    Ok(format!("{count} histories, {compared} runs agree"))
}
