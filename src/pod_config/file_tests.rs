//! The file source as a thread on a real directory. The re-listing time is an hour wherever inotify has to do it.

use std::os::unix::fs::symlink;

use super::super::files::tests::decode;
use super::super::merge::PodOperation::{self, Add, Remove, Update};
use super::*;

const CEILING: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// A source on `<dir>/pods`; stopped and joined when dropped.
struct Fixture {
    dir: tempfile::TempDir,
    source: Option<FileSource>,
    updates: Receiver<PodUpdate>,
    states: Arc<FileStates>,
    changed: Receiver<()>,
}

impl Fixture {
    /// `prepare` works on the directory before the source starts.
    fn new(frequency: Duration, prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        let (send, updates) = bounded(100);
        let (tell, changed) = bounded(100);
        let states = Arc::new(FileStates::new(move || {
            let _ = tell.try_send(());
        }));
        let config = FileSourceConfig {
            path: dir.path().join("pods"),
            check_frequency: frequency,
            decode: Arc::new(decode),
            config: Arc::new(PodConfig::new(&[Source::File])),
            updates: send,
            states: Arc::clone(&states),
            events: Arc::default(),
        };
        let source = Some(FileSource::spawn(config).unwrap());
        Self { dir, source, updates, states, changed }
    }

    fn with_dir(prepare: impl FnOnce(&Path)) -> Self {
        Self::new(HOUR, |dir| {
            fs::create_dir(dir.join("pods")).unwrap();
            prepare(&dir.join("pods"));
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("pods").join(name)
    }

    /// Writes aside and renames into place.
    fn put(&self, name: &str, text: &str) {
        let aside = self.dir.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.path(name)).unwrap();
    }

    #[track_caller]
    fn expect(&self, op: PodOperation, names: &[&str]) {
        let update = self.updates.recv_timeout(CEILING).unwrap_or_else(|_| panic!("no {op} of {names:?}"));
        assert_eq!((update.op, update.pods.iter().map(|p| p.metadata.name.as_str()).collect::<Vec<_>>()), (op, names.to_vec()));
    }

    /// Waits for a pod with this content, whatever comes before.
    #[track_caller]
    fn expect_content(&self, hostname: &str) {
        let next = || self.updates.recv_timeout(CEILING).expect("an update with the new content");
        while !next().pods.iter().any(|p| p.spec.hostname == hostname) {}
    }

    #[track_caller]
    fn expect_nothing_sent(&self) {
        assert_eq!(self.updates.try_recv().ok(), None);
    }

    /// Waits until the problems' texts hold these words, one problem each.
    #[track_caller]
    fn expect_problems(&self, words: &[&str]) {
        let deadline = std::time::Instant::now() + CEILING;
        loop {
            let problems = self.states.problems();
            if problems.len() == words.len() && problems.iter().zip(words).all(|(p, w)| p.error.contains(w)) {
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
        if let Some(source) = self.source.take() {
            source.stop();
            source.join();
        }
    }
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
    assert_eq!(f.states.get(&"3".into()).unwrap().file, f.path("c").display().to_string());
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
    f.expect_problems(&["truncated; the last good version"]);
    fs::write(f.path("a"), "").unwrap();
    f.expect_problems(&["the file is empty; the last good version"]);
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
    assert_eq!(f.states.get(&"1".into()).unwrap().file, f.path("b").display().to_string());
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
    f.expect_problems(&["its target does not exist; the last good version", "has the same"]);
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
    let new = f.dir.path().join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("a"), "a@1#2;").unwrap();
    fs::rename(f.path(""), f.dir.path().join("old")).unwrap();
    fs::rename(&new, f.path("")).unwrap();
    f.expect_content("2");
    f.put("b", "b@2;");
    f.expect(Add, &["b"]);
    fs::remove_dir_all(f.path("")).unwrap();
    f.expect(Remove, &["a", "b"]);
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
    symlink("v2", f.dir.path().join("next")).unwrap();
    fs::rename(f.dir.path().join("next"), f.dir.path().join("pods")).unwrap();
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
        fs::write(f.dir.path().join("pods"), "a@1#2;").unwrap();
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
    assert_eq!(f.states.get(&"2".into()).unwrap().file, f.path("b").display().to_string());
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
        fs::File::create(d.join("big")).unwrap().set_len(MAX_FILE_SIZE).unwrap();
        fs::write(d.join("a"), "a@1;").unwrap();
    });
    f.expect(Add, &["a"]);
    f.expect_problems(&["the limit is below 10 MiB"]);
}

#[test]
fn what_inotify_misses_the_re_listing_finds() {
    // A write through a link to a directory that nobody watches gives no event.
    let f = Fixture::new(Duration::from_millis(100), |d| {
        fs::create_dir(d.join("pods")).unwrap();
        fs::create_dir(d.join("elsewhere")).unwrap();
        fs::write(d.join("elsewhere/a"), "a@1;").unwrap();
        symlink("../elsewhere/a", d.join("pods/a")).unwrap();
    });
    f.expect(Add, &["a"]);
    fs::write(f.dir.path().join("elsewhere/a"), "a@1#2;").unwrap();
    f.expect(Update, &["a"]);
}

#[test]
fn a_flood_of_events_ends_in_the_truth() {
    let f = Fixture::with_dir(|_| ());
    f.expect(Add, &[]);
    // Far more than fs.inotify.max_queued_events (16384): the queue may overflow, the end state may not be missed.
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
    let states = Arc::new(FileStates::new(|| ()));
    let source = FileSource::spawn(FileSourceConfig {
        path: dir.path().into(),
        check_frequency: HOUR,
        decode: Arc::new(|bytes: &[u8], path: &Path| if bytes == b"panic" { panic!("on purpose") } else { decode(bytes, path) }),
        config: Arc::new(PodConfig::new(&[Source::File])),
        updates: send,
        states: Arc::clone(&states),
        events: Arc::default(),
    })
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
    let source = FileSource::spawn(FileSourceConfig {
        path: dir.path().into(),
        check_frequency: HOUR,
        decode: Arc::new(decode),
        config: Arc::new(PodConfig::new(&[Source::File])),
        updates: send,
        states: Arc::new(FileStates::new(move || {
            let _ = tell.try_send(());
        })),
        events: Arc::default(),
    })
    .unwrap();
    told.recv_timeout(CEILING).unwrap();
    source.stop();
    source.stop();
    source.join();
    drop(updates);
}
