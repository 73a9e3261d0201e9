//! The one binary: see [`podprobe::cli`].

fn main() -> std::process::ExitCode {
    podprobe::cli::main()
}
