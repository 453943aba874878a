//! In-memory data structures without I/O, one a file.
