//! The second child of a command that enters a container, and the only process of the start that the container can see.
//! When the second child starts, it has no privilege that the container lacks and no descriptor except its stdio.

use std::convert::Infallible;
use std::ffi::c_void;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::setsid;

use super::report::{At, Report, Step};
use super::shared_steps::{exit, filter_system_calls};
use super::{Start, Stdio};
use crate::base::sys::terminal::become_controlling;

pub(super) extern "C" fn second(arg: *const c_void) -> ! {
    // SAFETY: the first child passes the `Start` that it was given, and waits while this process uses it.
    let s = unsafe { &*arg.cast::<Start<'_>>() };
    let report = match become_command(s) {
        Ok(never) => match never {},
        Err(report) => report,
    };
    s.pages.report(report);
    exit()
}

fn become_command(s: &Start<'_>) -> Result<Infallible, Report> {
    setsid().at(Step::Session, 0)?;
    if s.orders.stdio == Stdio::Terminal {
        become_controlling(0).at(Step::Session, 1)?;
    }
    // If the daemon is killed, the command dies too. Otherwise no process would end the command at its timeout.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    if s.orders.no_new_privs && !s.orders.traceable {
        filter_system_calls(&s.orders)?;
    }
    s.pages.set_ready();
    Err(execute(s)).at(Step::Exec, 0)
}

/// Tries to execute each file, as execvp does. Returns the most telling errno if no file can be executed.
fn execute(s: &Start<'_>) -> Errno {
    let mut errno = Errno::ENOENT;
    for file in &s.orders.files {
        // SAFETY: the path ends with a zero. Both lists end with a null pointer and point to texts that end with a zero.
        unsafe { libc::execve(file.as_ptr(), s.argv.as_ptr(), s.envp.as_ptr()) };
        match Errno::last() {
            Errno::ENOENT | Errno::ENOTDIR => {}
            Errno::EACCES => errno = Errno::EACCES,
            other => return other,
        }
    }
    errno
}
