//! The system call bpf(2): loads programs and attaches them to cgroups.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// An instruction in the kernel's form: operation, registers, offset and constant in eight bytes.
pub type Instruction = [u8; 8];

/// The type of a program (`enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramType {
    /// Decides how many bytes of a packet a socket receives.
    SocketFilter = 1,
    /// Decides which device files the processes of a cgroup may make and open.
    CgroupDevice = 15,
}

const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
/// `BPF_CGROUP_DEVICE` of `enum bpf_attach_type`.
const CGROUP_DEVICE: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: the programs of cgroups above and below apply as well, and each of them can refuse.
const ALLOW_MULTI: u32 = 2;

/// Loads a program. The program stays in the kernel as long as its descriptor, or as long as the cgroup or socket to
/// which the program is attached.
///
/// # Errors
/// Returns EPERM without CAP_BPF or CAP_SYS_ADMIN, ENOSYS or EINVAL if the kernel does not know the program type, and
/// EACCES if its verifier refuses the program.
pub fn load(kind: ProgramType, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Load {
        program_type: u32,
        count: u32,
        instructions: u64,
        license: u64,
    }
    let license = c"";
    let load = Load {
        program_type: kind as u32,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
    };
    // SAFETY: BPF_PROG_LOAD reads a structure of this layout and size (a prefix of bpf_attr, the rest counts as zero), the
    // instructions and the licence it points to, during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
    let fd = fd.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: bpf(2) has just opened the descriptor, close-on-exec, and no other code knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a device program to a cgroup of v2. The program applies to every process in the cgroup and below it, until the
/// cgroup is removed.
///
/// # Errors
/// Returns EPERM without CAP_BPF and CAP_NET_ADMIN, or if a cgroup above has a program that allows no other. Returns EBADF
/// if the directory is not a cgroup of v2.
pub fn attach_to_cgroup(program: &OwnedFd, cgroup: &impl AsFd) -> io::Result<()> {
    #[repr(C)]
    struct Attach {
        target: u32,
        program: u32,
        attach_type: u32,
        flags: u32,
    }
    let attach = Attach {
        target: cgroup.as_fd().as_raw_fd() as u32,
        program: program.as_raw_fd() as u32,
        attach_type: CGROUP_DEVICE,
        flags: ALLOW_MULTI,
    };
    // SAFETY: BPF_PROG_ATTACH reads a structure of this layout and size (a prefix of bpf_attr, the rest counts as zero)
    // during the call; both descriptors are open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_ATTACH,
            &raw const attach,
            size_of::<Attach>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
