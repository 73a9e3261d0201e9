use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

struct Volume(tempfile::TempDir);

impl Volume {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, files: &[(&str, u32, &str)]) -> io::Result<bool> {
        self.write_for(None, files)
    }

    fn write_for(&self, group: Option<Gid>, files: &[(&str, u32, &str)]) -> io::Result<bool> {
        let dir = File::open(self.0.path()).unwrap();
        write(&dir.into(), &Payload::of_texts(files), group)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.at(name)).unwrap()
    }

    /// Returns every name in the volume. The directory of the files is shown as `..N`.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(name).collect();
        let is_dir = |n: &str| n.starts_with("..2");
        names
            .iter_mut()
            .filter(|n| is_dir(n))
            .for_each(|n| *n = "..N".into());
        names.sort();
        names
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_directory_is_named_after_the_time() {
    let v = Volume::new();
    v.write(&[("a", 0o644, "1")]).unwrap();
    let target = fs::read_link(v.at("..data")).unwrap();
    let name = target.to_str().unwrap();
    let (time, random) = name[2..].split_once('.').unwrap();
    let lengths: Vec<usize> = time.split('_').map(str::len).collect();
    assert_eq!(lengths, [4, 2, 2, 2, 2, 2], "{name}");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    assert!(time.split('_').chain([random]).all(is_number), "{name}");
}

#[test]
fn files_are_links_into_a_directory_that_is_replaced_as_a_whole() {
    let v = Volume::new();
    assert!(
        v.write(&[
            ("a", 0o644, "1"),
            ("d/e/f", 0o400, "2"),
            ("d/g", 0o600, "3")
        ])
        .unwrap()
    );
    assert_eq!(v.names(), ["..N", "..data", "a", "d"]);
    assert_eq!((v.read("a"), v.read("d/e/f")), ("1".into(), "2".into()));
    assert_eq!(mode(&v.at("a")), 0o644);
    assert_eq!(mode(&v.at("d/e/f")), 0o400);
    assert_eq!(mode(&v.at("d/e")), 0o755);
    assert_eq!(fs::read_link(v.at("d")).unwrap(), Path::new("..data/d"));
    let before = fs::read_link(v.at("..data")).unwrap();
    assert!(
        v.write(&[("a", 0o644, "new"), ("b/c", 0o644, "4")])
            .unwrap()
    );
    assert_ne!(fs::read_link(v.at("..data")).unwrap(), before);
    assert_eq!(v.names(), ["..N", "..data", "a", "b"]);
    assert_eq!((v.read("a"), v.read("b/c")), ("new".into(), "4".into()));
}

#[test]
fn what_is_there_already_writes_nothing() {
    let v = Volume::new();
    let files = [("a", 0o644, "1"), ("d/e", 0o644, "2")];
    assert!(v.write(&files).unwrap());
    let before = fs::read_link(v.at("..data")).unwrap();
    assert!(!v.write(&files).unwrap());
    assert_eq!(fs::read_link(v.at("..data")).unwrap(), before);
    for changed in [
        [("a", 0o644, "2"), ("d/e", 0o644, "2")],
        [("a", 0o644, "22"), ("d/e", 0o644, "2")],
        [("a", 0o600, "22"), ("d/e", 0o644, "2")],
        [("a", 0o600, "22"), ("d/f", 0o644, "2")],
    ] {
        assert!(v.write(&changed).unwrap(), "{changed:?}");
        assert!(!v.write(&changed).unwrap(), "{changed:?}");
    }
    assert!(v.write(&[("a", 0o600, "22")]).unwrap());
    assert_eq!(v.names(), ["..N", "..data", "a"]);
}

/// A reader that opens the directory once reads one version, or finds that the directory has been replaced.
#[test]
fn a_reader_never_sees_half_an_update() {
    let v = Volume::new();
    let write = |n: usize| {
        let text = n.to_string();
        v.write(&[("a", 0o644, &text), ("d/b", 0o644, &text)])
            .unwrap()
    };
    write(0);
    let ended = AtomicBool::new(false);
    let versions = std::thread::scope(|s| {
        let reader = s.spawn(|| {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                let dir = v.at(fs::read_link(v.at("..data")).unwrap().to_str().unwrap());
                let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
                if let (Some(a), Some(b)) = (read("a"), read("d/b")) {
                    assert_eq!(a, b);
                    seen.insert(a);
                }
            }
            seen
        });
        (1..300).for_each(|n| assert!(write(n)));
        ended.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(!versions.is_empty());
}

#[test]
fn no_files_are_a_volume_that_has_been_written() {
    let v = Volume::new();
    let dir: OwnedFd = File::open(v.0.path()).unwrap().into();
    assert!(!is_written(&dir));
    assert!(v.write(&[]).unwrap());
    assert!(!v.write(&[]).unwrap());
    assert!(is_written(&dir));
    fs::create_dir(data_dir(&v).join("inside")).unwrap();
    let deeper = fs::read_link(v.at("..data")).unwrap().join("inside");
    fs::remove_file(v.at("..data")).unwrap();
    symlink(deeper, v.at("..data")).unwrap();
    assert!(!is_written(&dir), "it names no directory of ours");
    assert!(v.write(&[]).unwrap());
    assert_eq!(v.names(), ["..N", "..data"]);
}

#[test]
fn a_group_owns_the_files_and_can_read_them() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let v = Volume::new();
    let group = Some(Gid::from_raw(4711));
    assert!(v.write_for(group, &[("d/a", 0o400, "1")]).unwrap());
    for (name, expected) in [("", 0o2777), ("d", 0o2755), ("d/a", 0o440)] {
        assert_eq!(mode(&v.at(name)), expected, "{name}");
        assert_eq!(fs::metadata(v.at(name)).unwrap().gid(), 4711, "{name}");
    }
    assert!(!v.write_for(group, &[("d/a", 0o400, "1")]).unwrap());
    assert!(
        v.write_for(Some(Gid::from_raw(4712)), &[("d/a", 0o400, "1")])
            .unwrap()
    );
}

/// Checks an update after `leave` has changed the volume as a container could. The update must succeed, and files
/// outside the volume must stay.
#[track_caller]
fn check_hostile(leave: impl Fn(&Volume, &Path)) {
    let (v, outside) = (Volume::new(), tempfile::tempdir().unwrap());
    let kept = outside.path().join("kept");
    fs::write(&kept, "kept").unwrap();
    v.write(&[("a", 0o644, "1"), ("d/e", 0o644, "2")]).unwrap();
    leave(&v, outside.path());
    v.write(&[("a", 0o644, "3"), ("d/e", 0o644, "4")]).unwrap();
    assert_eq!((v.read("a"), v.read("d/e")), ("3".into(), "4".into()));
    assert_eq!(fs::read_to_string(kept).unwrap(), "kept");
    let left: Vec<_> = fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(left.len(), 1);
    assert!(!v.write(&[("a", 0o644, "3"), ("d/e", 0o644, "4")]).unwrap());
}

fn data_dir(v: &Volume) -> PathBuf {
    v.at(fs::read_link(v.at("..data")).unwrap().to_str().unwrap())
}

#[test]
fn a_container_cannot_lead_the_writer_out_of_its_volume_or_stop_it() {
    let fifo = |path: &Path| {
        let _ = fs::remove_file(path);
        nix::unistd::mkfifo(path, Mode::from_bits_truncate(0o666)).unwrap();
    };
    check_hostile(|v, outside| {
        fs::remove_file(v.at("..data")).unwrap();
        symlink(outside, v.at("..data")).unwrap();
    });
    check_hostile(|v, outside| {
        fs::remove_file(v.at("a")).unwrap();
        symlink(outside.join("kept"), v.at("a")).unwrap();
    });
    check_hostile(|v, outside| {
        let dir = data_dir(v);
        fs::remove_dir_all(&dir).unwrap();
        symlink(outside, &dir).unwrap();
    });
    check_hostile(|v, outside| {
        let dir = data_dir(v);
        fs::remove_file(dir.join("a")).unwrap();
        symlink(outside.join("kept"), dir.join("a")).unwrap();
        fs::remove_dir_all(dir.join("d")).unwrap();
        symlink(outside, dir.join("d")).unwrap();
    });
    check_hostile(|v, _| fifo(&data_dir(v).join("a")));
    check_hostile(|v, _| fifo(&v.at("a")));
    check_hostile(|v, _| fifo(&v.at("..data_tmp")));
    check_hostile(|v, outside| symlink(outside, v.at("..data_tmp")).unwrap());
    check_hostile(|v, _| fs::create_dir_all(v.at("..data_tmp/x/y")).unwrap());
    check_hostile(|v, outside| symlink(outside, v.at("..2020_old")).unwrap());
    check_hostile(|v, _| {
        fs::remove_file(v.at("a")).unwrap();
        fs::create_dir_all(v.at("a/b")).unwrap();
    });
}

#[test]
fn a_directory_in_place_of_the_link_is_an_error_and_nothing_more() {
    let v = Volume::new();
    v.write(&[("a", 0o644, "1")]).unwrap();
    fs::remove_file(v.at("..data")).unwrap();
    fs::create_dir(v.at("..data")).unwrap();
    v.write(&[("a", 0o644, "2")]).unwrap_err();
    assert_eq!(v.names().iter().filter(|n| *n == "..N").count(), 1);
}

/// Directories on which other volumes are mounted stay through updates. A container's link in place of such a directory
/// has no effect.
#[test]
fn directories_for_other_mounts_are_beside_the_files() {
    let v = Volume::new();
    let make = |paths: &[&str]| {
        let dir = File::open(v.0.path()).unwrap().into();
        let paths = paths.iter().map(PathBuf::from).collect();
        make_mount_points(&dir, &Payload::of_texts(&[("a", 0o644, "1")]), &paths, None)
    };
    make(&["custom", "d/e", "a"]).unwrap();
    assert_eq!(mode(&v.at("custom")), 0o755);
    v.write(&[("a", 0o644, "1")]).unwrap();
    make(&["custom", "d/e", "a"]).unwrap();
    v.write(&[("a", 0o644, "2")]).unwrap();
    assert_eq!(v.names(), ["..N", "..data", "a", "custom", "d"]);
    assert_eq!(v.read("a"), "2");
    assert!(v.at("d/e").is_dir());
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), v.at("link")).unwrap();
    assert!(make(&["link/x"]).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}
