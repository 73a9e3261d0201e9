//! The controllers: the thread that makes pods for workloads, and what it keeps on the disk.
//!
//! Invariants: the wing `workloads` decides; this room reads, writes and hands on. State is on the disk before the action
//! that depends on it. Nothing is decided before the files and the runtime have been listed once.

pub mod board;
mod events;
pub mod images_ahead;
pub mod manager;
mod node;
mod observe;
pub mod outlet;
mod steady_clock;
mod waits;
mod wakes;
mod wall_clock;

pub use board::Board;
pub use images_ahead::ImagesAhead;
pub use node::NodeView;
pub use outlet::PodOutlet;
pub use wall_clock::WallClockWatch;
