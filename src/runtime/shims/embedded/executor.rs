//! The last steps before the container's own program: find it, or say why not, and become it.
//!
//! This code runs inside the container, as its user, after the privileges are dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{
    Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError,
};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access, execve};

use crate::seccomp::Filter;
use crate::sys::process::reset_signals;

/// Marks the text that is for people in libcontainer's nested errors.
pub(super) const MARK: &str = "podprobe-exec: ";

/// Our executor. libcontainer wants it cloneable; the clones share what is in it.
#[derive(Clone)]
pub(super) struct Payload {
    /// Where the text of a failed execve goes: `start` reads it at the other end, and sees end of file when it worked.
    pub report: Rc<File>,
    /// What to apply before the container's own program, if there is a profile.
    pub seccomp: Rc<Option<Seccomp>>,
    /// `HOME` as libcontainer found it in the container's /etc/passwd.
    pub home: Rc<RefCell<Option<String>>>,
}

/// The bit of CAP_SYS_ADMIN.
pub(super) const SYS_ADMIN: u64 = 1 << 21;

/// A seccomp filter and when to apply it, as runc does: with no_new_privs just before execve; without it, as soon as
/// libcontainer has left all other privileges, for CAP_SYS_ADMIN is needed and goes then.
pub(super) struct Seccomp {
    pub filter: Filter,
    /// The capabilities to drop after it; None is late.
    pub early: Option<u64>,
}

impl Seccomp {
    fn apply(&self) -> Result<(), String> {
        let applied = crate::sys::process::apply_seccomp(&self.filter.program, self.filter.flags);
        applied.map_err(|e| format!("cannot apply the seccomp profile: {e}"))?;
        let dropped = self
            .early
            .map_or(Ok(()), crate::sys::process::drop_capabilities);
        dropped.map_err(|e| format!("cannot drop CAP_SYS_ADMIN after the seccomp profile: {e}"))
    }
}

impl Executor for Payload {
    /// Before `create` returns: a missing program is an error of `create`, with the words of runc.
    fn validate(&self, spec: &Spec) -> Result<(), ExecutorValidationError> {
        let found = find_program(spec).map(drop);
        let early = (*self.seccomp).as_ref().filter(|s| s.early.is_some());
        let ready = early.map_or(Ok(()), Seccomp::apply);
        found
            .and(ready)
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
        if let Some(late) = (*self.seccomp).as_ref().filter(|s| s.early.is_none()) {
            late.apply().map_err(|text| (text, 126))?;
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
