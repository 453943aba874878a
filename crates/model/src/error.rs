//! A parameter that cannot be, and what it should be.

/// Names the parameter, its value, and what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{parameter} is {value}: {reason}")]
pub struct BadParameter {
    /// The parameter's name.
    pub parameter: &'static str,
    /// The value that was given.
    pub value: f64,
    /// What is allowed.
    pub reason: &'static str,
}

/// The most items that anything may have: beyond it, neighbouring counts are one number.
pub(crate) const MOST_ITEMS: f64 = 1e15;

/// Passes a number of keys on if there can be so many.
///
/// # Errors
/// [`BadParameter`].
pub(crate) fn check_keys(keys: f64) -> Result<f64, BadParameter> {
    within("keys", keys, 2.0, MOST_ITEMS, "give a number of keys from 2 to 10^15")
}

/// Passes `value` on if it is a number in `low..=high`; NaN never is.
///
/// # Errors
/// [`BadParameter`] with `reason`.
pub(crate) fn within(
    parameter: &'static str,
    value: f64,
    low: f64,
    high: f64,
    reason: &'static str,
) -> Result<f64, BadParameter> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(BadParameter { parameter, value, reason })
    }
}
