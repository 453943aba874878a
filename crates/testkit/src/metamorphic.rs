//! One history over all option sets must give one answer.
//!
//! The oracle has been told what the answers should be by the same people who wrote the engine;
//! here the engine is asked whether it agrees with itself. Clocks only go forward, since what has
//! expired may stay away (see the [oracle](crate::oracle)) sooner with one option set than with
//! another.
//!
//! Promise checked: options change how fast an answer comes, never what it is.
//!
//! Source: Chen, Cheung and Yiu, "Metamorphic Testing", HKUST-CS98-01, 1998; for storage engines,
//! the metamorphic tests of Pebble.

use crate::history::{self, Shape};
use crate::scale::Case;
use crate::{Scale, Subject, Verdict, histories};

/// Runs histories over all variants and compares their answers.
///
/// # Errors
/// Which variants part, or what is wrong in itself.
pub fn metamorphic(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let count = (scale.histories / 10).max(1);
    let mut compared = 0;
    let shape = Shape { clock_goes_back: false, ..Shape::EVERYTHING };
    for case in scale.cases(count, 1) {
        let history = history::draw(case.seed ^ 0x6d65_7461, &shape);
        let mut first: Option<u64> = None;
        for variant in 0..subject.variants() {
            let case = Case { variant, ..case };
            let answers = histories::run(subject, case, &history)
                .map_err(|failure| format!("step {}: {}; {case}", failure.at, failure.what))?;
            if *first.get_or_insert(answers) != answers {
                return Err(format!(
                    "variant {variant} ({}) answers otherwise than variant 0 ({}); {case}",
                    subject.describe(variant),
                    subject.describe(0)
                ));
            }
            compared += 1;
        }
    }
    Ok(format!("{count} histories, {compared} runs agree"))
}
