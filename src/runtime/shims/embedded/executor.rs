//! The last steps before the container's own program: find it, or say why not, and become it.
//!
//! This code runs inside the container, as its user, after the privileges are dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{AccessFlags, access, execve, setsid};

use crate::seccomp::Filter;
use crate::sys::process::{
    OneThread, Parent, apply_seccomp, copy, drop_capabilities, end_now, reset_signals,
};

/// Marks the text that is for people in libcontainer's nested errors.
pub(super) const MARK: &str = "podprobe-exec: ";

/// Our executor. libcontainer wants it cloneable; the clones share what is in it.
#[derive(Clone)]
pub(super) struct Payload {
    /// Where the text of a failed execve goes: `start` reads it at the other end, and sees end of file when it worked.
    pub report: Rc<File>,
    /// What is left to do when libcontainer has done its part.
    pub last_steps: Rc<LastSteps>,
    /// `HOME` as libcontainer found it in the container's /etc/passwd.
    pub home: Rc<RefCell<Option<String>>>,
}

/// The bit of CAP_SYS_ADMIN.
pub(super) const SYS_ADMIN: u64 = 1 << 21;

/// What libcontainer's process does when it has left all its privileges but CAP_SYS_ADMIN, where these steps need it.
#[derive(Default)]
pub(super) struct LastSteps {
    /// The seccomp filter. With no_new_privs it is applied just before execve, as runc does it. Without, it needs
    /// CAP_SYS_ADMIN and is applied here.
    pub filter: Option<Filter>,
    /// `process.noNewPrivileges`.
    pub no_new_privs: bool,
    /// The process namespace of the pod, where the container shares one.
    pub processes: Option<PodProcesses>,
    /// Capabilities that these steps need and the container does not have.
    pub drop: u64,
}

/// The process namespace that the containers of a pod share.
///
/// Another container of the pod that has CAP_SYS_PTRACE can do as it likes with every process in it. So libcontainer's process
/// stays outside. When it has nothing left that the container may not have, it makes a copy of itself inside, which becomes
/// the container's program.
pub(super) struct PodProcesses {
    pub namespace: File,
    /// Takes the pid of the copy, as the node knows it.
    pub pid: RefCell<Option<PipeWriter>>,
    /// `process.terminal`.
    pub terminal: bool,
}

impl LastSteps {
    /// Whether they need CAP_SYS_ADMIN.
    pub fn are_privileged(&self) -> bool {
        self.processes.is_some() || self.filter.is_some() && !self.no_new_privs
    }

    /// What is in the pod's process namespace has its filter from the start: a tracer could keep it from applying one.
    fn filters_early(&self) -> bool {
        self.processes.is_some() || !self.no_new_privs
    }

    fn run(&self) -> Result<(), String> {
        let failed = |what: &'static str| move |e: Errno| format!("cannot {what}: {}", e.desc());
        let one = match &self.processes {
            Some(p) => {
                setns(&p.namespace, CloneFlags::CLONE_NEWPID)
                    .map_err(failed("enter the process namespace of the pod"))?;
                if p.terminal {
                    leave_terminal().map_err(failed("hand the terminal on"))?;
                }
                Some(OneThread::check().map_err(failed("copy a process of several threads"))?)
            }
            None => None,
        };
        if self.filters_early() {
            self.apply_filter()?;
        }
        if self.drop != 0 {
            drop_capabilities(self.drop).map_err(|e| format!("cannot drop CAP_SYS_ADMIN: {e}"))?;
        }
        match (&self.processes, one) {
            (Some(processes), Some(one)) => processes.enter(&one),
            _ => Ok(()),
        }
    }

    fn apply_filter(&self) -> Result<(), String> {
        let Some(filter) = &self.filter else {
            return Ok(());
        };
        apply_seccomp(&filter.program, filter.flags)
            .map_err(|e| format!("cannot apply the seccomp profile: {e}"))
    }
}

/// The terminal is that of this process's session. It must be nobody's for the copy to take it. The kernel says so with a
/// hangup, which is not to end us; the program starts with every signal unblocked.
fn leave_terminal() -> nix::Result<()> {
    SigSet::from(Signal::SIGHUP).thread_block()?;
    crate::sys::terminal::give_up_controlling(0)
}

impl PodProcesses {
    /// Returns in the copy.
    fn enter(&self, one: &OneThread) -> Result<(), String> {
        let failed = |what: &str, e: &dyn std::fmt::Display| format!("cannot {what}: {e}");
        // Whoever reads the other end sees the end of file when both are closed.
        let pid = self.pid.borrow_mut().take();
        match copy(one, Parent::Same) {
            Ok(Some(copy)) => {
                if let Some(mut pid) = pid {
                    let _ = pid.write_all(copy.to_string().as_bytes());
                }
                end_now(0)
            }
            Ok(None) => {}
            Err(e) => {
                return Err(failed(
                    "start a process in the process namespace of the pod (its seccomp profile must allow clone)",
                    &e.desc(),
                ));
            }
        }
        drop(pid);
        setsid().map_err(|e| failed("make a session", &e.desc()))?;
        if self.terminal {
            crate::sys::terminal::become_controlling(0)
                .map_err(|e| failed("take the terminal", &e.desc()))?;
        }
        Ok(())
    }
}

impl Executor for Payload {
    /// Before `create` returns: a missing program is an error of `create`, with the words of runc.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        find_program(spec)
            .and_then(|_| self.last_steps.run())
            .map_err(|text| ExecutorValidationError::ArgValidationError(format!("{MARK}{text}")))
    }

    /// Only kept: the environment is handed to execve, in the order of the configuration.
    fn setup_envs(&self, envs: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        *self.home.borrow_mut() = envs.get("HOME").cloned();
        Ok(())
    }

    /// After `start`. Never returns: libcontainer's own way out would end in code 255 without a word.
    fn exec(&self, spec: &Spec) -> Result<(), ExecutorError> {
        let (text, code) = match self.become_program(spec) {
            Ok(never) => match never {},
            Err(failed) => failed,
        };
        let _ = (&*self.report).write_all(text.as_bytes());
        std::process::exit(code)
    }
}

impl Payload {
    fn become_program(&self, spec: &Spec) -> Result<Infallible, (String, i32)> {
        let program = find_program(spec).map_err(|text| (text, 127))?;
        let args = c_strings(arguments(spec));
        let mut env = environment(spec);
        if !env.iter().any(|e| e.starts_with("HOME=")) {
            env.extend(self.home.borrow().iter().map(|h| format!("HOME={h}")));
        }
        let path = c_strings(&[program.to_string_lossy().into_owned()]).remove(0);
        reset_signals();
        if !self.last_steps.filters_early() {
            self.last_steps.apply_filter().map_err(|text| (text, 126))?;
        }
        execve(&path, &args, &c_strings(&env)).map_err(|e| {
            let code = if e == Errno::ENOENT { 127 } else { 126 };
            (format!("exec: {:?}: {}", program, describe(e)), code)
        })
    }
}

/// ENOENT of a file that is there is the kernel's word for a missing interpreter or dynamic loader.
fn describe(e: Errno) -> String {
    match e {
        Errno::ENOENT => {
            "no such file or directory (its interpreter or dynamic loader is not in the image)"
                .into()
        }
        e => e.desc().to_lowercase(),
    }
}

fn arguments(spec: &Spec) -> &[String] {
    spec.process()
        .as_ref()
        .and_then(|p| p.args().as_deref())
        .unwrap_or_default()
}

fn environment(spec: &Spec) -> Vec<String> {
    spec.process()
        .as_ref()
        .and_then(|p| p.env().clone())
        .unwrap_or_default()
}

/// A NUL cannot be in a configuration of ours; in another's, the word is cut there rather than dropped.
fn c_strings(words: &[String]) -> Vec<CString> {
    words
        .iter()
        .map(|w| CString::new(w.split('\0').next().unwrap_or_default()).unwrap_or_default())
        .collect()
}

/// A name with a slash is taken as it is, another is looked up in the container's PATH.
fn find_program(spec: &Spec) -> Result<PathBuf, String> {
    let name = arguments(spec)
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    let env = environment(spec);
    let path = env
        .iter()
        .rev()
        .find_map(|e| e.strip_prefix("PATH="))
        .unwrap_or_default();
    if name.contains('/') {
        return executable(Path::new(name))
            .map_err(|e| format!("exec: {name:?}: {}", e.desc().to_lowercase()));
    }
    let candidates = path
        .split(':')
        .filter(|d| d.starts_with('/'))
        .map(|d| Path::new(d).join(name));
    candidates
        .filter_map(|c| executable(&c).ok())
        .next()
        .filter(|_| !name.is_empty())
        .ok_or_else(|| format!("exec: {name:?}: executable file not found in $PATH ({path})"))
}

fn executable(path: &Path) -> Result<PathBuf, Errno> {
    let meta = std::fs::metadata(path)
        .map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    if meta.is_dir() {
        return Err(Errno::EISDIR);
    }
    access(path, AccessFlags::X_OK).map(|()| path.to_owned())
}
