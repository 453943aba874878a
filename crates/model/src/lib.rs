//! The analytic model of multi-stage log-structured stores.
