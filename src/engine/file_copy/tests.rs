use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;
use tar::{EntryType, Header};

use super::*;

/// The root directory of a container, and a directory of the node. The two lie side by side.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "node"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn root(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    fn node(&self, path: &str) -> PathBuf {
        self.dir.path().join("node").join(path)
    }

    fn container(&self) -> Root {
        Root::Container(fs::File::open(self.root("")).unwrap().into())
    }

    fn packed(&self, path: &str) -> Result<(Vec<u8>, Vec<String>), CopyError> {
        let mut tar = Vec::new();
        let source = Source::find(&self.container(), path.as_bytes())?;
        let packed = source.pack(&mut tar, || Ok(()))?;
        Ok((tar, packed.notes.into_texts()))
    }

    /// Copies `path` out of the container to the path `to` below the node's directory, and returns the notes.
    fn out(&self, path: &str, to: &str) -> Result<Vec<String>, String> {
        let (tar, _) = self.packed(path).map_err(|e| e.to_string())?;
        let path = self.node(to);
        // `PathBuf::join` may drop a slash at the end of the path, so a slash that a person typed is added again.
        let mut path = path.into_os_string().into_vec();
        if to.ends_with('/') && !path.ends_with(b"/") {
            path.push(b'/');
        }
        unpacked(&Root::Node, &path, Placement::Copy, &tar)
    }

    fn write_in(&self, path: &str, tar: &[u8]) -> Result<Vec<String>, String> {
        unpacked(&self.container(), path.as_bytes(), Placement::Copy, tar)
    }
}

fn unpacked(
    root: &Root,
    path: &[u8],
    placement: Placement,
    mut tar: &[u8],
) -> Result<Vec<String>, String> {
    let target = Target {
        root,
        path,
        owner: None,
        placement,
    };
    match unpack(&target, &mut tar) {
        Ok(done) => Ok(done.notes.into_texts()),
        Err(e) => Err(e.to_string()),
    }
}

/// Returns a tar archive with entries of any kinds, names and content, as an attacker would make it.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (kind, name, content) in entries {
        let mut header = Header::new_gnu();
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        let content = if is_link { "" } else { content };
        header.set_entry_type(*kind);
        header.set_mode(0o4755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.extend_from_slice(header.as_bytes());
        tar.extend_from_slice(content.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

use EntryType::{Directory as DIR, Fifo as FIFO, Link as HARD, Regular as FILE, Symlink as LINK};

/// Returns the path, kind and content of every file below a directory.
fn tree(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(dir)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let meta = fs::symlink_metadata(&path).unwrap();
            found.push(match () {
                () if meta.is_symlink() => {
                    format!("{name} -> {}", fs::read_link(&path).unwrap().display())
                }
                () if meta.is_dir() => format!("{name}/"),
                () => format!("{name} {}", fs::read_to_string(&path).unwrap()),
            });
            if meta.is_dir() {
                todo.push(path);
            }
        }
    }
    found.sort();
    found
}

#[track_caller]
fn check_tree(dir: &Path, expected: &[&str]) {
    assert_eq!(tree(dir), expected);
}

#[test]
fn a_copy_is_named_as_cp_names_it() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    fs::write(place.root("d/f"), "1").unwrap();
    fs::create_dir(place.node("there")).unwrap();
    fs::write(place.node("file"), "old").unwrap();
    for (from, to) in [
        ("/d/f", "there"),
        ("d/f", "there/g"),
        ("d/f", "file"),
        ("/d", "there"),
        ("/d/", "there/"),
        ("/d", "new"),
        ("/d", "new2/"),
        ("/d/.", "content"),
        ("/d/.", "there"),
    ] {
        place
            .out(from, to)
            .unwrap_or_else(|e| panic!("{from} {to}: {e}"));
    }
    check_tree(
        &place.node(""),
        &[
            "content/",
            "content/f 1",
            "file 1",
            "new/",
            "new/f 1",
            "new2/",
            "new2/f 1",
            "there/",
            "there/d/",
            "there/d/f 1",
            "there/f 1",
            "there/g 1",
        ],
    );
    place.out("/", "whole").unwrap();
    check_tree(&place.node("whole"), &["d/", "d/f 1"]);
}

#[test]
fn what_cannot_be_copied_is_said() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    fs::write(place.root("d/f"), "1").unwrap();
    fs::write(place.node("file"), "old").unwrap();
    fs::create_dir_all(place.node("there/f")).unwrap();
    fs::create_dir_all(place.node("dirs")).unwrap();
    fs::write(place.node("dirs/d"), "old").unwrap();
    let before = tree(&place.node(""));
    for (from, to, expected) in [
        ("none", "x", "cannot read \"none\": it does not exist"),
        (
            "d/f/x",
            "x",
            "cannot read \"d/f/x\": it, or what leads to it, is not a directory",
        ),
        ("d", "file", "it is not a directory; nothing was written"),
        ("d/f", "file/", "it is not a directory"),
        ("d/f", "new/", "new/\": it does not exist"),
        (
            "d/f",
            "no/such",
            "no\" does not exist; make it first; nothing was written",
        ),
        ("d/f", "there", "cannot write \"f\": it is a directory"),
        (
            "d",
            "dirs",
            "cannot write \"d\": what is there is not a directory",
        ),
    ] {
        let said = place.out(from, to).unwrap_err();
        assert!(said.contains(expected), "{from} {to}: {said}");
    }
    assert_eq!(tree(&place.node("")), before);
}

#[test]
fn modes_times_and_links_stay() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    fs::write(place.root("d/f"), "1").unwrap();
    symlink("../..//./x/", place.root("d/l")).unwrap();
    symlink("t".repeat(300), place.root("d/long")).unwrap();
    let set = |name: &str, mode, time: TimeSpec| {
        let file = fs::File::open(place.root(name)).unwrap();
        file.set_permissions(Permissions::from_mode(mode)).unwrap();
        nix::sys::stat::futimens(&file, &time, &time).unwrap();
    };
    set("d/f", 0o4640, TimeSpec::new(-5, 250_000_000));
    set("d", 0o1511, TimeSpec::new(1_234_567_890, 987_654_321));
    place.out("d", "copy").unwrap();
    let meta = |name: &str| fs::symlink_metadata(place.node(name)).unwrap();
    let file = meta("copy/f");
    assert_eq!((file.mtime(), file.mtime_nsec()), (-5, 250_000_000));
    assert_eq!(file.mode() & 0o7777, 0o640, "without set-user-id");
    let dir = meta("copy");
    assert_eq!(
        (dir.mtime(), dir.mtime_nsec()),
        (1_234_567_890, 987_654_321)
    );
    assert_eq!(dir.mode() & 0o7777, 0o1511);
    let target = |name: &str| fs::read_link(place.node(name)).unwrap();
    assert_eq!(target("copy/l").as_os_str().as_bytes(), b"../..//./x/");
    assert_eq!(target("copy/long").as_os_str().len(), 300);
}

#[test]
fn names_may_hold_anything() {
    let place = Place::new();
    let names: [&[u8]; 6] = [
        b"new\nline",
        "ü日本🐧".as_bytes(),
        b"\xff\xfe",
        &[b'n'; 255],
        b" -rf\t\x1b[2J",
        &[b'h'; 100],
    ];
    let path = |dir: PathBuf, name: &[u8]| dir.join(std::ffi::OsStr::from_bytes(name));
    let deep = "d/".repeat(20) + &"e".repeat(200);
    fs::create_dir_all(place.root(&deep)).unwrap();
    for name in names {
        fs::write(path(place.root(&deep), name), name).unwrap();
    }
    place.out("d", "copy").unwrap();
    let copied = place.node(&format!("copy/{}", &deep[2..]));
    assert_eq!(fs::read_dir(&copied).unwrap().count(), names.len());
    for name in names {
        assert_eq!(fs::read(path(copied.clone(), name)).unwrap(), name);
    }
}

#[test]
fn other_kinds_are_left_out_and_told_on_both_sides() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    fs::write(place.root("d/f"), "1").unwrap();
    nix::unistd::mkfifo(&place.root("d/p"), Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.root("d/s")).unwrap();
    let (_, mut notes) = place.packed("d").unwrap();
    notes.sort();
    let expected = [
        "\"d/p\" is left out: a FIFO",
        "\"d/s\" is left out: a socket",
    ];
    assert_eq!(notes, expected);
    let mut told = place.out("d", "copy").unwrap();
    told.sort();
    assert_eq!(told, expected);
    check_tree(&place.node("copy"), &["f 1"]);
    let said = place.out("d/p", "x").unwrap_err();
    assert!(
        said.contains("it is a FIFO; files, directories and links are copied"),
        "{said}"
    );
    let foreign = archive(&[(DIR, "a", ""), (FIFO, "a/p", "")]);
    assert_eq!(
        place.write_in("/n", &foreign).unwrap(),
        ["\"n/p\" is left out: a FIFO or a device"]
    );
}

#[test]
fn what_is_left_out_is_told_in_bounds() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    for n in 0..Notes::MAX + 5 {
        nix::unistd::mkfifo(&place.root(&format!("d/{n}")), Mode::S_IRWXU).unwrap();
    }
    let told = place.out("d", "copy").unwrap();
    assert_eq!(told.len(), Notes::MAX + 1);
    assert!(told.last().unwrap().ends_with("more"), "{told:?}");
}

/// No stream writes outside of the destination. The container makes the stream and may attack the node through it:
/// CVE-2018-1002100, CVE-2019-1002101, CVE-2019-11246, CVE-2019-11249.
#[test]
fn no_stream_writes_outside_of_the_destination() {
    let place = Place::new();
    fs::write(place.dir.path().join("secret"), "s").unwrap();
    fs::create_dir(place.dir.path().join("outside")).unwrap();
    let outside = place.dir.path().join("outside");
    let outside = outside.to_str().unwrap();
    let before = |place: &Place| {
        let all = tree(place.dir.path());
        let all = all.into_iter().filter(|l| !l.starts_with("node/"));
        all.collect::<Vec<_>>()
    };
    let untouched = before(&place);
    for (what, entries) in [
        (
            "a name with ..",
            vec![(DIR, "a", ""), (FILE, "a/../../secret", "x")],
        ),
        ("a first name with ..", vec![(FILE, "../secret", "x")]),
        ("a beginning inside a directory", vec![(FILE, "a/b", "x")]),
        (
            "another beginning",
            vec![(DIR, "a", ""), (FILE, "b/c", "x")],
        ),
        (
            "a name that begins alike",
            vec![(DIR, "a", ""), (FILE, "ab", "x")],
        ),
        (
            "a directory through a link",
            vec![(DIR, "a", ""), (LINK, "a/l", outside), (DIR, "a/l", "")],
        ),
        (
            "a file through a link",
            vec![(DIR, "a", ""), (LINK, "a/l", outside), (FILE, "a/l/x", "x")],
        ),
        (
            "a file through two links",
            vec![
                (DIR, "a", ""),
                (LINK, "a/k", "../.."),
                (LINK, "a/l", "k/outside"),
                (FILE, "a/l/x", "x"),
            ],
        ),
        (
            "the beginning is a link",
            vec![(LINK, "a", outside), (FILE, "a/x", "x")],
        ),
        (
            "a hard link",
            vec![(DIR, "a", ""), (HARD, "a/h", "../secret")],
        ),
        (
            "a hard link to a link",
            vec![
                (DIR, "a", ""),
                (LINK, "a/l", "../../secret"),
                (HARD, "a/h", "a/l"),
                (FILE, "a/h", "x"),
            ],
        ),
    ] {
        let destination = place.node(what);
        let path = destination.as_os_str().as_bytes();
        let said = unpacked(&Root::Node, path, Placement::Copy, &archive(&entries));
        assert!(said.is_err(), "{what}");
        assert_eq!(before(&place), untouched, "{what}");
    }
    // A file that has the path of an earlier link replaces this link.
    let entries = [
        (DIR, "a", ""),
        (LINK, "a/l", "../../secret"),
        (FILE, "a/l", "x"),
    ];
    let path = place.node("replaced");
    let path = path.as_os_str().as_bytes();
    unpacked(&Root::Node, path, Placement::Copy, &archive(&entries)).unwrap();
    assert_eq!(before(&place), untouched);
    check_tree(&place.node("replaced"), &["l x"]);
    let mode = fs::metadata(place.node("replaced/l")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755, "no set-user-id bit");
}

/// No link leads a copy out of the container. The container owns the destination and may have put links into it.
#[test]
fn no_link_of_the_container_leads_out_of_it() {
    let place = Place::new();
    let node = place.node("");
    fs::create_dir(place.root("d")).unwrap();
    symlink(&node, place.root("abs")).unwrap();
    symlink("../../node", place.root("d/rel")).unwrap();
    symlink(&node, place.root("d/sub")).unwrap();
    symlink("/d", place.root("ok")).unwrap();
    fs::write(place.node("secret"), "s").unwrap();
    let file = archive(&[(FILE, "f", "x")]);
    for path in ["abs", "abs/", "abs/f", "d/rel/f", "d/rel/secret"] {
        // A link that leads out of the container leads to a missing place inside the container. The link `abs` itself
        // is replaced.
        let _ = place.write_in(path, &file);
        check_tree(&node, &["secret s"]);
    }
    let below = archive(&[(DIR, "d", ""), (DIR, "d/sub", ""), (FILE, "d/sub/f", "x")]);
    let said = place.write_in("/", &below).unwrap_err();
    assert!(
        said.contains("\"d/sub\": what is there is not a directory; a link is not followed"),
        "{said}"
    );
    check_tree(&node, &["secret s"]);
    // A link in the path that a person has typed is followed, but it stays inside the container.
    place.write_in("/ok", &file).unwrap();
    assert_eq!(fs::read(place.root("d/f")).unwrap(), b"x");
    // When a copy reads, it copies the link itself, and not the file that the link leads to.
    symlink(place.node("secret"), place.root("d/leak")).unwrap();
    for path in ["d/leak/", "d/rel/secret"] {
        assert!(place.packed(path).is_err(), "{path}");
    }
    let (tar, _) = place.packed("d/leak").unwrap();
    assert!(!tar.windows(3).any(|w| w == b"s\0\0"), "no content");
    let is_link = |block: &[u8]| block.starts_with(b"leak\0") && block[156] == b'2';
    assert!(tar.chunks(512).any(is_link));
}

#[test]
fn a_file_is_replaced_as_a_whole_or_not_at_all() {
    let place = Place::new();
    fs::create_dir(place.root("d")).unwrap();
    fs::write(place.root("d/f"), "old").unwrap();
    fs::hard_link(place.root("d/f"), place.root("other")).unwrap();
    let whole = archive(&[
        (DIR, "d", ""),
        (FILE, "d/a", "1"),
        (FILE, "d/f", &"x".repeat(2000)),
    ]);
    let said = place
        .write_in("/", &whole[..whole.len() - 2048])
        .unwrap_err();
    let expected = "\"d/f\" was being written, and is as it was before; 1 file was written before";
    assert!(said.ends_with(expected), "{said}");
    check_tree(&place.root(""), &["d/", "d/a 1", "d/f old", "other old"]);
    place.write_in("/", &whole).unwrap();
    assert_eq!(fs::read(place.root("d/f")).unwrap().len(), 2000);
    assert_eq!(fs::read(place.root("other")).unwrap(), b"old");
    let no_end = &whole[..whole.len() - 1024];
    assert!(
        place.write_in("/", no_end).is_err(),
        "an end without its mark"
    );
    assert!(place.write_in("/", b"").is_err(), "nothing");
    // A directory at the place of a file gives an error before the content of the file is read from the stream.
    fs::remove_file(place.root("d/f")).unwrap();
    fs::create_dir(place.root("d/f")).unwrap();
    let said = place.write_in("/", &whole[..whole.len() - 2048]);
    assert!(said.unwrap_err().contains("it is a directory"));
    let damaged = place.write_in("/", &[b'x'; 600]).unwrap_err();
    assert!(damaged.contains("not a tar archive"), "{damaged}");
}

/// Only files are opened. The daemon must not open a FIFO or a device of the container with its own rights.
#[test]
fn nothing_but_a_file_is_opened() {
    let place = Place::new();
    nix::unistd::mkfifo(&place.root("f"), Mode::S_IRWXU).unwrap();
    place.write_in("f", &archive(&[(FILE, "f", "x")])).unwrap();
    check_tree(&place.root(""), &["f x"]);
}

#[test]
fn files_of_the_kernel_are_neither_read_nor_written() {
    let read = |path: &[u8]| Source::find(&Root::Node, path).map(drop);
    for path in [&b"/proc"[..], b"/proc/self/environ", b"/sys/kernel"] {
        let said = read(path).unwrap_err().to_string();
        assert!(said.contains("a file system of the kernel"), "{said}");
    }
    let file = archive(&[(FILE, "comm", "x")]);
    for path in [&b"/proc/self/comm"[..], b"/proc/self", b"/proc/self/"] {
        let said = unpacked(&Root::Node, path, Placement::Copy, &file).unwrap_err();
        assert!(said.contains("a file system of the kernel"), "{said}");
    }
    let extracted = unpacked(&Root::Node, b"/proc/self", Placement::Extract, &file);
    assert!(
        extracted
            .unwrap_err()
            .contains("a file system of the kernel")
    );
}

#[test]
fn depth_is_bounded() {
    let place = Place::new();
    let deep = |n: usize| ["d"; 200][..n].join("/");
    fs::create_dir_all(place.root(&deep(MAX_DEPTH))).unwrap();
    assert!(place.out("d", "copy").is_ok());
    fs::create_dir_all(place.root(&deep(MAX_DEPTH + 1))).unwrap();
    let said = place.packed("d").unwrap_err().to_string();
    assert!(
        said.ends_with("more than 64 directories inside one another"),
        "{said}"
    );
    let foreign = archive(&[(FILE, &(["d"; 48].join("/") + "/f"), "x")]);
    let here = place.node("");
    let here = here.as_os_str().as_bytes();
    assert!(unpacked(&Root::Node, here, Placement::Extract, &foreign).is_ok());
}

#[test]
fn a_tar_of_somebody_else_goes_below_a_directory() {
    let place = Place::new();
    let tar = archive(&[(FILE, "a/b/f", "1"), (FILE, "./g", "2"), (DIR, "./", "")]);
    let root = place.container();
    unpacked(&root, b"/", Placement::Extract, &tar).unwrap();
    check_tree(&place.root(""), &["a/", "a/b/", "a/b/f 1", "g 2"]);
    let mode = fs::metadata(place.root("a")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755, "one that the tar does not describe");
    assert!(unpacked(&root, b"/none", Placement::Extract, &tar).is_err());
}

/// A writer that fails after this number of bytes, like the connection of a client that has gone.
struct Gone(usize);

impl Write for Gone {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn why_a_stream_is_cut_off_is_said_in_it() {
    let place = Place::new();
    fs::write(place.root("f"), "1").unwrap();
    let find = || Source::find(&place.container(), b"f").unwrap();
    let mut tar = Vec::new();
    let ended = || Err(CopyError::Refused("the container has ended".into()));
    assert!(find().pack(&mut tar, ended).is_err());
    let path = place.node("f");
    let said = unpacked(
        &Root::Node,
        path.as_os_str().as_bytes(),
        Placement::Copy,
        &tar,
    );
    assert_eq!(
        said,
        Err("the container has ended; 1 file was written before".into())
    );
    let gone = find().pack(&mut Gone(600), || Ok(()));
    assert!(matches!(gone, Err(CopyError::Stream(_))), "{gone:?}");
}

/// A reader that returns one byte at a time, like a slow network.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = bytes.len().min(1);
        self.0.read(&mut bytes[..n])
    }
}

#[test]
fn pieces_may_have_any_size() {
    let place = Place::new();
    fs::write(place.root("f"), "x".repeat(1000)).unwrap();
    let (tar, _) = place.packed("f").unwrap();
    let path = place.node("f");
    let target = Target {
        root: &Root::Node,
        path: path.as_os_str().as_bytes(),
        owner: None,
        placement: Placement::Copy,
    };
    let done = unpack(&target, &mut Slow(&tar)).unwrap();
    assert_eq!((done.files, done.bytes), (1, 1000));
    assert_eq!(fs::read(path).unwrap(), [b'x'; 1000]);
}
