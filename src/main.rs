//! The `podprobe` binary. [`podprobe::cli`] runs its verbs.

fn main() -> std::process::ExitCode {
    podprobe::cli::main()
}
