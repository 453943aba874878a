//! The signature of a check of the kit, and its result.

use crate::engine_under_test::EngineUnderTest;
use crate::scale::Scale;

/// The figures of a check; or what is wrong, and how to repeat it.
pub type CheckResult = Result<String, String>;

/// A check of the kit.
pub type Check = fn(&dyn EngineUnderTest, &Scale) -> CheckResult;
