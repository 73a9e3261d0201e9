//! The command line: which role this process plays.

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    #[cfg(feature = "embedded")]
    if std::env::args_os().nth(1).is_some_and(|a| a == "oci") {
        return crate::runtime::embedded::main(std::env::args_os().skip(2));
    }
    std::process::ExitCode::SUCCESS
}
