//! The orders for the children, as one message from the daemon to the spawner.
//!
//! Every number is one 64-bit word. A text or a list of bytes begins with its length in bytes, and is filled up with zeros
//! to the next word. C strings keep their final zero, so that the children can use them inside of the message.

use std::ffi::{CStr, CString};

/// Source of descriptors 0 to 2 of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// Flags for stdin, stdout and stderr, in this order. If a flag is true, the descriptor comes with the message. If
    /// it is false, the stream is the container's own `/dev/null`.
    Streams([bool; 3]),
    /// The slave of a terminal, which comes with the message. The terminal becomes the controlling terminal of the
    /// command.
    Terminal,
}

impl Stdio {
    const TERMINAL: u64 = 1 << 3;

    /// Returns the number of descriptors that come with the orders.
    pub(super) fn descriptors(self) -> usize {
        match self {
            Self::Streams(given) => given.into_iter().filter(|given| *given).count(),
            Self::Terminal => 1,
        }
    }

    fn encode(self) -> u64 {
        match self {
            Self::Streams([a, b, c]) => u64::from(a) | u64::from(b) << 1 | u64::from(c) << 2,
            Self::Terminal => Self::TERMINAL,
        }
    }

    fn decode(n: u64) -> Option<Self> {
        match n {
            0..Self::TERMINAL => Some(Self::Streams([0, 1, 2].map(|bit| n >> bit & 1 == 1))),
            Self::TERMINAL => Some(Self::Terminal),
            _ => None,
        }
    }
}

impl Default for Stdio {
    fn default() -> Self {
        Self::Streams([false; 3])
    }
}

/// All data that the children need, except descriptors.
#[derive(Debug, Default)]
pub struct Orders {
    /// `tasks` files of the v1 cgroups to join.
    pub cgroups: Vec<CString>,
    /// Directory of the v2 cgroup to start the first child in. In reports, this directory has the index after the last
    /// index of `cgroups`.
    pub born: Option<CString>,
    /// Value to write to `oom_score_adj`. It is not an error if the kernel refuses the value.
    pub oom_score_adj: Option<i64>,
    /// Resource limits: number of the resource (RLIMIT_*), soft limit, hard limit.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// AppArmor or SELinux label to set: the file to write to, and the text.
    pub label: Option<(CString, Vec<u8>)>,
    /// CLONE_NEW* flags of the namespaces to enter. Namespaces that the container shares with the daemon are left out.
    pub namespaces: i32,
    /// Source of descriptors 0 to 2.
    pub stdio: Stdio,
    /// File mode creation mask.
    pub umask: u32,
    /// Masks of capabilities: bounding, effective, permitted, inheritable, ambient.
    pub caps: [u64; 5],
    /// User id of the command.
    pub uid: u32,
    /// Group id of the command.
    pub gid: u32,
    /// Supplementary groups of the command.
    pub groups: Vec<u32>,
    /// Working directory inside the container.
    pub cwd: CString,
    /// True to set PR_SET_NO_NEW_PRIVS.
    pub no_new_privs: bool,
    /// Filter for the command's system calls: a program, and SECCOMP_FILTER_FLAG_* flags.
    pub seccomp: Option<(Vec<libc::sock_filter>, u32)>,
    /// True if the container may trace the second child as soon as the container can see that child.
    pub traceable: bool,
    /// Program files to try to execute, in this order.
    pub files: Vec<CString>,
    /// Arguments of the command.
    pub argv: Vec<CString>,
    /// Environment of the command.
    pub envp: Vec<CString>,
}

impl Orders {
    /// Encodes the orders as a message.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(4096));
        w.list(&self.cgroups, |w, c| w.text(c));
        w.list(&self.born, |w, c| w.text(c));
        w.list(&self.oom_score_adj, |w, n| {
            w.bytes(n.to_string().as_bytes())
        });
        w.list(&self.rlimits, |w, (resource, soft, hard)| {
            w.numbers([u64::from(*resource), *soft, *hard]);
        });
        w.list(&self.label, |w, (file, text)| {
            w.text(file);
            w.bytes(text);
        });
        w.number(u64::from(self.namespaces.cast_unsigned()));
        w.number(self.stdio.encode());
        w.number(u64::from(self.umask));
        w.numbers(self.caps);
        w.number(u64::from(self.uid));
        w.number(u64::from(self.gid));
        w.list(&self.groups, |w, g| w.number(u64::from(*g)));
        w.text(&self.cwd);
        w.number(u64::from(self.no_new_privs));
        w.list(&self.seccomp, |w, (program, flags)| {
            w.number(u64::from(*flags));
            w.list(program, |w, s| w.number(packed(s)));
        });
        w.number(u64::from(self.traceable));
        for texts in [&self.files, &self.argv, &self.envp] {
            w.list(texts, |w, t| w.text(t));
        }
        w.0
    }
}

fn packed(s: &libc::sock_filter) -> u64 {
    u64::from(s.code) | u64::from(s.jt) << 16 | u64::from(s.jf) << 24 | u64::from(s.k) << 32
}

fn unpacked(word: u64) -> libc::sock_filter {
    libc::sock_filter {
        code: word as u16,
        jt: (word >> 16) as u8,
        jf: (word >> 24) as u8,
        k: (word >> 32) as u32,
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_ne_bytes());
    }

    fn numbers<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.into_iter().for_each(|n| self.number(n));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn text(&mut self, text: &CStr) {
        self.bytes(text.to_bytes_with_nul());
    }

    fn list<'a, T: 'a, I>(&mut self, items: I, mut each: impl FnMut(&mut Self, &'a T))
    where
        I: IntoIterator<Item = &'a T>,
        I::IntoIter: Clone,
    {
        let items = items.into_iter();
        self.number(items.clone().count() as u64);
        items.for_each(|item| each(self, item));
    }
}

/// The orders as the spawner has received them. Texts are slices of the message.
#[derive(Debug, Default)]
pub(super) struct Received<'m> {
    pub(super) cgroups: Vec<&'m CStr>,
    pub(super) born: Option<&'m CStr>,
    pub(super) oom_score_adj: Option<&'m [u8]>,
    pub(super) rlimits: Vec<(u32, u64, u64)>,
    pub(super) label: Option<(&'m CStr, &'m [u8])>,
    pub(super) namespaces: i32,
    pub(super) stdio: Stdio,
    pub(super) umask: u32,
    pub(super) caps: [u64; 5],
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) cwd: &'m CStr,
    pub(super) no_new_privs: bool,
    pub(super) seccomp: Option<(Vec<libc::sock_filter>, u32)>,
    pub(super) traceable: bool,
    pub(super) files: Vec<&'m CStr>,
    pub(super) argv: Vec<&'m CStr>,
    pub(super) envp: Vec<&'m CStr>,
}

impl<'m> Received<'m> {
    /// Decodes the orders from a message. Returns None if the bytes were not made by [`Orders::encode`].
    pub(super) fn decode(message: &'m [u8]) -> Option<Self> {
        let mut r = Reader(message);
        Some(Received {
            cgroups: r.list(Reader::text)?,
            born: r.list(Reader::text)?.pop(),
            oom_score_adj: r.list(Reader::bytes)?.pop(),
            rlimits: r.list(|r| Some((r.number()? as u32, r.number()?, r.number()?)))?,
            label: r.list(|r| Some((r.text()?, r.bytes()?)))?.pop(),
            namespaces: r.number()? as i32,
            stdio: Stdio::decode(r.number()?)?,
            umask: r.number()? as u32,
            caps: [
                r.number()?,
                r.number()?,
                r.number()?,
                r.number()?,
                r.number()?,
            ],
            uid: r.number()? as u32,
            gid: r.number()? as u32,
            groups: r.list(|r| Some(r.number()? as u32))?,
            cwd: r.text()?,
            no_new_privs: r.number()? != 0,
            seccomp: r
                .list(|r| {
                    let flags = r.number()? as u32;
                    Some((r.list(|r| r.number().map(unpacked))?, flags))
                })?
                .pop(),
            traceable: r.number()? != 0,
            files: r.list(Reader::text)?,
            argv: r.list(Reader::text)?,
            envp: r.list(Reader::text)?,
        })
    }
}

struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn number(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    fn bytes(&mut self) -> Option<&'m [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len.checked_next_multiple_of(8)?)?;
        self.0 = rest;
        bytes.get(..len)
    }

    fn text(&mut self) -> Option<&'m CStr> {
        CStr::from_bytes_with_nul(self.bytes()?).ok()
    }

    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| each(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Orders {
        Orders {
            cgroups: vec![c"/a/tasks".into(), c"/b/tasks".into()],
            born: Some(c"/u/leaf".into()),
            oom_score_adj: Some(-997),
            rlimits: vec![(7, 5, u64::MAX)],
            label: Some((c"/proc/self/attr/exec".into(), b"label".to_vec())),
            namespaces: libc::CLONE_NEWNS | libc::CLONE_NEWPID,
            stdio: Stdio::Streams([true, false, true]),
            umask: 0o27,
            caps: [1, 2, 3, 4, u64::MAX],
            uid: 7,
            gid: u32::MAX - 1,
            groups: vec![1, 2, 3],
            cwd: c"/".into(),
            no_new_privs: true,
            seccomp: Some((vec![unpacked(0x1234_5678_9abc_def0)], 2)),
            traceable: true,
            files: vec![c"/bin/true".into()],
            argv: vec![c"true".into(), c"".into()],
            envp: vec![c"PATH=/bin".into()],
        }
    }

    #[test]
    fn a_message_says_what_was_ordered() {
        let (orders, message) = (full(), full().encode());
        let r = Received::decode(&message).unwrap();
        assert_eq!(r.cgroups, [c"/a/tasks", c"/b/tasks"]);
        assert_eq!(
            (r.born, r.oom_score_adj),
            (Some(c"/u/leaf"), Some(&b"-997"[..]))
        );
        assert_eq!(r.rlimits, orders.rlimits);
        assert_eq!(r.label, Some((c"/proc/self/attr/exec", &b"label"[..])));
        assert_eq!((r.namespaces, r.umask), (orders.namespaces, orders.umask));
        assert_eq!(r.stdio, orders.stdio);
        assert_eq!(
            (r.caps, r.uid, r.gid),
            (orders.caps, orders.uid, orders.gid)
        );
        assert_eq!((r.groups, r.cwd), (orders.groups, c"/"));
        assert!(r.no_new_privs && r.traceable);
        let (program, flags) = r.seccomp.unwrap();
        assert_eq!((packed(&program[0]), flags), (0x1234_5678_9abc_def0, 2));
        assert_eq!((r.files, r.argv), (vec![c"/bin/true"], vec![c"true", c""]));
        assert_eq!(r.envp, [c"PATH=/bin"]);
    }

    #[test]
    fn every_kind_of_standard_streams_is_a_number_of_its_own() {
        let streams = (0..8).map(|n| Stdio::Streams([0, 1, 2].map(|bit| n >> bit & 1 == 1)));
        for (n, stdio) in streams.chain([Stdio::Terminal]).enumerate() {
            assert_eq!(Stdio::decode(stdio.encode()), Some(stdio));
            assert_eq!(stdio.encode(), n as u64);
        }
        assert_eq!(Stdio::decode(9), None);
        assert_eq!(Stdio::Streams([true, false, true]).descriptors(), 2);
        assert_eq!(Stdio::Terminal.descriptors(), 1);
    }

    #[test]
    fn a_message_that_is_cut_is_none() {
        let message = full().encode();
        for len in 0..message.len() {
            assert!(Received::decode(&message[..len]).is_none(), "{len}");
        }
        assert!(Received::decode(&[0xff; 64]).is_none());
    }
}
