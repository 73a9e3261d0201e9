//! Tests of the file source as a thread on a real directory. In tests of inotify the re-listing time is an hour.

use std::os::unix::fs::symlink;

use super::super::files::tests::{decode, refusal, truncated};
use super::super::merge::PodOperation::{self, Add, Remove, Update};
use super::super::{FileStates, PodConfig, PodUpdate};
use super::*;
use crate::api::objects::ObjectKind;
use crate::pods::objects::Objects;

const CEILING: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

fn outlet(updates: Sender<PodUpdate>, states: &Arc<FileStates>) -> Outlet {
    Outlet {
        config: Arc::new(PodConfig::new(&[PodSource::File])),
        objects: Arc::default(),
        workloads: Arc::default(),
        updates,
        states: states.clone(),
        events: Arc::default(),
    }
}

/// A source on `<dir>/pods`. Dropping the fixture stops and joins the source's thread.
struct Fixture {
    dir: Option<tempfile::TempDir>,
    source: Option<FileSource>,
    updates: Receiver<PodUpdate>,
    states: Arc<FileStates>,
    changed: Receiver<()>,
    objects: Arc<Objects>,
}

impl Fixture {
    /// Starts a source. `prepare` changes the directory before the start.
    fn new(frequency: Duration, prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        Self::on(dir, frequency, Arc::new(decode))
    }

    fn on(dir: tempfile::TempDir, frequency: Duration, decode: Decode) -> Self {
        let (send, updates) = bounded(100);
        let (tell, changed) = bounded(100);
        let states = Arc::new(FileStates::new(move |_| {
            let _ = tell.try_send(());
        }));
        let outlet = outlet(send, &states);
        let objects = outlet.objects.clone();
        let config = FileSourceConfig {
            path: dir.path().join("pods"),
            check_frequency: frequency,
            last_good: dir.path().join("last-good"),
            running: Default::default(),
            decode,
            outlet,
        };
        let source =
            Some(FileSource::spawn(config, &crate::base::threads::Roster::default()).unwrap());
        Self {
            dir: Some(dir),
            source,
            updates,
            states,
            changed,
            objects,
        }
    }

    fn end_source(&mut self) {
        if let Some(source) = self.source.take() {
            source.stop();
            source.join();
        }
    }

    /// Starts another daemon on the same files. `meanwhile` changes the pods directory while no daemon runs.
    fn restarted_with(mut self, decode: Decode, meanwhile: impl FnOnce(&Path)) -> Self {
        self.end_source();
        let dir = self.dir.take().unwrap();
        meanwhile(&dir.path().join("pods"));
        Self::on(dir, HOUR, decode)
    }

    fn restarted(self, meanwhile: impl FnOnce(&Path)) -> Self {
        self.restarted_with(Arc::new(decode), meanwhile)
    }

    fn dir(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    /// Ends the source, and returns the contents of its entries without their headers, sorted.
    fn kept(&mut self) -> Vec<String> {
        self.end_source();
        let content = |path: PathBuf| {
            fs::read_to_string(path)
                .unwrap()
                .split_once('\n')
                .unwrap()
                .1
                .to_owned()
        };
        let mut kept: Vec<String> = list(&self.dir().join("last-good"))
            .into_iter()
            .map(content)
            .collect();
        kept.sort();
        kept
    }

    #[track_caller]
    fn expect_uids(&self, op: PodOperation, uids: &[&str]) {
        let update = self
            .updates
            .recv_timeout(CEILING)
            .unwrap_or_else(|_| panic!("no {op} of {uids:?}"));
        assert_eq!(
            (
                update.op,
                update
                    .pods
                    .iter()
                    .map(|p| p.uid().as_str())
                    .collect::<Vec<_>>()
            ),
            (op, uids.to_vec())
        );
    }

    fn with_dir(prepare: impl FnOnce(&Path)) -> Self {
        Self::new(HOUR, |dir| {
            fs::create_dir(dir.join("pods")).unwrap();
            prepare(&dir.join("pods"));
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir().join("pods").join(name)
    }

    /// Writes a temporary file and renames it to `name`.
    fn put(&self, name: &str, text: &str) {
        let aside = self.dir().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.path(name)).unwrap();
    }

    #[track_caller]
    fn expect(&self, op: PodOperation, names: &[&str]) {
        let update = self
            .updates
            .recv_timeout(CEILING)
            .unwrap_or_else(|_| panic!("no {op} of {names:?}"));
        assert_eq!(
            (
                update.op,
                update
                    .pods
                    .iter()
                    .map(|p| p.metadata.name.as_str())
                    .collect::<Vec<_>>()
            ),
            (op, names.to_vec())
        );
    }

    /// Waits until these pods are removed, in one update or in several. Checks that no other update is sent until then.
    #[track_caller]
    fn expect_removed(&self, names: &[&str]) {
        let mut left: Vec<&str> = names.to_vec();
        while !left.is_empty() {
            let update = self
                .updates
                .recv_timeout(CEILING)
                .unwrap_or_else(|_| panic!("no REMOVE of {left:?}"));
            assert_eq!(update.op, Remove, "{update:?}");
            for pod in &update.pods {
                let at = left.iter().position(|n| *n == pod.metadata.name);
                left.swap_remove(at.unwrap_or_else(|| panic!("{update:?}, wanted {left:?}")));
            }
        }
    }

    /// Waits for a pod with this content. Ignores all updates before it.
    #[track_caller]
    fn expect_content(&self, hostname: &str) {
        let next = || {
            self.updates
                .recv_timeout(CEILING)
                .expect("an update with the new content")
        };
        while !next().pods.iter().any(|p| p.spec.hostname == hostname) {}
    }

    #[track_caller]
    fn expect_nothing_sent(&self) {
        assert_eq!(self.updates.try_recv().ok(), None);
    }

    /// Waits until there is one problem for each of `words`, in this order, with the words in its text.
    #[track_caller]
    fn expect_problems(&self, words: &[&str]) {
        let deadline = std::time::Instant::now() + CEILING;
        loop {
            let problems = self.states.problems();
            if problems.len() == words.len()
                && problems.iter().zip(words).all(|(p, w)| p.error.contains(w))
            {
                return;
            }
            if self.changed.recv_deadline(deadline).is_err() {
                panic!("wanted {words:?}, have {problems:?}");
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.end_source();
    }
}

fn list(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map_or(Vec::new(), |d| d.map(|e| e.unwrap().path()).collect())
}

#[test]
fn files_there_at_the_start_and_later_ones_are_pods() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a@1;").unwrap());
    f.expect(Add, &["a"]);
    f.put("b", "b@2;");
    f.expect(Add, &["b"]);
    fs::write(f.path("c"), "c@3;").unwrap();
    f.expect(Add, &["c"]);
    fs::write(f.path("c"), "c@3#new;").unwrap();
    f.expect(Update, &["c"]);
    fs::remove_file(f.path("b")).unwrap();
    f.expect(Remove, &["b"]);
    assert_eq!(
        f.states.get(&"3".into()).unwrap().file,
        f.path("c").display().to_string()
    );
}

#[test]
fn an_empty_directory_is_an_empty_set() {
    Fixture::with_dir(|_| ()).expect(Add, &[]);
}

#[test]
fn an_edit_without_a_uid_is_remove_then_add() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a;").unwrap());
    f.expect(Add, &["a"]);
    f.put("a", "a#new;");
    f.expect(Remove, &["a"]);
    f.expect(Add, &["a"]);
}

#[test]
fn a_partial_write_or_an_emptied_file_keeps_the_pod() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a@1;").unwrap());
    f.expect(Add, &["a"]);
    fs::write(f.path("a"), "a@1").unwrap();
    f.expect_problems(&[&truncated(f.path("a"))]);
    fs::write(f.path("a"), "").unwrap();
    f.expect_problems(&["the file is empty"]);
    assert!(f.states.get(&"1".into()).unwrap().file_error.is_some());
    f.expect_nothing_sent();
    fs::write(f.path("a"), "a@1#x;").unwrap();
    f.expect(Update, &["a"]);
    f.expect_problems(&[]);
}

#[test]
fn a_renamed_file_keeps_a_pod_with_a_uid() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a@1;\nx;").unwrap());
    f.expect(Add, &["a", "x"]);
    fs::rename(f.path("a"), f.path("b")).unwrap();
    f.expect(Remove, &["x"]);
    f.expect(Add, &["x"]);
    f.expect_nothing_sent();
    assert_eq!(
        f.states.get(&"1".into()).unwrap().file,
        f.path("b").display().to_string()
    );
}

#[test]
fn links_are_followed_and_a_swapped_data_link_is_seen() {
    let f = Fixture::with_dir(|d| {
        for (version, text) in [("..v1", "a@1;"), ("..v2", "a@1#2;")] {
            fs::create_dir(d.join(version)).unwrap();
            fs::write(d.join(version).join("a"), text).unwrap();
        }
        symlink("..v1", d.join("..data")).unwrap();
        symlink("..data/a", d.join("a")).unwrap();
    });
    f.expect(Add, &["a"]);
    symlink("..v2", f.path("..next")).unwrap();
    fs::rename(f.path("..next"), f.path("..data")).unwrap();
    f.expect(Update, &["a"]);
    fs::remove_file(f.path("..data")).unwrap();
    symlink(f.path("..v1/a"), f.path("b")).unwrap();
    f.expect_problems(&["its target does not exist", "has the same"]);
}

#[test]
fn a_missing_directory_is_an_empty_set_and_picked_up_when_it_comes() {
    let f = Fixture::new(HOUR, |_| ());
    f.expect(Add, &[]);
    f.expect_problems(&["does not exist"]);
    fs::create_dir(f.path("")).unwrap();
    f.expect_problems(&[]);
    f.put("a", "a@1;");
    f.expect(Add, &["a"]);
}

#[test]
fn a_replaced_directory_is_watched_afresh() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a@1;").unwrap());
    f.expect(Add, &["a"]);
    let new = f.dir().join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("a"), "a@1#2;").unwrap();
    fs::rename(f.path(""), f.dir().join("old")).unwrap();
    fs::rename(&new, f.path("")).unwrap();
    f.expect_content("2");
    f.put("b", "b@2;");
    f.expect(Add, &["b"]);
    // The files are removed one after the other. If a listing happens in between, their pods are removed one after the
    // other too.
    fs::remove_dir_all(f.path("")).unwrap();
    f.expect_removed(&["a", "b"]);
    f.expect_nothing_sent();
}

#[test]
fn a_directory_removed_file_by_file_takes_each_pod_once() {
    let f = Fixture::with_dir(|d| {
        fs::write(d.join("a"), "a@1;").unwrap();
        fs::write(d.join("b"), "b@2;").unwrap();
    });
    f.expect(Add, &["a", "b"]);
    fs::remove_file(f.path("a")).unwrap();
    f.expect(Remove, &["a"]);
    fs::remove_dir_all(f.path("")).unwrap();
    f.expect_removed(&["b"]);
    f.expect_problems(&["does not exist"]);
}

#[test]
fn a_directory_behind_a_link_may_be_swapped() {
    let f = Fixture::new(HOUR, |d| {
        for (version, text) in [("v1", "a@1;"), ("v2", "a@1#2;")] {
            fs::create_dir(d.join(version)).unwrap();
            fs::write(d.join(version).join("a"), text).unwrap();
        }
        symlink("v1", d.join("pods")).unwrap();
    });
    f.expect(Add, &["a"]);
    symlink("v2", f.dir().join("next")).unwrap();
    fs::rename(f.dir().join("next"), f.dir().join("pods")).unwrap();
    f.expect(Update, &["a"]);
}

#[test]
fn one_file_may_be_the_path_plain_or_linked() {
    for linked in [false, true] {
        let f = Fixture::new(HOUR, |d| {
            fs::write(d.join(if linked { "target" } else { "pods" }), "a@1;").unwrap();
            if linked {
                symlink("target", d.join("pods")).unwrap();
            }
        });
        f.expect(Add, &["a"]);
        fs::write(f.dir().join("pods"), "a@1#2;").unwrap();
        f.expect(Update, &["a"]);
    }
}

#[test]
fn two_files_with_one_pod_are_told_and_the_second_takes_over() {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), "a@1;").unwrap());
    f.expect(Add, &["a"]);
    f.put("b", "a@2;");
    f.expect_problems(&["has the same pod and comes first"]);
    f.expect_nothing_sent();
    fs::remove_file(f.path("a")).unwrap();
    f.expect(Remove, &["a"]);
    f.expect(Add, &["a"]);
    assert_eq!(
        f.states.get(&"2".into()).unwrap().file,
        f.path("b").display().to_string()
    );
}

#[test]
fn leftovers_and_other_kinds_do_not_count_and_do_not_block() {
    let f = Fixture::with_dir(|d| {
        for name in [".a", "a~", "a.swp", "4913", "#a#", "a.tmp"] {
            fs::write(d.join(name), "x@9;").unwrap();
        }
        fs::create_dir(d.join("directory")).unwrap();
        nix::unistd::mkfifo(&d.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(d.join("a"), "a@1;").unwrap();
    });
    f.expect(Add, &["a"]);
    assert_eq!(f.states.problems(), []);
}

#[test]
fn a_file_of_10_mib_is_refused() {
    let f = Fixture::with_dir(|d| {
        fs::File::create(d.join("big"))
            .unwrap()
            .set_len(MAX_FILE_SIZE)
            .unwrap();
        fs::write(d.join("a"), "a@1;").unwrap();
    });
    f.expect(Add, &["a"]);
    f.expect_problems(&["the limit is below 10 MiB"]);
}

#[test]
fn what_inotify_misses_the_re_listing_finds() {
    // The directory of the link's target is not watched, so a write through the link gives no event.
    let f = Fixture::new(Duration::from_millis(100), |d| {
        fs::create_dir(d.join("pods")).unwrap();
        fs::create_dir(d.join("elsewhere")).unwrap();
        fs::write(d.join("elsewhere/a"), "a@1;").unwrap();
        symlink("../elsewhere/a", d.join("pods/a")).unwrap();
    });
    f.expect(Add, &["a"]);
    fs::write(f.dir().join("elsewhere/a"), "a@1#2;").unwrap();
    f.expect(Update, &["a"]);
}

#[test]
fn a_flood_of_events_ends_in_the_truth() {
    let f = Fixture::with_dir(|_| ());
    f.expect(Add, &[]);
    // These changes are far more than fs.inotify.max_queued_events (16384). The queue may overflow, but the source must
    // see the last state.
    for _ in 0..10_000 {
        fs::write(f.path("x~"), "").unwrap();
        fs::remove_file(f.path("x~")).unwrap();
    }
    f.put("a", "a@1;");
    f.expect(Add, &["a"]);
}

#[test]
fn a_panicking_decoder_is_a_problem_of_that_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "a@1;").unwrap();
    fs::write(dir.path().join("bad"), "panic").unwrap();
    let (send, updates) = bounded(10);
    let states = Arc::new(FileStates::new(|_| ()));
    let source = FileSource::spawn(
        FileSourceConfig {
            path: dir.path().into(),
            check_frequency: HOUR,
            last_good: dir.path().join(".last-good"),
            running: Default::default(),
            decode: Arc::new(|bytes: &[u8], path: &Path| {
                if bytes == b"panic" {
                    panic!("on purpose")
                } else {
                    decode(bytes, path)
                }
            }),
            outlet: outlet(send, &states),
        },
        &crate::base::threads::Roster::default(),
    )
    .unwrap();
    assert_eq!(updates.recv_timeout(CEILING).unwrap().pods.len(), 1);
    assert!(states.problems()[0].error.contains("internal error"));
    source.stop();
    source.join();
}

#[test]
fn a_stop_ends_it_also_while_it_waits_for_a_full_channel() {
    let dir = tempfile::tempdir().unwrap();
    let (send, updates) = bounded(0);
    let (tell, told) = bounded(1);
    fs::write(dir.path().join("a"), "a@1;").unwrap();
    let states = Arc::new(FileStates::new(move |_| {
        let _ = tell.try_send(());
    }));
    let source = FileSource::spawn(
        FileSourceConfig {
            path: dir.path().into(),
            check_frequency: HOUR,
            last_good: dir.path().join(".last-good"),
            running: Default::default(),
            decode: Arc::new(decode),
            outlet: outlet(send, &states),
        },
        &crate::base::threads::Roster::default(),
    )
    .unwrap();
    told.recv_timeout(CEILING).unwrap();
    source.stop();
    source.stop();
    source.join();
    drop(updates);
}

/// Starts a daemon and waits until it has taken up the pod `a`.
fn with_pod(text: &str) -> Fixture {
    let f = Fixture::with_dir(|d| fs::write(d.join("a"), text).unwrap());
    f.expect(Add, &["a"]);
    f
}

#[test]
fn a_file_that_turned_bad_before_the_restart_keeps_its_pod() {
    let mut f = with_pod("a;");
    let uid: crate::api::PodUid = format!("a {}", f.path("a").display()).as_str().into();
    for bad in ["a", "", "a;\nb"] {
        f = f.restarted(|d| fs::write(d.join("a"), bad).unwrap());
        f.expect_uids(Add, &[uid.as_str()]);
        let error = f
            .states
            .get(&uid)
            .unwrap()
            .file_error
            .expect("the error is shown");
        assert_eq!(f.states.problems()[0].error, error);
    }
    f.put("a", "a#mended;");
    f.expect_uids(Remove, &[uid.as_str()]);
    f.expect(Add, &["a"]);
    f.expect_problems(&[]);
    assert_eq!(f.kept(), ["a#mended;"]);
}

#[test]
fn the_real_decoder_gives_the_same_identity() {
    let decode = |bytes: &[u8], path: &Path| {
        let source = crate::api::PodOrigin::File {
            node_name: "n",
            path,
        };
        crate::api::decode::objects(bytes, &source)
    };
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let f = with_pod("a;");
    let first = f.restarted_with(Arc::new(decode), |d| fs::write(d.join("a"), text).unwrap());
    let was = first.updates.recv_timeout(CEILING).unwrap().pods;
    let then = first.restarted_with(Arc::new(decode), |d| {
        fs::write(d.join("a"), &text[..60]).unwrap()
    });
    let is = then.updates.recv_timeout(CEILING).unwrap().pods;
    assert_eq!(
        (was[0].uid(), &was[0].spec, is.len()),
        (is[0].uid(), &is[0].spec, 1)
    );
}

/// Waits until the services have these ports, one for each service.
#[track_caller]
fn expect_services(objects: &Arc<Objects>, expected: &[u16]) {
    let (told, changes) = bounded(1);
    let _watch = objects.watch(&ObjectKind::OF_SERVICES, move || _ = told.try_send(()));
    loop {
        let found = objects.services();
        let ports = found
            .services
            .iter()
            .map(|(_, service)| service.ports[0].port);
        let ports: Vec<u16> = ports.collect();
        if ports == expected {
            return;
        }
        let changed = changes.recv_timeout(CEILING);
        assert!(changed.is_ok(), "wanted {expected:?}, have {ports:?}");
    }
}

#[test]
fn a_service_whose_file_turns_bad_stays_as_it_was_also_over_a_restart() {
    let decode: Decode = Arc::new(|bytes: &[u8], path: &Path| {
        let node_name = "n";
        let source = crate::api::PodOrigin::File { node_name, path };
        crate::api::decode::objects(bytes, &source)
    });
    let service = |port: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: {port}}}]}}\n"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("pods")).unwrap();
    fs::write(dir.path().join("pods/web"), service("80")).unwrap();
    let f = Fixture::on(dir, HOUR, decode.clone());
    expect_services(&f.objects, &[80]);
    f.put("web", &service("81"));
    expect_services(&f.objects, &[81]);
    f.put("web", &service("0"));
    f.expect_problems(&["web:4:17: spec.ports[0].port: Invalid value: 0: must be between"]);
    expect_services(&f.objects, &[81]);
    let f = f.restarted_with(decode, |_| {});
    expect_services(&f.objects, &[81]);
    f.expect_problems(&["web:4:17: spec.ports[0].port: Invalid value: 0: must be between"]);
    f.put("copy", &service("82"));
    f.expect_problems(&[
        "Service default/web in ",
        "web:4:17: spec.ports[0].port: Invalid value: 0: must be between",
    ]);
    expect_services(&f.objects, &[81]);
    fs::remove_file(f.path("web")).unwrap();
    expect_services(&f.objects, &[82]);
    f.expect_problems(&[]);
}

#[test]
fn an_unreadable_file_keeps_its_pod_over_the_restart() {
    let f = with_pod("a@1;").restarted(|d| {
        fs::remove_file(d.join("a")).unwrap();
        symlink("nowhere", d.join("a")).unwrap();
    });
    f.expect_uids(Add, &["1"]);
    f.expect_problems(&["its target does not exist"]);
}

#[test]
fn what_was_never_accepted_is_not_kept() {
    let mut f = with_pod("a@1;");
    f.put("a", "b@1;");
    f.expect_problems(&["default/a has become default/b"]);
    assert_eq!(f.kept(), ["a@1;"]);
    // Even after a restart the changed file is refused.
    let f = f.restarted(|_| ());
    f.expect(Add, &["a"]);
    f.expect_problems(&["default/a has become default/b"]);
}

#[test]
fn an_edit_while_no_daemon_runs_is_taken_up_as_it_is() {
    let mut f = with_pod("a@1;").restarted(|d| fs::write(d.join("a"), "a@1#new;").unwrap());
    f.expect_content("new");
    assert_eq!(f.kept(), ["a@1#new;"]);
}

#[test]
fn a_deleted_file_takes_its_last_good_version_along() {
    let mut f = with_pod("a@1;");
    f.put("b", "b@2;");
    f.expect(Add, &["b"]);
    fs::remove_file(f.path("a")).unwrap();
    f.expect(Remove, &["a"]);
    assert_eq!(f.kept(), ["b@2;"]);
    // The entry is removed even if no daemon sees the removal of its file. A bad file of the same name then has no pod.
    let mut f = f.restarted(|d| fs::remove_file(d.join("b")).unwrap());
    f.expect(Add, &[]);
    assert_eq!(f.kept(), Vec::<String>::new());
    let f = f.restarted(|d| fs::write(d.join("b"), "b").unwrap());
    f.expect(Add, &[]);
    f.expect_problems(&[&truncated(f.path("b"))]);
}

#[test]
fn a_directory_that_comes_late_finds_its_last_good_versions() {
    let f = with_pod("a@1;").restarted(|d| fs::rename(d, d.with_extension("away")).unwrap());
    f.expect(Add, &[]);
    f.expect_problems(&["does not exist"]);
    fs::write(f.dir().join("pods.away/a"), "a@1").unwrap();
    fs::rename(f.dir().join("pods.away"), f.path("")).unwrap();
    f.expect_uids(Add, &["1"]);
}

#[test]
fn a_single_bad_file_has_its_last_good_version_too() {
    let f = Fixture::new(HOUR, |d| fs::write(d.join("pods"), "a@1;").unwrap());
    f.expect(Add, &["a"]);
    let f = f.restarted(|file| fs::write(file, "a@1").unwrap());
    f.expect_uids(Add, &["1"]);
}

#[test]
fn a_version_that_refuses_what_an_earlier_one_accepted_says_so() {
    const NO_A: &str = "no pod";
    let strict: Decode = Arc::new(|bytes: &[u8], path: &Path| {
        if bytes.starts_with(b"a") {
            Err(refusal(NO_A, path))
        } else {
            decode(bytes, path)
        }
    });
    let f = with_pod("a@1;").restarted_with(strict.clone(), |_| ());
    f.expect(Add, &[]);
    let (no_a, truncated) = (refusal(NO_A, &f.path("a")), truncated(f.path("a")));
    f.expect_problems(&[&format!(
        "{no_a}; an earlier version of podprobe accepted this content, this one does not"
    )]);
    let mut f = f.restarted_with(strict, |d| fs::write(d.join("a"), "b").unwrap());
    f.expect(Add, &[]);
    f.expect_problems(&[&format!(
        "{truncated}; this version of podprobe refuses its last good version too, so its pod does not run: {no_a}"
    )]);
    assert_eq!(
        f.kept(),
        ["a@1;"],
        "the earlier version, put back, takes it up again"
    );
}

#[test]
fn a_damaged_entry_is_set_aside_and_costs_no_other_pod() {
    let f = with_pod("a@1;");
    f.put("b", "b@2;");
    f.expect(Add, &["b"]);
    let mut f = f;
    assert_eq!(f.kept().len(), 2);
    let holds_a = |p: &PathBuf| fs::read_to_string(p).unwrap().ends_with("a@1;");
    let entry = list(&f.dir().join("last-good"))
        .into_iter()
        .find(holds_a)
        .unwrap();
    let whole = fs::read(&entry).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&entry, &whole[..length]).unwrap();
        f = f.restarted(|d| {
            ["a", "b"]
                .iter()
                .for_each(|name| fs::write(d.join(name), "bad").unwrap())
        });
        f.expect_uids(Add, &["2"]);
        f.end_source();
        assert!(
            !entry.exists() && entry.with_extension("corrupt").exists(),
            "{length} of {} bytes",
            whole.len()
        );
    }
    let mut f = f.restarted(|d| fs::remove_file(d.join("a")).unwrap());
    f.expect_uids(Add, &["2"]);
    assert_eq!(
        f.kept(),
        ["b@2;"],
        "what was set aside goes with its pod file"
    );
}

#[test]
fn what_a_bad_disk_did_not_take_is_kept_at_a_later_listing() {
    let f = Fixture::new(Duration::from_millis(20), |d| {
        fs::create_dir(d.join("pods")).unwrap();
        fs::write(d.join("last-good"), "not a directory").unwrap();
        fs::write(d.join("pods/a"), "a@1;").unwrap();
        // After this wait the missing entry is the only reason to read the file a second time.
        while !is_settled(&d.join("pods/a").metadata().unwrap(), SystemTime::now()) {
            std::thread::yield_now();
        }
    });
    f.expect(Add, &["a"]);
    let last_good = f.dir().join("last-good");
    fs::remove_file(&last_good).unwrap();
    let deadline = std::time::Instant::now() + CEILING;
    while list(&last_good).iter().all(|p| p.extension().is_some()) {
        assert!(std::time::Instant::now() < deadline, "never kept");
        std::thread::yield_now();
    }
    let f = f.restarted(|d| fs::write(d.join("a"), "").unwrap());
    f.expect_uids(Add, &["1"]);
}
