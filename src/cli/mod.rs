//! The command line: which role this process plays, and the client verbs.
//!
//! Invariants: an inner role is found before anything else is set up; a verb writes to the writers it is given, so each
//! is tested through its real function; what the rest of the program provides comes in through [`connect`] alone.

pub mod args;
pub mod client;
pub mod columns;
pub mod connect;
pub mod describe;
pub mod describe_container;
mod describe_history;
pub mod error;
pub mod events;
pub mod get;
pub mod help;
pub mod human;
pub mod image;
pub mod live;
pub mod logs;
pub mod names;
pub mod pause;
pub mod probe;
pub mod probe_names;
pub mod run;
pub mod tabwriter;
pub mod try_out;
pub mod validate;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use args::Command;
use error::CliError;

use crate::layout::Layout;

/// Runs the role the arguments name.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let role = words
        .next()
        .and_then(|word| connect::inner_role(word.to_str()?, words));
    if let Some(code) = role {
        return code;
    }
    let command = args::parse(std::env::args_os().skip(1)).map_err(CliError::Usage);
    command
        .and_then(|c| dispatch(&c))
        .unwrap_or_else(|e| e.report())
}

fn dispatch(command: &Command) -> Result<ExitCode, CliError> {
    // Buffered: stdout itself writes each line on its own, which a PodList has thousands of. Every verb flushes.
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut err = io::stderr();
    match command {
        Command::Help(verb) => print(help::text(*verb), &mut out)?,
        Command::Version(root) => version(root, &mut out)?,
        Command::Get(get) => get::run(get, &mut out, &mut err)?,
        Command::Describe(describe) => describe::run(describe, &mut out, &mut err)?,
        Command::Events(events) => events::run(events, &mut out, &mut err)?,
        Command::Probe(probe) => return probe::run(probe, &mut out),
        Command::Pause(pause) => pause::run(pause, &mut out)?,
        Command::Metrics(root) => print(&client::Client::connect(root)?.metrics()?, &mut out)?,
        Command::Logs(logs) => logs::run(logs, &mut out)?,
        Command::Validate(validate) => {
            let node = validate.node_name.clone().unwrap_or_else(host_name);
            validate::run(
                validate,
                &|bytes, path| connect::decode(bytes, &node, path),
                &mut out,
            )?;
        }
        Command::Image(image) => {
            let images =
                connect::open_images(&Layout::new(&image.root)).map_err(CliError::Failed)?;
            image::run(&image.action, &*images, &mut out)?;
        }
        Command::Run(args) => {
            drop(out);
            return run::run(args);
        }
        Command::Try(args) => {
            // The display's thread writes to stdout; this one must not hold its lock.
            drop(out);
            return try_out::run(args);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str, out: &mut dyn Write) -> Result<(), CliError> {
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The daemon's version too, if there is one; that there is none is no error here.
fn version(root: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "Client Version: {}", env!("CARGO_PKG_VERSION"))?;
    match client::Client::connect(root).and_then(|mut c| c.version()) {
        Ok(version) => writeln!(out, "Daemon Version: {version}")?,
        Err(client::ClientError::NotRunning { .. }) => {}
        Err(e) => {
            out.flush()?;
            return Err(e.into());
        }
    }
    Ok(out.flush()?)
}

fn host_name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|n| n.into_string().ok())
        .unwrap_or_else(|| "localhost".into())
}
