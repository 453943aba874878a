//! Where bytes live: disk, memory, and media that count or break.
