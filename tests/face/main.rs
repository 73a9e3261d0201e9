//! What people and clients see: the verbs, the server, the status page.

mod cli;
mod command_line;
mod cp;
mod install;
mod log;
mod mistakes;
mod server;
mod status_page;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod verbs;
mod workload_manifests;
mod workloads;
