//! The cache entries of the sandboxes (cni-plugins 5). For each sandbox in a network, the entry has the
//! configuration and the arguments with which the sandbox was connected, and the result. The cache files have the
//! layout of libcni, with one additional field of podprobe.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::INTERFACE;
use super::conf::{self, NetworkList, Version};
use super::request::Attachment;
use crate::base::atomic_file;
use crate::base::json;

const KIND: &str = "cniCacheV1";

/// The directory of the cache files.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

/// The cache entry of a sandbox in a network.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The network, with only the version that was used for ADD.
    pub(super) list: NetworkList,
    /// The file from which the network was read.
    pub(super) file: PathBuf,
    /// The attachment that was passed to the plugins.
    pub(super) attachment: Attachment,
    /// Device and inode of the sandbox's network namespace.
    pub(super) namespace: String,
    /// The result of ADD; None if ADD is not known to have succeeded.
    pub(super) result: Option<Value>,
}

impl Entry {
    /// Returns the version that was used for ADD.
    pub(super) fn version(&self) -> Version {
        self.list.versions.last().copied().unwrap_or(Version::FIRST)
    }
}

/// A file in the cache.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The id of the sandbox, from the name of the file.
    pub(super) container_id: String,
    /// The name of the network, from the name of the file.
    pub(super) network: String,
    /// The content of the file; None if the file is damaged.
    pub(super) entry: Option<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    kind: String,
    container_id: String,
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default)]
    netns: String,
    #[serde(default)]
    cni_args: Vec<(String, String)>,
    #[serde(default)]
    capability_args: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(default)]
    podprobe: Ours,
}

#[derive(Default, Serialize, Deserialize)]
struct Ours {
    file: PathBuf,
    namespace: String,
}

impl Cache {
    pub(super) fn below(dir: &Path) -> Self {
        Self {
            dir: dir.join("results"),
        }
    }

    /// Writes an entry to the disk. Returns after the entry is synced.
    pub(super) fn write(&self, entry: &Entry) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let text = serde_json::to_vec(&Written::of(entry))?;
        let path = self.path(&entry.list.name, &entry.attachment.container_id);
        // If the write fails, for example because the disk is full, the temporary file is removed. No later write
        // would replace the temporary file, because its name is not used again.
        atomic_file::replace(&path, &text).inspect_err(|_| {
            let _ = fs::remove_file(path.with_added_extension("tmp"));
        })
    }

    /// Removes temporary files that a daemon has left because it was killed while it wrote an entry.
    pub(super) fn sweep(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension() == Some("tmp".as_ref()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Returns the entries of a sandbox, or of all sandboxes, including damaged entries.
    pub(super) fn find(&self, container_id: Option<&str>) -> io::Result<Vec<Found>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries.collect::<io::Result<Vec<_>>>()?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            let Some((network, id)) = name.to_str().and_then(parts) else {
                continue;
            };
            if container_id.is_none_or(|wanted| wanted == id) {
                found.push(read(entry.path(), network, id)?);
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Removes the file of an entry. A missing file is no error.
    pub(super) fn remove(path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn path(&self, network: &str, container_id: &str) -> PathBuf {
        self.dir
            .join(format!("{network}-{container_id}-{INTERFACE}"))
    }
}

/// Splits a file's name into the network and the id of the sandbox. The name of a network may have hyphens,
/// but the id of a sandbox has none.
fn parts(name: &str) -> Option<(&str, &str)> {
    let before = name.strip_suffix(INTERFACE)?.strip_suffix('-')?;
    before.rsplit_once('-')
}

fn read(path: PathBuf, network: &str, container_id: &str) -> io::Result<Found> {
    let entry = match fs::read(&path) {
        Ok(text) => entry_of(&text).filter(|e| {
            (e.list.name.as_str(), e.attachment.container_id.as_str()) == (network, container_id)
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok(Found {
        path,
        container_id: container_id.to_owned(),
        network: network.to_owned(),
        entry,
    })
}

fn entry_of(text: &[u8]) -> Option<Entry> {
    let written: Written = json::from_slice(text).ok()?;
    let config = STANDARD.decode(&written.config).ok()?;
    let list = conf::parse_list(&config).ok()?;
    let known = written.kind == KIND && !list.plugins.is_empty();
    known.then_some(Entry {
        list,
        file: written.podprobe.file,
        attachment: Attachment {
            container_id: written.container_id,
            netns: written.netns.into(),
            args: written.cni_args,
            capabilities: written.capability_args,
        },
        namespace: written.podprobe.namespace,
        result: written.result,
    })
}

impl Written {
    fn of(entry: &Entry) -> Self {
        let config = entry.list.with_version(entry.version()).to_string();
        Self {
            kind: KIND.into(),
            container_id: entry.attachment.container_id.clone(),
            config: STANDARD.encode(config),
            if_name: INTERFACE.into(),
            network_name: entry.list.name.clone(),
            netns: entry.attachment.netns.to_string_lossy().into_owned(),
            cni_args: entry.attachment.args.clone(),
            capability_args: entry.attachment.capabilities.clone(),
            result: entry.result.clone(),
            podprobe: Ours {
                file: entry.file.clone(),
                namespace: entry.namespace.clone(),
            },
        }
    }
}

#[cfg(test)]
#[path = "cache/tests.rs"]
mod tests;
