//! The verb `validate`: checks pod files as the daemon does, without a daemon.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::args::{self, Opt, ROOT, Raw};
use super::error::CliError;
use crate::api::decode::{self, Problem};
use crate::api::pod::Listed;
use crate::api::probe_host::{ProbeHosts, refused_hosts};
use crate::api::validation::checked_pod;
use crate::api::{Pod, PodOrigin};
use crate::base::paths::Layout;
use crate::daemon::settings::{Overrides, Settings, SettingsError};
use crate::engine::images::{ImageError, Reference};
use crate::net::network::NetworkChoice;
use crate::pods::prober::target::is_node_address;
use crate::pods::sources::files::is_pod_file;

/// The greatest size of a pod file, in bytes (kubelet-probes 6.1).
pub(super) const MAX_FILE: u64 = 10 << 20;

/// The argument that stands for stdin.
const STDIN: &str = "-";

/// The verb `validate`.
pub const VERB: args::Verb = args::Verb {
    name: "validate",
    summary: &[
        ("validate FILE|DIR", "check pod files without running them"),
    ],
    help: "\
usage: podprobe validate FILE|DIR|-… [--node-name NAME]

Checks pod files as the daemon does, by the configuration of --root, and names every error and every field that has no
effect. Of a directory it reads every file whose name does not begin with a dot, as the daemon does; '-' is stdin. Exit
code 1 when any file is refused.

  --node-name NAME         every pod's name ends with it; default that of the configuration, else the host name
",
    options: &[ROOT, Opt::value("node-name", None)],
    run: |raw, out, _| {
        validate(&parse(raw).map_err(CliError::Usage)?, out)?;
        Ok(ExitCode::SUCCESS)
    },
};

/// The arguments of `validate`.
#[derive(Clone, Debug, PartialEq)]
pub struct Validate {
    /// Files and directories to check.
    pub paths: Vec<PathBuf>,
    /// Suffix of the pods' names; None means the node name of the configuration.
    pub node_name: Option<String>,
    /// Root directory, which contains the configuration.
    pub root: PathBuf,
}

fn parse(raw: &Raw) -> Result<Validate, String> {
    if raw.words.is_empty() {
        return Err("'validate' needs a file or a directory: podprobe validate FILE|DIR".into());
    }
    Ok(Validate {
        paths: raw.words.iter().map(PathBuf::from).collect(),
        node_name: raw.text("node-name")?,
        root: raw.root()?,
    })
}

/// Checks the files with the configuration. An unusable configuration is an error, but the files are still
/// checked, with the default configuration.
fn validate(args: &Validate, out: &mut dyn Write) -> Result<(), CliError> {
    let (node, unusable) = Node::of(args);
    if let Some(e) = &unusable {
        writeln!(out, "error: {e}; the files are checked without it")?;
    }
    run(&args.paths, &|bytes, path| decode(bytes, &node, path), out)?;
    unusable.map_or(Ok(()), |_| Err(CliError::Reported))
}

/// The facts about the node against which pod files are checked.
pub(super) struct Node {
    name: String,
    allow_probe_hosts: Vec<String>,
    network: NetworkChoice,
}

impl Node {
    /// Returns the facts that a daemon with this root would use. If the configuration is unusable, returns default
    /// facts and the error of the configuration.
    pub(super) fn of(args: &Validate) -> (Self, Option<SettingsError>) {
        let given = Overrides {
            node_name: args.node_name.clone(),
            ..Overrides::default()
        };
        let loaded = Settings::load(&Layout::new(&args.root), None, &given);
        let (settings, unusable) = match loaded {
            Ok(settings) => (settings, None),
            Err(e) => {
                let default = Settings::default();
                let node_name = given.node_name.unwrap_or(default.node_name.clone());
                let settings = Settings {
                    node_name,
                    ..default
                };
                (settings, Some(e))
            }
        };
        let node = Self {
            name: settings.node_name,
            allow_probe_hosts: settings.allow_probe_hosts,
            network: settings.network,
        };
        (node, unusable)
    }
}

/// A function that decodes the content of a file at a path. The names of the decoded pods end with the node's
/// name.
pub type Decoder<'a> = &'a dyn Fn(&[u8], &Path) -> Decoded;

/// Prints a verdict for each file on `out`. Returns an error if any file is bad.
pub fn run(paths: &[PathBuf], decoder: Decoder<'_>, out: &mut dyn Write) -> Result<(), CliError> {
    let of = |path: &PathBuf| match path == Path::new(STDIN) {
        true => Ok(vec![path.clone()]),
        false => files(path),
    };
    let files = paths
        .iter()
        .map(of)
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let mut seen = HashMap::new();
    let mut bad = 0;
    for file in &files {
        let mut decoded = check(file, decoder);
        let file = match file == Path::new(STDIN) {
            true => Path::new("stdin"),
            false => file,
        };
        for (name, word) in decoded.names() {
            let first = seen.insert(name.clone(), file.to_owned());
            if let Some(first) = first.filter(|first| first != file) {
                decoded.errors.push(format!(
                    "{name} is in {} too; when two files have the same {word}, only the first runs",
                    first.display()
                ));
            }
        }
        bad += usize::from(!decoded.errors.is_empty());
        verdict(file, &decoded, out)?;
    }
    out.flush()?;
    if files.is_empty() {
        return Err(CliError::Failed(
            "no pod files there: every file counts but dotfiles and what editors leave (*~, *.swp, *.tmp, #*#)"
                .into(),
        ));
    }
    if bad > 0 {
        Err(CliError::Reported)
    } else {
        Ok(())
    }
}

/// The decoded content of a pod file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The name and the warnings of each pod.
    pub pods: Vec<(String, Vec<String>)>,
    /// The kind, the name and the warnings of each workload.
    pub workloads: Vec<(String, Vec<String>)>,
    /// The kind and name of each object beside pods and workloads.
    pub objects: Vec<String>,
    /// Sentences about parts of the file that have no effect, in addition to the warnings of pods and workloads.
    pub notes: Vec<String>,
    /// Sentences that say why the file is refused. Empty if the file is good.
    pub errors: Vec<String>,
}

impl Decoded {
    /// Tells whether there are notes about the file or warnings about what runs of it.
    pub fn has_advice(&self) -> bool {
        let mut all = self.running();
        !self.notes.is_empty() || all.any(|(_, warnings)| !warnings.is_empty())
    }

    /// Returns what runs of the file, each with its warnings.
    fn running(&self) -> impl Iterator<Item = (String, &Vec<String>)> {
        let pods = self.pods.iter();
        let pods = pods.map(|(name, warnings)| (format!("pod {name}"), warnings));
        let workloads = self.workloads.iter();
        pods.chain(workloads.map(|(name, warnings)| (name.clone(), warnings)))
    }

    /// Returns the name of each pod and each workload, with the word for it.
    fn names(&self) -> Vec<(String, &'static str)> {
        let pods = self.pods.iter();
        let pods = pods.map(|(name, _)| (format!("pod \"{name}\""), "pod"));
        let workloads = self.workloads.iter();
        let workloads = workloads.map(|(name, _)| (name.clone(), "object"));
        pods.chain(workloads).collect()
    }
}

/// Decodes and validates a pod file as the daemon's file source does, with two additional errors. The first is a
/// probe to a host that is not allowed: the daemon would run the pod, but each run of the probe would be an error.
/// The second is an image name that is not valid: the daemon would accept the pod, as a kubelet does, but the
/// container would wait with InvalidImageName.
pub(super) fn decode(bytes: &[u8], node: &Node, path: &Path) -> Decoded {
    let hosts = ProbeHosts {
        allowed: &node.allow_probe_hosts,
        is_node_address: &is_node_address,
    };
    let node_name = &node.name;
    match decode::objects(bytes, &PodOrigin::File { node_name, path }) {
        Ok(found) => Decoded {
            errors: errors(&found, &hosts),
            workloads: found
                .workloads
                .iter()
                .map(|d| {
                    let unreachable = unreachable_ports(&checked_pod(&d.workload), node.network);
                    let warnings = d.warnings.iter().cloned().chain(unreachable).collect();
                    (d.workload.key().to_string(), warnings)
                })
                .collect(),
            objects: found.objects.iter().map(|o| o.key.to_string()).collect(),
            notes: found.notes,
            pods: found
                .pods
                .into_iter()
                .map(|d| {
                    let unreachable = unreachable_ports(&d.pod, node.network);
                    let warnings = d.warnings.into_iter().chain(unreachable).collect();
                    (d.pod.metadata.name, warnings)
                })
                .collect(),
        },
        Err(e) => Decoded {
            errors: e.problems().iter().map(problem).collect(),
            ..Decoded::default()
        },
    }
}

/// Returns the errors that only this verb has. The pods of a workload have the path of its template before each field.
fn errors(found: &decode::Decoded, hosts: &ProbeHosts) -> Vec<String> {
    let of = |pod: &Pod| {
        let refused = refused_hosts(pod, hosts).into_iter();
        let refused = refused.map(|e| e.to_string());
        refused.chain(bad_images(pod)).collect::<Vec<_>>()
    };
    let pods = found.pods.iter().flat_map(|d| of(&d.pod));
    let workloads = found.workloads.iter().flat_map(|d| {
        let path = d.workload.kind().template_path();
        let errors = of(&checked_pod(&d.workload)).into_iter();
        errors.map(move |error| format!("{path}.{error}"))
    });
    pods.chain(workloads).collect()
}

/// Returns an error such as `spec.containers[0].image: Invalid value: …` for each image name that is not
/// valid.
fn bad_images(pod: &Pod) -> Vec<String> {
    let bad = |listed: Listed<'_>| {
        let path = format!("{}.image", listed.path());
        bad_image(&path, &listed.container.image)
    };
    pod.spec.listed().filter_map(bad).collect()
}

fn bad_image(path: &str, name: &str) -> Option<String> {
    let ImageError::InvalidName { why, .. } = Reference::parse(name).err()? else {
        return None;
    };
    let plain = name
        .trim_start_matches("https://")
        .trim_start_matches("http://");
    let lower = plain.to_lowercase();
    let meant = [plain, &lower]
        .into_iter()
        .find(|other| *other != name && Reference::parse(other).is_ok());
    let hint = meant.map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
    let why = match plain == name {
        true => why,
        false => "a name has no https:// before it".into(),
    };
    Some(format!("{path}: Invalid value: {name:?}: {why}{hint}"))
}

/// Returns a warning if a pod declares ports that nothing outside of the pod can reach.
fn unreachable_ports(pod: &Pod, network: NetworkChoice) -> Option<String> {
    let serves = pod.spec.all_containers().any(|c| !c.ports.is_empty());
    let is_alone = network == NetworkChoice::None && !pod.spec.host_network;
    (serves && is_alone).then(|| {
        "the pod has ports and, with network none, only a loopback interface: its probes, services and host ports reach them, nothing else does; network auto connects it, and hostNetwork: true gives it the node's network"
            .into()
    })
}

/// Returns a text such as `line 3, column 5: spec.x: …`. The caller adds the name of the file.
fn problem(p: &Problem) -> String {
    match p.position {
        Some(at) => format!("line {}, column {}: {}", at.line, at.column, p.text),
        None => p.text.clone(),
    }
}

pub(super) fn verdict(file: &Path, decoded: &Decoded, out: &mut dyn Write) -> io::Result<()> {
    let file = file.display();
    if decoded.errors.is_empty() {
        let all: Vec<String> = decoded
            .running()
            .map(|(name, warnings)| format!("{name}{}", counted(warnings.len())))
            .chain(decoded.objects.iter().cloned())
            .collect();
        writeln!(
            out,
            "{file}: ok ({})",
            if all.is_empty() {
                "nothing that runs here".into()
            } else {
                all.join("; ")
            }
        )?;
    }
    for error in &decoded.errors {
        writeln!(out, "{file}: error: {error}")?;
    }
    for note in &decoded.notes {
        writeln!(out, "{file}: warning: {note}")?;
    }
    let is_alone = decoded.running().count() == 1;
    for (name, warnings) in decoded.running() {
        // A warning about the only pod or workload of a file need not name it.
        let whose = match is_alone {
            true => String::new(),
            false => format!("{name}: "),
        };
        for warning in warnings {
            writeln!(out, "{file}: warning: {whose}{warning}")?;
        }
    }
    Ok(())
}

fn counted(warnings: usize) -> String {
    match warnings {
        0 => String::new(),
        1 => ", 1 warning".into(),
        n => format!(", {n} warnings"),
    }
}

fn check(file: &Path, decoder: Decoder<'_>) -> Decoded {
    match read(file) {
        Ok(bytes) => decoder(&bytes, file),
        Err(e) => Decoded {
            errors: vec![format!("cannot read the file: {e}")],
            ..Decoded::default()
        },
    }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file == Path::new(STDIN) {
        return read_all(io::stdin().lock());
    }
    read_all(std::fs::File::open(file)?)
}

/// Reads the whole input. Returns an error if the input is larger than a pod file may be.
pub(super) fn read_all(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(io::Error::other("larger than 10 MiB")),
        false => Ok(bytes),
    }
}

/// Returns the path itself if it is a file. For a directory, returns the files in the directory that the daemon
/// would read, sorted. A link to a regular file counts as a file.
pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let cannot = |e: io::Error| CliError::Failed(format!("cannot read {}: {e}", path.display()));
    if !std::fs::metadata(path).map_err(cannot)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.file_name().is_some_and(is_pod_file) && file.is_file() {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes a text for tests: `bad` has errors, and `none` is an empty list. Any other text is a pod whose name
    /// is the text, with a warning for each `!` in the text.
    fn decoder(bytes: &[u8], _: &Path) -> Decoded {
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        match text.as_str() {
            "bad" => Decoded {
                errors: vec!["spec: Required value".into(), "second".into()],
                ..Decoded::default()
            },
            "none" => Decoded::default(),
            _ => Decoded {
                pods: vec![(
                    text.replace('!', ""),
                    text.matches('!')
                        .map(|_| "spec.x is not acted on".into())
                        .collect(),
                )],
                ..Decoded::default()
            },
        }
    }

    /// Returns the output of `validate` for a pod that probes 192.0.2.7, with this configuration below the
    /// root. The flag tells whether the verb succeeded.
    fn with_configuration(config: &str) -> (String, bool) {
        let root = tempfile::tempdir().unwrap();
        let file = Layout::new(root.path()).config_file();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, config).unwrap();
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [
            {"name": "c", "image": "i", "livenessProbe": {"httpGet": {"host": "192.0.2.7", "port": 80}}}]}});
        let path = root.path().join("a.json");
        std::fs::write(&path, pod.to_string()).unwrap();
        let args = Validate {
            paths: vec![path],
            node_name: None,
            root: root.path().into(),
        };
        let mut out = Vec::new();
        let good = validate(&args, &mut out).is_ok();
        (String::from_utf8(out).unwrap(), good)
    }

    #[test]
    fn the_configuration_below_the_root_counts() {
        let (said, good) = with_configuration("{}");
        assert!(said.contains("192.0.2.7") && !good, "{said}");
        let allowed = r#"{"allowProbeHosts": ["192.0.2.7"], "nodeName": "edge"}"#;
        let (said, good) = with_configuration(allowed);
        assert!(said.contains("a-edge") && good, "{said}");
        let (said, good) = with_configuration(r#"{"allowProbeHost": []}"#);
        let both = said.contains("unknown key \"allowProbeHost\"") && said.contains("192.0.2.7");
        assert!(both && !good, "{said}");
    }

    #[test]
    fn a_name_that_no_image_can_have_is_an_error() {
        let check = |name: &str, expected: Option<&str>| {
            let got = bad_image("image", name);
            let expected = expected.map(|why| format!("image: Invalid value: {name:?}: {why}"));
            assert_eq!(got, expected, "{name}");
        };
        check("busybox:1.36", None);
        check("registry.lan:5000/a/b", None);
        let meant = "; did you mean \"busybox:latest\"?";
        check(
            "Busybox:latest",
            Some(&format!("the name must be lower case{meant}")),
        );
        let meant = "; did you mean \"registry.lan/x\"?";
        let https = format!("a name has no https:// before it{meant}");
        check("https://registry.lan/x", Some(&https));
        check(
            "a b",
            Some(
                "each part of the name must be lower-case letters and digits, joined by '.', '_', '__' or dashes",
            ),
        );
    }

    #[test]
    fn ports_that_nothing_reaches_are_warned_of() {
        let mut node = Node {
            name: "n".into(),
            allow_probe_hosts: Vec::new(),
            network: NetworkChoice::None,
        };
        let warnings = |node: &Node, spec: serde_json::Value| {
            let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec});
            let decoded = decode(pod.to_string().as_bytes(), node, Path::new("/p/a.json"));
            assert_eq!(decoded.errors, [] as [&str; 0]);
            let all = decoded.pods[0].1.clone();
            all.iter().filter(|w| w.contains("loopback")).count()
        };
        let container = |ports| serde_json::json!([{"name": "c", "image": "i", "ports": ports}]);
        let port = serde_json::json!([{"containerPort": 80}]);
        let with =
            |ports, host| serde_json::json!({"hostNetwork": host, "containers": container(ports)});
        assert_eq!(warnings(&node, with(port.clone(), false)), 1);
        assert_eq!(warnings(&node, with(port.clone(), true)), 0);
        assert_eq!(warnings(&node, with(serde_json::json!([]), false)), 0);
        node.network = NetworkChoice::Auto;
        assert_eq!(warnings(&node, with(port, false)), 0);
    }

    #[track_caller]
    fn check_files(files: &[(&str, &str)], expected: &str, good: bool) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let mut out = Vec::new();
        let result = run(&[dir.path().into()], &decoder, &mut out);
        let text = String::from_utf8(out)
            .unwrap()
            .replace(&format!("{}/", dir.path().display()), "");
        assert_eq!(text, expected);
        assert_eq!(result.is_ok(), good, "{result:?}");
    }

    #[test]
    fn every_file_has_a_verdict() {
        check_files(
            &[
                ("a.json", "web"),
                ("b", "w"),
                (".b.json", "bad"),
                ("a.json~", "bad"),
                ("c.tmp", "bad"),
            ],
            "a.json: ok (pod web)\nb: ok (pod w)\n",
            true,
        );
        let warned = "a.json: ok (pod web, 2 warnings)\na.json: warning: spec.x is not acted on\na.json: warning: spec.x is not acted on\n";
        check_files(&[("a.json", "web!!")], warned, true);
        check_files(
            &[("a.json", "bad"), ("b.json", "w")],
            "a.json: error: spec: Required value\na.json: error: second\nb.json: ok (pod w)\n",
            false,
        );
        check_files(
            &[("a.json", "none")],
            "a.json: ok (nothing that runs here)\n",
            true,
        );
        check_files(&[], "", false);
    }

    /// All files of a directory are read, whatever their endings are, as the daemon does.
    #[test]
    fn every_file_of_a_directory_is_read() {
        check_files(
            &[("a", "web"), ("b.txt", "bad")],
            "a: ok (pod web)\nb.txt: error: spec: Required value\nb.txt: error: second\n",
            false,
        );
    }

    #[test]
    fn two_files_with_one_pod_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a.json", "b.json"].map(|n| dir.path().join(n));
        for file in [&a, &b] {
            std::fs::write(file, "web").unwrap();
        }
        let mut out = Vec::new();
        assert!(run(&[a.clone(), b.clone()], &decoder, &mut out).is_err());
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains(&format!(
                "b.json: error: pod \"web\" is in {} too",
                a.display()
            )),
            "{text}"
        );
    }

    #[test]
    fn a_workload_has_its_verdict_and_its_template_the_checks_of_pods() {
        let node = Node {
            name: "n".into(),
            allow_probe_hosts: Vec::new(),
            network: NetworkChoice::Auto,
        };
        let check = |container: &str, expected: &str| {
            let text = format!(
                "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: a}}\nspec: {{schedule: '@daily', startingDeadlineSeconds: 1, jobTemplate: {{spec: {{template: {{spec: {{restartPolicy: Never, containers: [{container}]}}}}}}}}}}\n"
            );
            let decoded = decode(text.as_bytes(), &node, Path::new("f"));
            let mut out = Vec::new();
            verdict(Path::new("f"), &decoded, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        let late = "f: warning: spec.startingDeadlineSeconds: 1 s is short: a Job that the node cannot start within it is skipped\n";
        check(
            "{name: c, image: i}",
            &format!("f: ok (CronJob default/a, 1 warning)\n{late}"),
        );
        let image = "f: error: spec.jobTemplate.spec.template.spec.containers[0].image: Invalid value: \"I\": the name must be lower case; did you mean \"i\"?\n";
        check("{name: c, image: I}", &format!("{image}{late}"));
    }

    #[test]
    fn two_files_with_one_workload_are_an_error() {
        let of = |_: &[u8], _: &Path| Decoded {
            workloads: vec![("Job default/a".into(), vec![])],
            ..Decoded::default()
        };
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let mut out = Vec::new();
        assert!(run(&[dir.path().into()], &of, &mut out).is_err());
        let text = String::from_utf8(out).unwrap();
        let said = "/a too; when two files have the same object, only the first runs\n";
        assert!(
            text.contains("b: error: Job default/a is in ") && text.ends_with(said),
            "{text}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let missing = ["/nonexistent/x.json".into()];
        let e = run(&missing, &decoder, &mut Vec::new()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "cannot read /nonexistent/x.json: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn of_several_pods_a_warning_names_its_own() {
        let pod = |name: &str| (name.to_owned(), vec!["spec.x is not acted on".to_owned()]);
        let decoded = Decoded {
            pods: vec![pod("a"), pod("b")],
            ..Decoded::default()
        };
        let mut out = Vec::new();
        verdict(Path::new("f"), &decoded, &mut out).unwrap();
        let expected = "f: ok (pod a, 1 warning; pod b, 1 warning)\n\
            f: warning: pod a: spec.x is not acted on\n\
            f: warning: pod b: spec.x is not acted on\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
