//! Rules about the project itself: its sources, its documents, and what they say of each other.

mod archive;
mod compact_unwind;
mod layers;
mod project_rules;
mod readme;
mod rule_references;
mod sources;
