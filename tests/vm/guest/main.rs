//! The program that `make vm` boots a kernel with. It is the first process of the machine, the suite, and what the suite's
//! containers run; `tests/vm/run` reads what it writes to the kernel's log: `ok NAME`, `FAIL NAME: why` or `skip NAME: why` a
//! case, and `end: …` at the end.

mod app_armor;
mod boot;
mod case;
mod cgroups;
mod clock;
mod damage;
mod devices;
mod kills;
mod network;
mod node;
mod pods;
#[path = "../../support/damage.rs"]
mod record_damage;
mod roots;
mod running;
mod suite;
mod sys;
mod tar;
mod tools;
mod volumes;
mod watched;
mod workloads;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] if std::process::id() == 1 => boot::from_initrd(),
        ["init"] => boot::first_process(),
        ["suite", only] => suite::run(only),
        args => tools::run(args),
    }
}
