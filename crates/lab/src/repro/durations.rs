//! How long each experiment takes at scale 1, for whoever must choose one.
//!
//! Seconds on two cores and an NVMe disk, one run each, as `--report` notes them: an order of magnitude.
//!
//! Source: ours.

/// Seconds that the experiment `id` takes, about; below 1: 1.
pub(super) fn seconds(id: &str) -> Option<u32> {
    let at = SECONDS.iter().position(|(known, _)| *known == id)?;
    Some(SECONDS[at].1)
}

const SECONDS: &[(&str, u32)] = &[
];

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;

    #[test]
    fn is_the_duration_of_each_experiment_known() {
        let known: Vec<_> = SECONDS.iter().map(|(id, _)| *id).collect();
        let all: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.id()).collect();
        assert_eq!(known, all);
        assert!(all.iter().all(|id| seconds(id).is_some_and(|seconds| seconds > 0)));
    }
}
