//! Decides what a listing of the pods directory means: which pods, which problems, which log lines
//! (kubelet-probes 6.3). The answers of a pod URL count as versions of one file. The state of each file is in
//! `known_file`.
//!
//! Invariants: this module is pure. A file that is bad, unreadable or half written keeps the pods of its last good
//! version. The pods of a file end only when the file has been missing for [`REMOVAL_SETTLE`]. Both rules also hold
//! across a restart of the daemon: see [`Files::restore`]. Each pod name and each UID has only one file. A problem is
//! logged once while it stays the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chosen::{Candidate, choose};
use super::known_file::{GoodPod, GoodWorkload, KnownFile, REMOVAL_SETTLE};
use super::problem::FileProblem;
use super::reading::{ContentError, Digest, Reading, Signature};
use super::states::{FiledWorkload, PodFile};
use crate::api::decode::Decoded;
use crate::api::objects::{LocalObject, ObjectKey};
use crate::api::workload::WorkloadKey;
use crate::api::{Pod, PodUid};
use crate::base::clock::Moment;

/// A listing of the configured path.
#[derive(Clone, Debug)]
pub enum Listing {
    /// The path is a directory. Each of its pod files has a reading.
    Dir(Vec<(PathBuf, Reading)>),
    /// The path is one file, with its reading.
    File(Reading),
    /// The path does not exist. The text is the problem to show.
    Missing(String),
    /// The path exists but cannot be listed. The text is the problem to show.
    Unreadable(String),
}

/// The pods, workloads, objects, problems and log lines that follow from a listing.
#[derive(Debug, Default)]
pub struct Step {
    /// The full set of pods, if the set has changed. `None` if the set has not changed, or is not known yet.
    pub set: Option<Vec<Arc<Pod>>>,
    /// The full set of workloads. `None` while the set is not known yet.
    pub workloads: Option<Vec<FiledWorkload>>,
    /// The full set of objects that are not pods. `None` while the set is not known yet.
    pub objects: Option<Vec<LocalObject>>,
    /// The file of every pod of the set, by the pod's UID.
    pub pods: BTreeMap<PodUid, PodFile>,
    /// The problems, sorted by file.
    pub problems: Vec<FileProblem>,
    /// The log lines about new problems.
    pub log: Vec<String>,
    /// The log lines about problems that are gone.
    pub mended: Vec<String>,
    /// The time at which the next listing is needed, even if nothing happens.
    pub wake: Option<Moment>,
}

/// The state of all pod files between two listings.
pub struct Files {
    path: PathBuf,
    entries: BTreeMap<PathBuf, KnownFile>,
    skipped: BTreeMap<PathBuf, &'static str>,
    /// The problems of the last listing, by file.
    reported: BTreeMap<String, Vec<String>>,
    sent: Option<Vec<Arc<Pod>>>,
    /// The pods of the last set. Before the first set, the pods that an earlier daemon ran.
    held: HashSet<PodUid>,
    /// The files of the pods of the last set.
    holders: HashSet<PathBuf>,
    /// The file of each object in the last listing.
    object_files: BTreeMap<ObjectKey, PathBuf>,
    /// The file of each workload in the last listing.
    workload_files: BTreeMap<WorkloadKey, PathBuf>,
}

impl Files {
    /// Makes an empty state. `path` is the configured directory or file. If several files have the same pod, the file
    /// of a pod in `running` counts.
    pub fn new(path: PathBuf, running: HashSet<PodUid>) -> Self {
        Self {
            path,
            entries: BTreeMap::new(),
            skipped: BTreeMap::new(),
            reported: BTreeMap::new(),
            sent: None,
            held: running,
            holders: HashSet::new(),
            object_files: BTreeMap::new(),
            workload_files: BTreeMap::new(),
        }
    }

    /// True if a file with this signature must be opened.
    pub fn wants(&self, path: &Path, signature: &Signature) -> bool {
        self.entries
            .get(path)
            .is_none_or(|e| e.signature.as_ref() != Some(signature))
    }

    /// Returns the digest of the content that was last read from the file, or `None` if no content was read.
    pub fn digest(&self, path: &Path) -> Option<&Digest> {
        self.entries.get(path).and_then(|e| e.digest.as_ref())
    }

    /// Returns the digest of the file's last good version, from which the pods of the file come.
    pub fn accepted(&self, path: &Path) -> Option<&Digest> {
        self.entries.get(path).and_then(|e| e.accepted.as_ref())
    }

    /// Returns the known files: the existing files, and the files that vanished less than [`REMOVAL_SETTLE`] ago.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.entries.keys().map(PathBuf::as_path)
    }

    /// Takes the last good version of a file from an earlier daemon, as if it had been read before the present content.
    /// Call this function before the first [`Files::step`], for files for which [`needs_last_good`] returns true. If
    /// the last good version no longer decodes, its error is shown while the file itself is bad too.
    pub fn restore(
        &mut self,
        path: &Path,
        digest: Digest,
        last_good: Result<Decoded, ContentError>,
    ) {
        let entry = self.entries.entry(path.to_owned()).or_default();
        match last_good {
            Ok(pods) => entry.accept(digest, pods),
            Err(why) => entry.refused = Some(why),
        }
    }

    /// Decides which pods, workloads, objects, problems and log lines follow from a listing.
    pub fn step(&mut self, now: Moment, listing: Listing) -> Step {
        let mut step = Step::default();
        let mut problems: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let (mut is_known, mut single) = (true, false);
        match listing {
            Listing::Dir(files) => self.take(now, files, &mut step.log),
            Listing::File(reading) => {
                single = true;
                self.take(now, vec![(self.path.clone(), reading)], &mut step.log);
            }
            Listing::Missing(text) => {
                self.take(now, Vec::new(), &mut step.log);
                problems
                    .entry(self.path.display().to_string())
                    .or_default()
                    .push(text);
            }
            Listing::Unreadable(text) => {
                is_known = false;
                problems
                    .entry(self.path.display().to_string())
                    .or_default()
                    .push(text);
            }
        }
        let set = self.choose(now, &mut step.pods, &mut problems);
        self.held = set.iter().map(|pod| pod.uid().clone()).collect();
        self.holders = step
            .pods
            .values()
            .map(|file| PathBuf::from(&file.file))
            .collect();
        // A single file that was never good does not show which pods should run (6.3 "bad single file").
        is_known &= !(single
            && self.sent.is_none()
            && self
                .entries
                .values()
                .any(|e| e.error().is_some() && e.accepted.is_none()));
        if is_known && self.sent.as_ref().is_none_or(|sent| !same_pods(sent, &set)) {
            self.sent = Some(set.clone());
            step.set = Some(set);
        }
        let objects = self.choose_objects(now, &mut problems);
        step.objects = is_known.then_some(objects);
        let workloads = self.choose_workloads(now, &mut problems);
        let of_workloads = workloads.iter().map(|workload| &workload.file);
        let outdated = step.pods.values().chain(of_workloads);
        let outdated = outdated.filter(|file| file.file_error.is_some());
        let outdated: HashSet<String> = outdated.map(|file| file.file.clone()).collect();
        step.workloads = is_known.then_some(workloads);
        step.wake = self
            .entries
            .values()
            .flat_map(|e| {
                let gone = e.vanished.map(|m| m + REMOVAL_SETTLE);
                [gone, e.may_be_a_copy_until(now)]
            })
            .flatten()
            .min();
        self.log_changes(&problems, &mut step);
        let known = |file: &String| self.entries.get(Path::new(file));
        let is_valid = |file: &String| known(file).is_some_and(KnownFile::is_valid);
        let refused = problems.iter().map(|(file, e)| FileProblem {
            file: file.clone(),
            error: e.join("; "),
            is_in_use: false,
            last_good_runs: outdated.contains(file),
            is_valid: is_valid(file),
        });
        step.problems = refused.chain(self.not_enforced()).collect();
        // The sort is stable: for each file, its errors come before the texts about its parts without effect.
        step.problems.sort_by(|a, b| a.file.cmp(&b.file));
        self.reported = problems;
        step
    }

    /// Returns the problems about objects of the files in use that people rely on, and that have no effect here.
    fn not_enforced(&self) -> impl Iterator<Item = FileProblem> {
        let there = self.entries.iter().filter(|(_, e)| e.vanished.is_none());
        let told = there.filter(|(_, e)| !e.not_enforced.is_empty());
        told.map(|(path, entry)| FileProblem {
            file: path.display().to_string(),
            error: entry.not_enforced.join("; "),
            is_in_use: true,
            last_good_runs: false,
            is_valid: true,
        })
    }

    /// Stores the readings, and forgets the files that have been missing for long enough.
    fn take(&mut self, now: Moment, files: Vec<(PathBuf, Reading)>, log: &mut Vec<String>) {
        let mut there: HashMap<PathBuf, Reading> = files.into_iter().collect();
        let skipped: BTreeMap<PathBuf, &'static str> = there
            .iter()
            .filter_map(|(p, r)| {
                if let Reading::Skipped(what) = r {
                    Some((p.clone(), *what))
                } else {
                    None
                }
            })
            .collect();
        for (path, what) in &skipped {
            if self.skipped.get(path) != Some(what) {
                log.push(format!(
                    "skipped {}: it is {what}, and pods are read from regular files",
                    path.display()
                ));
            }
        }
        there.retain(|path, _| !skipped.contains_key(path));
        self.skipped = skipped;
        self.entries.retain(|path, entry| {
            let since = *entry.vanished.get_or_insert(now);
            there.contains_key(path) || now.since(since) < REMOVAL_SETTLE
        });
        let appeared = self.sent.is_some().then_some(now);
        for (path, reading) in there {
            let new = || KnownFile::new(appeared);
            let is_new = matches!(reading, Reading::Parsed { result: Ok(_), .. });
            let entry = self.entries.entry(path.clone()).or_insert_with(new);
            entry.take(reading);
            // The notes of a file with pods or workloads are shown with them.
            let runs_something = !entry.good.is_empty() || !entry.workloads.is_empty();
            if is_new && !runs_something && entry.error().is_none() {
                let line = |note: &String| format!("{}: {note}", path.display());
                log.extend(entry.notes.iter().map(line));
            }
        }
    }

    /// Tells whether a pod of the file is in the last set. A new file with the same pod does not replace that pod.
    fn holds(&self, path: &Path, entry: &KnownFile) -> bool {
        self.holders.contains(path) || entry.good.iter().any(|g| self.held.contains(g.pod.uid()))
    }

    /// Returns the names of the pods in files that have just vanished.
    fn leaving(&self) -> HashSet<String> {
        let vanished = self.entries.values().filter(|e| e.vanished.is_some());
        let pods = vanished.flat_map(|e| &e.good);
        pods.map(|good| good.pod.full_name()).collect()
    }

    /// Chooses one file for each pod name and UID. Existing files come before vanished files, then files of running
    /// pods before files of other pods, then the first file by path.
    fn choose(
        &self,
        now: Moment,
        files: &mut BTreeMap<PodUid, PodFile>,
        problems: &mut BTreeMap<String, Vec<String>>,
    ) -> Vec<Arc<Pod>> {
        let mut names: HashMap<String, &Path> = HashMap::new();
        let mut set = Vec::new();
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(path, e)| (e.vanished.is_some(), !self.holds(path, e)));
        let leaving = self.leaving();
        for (path, entry) in entries {
            let file = path.display().to_string();
            let error = entry.error();
            if entry.vanished.is_none() {
                let texts = problems.entry(file.clone()).or_default();
                texts.extend(error.clone());
            }
            if !self.holds(path, entry) && entry.comes_after(&leaving, now) {
                continue;
            }
            let mut notes = entry.notes.clone();
            for GoodPod { pod, warnings } in &entry.good {
                let taken = names.get(&pod.full_name()).map(|p| (*p, "pod"));
                let taken = taken.or_else(|| {
                    files
                        .get(pod.uid())
                        .map(|f| (Path::new(&f.file), "metadata.uid"))
                });
                if let Some((other, what)) = taken {
                    if entry.vanished.is_none() && entry.may_be_a_copy_until(now).is_none() {
                        let text = duplicate(pod, path, other, what);
                        problems.entry(file.clone()).or_default().push(text);
                    }
                    continue;
                }
                names.insert(pod.full_name(), path);
                files.insert(
                    pod.uid().clone(),
                    PodFile {
                        file: file.clone(),
                        warnings: [std::mem::take(&mut notes), warnings.clone()].concat(),
                        file_error: error.clone(),
                        owner: None,
                    },
                );
                set.push(Arc::clone(pod));
            }
        }
        problems.retain(|_, texts| !texts.is_empty());
        set
    }

    /// Chooses one file for each object that several files have.
    fn choose_objects(
        &mut self,
        now: Moment,
        problems: &mut BTreeMap<String, Vec<String>>,
    ) -> Vec<LocalObject> {
        let mut all = Vec::new();
        for (path, entry) in &self.entries {
            all.extend(entry.objects.iter().map(|object| Candidate {
                path,
                entry,
                key: object.key.clone(),
                object,
            }));
        }
        let chosen = choose(all, &self.object_files, now, problems);
        self.object_files = chosen.files;
        let objects = chosen.objects.iter();
        objects.map(|candidate| candidate.object.clone()).collect()
    }

    /// Chooses one file for each workload that several files have.
    fn choose_workloads(
        &mut self,
        now: Moment,
        problems: &mut BTreeMap<String, Vec<String>>,
    ) -> Vec<FiledWorkload> {
        let mut all = Vec::new();
        for (path, entry) in &self.entries {
            all.extend(entry.workloads.iter().map(|object| Candidate {
                path,
                entry,
                key: object.workload.key(),
                object,
            }));
        }
        let chosen = choose(all, &self.workload_files, now, problems);
        self.workload_files = chosen.files;
        // The notes of a file are shown once: with its first pod, or else with its first workload.
        let mut noted: HashSet<PathBuf> = HashSet::new();
        let mut filed = |candidate: Candidate<WorkloadKey, GoodWorkload>| {
            let Candidate {
                path,
                entry,
                object,
                ..
            } = candidate;
            let is_first = entry.good.is_empty() && noted.insert(path.clone());
            let notes = if is_first { &entry.notes[..] } else { &[] };
            FiledWorkload {
                workload: object.workload.clone(),
                file: PodFile {
                    file: path.display().to_string(),
                    warnings: [notes, &object.warnings].concat(),
                    file_error: entry.error(),
                    owner: None,
                },
            }
        };
        chosen.objects.into_iter().map(&mut filed).collect()
    }

    /// Adds log lines for the problems that are new or gone since the last listing.
    fn log_changes(&self, problems: &BTreeMap<String, Vec<String>>, step: &mut Step) {
        for (file, texts) in problems {
            let old = self.reported.get(file).into_iter().flatten();
            let old: HashSet<&String> = old.collect();
            let new = texts.iter().filter(|text| !old.contains(text));
            // The text of a decoding error begins with file, line and column.
            let entry = self.entries.get(Path::new(file));
            step.log.extend(new.map(|text| {
                let entry = entry.filter(|e| e.error().as_ref() == Some(text));
                let consequence = entry.map_or("", KnownFile::consequence);
                if text.starts_with(file.as_str()) {
                    format!("{text}{consequence}")
                } else {
                    format!("{file}: {text}{consequence}")
                }
            }));
        }
        let over = self
            .reported
            .keys()
            .filter(|file| !problems.contains_key(*file));
        step.mended
            .extend(over.map(|file| format!("{file}: no problem any more")));
    }
}

/// Tells whether the last good version of an earlier daemon is needed besides the present file. Even a good file may
/// need the last good version, because a pod must not change its name under the same UID.
pub fn needs_last_good(reading: &Reading, kept: &Digest) -> bool {
    match reading {
        Reading::Skipped(_) => false,
        Reading::Parsed {
            digest,
            result: Ok(_),
            ..
        } => digest != kept,
        _ => true,
    }
}

/// Tells whether a name in the directory is the name of a pod file. The kubelet excludes names with a leading dot. This
/// function also excludes the temporary files of editors: vim's `4913`, `*.swp` and `*.swx`, emacs' `#x#`, backups
/// `*~`, and `*.tmp` of programs that rename the file later.
pub fn is_pod_file(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let ends = |suffix: &str| name.ends_with(suffix.as_bytes());
    let leftover = name == b"4913"
        || ends("~")
        || ends(".swp")
        || ends(".swx")
        || ends(".tmp")
        || (name.starts_with(b"#") && ends("#"));
    !name.starts_with(b".") && !leftover
}

fn duplicate(pod: &Pod, path: &Path, other: &Path, what: &str) -> String {
    let (namespace, name, uid) = (&pod.metadata.namespace, &pod.metadata.name, pod.uid());
    let object = if what == "pod" {
        format!("pod {namespace}/{name}")
    } else {
        format!("pod {namespace}/{name} with metadata.uid {uid}")
    };
    if path == other {
        return format!(
            "{object} is ignored: an earlier item of {} has the same {what}; remove one of the two",
            path.display()
        );
    }
    format!(
        "{object} in {} is ignored: {} has the same {what} and comes first; remove one of the two",
        path.display(),
        other.display()
    )
}

fn same_pods(a: &[Arc<Pod>], b: &[Arc<Pod>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::api::PodOrigin;
    use crate::api::decode::{self, DecodeError, DecodedPod};
    use crate::test_pods;
    use serde_json::json;

    /// Makes a pod from the text `name[@uid][#content]`. Without a uid, the UID depends on content and path, as in 6.1.
    pub(crate) fn decode(bytes: &[u8], path: &Path) -> Result<Decoded, DecodeError> {
        let text = std::str::from_utf8(bytes).expect("tests write text");
        let one = |line: &str| {
            let line = line.strip_suffix(';');
            let line = line.ok_or_else(|| refusal(TRUNCATED, path))?;
            let (rest, content) = line.split_once('#').unwrap_or((line, ""));
            let (name, uid) = rest
                .split_once('@')
                .map_or((rest, format!("{line} {}", path.display())), |(n, u)| {
                    (n, u.to_owned())
                });
            let pod = test_pods::pod(name)
                .uid(&uid)
                .spec(json!({"hostname": content}));
            Ok(DecodedPod {
                pod: pod.build(),
                warnings: vec![],
            })
        };
        let pods: Result<Vec<_>, DecodeError> = text.lines().map(one).collect();
        Ok(Decoded {
            pods: pods?,
            ..Decoded::default()
        })
    }

    /// A text that the real decoder refuses. The text stands for a missing semicolon, which the decoder of these tests
    /// refuses.
    const TRUNCATED: &str = "{";

    /// Returns the real decoder's error for this text.
    pub(crate) fn refusal(text: &str, path: &Path) -> DecodeError {
        let node_name = "n";
        let origin = PodOrigin::File { node_name, path };
        decode::objects(text.as_bytes(), &origin).expect_err("it is bad")
    }

    /// Returns the error of a file without its last semicolon.
    pub(crate) fn truncated(path: impl AsRef<Path>) -> String {
        refusal(TRUNCATED, path.as_ref()).to_string()
    }

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn signature(n: u64) -> Signature {
        Signature {
            inode: (1, n),
            size: 1,
            mtime: (0, 0),
            ctime: (0, 0),
        }
    }

    fn parsed(path: &str, text: &str) -> (PathBuf, Reading) {
        let digest = [text.len() as u8; 32];
        let result = decode(text.as_bytes(), Path::new(path)).map_err(ContentError::from);
        (
            path.into(),
            Reading::Parsed {
                signature: Some(signature(1)),
                digest,
                result,
            },
        )
    }

    fn unchanged(path: &str) -> (PathBuf, Reading) {
        (path.into(), Reading::Unchanged)
    }

    fn files() -> Files {
        Files::new("/p".into(), HashSet::new())
    }

    fn uids(step: &Step) -> Option<Vec<&str>> {
        step.set
            .as_ref()
            .map(|s| s.iter().map(|p| p.uid().as_str()).collect())
    }

    #[track_caller]
    fn check(step: &Step, expected: Option<&[&str]>, problems: &[&str]) {
        assert_eq!(uids(step), expected.map(<[&str]>::to_vec));
        assert_eq!(
            step.problems
                .iter()
                .map(|p| format!("{} {}", p.file, p.error))
                .collect::<Vec<_>>(),
            problems
        );
    }

    /// Returns the problem of a file without its last semicolon.
    fn bad(path: &str) -> String {
        format!("{path} {}", truncated(path))
    }

    #[test]
    fn a_bad_file_keeps_its_last_good_pod_and_says_it_once() {
        let mut f = files();
        check(
            &f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")])),
            Some(&["1"]),
            &[],
        );
        let step = f.step(at(1), Listing::Dir(vec![parsed("/p/a", "a@1")]));
        check(&step, None, &[&bad("/p/a")]);
        assert_eq!(
            step.pods[&"1".into()].file_error.as_deref(),
            Some(truncated("/p/a").as_str())
        );
        assert_eq!(
            step.log,
            [format!(
                "{}; the last good version of its pod stays",
                truncated("/p/a")
            )]
        );
        let again = f.step(at(500), Listing::Dir(vec![unchanged("/p/a")]));
        check(&again, None, &[&bad("/p/a")]);
        assert!(again.log.is_empty());
        let mended = f.step(at(600), Listing::Dir(vec![parsed("/p/a", "a@1#x;")]));
        check(&mended, Some(&["1"]), &[]);
        assert_eq!(
            (mended.log.len(), mended.mended),
            (0, vec!["/p/a: no problem any more".to_owned()])
        );
        assert_eq!(mended.pods[&"1".into()].file_error, None);
    }

    #[test]
    fn an_unreadable_file_keeps_its_pod_until_it_reads_the_same_again() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let failed = f.step(
            at(1),
            Listing::Dir(vec![("/p/a".into(), Reading::Failed("EIO".into()))]),
        );
        check(&failed, None, &["/p/a EIO"]);
        assert!(
            f.wants(Path::new("/p/a"), &signature(1)),
            "an unread file is read next time"
        );
        let same = Reading::SameContent {
            signature: Some(signature(1)),
        };
        check(
            &f.step(at(2), Listing::Dir(vec![("/p/a".into(), same)])),
            None,
            &[],
        );
        assert!(!f.wants(Path::new("/p/a"), &signature(1)));
    }

    #[test]
    fn a_deleted_file_takes_its_pod_only_when_it_stays_away() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let gone = f.step(at(10), Listing::Dir(vec![]));
        check(&gone, None, &[]);
        assert_eq!(gone.wake, Some(at(110)));
        check(
            &f.step(at(60), Listing::Dir(vec![unchanged("/p/a")])),
            None,
            &[],
        );
        check(&f.step(at(70), Listing::Dir(vec![])), None, &[]);
        check(&f.step(at(169), Listing::Dir(vec![])), None, &[]);
        check(&f.step(at(170), Listing::Dir(vec![])), Some(&[]), &[]);
    }

    #[test]
    fn an_emptied_store_never_comes_back() {
        // kubelet-probes 15 O10: the kubelet sends old pods again together with the next pod.
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        f.step(at(10), Listing::Dir(vec![]));
        f.step(at(200), Listing::Dir(vec![]));
        check(
            &f.step(at(300), Listing::Dir(vec![parsed("/p/b", "b@2;")])),
            Some(&["2"]),
            &[],
        );
    }

    #[test]
    fn the_pods_of_a_new_file_come_with_the_removal_of_those_whose_file_has_gone() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let renamed = vec![parsed("/p/b", "b@2;")];
        check(&f.step(at(10), Listing::Dir(renamed)), None, &[]);
        let both = f.step(at(110), Listing::Dir(vec![unchanged("/p/b")]));
        check(&both, Some(&["2"]), &[]);
    }

    /// A renamed file replaces its pod at once: no other pod goes, so the new pod waits for nothing.
    #[test]
    fn a_pod_whose_file_is_renamed_is_replaced_at_once() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let renamed = vec![parsed("/p/b", "a@2;")];
        check(&f.step(at(10), Listing::Dir(renamed)), Some(&["2"]), &[]);
    }

    #[test]
    fn a_new_file_whose_pod_is_known_stays_when_another_goes() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let both = vec![unchanged("/p/a"), parsed("/p/b", "b@2;")];
        check(&f.step(at(10), Listing::Dir(both)), Some(&["1", "2"]), &[]);
        let gone = f.step(at(20), Listing::Dir(vec![unchanged("/p/b")]));
        check(&gone, Some(&["2", "1"]), &[]);
    }

    /// A new file waits for a limited time after it has appeared, even if more files are removed during this time.
    #[test]
    fn a_new_file_waits_a_short_time_for_those_that_go() {
        let mut f = files();
        let all = vec![parsed("/p/a", "a@1;"), parsed("/p/c", "c@3;")];
        f.step(at(0), Listing::Dir(all));
        let first = vec![parsed("/p/b", "b@2;"), unchanged("/p/c")];
        let held = f.step(at(10), Listing::Dir(first));
        check(&held, Some(&["3", "1"]), &[]);
        assert_eq!(held.wake, Some(at(110)));
        f.step(at(90), Listing::Dir(vec![unchanged("/p/b")]));
        let later = f.step(at(110), Listing::Dir(vec![unchanged("/p/b")]));
        check(&later, Some(&["2", "3"]), &[]);
    }

    #[test]
    fn a_renamed_file_keeps_a_pod_with_its_own_uid_and_renews_one_without() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;\nx;")]));
        let renamed = f.step(at(10), Listing::Dir(vec![parsed("/p/b", "a@1;\nx;")]));
        check(&renamed, Some(&["1", "x /p/b"]), &[]);
        assert_eq!(renamed.pods[&"1".into()].file, "/p/b");
    }

    #[test]
    fn the_first_of_two_files_with_one_pod_wins_until_it_goes() {
        let mut f = files();
        let both = f.step(
            at(0),
            Listing::Dir(vec![parsed("/p/b", "a@2;"), parsed("/p/a", "a@1;")]),
        );
        let text = "/p/b pod default/a in /p/b is ignored: /p/a has the same pod and comes first; remove one of the two";
        check(&both, Some(&["1"]), &[text]);
        check(
            &f.step(at(10), Listing::Dir(vec![unchanged("/p/b")])),
            Some(&["2"]),
            &[],
        );
    }

    #[test]
    fn a_second_file_with_a_pod_does_not_end_the_first_ones() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/b", "a@2;")]));
        let text = "/p/a pod default/a in /p/a is ignored: /p/b has the same pod and comes first; remove one of the two";
        let newcomer = f.step(
            at(10),
            Listing::Dir(vec![parsed("/p/a", "a@1;"), unchanged("/p/b")]),
        );
        check(&newcomer, None, &[]);
        let settled = newcomer.wake.unwrap();
        assert_eq!(settled, at(110));
        check(
            &f.step(
                settled,
                Listing::Dir(vec![unchanged("/p/a"), unchanged("/p/b")]),
            ),
            None,
            &[text],
        );
        // an edit of the first file or a later daemon does not change which file counts
        check(
            &f.step(
                at(120),
                Listing::Dir(vec![unchanged("/p/a"), parsed("/p/b", "a@3;")]),
            ),
            Some(&["3"]),
            &[text],
        );
        let mut later = Files::new("/p".into(), ["3".into()].into());
        check(
            &later.step(
                at(0),
                Listing::Dir(vec![parsed("/p/a", "a@1;"), parsed("/p/b", "a@3;")]),
            ),
            Some(&["3"]),
            &[text],
        );
    }

    #[test]
    fn an_edit_through_a_copy_beside_the_file_is_not_told() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let copy = f.step(
            at(10),
            Listing::Dir(vec![unchanged("/p/a"), parsed("/p/aXyZ", "a@1#new;")]),
        );
        check(&copy, None, &[]);
        let renamed = f.step(at(12), Listing::Dir(vec![parsed("/p/a", "a@1#new;")]));
        check(&renamed, Some(&["1"]), &[]);
        let later = f.step(at(112), Listing::Dir(vec![unchanged("/p/a")]));
        check(&later, None, &[]);
        let lines = [copy.log, renamed.log, later.log, later.mended].concat();
        assert_eq!(lines, [""; 0]);
    }

    #[test]
    fn a_log_line_names_its_file_once() {
        let mut f = files();
        let parsed =
            |text: &str| Listing::Dir(vec![(PathBuf::from("/p/a"), Reading::Failed(text.into()))]);
        assert_eq!(
            f.step(at(0), parsed("/p/a:1:2: not JSON")).log,
            ["/p/a:1:2: not JSON"]
        );
        assert_eq!(f.step(at(1), parsed("broken")).log, ["/p/a: broken"]);
    }

    #[test]
    fn two_files_cannot_share_a_uid() {
        let text = "/p/b pod default/b with metadata.uid 1 in /p/b is ignored: /p/a has the same metadata.uid and comes first; remove one of the two";
        check(
            &files().step(
                at(0),
                Listing::Dir(vec![parsed("/p/a", "a@1;"), parsed("/p/b", "b@1;")]),
            ),
            Some(&["1"]),
            &[text],
        );
    }

    #[test]
    fn a_pod_that_changes_its_name_but_not_its_uid_is_bad() {
        let mut f = files();
        f.step(at(0), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        let step = f.step(at(1), Listing::Dir(vec![parsed("/p/a", "b@1;")]));
        assert!(
            step.set.is_none()
                && step.problems[0]
                    .error
                    .contains("default/a has become default/b"),
            "{step:?}"
        );
    }

    #[test]
    fn a_missing_path_is_an_empty_set_said_once() {
        let mut f = files();
        let first = f.step(at(0), Listing::Missing("missing".into()));
        check(&first, Some(&[]), &["/p missing"]);
        assert_eq!(first.log.len(), 1);
        let second = f.step(at(1000), Listing::Missing("missing".into()));
        check(&second, None, &["/p missing"]);
        assert!(second.log.is_empty());
    }

    #[test]
    fn an_unreadable_listing_keeps_everything() {
        let mut f = files();
        check(
            &f.step(at(0), Listing::Unreadable("EACCES".into())),
            None,
            &["/p EACCES"],
        );
        f.step(at(1), Listing::Dir(vec![parsed("/p/a", "a@1;")]));
        check(
            &f.step(at(500), Listing::Unreadable("EIO".into())),
            None,
            &["/p EIO"],
        );
        check(
            &f.step(at(1000), Listing::Unreadable("EIO".into())),
            None,
            &["/p EIO"],
        );
        assert_eq!(
            f.step(at(1001), Listing::Unreadable("EIO".into()))
                .pods
                .len(),
            1
        );
    }

    #[test]
    fn a_bad_single_file_says_nothing_and_a_bad_file_in_a_directory_an_empty_set() {
        check(
            &files().step(at(0), Listing::File(parsed("/p", "x").1)),
            None,
            &[&bad("/p")],
        );
        check(
            &files().step(at(0), Listing::Dir(vec![parsed("/p/a", "x")])),
            Some(&[]),
            &[&bad("/p/a")],
        );
        check(
            &files().step(at(0), Listing::File(parsed("/p", "x@1;").1)),
            Some(&["1"]),
            &[],
        );
    }

    #[test]
    fn other_kinds_are_skipped_with_one_line() {
        let mut f = files();
        let listing = || Listing::Dir(vec![("/p/d".into(), Reading::Skipped("a directory"))]);
        assert_eq!(
            f.step(at(0), listing()).log,
            ["skipped /p/d: it is a directory, and pods are read from regular files"]
        );
        assert!(f.step(at(1), listing()).log.is_empty());
    }

    #[test]
    fn names_that_are_no_pod_files() {
        let count = |names: &[&str]| names.iter().filter(|n| is_pod_file(OsStr::new(n))).count();
        assert_eq!(
            count(&[
                ".a.json",
                "..data",
                "a.json~",
                ".a.json.swp",
                "a.swp",
                "a.swx",
                "#a.json#",
                "a.json.tmp",
                "4913"
            ]),
            0
        );
        assert_eq!(
            count(&["a.json", "web", "4913.json", "#a", "a.yaml", "tmp"]),
            6
        );
    }

    #[test]
    fn a_recently_written_file_is_read_again() {
        let mut f = files();
        let (path, mut reading) = parsed("/p/a", "a@1;");
        let Reading::Parsed { signature: s, .. } = &mut reading else {
            unreachable!()
        };
        *s = None;
        f.step(at(0), Listing::Dir(vec![(path, reading)]));
        assert!(f.wants(Path::new("/p/a"), &signature(1)));
        assert!(f.digest(Path::new("/p/a")).is_some());
    }
}
