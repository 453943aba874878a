//! The probability of each key to be written next, in compressed form.
//!
//! Keys of nearly equal probability share a group with their mean, so 10⁸ keys under Zipf cost
//! about 2,000 terms instead of 10⁸. Within a group the largest and the smallest probability differ
//! by at most 1 %; the mean is exact, so the masses of the groups sum to one.
//!
//! The sum of i⁻ˢ over a range of ranks is computed directly for short ranges and by the
//! Euler–Maclaurin formula for long ones, where its error is below 10⁻¹² of the sum.
//!
//! Source: Lim, thesis, sections 4.2.2 and 4.6.2 (footnote 7).

use crate::error::{InvalidParameter, check_keys, within};

/// Ratio of the largest to the smallest probability within a group.
const SPREAD: f64 = 1.01;
/// Number of ranks that are summed one by one.
const DIRECT: f64 = 256.0;

/// The probability of each of N keys to be written next.
#[derive(Debug, Clone, PartialEq)]
pub struct Popularity {
    pub(crate) groups: Vec<Group>,
    keys: f64,
}

/// Keys of about equal probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Group {
    /// Number of keys.
    pub(crate) keys: f64,
    /// −ln(1 − f) for the mean probability f of one key: `(1 − f)^p = exp(−rate·p)`.
    pub(crate) rate: f64,
}

impl Group {
    fn new(keys: f64, probability: f64) -> Self {
        // For a key with all but 1 in 10^16 requests, 1 − f would round to zero and its logarithm
        // would be infinite.
        let probability = probability.min(1.0 - f64::EPSILON);
        // ln_1p is exact even where f is far below the spacing of `f64` near one.
        Group { keys, rate: -(-probability).ln_1p() }
    }
}

impl Popularity {
    /// All keys have the same probability.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless `keys` is from 2 to 10¹⁵.
    pub fn uniform(keys: f64) -> Result<Self, InvalidParameter> {
        let keys = check_keys(keys)?;
        Ok(Popularity { groups: vec![Group::new(keys, 1.0 / keys)], keys })
    }

    /// The i-th most popular key has a probability proportional to i⁻ˢ.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless `keys` is from 2 to 10¹⁵ and `skew` from 0 to 10.
    pub fn zipf(keys: f64, skew: f64) -> Result<Self, InvalidParameter> {
        let keys = check_keys(keys)?.floor();
        let skew = within("skew", skew, 0.0, 10.0, "give a skew from 0 (uniform) to 10")?;
        if skew == 0.0 {
            return Self::uniform(keys);
        }
        // Ranks first..=last share a group while (last / first)^s is within the spread.
        let widen = SPREAD.powf(1.0 / skew);
        let mut ranges = Vec::new();
        let mut first = 1.0;
        while first <= keys {
            let last = (first * widen).floor().clamp(first, keys);
            ranges.push((first, last, power_sum(first, last, skew)));
            first = last + 1.0;
        }
        // Smallest terms first, to keep their digits.
        let total: f64 = ranges.iter().rev().map(|(_, _, sum)| sum).sum();
        let group = |&(first, last, sum): &(f64, f64, f64)| {
            let count = last - first + 1.0;
            Group::new(count, sum / total / count)
        };
        Ok(Popularity { groups: ranges.iter().map(group).collect(), keys })
    }

    /// Each key has a probability proportional to its count; keys with count 0 are left out.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless two keys or more have counts above zero.
    pub fn empirical(counts: &[u64]) -> Result<Self, InvalidParameter> {
        let mut counts: Vec<u64> = counts.iter().copied().filter(|&count| count > 0).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        check_keys(counts.len() as f64)?;
        let total: f64 = counts.iter().map(|&count| count as f64).sum();
        let mut groups = Vec::new();
        let mut rest = &counts[..];
        while let Some(&largest) = rest.first() {
            let len = rest.partition_point(|&count| count as f64 * SPREAD >= largest as f64);
            let (group, tail) = rest.split_at(len);
            let mass: f64 = group.iter().map(|&count| count as f64).sum();
            groups.push(Group::new(len as f64, mass / total / len as f64));
            rest = tail;
        }
        Ok(Popularity { groups, keys: counts.len() as f64 })
    }

    /// The popularity of bytes: the same requests where the sizes of items depend on how popular
    /// their keys are. `classes` are shares of the keys with the size of their items, the most
    /// popular keys first.
    ///
    /// A key counts as its size over the mean size of a written item. So all quantities of the
    /// primitives and models become items of that size, and nothing else changes. Sizes that do not
    /// depend on popularity need no classes.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless shares and sizes are positive, and shares sum to one.
    pub fn with_item_sizes(&self, classes: &[(f64, f64)]) -> Result<Self, InvalidParameter> {
        for &(share, size) in classes {
            within("share", share, 1e-12, 1.0, "give shares of keys above 0")?;
            within("size", size, 1e-6, 1e12, "give sizes above 0")?;
        }
        let total: f64 = classes.iter().map(|(share, _)| share).sum();
        within("shares", total, 1.0 - 1e-9, 1.0 + 1e-9, "give shares of keys that sum to one")?;
        let mut pieces: Vec<(Group, f64)> = Vec::new();
        let mut rest = classes;
        let mut left = 0.0;
        let mut size = 1.0;
        for group in &self.groups {
            let mut keys = group.keys;
            while keys > 0.0 {
                while left <= 0.0
                    && let Some((class, classes)) = rest.split_first()
                {
                    (left, size, rest) = (class.0 * self.keys, class.1, classes);
                }
                // Behind the last class there are at most rounding errors.
                let taken = if rest.is_empty() { keys } else { keys.min(left) };
                pieces.push((Group { keys: taken, rate: group.rate }, size));
                keys -= taken;
                left -= taken;
            }
        }
        let bytes = |&(group, size): &(Group, f64)| -group.keys * (-group.rate).exp_m1() * size;
        let mean: f64 = pieces.iter().rev().map(bytes).sum();
        let sized = |(group, size): (Group, f64)| Group { keys: group.keys * size / mean, ..group };
        let groups: Vec<Group> = pieces.into_iter().map(sized).collect();
        let keys = groups.iter().rev().map(|group| group.keys).sum();
        Ok(Popularity { groups, keys })
    }

    /// Number of keys.
    pub fn keys(&self) -> f64 {
        self.keys
    }

    /// The mean over all requests of `of_key`, a function of the rate of the requested key.
    pub fn share_of_requests(&self, of_key: impl Fn(f64) -> f64) -> f64 {
        self.groups.iter().map(|group| group.keys * group.rate * of_key(group.rate)).sum()
    }

    /// The popularity within one of `parts` equal partitions of the keys by hash.
    pub(crate) fn part(&self, parts: f64) -> Self {
        let group = |g: &Group| Group::new(g.keys / parts, -(-g.rate).exp_m1() * parts);
        Popularity { groups: self.groups.iter().map(group).collect(), keys: self.keys / parts }
    }

    /// The popularity within all but the `hot` most popular keys, and their share of all requests.
    /// `hot` is less than the number of keys.
    pub(crate) fn without_most_popular(&self, hot: f64) -> (f64, Self) {
        if hot <= 0.0 {
            return (1.0, self.clone());
        }
        // Groups are in descending order of popularity.
        let probability = |group: &Group| -(-group.rate).exp_m1();
        let mut left = hot;
        let mut cold = Vec::new();
        for group in &self.groups {
            let taken = left.min(group.keys);
            left -= taken;
            if group.keys > taken {
                cold.push((group.keys - taken, probability(group)));
            }
        }
        // Summed, not subtracted from one: a small share would lose its digits.
        let share: f64 = cold.iter().rev().map(|(keys, probability)| keys * probability).sum();
        let groups = cold.into_iter().map(|(keys, f)| Group::new(keys, f / share)).collect();
        (share, Popularity { groups, keys: self.keys - hot })
    }
}

/// Σ i⁻ˢ for i from `first` to `last`.
fn power_sum(first: f64, last: f64, s: f64) -> f64 {
    if last - first < DIRECT || first < DIRECT {
        let direct_to = last.min(first + DIRECT);
        let mut sum = 0.0;
        let mut i = direct_to;
        while i >= first {
            sum += i.powf(-s);
            i -= 1.0;
        }
        return if direct_to < last { sum + power_sum(direct_to + 1.0, last, s) } else { sum };
    }
    // ∫ x⁻ˢ over [first, last]. (last^(1−s) − first^(1−s)) / (1−s) loses its digits near s = 1;
    // the form with logarithms does not.
    let span = (last / first).ln();
    let exponent = (1.0 - s) * span;
    let integral = if exponent.abs() < 1e-9 {
        span * first.powf(1.0 - s) * (1.0 + exponent / 2.0)
    } else {
        first.powf(1.0 - s) * span * exponent.exp_m1() / exponent
    };
    let ends = (first.powf(-s) + last.powf(-s)) / 2.0;
    let slopes = s * (first.powf(-s - 1.0) - last.powf(-s - 1.0)) / 12.0;
    let thirds = s * (s + 1.0) * (s + 2.0) * (first.powf(-s - 3.0) - last.powf(-s - 3.0)) / 720.0;
    integral + ends + slopes - thirds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_sum_is_exact() {
        for s in [0.3, 0.99, 1.0, 1.000001, 2.5] {
            for (first, last) in [(1.0, 1000.0), (300.0, 50_000.0), (1.0, 300_000.0)] {
                let mut exact = 0.0;
                let mut i = last;
                while i >= first {
                    exact += f64::powf(i, -s);
                    i -= 1.0;
                }
                let ours = power_sum(first, last, s);
                assert!((ours / exact - 1.0).abs() < 1e-11, "s={s} {first}..{last}");
            }
        }
    }

    #[test]
    fn groups_sum_to_all_keys_and_mass_one() {
        for popularity in [
            Popularity::uniform(1e8).unwrap(),
            Popularity::zipf(1e8, 0.99).unwrap(),
            Popularity::zipf(12345.0, 1.7).unwrap(),
            Popularity::empirical(&[5, 5, 0, 1, 100, 99]).unwrap(),
        ] {
            let keys: f64 = popularity.groups.iter().map(|group| group.keys).sum();
            assert!((keys / popularity.keys() - 1.0).abs() < 1e-12);
            let mass: f64 =
                popularity.groups.iter().map(|group| -group.keys * (-group.rate).exp_m1()).sum();
            assert!((mass - 1.0).abs() < 1e-9, "{mass}");
        }
        assert!(Popularity::zipf(1e8, 0.99).unwrap().groups.len() < 3000);
    }

    #[test]
    fn key_with_nearly_all_requests_stays_finite() {
        let popularity = Popularity::empirical(&[u64::MAX, 1, 1]).unwrap();
        assert_eq!(popularity.unique(0.0), 0.0);
        assert!((popularity.unique(1.0) - 1.0).abs() < 1e-9);
        assert!(popularity.compaction_interval(2.0).is_finite());
        let (share, cold) = popularity.without_most_popular(1.0);
        assert!(share > 0.0 && (cold.unique(1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn most_popular_keys_are_removed() {
        let popularity = Popularity::empirical(&[4, 4, 1, 1]).unwrap();
        let (share, cold) = popularity.without_most_popular(1.0);
        assert!((share - 0.6).abs() < 1e-12);
        assert_eq!(cold, Popularity::empirical(&[4, 1, 1]).unwrap());
        let (share, cold) = Popularity::uniform(10.0).unwrap().without_most_popular(4.0);
        assert!((share - 0.6).abs() < 1e-12 && (cold.unique(1.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn item_sizes_weigh_keys_by_their_bytes() {
        let popularity = Popularity::empirical(&[4, 4, 1, 1]).unwrap();
        // The popular half has items of 1 byte, the other of 9: 0.8 · 1 + 0.2 · 9 = 2.6 per write.
        let sized = popularity.with_item_sizes(&[(0.5, 1.0), (0.5, 9.0)]).unwrap();
        assert!((sized.keys() - 20.0 / 2.6).abs() < 1e-12);
        assert!((sized.unique(1.0) - 1.0).abs() < 1e-12, "one request writes one item");
        let same = popularity.with_item_sizes(&[(0.3, 7.0), (0.7, 7.0)]).unwrap();
        assert!((same.unique(3.0) - popularity.unique(3.0)).abs() < 1e-12);
        let wrong = |classes: &[(f64, f64)]| popularity.with_item_sizes(classes).unwrap_err();
        assert_eq!(wrong(&[(0.5, 1.0)]).parameter, "shares");
        assert_eq!(wrong(&[(1.0, 0.0)]).parameter, "size");
        assert_eq!(wrong(&[]).parameter, "shares");
    }

    #[test]
    fn invalid_parameter_is_named() {
        let named = |result: Result<Popularity, InvalidParameter>| result.unwrap_err().parameter;
        for keys in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Popularity::uniform(keys)), "keys");
        }
        assert_eq!(named(Popularity::zipf(10.0, -0.1)), "skew");
        assert_eq!(named(Popularity::zipf(10.0, f64::NAN)), "skew");
        assert_eq!(named(Popularity::empirical(&[0, 0, 7])), "keys");
    }
}
