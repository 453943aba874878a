//! What a repair says that it could not save, from the JSON that `siltstone repair --json` prints.
//!
//! ```text
//!   "lost": { "default": [ { "file", "bytes", "effect", "sequences": [first, last], "keys": [after, before] } ] }
//! ```
//!
//! Operations lost are at most `last - first + 1` of each loss; their keys lie between `after` and `before`.
//! A loss may have neither: then it says that there is a loss, and no more can be computed.

use serde_json::Value;

/// All losses of a repair.
#[derive(Debug, Default)]
pub struct Losses(Vec<Loss>);

#[derive(Debug)]
struct Loss {
    /// How many operations, at most, if that is told.
    operations: Option<u64>,
    /// The keys between which they are, if that is told.
    keys: Option<(Option<String>, Option<String>)>,
    /// Which versions are current is lost: older ones may be seen again, of any key.
    is_of_order: bool,
}

impl Losses {
    /// Reads what a repair printed; `None` if it is no JSON.
    pub fn read(text: &str) -> Option<Self> {
        let told: Value = serde_json::from_str(text.trim()).ok()?;
        let tables = told["lost"].as_object().into_iter().flat_map(|lost| lost.values());
        let losses = tables.filter_map(Value::as_array).flatten().map(loss).collect();
        Some(Losses(losses))
    }

    /// Whether nothing was lost, so far as it is told.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether these keys can have lost their newest operation by what is told.
    ///
    /// # Errors
    /// A key that no loss covers, or more keys than operations lost.
    pub fn cover(&self, keys: &[String]) -> Result<(), String> {
        if self.0.iter().any(|loss| loss.is_of_order) {
            return Ok(());
        }
        for key in keys {
            if !self.0.iter().any(|loss| loss.covers(key)) {
                return Err(format!(
                    "{key} is not as it was written, and no loss that is told covers it"
                ));
            }
        }
        let most: Option<u64> = self.0.iter().map(|loss| loss.operations).sum();
        match most {
            Some(most) if most < keys.len() as u64 => Err(format!(
                "{} keys are not as they were written, and {most} operations at most are told lost",
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

fn loss(told: &Value) -> Loss {
    let pair = |name: &str| told[name].as_array().filter(|pair| pair.len() == 2);
    let operations = pair("sequences").and_then(|pair| {
        let (first, last) = (pair[0].as_u64()?, pair[1].as_u64()?);
        Some(last.saturating_sub(first) + 1)
    });
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let keys = pair("keys").map(|pair| (text(&pair[0]), text(&pair[1])));
    let is_of_order = told["effect"].as_str().is_some_and(|effect| effect == "order");
    Loss { operations, keys, is_of_order }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(losses: &str) -> Losses {
        Losses::read(&format!(r#"{{"tables":{{}},"lost":{{"default":{losses}}}}}"#)).unwrap()
    }

    #[test]
    fn key_outside_of_every_loss_is_found() {
        let losses = of(r#"[{"file":"a","keys":["b","d"],"sequences":[5,6]}]"#);
        losses.cover(&["c".into()]).unwrap();
        assert!(losses.cover(&["a".into()]).is_err());
        assert!(losses.cover(&["e".into()]).is_err());
        assert!(losses.cover(&["b".into(), "c".into(), "d".into()]).is_err(), "three of two");
    }

    #[test]
    fn loss_without_an_extent_covers_all_and_no_loss_covers_nothing() {
        of(r#"[{"file":"a"}]"#).cover(&["x".into(), "y".into()]).unwrap();
        assert!(of("[]").cover(&["x".into()]).is_err());
        assert!(of("[]").is_empty());
        of("[]").cover(&[]).unwrap();
    }
}
