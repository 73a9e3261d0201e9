//! A system call filter as some containers have it. The unit tests of `src` use this file too.

/// Returns a filter that has one system call fail with this error, and lets all others through.
pub(crate) fn forbidding(call: libc::c_long, error: libc::c_int) -> [libc::sock_filter; 4] {
    let statement = |code: u32, k: u32, jt: u8| libc::sock_filter {
        code: code as u16,
        jt,
        jf: 0,
        k,
    };
    [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        statement(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | error as u32,
            0,
        ),
    ]
}
