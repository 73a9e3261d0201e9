//! Tests of the Deployment controller on pods that a test moves by hand.

mod model;
mod node_rules;
mod rollbacks;
mod sets;
pub(crate) mod world;
