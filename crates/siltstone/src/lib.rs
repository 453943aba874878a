//! A key-value store with several engines behind one interface.
