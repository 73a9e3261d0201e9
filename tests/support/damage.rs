//! Damage to the records of a node that no daemon runs on: the ways, and the kinds of records. Without crates, because the
//! machine of `make vm` has none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories of what is no record: content of images, of volumes and of containers.
const CONTENT: [&str; 7] = [
    "layers", "blobs", "rootfs", "upper", "work", "volumes", "claims",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    /// A part from the beginning is left.
    Cut,
    Emptied,
    /// One bit is another.
    Flipped,
    Removed,
    /// A directory has its name.
    Directory,
    /// Beside it is what a process leaves that is killed while it writes.
    HalfWritten,
}

pub(crate) const DAMAGES: [Damage; 6] = [
    Damage::Cut,
    Damage::Emptied,
    Damage::Flipped,
    Damage::Removed,
    Damage::Directory,
    Damage::HalfWritten,
];

impl Damage {
    /// Damages a record. `below` returns a number below another, which is not 0.
    pub(crate) fn inflict(
        self,
        file: &Path,
        below: &mut dyn FnMut(usize) -> usize,
    ) -> io::Result<()> {
        let mut bytes = fs::read(file)?;
        let part = bytes.len().saturating_sub(1).max(1);
        match self {
            Self::Cut => {
                bytes.truncate(below(part));
                fs::write(file, bytes)
            }
            Self::Emptied => fs::write(file, ""),
            Self::Flipped if bytes.is_empty() => fs::write(file, "x"),
            Self::Flipped => {
                let place = below(bytes.len());
                bytes[place] ^= 1 << below(8);
                fs::write(file, bytes)
            }
            Self::Removed => fs::remove_file(file),
            Self::Directory => {
                fs::remove_file(file)?;
                fs::create_dir(file)?;
                fs::write(file.join("inside"), "x")
            }
            Self::HalfWritten => {
                bytes.truncate(below(part));
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                fs::write(file.with_file_name(format!("{name}.tmp")), &bytes)?;
                fs::write(file.with_file_name(format!("{name}.4711.tmp")), &bytes)
            }
        }
    }
}

/// Returns all records of the node with this root by their kinds, but for those in the directories that `is_left_out` names.
/// A kind is the path below the root, with `*` for each id and number.
pub(crate) fn records(
    root: &Path,
    is_left_out: impl Fn(&str) -> bool,
) -> BTreeMap<String, Vec<PathBuf>> {
    let mut records: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut dirs = vec![root.join("run/podprobe"), root.join("var/lib/podprobe")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if is_no_record(&name) {
                continue;
            }
            let of = kind_of(path.strip_prefix(root).unwrap_or(&path));
            if kind.is_dir() && !CONTENT.contains(&&*name) && !is_left_out(&of) {
                dirs.push(path);
            } else if kind.is_file() {
                records.entry(of).or_default().push(path);
            }
        }
    }
    records
}

/// What a process has said, and what was set aside or left half written.
fn is_no_record(name: &str) -> bool {
    name == "stderr"
        || [".corrupt", ".damaged", ".tmp"]
            .iter()
            .any(|end| name.contains(end))
}

fn kind_of(path: &Path) -> String {
    let parts = path.iter().map(|part| {
        let part = part.to_string_lossy().into_owned();
        let is_id = |text: &str| {
            let is_number = text.parse::<u64>().is_ok();
            let is_hex = text.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
            is_number || is_hex && text.len() >= 32
        };
        match part.split_once('.') {
            Some((id, rest)) if is_id(id) => format!("*.{rest}"),
            _ if is_id(&part) => "*".to_owned(),
            _ => part,
        }
    });
    let mut parts: Vec<String> = parts.collect();
    // A file in a damaged directory may become a directory too.
    parts.dedup_by(|next, part| next == "inside" && next == part);
    match parts.iter().position(|part| part == "log-links") {
        Some(place) if place + 1 < parts.len() => format!("{}/*", parts[..=place].join("/")),
        _ => parts.join("/"),
    }
}
