//! The form `delete -f`: removes files that `apply -f` has put into the daemon's directory.
//!
//! Invariants: [`plan`] decides and is pure. A file in the daemon's directory is never removed if it has an object
//! that the user did not name, or if the user gave this very file with `-f`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{Delete, gone};
use crate::api::decode;
use crate::base::clock::Moment;
use crate::cli::client::Client;
use crate::cli::columns;
use crate::cli::error::CliError;
use crate::cli::output::yaml;
use crate::cli::pod_files::{self, Input, Objects, Watched, objects, way_out};
use crate::face::server::protocol::DeleteTarget;
use crate::face::views::workloads::{controller, full_name};
use crate::face::views::{PodView, Snapshot};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// The longest time to wait until the daemon has seen that a file is gone.
const SEEN: Duration = Duration::from_secs(2);
/// The time between two checks whether the daemon has seen that a file is gone.
const STEP: Duration = Duration::from_millis(20);

/// The plan for the files in the daemon's directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// Files that are to be removed.
    removed: BTreeSet<PathBuf>,
    /// Files in the daemon's directory that the user gave with `-f`. These files stay, but their pods are ended.
    kept: BTreeSet<PathBuf>,
    /// Wanted objects that are in no file of the daemon's directory.
    missing: Vec<String>,
}

/// Decides which files of the daemon's directory are removed and which are kept. `wanted` are the objects that the
/// user wants to remove, and `there` are the files with their objects. `named` tells whether the user gave the
/// file itself with `-f`.
///
/// # Errors
/// Returns a sentence if a file to be removed also has an object that is not in `wanted`.
fn plan<C>(
    wanted: &BTreeSet<String>,
    there: &BTreeMap<PathBuf, Objects<C>>,
    named: &dyn Fn(&Path) -> bool,
) -> Result<Plan, String> {
    let mut plan = Plan::default();
    for object in wanted {
        let mut holders = there.iter().filter(|(_, all)| all.contains_key(object));
        let Some((file, all)) = holders.next() else {
            plan.missing.push(object.clone());
            continue;
        };
        if named(file) {
            plan.kept.insert(file.clone());
            continue;
        }
        if let Some(other) = all.keys().find(|key| !wanted.contains(*key)) {
            return Err(format!(
                "{} has {other} too, which would be gone with {object}: take {object} out of that file, or name {other} too",
                file.display()
            ));
        }
        plan.removed.insert(file.clone());
    }
    Ok(plan)
}

/// Removes the objects in the files that the user gave. Removes the objects' files from the daemon's directory,
/// but a file that the user gave itself stays, and its pods are ended.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, if a file must not be removed, or if an object does
/// not exist.
pub(super) fn run(args: &Delete, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let inputs = pod_files::read(&args.files)?;
    let mut client = Client::connect(&args.root)?;
    let watched = Watched::of(&mut client)?;
    let wanted = wanted(&inputs, &watched.node_name)?;
    let is_named = |file: &Path| {
        let given = inputs.iter().filter_map(|i| i.path.as_deref());
        given.into_iter().any(|path| is_same(path, file))
    };
    match remove(
        args,
        (&mut client, &watched),
        &wanted,
        &is_named,
        (out, err),
    )? {
        true => Ok(()),
        false => Err(CliError::Reported),
    }
}

/// Removes the files of the wanted objects from the daemon's directory, and waits until workloads that were in them are
/// gone with their pods. Returns false if not all is gone.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, or if a file must not or cannot be removed.
pub(super) fn remove(
    args: &Delete,
    (client, watched): (&mut Client, &Watched),
    wanted: &BTreeSet<String>,
    is_named: &dyn Fn(&Path) -> bool,
    (out, err): (&mut dyn Write, &mut dyn Write),
) -> Result<bool, CliError> {
    let alone = watched.alone()?;
    let (snapshot, list) = (client.snapshot()?, client.workloads(None)?);
    let there = watched.all_there(&snapshot, &list)?;
    let plan = plan(wanted, &there, is_named).map_err(CliError::Failed)?;
    let removal = Removal {
        args,
        snapshot: &snapshot,
        list: &list,
        plan: &plan,
    };
    let mut failed = !removal.end_pods(client, (out, err))?;
    failed |= !removal.name_workloads_that_stay(err)?;
    removal.remove_files(&there, out)?;
    drop(alone);
    until_seen(&plan.removed, client)?;
    for object in plan.missing.iter().filter(|_| !args.ignore_not_found) {
        failed = true;
        writeln!(err, "{object} not found")?;
    }
    Ok(removal.wait_until_gone(client, err)? && !failed)
}

/// A removal under way: what was there before it, and what is to go.
struct Removal<'a> {
    args: &'a Delete,
    snapshot: &'a Snapshot,
    list: &'a WorkloadList,
    plan: &'a Plan,
}

impl Removal<'_> {
    /// Ends the pods whose file stays, and shortens the end of those whose file goes. Returns false if the daemon refuses
    /// to end a pod.
    fn end_pods(
        &self,
        client: &mut Client,
        (out, err): (&mut dyn Write, &mut dyn Write),
    ) -> Result<bool, CliError> {
        let mut are_ended = true;
        for pod in &self.snapshot.pods {
            if pod.terminating || controller(&pod.object).is_some() {
                continue;
            }
            if self.plan.kept.contains(Path::new(&pod.file)) {
                are_ended &= super::one(self.args, pod, client, out, err)?;
            } else if self.is_removed(pod) && self.args.grace.is_some() {
                // The pod is deleted first, because the removal of a file cannot carry a grace period.
                shorten(self.args, pod, client, err)?;
            }
        }
        Ok(are_ended)
    }

    fn is_removed(&self, pod: &PodView) -> bool {
        self.plan.removed.contains(Path::new(&pod.file))
    }

    /// Names the workloads whose file stays. Returns false if there are any.
    fn name_workloads_that_stay(&self, err: &mut dyn Write) -> Result<bool, CliError> {
        let all = self.list.items.iter();
        let mut are_none = true;
        for view in all.filter(|view| is_in(view, &self.plan.kept)) {
            are_none = false;
            let (name, file) = (full_name(view), view.file.as_deref().unwrap_or_default());
            writeln!(
                err,
                "{name} stays: -f names its own file, which is never removed by this; remove {file}"
            )?;
        }
        Ok(are_none)
    }

    /// Removes the files, and prints what goes with each.
    fn remove_files<C>(
        &self,
        there: &BTreeMap<PathBuf, Objects<C>>,
        out: &mut dyn Write,
    ) -> Result<(), CliError> {
        for file in &self.plan.removed {
            let cannot = |e| {
                let way_out = way_out(&e);
                CliError::Failed(format!("cannot remove {}: {e}{way_out}", file.display()))
            };
            fs::remove_file(file).map_err(cannot)?;
            for object in there.get(file).into_iter().flat_map(|all| all.keys()) {
                writeln!(out, "{}", super::deleted(object))?;
            }
        }
        Ok(out.flush()?)
    }

    /// Waits until the pods are gone. Returns false if the time is over.
    fn wait_until_gone(&self, client: &mut Client, err: &mut dyn Write) -> Result<bool, CliError> {
        let removed = self.list.items.iter();
        let removed = removed.filter(|view| is_in(view, &self.plan.removed));
        let removed: Vec<&WorkloadView> = removed.collect();
        let mut going = gone::of_workloads(&removed, self.list, &*client.snapshot()?);
        if self.args.grace.is_some() {
            // Before its file is gone, a workload would replace the pod.
            for pod in &going {
                shorten(self.args, &pod.view, client, err)?;
            }
        }
        if self.args.wait == Some(true) {
            let pods = self.snapshot.pods.iter();
            let own = pods.filter(|p| self.is_removed(p) && controller(&p.object).is_none());
            going.extend(own.map(gone::of_pod));
        }
        gone::wait(self.args, going, err)
    }
}

fn is_in(view: &WorkloadView, files: &BTreeSet<PathBuf>) -> bool {
    view.file
        .as_ref()
        .is_some_and(|file| files.contains(Path::new(file)))
}

/// Ends a pod within the grace period that the user gave.
fn shorten(
    args: &Delete,
    pod: &PodView,
    client: &mut Client,
    err: &mut dyn Write,
) -> Result<(), CliError> {
    let ended = client.delete(DeleteTarget {
        uid: pod.uid().into(),
        grace_period_seconds: args.grace,
    });
    if let Err(e) = ended {
        writeln!(err, "{}: {e}", columns::name(pod))?;
    }
    Ok(())
}

/// Waits until the daemon has seen that the files are gone, for at most `SEEN`. So the next verb does not show what was
/// in these files as running. The wait is usually short, because the kernel reports the change to the daemon.
fn until_seen(removed: &BTreeSet<PathBuf>, client: &mut Client) -> Result<(), CliError> {
    let end = Moment::now() + SEEN;
    while !removed.is_empty() && Moment::now() < end {
        let (snapshot, list) = (client.snapshot()?, client.workloads(None)?);
        let mut pods = snapshot.pods.iter();
        let stays = |p: &Arc<PodView>| {
            removed.contains(Path::new(&p.file))
                && !p.terminating
                && controller(&p.object).is_none()
        };
        if !pods.any(stays) && !list.items.iter().any(|view| is_in(view, removed)) {
            break;
        }
        thread::sleep(STEP);
    }
    Ok(())
}

/// Returns the names of the objects to be removed.
fn wanted(inputs: &[Input], node_name: &str) -> Result<BTreeSet<String>, CliError> {
    let mut wanted = BTreeSet::new();
    for input in inputs {
        let shown = decode::as_in_files(&input.bytes, node_name);
        let texts: Vec<Vec<u8>> = match shown {
            Some(all) => {
                let text = |object| yaml::document(object).into_bytes();
                all.iter().map(text).collect()
            }
            None => vec![input.bytes.clone()],
        };
        for text in texts {
            let found = objects(&text, node_name).map_err(|e| {
                let shown = input.shown.display().to_string();
                CliError::Failed(e.replace("/:", &format!("{shown}:")))
            })?;
            wanted.extend(found.into_keys());
        }
    }
    Ok(wanted)
}

/// Tells whether two paths lead to the same file.
fn is_same(a: &Path, b: &Path) -> bool {
    match (fs::canonicalize(a), fs::canonicalize(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(wanted: &[&str], named: &str, expected: Result<[&[&str]; 3], &str>) {
        let objects = |words: &[&str]| words.iter().map(|w| ((*w).to_owned(), ())).collect();
        let there = BTreeMap::from([
            ("/p/web".into(), objects(&["pod/web", "service/web"])),
            ("/p/db".into(), objects(&["pod/db"])),
        ]);
        let wanted = wanted.iter().map(|w| (*w).to_owned()).collect();
        let got = plan(&wanted, &there, &|file| file == Path::new(named)).map(|plan| {
            let paths = |set: BTreeSet<PathBuf>| -> Vec<String> {
                set.iter().map(|p| p.display().to_string()).collect()
            };
            [paths(plan.removed), paths(plan.kept), plan.missing]
        });
        let expected = expected.map(|lists| {
            lists.map(|list| {
                list.iter()
                    .map(|w| (*w).to_owned())
                    .collect::<Vec<String>>()
            })
        });
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    #[test]
    fn only_files_go_whose_every_object_was_named() {
        check(&["pod/db", "pod/x"], "", Ok([&["/p/db"], &[], &["pod/x"]]));
        let both = ["pod/web", "service/web"];
        check(&both, "", Ok([&["/p/web"], &[], &[]]));
        let said = "/p/web has service/web too, which would be gone with pod/web: take pod/web out of that file, or name service/web too";
        check(&["pod/web"], "", Err(said));
    }

    #[test]
    fn the_file_that_was_named_itself_stays() {
        check(&["pod/db"], "/p/db", Ok([&[], &["/p/db"], &[]]));
    }
}
