//! The command line: which role this process plays.

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
