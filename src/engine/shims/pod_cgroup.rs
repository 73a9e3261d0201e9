//! The cgroup of a pod: weight and limits of all its containers together, as the kubelet sets them at its pod level.
//!
//! Unlike the kubelet, podprobe has no level for the QoS classes (deviations: qos-level).

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::unistd::{SysconfVar, sysconf};

use crate::base::sys::cgroup::Cgroups;
use crate::base::sys::wide;
use crate::engine::runtime::{Limits, PodResources};

/// The cgroup controllers for which a pod has values.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// Weight of one processor in cgroup v1.
const SHARES: i64 = 1024;

/// The reason why the limits of a cgroup cannot be set.
#[derive(Debug)]
pub enum LimitError {
    /// The cgroup cannot be made.
    Make(PathBuf, io::Error),
    /// A value cannot be set.
    Set(PathBuf, String, io::Error),
    /// The cgroup uses more memory than its limit would be.
    BelowUse {
        /// The limit in bytes.
        limit: i64,
        /// The memory in bytes that the cgroup uses.
        used: i64,
    },
    /// The node lacks the controller for a limit.
    NoController(&'static str),
    /// The pod has this limit of processes, but the node has no pids controller.
    NoPids(i64),
}

impl std::fmt::Display for LimitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Make(dir, e) => write!(f, "cannot make the cgroup {}: {e}", dir.display()),
            Self::Set(file, value, e) => {
                write!(f, "cannot write {value} to {}: {e}", file.display())
            }
            Self::BelowUse { limit, used } => write!(
                f,
                "its memory limit would be {limit} bytes, and it uses {used}"
            ),
            Self::NoController(name) => write!(f, "the node has no cgroup controller {name}"),
            Self::NoPids(limit) => write!(
                f,
                "cannot limit the pod to {limit} processes (podPidsLimit): this node has no pids cgroup controller; enable \
                 it, or remove podPidsLimit"
            ),
        }
    }
}

impl std::error::Error for LimitError {}

/// Makes the pod's cgroup `path` if it is missing, and sets its values. The parent cgroup of all pods gets the weight
/// of all processors of the node, like the kubelet's cgroup `kubepods`. Returns the values that could not be set, if
/// the pod can run without them.
///
/// # Errors
/// Returns [`LimitError`] if the number of the pod's processes cannot be limited.
pub fn prepare(
    cgroups: &Cgroups,
    path: &str,
    r: &PodResources,
) -> Result<Vec<LimitError>, LimitError> {
    let top = Path::new(path).parent().and_then(Path::to_str);
    let of_all = PodResources {
        limits: Limits {
            cpu_shares: processors() * SHARES,
            ..Limits::default()
        },
        pids_limit: None,
    };
    let mut failed = Vec::new();
    let top = top.map(|top| (Of::AllPods, top, &of_all));
    for (of, path, r) in top.into_iter().chain([(Of::Pod, path, r)]) {
        for controller in CONTROLLERS {
            match set(cgroups, controller, path, (of, r)) {
                Err(e) if controller == "pids" => return Err(e),
                Err(e) => failed.push(e),
                Ok(()) => {}
            }
        }
    }
    Ok(failed)
}

/// The pods that a cgroup is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Pod,
    AllPods,
}

fn processors() -> i64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN);
    online.ok().flatten().map_or(1, wide)
}

fn set(
    cgroups: &Cgroups,
    controller: &str,
    path: &str,
    (of, r): (Of, &PodResources),
) -> Result<(), LimitError> {
    let no_controller = || match (controller, r.pids_limit) {
        ("pids", Some(limit)) => Err(LimitError::NoPids(limit)),
        _ => Ok(()),
    };
    let Some((dir, v2)) = cgroups.of_controller(controller, path) else {
        return no_controller();
    };
    let made = fs::create_dir_all(&dir);
    made.map_err(|e| LimitError::Make(dir.clone(), e))?;
    if v2 {
        cgroups.hand_down(controller, path);
    }
    let limit = r.limits.memory_limit.filter(|_| controller == "memory");
    if let Some(limit) = limit
        && let Some(used) = used_above(&dir, limit, v2)
    {
        return Err(LimitError::BelowUse { limit, used });
    }
    // The parent of all pods has the limits that people give it.
    let unlimited = unlimited(controller, r, v2).filter(|_| of == Of::Pod);
    for (file, value) in values(controller, r, v2).into_iter().chain(unlimited) {
        match write(&dir, file, &value) {
            // cgroup v2 has only the files of the controllers that are enabled in this directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return no_controller(),
            written => written.map_err(|e| LimitError::Set(dir.join(file), value, e))?,
        }
    }
    Ok(())
}

/// Writes a value into a file of a cgroup, which is never made.
pub(super) fn write(dir: &Path, file: &str, value: &str) -> io::Result<()> {
    let mut file = fs::File::options().write(true).open(dir.join(file))?;
    file.write_all(value.as_bytes())
}

/// Reads a number from a file of a cgroup; None if there is no number in it.
pub(super) fn number(dir: &Path, file: &str) -> Option<i64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

/// Returns the memory that a cgroup uses if a new limit would be below it. A limit that does not shrink may be: the kernel
/// lets a cgroup exceed its limit for a moment.
pub(super) fn used_above(dir: &Path, limit: i64, v2: bool) -> Option<i64> {
    let (present, used) = match v2 {
        true => ("memory.max", "memory.current"),
        false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    };
    let shrinks = number(dir, present).is_none_or(|present| limit < present);
    number(dir, used).filter(|used| shrinks && limit < *used)
}

/// Returns the file with the value that takes a limit away that a cgroup may have had.
pub(super) fn unlimited(
    controller: &str,
    r: &PodResources,
    v2: bool,
) -> Option<(&'static str, String)> {
    match (controller, v2) {
        ("cpu", _) if r.limits.cpu_quota.is_some() => None,
        ("memory", _) if r.limits.memory_limit.is_some() => None,
        ("cpu", true) => Some(("cpu.max", format!("max {}", r.limits.cpu_period.max(1000)))),
        ("cpu", false) => Some(("cpu.cfs_quota_us", "-1".to_owned())),
        ("memory", true) => Some(("memory.max", "max".to_owned())),
        ("memory", false) => Some(("memory.limit_in_bytes", "-1".to_owned())),
        _ => None,
    }
}

/// Returns the files of a controller with their values, in the order in which they are written.
pub(super) fn values(controller: &str, r: &PodResources, v2: bool) -> Vec<(&'static str, String)> {
    let l = &r.limits;
    let (quota, period) = (l.cpu_quota, l.cpu_period);
    let text = |n: Option<i64>| n.map(|n| n.to_string());
    let all = match (controller, v2) {
        ("cpu", false) => vec![
            ("cpu.shares", text(Some(l.cpu_shares))),
            ("cpu.cfs_period_us", text(quota.and(Some(period)))),
            ("cpu.cfs_quota_us", text(quota)),
        ],
        ("cpu", true) => vec![
            ("cpu.weight", text(Some(weight(l.cpu_shares)))),
            ("cpu.max", quota.map(|quota| format!("{quota} {period}"))),
        ],
        ("memory", false) => vec![("memory.limit_in_bytes", text(l.memory_limit))],
        ("memory", true) => vec![("memory.max", text(l.memory_limit))],
        _ => vec![("pids.max", text(r.pids_limit))],
    };
    let given = all.into_iter();
    given.filter_map(|(file, v)| Some((file, v?))).collect()
}

/// Returns the `cpu.weight` of cgroup v2 for `cpu.shares` of v1, by the formula of runc 1.3.2 and crun 1.23: 2 gives 1,
/// 1024 gives 100, 262144 gives 10000.
fn weight(shares: i64) -> i64 {
    let l = (shares.clamp(2, 262_144) as f64).log2();
    let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
    (10_f64.powf(exponent).ceil() as i64).clamp(1, 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::sys::mountinfo;

    #[test]
    fn shares_are_weights_by_runc_s_formula() {
        let weights = [2, 102, 512, 1024, 2048, 262_144].map(weight);
        assert_eq!(weights, [1, 17, 59, 100, 174, 10_000]);
    }

    const POD: PodResources = PodResources {
        limits: Limits {
            cpu_shares: 1536,
            cpu_quota: Some(150_000),
            cpu_period: 100_000,
            memory_limit: Some(1 << 20),
        },
        pids_limit: Some(64),
    };

    #[track_caller]
    fn check(r: &PodResources, v2: bool, expected: &[(&str, &str)]) {
        let found: Vec<_> = CONTROLLERS.map(|c| values(c, r, v2)).concat();
        let found: Vec<_> = found.iter().map(|(f, v)| (*f, v.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn v1_and_v2_have_the_same_in_their_own_files() {
        let v1 = [
            ("cpu.shares", "1536"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "150000"),
            ("memory.limit_in_bytes", "1048576"),
            ("pids.max", "64"),
        ];
        check(&POD, false, &v1);
        let v2 = [
            ("cpu.weight", "138"),
            ("cpu.max", "150000 100000"),
            ("memory.max", "1048576"),
            ("pids.max", "64"),
        ];
        check(&POD, true, &v2);
        check(&PodResources::default(), false, &[("cpu.shares", "2")]);
        check(&PodResources::default(), true, &[("cpu.weight", "1")]);
    }

    /// Makes a cgroup v2 out of plain files. Only the files in `there` exist. The code under test must not make any
    /// other file.
    fn v2_of_files(there: &[&str]) -> (tempfile::TempDir, Cgroups) {
        let dir = tempfile::tempdir().unwrap();
        for level in ["podprobe", "podprobe/uid"] {
            fs::create_dir(dir.path().join(level)).unwrap();
            for file in there {
                fs::write(dir.path().join(level).join(file), "").unwrap();
            }
        }
        let at = dir.path().display();
        let line = format!("30 1 0:26 / {at} rw - cgroup2 cgroup rw");
        (dir, Cgroups::of(mountinfo::parse(&line)))
    }

    #[test]
    fn a_pod_has_its_values_and_all_pods_weigh_as_much_as_the_node() {
        let files = ["cpu.weight", "cpu.max", "memory.max", "pids.max"];
        let (dir, cgroups) = v2_of_files(&files);
        let failed = prepare(&cgroups, "/podprobe/uid", &POD).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        let of_pod = files.map(|file| read(&format!("podprobe/uid/{file}")));
        assert_eq!(of_pod, ["138", "150000 100000", "1048576", "64"]);
        let of_all = read("podprobe/cpu.weight").parse().unwrap();
        assert!((100..=10_000).contains(&of_all), "{of_all}");
        assert_eq!(read("podprobe/memory.max"), "");
    }

    /// A pod may have had limits. The parent of all pods keeps those that people give it.
    #[test]
    fn a_pod_without_limits_has_none() {
        let files = ["cpu.weight", "cpu.max", "memory.max"];
        let (dir, cgroups) = v2_of_files(&files);
        let limits = Limits {
            cpu_quota: None,
            memory_limit: None,
            ..POD.limits
        };
        let limitless = PodResources {
            limits,
            pids_limit: None,
        };
        let failed = prepare(&cgroups, "/podprobe/uid", &limitless).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        let of =
            |level: &str| ["cpu.max", "memory.max"].map(|file| read(&format!("{level}/{file}")));
        assert_eq!(of("podprobe/uid"), ["max 100000", "max"]);
        assert_eq!(of("podprobe"), ["", ""]);
    }

    #[test]
    fn without_a_controller_only_a_limit_of_processes_is_missed() {
        let (dir, cgroups) = v2_of_files(&[]);
        let limitless = PodResources {
            pids_limit: None,
            ..POD
        };
        assert!(
            prepare(&cgroups, "/podprobe/uid", &limitless)
                .unwrap()
                .is_empty()
        );
        let refusal = prepare(&cgroups, "/podprobe/uid", &POD).unwrap_err();
        assert!(matches!(refusal, LimitError::NoPids(64)), "{refusal}");
        let made = fs::read_dir(dir.path().join("podprobe/uid")).unwrap();
        assert_eq!(made.count(), 0);
        let nowhere = Cgroups::of(Vec::new());
        assert!(prepare(&nowhere, "/podprobe/uid", &POD).is_err());
    }

    #[test]
    fn a_limit_that_is_gone_is_taken_away() {
        let of = |quota, memory| PodResources {
            limits: Limits {
                cpu_quota: quota,
                cpu_period: 100_000,
                memory_limit: memory,
                ..Limits::default()
            },
            pids_limit: None,
        };
        let taken = |controller, r: &PodResources, v2| {
            let taken = unlimited(controller, r, v2);
            taken.map(|(file, value)| format!("{file} {value}"))
        };
        let (none, all) = (of(None, None), of(Some(1), Some(1)));
        for (controller, v2, expected) in [
            ("cpu", true, "cpu.max max 100000"),
            ("cpu", false, "cpu.cfs_quota_us -1"),
            ("memory", true, "memory.max max"),
            ("memory", false, "memory.limit_in_bytes -1"),
        ] {
            assert_eq!(taken(controller, &none, v2).as_deref(), Some(expected));
            assert_eq!(taken(controller, &all, v2), None);
        }
        assert_eq!(taken("pids", &none, true), None);
    }

    /// The kernel would kill for a limit that shrinks below what is used.
    #[test]
    fn a_limit_may_shrink_down_to_what_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let files = |v2: bool| match v2 {
            true => ["memory.max", "memory.current"],
            false => ["memory.limit_in_bytes", "memory.usage_in_bytes"],
        };
        for v2 in [true, false] {
            let [limit, usage] = files(v2);
            let above = |present: &str, used: &str, new| {
                fs::write(dir.path().join(limit), format!("{present}\n")).unwrap();
                fs::write(dir.path().join(usage), format!("{used}\n")).unwrap();
                used_above(dir.path(), new, v2)
            };
            assert_eq!(above("100", "50", 40), Some(50));
            assert_eq!(above("max", "50", 40), Some(50), "there was no limit");
            assert_eq!(above("100", "50", 50), None);
            assert_eq!(above("40", "50", 40), None, "it does not shrink");
            assert_eq!(above("30", "50", 40), None, "it grows");
        }
        assert_eq!(used_above(&dir.path().join("none"), 1, true), None);
    }
}
