//! The two children that enter a container and become the command (exec-in-container 3, steps 3 to 13).
//!
//! Invariants:
//! - Both share the memory of the thread that starts them, which goes on running: they make raw system calls on data
//!   prepared before, and nothing else. No allocation, lock, thread-local, libc wrapper, formatting or panic.
//! - The first is not CLONE_VFORK: the starting thread stays able to enforce the limit of the start. The second is: its
//!   `oom_score_adj` is written while the first waits for it, and only then the kernel leaves alone that of the other
//!   processes sharing the memory, which is the daemon's.
//! - All memory they use lives until both have ended or executed a file ([`Entering`] sees to it, or leaks it).
//! - The second child is the only one that the container can see, and by then it holds no privilege that the container
//!   lacks and no descriptor but its own stdio and the report socket: everything is dropped in the first.

use std::ffi::{CString, c_char, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;

use super::raw::{self, CAP_VERSION_3, CapData, CapHeader};

/// What a child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Step {
    /// Not a failure: the next thing is execve.
    Ready = 1,
    /// Joining a cgroup.
    Cgroup,
    /// Setting a resource limit.
    Rlimit,
    /// Leaving the daemon's session keyring.
    Keyring,
    /// Setting the AppArmor or SELinux label.
    Label,
    /// Entering the namespaces.
    Setns,
    /// Taking the container's root directory.
    Root,
    /// Opening or placing stdin, stdout, stderr.
    Stdio,
    /// Dropping capabilities out of the bounding set.
    Bounding,
    /// Setting the supplementary groups.
    Groups,
    /// Setting the group id.
    Gid,
    /// Setting the user id.
    Uid,
    /// Setting the capability sets.
    Capabilities,
    /// Changing to the working directory.
    Cwd,
    /// Setting no_new_privs.
    NoNewPrivs,
    /// Applying the seccomp profile.
    Seccomp,
    /// Closing the daemon's descriptors.
    Close,
    /// Starting the second child.
    Clone,
    /// Becoming a session leader.
    Session,
    /// Executing the command: the command's failure, not ours.
    Exec,
}

impl Step {
    fn from_byte(b: u8) -> Option<Step> {
        use Step::*;
        let all = [
            Ready,
            Cgroup,
            Rlimit,
            Keyring,
            Label,
            Setns,
            Root,
            Stdio,
            Bounding,
            Groups,
            Gid,
            Uid,
            Capabilities,
            Cwd,
            NoNewPrivs,
            Seccomp,
            Close,
            Clone,
            Session,
            Exec,
        ];
        all.into_iter().find(|s| *s as u8 == b)
    }
}

/// What a child says: which step, which of several (limit, cgroup), and the errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The step that failed, or [`Step::Ready`].
    pub step: Step,
    /// Which of the step's objects, counted as they were given.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}

impl Report {
    /// Reads a child's message; None for anything that is not one.
    pub fn decode(m: &[u8]) -> Option<Report> {
        let m: [u8; 8] = m.try_into().ok()?;
        let errno = Errno::from_raw(i32::from_le_bytes([m[4], m[5], m[6], m[7]]));
        Some(Report { step: Step::from_byte(m[0])?, index: m[1].into(), errno })
    }
}

/// Everything the children need, prepared before the first starts.
#[derive(Debug)]
pub struct Orders {
    /// `cgroup.procs` files to join, open for writing.
    pub cgroups: Vec<OwnedFd>,
    /// Resource limits: RLIMIT_* number, soft, hard.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Label to write: file below `/proc`, text.
    pub label: Option<(CString, Vec<u8>)>,
    /// `/proc` of the host.
    pub proc: OwnedFd,
    /// The container's first process.
    pub pidfd: OwnedFd,
    /// CLONE_NEW* of the namespaces to enter; those shared with us are left out.
    pub namespaces: i32,
    /// The container's root directory.
    pub root: OwnedFd,
    /// What stdin becomes when the container has no proper `/dev/null`: a pipe at its end.
    pub empty: OwnedFd,
    /// stdout, stderr; open when the first child starts, the caller's to close after.
    pub output: [RawFd; 2],
    /// Where the children report, a packet socket; likewise.
    pub report: RawFd,
    /// File mode creation mask.
    pub umask: u32,
    /// Capability masks: bounding, effective, permitted, inheritable, ambient.
    pub caps: [u64; 5],
    /// User, group and supplementary groups.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// See `uid`.
    pub groups: Vec<u32>,
    /// Working directory inside the container.
    pub cwd: CString,
    /// PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// What of the system calls the command may make: a program and SECCOMP_FILTER_FLAG_*.
    pub seccomp: Option<(Vec<libc::sock_filter>, u32)>,
    /// Wait for a word from the parent before execve (it sets `oom_score_adj` by then).
    pub wait: bool,
    /// Give the second child a copy of the memory instead of the memory: for the single-threaded helper only.
    pub isolate: bool,
    /// Files to try, in order.
    pub files: Vec<CString>,
    /// Arguments.
    pub argv: Vec<CString>,
    /// Environment.
    pub envp: Vec<CString>,
}

/// CAP_SYS_ADMIN, in the low word.
const SYS_ADMIN: u32 = 1 << 21;

const STACK: usize = 64 << 10;
const GUARD: usize = 64 << 10;

/// Two stacks, each above a guard.
struct Stacks(*mut u8);

impl Stacks {
    fn new() -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping anywhere collides with nothing.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), 2 * (STACK + GUARD), libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let stacks = Stacks(base.cast());
        for n in 0..2 {
            // SAFETY: both ranges lie inside the mapping made above, page aligned for pages of up to 64 KiB.
            Errno::result(unsafe { libc::mprotect(stacks.top(n).sub(STACK).cast(), STACK, libc::PROT_READ | libc::PROT_WRITE) })?;
        }
        Ok(stacks)
    }

    /// The end of stack `n`, 0 or 1.
    fn top(&self, n: usize) -> *mut u8 {
        self.0.wrapping_add((n + 1) * (STACK + GUARD))
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; its owner saw both children end or leaked it instead.
        unsafe { libc::munmap(self.0.cast(), 2 * (STACK + GUARD)) };
    }
}

/// What the children share with us.
struct Shared {
    orders: Orders,
    /// Descriptors the first child keeps, ascending.
    keep: Vec<RawFd>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    stacks: Stacks,
    last_cap: usize,
    second: AtomicI32,
}

/// A command being started. Whoever drops it without [`Entering::release`] leaks its memory, because a child may use it.
pub struct Entering {
    shared: Option<Box<Shared>>,
    /// The first child.
    pub first: OwnedFd,
}

// SAFETY: the raw pointers in `Shared` lead into its own `Orders`, whose heap blocks do not move with it.
unsafe impl Send for Entering {}

fn pointers(v: &[CString]) -> Vec<*const c_char> {
    v.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

impl Entering {
    /// Starts the first child. EAGAIN and ENOMEM are what clone says.
    pub fn start(orders: Orders) -> Result<Self, Errno> {
        let owned = [&orders.proc, &orders.pidfd, &orders.root, &orders.empty].into_iter().chain(&orders.cgroups);
        let lent = [orders.output[0], orders.output[1], orders.report];
        let mut keep: Vec<RawFd> = owned.map(|f| f.as_raw_fd()).chain(lent).collect();
        keep.sort_unstable();
        let (argv, envp) = (pointers(&orders.argv), pointers(&orders.envp));
        let shared = Shared { argv, envp, keep, stacks: Stacks::new()?, last_cap: last_cap(), second: AtomicI32::new(0), orders };
        let shared = Box::new(shared);
        let mut pidfd = -1;
        let all = [u64::MAX];
        let mut old = [0u64];
        // SAFETY: both masks are one 64-bit word, the size given. Signals wait while the child could take our handlers.
        unsafe { sigmask(&all, Some(&mut old)) };
        let arg: *const Shared = &*shared;
        // SAFETY: the stack is fresh and its own; `shared` is boxed and kept by the returned value until the children are
        // gone; `first` makes system calls only; CLONE_PIDFD writes one int. The exit signal 0 hides the child from
        // everyone who waits for "any child".
        let pid = unsafe {
            raw::clone((libc::CLONE_VM | libc::CLONE_PIDFD) as usize, shared.stacks.top(0), &mut pidfd, first, arg.cast::<c_void>())
        };
        // SAFETY: as above.
        unsafe { sigmask(&old, None) };
        if pid < 0 {
            return Err(Errno::from_raw(-pid as i32));
        }
        // SAFETY: the kernel just made this descriptor for us.
        let first = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Entering { shared: Some(shared), first })
    }

    /// The host pid of the command's process once it exists; our child, so not reused before we reap it.
    pub fn second(&self) -> Option<i32> {
        let pid = self.shared.as_ref()?.second.load(Ordering::Acquire);
        (pid > 0).then_some(pid)
    }

    /// Frees the memory. Only when both children have ended or executed a file, which the caller has seen.
    pub fn release(mut self) {
        drop(self.shared.take());
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            Box::leak(shared);
        }
    }
}

/// The highest capability of this kernel.
fn last_cap() -> usize {
    let read = || std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").ok()?.trim().parse().ok();
    static LAST: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *LAST.get_or_init(|| read().unwrap_or(63))
}

/// # Safety
/// Changes the mask of the calling task only; call in pairs.
unsafe fn sigmask(new: &[u64; 1], old: Option<&mut [u64; 1]>) {
    let old = old.map_or(0, |o| o.as_mut_ptr() as usize);
    // SAFETY: both masks are 8 bytes, as the last argument says; a null old mask is not written.
    unsafe { raw::syscall(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, new.as_ptr() as usize, old, 8, 0]) };
}

/// A call whose arguments are integers or addresses of data that outlives it.
fn call(n: libc::c_long, a: [usize; 5]) -> Result<usize, i32> {
    // SAFETY: every caller below passes what its call expects: descriptors, flags, and addresses inside `Shared`, static
    // strings or its own frame, of the size the call uses.
    let r = unsafe { raw::syscall(n, a) };
    if r < 0 { Err(-r as i32) } else { Ok(r as usize) }
}

fn exit() -> ! {
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
    }
}

fn report(s: &Shared, step: Step, index: usize, errno: i32) {
    let e = errno.to_le_bytes();
    let m = [step as u8, index as u8, 0, 0, e[0], e[1], e[2], e[3]];
    let _ = call(libc::SYS_sendto, [s.orders.report as usize, m.as_ptr() as usize, m.len(), libc::MSG_NOSIGNAL as usize, 0]);
}

/// Goes on, or says why not and ends.
fn must(s: &Shared, step: Step, index: usize, r: Result<usize, i32>) -> usize {
    match r {
        Ok(v) => v,
        Err(e) => {
            report(s, step, index, e);
            exit()
        }
    }
}

fn fd(f: &OwnedFd) -> usize {
    f.as_raw_fd() as usize
}

extern "C" fn first(arg: *const c_void) -> ! {
    // SAFETY: `Entering::start` passed a `Shared` that lives on; only `second` in it changes, and that is atomic.
    let s = unsafe { &*arg.cast::<Shared>() };
    let o = &s.orders;
    close_others(s);
    for (i, f) in o.cgroups.iter().enumerate() {
        must(s, Step::Cgroup, i, call(libc::SYS_write, [fd(f), c"0".as_ptr() as usize, 1, 0, 0]));
    }
    for (i, (resource, soft, hard)) in o.rlimits.iter().enumerate() {
        let new = [*soft, *hard];
        must(s, Step::Rlimit, i, call(libc::SYS_prlimit64, [0, *resource as usize, new.as_ptr() as usize, 0, 0]));
    }
    leave_keyring(s);
    set_label(s);
    if o.namespaces != 0 {
        must(s, Step::Setns, 0, call(libc::SYS_setns, [fd(&o.pidfd), o.namespaces as usize, 0, 0, 0]));
    }
    must(s, Step::Root, 0, call(libc::SYS_fchdir, [fd(&o.root), 0, 0, 0, 0]));
    must(s, Step::Root, 1, call(libc::SYS_chroot, [c".".as_ptr() as usize, 0, 0, 0, 0]));
    place_stdio(s);
    drop_privileges(s);
    // Nothing stays open for the process that the container will see.
    let r = o.report as u32;
    must(s, Step::Close, 0, call(libc::SYS_close_range, [3, r.saturating_sub(1) as usize, 0, 0, 0]));
    must(s, Step::Close, 1, call(libc::SYS_close_range, [r.saturating_add(1) as usize, u32::MAX as usize, 0, 0, 0]));
    let mut flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
    if !o.isolate {
        flags |= libc::CLONE_VM;
    }
    let arg: *const Shared = s;
    // SAFETY: the second stack is used by nobody else, `s` lives on, `second` makes system calls only, and the kernel
    // writes one int, atomically, into `s.second`.
    let pid = unsafe { raw::clone(flags as usize, s.stacks.top(1), s.second.as_ptr(), second, arg.cast::<c_void>()) };
    must(s, Step::Clone, 0, if pid < 0 { Err(-pid as i32) } else { Ok(0) });
    exit()
}

/// Closes the first child's copies of all descriptors of the daemon but the needed ones: pipes of other execs among
/// them, whose readers wait for their end.
fn close_others(s: &Shared) {
    let mut from = 3u32;
    for f in &s.keep {
        let f = *f as u32;
        if f > from {
            must(s, Step::Close, 2, call(libc::SYS_close_range, [from as usize, f.wrapping_sub(1) as usize, 0, 0, 0]));
        }
        from = f.wrapping_add(1);
    }
    must(s, Step::Close, 3, call(libc::SYS_close_range, [from as usize, u32::MAX as usize, 0, 0, 0]));
}

/// An empty session keyring, as an OCI runtime gives one: the daemon's may hold keys of whoever started it. A kernel
/// without keyrings, or a node that is itself a container without them, has none to leave.
fn leave_keyring(s: &Shared) {
    match call(libc::SYS_keyctl, [libc::KEYCTL_JOIN_SESSION_KEYRING as usize, 0, 0, 0, 0]) {
        Err(libc::ENOSYS | libc::EPERM) => {}
        other => drop(must(s, Step::Keyring, 0, other)),
    }
}

fn set_label(s: &Shared) {
    let Some((path, text)) = &s.orders.label else { return };
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let f = must(s, Step::Label, 0, call(libc::SYS_openat, [fd(&s.orders.proc), path.as_ptr() as usize, flags, 0, 0]));
    must(s, Step::Label, 1, call(libc::SYS_write, [f, text.as_ptr() as usize, text.len(), 0, 0]));
}

/// stdin from the container's own `/dev/null` (a descriptor of the host's would let the container change its mode), or,
/// where that is not the null device, from a pipe at its end.
fn place_stdio(s: &Shared) {
    let o = &s.orders;
    let flags = (libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_CLOEXEC) as usize;
    let opened = call(libc::SYS_openat, [libc::AT_FDCWD as usize, c"/dev/null".as_ptr() as usize, flags, 0, 0]);
    let stdin = opened.ok().filter(|f| is_null(*f)).unwrap_or(fd(&o.empty));
    let _ = call(libc::SYS_fcntl, [stdin, libc::F_SETFL as usize, 0, 0, 0]);
    for (to, from) in [stdin, o.output[0] as usize, o.output[1] as usize].into_iter().enumerate() {
        must(s, Step::Stdio, to, call(libc::SYS_dup3, [from, to, 0, 0, 0]));
        if to > 0 {
            // So that a command of another uid can open /dev/stdout; an unmapped id is no reason to fail.
            let _ = call(libc::SYS_fchown, [to, o.uid as usize, o.gid as usize, 0, 0]);
        }
    }
}

fn is_null(f: usize) -> bool {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let r = call(libc::SYS_fstat, [f, st.as_mut_ptr() as usize, 0, 0, 0]);
    // SAFETY: zeroed, and filled by the kernel, whose `struct stat` is libc's on the 64-bit architectures supported.
    let st = unsafe { st.assume_init() };
    r.is_ok() && st.st_mode & libc::S_IFMT == libc::S_IFCHR && st.st_rdev == 0x103
}

/// Steps 7 to 12: from here on this process may do no more than the container.
fn drop_privileges(s: &Shared) {
    let o = &s.orders;
    let prctl = |option: i32, a: usize, b: usize| call(libc::SYS_prctl, [option as usize, a, b, 0, 0]);
    let [bounding, effective, permitted, inheritable, ambient] = o.caps;
    let _ = call(libc::SYS_umask, [o.umask as usize, 0, 0, 0, 0]);
    for cap in (0..64).take_while(|c| *c <= s.last_cap).filter(|c| bounding & (1 << (c & 63)) == 0) {
        must(s, Step::Bounding, cap, prctl(libc::PR_CAPBSET_DROP, cap, 0));
    }
    let _ = prctl(libc::PR_SET_KEEPCAPS, 1, 0);
    let groups = call(libc::SYS_setgroups, [o.groups.len(), o.groups.as_ptr() as usize, 0, 0, 0]);
    // A user namespace may forbid setgroups; then there is none to drop either.
    let forbidden = o.groups.is_empty() && o.namespaces & libc::CLONE_NEWUSER != 0 && groups == Err(libc::EPERM);
    must(s, Step::Groups, 0, if forbidden { Ok(0) } else { groups });
    let (uid, gid) = (o.uid as usize, o.gid as usize);
    must(s, Step::Gid, 0, call(libc::SYS_setresgid, [gid, gid, gid, 0, 0]));
    must(s, Step::Uid, 0, call(libc::SYS_setresuid, [uid, uid, uid, 0, 0]));
    let _ = prctl(libc::PR_SET_KEEPCAPS, 0, 0);
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let word = |shift: u32| CapData {
        effective: (effective >> shift) as u32,
        permitted: (permitted >> shift) as u32,
        inheritable: (inheritable >> shift) as u32,
    };
    let data = [word(0), word(32)];
    // Without no_new_privs it needs CAP_SYS_ADMIN, which the second child never has.
    if !o.no_new_privs && o.seccomp.is_some() {
        let mut admin = data;
        for set in [&mut admin[0].permitted, &mut admin[0].effective] {
            *set |= SYS_ADMIN;
        }
        must(s, Step::Seccomp, 0, call(libc::SYS_capset, [&raw const header as usize, admin.as_ptr() as usize, 0, 0, 0]));
        apply_seccomp(s);
    }
    must(s, Step::Capabilities, 0, call(libc::SYS_capset, [&raw const header as usize, data.as_ptr() as usize, 0, 0, 0]));
    let _ = prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as usize, 0);
    for cap in (0..64usize).filter(|c| ambient & (1 << (c & 63)) != 0) {
        must(s, Step::Capabilities, 1, prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as usize, cap));
    }
    change_directory(s);
    if o.no_new_privs {
        must(s, Step::NoNewPrivs, 0, prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0));
    }
    // The change of uid set it to fs.suid_dumpable, for the memory and so for everyone who shares it.
    let _ = prctl(libc::PR_SET_DUMPABLE, 0, 0);
}

/// From here on every call is subject to it.
fn apply_seccomp(s: &Shared) {
    let Some((program, flags)) = &s.orders.seccomp else { return };
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let arguments = [libc::SECCOMP_SET_MODE_FILTER as usize, *flags as usize, &raw const program as usize, 0, 0];
    must(s, Step::Seccomp, 1, call(libc::SYS_seccomp, arguments));
}

/// `cwd` must lie inside the root: the kernel marks one that does not (CVE-2024-21626).
fn change_directory(s: &Shared) {
    must(s, Step::Cwd, 0, call(libc::SYS_chdir, [s.orders.cwd.as_ptr() as usize, 0, 0, 0, 0]));
    let mut path = [0u8; libc::PATH_MAX as usize];
    must(s, Step::Cwd, 1, call(libc::SYS_getcwd, [path.as_mut_ptr() as usize, path.len(), 0, 0, 0]));
    if path.first() != Some(&b'/') {
        must(s, Step::Cwd, 2, Err(libc::EPERM));
    }
}

extern "C" fn second(arg: *const c_void) -> ! {
    // SAFETY: as in `first`.
    let s = unsafe { &*arg.cast::<Shared>() };
    must(s, Step::Session, 0, call(libc::SYS_setsid, [0; 5]));
    // A daemon that is killed leaves no probe behind that nobody times out.
    let _ = call(libc::SYS_prctl, [libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize, 0, 0, 0]);
    let nothing = [0u64; 4];
    for signal in 1..=64 {
        let _ = call(libc::SYS_rt_sigaction, [signal, nothing.as_ptr() as usize, 0, 8, 0]);
    }
    report(s, Step::Ready, 0, 0);
    if s.orders.wait {
        let mut go = [0u8; 1];
        // The end of the socket means that the parent is gone or gave up.
        if call(libc::SYS_read, [s.orders.report as usize, go.as_mut_ptr() as usize, 1, 0, 0]) != Ok(1) {
            exit();
        }
    }
    // SAFETY: an empty mask of 8 bytes; all handlers are the default ones by now.
    unsafe { sigmask(&[0], None) };
    let _ = call(libc::SYS_close_range, [3, u32::MAX as usize, libc::CLOSE_RANGE_CLOEXEC as usize, 0, 0]);
    if s.orders.no_new_privs {
        apply_seccomp(s);
    }
    report(s, Step::Exec, 0, execute(s));
    exit()
}

/// Tries each file as execvp does; comes back with the errno that says most.
fn execute(s: &Shared) -> i32 {
    let mut errno = libc::ENOENT;
    for f in &s.orders.files {
        let r = call(libc::SYS_execve, [f.as_ptr() as usize, s.argv.as_ptr() as usize, s.envp.as_ptr() as usize, 0, 0]);
        match r.err().unwrap_or(0) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => errno = libc::EACCES,
            other => return other,
        }
    }
    errno
}

/// The report end a parent reads: one message, `Ok(None)` at the end of all children.
pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<Report>, Errno> {
    let mut m = [0u8; 8];
    let n = nix::sys::socket::recv(socket.as_raw_fd(), &mut m, nix::sys::socket::MsgFlags::MSG_DONTWAIT)?;
    Ok(if n == 0 { None } else { Report::decode(&m[..n]) })
}
