//! The losses that `siltstone repair --json` reports.
//!
//! ```text
//!   "lost": { TABLE: [ { "file", "bytes", "effect",
//!                        "sequences": [first, last], "keys": [after, before] } ] }
//! ```
//!
//! A loss has at most `last - first + 1` lost operations, and their keys lie between `after` and
//! `before`. A loss without these fields has no bounds.

use serde_json::Value;

/// All losses of a repair.
#[derive(Debug, Default)]
pub struct Losses(Vec<Loss>);

#[derive(Debug)]
struct Loss {
    /// The maximum number of lost operations, if reported.
    operations: Option<u64>,
    /// The bounds of their keys, if reported.
    keys: Option<(Option<String>, Option<String>)>,
    /// The order of versions is lost: any key may have an older value.
    loses_order: bool,
}

impl Losses {
    /// Parses the output of a repair; `None` if it is not JSON.
    pub fn read(text: &str) -> Option<Self> {
        let report: Value = serde_json::from_str(text.trim()).ok()?;
        let tables = report["lost"].as_object().into_iter().flat_map(|lost| lost.values());
        let losses = tables.filter_map(Value::as_array).flatten().map(loss).collect();
        Some(Losses(losses))
    }

    /// Whether no loss is reported.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the reported losses account for the loss of the newest operation of each of
    /// these keys.
    ///
    /// # Errors
    /// A key outside of every loss, or more keys than lost operations.
    pub fn cover(&self, keys: &[String]) -> Result<(), String> {
        if self.0.iter().any(|loss| loss.loses_order) {
            return Ok(());
        }
        for key in keys {
            if !self.0.iter().any(|loss| loss.covers(key)) {
                return Err(format!(
                    "{key} has lost a write, and no reported loss covers this key"
                ));
            }
        }
        let max: Option<u64> = self.0.iter().map(|loss| loss.operations).sum();
        match max {
            Some(max) if max < keys.len() as u64 => Err(format!(
                "{} keys have lost a write, but the reported losses are at most {max} operations",
                keys.len()
            )),
            _ => Ok(()),
        }
    }
}

impl Loss {
    fn covers(&self, key: &str) -> bool {
        let Some((after, before)) = &self.keys else { return true };
        after.as_deref().is_none_or(|after| key >= after)
            && before.as_deref().is_none_or(|before| key <= before)
    }
}

fn loss(report: &Value) -> Loss {
    let pair = |name: &str| report[name].as_array().filter(|pair| pair.len() == 2);
    let operations = pair("sequences").and_then(|pair| {
        let (first, last) = (pair[0].as_u64()?, pair[1].as_u64()?);
        Some(last.saturating_sub(first) + 1)
    });
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let keys = pair("keys").map(|pair| (text(&pair[0]), text(&pair[1])));
    let loses_order = report["effect"].as_str().is_some_and(|effect| effect == "order");
    Loss { operations, keys, loses_order }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(losses: &str) -> Losses {
        Losses::read(&format!(r#"{{"tables":{{}},"lost":{{"default":{losses}}}}}"#)).unwrap()
    }

    #[test]
    fn key_outside_of_every_loss_is_refused() {
        let losses = of(r#"[{"file":"a","keys":["b","d"],"sequences":[5,6]}]"#);
        losses.cover(&["c".into()]).unwrap();
        assert!(losses.cover(&["a".into()]).is_err());
        assert!(losses.cover(&["e".into()]).is_err());
        assert!(
            losses.cover(&["b".into(), "c".into(), "d".into()]).is_err(),
            "three keys, two operations"
        );
    }

    #[test]
    fn loss_without_bounds_covers_every_key() {
        of(r#"[{"file":"a"}]"#).cover(&["x".into(), "y".into()]).unwrap();
        assert!(of("[]").cover(&["x".into()]).is_err());
        assert!(of("[]").is_empty());
        of("[]").cover(&[]).unwrap();
    }
}
