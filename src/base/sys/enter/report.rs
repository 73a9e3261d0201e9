//! The report of a child about a step that has failed.

use nix::errno::Errno;

/// A step of a child's work that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Changing to the container's root directory.
    Root,
    /// Opening or placing stdin, stdout, stderr.
    Stdio,
    /// Dropping capabilities from the bounding set.
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
    /// Closing descriptors.
    Close,
    /// Starting a child.
    Clone,
    /// Becoming a session leader.
    Session,
    /// Executing the command. A failure of this step is the command's fault, not podprobe's.
    Exec,
}

impl Step {
    const ALL: [Step; 19] = [
        Step::Cgroup,
        Step::Rlimit,
        Step::Keyring,
        Step::Label,
        Step::Setns,
        Step::Root,
        Step::Stdio,
        Step::Bounding,
        Step::Groups,
        Step::Gid,
        Step::Uid,
        Step::Capabilities,
        Step::Cwd,
        Step::NoNewPrivs,
        Step::Seccomp,
        Step::Close,
        Step::Clone,
        Step::Session,
        Step::Exec,
    ];
}

/// A report about a failed step: the step, its object, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The step that failed.
    pub step: Step,
    /// Index of the step's object (a limit or a cgroup), in the order in which the orders list the objects.
    pub index: usize,
    /// The reason of the failure.
    pub errno: Errno,
}

impl Report {
    /// Packs the report into one word, which is never 0.
    pub(super) fn encode(self) -> u64 {
        u64::from(self.step as u8)
            | (self.index as u64 & 0xff) << 8
            | u64::from(self.errno as u32) << 32
    }

    pub(super) fn decode(word: u64) -> Option<Report> {
        Some(Report {
            step: Step::ALL.into_iter().find(|s| *s as u8 == word as u8)?,
            index: (word >> 8 & 0xff) as usize,
            errno: Errno::from_raw((word >> 32) as i32),
        })
    }
}

/// Turns the error of a call into a report that names the step.
pub(super) trait At<T> {
    fn at(self, step: Step, index: usize) -> Result<T, Report>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, step: Step, index: usize) -> Result<T, Report> {
        self.map_err(|errno| Report { step, index, errno })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_was_given() {
        for (step, index, errno) in [
            (Step::Cgroup, 0, Errno::EPERM),
            (Step::Rlimit, 15, Errno::EINVAL),
            (Step::Exec, 255, Errno::EHWPOISON),
        ] {
            let report = Report { step, index, errno };
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode(0), None);
    }
}
