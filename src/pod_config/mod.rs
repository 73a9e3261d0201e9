//! (being written)
pub mod identity;
