//! The command line: which role this process plays.
pub mod args;
pub mod client;
pub mod columns;
pub mod describe;
pub mod describe_container;
pub mod error;
pub mod get;
pub mod human;
pub mod names;
pub mod tabwriter;

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
