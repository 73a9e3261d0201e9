//! The input files of `apply`, `delete` and `validate`, and the directory of files that the running daemon
//! watches.
//!
//! Invariants: the daemon never sees a half-written file in its directory.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

use super::args::Raw;
use super::client::Client;
use super::error::CliError;
use super::{columns, validate};
use crate::api::identity::{content_hash, content_hash_without_uid, static_name};
use crate::api::objects::ObjectContent;
use crate::api::raw_object::RawObject;
use crate::api::workload::WorkloadKey;
use crate::api::{PodOrigin, decode};
use crate::base::atomic_file;
use crate::face::views::{PodView, Snapshot, workloads};
use crate::workloads::view::{WorkloadList, WorkloadView};

/// The objects in a file, and the content of each object. A key is `pod/web` for an object in the default
/// namespace, or `pod/web in shop`.
pub(super) type Objects<C> = BTreeMap<String, C>;

/// The content of an object, to compare it with another object of the same name.
#[derive(Clone, PartialEq)]
pub(super) enum Content {
    Pod {
        hash: String,
        /// Hash of the pod's content without its UID.
        without_uid: String,
    },
    Object(ObjectContent),
    /// A workload with its defaults.
    Workload(RawObject),
    /// A pod or workload whose file has become unreadable: it still runs with its last good content. No new content
    /// equals this value.
    LastGood,
}

/// A source of objects: standard input or a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Stdin,
    /// A path of a file or of a directory with files.
    Path(PathBuf),
}

/// Returns the sources given with `-f`, in order.
pub(super) fn sources(raw: &Raw) -> Result<Vec<Source>, String> {
    let given: Vec<Source> = raw
        .values("filename")
        .map(|path| match path.to_str() {
            Some("-") => Source::Stdin,
            _ => Source::Path(path.into()),
        })
        .collect();
    if given.iter().any(|s| *s == Source::Path(PathBuf::new())) {
        return Err("option '--filename' needs a path, not an empty word".into());
    }
    match given.iter().filter(|s| **s == Source::Stdin).count() {
        0 | 1 => Ok(given),
        _ => Err("'-f -' reads stdin, which can be read once".into()),
    }
}

/// A text of objects, read from a source.
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// Name of the source, for messages.
    pub(super) shown: PathBuf,
    /// Path of the file; None for stdin.
    pub(super) path: Option<PathBuf>,
}

/// Reads all sources. In a directory, reads the files whose names end in .yaml, .yml or .json, as kubectl does.
///
/// # Errors
/// Returns a [`CliError`] if a source cannot be read, or if a directory has no such file.
pub(super) fn read(sources: &[Source]) -> Result<Vec<Input>, CliError> {
    let mut inputs = Vec::new();
    for source in sources {
        match source {
            Source::Stdin => inputs.push(stdin()?),
            Source::Path(path) if path.is_dir() => {
                let all = validate::files(path)?;
                let read: Vec<_> = all.into_iter().filter(|file| is_manifest(file)).collect();
                if read.is_empty() {
                    return Err(CliError::Failed(format!(
                        "no file in {} ends with .yaml, .yml or .json",
                        path.display()
                    )));
                }
                for file in &read {
                    inputs.push(of_file(file)?);
                }
            }
            Source::Path(path) => inputs.push(of_file(path)?),
        }
    }
    Ok(inputs)
}

fn is_manifest(file: &Path) -> bool {
    let ending = file.extension().and_then(OsStr::to_str);
    matches!(ending, Some("yaml" | "yml" | "json"))
}

fn stdin() -> Result<Input, CliError> {
    let read = validate::read_all(io::stdin().lock());
    Ok(Input {
        bytes: read.map_err(|e| CliError::Failed(format!("cannot read stdin: {e}")))?,
        shown: "stdin".into(),
        path: None,
    })
}

fn of_file(path: &Path) -> Result<Input, CliError> {
    let read = File::open(path).and_then(validate::read_all);
    let cannot = |e| CliError::Failed(format!("cannot read {}: {e}", path.display()));
    Ok(Input {
        bytes: read.map_err(cannot)?,
        shown: path.to_owned(),
        path: Some(path.to_owned()),
    })
}

/// The directory that the running daemon watches.
pub(super) struct Watched {
    pub(super) path: PathBuf,
    pub(super) node_name: String,
    /// The daemon's interval between looks into the directory. This interval matters if the kernel does not report
    /// changes.
    pub(super) looks_every: String,
}

impl Watched {
    /// Asks the daemon for its directory of pod files.
    ///
    /// # Errors
    /// Returns a [`CliError`] if the daemon has no directory of pod files, or if its path is not a directory.
    pub(super) fn of(client: &mut Client) -> Result<Self, CliError> {
        let config = client.config()?;
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            path: watched(&config)?,
            node_name: text("nodeName"),
            looks_every: text("fileCheckFrequency"),
        })
    }

    /// Locks the directory, and waits until no other verb writes to the directory. Without the lock, two verbs
    /// would plan with the same files at the same time, and write to the same temporary file.
    ///
    /// # Errors
    /// Returns a [`CliError`] if the directory cannot be locked.
    pub(super) fn alone(&self) -> Result<Flock<File>, CliError> {
        let locked = File::open(&self.path)
            .and_then(|dir| Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| e.into()));
        locked.map_err(|e| CliError::Failed(format!("cannot lock {}: {e}", self.path.display())))
    }

    /// Returns the objects in each file of the directory. For an unreadable file, returns its pods and workloads that
    /// still run.
    ///
    /// # Errors
    /// Returns a [`CliError`] if the directory cannot be read.
    pub(super) fn all_there(
        &self,
        snapshot: &Snapshot,
        list: &WorkloadList,
    ) -> Result<BTreeMap<PathBuf, Objects<Content>>, CliError> {
        let last_good = |file: &Path| {
            let pods = snapshot.pods.iter().filter(|p| {
                let is_made = workloads::controller(&p.object).is_some();
                Path::new(&p.file) == file && !p.terminating && !is_made
            });
            let is_in = |v: &&WorkloadView| v.file.as_deref().map(Path::new) == Some(file);
            let views = list.items.iter().filter(is_in);
            let keys = views.filter_map(|v| Some(workload_key(&workloads::key(v)?)));
            let keys = keys.chain(pods.map(|p| self.key_of(p)));
            keys.map(|key| (key, Content::LastGood)).collect()
        };
        let mut all = BTreeMap::new();
        for file in validate::files(&self.path)? {
            let bytes = File::open(&file).and_then(validate::read_all);
            let found = bytes.ok().and_then(|b| objects(&b, &self.node_name).ok());
            let found = found.unwrap_or_else(|| last_good(&file));
            all.insert(file, found);
        }
        Ok(all)
    }

    fn key_of(&self, pod: &Arc<PodView>) -> String {
        pod_key(columns::namespace(pod), columns::name(pod), &self.node_name)
    }
}

fn watched(config: &Value) -> Result<PathBuf, CliError> {
    let path = config["staticPodPath"].as_str().unwrap_or_default();
    let cannot = |why: &str| {
        let text = format!("cannot write into the daemon's staticPodPath {path:?}: {why}");
        Err(CliError::Failed(text))
    };
    match fs::metadata(path) {
        _ if path.is_empty() => cannot("it watches no directory; set staticPodPath"),
        Err(e) => cannot(&format!("{e}; make that directory")),
        Ok(there) if !there.is_dir() => {
            cannot("it is one file; write that file, or name a directory")
        }
        Ok(_) => Ok(path.into()),
    }
}

/// Decodes the objects in a text.
///
/// # Errors
/// Returns a sentence that says why the text is not a valid file of pods and objects.
pub(super) fn objects(bytes: &[u8], node_name: &str) -> Result<Objects<Content>, String> {
    // All files are decoded with the same path. The path is part of a pod's content, so equal pods in two files
    // would differ.
    let path = Path::new("/");
    let found = decode::objects(bytes, &PodOrigin::File { node_name, path });
    let found = found.map_err(|e| e.to_string())?;
    let pods = found.pods.iter().map(|d| {
        let metadata = &d.pod.metadata;
        let content = Content::Pod {
            hash: content_hash(&d.pod),
            without_uid: content_hash_without_uid(&d.pod),
        };
        let key = pod_key(&metadata.namespace, &metadata.name, node_name);
        (key, content)
    });
    let objects = found.objects.iter().map(|o| {
        let kind = o.key.kind.as_str().to_lowercase();
        let key = key(&kind, &o.key.namespace, &o.key.name);
        (key, Content::Object(o.content.clone()))
    });
    let workloads = found.workloads.iter().map(|d| {
        let workload = &d.workload;
        let key = workload_key(&workload.key());
        (key, Content::Workload(workload.raw.clone()))
    });
    Ok(pods.chain(workloads).chain(objects).collect())
}

/// Returns the key of an object, such as `pod/web` or `service/web in shop`.
pub(super) fn key(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "default" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{name} in {namespace}"),
    }
}

/// Returns the key of a workload, such as `deployment.apps/web`.
fn workload_key(of: &WorkloadKey) -> String {
    key(workloads::word(of.kind), &of.namespace, &of.name)
}

/// Returns the key of a pod. The node's name at the end of the pod's name is removed, because the daemon has added
/// the node's name.
fn pod_key(namespace: &str, name: &str, node_name: &str) -> String {
    let name = name
        .strip_suffix(&static_name("", node_name))
        .unwrap_or(name);
    key("pod", namespace, name)
}

/// Writes a file. Follows a link, and keeps the mode of an existing file.
///
/// # Errors
/// Returns a [`CliError`] if the file cannot be written. After an error, an existing file is unchanged.
pub(super) fn put(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mode = fs::metadata(&target).map(|m| m.permissions()).ok();
    let written = atomic_file::replace_with(&target, |new| {
        new.write_all(bytes)?;
        mode.map_or(Ok(()), |mode| new.set_permissions(mode))
    });
    written.map_err(|e| {
        CliError::Failed(format!(
            "cannot write {}: {e}{}",
            file.display(),
            way_out(&e)
        ))
    })
}

/// Returns advice for the user if a file in the directory cannot be changed.
pub(super) fn way_out(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::ReadOnlyFilesystem => "; mount it writable",
        io::ErrorKind::PermissionDenied => "; try again with sudo",
        io::ErrorKind::StorageFull => "; make room",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn objects_have_kubectl_s_names_and_their_contents() {
        let pod = |image: &str| {
            format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {{containers: [{{name: c, image: {image}}}]}}\n"
            )
        };
        let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: shop}\ndata: {a: b}\n";
        let file = pod("a") + map;
        let all = objects(file.as_bytes(), "edge").unwrap();
        let keys: Vec<&str> = all.keys().map(String::as_str).collect();
        assert_eq!(keys, ["configmap/m in shop", "pod/web"]);
        let same = objects((pod("a") + "# a remark\n").as_bytes(), "edge").unwrap();
        let other = objects(pod("b").as_bytes(), "edge").unwrap();
        assert!(all["pod/web"] == same["pod/web"] && all["pod/web"] != other["pod/web"]);
    }

    #[test]
    fn a_file_keeps_its_mode_and_the_link_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        fs::write(at("real"), "old").unwrap();
        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        put(&at("link"), b"new").unwrap();
        assert!(at("link").is_symlink());
        assert_eq!(fs::read(at("real")).unwrap(), b"new");
        put(&at("fresh"), b"new").unwrap();
        assert_eq!((mode("real"), mode("fresh")), (0o644, 0o600));
    }

    #[test]
    fn two_do_not_write_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let watched = Watched {
            path: dir.path().into(),
            node_name: "edge".into(),
            looks_every: "20s".into(),
        };
        let first = watched.alone().unwrap();
        let again = || {
            let file = File::open(dir.path()).unwrap();
            Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        };
        assert!(!again());
        drop(first);
        assert!(again());
    }

    #[test]
    fn a_directory_is_read_as_kubectl_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.json", "c.yml", "README.md", ".d.yaml", "e"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let source = || Source::Path(dir.path().into());
        let read_names = |inputs: Vec<Input>| -> Vec<String> {
            let name = |i: Input| String::from_utf8(i.bytes).unwrap();
            inputs.into_iter().map(name).collect()
        };
        let read_all = read(&[source()]).map(read_names);
        assert_eq!(read_all.ok().unwrap(), ["a.json", "b.yaml", "c.yml"]);
        fs::create_dir(dir.path().join("empty")).unwrap();
        let empty = Source::Path(dir.path().join("empty"));
        let error = read(&[empty]).err().unwrap().to_string();
        assert!(error.ends_with("ends with .yaml, .yml or .json"), "{error}");
    }
}
