//! The contract that every storage engine keeps, and the words they share.
