//! Rules about the project itself: its sources, its documents, and what they say of each other.

mod archive;
mod layers;
mod project_rules;
mod readme;
mod rule_references;
mod sources;
