//! Random operations on a hash and on a model in standard types, with expiry of fields.

use std::collections::{BTreeMap, BTreeSet};

use siltstone_collections::{ExpiryChange, Hash, Result, WriteSet};
use siltstone_testkit::TestRng;

use super::{Name, name, value};

/// Values and expiries by field.
pub type HashModel = BTreeMap<Name, (Vec<u8>, Option<u64>)>;

/// Number of rows: of fields, and of times at which some expire.
pub fn rows(model: &HashModel) -> usize {
    let times: BTreeSet<u64> = model.values().filter_map(|(_, expires_at)| *expires_at).collect();
    model.len() + times.len()
}

/// Reads a hash in full, in every way there is, which must agree.
pub fn read(writes: &mut WriteSet<'_>, key: &[u8]) -> Result<HashModel> {
    let hash = Hash::open(writes, key)?;
    let mut found = BTreeMap::new();
    hash.for_each_with_expiry(&mut |field, value, expires_at| {
        found.insert(field.to_vec(), (value.to_vec(), expires_at));
        true
    })?;
    let mut pairs = BTreeMap::new();
    hash.for_each(&mut |field, value| {
        pairs.insert(field.to_vec(), value.to_vec());
        true
    })?;
    for (field, (value, expires_at)) in &found {
        assert_eq!(hash.get(field)?.as_ref(), Some(value));
        assert_eq!(hash.expiry(field)?, Some(*expires_at));
        assert_eq!(pairs.get(field), Some(value));
    }
    let mut scanned = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let (some, next) = hash.scan(at, 3)?;
        scanned.extend(some);
        from = next;
    }
    assert_eq!(scanned.len(), pairs.len());
    assert_eq!(scanned.into_iter().collect::<BTreeMap<_, _>>(), pairs);
    let drawn = hash.draw(&mut |bound| 77 % bound)?.unwrap();
    assert_eq!(pairs.get(&drawn.0), Some(&drawn.1));
    Ok(found)
}

/// Applies a random operation to both.
pub fn change(
    hash: &mut Hash<'_, '_>,
    model: &mut HashModel,
    now: u64,
    rng: &mut TestRng,
) -> Result<()> {
    let (field, value) = (name(rng), value(rng));
    let old = model.get(&field).cloned();
    match rng.below(7) {
        6 => {
            let is_new = hash.insert_new(&field, &value)?;
            assert_eq!(is_new, old.is_none());
            if is_new {
                model.insert(field, (value, None));
            }
        }
        0 => {
            assert_eq!(hash.remove(&field)?, old.is_some());
            model.remove(&field);
        }
        1 => {
            hash.update(&field, |found| -> Result<Vec<u8>> {
                assert_eq!(found, old.as_ref().map(|(value, _)| value.as_slice()));
                Ok(value.clone())
            })?;
            model.insert(field, (value, old.and_then(|(_, expires_at)| expires_at)));
        }
        2 | 3 => {
            let expires_at = (!rng.one_in(4)).then(|| (now + rng.below(30)).saturating_sub(2));
            let is_allowed = !rng.one_in(5);
            let change = hash.set_expiry(&field, expires_at, |found| {
                assert_eq!(Some(found), old.as_ref().map(|(_, expires_at)| *expires_at));
                is_allowed
            })?;
            let expected = match &old {
                None => ExpiryChange::NoField,
                Some(_) if !is_allowed => ExpiryChange::Refused,
                Some(_) if expires_at.is_some_and(|at| at <= now) => ExpiryChange::Removed,
                Some(_) => ExpiryChange::Changed,
            };
            assert_eq!(change, expected);
            match (expected, old) {
                (ExpiryChange::Removed, _) => drop(model.remove(&field)),
                (ExpiryChange::Changed, Some((value, _))) => {
                    model.insert(field, (value, expires_at));
                }
                _ => {}
            }
        }
        _ => {
            assert_eq!(hash.insert(&field, &value)?, old.is_none());
            model.insert(field, (value, None));
        }
    }
    Ok(())
}
