//! The ordered engine: a log-structured merge-tree.
