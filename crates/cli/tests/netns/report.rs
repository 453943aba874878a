//! The table of refusals: how long a group has answered nobody, for each fault.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

#[derive(Default)]
pub struct Report {
    refusals: BTreeMap<String, Vec<Duration>>,
}

impl Report {
    pub fn add(&mut self, fault: String, refusal: Duration) {
        self.refusals.entry(fault).or_default().push(refusal);
    }

    pub fn longest(&self) -> Duration {
        self.refusals.values().flatten().max().copied().unwrap_or_default()
    }
}

/// The smallest value that is not below this part of all, which are sorted.
fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| fault | rounds | median, ms | p99, ms | longest, ms |")?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: |")?;
        for (fault, refusals) in &self.refusals {
            let mut sorted = refusals.clone();
            sorted.sort_unstable();
            let shown = [0.5, 0.99, 1.0].map(|part| quantile(&sorted, part).as_millis());
            let [median, p99, longest] = shown;
            writeln!(f, "| {fault} | {} | {median} | {p99} | {longest} |", sorted.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let mut report = Report::default();
        for ms in (1..=100).rev() {
            report.add("Kill".to_owned(), Duration::from_millis(ms));
        }
        report.add("Cut".to_owned(), Duration::from_millis(7));
        let text = report.to_string();
        assert!(text.contains("| Cut | 1 | 7 | 7 | 7 |\n"), "{text}");
        assert!(text.contains("| Kill | 100 | 50 | 99 | 100 |\n"), "{text}");
        assert_eq!(report.longest(), Duration::from_millis(100));
    }
}
