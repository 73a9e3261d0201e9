//! The manifests of tests/pods, put unchanged into the directory of a real daemon, and what each must show, from the file
//! `NAME.shows.json` beside it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use podprobe::api::ContainerStatus;
use podprobe::engine::images::{ImageConfig, ImageStore};
use podprobe::engine::nsexec;
use podprobe::engine::runtime::ExecOutcome;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::engine::shims::state::{
    self, CONTAINER, ContainerRecord, ContainerState, Process, STATE,
};
use podprobe::face::views::PodView;
use serde::Deserialize;
use serde_json::json;

use super::machine;
use crate::support::daemon::{Day, NODE, find};
use crate::support::skip::skip;
use crate::support::{self, CEILING, Node, PROGRAM};

const BUSYBOX: &str = "/usr/bin/busybox";

/// Where the manifests are.
pub(crate) fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pods")
}

/// What a manifest must show, and on which machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shows {
    /// In a sentence.
    about: String,
    /// Files of the machine by path; a path that ends with `/` is a directory.
    #[serde(default)]
    node: BTreeMap<String, String>,
    /// Shell scripts that stand in for the programs of the images, by name, in lines.
    #[serde(default)]
    programs: BTreeMap<String, Vec<String>>,
    /// Further files of the stand-ins by path, each of which may be executed.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// What the images say besides their files, by name; an image that is not here says nothing.
    #[serde(default)]
    images: BTreeMap<String, Image>,
    /// The stand-ins have `serve-tls ADDRESS`, which serves the files of its directory.
    #[serde(default)]
    tls: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Image {
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    user: String,
    stop_signal: String,
}

/// What is done, then what must be seen. The first step puts the manifest into the directory before.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Step {
    /// In the text of the manifest: the first, by the second.
    replace: Option<(String, String)>,
    /// The file goes.
    remove: bool,
    /// The file comes again.
    put: bool,
    /// A link on the machine, and where it leads.
    link: Option<(PathBuf, PathBuf)>,
    /// A command in `pod/container`.
    exec: Option<(String, Vec<String>)>,
    shows: Vec<Show>,
    /// With the real software only.
    real_shows: Vec<Show>,
}

/// One thing that must be seen within [`CEILING`]. Names of containers are `pod/container`; texts are parts of what is seen.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Show {
    /// A pod is ready.
    Ready(String),
    /// A pod is not listed any more.
    Gone(String),
    /// Pod and phase.
    Phase(String, String),
    /// Pod, reason and text.
    Event(String, String, String),
    /// Container, reason and text.
    Waiting(String, String, String),
    /// Container, reason and exit code, of this instance or the one before.
    Ended(String, String, i32),
    /// Container and number.
    Restarts(String, u32),
    /// Pod, JSON pointer into its status, value.
    Status(String, String, String),
    /// Container and text.
    Log(String, String),
    /// Container, path in it, text.
    File(String, PathBuf, String),
    /// Container, path in it, `mode uid:gid`.
    Stat(String, PathBuf, String),
    /// Container and a variable of its first process, `NAME=value`.
    Env(String, String),
    /// Container, path of a mount in it, text of its options.
    Mount(String, String, String),
    /// Container in whose network the address is, address, text.
    Fetch(String, String, String),
    /// Container, command, text of its output; it ends with 0.
    Exec(String, Vec<String>, String),
    /// Container, type of the probe, text of what `podprobe probe` says; it ends with 0.
    Probe(String, String, String),
    /// A path of the machine.
    Exists(PathBuf),
    /// A path of the machine, text.
    NodeFile(PathBuf, String),
    /// Words of a client verb, text of its output.
    Says(Vec<String>, String),
    /// Text of `podprobe validate`.
    Validate(String),
    /// `validate` and the daemon refuse the file with that text, and no pod runs.
    Refused(String),
}

/// Where the images of a manifest come from.
pub(crate) enum Images<'a> {
    /// Shell scripts in place of the programs.
    StandIns,
    /// Root directories of the real software with their configurations, by the name of the image. Others are stand-ins.
    Real(&'a BTreeMap<String, (PathBuf, ImageConfig)>),
}

/// Runs a manifest with a real daemon, and checks that it shows what it must.
pub(crate) fn run(name: &str, images: &Images) {
    let shows = fs::read_to_string(dir().join(format!("{name}.shows.json"))).unwrap();
    let shows: Shows = serde_json::from_str(&shows).unwrap_or_else(|e| panic!("{name}: {e}"));
    if shows.tls && !Path::new(OPENSSL).exists() {
        return skip("needs /usr/bin/openssl");
    }
    assert!(!shows.about.is_empty() && !shows.steps.is_empty(), "{name}");
    support::on(RuntimeChoice::Embedded, |node| {
        let inside = || show(name, node, &shows, images);
        machine::on_its_own(node.dir.path(), node.layout.root(), inside);
    });
}

fn show(name: &str, node: &Node, shows: &Shows, images: &Images) {
    let mut text = fs::read_to_string(dir().join(format!("{name}.yaml"))).unwrap();
    for (path, content) in &shows.node {
        put_on_machine(path, content);
    }
    import(node, shows, &text, images);
    // The address that a machine with a network would have found out.
    let config = node.layout.root().join("etc/podprobe/config.json");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(config, json!({"nodeIP": machine::ADDRESS}).to_string()).unwrap();

    let day = Day::begin(node);
    let file = node.layout.pods_dir().join(format!("{name}.yaml"));
    let put = |text: &str| {
        let temporary = node.dir.path().join("being-written");
        fs::write(&temporary, text).unwrap();
        fs::rename(temporary, &file).unwrap();
    };
    put(&text);
    for (n, step) in shows.steps.iter().enumerate() {
        let seen = Seen {
            day: &day,
            file: &file,
            name: &format!("{name}, step {}", n + 1),
        };
        if let Some((from, to)) = &step.replace {
            assert!(
                text.contains(from),
                "{name}: {from:?} is not in the manifest"
            );
            text = text.replace(from, to);
            put(&text);
        }
        if step.remove {
            fs::remove_file(&file).unwrap();
        }
        if step.put {
            put(&text);
        }
        if let Some((link, target)) = &step.link {
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }
        if let Some((container, command)) = &step.exec {
            seen.exec(container, command)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        let real = match images {
            Images::StandIns => &[][..],
            Images::Real(_) => &step.real_shows[..],
        };
        for show in step.shows.iter().chain(real) {
            seen.wait(show);
        }
    }
    hurry(&day, &file);
    day.end();
}

fn hurry(day: &Day, file: &Path) {
    let _ = fs::remove_file(file);
    support::wait_until("every pod to be gone", || {
        day.kill_what_ends();
        let snapshot = day.snapshot().expect("the daemon answers");
        snapshot.pods.is_empty()
    });
}

fn put_on_machine(path: &str, content: &str) {
    if path.ends_with('/') {
        return fs::create_dir_all(path).unwrap();
    }
    let path = Path::new(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A link of the real machine is replaced, not followed.
    let _ = fs::remove_file(path);
    fs::write(path, content).unwrap();
}

/// Every image that the manifest names, as it names it.
fn import(node: &Node, shows: &Shows, text: &str, images: &Images) {
    let stand_ins = stand_ins(node.dir.path(), shows);
    let store = ImageStore::open(node.layout.images()).unwrap();
    for name in image_names(text) {
        let real = match images {
            Images::StandIns => None,
            Images::Real(real) => real.get(&name),
        };
        let (root, config) = match real {
            Some((root, config)) => (root, config.clone()),
            None => (&stand_ins, config(shows.images.get(&name))),
        };
        store.import(root, &name, config).unwrap();
    }
}

fn config(image: Option<&Image>) -> ImageConfig {
    let image = image.cloned().unwrap_or_default();
    ImageConfig {
        entrypoint: image.entrypoint,
        cmd: image.cmd,
        user: image.user,
        stop_signal: image.stop_signal,
        env: vec!["PATH=/usr/local/bin:/usr/bin:/bin".into()],
        ..ImageConfig::default()
    }
}

/// What stands behind `image:`, and behind `reference:` of a volume, in a text, also behind an anchor.
fn image_names(text: &str) -> Vec<String> {
    let values = text.lines().filter_map(|line| {
        let keys = ["image:", "reference:"].into_iter();
        let mut found = keys.filter_map(|key| line.split_once(key));
        let (_, value) = found.find(|(key, _)| key.trim_start_matches(['-', ' ']).is_empty())?;
        Some(value)
    });
    let plain = values.filter_map(|value| {
        let word = value.split_whitespace().find(|w| !w.starts_with('&'))?;
        Some(word.trim_matches(['"', '\'']).to_owned())
    });
    let mut names: Vec<_> = plain.collect();
    names.sort();
    names.dedup();
    names
}

const OPENSSL: &str = "/usr/bin/openssl";

/// Serves the files of its directory over TLS, with a certificate that nobody has signed.
const SERVE_TLS: &str = "#!/bin/sh\n\
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=stand-in -keyout /tmp/key.pem -out /tmp/crt.pem 2>&1 || exit 1\n\
    exec openssl s_server -accept \"$1\" -cert /tmp/crt.pem -key /tmp/key.pem -WWW\n";

/// A root directory of busybox and the scripts.
fn stand_ins(dir: &Path, shows: &Shows) -> PathBuf {
    let root = dir.join("stand-ins");
    for sub in ["bin", "usr/bin", "usr/share", "tmp", "etc", "var", "opt"] {
        fs::create_dir_all(root.join(sub)).unwrap();
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
    let applets = Command::new(BUSYBOX).arg("--list").output().unwrap().stdout;
    for applet in String::from_utf8(applets)
        .unwrap()
        .lines()
        .filter(|a| *a != "busybox")
    {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    let users = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n";
    fs::write(root.join("etc/passwd"), users).unwrap();
    for (name, lines) in &shows.programs {
        program(&root, name, &(lines.join("\n") + "\n"));
    }
    for (path, content) in &shows.files {
        file(&root.join(&path[1..]), content);
    }
    if shows.tls {
        copy_with_libraries(OPENSSL, &root);
        copy("/usr/lib/ssl/openssl.cnf", &root);
        program(&root, "serve-tls", SERVE_TLS);
    }
    root
}

fn program(root: &Path, name: &str, text: &str) {
    file(&root.join("usr/bin").join(name), text);
}

fn file(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn copy(path: &str, root: &Path) {
    let to = root.join(&path[1..]);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(path, &to).unwrap_or_else(|e| panic!("{path}: {e}"));
}

/// The program and every file that `ldd` names, at their own paths.
fn copy_with_libraries(path: &str, root: &Path) {
    copy(path, root);
    let ldd = Command::new("ldd").arg(path).output().unwrap().stdout;
    let ldd = String::from_utf8(ldd).unwrap();
    let files = ldd.split_whitespace().filter(|word| word.starts_with('/'));
    files.for_each(|file| copy(file, root));
}

/// What a test sees of the daemon and its containers.
struct Seen<'a> {
    day: &'a Day<'a>,
    /// The manifest in the daemon's directory.
    file: &'a Path,
    /// For messages.
    name: &'a str,
}

impl Seen<'_> {
    fn wait(&self, show: &Show) {
        let deadline = Instant::now() + CEILING;
        while let Err(seen) = self.check(show) {
            assert!(
                Instant::now() < deadline,
                "{}: waited for {show:?}, last seen: {seen}\n{}\n{}",
                self.name,
                self.day.says(&["describe", "pod"]),
                self.day.log()
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// What is seen instead is the error.
    fn check(&self, show: &Show) -> Result<(), String> {
        match show {
            Show::Ready(pod) => {
                self.status(pod, |p| (p.status.is_ready(), format!("{:?}", p.status)))
            }
            Show::Gone(pod) => match self.pod(pod) {
                Ok(_) => Err("it is there".into()),
                Err(_) => Ok(()),
            },
            Show::Phase(pod, phase) => self.status(pod, |p| {
                let seen = format!("{:?}", p.status.phase);
                (seen == *phase, seen)
            }),
            Show::Event(pod, reason, text) => self.status(pod, |p| {
                let matches = |e: &&std::sync::Arc<podprobe::pods::events::Event>| {
                    e.reason == *reason && e.message.contains(text)
                };
                let seen = p.events.iter().any(|e| matches(&e));
                (seen, format!("{:#?}", p.events))
            }),
            Show::Status(pod, pointer, value) => self.status(pod, |p| {
                let status = serde_json::to_value(&*p.status).unwrap();
                let seen = status.pointer(pointer).cloned().unwrap_or_default();
                (seen == **value, seen.to_string())
            }),
            Show::Waiting(container, reason, text) => self.container(container, |c| {
                let waiting = c.state.waiting.clone().unwrap_or_default();
                waiting.reason == *reason && waiting.message.contains(text)
            }),
            Show::Ended(container, reason, code) => self.container(container, |c| {
                let ends = [&c.state.terminated, &c.last_state.terminated];
                let mut ends = ends.into_iter().flatten();
                ends.any(|t| t.reason == *reason && t.exit_code == *code)
            }),
            Show::Restarts(container, count) => {
                self.container(container, |c| c.restart_count == *count)
            }
            Show::Log(container, text) => has(&self.log(container)?, text),
            Show::File(container, path, text) => has(&read(&self.inside(container, path)?)?, text),
            Show::Stat(container, path, wanted) => {
                has(&stat(&self.inside(container, path)?)?, wanted)
            }
            Show::Env(container, variable) => {
                let path = format!("/proc/{}/environ", self.process(container)?.pid);
                let text = read(Path::new(&path))?;
                let found = text.split('\0').any(|v| v == variable);
                found.then_some(()).ok_or(text)
            }
            Show::Mount(container, at, options) => {
                let path = format!("/proc/{}/mounts", self.process(container)?.pid);
                let text = read(Path::new(&path))?;
                let line = text.lines().find(|l| l.split(' ').nth(1) == Some(at));
                has(line.ok_or(text.clone())?, options)
            }
            Show::Fetch(container, address, text) => has(&self.fetch(container, address)?, text),
            Show::Exec(container, command, text) => has(&self.exec(container, command)?, text),
            Show::Probe(container, kind, text) => {
                has(&self.verb(&["probe", container, kind])?, text)
            }
            Show::Exists(path) => {
                let path = self.on_machine(path);
                path.exists()
                    .then_some(())
                    .ok_or(format!("no {}", path.display()))
            }
            Show::NodeFile(path, text) => has(&read(&self.on_machine(path))?, text),
            Show::Says(words, text) => {
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                has(&self.verb(&words)?, text)
            }
            Show::Validate(text) => has(&self.validate().1, text),
            Show::Refused(text) => self.refused(text),
        }
    }

    /// A path of the machine; what the daemon keeps lies below its root.
    fn on_machine(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/var/lib/podprobe");
        below.map_or_else(
            |_| path.to_owned(),
            |below| self.day.node.layout.lib_dir().join(below),
        )
    }

    fn pod(&self, name: &str) -> Result<PodView, String> {
        let snapshot = self.day.snapshot().ok_or("the daemon does not answer")?;
        let found = find(&snapshot, name).cloned();
        found.ok_or_else(|| format!("no pod {name}; problems: {:?}", snapshot.problems))
    }

    fn status(
        &self,
        pod: &str,
        test: impl FnOnce(&PodView) -> (bool, String),
    ) -> Result<(), String> {
        let (good, seen) = test(&self.pod(pod)?);
        good.then_some(()).ok_or(seen)
    }

    fn container(
        &self,
        name: &str,
        test: impl FnOnce(&ContainerStatus) -> bool,
    ) -> Result<(), String> {
        let (pod, container) = name.split_once('/').expect("pod/container");
        let pod = self.pod(pod)?;
        let all = pod
            .status
            .init_container_statuses
            .iter()
            .chain(&pod.status.container_statuses);
        let status = all.into_iter().find(|c| c.name == container);
        let status = status.ok_or_else(|| format!("no status of {name}"))?;
        test(status).then_some(()).ok_or(format!("{status:?}"))
    }

    /// A client verb about `pod/container`; its output is the error when it fails.
    fn verb(&self, words: &[&str]) -> Result<String, String> {
        let output = self.day.client(words);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(said),
        }
    }

    fn log(&self, container: &str) -> Result<String, String> {
        let (pod, container) = container.split_once('/').expect("pod/container");
        self.verb(&["logs", pod, "-c", container])
    }

    fn validate(&self) -> (bool, String) {
        let output = Command::new(PROGRAM)
            .arg("validate")
            .arg(self.file)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    fn refused(&self, text: &str) -> Result<(), String> {
        let (good, said) = self.validate();
        assert!(!good, "{}: validate takes it: {said}", self.name);
        has(&said, text)?;
        has(&self.day.says(&["get", "pods", "-A"]), text)?;
        let snapshot = self.day.snapshot().ok_or("the daemon does not answer")?;
        assert!(
            snapshot.pods.is_empty(),
            "{}: {:?}",
            self.name,
            snapshot.pods
        );
        Ok(())
    }

    fn process(&self, name: &str) -> Result<Process, String> {
        self.running(name).map(|(_, process)| process)
    }

    /// The directory of a container that runs, and its first process.
    fn running(&self, name: &str) -> Result<(PathBuf, Process), String> {
        let (pod, container) = name.split_once('/').expect("pod/container");
        let pod = format!("{pod}-{}", NODE);
        let dirs = fs::read_dir(self.day.node.layout.containers()).map_err(|e| e.to_string())?;
        let found = dirs.flatten().map(|e| e.path()).find_map(|dir| {
            let record: ContainerRecord = state::read(&dir, CONTAINER)?;
            let process = state::read::<ContainerState>(&dir, STATE)?.process?;
            let is = record.pod.name == pod && record.name == container && process.alive();
            is.then_some((dir, process))
        });
        found.ok_or_else(|| format!("{name} does not run"))
    }

    fn inside(&self, container: &str, path: &Path) -> Result<PathBuf, String> {
        let root = format!(
            "/proc/{}/root{}",
            self.process(container)?.pid,
            path.display()
        );
        Ok(root.into())
    }

    fn fetch(&self, container: &str, address: &str) -> Result<String, String> {
        let pid = self.process(container)?.pid.to_string();
        let output = Command::new("nsenter")
            .args(["-t", &pid, "-n", BUSYBOX, "wget", "-q", "-O", "-", address])
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// As an exec probe does.
    fn exec(&self, container: &str, command: &[String]) -> Result<String, String> {
        let (dir, process) = self.running(container)?;
        let config = fs::read(dir.join("bundle/config.json")).map_err(|e| e.to_string())?;
        let config = serde_json::from_slice(&config).unwrap();
        let target = nsexec::Target {
            pid: process.pid,
            start_time: process.start_time,
            config: &config,
            cgroup: "",
        };
        let options = nsexec::Options {
            helper: PROGRAM.into(),
            ..Default::default()
        };
        match nsexec::exec_with(&options, &target, command, CEILING, 1 << 16) {
            Ok(ExecOutcome::Exited { code: 0, output }) => {
                Ok(String::from_utf8_lossy(&output).into_owned())
            }
            other => Err(format!("{other:?}")),
        }
    }
}

fn has(seen: &str, text: &str) -> Result<(), String> {
    seen.contains(text)
        .then_some(())
        .ok_or_else(|| seen.to_owned())
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// `mode uid:gid`.
fn stat(path: &Path) -> Result<String, String> {
    let m = fs::metadata(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(format!("{:o} {}:{}", m.mode() & 0o7777, m.uid(), m.gid()))
}
