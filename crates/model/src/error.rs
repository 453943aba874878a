//! The error for a parameter out of its range.

/// A parameter out of its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{parameter} is {value}: {reason}")]
pub struct InvalidParameter {
    /// The parameter's name.
    pub parameter: &'static str,
    /// The value that was given.
    pub value: f64,
    /// The allowed range, as an instruction.
    pub reason: &'static str,
}

/// Upper limit of item counts. Above it, consecutive counts are no longer distinct in `f64`.
pub(crate) const MAX_ITEMS: f64 = 1e15;

/// Returns `keys` if it is a valid number of keys.
///
/// # Errors
/// [`InvalidParameter`].
pub(crate) fn check_keys(keys: f64) -> Result<f64, InvalidParameter> {
    within("keys", keys, 2.0, MAX_ITEMS, "give a number of keys from 2 to 10^15")
}

/// Returns `value` if it is in `low..=high`, which NaN never is.
///
/// # Errors
/// [`InvalidParameter`] with `reason`.
pub(crate) fn within(
    parameter: &'static str,
    value: f64,
    low: f64,
    high: f64,
    reason: &'static str,
) -> Result<f64, InvalidParameter> {
    if (low..=high).contains(&value) {
        Ok(value)
    } else {
        Err(InvalidParameter { parameter, value, reason })
    }
}
