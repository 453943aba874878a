//! Workloads, the benchmark runner and the experiments.
