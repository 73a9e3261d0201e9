//! `apply`: checks a file and puts it into the directory that the running daemon watches.
//!
//! Invariants: a file that `validate` refuses is not written, and one that is written is there as a whole or not at all.

mod plan;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

use self::plan::{Objects, plan};
use super::args::{self, Opt, ROOT, Raw};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::validate::{self, Node, Validate};
use crate::api::identity::content_hash;
use crate::api::objects::ObjectContent;
use crate::api::{PodOrigin, decode};
use crate::atomic_file;
use crate::pod_config::files::is_pod_file;
use crate::views::{PodView, Snapshot};

/// `apply`.
pub const VERB: args::Verb = args::Verb {
    name: "apply",
    summary: &[(
        "apply -f FILE",
        "check a file and put it into the daemon's directory",
    )],
    help: "\
usage: podprobe apply -f FILE|- [--root DIR]

Checks a file as 'validate' does and puts it into the directory that the running daemon watches (staticPodPath), under
the same name; the daemon acts on it as on any other change there. With '-' it reads stdin; an object that a file there
has stays in that file, and a new one gets a file with its name. Says of each object whether it is created, configured
or unchanged.

Nothing is written when the file has an error, when another file has one of its objects, or when the file that it would
replace has objects that it has not. Exit code 1 then.

  -f, --filename FILE      pods, ConfigMaps, Secrets, Services and other objects, JSON or YAML
",
    options: &[ROOT, Opt::value("filename", Some('f'))],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out, err).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `apply`.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// Where the daemon is.
    pub root: PathBuf,
    /// None is stdin.
    pub file: Option<PathBuf>,
}

fn parse(raw: &Raw) -> Result<Apply, String> {
    raw.no_words()?;
    let file = raw.text("filename")?;
    let file = file.ok_or("'apply' needs a file: podprobe apply -f FILE, or -f - for stdin")?;
    let file = (file != "-").then(|| PathBuf::from(file));
    Ok(Apply {
        root: raw.root()?,
        file,
    })
}

/// What two objects of a name are compared by.
#[derive(PartialEq)]
enum Content {
    Pod(String),
    Object(ObjectContent),
    /// Of a pod whose file cannot be read any more: it still runs as it last was. Nothing new is like it.
    LastGood,
}

/// Says on `out` what becomes of each object, and on `err` what is wrong or not acted on.
///
/// # Errors
/// The daemon cannot be asked, the file is refused, or cannot be written.
pub fn run(args: &Apply, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), CliError> {
    let failed = CliError::Failed;
    let (bytes, shown) = read(args.file.as_deref())?;
    let mut client = Client::connect(&args.root)?;
    let config = client.config()?;
    let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
    let directory = watched(&config)?;
    let node_name = text("nodeName");
    check(args, &node_name, (&bytes, &shown), err)?;
    let named = match &args.file {
        Some(file) => directory.join(file_name(file)?),
        None => directory.join(name_of(&bytes, &node_name).map_err(failed)?),
    };
    let new = objects(&bytes, &node_name).map_err(failed)?;
    // Another `apply` would plan with the same files, and write to the same temporary one.
    let _alone = alone(&directory)?;
    let there = all_there(&directory, &node_name, &*client.snapshot()?)?;
    let plan = plan(&new, &named, args.file.is_none(), &there).map_err(failed)?;
    if fs::read(&plan.file).ok().as_ref() != Some(&bytes) {
        put(&plan.file, &bytes)?;
    }
    for (object, verdict) in &plan.verdicts {
        writeln!(out, "{object} {}", verdict.as_str())?;
    }
    Ok(out.flush()?)
}

/// The bytes, and what stands for the file in messages.
fn read(file: Option<&Path>) -> Result<(Vec<u8>, PathBuf), CliError> {
    let shown = file.map_or_else(|| "stdin".into(), Path::to_owned);
    let bytes = match file {
        Some(file) => File::open(file).and_then(validate::read_all),
        None => validate::read_all(io::stdin().lock()),
    };
    let cannot = |e: io::Error| CliError::Failed(format!("cannot read {}: {e}", shown.display()));
    Ok((bytes.map_err(cannot)?, shown))
}

/// The directory that the daemon watches.
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

/// Waits until no other `apply` writes there.
fn alone(directory: &Path) -> Result<Flock<File>, CliError> {
    let locked = File::open(directory)
        .and_then(|dir| Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| e.into()));
    locked.map_err(|e| CliError::Failed(format!("cannot lock {}: {e}", directory.display())))
}

/// As `validate` does, by the name that the daemon has. What is only advice comes before what is done.
fn check(
    args: &Apply,
    node_name: &str,
    (bytes, shown): (&[u8], &Path),
    err: &mut dyn Write,
) -> Result<(), CliError> {
    let (node, _) = Node::of(&Validate {
        paths: Vec::new(),
        node_name: Some(node_name.to_owned()),
        root: args.root.clone(),
    });
    let decoded = validate::decode(bytes, &node, shown);
    let is_refused = !decoded.errors.is_empty();
    if is_refused || decoded.has_advice() {
        validate::verdict(shown, &decoded, err)?;
    }
    match is_refused {
        true => Err(CliError::Reported),
        false => Ok(()),
    }
}

fn file_name(file: &Path) -> Result<&Path, CliError> {
    let name = file.file_name().filter(|name| is_pod_file(name));
    name.map(Path::new).ok_or_else(|| {
        CliError::Failed(format!(
            "the daemon does not read files named like {}; give it another name",
            file.display()
        ))
    })
}

/// The first pod's name, else the first object's, as a file.
fn name_of(bytes: &[u8], node_name: &str) -> Result<String, String> {
    let all = objects(bytes, node_name)?;
    let is_pod = |key: &&String| key.starts_with("pod/");
    let first = all.keys().find(is_pod).or_else(|| all.keys().next());
    let first = first.ok_or("there is no object in it")?;
    let is_json = bytes.trim_ascii_start().starts_with(b"{");
    // Without its kind, a Service would come to lie in the file of the pod of its name.
    let name = first
        .trim_start_matches("pod/")
        .replace('/', "-")
        .replace(" in ", ".");
    Ok(format!("{name}.{}", if is_json { "json" } else { "yaml" }))
}

fn objects(bytes: &[u8], node_name: &str) -> Result<Objects<Content>, String> {
    // The same for all files: the place of a file is part of a pod.
    let path = Path::new("/");
    let found = decode::objects(bytes, &PodOrigin::File { node_name, path });
    let found = found.map_err(|e| e.to_string())?;
    let pods = found.pods.iter().map(|d| {
        let metadata = &d.pod.metadata;
        let content = Content::Pod(content_hash(&d.pod));
        let key = pod_key(&metadata.namespace, &metadata.name, node_name);
        (key, content)
    });
    let objects = found.objects.iter().map(|o| {
        let kind = o.key.kind.as_str().to_lowercase();
        let key = key(&kind, &o.key.namespace, &o.key.name);
        (key, Content::Object(o.content.clone()))
    });
    Ok(pods.chain(objects).collect())
}

/// `pod/web` or `service/web in shop`.
fn key(kind: &str, namespace: &str, name: &str) -> String {
    match namespace {
        "default" => format!("{kind}/{name}"),
        namespace => format!("{kind}/{name} in {namespace}"),
    }
}

/// Without the node's name at its end, which the daemon puts there.
fn pod_key(namespace: &str, name: &str, node_name: &str) -> String {
    let suffix = format!("-{}", node_name.to_lowercase());
    let name = name.strip_suffix(&suffix).unwrap_or(name);
    key("pod", namespace, name)
}

/// What the files of the directory have. Of one that cannot be read, the pods that still run.
fn all_there(
    directory: &Path,
    node_name: &str,
    snapshot: &Snapshot,
) -> Result<BTreeMap<PathBuf, Objects<Content>>, CliError> {
    let last_good = |file: &Path| {
        let pods = snapshot.pods.iter();
        let pods = pods.filter(|p| Path::new(&p.file) == file && !p.terminating);
        let key = |p: &Arc<PodView>| pod_key(columns::namespace(p), columns::name(p), node_name);
        pods.map(|p| (key(p), Content::LastGood)).collect()
    };
    let mut all = BTreeMap::new();
    for file in validate::files(directory)? {
        let bytes = File::open(&file).and_then(validate::read_all);
        let found = bytes.ok().and_then(|b| objects(&b, node_name).ok());
        let found = found.unwrap_or_else(|| last_good(&file));
        all.insert(file, found);
    }
    Ok(all)
}

/// Through a link, and with the mode of a file that is there.
fn put(file: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mode = fs::metadata(&target).map(|m| m.permissions()).ok();
    let written = atomic_file::replace_with(&target, |new| {
        new.write_all(bytes)?;
        mode.map_or(Ok(()), |mode| new.set_permissions(mode))
    });
    written.map_err(|e| {
        let way_out = match e.kind() {
            io::ErrorKind::ReadOnlyFilesystem => "; mount it writable",
            io::ErrorKind::PermissionDenied => "; try again with sudo",
            io::ErrorKind::StorageFull => "; make room",
            _ => "",
        };
        CliError::Failed(format!("cannot write {}: {e}{way_out}", file.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cli::args::testing;

    #[test]
    fn a_file_or_stdin() {
        let parsed = |line: &str| testing::parse(&VERB, parse, line).map(|apply| apply.file);
        assert_eq!(parsed("apply -f web.yaml"), Ok(Some("web.yaml".into())));
        assert_eq!(parsed("apply --filename=-"), Ok(None));
        let needs = "'apply' needs a file: podprobe apply -f FILE, or -f - for stdin";
        assert_eq!(parsed("apply"), Err(needs.into()));
        assert!(parsed("apply web.yaml").is_err());
    }

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
        let name = |text: &str| name_of(text.as_bytes(), "edge");
        assert_eq!(name(&file), Ok("web.yaml".into()));
        assert_eq!(name(map), Ok("configmap-m.shop.yaml".into()));
        let json = r#" {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}"#;
        assert_eq!(name(json), Ok("configmap-m.json".into()));
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
        let first = alone(dir.path()).unwrap();
        let again = || {
            let file = File::open(dir.path()).unwrap();
            Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok()
        };
        assert!(!again());
        drop(first);
        assert!(again());
    }

    #[test]
    fn what_the_daemon_does_not_read_is_not_written() {
        assert!(file_name(Path::new("/a/web.yaml")).is_ok());
        for name in ["/a/.web", "/a/web.tmp", "/a/web~", "/"] {
            assert!(file_name(Path::new(name)).is_err(), "{name}");
        }
    }
}
