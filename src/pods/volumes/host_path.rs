//! `hostPath`: a directory or file of the node.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::error::HostPathError;
use super::{Context, SetUp, SetUpError, VolumeType};
use crate::api::pod::{HostPath, Volume};

/// The volume type `hostPath`.
pub struct HostPathVolume;

impl VolumeType for HostPathVolume {
    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/host-path"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.host_path.is_some()
    }

    fn set_up(&self, _: &Context<'_>, volume: &Volume, _: &Path) -> Result<SetUp, SetUpError> {
        let host_path = volume.host_path.as_ref().ok_or(HostPathError::NoPath)?;
        check(host_path)?;
        Ok(SetUp::at(host_path.on_node().into_owned().into()))
    }
}

/// The rule of a `hostPath` type: which files fit, and how a missing file is made.
struct TypeRule {
    word: &'static str,
    fits: fn(&fs::FileType) -> bool,
    create: Option<fn(&Path) -> io::Result<()>>,
}

fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

fn make_file(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o644)
        .open(path)
        .map(drop)
}

fn type_rule(type_: &str) -> Option<TypeRule> {
    let rule = |word, fits, create| Some(TypeRule { word, fits, create });
    match type_ {
        // Without a type there is no check. A missing path becomes a directory, as in containerd.
        "" => rule("path", |_| true, Some(make_directory)),
        "DirectoryOrCreate" => rule("directory", fs::FileType::is_dir, Some(make_directory)),
        "Directory" => rule("directory", fs::FileType::is_dir, None),
        "FileOrCreate" => rule("file", fs::FileType::is_file, Some(make_file)),
        "File" => rule("file", fs::FileType::is_file, None),
        "Socket" => rule("socket file", |t| t.is_socket(), None),
        "CharDevice" => rule("character device", |t| t.is_char_device(), None),
        "BlockDevice" => rule("block device", |t| t.is_block_device(), None),
        _ => None,
    }
}

/// Checks that the file has the right type. Creates a missing file if its type requires this.
pub(super) fn check(host_path: &HostPath) -> Result<(), HostPathError> {
    let (path, type_) = (host_path.on_node().into_owned(), &host_path.type_);
    let rule = type_rule(type_).ok_or_else(|| HostPathError::UnknownType(type_.clone()))?;
    let found = match fs::metadata(&path) {
        Ok(found) => found.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let Some(create) = rule.create else {
                let (word, type_) = (rule.word, type_.clone());
                return Err(HostPathError::Missing { path, word, type_ });
            };
            let made = create(Path::new(&path));
            return made.map_err(|source| HostPathError::Create { path, source });
        }
        Err(source) => return Err(HostPathError::Look { path, source }),
    };
    match (rule.fits)(&found) {
        true => Ok(()),
        false => Err(HostPathError::OtherType {
            path,
            word: rule.word,
            is: kind(&found),
        }),
    }
}

fn kind(t: &fs::FileType) -> &'static str {
    match t {
        t if t.is_dir() => "Directory",
        t if t.is_file() => "File",
        t if t.is_socket() => "Socket",
        t if t.is_char_device() => "CharDevice",
        t if t.is_block_device() => "BlockDevice",
        _ => "FIFO",
    }
}
