//! The sync loop.
