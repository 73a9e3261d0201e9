//! The images and layers that containers use. They must not be removed.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The images and layers that containers use. Layers are kept in a set of their own, because the record that names an
/// image's layers may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagesInUse {
    images: HashSet<String>,
    /// Names of the directories of used layers.
    layers: HashSet<OsString>,
    /// Numbers of layers that the images of containers have. An overlay with such a number of layers belongs to a known
    /// container.
    counts: HashSet<usize>,
    everything: bool,
}

impl ImagesInUse {
    /// Marks all images and layers as used. Called for a container that cannot be read, because it may use any image.
    pub fn assume_everything(&mut self) {
        self.everything = true;
    }

    /// Marks the image of a container, and its layers, as used. `id` has the form `sha256:…`, and `layers` are those of
    /// [`super::Image::layers`].
    pub fn add<'a>(&mut self, id: &str, layers: impl IntoIterator<Item = &'a PathBuf>) {
        self.images.insert(id.to_owned());
        let count = layers
            .into_iter()
            .map(|layer| self.add_layer(layer))
            .count();
        self.counts.insert(count);
    }

    /// Marks the layers of every overlay that is mounted on this machine as used. A container keeps running when its
    /// record is lost (for example when /run was emptied).
    pub fn add_mounted(&mut self) {
        if let Err(e) = self.read_mounts() {
            log::warn!("cannot read which layers are mounted: {e}; all are kept");
            self.everything = true;
        }
    }

    /// Tells whether a container uses, or may use, the image of this id.
    pub fn image(&self, id: &str) -> bool {
        self.everything || self.images.contains(id)
    }

    /// Tells whether a container uses, or may use, the layer in the directory with this name (64 hex digits).
    pub(super) fn layer(&self, name: &str) -> bool {
        self.everything || self.layers.contains(OsStr::new(name))
    }

    /// Marks the layer at a path of the form `…/layers/<hex>/fs` as used.
    fn add_layer(&mut self, path: &Path) {
        self.layers
            .extend(path.parent().and_then(Path::file_name).map(Into::into));
    }

    /// Marks the layers in all mount namespaces as used. Reads the mounts of one process for each mount namespace. A
    /// process that ends meanwhile is left out. A process in a user namespace of its own is left out too, because it
    /// may have mounted anything, and no container starts in such a namespace.
    fn read_mounts(&mut self) -> io::Result<()> {
        let mut seen = HashSet::new();
        let own_user = fs::read_link("/proc/self/ns/user").ok();
        for entry in fs::read_dir("/proc")? {
            let process = entry?.path();
            let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else {
                continue;
            };
            if fs::read_link(process.join("ns/user")).ok() == own_user
                && seen.insert(namespace)
                && let Ok(mounts) = File::open(process.join("mountinfo"))
            {
                self.add_overlays(BufReader::new(mounts));
            }
        }
        Ok(())
    }

    /// Marks the layers of all overlays in a mountinfo file as used. Keeps only one line in memory at a time, because a
    /// privileged container may make any number of mounts.
    fn add_overlays(&mut self, mountinfo: impl BufRead) {
        for line in mountinfo.split(b'\n').map_while(Result::ok) {
            let Some(at) = find(&line, b" - overlay ") else {
                continue;
            };
            let options = line[at..].rsplit(|b| *b == b' ').next().unwrap_or_default();
            let values = options.split(|b| *b == b',').filter_map(lower_directories);
            let lower: Vec<&[u8]> = values.flat_map(|v| v.split(|b| *b == b':')).collect();
            // An overlay of many layers is mounted by descriptors (see `overlay`), and the kernel shows only the
            // numbers of the descriptors. If the image of a known container has this number of layers, the overlay
            // counts as this container's. Otherwise everything is marked as used.
            if lower.iter().all(|l| l.iter().all(u8::is_ascii_digit)) {
                self.everything |= !self.counts.contains(&lower.len());
            }
            for path in lower {
                self.add_layer(Path::new(OsStr::from_bytes(path)));
            }
        }
    }
}

/// Returns the value of the mount option `lowerdir=` or `lowerdir+=`. `lowerdir=` has all directories, joined by
/// colons. `lowerdir+=` has one directory, as newer kernels show it.
fn lower_directories(option: &[u8]) -> Option<&[u8]> {
    option
        .strip_prefix(b"lowerdir=")
        .or_else(|| option.strip_prefix(b"lowerdir+="))
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|w| w == words)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[track_caller]
    fn check(mountinfo: &str, layer: &str, expected: bool) {
        let mut used = ImagesInUse::default();
        used.add_overlays(mountinfo.as_bytes());
        assert_eq!(used.layer(layer), expected, "{mountinfo}");
    }

    #[test]
    fn the_layers_of_mounted_overlays_are_in_use() {
        let overlay = "90 80 0:50 / / rw - overlay overlay rw,lowerdir=/s/layers/aa/fs:/s/layers/bb/fs,upperdir=/u,workdir=/w\n";
        check(overlay, "aa", true);
        check(overlay, "bb", true);
        check(overlay, "cc", false);
        check(
            "9 8 0:5 / / rw - overlay overlay rw,lowerdir+=/s/layers/aa/fs,lowerdir+=/s/layers/bb/fs",
            "bb",
            true,
        );
        check(
            "9 8 0:5 / / rw - overlay overlay rw,lowerdir=3:4,upperdir=5",
            "any",
            true,
        );
        check("9 8 0:5 / /layers/aa rw - ext4 /dev/a rw", "aa", false);
        check("", "aa", false);
        let mut used = ImagesInUse::default();
        used.add(
            "sha256:a",
            &[
                PathBuf::from("/s/layers/aa/fs"),
                PathBuf::from("/s/layers/bb/fs"),
            ],
        );
        used.add_overlays(&b"9 8 0:5 / / rw - overlay overlay rw,lowerdir=3:4,upperdir=5"[..]);
        assert!(!used.layer("cc"), "it is the container that is known");
    }

    /// An overlay does not mark layers as used if it is mounted in a user namespace of its own. A program in a
    /// container may make such a namespace, and an overlay in it that names layers of the store.
    #[test]
    fn what_is_mounted_in_a_user_namespace_of_its_own_uses_nothing() {
        let mounted = |user: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            let lower = dir.path().join("layers/of-nobody/fs");
            fs::create_dir_all(&lower).unwrap();
            fs::create_dir(dir.path().join("other")).unwrap();
            let script = format!(
                "mount -t overlay overlay -o lowerdir={0}/layers/of-nobody/fs:{0}/other {0}/other && echo mounted; read line",
                dir.path().display()
            );
            let mut process = Command::new("unshare")
                .args(user)
                .args(["--mount", "sh", "-c", &script])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = String::new();
            let mut stdout = BufReader::new(process.stdout.take().unwrap());
            stdout.read_line(&mut said).unwrap();
            let mut used = ImagesInUse::default();
            used.add_mounted();
            drop(process.stdin.take());
            process.wait().unwrap();
            (said == "mounted\n").then(|| used.layers.contains(OsStr::new("of-nobody")))
        };
        if !crate::skip::is_root() {
            return;
        }
        assert_eq!(mounted(&[]), Some(true));
        match mounted(&["--user", "--map-root-user"]) {
            Some(is_used) => assert!(!is_used),
            None => crate::skip::note("needs overlays in user namespaces"),
        }
    }

    #[test]
    fn a_container_that_cannot_be_read_may_use_any_image() {
        let mut used = ImagesInUse::default();
        assert!(!used.image("sha256:a") && !used.layer("a"));
        used.add("sha256:a", &[PathBuf::from("/s/layers/bb/fs")]);
        assert!(used.image("sha256:a") && used.layer("bb") && !used.image("sha256:b"));
        used.assume_everything();
        assert!(used.image("sha256:b") && used.layer("cc"));
    }
}
