//! The command line: which role this process plays.

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(role) if role == "nsexec" => crate::nsexec::helper_main(args),
        _ => std::process::ExitCode::SUCCESS,
    }
}
