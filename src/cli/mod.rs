//! The command line: which role this process plays.

/// Runs the role the arguments name.
pub fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_ref().and_then(|a| a.to_str()) {
        #[cfg(feature = "embedded")]
        Some("oci") => return crate::runtime::embedded::main(args),
        Some("shim") => return crate::runtime::shim::main(args),
        Some("pause") => return crate::runtime::sandbox::main(args),
        Some("nsexec") => return crate::nsexec::helper_main(args),
        _ => {}
    }
    std::process::ExitCode::SUCCESS
}
