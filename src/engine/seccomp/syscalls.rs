//! Names of system calls and their numbers, for each ABI that a program on this machine can use.
//!
//! A table lists names in the order of their numbers. A number before a name sets the number of this name. The tables go
//! up to Linux 6.17. A name that is missing in the tables cannot be allowed: its call gets the profile's default action.

use std::sync::OnceLock;

/// An ABI of the kernel. Two ABIs may have the same value in `seccomp_data.arch`. In this case a bit in the number of a
/// call distinguishes them.
pub(super) struct Abi {
    /// Name of the ABI in an OCI profile.
    pub(super) name: &'static str,
    /// Value of the ABI in `seccomp_data.arch`: an `AUDIT_ARCH_…`.
    pub(super) audit: u32,
    /// Bit that is set in the number of each call of the ABI; 0 means that there is no such bit.
    pub(super) bit: u32,
    table: &'static str,
    /// Names and numbers that replace those in `table`.
    special: &'static str,
    /// Numbers by name, sorted by name. The list is not a hash map and is not sorted by a call of sort, because both
    /// would make the program file larger.
    known: OnceLock<Vec<(&'static str, u32)>>,
}

impl Abi {
    const fn new(
        name: &'static str,
        audit: u32,
        bit: u32,
        table: &'static str,
        special: &'static str,
    ) -> Self {
        Self {
            name,
            audit,
            bit,
            table,
            special,
            known: OnceLock::new(),
        }
    }

    /// Returns the number of the call `name`, without [`Self::bit`]. Returns None if this ABI has no such call.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let known = self.known.get_or_init(|| {
            let mut known = Vec::new();
            for text in [self.table, self.special] {
                parse(text, &mut known);
            }
            known
        });
        find(known, name).ok().map(|n| known[n].1)
    }
}

/// The bit that distinguishes an x32 call from an x86-64 call.
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// The ABIs that this machine's kernel can run. The machine's own ABI is the first.
#[cfg(target_arch = "x86_64")]
pub(super) static ABIS: [Abi; 3] = [
    Abi::new("SCMP_ARCH_X86_64", 0xc000_003e, 0, X86_64, ""),
    Abi::new("SCMP_ARCH_X86", 0x4000_0003, 0, X86, ""),
    Abi::new("SCMP_ARCH_X32", 0xc000_003e, X32_BIT, X86_64, X32),
];

/// The ABIs that this machine's kernel can run. The machine's own ABI is the first.
#[cfg(target_arch = "aarch64")]
pub(super) static ABIS: [Abi; 2] = [
    Abi::new("SCMP_ARCH_AARCH64", 0xc000_00b7, 0, AARCH64, ""),
    Abi::new("SCMP_ARCH_ARM", 0x4000_0028, 0, ARM, ""),
];

/// The only ABI that this machine's kernel can run.
#[cfg(target_arch = "arm")]
pub(super) static ABIS: [Abi; 1] = [Abi::new("SCMP_ARCH_ARM", 0x4000_0028, 0, ARM, "")];

/// Finds a name in the sorted list: Ok with its position, or Err with the position at which it would be inserted.
fn find(known: &[(&'static str, u32)], name: &str) -> Result<usize, usize> {
    known.binary_search_by(|(k, _)| (*k).cmp(name))
}

/// Adds the names of a table to the list `known`. If a name is in the list already, its number is replaced.
fn parse(table: &'static str, known: &mut Vec<(&'static str, u32)>) {
    let mut next = 0;
    for word in table.split_ascii_whitespace() {
        match (word.parse(), find(known, word)) {
            (Ok(number), _) => next = number,
            (_, place) => {
                match place {
                    Ok(n) => known[n].1 = next,
                    Err(n) => known.insert(n, (word, next)),
                }
                next += 1;
            }
        }
    }
}

// Names and numbers of the calls on x86-64. The tables of all machines are in the tests of every machine, which compare
// the tables with one another.
#[cfg(any(test, target_arch = "x86_64"))]
const X86_64: &str = "\
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn \
    ioctl pread64 pwrite64 readv writev access pipe select sched_yield mremap msync mincore madvise shmget shmat shmctl \
    dup dup2 pause nanosleep getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg \
    recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone fork vfork execve exit \
    wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv msgctl fcntl flock fsync fdatasync truncate ftruncate \
    getdents getcwd chdir fchdir rename mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown \
    umask gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid geteuid getegid setpgid \
    getppid getpgrp setsid setreuid setregid getgroups setgroups setresuid getresuid setresgid getresgid getpgid setfsuid \
    setfsgid getsid capget capset rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod \
    uselib personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam sched_setscheduler \
    sched_getscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval mlock munlock mlockall \
    munlockall vhangup modify_ldt pivot_root _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday \
    mount umount2 swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module delete_module \
    get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall tuxcall security gettid readahead \
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr \
    fremovexattr tkill time futex sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents \
    io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old remap_file_pages \
    getdents64 set_tid_address restart_syscall semtimedop fadvise64 timer_create timer_settime timer_gettime \
    timer_getoverrun timer_delete clock_settime clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl \
    tgkill utimes vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify \
    mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch \
    inotify_rm_watch migrate_pages openat mkdirat mknodat fchownat futimesat newfstatat unlinkat renameat linkat symlinkat \
    readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range \
    vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime \
    accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open \
    recvmmsg fanotify_init fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns \
    getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom \
    memfd_create kexec_file_load bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect \
    pkey_alloc pkey_free statx io_pgetevents rseq uretprobe 424 pidfd_send_signal io_uring_setup io_uring_enter \
    io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 \
    pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat \
    fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr \
    lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

/// The calls that have other numbers on x32 than on x86-64.
#[cfg(target_arch = "x86_64")]
const X32: &str = "\
    512 rt_sigaction rt_sigreturn ioctl readv writev recvfrom sendmsg recvmsg execve ptrace rt_sigpending rt_sigtimedwait \
    rt_sigqueueinfo sigaltstack timer_create mq_notify kexec_load waitid set_robust_list get_robust_list vmsplice move_pages \
    preadv pwritev rt_tgsigqueueinfo recvmmsg sendmmsg process_vm_readv process_vm_writev setsockopt getsockopt io_setup \
    io_submit execveat preadv2 pwritev2";

#[cfg(any(test, target_arch = "x86_64"))]
const X86: &str = "\
    restart_syscall exit fork read write open close waitpid creat link unlink execve chdir time mknod chmod lchown break \
    oldstat lseek getpid mount umount setuid getuid stime ptrace alarm oldfstat pause utime stty gtty access nice ftime \
    sync kill rename mkdir rmdir dup pipe times prof brk setgid getgid signal geteuid getegid acct umount2 lock ioctl \
    fcntl mpx setpgid ulimit oldolduname umask chroot ustat dup2 getppid getpgrp setsid sigaction sgetmask ssetmask \
    setreuid setregid sigsuspend sigpending sethostname setrlimit getrlimit getrusage gettimeofday settimeofday getgroups \
    setgroups select symlink oldlstat readlink uselib swapon reboot readdir mmap munmap truncate ftruncate fchmod fchown \
    getpriority setpriority profil statfs fstatfs ioperm socketcall syslog setitimer getitimer stat lstat fstat olduname \
    iopl vhangup idle vm86old wait4 swapoff sysinfo ipc fsync sigreturn clone setdomainname uname modify_ldt adjtimex \
    mprotect sigprocmask create_module init_module delete_module get_kernel_syms quotactl getpgid fchdir bdflush sysfs \
    personality afs_syscall setfsuid setfsgid _llseek getdents _newselect flock msync readv writev getsid fdatasync \
    _sysctl mlock munlock mlockall munlockall sched_setparam sched_getparam sched_setscheduler sched_getscheduler \
    sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval nanosleep mremap setresuid getresuid \
    vm86 query_module poll nfsservctl setresgid getresgid prctl rt_sigreturn rt_sigaction rt_sigprocmask rt_sigpending \
    rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend pread64 pwrite64 chown getcwd capget capset sigaltstack sendfile getpmsg \
    putpmsg vfork ugetrlimit mmap2 truncate64 ftruncate64 stat64 lstat64 fstat64 lchown32 getuid32 getgid32 geteuid32 \
    getegid32 setreuid32 setregid32 getgroups32 setgroups32 fchown32 setresuid32 getresuid32 setresgid32 getresgid32 \
    chown32 setuid32 setgid32 setfsuid32 setfsgid32 pivot_root mincore madvise getdents64 fcntl64 224 gettid readahead \
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr \
    fremovexattr tkill sendfile64 futex sched_setaffinity sched_getaffinity set_thread_area get_thread_area io_setup \
    io_destroy io_getevents io_submit io_cancel fadvise64 252 exit_group lookup_dcookie epoll_create epoll_ctl epoll_wait \
    remap_file_pages set_tid_address timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime \
    clock_gettime clock_getres clock_nanosleep statfs64 fstatfs64 tgkill utimes fadvise64_64 vserver mbind get_mempolicy \
    set_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr kexec_load waitid 286 add_key \
    request_key keyctl ioprio_set ioprio_get inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat \
    mknodat fchownat futimesat fstatat64 unlinkat renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll \
    unshare set_robust_list get_robust_list splice sync_file_range tee vmsplice move_pages getcpu epoll_pwait utimensat \
    signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime signalfd4 eventfd2 epoll_create1 dup3 pipe2 \
    inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init fanotify_mark prlimit64 \
    name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns process_vm_readv process_vm_writev kcmp \
    finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat socket socketpair bind \
    connect listen accept4 getsockopt setsockopt getsockname getpeername sendto sendmsg recvfrom recvmsg shutdown \
    userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx arch_prctl \
    io_pgetevents rseq 393 semget semctl shmget shmctl shmat shmdt msgget msgsnd msgrcv msgctl clock_gettime64 \
    clock_settime64 clock_adjtime64 clock_getres_time64 clock_nanosleep_time64 timer_gettime64 timer_settime64 \
    timerfd_gettime64 timerfd_settime64 utimensat_time64 pselect6_time64 ppoll_time64 416 io_pgetevents_time64 \
    recvmmsg_time64 mq_timedsend_time64 mq_timedreceive_time64 semtimedop_time64 rt_sigtimedwait_time64 futex_time64 \
    sched_rr_get_interval_time64 pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount \
    fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 process_madvise \
    epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule landlock_restrict_self memfd_secret \
    process_mrelease futex_waitv set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat \
    listxattrat removexattrat open_tree_attr file_getattr file_setattr";

#[cfg(any(test, target_arch = "aarch64"))]
const AARCH64: &str = "\
    io_setup io_destroy io_submit io_cancel io_getevents setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr getcwd lookup_dcookie eventfd2 epoll_create1 \
    epoll_ctl epoll_pwait dup dup3 fcntl inotify_init1 inotify_add_watch inotify_rm_watch ioctl ioprio_set ioprio_get \
    flock mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount pivot_root nfsservctl statfs fstatfs truncate \
    ftruncate fallocate faccessat chdir fchdir chroot fchmod fchmodat fchownat fchown openat close vhangup pipe2 quotactl \
    getdents64 lseek read write readv writev pread64 pwrite64 preadv pwritev sendfile pselect6 ppoll signalfd4 vmsplice \
    splice tee readlinkat newfstatat fstat sync fsync fdatasync sync_file_range timerfd_create timerfd_settime \
    timerfd_gettime utimensat acct capget capset personality exit exit_group waitid set_tid_address unshare futex \
    set_robust_list get_robust_list nanosleep getitimer setitimer kexec_load init_module delete_module timer_create \
    timer_gettime timer_getoverrun timer_settime timer_delete clock_settime clock_gettime clock_getres clock_nanosleep \
    syslog ptrace sched_setparam sched_setscheduler sched_getscheduler sched_getparam sched_setaffinity sched_getaffinity \
    sched_yield sched_get_priority_max sched_get_priority_min sched_rr_get_interval restart_syscall kill tkill tgkill \
    sigaltstack rt_sigsuspend rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigreturn \
    setpriority getpriority reboot setregid setgid setreuid setuid setresuid getresuid setresgid getresgid setfsuid \
    setfsgid times setpgid getpgid getsid setsid getgroups setgroups uname sethostname setdomainname getrlimit setrlimit \
    getrusage umask prctl getcpu gettimeofday settimeofday adjtimex getpid getppid getuid geteuid getgid getegid gettid \
    sysinfo mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr msgget msgctl msgrcv msgsnd semget \
    semctl semtimedop semop shmget shmctl shmat shmdt socket socketpair bind listen accept connect getsockname getpeername \
    sendto recvfrom setsockopt getsockopt shutdown sendmsg recvmsg readahead brk munmap mremap add_key request_key keyctl \
    clone execve mmap fadvise64 swapon swapoff mprotect msync mlock munlock mlockall munlockall mincore madvise \
    remap_file_pages mbind get_mempolicy set_mempolicy migrate_pages move_pages rt_tgsigqueueinfo perf_event_open accept4 \
    recvmmsg 260 wait4 prlimit64 fanotify_init fanotify_mark name_to_handle_at open_by_handle_at clock_adjtime syncfs \
    setns sendmmsg process_vm_readv process_vm_writev kcmp finit_module sched_setattr sched_getattr renameat2 seccomp \
    getrandom memfd_create bpf execveat userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect \
    pkey_alloc pkey_free statx io_pgetevents rseq kexec_file_load 424 pidfd_send_signal io_uring_setup io_uring_enter \
    io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 \
    pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat \
    fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr \
    lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

#[cfg(any(test, target_arch = "aarch64", target_arch = "arm"))]
const ARM: &str = "\
    restart_syscall exit fork read write open close 8 creat link unlink execve chdir 14 mknod chmod lchown 19 lseek \
    getpid mount 23 setuid getuid 26 ptrace 29 pause 33 access nice 36 sync kill rename mkdir rmdir dup pipe times 45 \
    brk setgid getgid 49 geteuid getegid acct umount2 54 ioctl fcntl 57 setpgid 60 umask chroot ustat dup2 getppid \
    getpgrp setsid sigaction 70 setreuid setregid sigsuspend sigpending sethostname setrlimit 77 getrusage gettimeofday \
    settimeofday getgroups setgroups 83 symlink 85 readlink uselib swapon reboot 91 munmap truncate ftruncate fchmod \
    fchown getpriority setpriority 99 statfs fstatfs 103 syslog setitimer getitimer stat lstat fstat 111 vhangup 114 \
    wait4 swapoff sysinfo 118 fsync sigreturn clone setdomainname uname 124 adjtimex mprotect sigprocmask 128 \
    init_module delete_module 131 quotactl getpgid fchdir bdflush sysfs personality 138 setfsuid setfsgid _llseek \
    getdents _newselect flock msync readv writev getsid fdatasync _sysctl mlock munlock mlockall munlockall \
    sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_yield sched_get_priority_max \
    sched_get_priority_min sched_rr_get_interval nanosleep mremap setresuid getresuid 168 poll nfsservctl setresgid \
    getresgid prctl rt_sigreturn rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend \
    pread64 pwrite64 chown getcwd capget capset sigaltstack sendfile 190 vfork ugetrlimit mmap2 truncate64 ftruncate64 \
    stat64 lstat64 fstat64 lchown32 getuid32 getgid32 geteuid32 getegid32 setreuid32 setregid32 getgroups32 setgroups32 \
    fchown32 setresuid32 getresuid32 setresgid32 getresgid32 chown32 setuid32 setgid32 setfsuid32 setfsgid32 getdents64 \
    pivot_root mincore madvise fcntl64 224 gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill sendfile64 futex sched_setaffinity \
    sched_getaffinity io_setup io_destroy io_getevents io_submit io_cancel exit_group lookup_dcookie epoll_create \
    epoll_ctl epoll_wait remap_file_pages 256 set_tid_address timer_create timer_settime timer_gettime timer_getoverrun \
    timer_delete clock_settime clock_gettime clock_getres clock_nanosleep statfs64 fstatfs64 tgkill utimes \
    arm_fadvise64_64 pciconfig_iobase pciconfig_read pciconfig_write mq_open mq_unlink mq_timedsend mq_timedreceive \
    mq_notify mq_getsetattr waitid socket bind connect listen accept getsockname getpeername socketpair send sendto recv \
    recvfrom shutdown setsockopt getsockopt sendmsg recvmsg semop semget semctl msgsnd msgrcv msgget msgctl shmat shmdt \
    shmget shmctl add_key request_key keyctl semtimedop vserver ioprio_set ioprio_get inotify_init inotify_add_watch \
    inotify_rm_watch mbind get_mempolicy set_mempolicy openat mkdirat mknodat fchownat futimesat fstatat64 unlinkat \
    renameat linkat symlinkat readlinkat fchmodat faccessat pselect6 ppoll unshare set_robust_list get_robust_list \
    splice arm_sync_file_range 341 sync_file_range2 tee vmsplice move_pages getcpu epoll_pwait kexec_load utimensat \
    signalfd timerfd_create eventfd fallocate timerfd_settime timerfd_gettime signalfd4 eventfd2 epoll_create1 dup3 \
    pipe2 inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg accept4 fanotify_init fanotify_mark \
    prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg setns process_vm_readv process_vm_writev \
    kcmp finit_module sched_setattr sched_getattr renameat2 seccomp getrandom memfd_create bpf execveat userfaultfd \
    membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc pkey_free statx rseq io_pgetevents \
    migrate_pages kexec_file_load 403 clock_gettime64 clock_settime64 clock_adjtime64 clock_getres_time64 \
    clock_nanosleep_time64 timer_gettime64 timer_settime64 timerfd_gettime64 timerfd_settime64 utimensat_time64 \
    pselect6_time64 ppoll_time64 416 io_pgetevents_time64 recvmmsg_time64 mq_timedsend_time64 mq_timedreceive_time64 \
    semtimedop_time64 rt_sigtimedwait_time64 futex_time64 sched_rr_get_interval_time64 pidfd_send_signal io_uring_setup \
    io_uring_enter io_uring_register open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open clone3 close_range \
    openat2 pidfd_getfd faccessat2 process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node cachestat \
    fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount lsm_get_self_attr \
    lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr \
    file_setattr 983041 breakpoint cacheflush usr26 usr32 set_tls get_tls";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(abi: &str, name: &str, expected: Option<i64>) {
        let Some(abi) = ABIS.iter().find(|a| a.name == abi) else {
            return;
        };
        assert_eq!(abi.number(name).map(i64::from), expected, "{name}");
    }

    /// Returns pairs: the name of a call, and libc's constant for this call.
    macro_rules! libc_has {
        ($($constant:ident)*) => {
            [$((&stringify!($constant)[4..], libc::$constant)),*]
        };
    }

    #[test]
    fn our_own_numbers_are_those_of_libc() {
        let of_every_machine = libc_has!(
            SYS_read SYS_write SYS_close SYS_execve SYS_exit SYS_exit_group SYS_openat SYS_clone SYS_clone3 SYS_prctl
            SYS_ptrace SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_reboot SYS_ioctl SYS_readv SYS_pread64
            SYS_pwrite64 SYS_lseek SYS_flock SYS_fsync SYS_futex SYS_nanosleep SYS_clock_gettime SYS_clock_settime
            SYS_timer_create SYS_timerfd_create SYS_gettimeofday SYS_settimeofday SYS_personality SYS_capget SYS_capset
            SYS_setuid SYS_setresuid SYS_setgroups SYS_getgroups SYS_rt_sigaction SYS_rt_sigreturn SYS_sigaltstack
            SYS_kill SYS_tgkill SYS_wait4 SYS_waitid SYS_socket SYS_bind SYS_connect SYS_listen SYS_accept4 SYS_sendto
            SYS_sendmsg SYS_recvfrom SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_setsockopt SYS_shutdown SYS_shmget
            SYS_semget SYS_msgget SYS_mq_open SYS_add_key SYS_request_key SYS_keyctl SYS_init_module SYS_finit_module
            SYS_delete_module SYS_kexec_load SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_unshare SYS_setns
            SYS_setxattr SYS_fremovexattr SYS_epoll_ctl SYS_epoll_pwait SYS_io_setup SYS_io_cancel SYS_inotify_init1
            SYS_mbind SYS_mlock2 SYS_process_vm_readv SYS_kcmp SYS_open_by_handle_at SYS_memfd_create
            SYS_getrandom SYS_seccomp SYS_execveat SYS_copy_file_range SYS_preadv2 SYS_pkey_free SYS_statx
            SYS_pidfd_send_signal SYS_io_uring_setup SYS_open_tree SYS_fspick SYS_pidfd_open SYS_close_range
            SYS_openat2 SYS_pidfd_getfd SYS_faccessat2 SYS_mount_setattr SYS_landlock_restrict_self SYS_futex_waitv
            SYS_set_mempolicy_home_node SYS_mseal
        );
        #[cfg(not(target_arch = "arm"))]
        let of_this_one = libc_has!(SYS_getrlimit SYS_mmap SYS_fadvise64 SYS_sync_file_range);
        #[cfg(target_arch = "arm")]
        let of_this_one = libc_has!(
            SYS_ugetrlimit SYS_mmap2 SYS_open SYS_setuid32 SYS_setresuid32 SYS_setgroups32
            SYS_chown32 SYS_stat64 SYS_fcntl64 SYS__llseek SYS__newselect
        );
        for (name, number) in of_every_machine.into_iter().chain(of_this_one) {
            // On 32-bit machines libc's constants have another type.
            #[allow(clippy::useless_conversion)]
            check(ABIS[0].name, name, Some(number.into()));
        }
        check(ABIS[0].name, "no_such_call", None);
    }

    /// A later call has the same number in every table. In the kernel this holds from 403 to 423 for calls that only
    /// 32-bit machines have, and from 424 on for all calls.
    #[test]
    fn later_calls_have_one_number_in_every_table() {
        let read = |table: &'static str, from: u32, to: u32| {
            let mut known = Vec::new();
            parse(table, &mut known);
            known.retain(|(_, number)| (from..to).contains(number));
            known
        };
        let times = read(X86, 403, 424);
        assert_eq!(times.len(), 20);
        assert_eq!(read(ARM, 403, 424), times);
        let later = read(X86, 424, 500);
        assert!(later.len() > 40);
        for table in [X86_64, AARCH64, ARM] {
            assert_eq!(read(table, 424, 500), later);
        }
    }

    #[test]
    fn numbers_of_the_other_abis() {
        check("SCMP_ARCH_X86", "socketcall", Some(102));
        check("SCMP_ARCH_X86", "clock_gettime64", Some(403));
        check("SCMP_ARCH_X86", "file_setattr", Some(469));
        check("SCMP_ARCH_X32", "ioctl", Some(514));
        check("SCMP_ARCH_X32", "open", Some(2));
        check("SCMP_ARCH_X86_64", "ioctl", Some(16));
        check("SCMP_ARCH_ARM", "set_tls", Some(0xf_0005));
        check("SCMP_ARCH_ARM", "socket", Some(281));
        check("SCMP_ARCH_ARM", "clock_gettime64", Some(403));
        check("SCMP_ARCH_ARM", "io_pgetevents", Some(399));
        check("SCMP_ARCH_AARCH64", "open", None);
    }
}
