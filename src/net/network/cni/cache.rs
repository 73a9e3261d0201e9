//! What is kept of each sandbox in a network (cni-plugins 5): with which configuration and arguments it was connected, and the
//! result. The files have the layout of libcni, with a field of our own.

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

const KIND: &str = "cniCacheV1";

/// The directory of the files.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    dir: PathBuf,
}

/// A sandbox in a network, as the cache keeps it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The network, with the one version that was used.
    pub(super) list: NetworkList,
    /// The file that the network was read from.
    pub(super) file: PathBuf,
    /// How the plugins saw the sandbox.
    pub(super) attachment: Attachment,
    /// Device and inode of its network namespace.
    pub(super) namespace: String,
    /// The result of ADD; none when it has not been seen to succeed.
    pub(super) result: Option<Value>,
}

impl Entry {
    /// The version that was used.
    pub(super) fn version(&self) -> Version {
        self.list.versions.last().copied().unwrap_or(Version::FIRST)
    }
}

/// A file of the cache.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// The sandbox, by the name of the file.
    pub(super) container_id: String,
    /// The network, by the name of the file.
    pub(super) network: String,
    /// The content; none when it is damaged.
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

    /// Writes an entry. It is on the disk when this returns.
    pub(super) fn write(&self, entry: &Entry) -> io::Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)?;
        let text = serde_json::to_vec(&Written::of(entry))?;
        let path = self.path(&entry.list.name, &entry.attachment.container_id);
        // Of a full disk nothing may be left: no other file will have this name.
        atomic_file::replace(&path, &text).inspect_err(|_| {
            let _ = fs::remove_file(path.with_added_extension("tmp"));
        })
    }

    /// Removes what daemons have left that were killed while they wrote.
    pub(super) fn sweep(&self) {
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension() == Some("tmp".as_ref()) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// The entries of a sandbox, or of all; damaged ones too.
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

    /// Removes an entry; a missing one is no error.
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

/// The network and the sandbox that a file's name tells. The name of a network may have hyphens, the id of a sandbox has
/// none.
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
    let written: Written = serde_json::from_slice(text).ok()?;
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
