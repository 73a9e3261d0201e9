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
//!   lacks and no descriptor but its own stdio and what wakes the parent: everything is dropped in the first.
//! - What a child has to say it writes on a page shared with the parent; that it is done shows in the end of the first
//!   child, which waits in the kernel until the second has executed a file or ended, however it ends.

mod memory;

use std::ffi::{CString, c_char, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::raw::{self, CAP_VERSION_3, CapData, CapHeader, CloneArgs};
use memory::{Board, Memory, STACK};

/// `CLONE_CLEAR_SIGHAND` and `CLONE_INTO_CGROUP`, which do not fit libc's type of them.
const CLEAR_SIGHAND: u64 = 1 << 32;
const INTO_CGROUP: u64 = 1 << 33;

/// How long the second child waits for a word, in seconds: longer than its parent waits for it.
const WORD_LIMIT: i64 = 60;

/// What a child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum Step {
    /// Joining a cgroup.
    Cgroup = 1,
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
    /// The step that failed.
    pub step: Step,
    /// Which of the step's objects, counted as they were given.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}

impl Report {
    fn encode(step: Step, index: usize, errno: i32) -> u64 {
        u64::from(step as u8) | (index as u64 & 0xff) << 8 | u64::from(errno as u32) << 32
    }

    fn decode(m: u64) -> Option<Report> {
        let errno = Errno::from_raw((m >> 32) as i32);
        Some(Report {
            step: Step::from_byte(m as u8)?,
            index: (m >> 8 & 0xff) as usize,
            errno,
        })
    }
}

/// Everything the children need, prepared before the first starts.
#[derive(Debug)]
pub struct Orders {
    /// `tasks` files of the v1 cgroups to join, open for writing.
    pub cgroups: Vec<OwnedFd>,
    /// Directory of the v2 cgroup to be born in; in reports it counts after the others.
    pub born: Option<OwnedFd>,
    /// Resource limits: RLIMIT_* number, soft, hard.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Label to write: file below `/proc`, text.
    pub label: Option<(CString, Vec<u8>)>,
    /// `/proc` of the host.
    pub proc: BorrowedFd<'static>,
    /// The container's first process.
    pub pidfd: OwnedFd,
    /// CLONE_NEW* of the namespaces to enter; those shared with us are left out.
    pub namespaces: i32,
    /// The container's root directory.
    pub root: OwnedFd,
    /// stdout, stderr; open when the first child starts, the caller's to close after.
    pub output: [RawFd; 2],
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

/// What the children share with us.
struct Shared {
    orders: Orders,
    /// Descriptors the first child keeps, ascending.
    keep: Vec<RawFd>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
    memory: Memory,
    /// Tells the parent that the second child waits; -1 when it does not wait.
    signal: RawFd,
    /// Capabilities that are in our bounding set and not in the container's.
    unbound: u64,
    /// Signals whose disposition must be set to the default, 1 at bit 0.
    reset: u64,
    /// The first child was not born in its v2 cgroup.
    unborn: bool,
    second: AtomicI32,
}

/// A command being started. Whoever drops it without [`Entering::release`] leaks its memory, because a child may use it.
pub struct Entering {
    shared: Option<Box<Shared>>,
    signal: Option<EventFd>,
    /// The first child. Its end is the end of the start, good or bad.
    pub first: OwnedFd,
}

// SAFETY: the raw pointers in `Shared` lead into its own `Orders`, whose heap blocks do not move with it.
unsafe impl Send for Entering {}

fn pointers(v: &[CString]) -> Vec<*const c_char> {
    v.iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

impl Entering {
    /// Starts the first child. EAGAIN and ENOMEM are what clone says.
    pub fn start(orders: Orders) -> Result<Self, Errno> {
        let signal = if orders.wait {
            Some(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC)?)
        } else {
            None
        };
        let owned = [&orders.pidfd, &orders.root]
            .into_iter()
            .chain(&orders.cgroups)
            .chain(&orders.born);
        let lent = orders
            .output
            .into_iter()
            .chain(orders.label.as_ref().map(|_| orders.proc.as_raw_fd()));
        let signalled = signal.as_ref().map(|s| s.as_fd().as_raw_fd());
        let mut keep: Vec<RawFd> = owned
            .map(|f| f.as_raw_fd())
            .chain(lent)
            .chain(signalled)
            .collect();
        keep.sort_unstable();
        let mut shared = Box::new(Shared {
            argv: pointers(&orders.argv),
            envp: pointers(&orders.envp),
            keep,
            memory: Memory::take()?,
            signal: signalled.unwrap_or(-1),
            unbound: bounding(orders.namespaces) & !orders.caps[0],
            reset: ignored(),
            unborn: false,
            second: AtomicI32::new(0),
            orders,
        });
        let all = [u64::MAX];
        let mut old = [0u64];
        // SAFETY: both masks are one 64-bit word, the size given. Signals wait while the child could take our handlers.
        unsafe { sigmask(&all, Some(&mut old)) };
        let first = clone_first(&mut shared);
        // SAFETY: as above.
        unsafe { sigmask(&old, None) };
        Ok(Entering {
            shared: Some(shared),
            signal,
            first: first?,
        })
    }

    /// The host pid of the command's process once it exists; our child, so not reused before we reap it.
    pub fn second(&self) -> Option<i32> {
        let pid = self.shared.as_ref()?.second.load(Ordering::Acquire);
        (pid > 0).then_some(pid)
    }

    /// Readable when the command's process waits for [`Entering::go`]; None when it was not told to wait.
    pub fn signal(&self) -> Option<BorrowedFd<'_>> {
        self.signal.as_ref().map(AsFd::as_fd)
    }

    /// Lets the command's process go on.
    pub fn go(&self) {
        let Some(board) = self.board() else { return };
        board.go.store(1, Ordering::Release);
        // SAFETY: wakes whoever waits for that word, which is mapped as long as `self` has its memory.
        unsafe { libc::syscall(libc::SYS_futex, board.go.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// Whether the command's process came as far as execve.
    pub fn ready(&self) -> bool {
        self.board()
            .is_some_and(|b| b.ready.load(Ordering::Acquire) != 0)
    }

    /// Which step failed, once the children have ended.
    pub fn report(&self) -> Option<Report> {
        Report::decode(self.board()?.report.load(Ordering::Acquire))
    }

    fn board(&self) -> Option<&Board> {
        self.shared.as_ref().map(|s| s.memory.board())
    }

    /// Frees the memory. Only when both children have ended or executed a file, which the caller has seen.
    pub fn release(mut self) {
        if let Some(shared) = self.shared.take() {
            shared.memory.give_back();
        }
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            Box::leak(shared);
        }
    }
}

/// Starts the first child in its v2 cgroup and without our signal handlers where clone3 lets us; else it joins and resets
/// by itself, and an error shows there. In some containers clone3 is forbidden (ENOSYS, EPERM).
fn clone_first(shared: &mut Box<Shared>) -> Result<OwnedFd, Errno> {
    let mut pidfd: RawFd = -1;
    let flags = (libc::CLONE_VM | libc::CLONE_PIDFD) as u64;
    let mut args = CloneArgs {
        flags: flags | CLEAR_SIGHAND,
        pidfd: &raw mut pidfd as u64,
        stack: shared.memory.stack(0) as u64,
        stack_size: STACK as u64,
        ..CloneArgs::default()
    };
    if let Some(born) = &shared.orders.born {
        args.flags |= INTO_CGROUP;
        args.cgroup = born.as_raw_fd() as u64;
    }
    let given = [&raw const args as usize, size_of::<CloneArgs>(), 0, 0, 0];
    let arg: *const Shared = &**shared;
    // SAFETY: the stack is fresh and its own; `shared` is boxed and kept by the caller until the children are gone; `first`
    // makes system calls only; CLONE_PIDFD writes one int. The exit signal 0 hides the child from everyone who waits for
    // "any child".
    let mut pid = unsafe { raw::clone(libc::SYS_clone3, given, first, arg.cast::<c_void>()) };
    if pid < 0 {
        (shared.unborn, shared.reset) = (true, u64::MAX);
        let end = shared.memory.stack(0).wrapping_add(STACK);
        let arg: *const Shared = &**shared;
        let given = [flags as usize, end as usize, &raw mut pidfd as usize, 0, 0];
        // SAFETY: as above; no child came of the first call.
        pid = unsafe { raw::clone(libc::SYS_clone, given, first, arg.cast::<c_void>()) };
    }
    if pid < 0 {
        return Err(Errno::from_raw(-pid as i32));
    }
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// The bounding set that a child has after it entered those namespaces: ours, or every capability of the kernel in a user
/// namespace of its own.
fn bounding(namespaces: i32) -> u64 {
    static OURS: OnceLock<[u64; 2]> = OnceLock::new();
    let [all, ours] = *OURS.get_or_init(|| {
        // SAFETY: PR_CAPBSET_READ takes integers only. It fails for what this kernel does not know.
        let read = |cap: u64| unsafe { libc::prctl(libc::PR_CAPBSET_READ, cap, 0, 0, 0) };
        (0..64)
            .map(|cap| (1u64 << cap, read(cap)))
            .fold([0; 2], |[all, ours], (bit, r)| {
                [
                    all | if r >= 0 { bit } else { 0 },
                    ours | if r > 0 { bit } else { 0 },
                ]
            })
    });
    if namespaces & libc::CLONE_NEWUSER != 0 {
        all
    } else {
        ours
    }
}

/// Signals that this process ignores, which neither clone3 nor execve undoes. Read once: they are set by whoever started
/// us and by Rust's start of `main`, and by nothing later.
fn ignored() -> u64 {
    static IGNORED: OnceLock<u64> = OnceLock::new();
    let is = |signal: usize| {
        let mut now = [0usize; 4];
        call(
            libc::SYS_rt_sigaction,
            [signal, 0, now.as_mut_ptr() as usize, 8, 0],
        )
        .is_ok()
            && now[0] == libc::SIG_IGN
    };
    *IGNORED.get_or_init(|| (1..=64).filter(|s| is(*s)).fold(0, |m, s| m | 1 << (s - 1)))
}

/// # Safety
/// Changes the mask of the calling task only; call in pairs.
unsafe fn sigmask(new: &[u64; 1], old: Option<&mut [u64; 1]>) {
    let old = old.map_or(0, |o| o.as_mut_ptr() as usize);
    // SAFETY: both masks are 8 bytes, as the last argument says; a null old mask is not written.
    unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as usize, new.as_ptr() as usize, old, 8, 0],
        )
    };
}

/// A call whose arguments are integers or addresses of data that outlives it.
fn call(n: libc::c_long, a: [usize; 5]) -> Result<usize, i32> {
    // SAFETY: every caller below passes what its call expects: descriptors, flags, and addresses inside `Shared`, static
    // strings or its own frame, of the size the call uses.
    let r = unsafe { raw::syscall(n, a) };
    if r < 0 {
        Err(-r as i32)
    } else {
        Ok(r as usize)
    }
}

fn exit() -> ! {
    loop {
        let _ = call(libc::SYS_exit_group, [127, 0, 0, 0, 0]);
    }
}

fn report(s: &Shared, step: Step, index: usize, errno: i32) {
    s.memory
        .board()
        .report
        .store(Report::encode(step, index, errno), Ordering::Release);
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
    join_cgroups(s);
    for (i, (resource, soft, hard)) in o.rlimits.iter().enumerate() {
        let new = [*soft, *hard];
        must(
            s,
            Step::Rlimit,
            i,
            call(
                libc::SYS_prlimit64,
                [0, *resource as usize, new.as_ptr() as usize, 0, 0],
            ),
        );
    }
    leave_keyring(s);
    set_label(s);
    if o.namespaces != 0 {
        must(
            s,
            Step::Setns,
            0,
            call(
                libc::SYS_setns,
                [fd(&o.pidfd), o.namespaces as usize, 0, 0, 0],
            ),
        );
    }
    must(
        s,
        Step::Root,
        0,
        call(libc::SYS_fchdir, [fd(&o.root), 0, 0, 0, 0]),
    );
    must(
        s,
        Step::Root,
        1,
        call(libc::SYS_chroot, [c".".as_ptr() as usize, 0, 0, 0, 0]),
    );
    place_stdio(s);
    drop_privileges(s);
    // Nothing stays open for the process that the container will see.
    close_but(s, s.signal);
    let mut flags = libc::CLONE_PARENT | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
    if !o.isolate {
        flags |= libc::CLONE_VM;
    }
    let end = s.memory.stack(1).wrapping_add(STACK);
    let given = [
        flags as usize,
        end as usize,
        s.second.as_ptr() as usize,
        0,
        0,
    ];
    let arg: *const Shared = s;
    // SAFETY: the second stack is used by nobody else, `s` lives on, `second` makes system calls only, and the kernel
    // writes one int, atomically, into `s.second`.
    let pid = unsafe { raw::clone(libc::SYS_clone, given, second, arg.cast::<c_void>()) };
    must(
        s,
        Step::Clone,
        0,
        if pid < 0 { Err(-pid as i32) } else { Ok(0) },
    );
    exit()
}

/// By v1's `tasks`, not `cgroup.procs`: for the one thread that we are it is the same, and the kernel moves a thread that
/// moves itself without the lock of all processes, whose writer waits for a grace period (up to tens of milliseconds).
fn join_cgroups(s: &Shared) {
    let write = |f: usize| call(libc::SYS_write, [f, c"0".as_ptr() as usize, 1, 0, 0]);
    for (i, f) in s.orders.cgroups.iter().enumerate() {
        must(s, Step::Cgroup, i, write(fd(f)));
    }
    if let (true, Some(dir)) = (s.unborn, &s.orders.born) {
        let i = s.orders.cgroups.len();
        let given = [
            fd(dir),
            c"cgroup.procs".as_ptr() as usize,
            (libc::O_WRONLY | libc::O_CLOEXEC) as usize,
            0,
            0,
        ];
        let f = must(s, Step::Cgroup, i, call(libc::SYS_openat, given));
        must(s, Step::Cgroup, i, write(f));
    }
}

/// Closes everything from 3 on but that one.
fn close_but(s: &Shared, but: RawFd) {
    let from = (but + 1).max(3) as usize;
    if but > 3 {
        must(
            s,
            Step::Close,
            0,
            call(libc::SYS_close_range, [3, (but - 1) as usize, 0, 0, 0]),
        );
    }
    must(
        s,
        Step::Close,
        1,
        call(libc::SYS_close_range, [from, u32::MAX as usize, 0, 0, 0]),
    );
}

/// Closes the first child's copies of all descriptors of the daemon but the needed ones: pipes of other execs among
/// them, whose readers wait for their end.
fn close_others(s: &Shared) {
    let mut from = 3u32;
    for f in &s.keep {
        let f = *f as u32;
        if f > from {
            must(
                s,
                Step::Close,
                2,
                call(
                    libc::SYS_close_range,
                    [from as usize, f.wrapping_sub(1) as usize, 0, 0, 0],
                ),
            );
        }
        from = f.wrapping_add(1);
    }
    must(
        s,
        Step::Close,
        3,
        call(
            libc::SYS_close_range,
            [from as usize, u32::MAX as usize, 0, 0, 0],
        ),
    );
}

/// An empty session keyring, as an OCI runtime gives one: the daemon's may hold keys of whoever started it. A kernel
/// without keyrings, or a node that is itself a container without them, has none to leave.
fn leave_keyring(s: &Shared) {
    match call(
        libc::SYS_keyctl,
        [libc::KEYCTL_JOIN_SESSION_KEYRING as usize, 0, 0, 0, 0],
    ) {
        Err(libc::ENOSYS | libc::EPERM) => {}
        other => drop(must(s, Step::Keyring, 0, other)),
    }
}

fn set_label(s: &Shared) {
    let Some((path, text)) = &s.orders.label else {
        return;
    };
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    let f = must(
        s,
        Step::Label,
        0,
        call(
            libc::SYS_openat,
            [
                s.orders.proc.as_raw_fd() as usize,
                path.as_ptr() as usize,
                flags,
                0,
                0,
            ],
        ),
    );
    must(
        s,
        Step::Label,
        1,
        call(
            libc::SYS_write,
            [f, text.as_ptr() as usize, text.len(), 0, 0],
        ),
    );
}

/// stdin from the container's own `/dev/null` (a descriptor of the host's would let the container change its mode), or,
/// where that is not the null device, from a pipe at its end.
fn place_stdio(s: &Shared) {
    let o = &s.orders;
    let flags =
        (libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_CLOEXEC)
            as usize;
    let opened = call(
        libc::SYS_openat,
        [
            libc::AT_FDCWD as usize,
            c"/dev/null".as_ptr() as usize,
            flags,
            0,
            0,
        ],
    );
    let stdin = opened
        .ok()
        .filter(|f| is_null(*f))
        .unwrap_or_else(|| ended_pipe(s));
    let _ = call(libc::SYS_fcntl, [stdin, libc::F_SETFL as usize, 0, 0, 0]);
    // The pipes are of the ids that we had when we made them, and still have.
    let ours = [libc::SYS_geteuid, libc::SYS_getegid].map(|n| call(n, [0; 5]));
    for (to, from) in [stdin, o.output[0] as usize, o.output[1] as usize]
        .into_iter()
        .enumerate()
    {
        must(
            s,
            Step::Stdio,
            to,
            call(libc::SYS_dup3, [from, to, 0, 0, 0]),
        );
        if to > 0 && ours != [Ok(o.uid as usize), Ok(o.gid as usize)] {
            // So that a command of another uid can open /dev/stdout; an unmapped id is no reason to fail.
            let _ = call(libc::SYS_fchown, [to, o.uid as usize, o.gid as usize, 0, 0]);
        }
    }
}

/// The reading end of a pipe that nobody writes to.
fn ended_pipe(s: &Shared) -> usize {
    let mut ends = [0i32; 2];
    must(
        s,
        Step::Stdio,
        0,
        call(
            libc::SYS_pipe2,
            [
                ends.as_mut_ptr() as usize,
                libc::O_CLOEXEC as usize,
                0,
                0,
                0,
            ],
        ),
    );
    let _ = call(libc::SYS_close, [ends[1] as usize, 0, 0, 0, 0]);
    ends[0] as usize
}

fn is_null(f: usize) -> bool {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let r = call(libc::SYS_fstat, [f, st.as_mut_ptr() as usize, 0, 0, 0]);
    // SAFETY: zeroed, and filled by the kernel, whose `struct stat` is libc's on the 64-bit architectures supported.
    let st = unsafe { st.assume_init() };
    r.is_ok() && st.st_mode & libc::S_IFMT == libc::S_IFCHR && st.st_rdev == 0x103
}

/// exec-in-container 3, steps 7 to 12: from here on this process may do no more than the container.
fn drop_privileges(s: &Shared) {
    let o = &s.orders;
    let prctl =
        |option: i32, a: usize, b: usize| call(libc::SYS_prctl, [option as usize, a, b, 0, 0]);
    let [_, effective, permitted, inheritable, ambient] = o.caps;
    let _ = call(libc::SYS_umask, [o.umask as usize, 0, 0, 0, 0]);
    for cap in (0..64usize).filter(|c| s.unbound & (1 << (c & 63)) != 0) {
        must(s, Step::Bounding, cap, prctl(libc::PR_CAPBSET_DROP, cap, 0));
    }
    // Uid 0 keeps its capabilities anyway.
    let keep = |on: usize| {
        if o.uid == 0 {
            Ok(0)
        } else {
            prctl(libc::PR_SET_KEEPCAPS, on, 0)
        }
    };
    let _ = keep(1);
    let groups = call(
        libc::SYS_setgroups,
        [o.groups.len(), o.groups.as_ptr() as usize, 0, 0, 0],
    );
    // A user namespace may forbid setgroups; then there is none to drop either.
    let forbidden = o.groups.is_empty()
        && o.namespaces & libc::CLONE_NEWUSER != 0
        && groups == Err(libc::EPERM);
    must(s, Step::Groups, 0, if forbidden { Ok(0) } else { groups });
    let (uid, gid) = (o.uid as usize, o.gid as usize);
    must(
        s,
        Step::Gid,
        0,
        call(libc::SYS_setresgid, [gid, gid, gid, 0, 0]),
    );
    must(
        s,
        Step::Uid,
        0,
        call(libc::SYS_setresuid, [uid, uid, uid, 0, 0]),
    );
    let _ = keep(0);
    let header = CapHeader {
        version: CAP_VERSION_3,
        pid: 0,
    };
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
        must(
            s,
            Step::Seccomp,
            0,
            call(
                libc::SYS_capset,
                [&raw const header as usize, admin.as_ptr() as usize, 0, 0, 0],
            ),
        );
        apply_seccomp(s);
    }
    must(
        s,
        Step::Capabilities,
        0,
        call(
            libc::SYS_capset,
            [&raw const header as usize, data.as_ptr() as usize, 0, 0, 0],
        ),
    );
    let _ = prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL as usize,
        0,
    );
    for cap in (0..64usize).filter(|c| ambient & (1 << (c & 63)) != 0) {
        must(
            s,
            Step::Capabilities,
            1,
            prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as usize,
                cap,
            ),
        );
    }
    change_directory(s);
    if o.no_new_privs {
        must(
            s,
            Step::NoNewPrivs,
            0,
            prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0),
        );
    }
    // The change of uid set it to fs.suid_dumpable, for the memory and so for everyone who shares it.
    let _ = prctl(libc::PR_SET_DUMPABLE, 0, 0);
}

/// From here on every call is subject to it.
fn apply_seccomp(s: &Shared) {
    let Some((program, flags)) = &s.orders.seccomp else {
        return;
    };
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let arguments = [
        libc::SECCOMP_SET_MODE_FILTER as usize,
        *flags as usize,
        &raw const program as usize,
        0,
        0,
    ];
    must(s, Step::Seccomp, 1, call(libc::SYS_seccomp, arguments));
}

/// `cwd` must lie inside the root: the kernel marks one that does not (CVE-2024-21626).
fn change_directory(s: &Shared) {
    must(
        s,
        Step::Cwd,
        0,
        call(
            libc::SYS_chdir,
            [s.orders.cwd.as_ptr() as usize, 0, 0, 0, 0],
        ),
    );
    let mut path = [0u8; libc::PATH_MAX as usize];
    must(
        s,
        Step::Cwd,
        1,
        call(
            libc::SYS_getcwd,
            [path.as_mut_ptr() as usize, path.len(), 0, 0, 0],
        ),
    );
    if path.first() != Some(&b'/') {
        must(s, Step::Cwd, 2, Err(libc::EPERM));
    }
}

extern "C" fn second(arg: *const c_void) -> ! {
    // SAFETY: as in `first`.
    let s = unsafe { &*arg.cast::<Shared>() };
    must(s, Step::Session, 0, call(libc::SYS_setsid, [0; 5]));
    // A daemon that is killed leaves no probe behind that nobody times out.
    let _ = call(
        libc::SYS_prctl,
        [
            libc::PR_SET_PDEATHSIG as usize,
            libc::SIGKILL as usize,
            0,
            0,
            0,
        ],
    );
    let nothing = [0u64; 4];
    for signal in (1..=64usize).filter(|n| s.reset & (1 << ((n - 1) & 63)) != 0) {
        let _ = call(
            libc::SYS_rt_sigaction,
            [signal, nothing.as_ptr() as usize, 0, 8, 0],
        );
    }
    if s.signal >= 0 {
        wait_for_word(s);
    }
    // SAFETY: an empty mask of 8 bytes; all handlers are the default ones by now.
    unsafe { sigmask(&[0], None) };
    let _ = call(
        libc::SYS_close_range,
        [
            3,
            u32::MAX as usize,
            libc::CLOSE_RANGE_CLOEXEC as usize,
            0,
            0,
        ],
    );
    if s.orders.no_new_privs {
        apply_seccomp(s);
    }
    s.memory.board().ready.store(1, Ordering::Release);
    report(s, Step::Exec, 0, execute(s));
    exit()
}

/// Tells the parent that we wait, and goes on when it says so; never when it does not.
fn wait_for_word(s: &Shared) {
    let (one, go) = (1u64, &s.memory.board().go);
    let limit = [WORD_LIMIT, 0];
    let _ = call(
        libc::SYS_write,
        [s.signal as usize, &raw const one as usize, 8, 0, 0],
    );
    let given = [
        go.as_ptr() as usize,
        libc::FUTEX_WAIT as usize,
        0,
        limit.as_ptr() as usize,
        0,
    ];
    while go.load(Ordering::Acquire) == 0 {
        match call(libc::SYS_futex, given) {
            Ok(_) | Err(libc::EAGAIN | libc::EINTR) => {}
            Err(_) => exit(),
        }
    }
}

/// Tries each file as execvp does; comes back with the errno that says most.
fn execute(s: &Shared) -> i32 {
    let mut errno = libc::ENOENT;
    for f in &s.orders.files {
        let r = call(
            libc::SYS_execve,
            [
                f.as_ptr() as usize,
                s.argv.as_ptr() as usize,
                s.envp.as_ptr() as usize,
                0,
                0,
            ],
        );
        match r.err().unwrap_or(0) {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => errno = libc::EACCES,
            other => return other,
        }
    }
    errno
}

/// Makes clone3 fail in the calling thread, for good, as it does in some containers.
#[cfg(test)]
pub(crate) fn forbid_clone3() {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::SYS_clone3 as u32,
            1,
        ),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            0,
        ),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a filter of four statements, which the kernel copies. It forbids what every caller of clone3 must expect.
    Errno::result(unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
            0,
            0,
        )
    })
    .unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_was_given() {
        for (step, index, errno) in [
            (Step::Cgroup, 0, 1),
            (Step::Rlimit, 15, libc::EINVAL),
            (Step::Exec, 255, 133),
        ] {
            let got = Report::decode(Report::encode(step, index, errno));
            assert_eq!(
                got,
                Some(Report {
                    step,
                    index,
                    errno: Errno::from_raw(errno)
                })
            );
        }
        assert_eq!(Report::decode(0), None);
    }
}
