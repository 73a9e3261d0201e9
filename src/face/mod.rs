//! The parts of the daemon that people and programs see: the views, and the server that shows them.

pub mod server;
pub mod views;
