//! Services: which endpoints they have, which addresses, and what a data path gets of it.
//!
//! Invariants: nothing here has a thread, a descriptor or a clock. A data path never looks at readiness: endpoints
//! are chosen here.

pub mod table;
