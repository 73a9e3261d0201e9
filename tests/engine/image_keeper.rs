//! The image keeper on a real directory and a real store.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use podprobe::engine::images::housekeeping::{ImageKeeper, ImageKeeperConfig};
use podprobe::engine::images::{ImageGcPolicy, ImageStore, ImagesInUse};
use serde_json::json;

use crate::support::skip::is_root;

const CEILING: Duration = Duration::from_secs(10);

fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// A docker archive of one layer that holds `content`.
fn archive(name: &str, content: &str) -> Vec<u8> {
    let layer = tar_of(&[("f", content.as_bytes())]);
    let digest = ring::digest::digest(&ring::digest::SHA256, &layer);
    let hex: String = digest.as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let arch = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    let config = json!({"architecture": arch, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{hex}")]}});
    let manifest = json!([{"Config": "c.json", "RepoTags": [name], "Layers": ["l.tar"]}]);
    tar_of(&[
        ("l.tar", &layer),
        ("c.json", config.to_string().as_bytes()),
        ("manifest.json", manifest.to_string().as_bytes()),
    ])
}

struct Fixture {
    dir: tempfile::TempDir,
    store: ImageStore,
    loaded: Receiver<()>,
    keeper: Option<ImageKeeper>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path().join("images")).unwrap();
        Self {
            dir,
            store,
            loaded: bounded(0).1,
            keeper: None,
        }
    }

    fn start(&mut self, in_use: impl Fn() -> ImagesInUse + Send + 'static) {
        let (send, loaded) = bounded(100);
        self.loaded = loaded;
        let config = ImageKeeperConfig {
            store: self.store.clone(),
            drop_dir: self.path("drop"),
            in_use: Box::new(in_use),
            gc: ImageGcPolicy::default().into(),
            on_change: Box::new(move || send.try_send(()).unwrap()),
        };
        self.keeper =
            Some(ImageKeeper::spawn(config, &podprobe::base::threads::Roster::default()).unwrap());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Renamed into place, as a careful tool does.
    fn put(&self, name: &str, content: &[u8]) {
        fs::create_dir_all(self.path("drop")).unwrap();
        fs::write(self.path("aside"), content).unwrap();
        fs::rename(self.path("aside"), self.path("drop").join(name)).unwrap();
    }

    /// Waits for at least one report, and checks that these names exist then; one change may be
    /// reported twice.
    #[track_caller]
    fn expect_loaded(&self, names: &[&str]) {
        loop {
            self.loaded
                .recv_timeout(CEILING)
                .unwrap_or_else(|_| panic!("no load of {names:?}"));
            let have: Vec<String> = self
                .store
                .list()
                .unwrap()
                .into_iter()
                .filter_map(|r| r.name)
                .collect();
            if have == names {
                return;
            }
        }
    }

    #[track_caller]
    fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + CEILING;
        while !condition() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn stop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
            keeper.stop();
            assert!(keeper.join(CEILING), "the thread has not ended");
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
            keeper.join(CEILING);
        }
    }
}

fn age(path: &Path) {
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(old)
        .unwrap();
}

#[test]
fn archives_there_at_the_start_and_later_ones_are_loaded_and_told() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    f.put("a.tar", &archive("a:1", "a"));
    f.put("bad.tar", b"no tar at all");
    age(&f.path("drop/a.tar"));
    f.start(ImagesInUse::default);
    f.expect_loaded(&["docker.io/library/a:1"]);
    f.put("b.tar", &archive("b:1", "b"));
    f.expect_loaded(&["docker.io/library/a:1", "docker.io/library/b:1"]);
    fs::write(f.path("drop/c.tar"), archive("c:1", "c")).unwrap();
    f.expect_loaded(&[
        "docker.io/library/a:1",
        "docker.io/library/b:1",
        "docker.io/library/c:1",
    ]);
    f.stop();
}

#[test]
fn the_directory_is_made_and_watched() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    f.start(ImagesInUse::default);
    f.wait_for("no directory", || f.path("drop").is_dir());
    f.put("a.tar", &archive("a:1", "a"));
    f.expect_loaded(&["docker.io/library/a:1"]);
}

#[test]
fn an_archive_that_is_being_written_is_left_until_it_is_closed() {
    if !is_root() {
        return;
    }
    // A machine under load may take so long that the archive rests. Such a try says nothing.
    while !half_an_archive_is_left() {}
}

/// Returns false if the first half of the archive had rested before it was seen that the keeper has left it.
fn half_an_archive_is_left() -> bool {
    use std::io::Write;
    let mut f = Fixture::new();
    f.put("aaa.tar", &archive("other:1", "o"));
    age(&f.path("drop/aaa.tar"));
    let whole = archive("slow:1", "s");
    let mut slow = fs::File::create(f.path("drop/slow.tar")).unwrap();
    let begun = Instant::now();
    slow.write_all(&whole[..600]).unwrap();
    f.start(ImagesInUse::default);
    f.expect_loaded(&["docker.io/library/other:1"]);
    let memory = || fs::read_to_string(f.path("images/dropped.json")).unwrap_or_default();
    f.wait_for("nothing remembered", || memory().contains("aaa.tar"));
    let is_left = !memory().contains("slow.tar");
    // It rests after 2 s.
    if begun.elapsed() >= Duration::from_secs(2) {
        return false;
    }
    assert!(is_left, "half an archive was tried");
    slow.write_all(&whole[600..]).unwrap();
    drop(slow);
    f.expect_loaded(&["docker.io/library/other:1", "docker.io/library/slow:1"]);
    true
}

#[test]
fn an_archive_whose_end_nobody_saw_is_loaded_once_it_rests() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    f.put("a.tar", &archive("a:1", "a"));
    // What was loaded cannot be remembered: it is loaded and told all the same.
    fs::create_dir(f.path("images/dropped.json")).unwrap();
    f.start(ImagesInUse::default);
    // Long before the next regular look, which is 20 s away.
    f.expect_loaded(&["docker.io/library/a:1"]);
}

#[test]
fn at_the_start_nameless_images_go_unless_a_container_uses_them() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let load = |content: &str| {
        fs::write(f.path("x.tar"), archive("x:1", content)).unwrap();
        f.store.load(&f.path("x.tar")).unwrap().remove(0).id
    };
    // The name goes from one to the next.
    let [used, unused, named] = ["1", "2", "3"].map(load);
    let used_by_container = used.clone();
    f.start(move || {
        let mut in_use = ImagesInUse::default();
        in_use.add(&used_by_container, []);
        in_use
    });
    let ids = || {
        f.store
            .list()
            .unwrap()
            .into_iter()
            .map(|r| r.id)
            .collect::<Vec<_>>()
    };
    f.wait_for("the unused image stays", || !ids().contains(&unused));
    f.stop();
    let ids: Vec<String> = f.store.list().unwrap().into_iter().map(|r| r.id).collect();
    assert_eq!(ids, [named, used]);
}

#[test]
fn a_stop_during_a_look_leaves_the_other_archives_to_the_next_keeper() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    for name in ["a", "b"] {
        f.put(&format!("{name}.tar"), &archive(&format!("{name}:1"), name));
    }
    // The store is locked: the keeper is in the middle of a.tar until it is released.
    let lock = fs::File::options()
        .write(true)
        .open(f.path("images/lock"))
        .unwrap();
    let lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    ["a", "b"]
        .iter()
        .for_each(|name| age(&f.path(&format!("drop/{name}.tar"))));
    f.start(ImagesInUse::default);
    let keeper = f.keeper.take().unwrap();
    let inode = f.path("images/lock").metadata().unwrap().ino();
    f.wait_for("not waiting for the lock", || is_waited_for(inode));
    keeper.stop();
    assert!(
        !keeper.join(Duration::from_millis(50)),
        "a limit is a limit"
    );
    drop(lock);
    f.expect_loaded(&["docker.io/library/a:1"]);
    f.start(ImagesInUse::default);
    f.expect_loaded(&["docker.io/library/a:1", "docker.io/library/b:1"]);
}

/// Somebody waits for a lock on that file.
fn is_waited_for(inode: u64) -> bool {
    let locks = fs::read_to_string("/proc/locks").unwrap();
    locks
        .lines()
        .any(|l| l.contains("->") && l.contains("FLOCK") && l.contains(&format!(":{inode} ")))
}

/// `podprobe image import` is another process: who waits for its image hears of it at once.
#[test]
fn an_image_loaded_by_another_process_is_told() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    f.start(ImagesInUse::default);
    // nothing is dropped, so all that can be told is what the other one does; the first may come before the watch
    let other = ImageStore::open(f.path("images")).unwrap();
    let told = (0..100).any(|n| {
        fs::write(f.path("x.tar"), archive(&format!("x:{n}"), "x")).unwrap();
        other.load(&f.path("x.tar")).unwrap();
        f.loaded.recv_timeout(Duration::from_millis(100)).is_ok()
    });
    assert!(told, "a change of names is told");
}
