//! The command line: which role this process plays.

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    #[cfg(feature = "embedded")]
    if args.next().is_some_and(|a| a == "oci") {
        return crate::runtime::embedded::main(args);
    }
    std::process::ExitCode::SUCCESS
}
