//! Sets the limits and identity that a process needs before it becomes a program in a container, and drops its privileges.
//! Commands and a container's own first process go through the same steps, so that both have the same rights.
//!
//! Invariants: these functions do not allocate and take no lock, except [`take_on`] and [`drop_to`]. Only a process with its
//! own memory calls these two.

use std::sync::OnceLock;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::stat::{Mode, umask};
use nix::unistd::chdir;

use super::orders::{Orders, Received};
use super::report::{At, Report, Step};
use super::shared_steps::filter_system_calls;
use crate::base::sys::process::{new_session_keyring, set_capabilities};
use crate::base::sys::raw;

/// CAP_SYS_ADMIN as a bit mask.
const SYS_ADMIN: u64 = 1 << 21;

/// Sets limits, an empty session keyring and the label of the coming program. Call it while /proc is still the node's.
///
/// # Errors
/// Returns a [`Report`] with the step that failed, and the reason.
pub fn take_on(orders: &Orders) -> Result<(), Report> {
    received(&orders.encode(), take_limits)
}

/// Drops all rights that the container does not have. Call it in the container's root and namespaces. If no_new_privs
/// is on and the container cannot trace this process, the filter of system calls is not applied yet: the caller applies
/// the filter last.
///
/// # Errors
/// Returns a [`Report`] with the step that failed, and the reason.
pub fn drop_to(orders: &Orders) -> Result<(), Report> {
    received(&orders.encode(), |o| drop_privileges(o, unbound(o)))
}

fn received(
    message: &[u8],
    step: impl FnOnce(&Received<'_>) -> Result<(), Report>,
) -> Result<(), Report> {
    match Received::decode(message) {
        Some(o) => step(&o),
        None => Err(Errno::EBADMSG).at(Step::Clone, 0),
    }
}

/// Sets resource limits, an empty session keyring, and the label of the coming program.
pub(super) fn take_limits(o: &Received<'_>) -> Result<(), Report> {
    for (i, (resource, soft, hard)) in o.rlimits.iter().enumerate() {
        set_limit(*resource, [*soft, *hard]).at(Step::Rlimit, i)?;
    }
    leave_keyring()?;
    // The kernel passes the label on to the second child and applies it at that child's execve. The label is set now,
    // because later the file may be out of sight, and no_new_privs or the seccomp profile may forbid the write.
    if let Some((path, text)) = o.label {
        let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty());
        let file = file.at(Step::Label, 0)?;
        nix::unistd::write(&file, text).at(Step::Label, 1)?;
    }
    Ok(())
}

fn set_limit(resource: u32, limit: [u64; 2]) -> nix::Result<()> {
    let null = std::ptr::null_mut::<[u64; 2]>();
    // SAFETY: prlimit64 reads a structure of two 64-bit numbers, soft and hard, and writes no old one to null.
    Errno::result(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, limit.as_ptr(), null) })
        .map(drop)
}

/// Joins a new, empty session keyring, as an OCI runtime does. The daemon's keyring may hold keys of the person who started
/// the daemon. If podprobe itself runs in a container, EPERM is ignored, because there is no keyring to leave.
fn leave_keyring() -> Result<(), Report> {
    match new_session_keyring() {
        Err(e) if e.raw_os_error() != Some(libc::EPERM) => {
            let errno = Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
            Err(errno).at(Step::Keyring, 0)
        }
        _ => Ok(()),
    }
}

/// Returns a mask of the capabilities that a process must drop from its bounding set after it has entered its namespaces.
pub(super) fn unbound(o: &Received<'_>) -> u64 {
    static OURS: OnceLock<u64> = OnceLock::new();
    // SAFETY: PR_CAPBSET_READ takes numbers only. It fails for a capability that this kernel does not know.
    let read = |cap: libc::c_ulong| unsafe { libc::prctl(libc::PR_CAPBSET_READ, cap, 0, 0, 0) };
    let ours = OURS.get_or_init(|| {
        let has = (0..64).filter(|cap| read(*cap) > 0);
        has.fold(0, |ours, cap| ours | 1u64 << cap)
    });
    ours & !o.caps[0]
}

/// Drops the privileges (exec-in-container 3, steps 7 to 12). Afterwards this process may do no more than the container.
pub(super) fn drop_privileges(o: &Received<'_>, unbound: u64) -> Result<(), Report> {
    let [_, effective, permitted, inheritable, ambient] = o.caps;
    umask(Mode::from_bits_truncate(o.umask));
    for cap in bits(unbound) {
        capability_prctl([libc::PR_CAPBSET_DROP, cap, 0]).at(Step::Bounding, cap as usize)?;
    }
    // Like runc, this function tries to enter the directory before the ids change, because the container's user may not
    // be allowed to enter the directory.
    let is_there = chdir(o.cwd).is_ok();
    // A process with uid 0 keeps its capabilities in any case.
    if o.uid != 0 {
        let _ = prctl::set_keepcaps(true);
    }
    set_ids(o)?;
    if o.uid != 0 {
        let _ = prctl::set_keepcaps(false);
    }
    // If the container may trace the second child, that child has its filter from the start. Without no_new_privs,
    // setting the filter needs CAP_SYS_ADMIN, which the second child never has.
    if o.traceable || !o.no_new_privs {
        if o.seccomp.is_some() {
            let [p, e] = [permitted | SYS_ADMIN, effective | SYS_ADMIN];
            set_capabilities(e, p, inheritable).at(Step::Seccomp, 0)?;
        }
        filter_system_calls(o)?;
    }
    set_capabilities(effective, permitted, inheritable).at(Step::Capabilities, 0)?;
    let _ = capability_prctl([libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0]);
    for cap in bits(ambient) {
        capability_prctl([libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, cap])
            .at(Step::Capabilities, 1)?;
    }
    if !is_there {
        chdir(o.cwd).at(Step::Cwd, 0)?;
    }
    check_directory()?;
    if o.no_new_privs {
        prctl::set_no_new_privs().at(Step::NoNewPrivs, 0)?;
    }
    // The change of uid has set the dumpable flag to fs.suid_dumpable, so the flag is cleared again.
    let _ = prctl::set_dumpable(false);
    Ok(())
}

fn bits(mask: u64) -> impl Iterator<Item = i32> {
    (0..64).filter(move |bit| mask >> bit & 1 == 1)
}

/// Changes the bounding or the ambient set. The argument is the option of prctl(2) and two numbers.
fn capability_prctl([option, a, b]: [i32; 3]) -> nix::Result<()> {
    let [a, b] = [a, b].map(|n| n as libc::c_ulong);
    // SAFETY: the callers' options, PR_CAPBSET_DROP and PR_CAP_AMBIENT, take numbers only.
    Errno::result(unsafe { libc::prctl(option, a, b, 0, 0) }).map(drop)
}

fn set_ids(o: &Received<'_>) -> Result<(), Report> {
    // SAFETY: the kernel reads as many group ids as the slice has. The system calls here are made without libc, which
    // would look for other threads. This process has none.
    Errno::result(unsafe { libc::syscall(raw::SYS_setgroups, o.groups.len(), o.groups.as_ptr()) })
        .at(Step::Groups, 0)?;
    // SAFETY: setresgid takes three numbers.
    Errno::result(unsafe { libc::syscall(raw::SYS_setresgid, o.gid, o.gid, o.gid) })
        .at(Step::Gid, 0)?;
    // SAFETY: setresuid takes three numbers.
    Errno::result(unsafe { libc::syscall(raw::SYS_setresuid, o.uid, o.uid, o.uid) })
        .at(Step::Uid, 0)?;
    Ok(())
}

/// Checks that the working directory is inside the root. For a directory outside of it, getcwd gives no path that begins
/// with `/` (CVE-2024-21626).
fn check_directory() -> Result<(), Report> {
    let mut path = [0u8; libc::PATH_MAX as usize];
    // SAFETY: getcwd writes at most as many bytes as the buffer has. The getcwd of libc would hide a path outside of
    // the root.
    Errno::result(unsafe { libc::syscall(libc::SYS_getcwd, path.as_mut_ptr(), path.len()) })
        .at(Step::Cwd, 1)?;
    if path.first() != Some(&b'/') {
        return Err(Errno::EPERM).at(Step::Cwd, 2);
    }
    Ok(())
}
