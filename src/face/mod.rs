//! What people and programs see of the daemon: the views, and the server that shows them.

pub mod server;
pub mod views;
