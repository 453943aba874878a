//! The former names of [`quarantine`](crate::quarantine).

pub use crate::quarantine::{
    copy_quarantined as copy, finish_quarantine as leave, link_quarantined as keep,
};
