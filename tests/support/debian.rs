//! Real software from Debian packages, as root directories to make images of. The packages are fetched into
//! target/realware and unpacked there; nothing is installed.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every root directory has besides the software: a shell, and what scripts use.
const BASE: [&str; 5] = ["dash", "coreutils", "grep", "sed", "libc-bin"];

/// Users of the software. Debian's packages would make them when they are installed.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\n\
    www-data:x:33:33::/var/www:/bin/false\n\
    postgres:x:999:999::/var/lib/postgresql:/bin/sh\n\
    nobody:x:65534:65534::/:/bin/false\n";
const GROUPS: &str = "root:x:0:\nwww-data:x:33:\npostgres:x:999:\nnogroup:x:65534:\n";

/// Directories that are links into /usr, in every Debian since 12.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// A root directory with these packages and all they depend on, then changed by `finish`. One of an earlier run is used
/// while its packages are the newest.
pub(crate) fn root(name: &str, packages: &[&str], finish: impl FnOnce(&Path)) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/realware");
    for archives in ["archives/partial", "none/partial"] {
        fs::create_dir_all(dir.join(archives)).unwrap();
    }
    // One test fetches at a time, also of several processes.
    let lock = File::create(dir.join("lock")).unwrap();
    lock.lock().unwrap();
    fs::write(dir.join("status"), "").unwrap();
    let files = fetch(name, &dir, packages);
    let root = dir.join(name);
    let stamp = dir.join(format!("{name}.packages"));
    if fs::read_to_string(&stamp).unwrap_or_default() != files.join("\n") || !root.exists() {
        let _ = fs::remove_dir_all(&root);
        unpack(&root, &dir.join("archives"), &files);
        fs::write(stamp, files.join("\n")).unwrap();
    }
    finish(&root);
    root
}

/// The names of the packages' files, which lie in `archives` then.
fn fetch(name: &str, dir: &Path, packages: &[&str]) -> Vec<String> {
    let listed = apt(dir, packages, "none", "--print-uris").output().unwrap();
    assert!(
        listed.status.success(),
        "apt-get knows no {packages:?}: {}\nis this Debian, and has apt-get update been run?",
        String::from_utf8_lossy(&listed.stderr)
    );
    // Lines of address, file, size and digest.
    let listed = String::from_utf8(listed.stdout).unwrap();
    let listed = listed.lines().filter(|l| l.starts_with('\''));
    let files: Vec<_> = listed
        .filter_map(|line| line.split(' ').nth(1).map(str::to_owned))
        .collect();
    let archives = dir.join("archives");
    let missing = files.iter().filter(|f| !archives.join(f).exists());
    let missing: Vec<_> = missing.map(String::as_str).collect();
    if !missing.is_empty() {
        eprintln!(
            "{name}: fetching {} Debian packages into {}; nothing is installed: {}",
            missing.len(),
            archives.display(),
            missing.join(" ")
        );
        let mut fetch = apt(dir, packages, "archives", "--download-only");
        let done = fetch.stdout(Stdio::null()).status().unwrap();
        assert!(done.success(), "apt-get could not fetch the packages");
    }
    files
}

/// As if nothing was installed, so that everything that the software needs is named.
fn apt(dir: &Path, packages: &[&str], archives: &str, what: &str) -> Command {
    let options = [
        "Debug::NoLocking=true".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
        "Dir::Cache::pkgcache=".to_owned(),
        "Dir::Cache::srcpkgcache=".to_owned(),
        format!("Dir::State::status={}", dir.join("status").display()),
        format!("Dir::Cache::archives={}/", dir.join(archives).display()),
    ];
    let mut apt = Command::new("apt-get");
    apt.args(["-y", "-q", "--no-install-recommends"]);
    apt.args(options.iter().flat_map(|o| ["-o", o]));
    apt.args([what, "install"]).args(packages).args(BASE);
    apt
}

fn unpack(root: &Path, archives: &Path, files: &[String]) {
    for top in MERGED {
        fs::create_dir_all(root.join("usr").join(top)).unwrap();
        symlink(Path::new("usr").join(top), root.join(top)).unwrap();
    }
    for file in files {
        let mut open = Command::new("dpkg-deb")
            .arg("--fsys-tarfile")
            .arg(archives.join(file))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let tar = Command::new("tar")
            .args(["-x", "--keep-directory-symlink", "-C"])
            .arg(root)
            .stdin(open.stdout.take().unwrap())
            .status()
            .unwrap();
        assert!(tar.success() && open.wait().unwrap().success(), "{file}");
    }
    for sub in ["tmp", "run", "root", "var", "etc"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    for (link, to) in [("usr/bin/sh", "dash"), ("var/run", "/run")] {
        if root.join(link).symlink_metadata().is_err() {
            symlink(to, root.join(link)).unwrap();
        }
    }
    fs::write(root.join("etc/passwd"), USERS).unwrap();
    fs::write(root.join("etc/group"), GROUPS).unwrap();
}
