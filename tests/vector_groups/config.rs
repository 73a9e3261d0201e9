//! config.json: decoding, static pods, the file source, the merge (kubelet-probes 6).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, bounded};
use podprobe::api::Pod;
use podprobe::api::decode;
use podprobe::api::identity::static_name;
use podprobe::api::validation::validate_pod;
use podprobe::api::{PodOrigin, PodSource};
use podprobe::base::http_client::WebUrl;
use podprobe::cluster::pod_set::ApiPods;
use podprobe::cluster::reflector::Change;
use podprobe::pods::sources::file::FileSourceConfig;
use podprobe::pods::sources::http::HttpSourceConfig;
use podprobe::pods::sources::merge::Merged;
use podprobe::pods::sources::{
    FileSource, FileStates, HttpSource, Outlet, PodConfig, PodOperation, PodUpdate,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::http_server::{Reply, Server};
use super::world::pod_of;
use super::{
    AS_TOLD, Case, Group, Run, Verdict, duration, ensure, fields, group, overruled, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group(
        "decode",
        Run::Told(&[
            ("d-1", d_1),
            ("d-2", d_2),
            ("d-3", d_3),
            ("d-4", d_4),
            ("d-5", d_5),
        ]),
    ),
    group("staticName", Run::Each(static_name_of)),
    group("fileDefaults", Run::Each(file_defaults)),
    group(
        "fileSource",
        Run::Told(&[
            ("f-1", f_1),
            ("f-2", f_2),
            ("f-3", f_3),
            ("f-4", f_4),
            ("f-5", f_5),
            ("f-6", f_6),
        ]),
    ),
    group(
        "httpSource",
        Run::Told(&[
            ("h-1", h_1),
            ("h-2", h_2),
            ("h-3", h_3),
            ("h-4", h_4),
            ("h-5", h_5),
            ("h-6", h_6),
        ]),
    ),
    group("apiserverSource", Run::Each(apiserver_source)),
    group("merge", Run::Each(merge)),
    group(
        "mux",
        Run::Told(&[("mx-1", mx_1), ("mx-2", mx_2), ("mx-3", mx_3)]),
    ),
];

fn decode(text: &str) -> Result<Vec<Pod>, String> {
    let source = PodOrigin::File {
        node_name: "node1",
        path: Path::new("/pods/web.json"),
    };
    let found = decode::objects(text.as_bytes(), &source).map_err(|e| e.to_string())?;
    Ok(found.pods.into_iter().map(|d| d.pod).collect())
}

fn written(name: &str, spec: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "mynamespace", "uid": name},
        "spec": {"containers": [{"name": "image", "image": "test/image"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Everything in `part` is in `whole`.
fn contains(at: &str, whole: &Value, part: &Value) -> Result<(), String> {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part.iter().try_for_each(|(key, part)| {
            contains(
                &format!("{at}.{key}"),
                whole.get(key).unwrap_or(&Value::Null),
                part,
            )
        }),
        (Value::Array(whole), Value::Array(part)) if whole.len() == part.len() => whole
            .iter()
            .zip(part)
            .enumerate()
            .try_for_each(|(i, (w, p))| contains(&format!("{at}[{i}]"), w, p)),
        _ => same(at, part, whole),
    }
}

/// The value in YAML's block style, its scalars as in JSON.
fn yaml(value: &Value, indent: usize) -> String {
    let pad = " ".repeat(indent);
    let nested = |value: &Value| match value {
        Value::Object(map) if !map.is_empty() => format!("\n{}", yaml(value, indent + 2)),
        Value::Array(items) if !items.is_empty() => format!("\n{}", yaml(value, indent + 2)),
        plain => format!(" {plain}\n"),
    };
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| format!("{pad}{key}:{}", nested(value)))
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|value| format!("{pad}-{}", nested(value)))
            .collect(),
        plain => format!("{pad}{plain}\n"),
    }
}

fn d_1(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let given = written("test", json!({}));
    let pods = decode(&given.to_string())?;
    same("pods", 1, pods.len())?;
    let mut expected = given;
    expected["metadata"]["name"] = "test-node1".into();
    contains("pod", &pods[0].raw.value(), &expected)?;
    let typed: podprobe::api::pod::PodSpec = fields(&pods[0].raw.value()["spec"])?;
    same("the typed view and the raw object", &typed, &pods[0].spec)?;
    let given = written("test", json!({}));
    same("the pod in YAML", &pods, &decode(&yaml(&given, 0))?)?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Refused {
    #[serde(rename = "in")]
    _given: String,
    error_contains: String,
}

fn refused(case: &Case, spec: Value) -> Verdict {
    let case: Refused = case.fields()?;
    let error = decode(&written("test", spec).to_string())
        .err()
        .ok_or("expected an error, got a pod")?;
    ensure(
        error.contains(&case.error_contains),
        &format!("\"{}\" in \"{error}\"", case.error_contains),
    )?;
    AS_TOLD
}

fn d_2(case: &Case) -> Verdict {
    let sources = json!([{"clusterTrustBundle": {"name": "a", "path": "b"}}]);
    refused(
        case,
        json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}),
    )
}

fn d_3(case: &Case) -> Verdict {
    refused(
        case,
        json!({"resourceClaims": [{"name": "c", "resourceClaimName": "d"}]}),
    )
}

fn d_4(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let containers = json!([{"name": "image", "image": "test/image", "restartPolicy": "Always"}]);
    let pods = decode(
        &written(
            "test",
            json!({"restartPolicy": "Never", "containers": containers}),
        )
        .to_string(),
    )?;
    let spec = &pods[0].spec;
    use podprobe::api::pod::RestartPolicy::{Always, Never};
    same(
        "policies",
        (Never, Some(Always)),
        (spec.restart_policy, spec.containers[0].restart_policy),
    )?;
    AS_TOLD
}

fn d_5(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let given = [
        written("a", json!({})),
        written("b", json!({"hostname": "h"})),
    ];
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": given});
    let pods = decode(&list.to_string())?;
    same("pods", 2, pods.len())?;
    for (given, got) in given.iter().zip(&pods) {
        same(
            "the pod alone and in a list",
            &decode(&given.to_string())?[0],
            got,
        )?;
    }
    same("the list in YAML", &pods, &decode(&yaml(&list, 0))?)?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StaticName {
    node: Option<String>,
    pod: Option<String>,
    name: Option<String>,
    validate: Option<String>,
    expect_error_field: Option<String>,
}

fn static_name_of(case: &Case) -> Verdict {
    let case: StaticName = case.fields()?;
    match (case.node, case.pod, case.name, case.validate) {
        (Some(node), Some(pod), Some(name), None) => same("name", name, static_name(&pod, &node))?,
        (None, None, None, Some(name)) => {
            let mut pod = Pod::clone(&pod_of(
                "p",
                json!({"containers": [{"name": "c", "image": "i"}]}),
            ));
            pod.raw.edit(podprobe::api::defaults::apply);
            pod.spec = fields(&pod.raw.value()["spec"])?;
            same("errors of a good name", 0, validate_pod(&pod).len())?;
            pod.metadata.name = name;
            let fields: Vec<_> = validate_pod(&pod).into_iter().map(|e| e.path).collect();
            same(
                "fields with errors",
                case.expect_error_field.into_iter().collect::<Vec<_>>(),
                fields,
            )?;
        }
        other => return Err(format!("unknown form of a case: {other:?}")),
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDefaults {
    #[serde(rename = "in")]
    given: Value,
    node: String,
    expect: Value,
}

fn file_defaults(case: &Case) -> Verdict {
    let case: FileDefaults = case.fields()?;
    let mut given = json!({"apiVersion": "v1", "kind": "Pod"});
    for (key, value) in case.given.as_object().into_iter().flatten() {
        given[key] = value.clone();
    }
    let source = PodOrigin::File {
        node_name: &case.node,
        path: Path::new("/pods/p.json"),
    };
    let found = decode::objects(given.to_string().as_bytes(), &source);
    let pods = found.map_err(|e| e.to_string())?.pods;
    same("pods", 1, pods.len())?;
    contains("pod", &pods[0].pod.raw.value(), &case.expect)?;
    AS_TOLD
}

const HOUR: Duration = Duration::from_secs(3600);
/// Within this the file source has seen a change.
const SEEN: Duration = Duration::from_secs(5);

fn outlet(source: PodSource, updates: Sender<PodUpdate>, states: &Arc<FileStates>) -> Outlet {
    Outlet {
        config: Arc::new(PodConfig::new(&[source])),
        objects: Arc::default(),
        workloads: Arc::default(),
        updates,
        states: states.clone(),
        events: Arc::default(),
    }
}

/// A file source on `pods` in a directory of its own; stopped and joined when dropped.
struct Files {
    dir: tempfile::TempDir,
    source: Option<FileSource>,
    updates: Receiver<PodUpdate>,
    states: Arc<FileStates>,
}

impl Files {
    fn new(recheck: Duration, prepare: impl FnOnce(&Path)) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        prepare(dir.path());
        let (send, updates) = bounded(100);
        let states = Arc::new(FileStates::new(|_| ()));
        let config = FileSourceConfig {
            path: dir.path().join("pods"),
            check_frequency: recheck,
            last_good: dir.path().join("last-good"),
            running: Default::default(),
            decode: Arc::new(|bytes, path| {
                let node_name = "n";
                decode::objects(bytes, &PodOrigin::File { node_name, path })
            }),
            outlet: outlet(PodSource::File, send, &states),
        };
        let source = FileSource::spawn(config, &podprobe::base::threads::Roster::default())
            .map_err(|e| e.to_string())?;
        Ok(Self {
            dir,
            source: Some(source),
            updates,
            states,
        })
    }

    fn pods(&self) -> PathBuf {
        self.dir.path().join("pods")
    }

    /// The next update within five seconds: its operation, and name and container of each pod.
    fn next(&self) -> Result<(PodOperation, Vec<(String, String)>), String> {
        let update = self
            .updates
            .recv_timeout(SEEN)
            .map_err(|_| format!("no update within {SEEN:?}"))?;
        let one = |p: &Arc<Pod>| (p.metadata.name.clone(), p.spec.containers[0].name.clone());
        Ok((update.op, update.pods.iter().map(one).collect()))
    }

    fn expect(&self, op: PodOperation, pods: &[&str]) -> Result<(), String> {
        let expected = pods
            .iter()
            .map(|c| ("test-n".to_owned(), (*c).to_owned()))
            .collect();
        same("update", (op, expected), self.next()?)
    }

    /// A text about the path, once there is one.
    fn problem(&self) -> Result<String, String> {
        super::world::until("a problem is told", || !self.states.problems().is_empty())?;
        Ok(self.states.problems().remove(0).error)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            source.stop();
            source.join();
        }
    }
}

/// An http source of a server's pods; stopped and joined when dropped.
struct Fetched {
    _dir: tempfile::TempDir,
    source: Option<HttpSource>,
    updates: Receiver<PodUpdate>,
    states: Arc<FileStates>,
}

impl Fetched {
    fn new(url: &str, node_name: &'static str, headers: &[(&str, &str)]) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (send, updates) = bounded(100);
        let states = Arc::new(FileStates::new(|_| ()));
        let of_url = url.to_owned();
        let headers = headers
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let config = HttpSourceConfig {
            url: WebUrl::parse(url).map_err(|e| e.to_string())?,
            headers: headers.collect(),
            check_frequency: HOUR,
            last_good: dir.path().join("last-good"),
            decode: Arc::new(move |bytes, _| {
                let url = &of_url;
                decode::objects(bytes, &PodOrigin::Http { node_name, url })
            }),
            outlet: outlet(PodSource::Http, send, &states),
        };
        let source = HttpSource::spawn(config, &podprobe::base::threads::Roster::default())
            .map_err(|e| e.to_string())?;
        Ok(Self {
            _dir: dir,
            source: Some(source),
            updates,
            states,
        })
    }

    /// The pods of the first update, which adds them.
    fn pods(&self) -> Result<Vec<Arc<Pod>>, String> {
        let update = self.updates.recv_timeout(SEEN);
        let update = update.map_err(|_| format!("no update within {SEEN:?}"))?;
        same("operation", PodOperation::Add, update.op)?;
        same("source", PodSource::Http, update.source)?;
        Ok(update.pods)
    }

    /// The error that the first answer gives, and that it gives nothing else.
    fn error(&self) -> Result<String, String> {
        super::world::until("a problem is told", || !self.states.problems().is_empty())?;
        ensure(self.updates.try_recv().is_err(), "that nothing is sent")?;
        Ok(self.states.problems().remove(0).error)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(source) = self.source.take() {
            source.stop();
            source.join();
        }
    }
}

fn serving(body: &Value) -> (Server, String) {
    let body = body.to_string();
    let server = Server::new(move |_| Reply::new(200, body.clone()));
    let url = format!("http://{}/pods", server.address);
    (server, url)
}

/// Of a server that is not there.
fn refused_url() -> Result<String, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    Ok(format!("http://{address}/"))
}

fn h_1(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let error = Fetched::new(&refused_url()?, "n", &[])?.error()?;
    ensure(
        error.contains("cannot connect to 127.0.0.1"),
        &format!("that in \"{error}\""),
    )?;
    AS_TOLD
}

fn h_2(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let server = Server::new(|_| Reply::new(404, "none"));
    let url = format!("http://{}/", server.address);
    let error = Fetched::new(&url, "n", &[])?.error()?;
    ensure(
        error.contains("answers with status 404 instead of 200"),
        &format!("that in \"{error}\""),
    )?;
    h_1(case)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bodies {
    bodies: Vec<String>,
    #[serde(rename = "expect")]
    _expect: String,
}

fn h_3(case: &Case) -> Verdict {
    let named = case.fields::<Bodies>()?.bodies;
    let of_container = |version: &str, container: Value, volumes: Value| {
        json!({"apiVersion": version, "metadata": {"name": "p"},
            "spec": {"containers": [container], "volumes": volumes}})
    };
    let good = || json!({"name": "c", "image": "i"});
    let volume = |name: &str| json!({"name": name, "emptyDir": {}});
    let bodies = [
        json!({"metadata": {"name": "p"}, "spec": {"containers": [good()]}}),
        of_container("v1betta2", good(), json!([])),
        of_container("v1", good(), json!([volume("_INVALID_")])),
        of_container(
            "v1",
            good(),
            json!([volume("repeated"), volume("repeated")]),
        ),
        of_container("v1", json!({"name": "", "image": "i"}), json!([])),
        of_container("v1", json!({"name": "_INVALID_", "image": "i"}), json!([])),
    ];
    same("bodies", named.len(), bodies.len())?;
    for (mut body, name) in bodies.into_iter().zip(named) {
        // as upstream has them, and so that what the case names is what is wrong
        for kind in [None, Some("Pod")] {
            if let Some(kind) = kind {
                body["kind"] = kind.into();
            }
            let (_server, url) = serving(&body);
            let error = Fetched::new(&url, "n", &[])?.error();
            error.map_err(|e| format!("{name}: {e}"))?;
        }
    }
    AS_TOLD
}

fn h_4(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let mut pod = written("foo", json!({}));
    pod["metadata"]["uid"] = "111".into();
    let (_server, url) = serving(&pod);
    let pods = Fetched::new(&url, "different-value", &[])?.pods()?;
    same("pods", 1, pods.len())?;
    let metadata = &pods[0].metadata;
    same("name", "foo-different-value", metadata.name.as_str())?;
    same("namespace", "mynamespace", metadata.namespace.as_str())?;
    let hash = metadata.annotations.get("kubernetes.io/config.hash");
    same("hash", Some("111"), hash.map(String::as_str))?;
    same("tolerations", None, pods[0].raw.at("/spec/tolerations"))?;
    AS_TOLD
}

fn h_5(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let item = |name: &str, uid: &str, image: &str| json!({"metadata": {"name": name, "uid": uid}, "spec": {"containers": [{"name": "1", "image": image}]}});
    let items = [item("foo", "111", "foo"), item("bar", "222", "bar:bartag")];
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": items});
    let (_server, url) = serving(&list);
    let pods = Fetched::new(&url, "n", &[])?.pods()?;
    let names = pods.iter().map(|p| {
        let m = &p.metadata;
        (m.name.as_str(), m.namespace.as_str())
    });
    same(
        "pods",
        vec![("foo-n", "default"), ("bar-n", "default")],
        names.collect::<Vec<_>>(),
    )?;
    let policy = &pods[1].raw.value()["spec"]["containers"][0]["imagePullPolicy"];
    same("pull policy", &json!("IfNotPresent"), policy)?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithHeader {
    header: [String; 2],
    #[serde(rename = "expect")]
    _expect: String,
}

fn h_6(case: &Case) -> Verdict {
    let header = case.fields::<WithHeader>()?.header;
    let (server, url) = serving(&written("foo", json!({})));
    let fetched = Fetched::new(&url, "n", &[(&header[0], &header[1])])?;
    same("pods", 1, fetched.pods()?.len())?;
    let requests = server.requests();
    same("requests", 1, requests.len())?;
    let sent = requests[0].header(&header[0].to_lowercase());
    same("header", header[1].as_str(), sent)?;
    AS_TOLD
}

fn f_1(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let files = Files::new(HOUR, |_| ())?;
    let problem = files.problem()?;
    ensure(
        problem.contains("it does not exist"),
        &format!("that in \"{problem}\""),
    )?;
    Ok(overruled(
        "a missing path is told as a problem of the source; the watch itself goes on at the path's parent and has no error",
    ))
}

fn f_2(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    Files::new(HOUR, |_| ())?.expect(PodOperation::Add, &[])?;
    AS_TOLD
}

/// Of a matrix: dir or file, symlink or plain, and how often to list anew.
fn combination(row: &[String], recheck: &str) -> Result<(bool, bool, Duration), String> {
    let word = |i: usize| row.get(i).map_or("", String::as_str);
    let is_dir = match word(0) {
        "dir" => true,
        "file" => false,
        other => return unknown("place", other),
    };
    let is_link = match word(1) {
        "symlink" => true,
        "plain" => false,
        other => return unknown("kind of file", other),
    };
    let recheck = if word(2).is_empty() {
        recheck
    } else {
        word(2).strip_prefix("recheck ").unwrap_or(word(2))
    };
    Ok((is_dir, is_link, duration(recheck)?))
}

/// The text of a pod without a UID, so that its file is part of its identity.
fn file_text(container: &str) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "test", "namespace": "mynamespace"},
        "spec": {"containers": [{"name": container, "image": "test/image"}]}})
    .to_string()
}

/// Puts a file there, or a link to one elsewhere; the path that is to be written to later.
fn put(dir: &Path, at: &Path, is_link: bool, container: &str) -> PathBuf {
    let real = if is_link {
        dir.join("elsewhere")
    } else {
        at.to_owned()
    };
    fs::write(&real, file_text(container)).expect("a file");
    if is_link {
        symlink(&real, at).expect("a link");
    }
    real
}

fn f_3(case: &Case) -> Verdict {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        matrix: Vec<Vec<String>>,
        recheck: String,
        #[serde(rename = "expect")]
        _expect: String,
    }
    let case: Fields = case.fields()?;
    for row in &case.matrix {
        let (is_dir, is_link, recheck) = combination(row, &case.recheck)?;
        let files = Files::new(recheck, |dir| {
            if is_dir {
                fs::create_dir(dir.join("pods")).expect("a directory");
            }
        })?;
        files
            .expect(PodOperation::Add, &[])
            .map_err(|e| format!("{row:?}: {e}"))?;
        let at = if is_dir {
            files.pods().join("file")
        } else {
            files.pods()
        };
        put(files.dir.path(), &at, is_link, "image");
        files
            .expect(PodOperation::Add, &["image"])
            .map_err(|e| format!("{row:?}: {e}"))?;
    }
    AS_TOLD
}

fn f_4(case: &Case) -> Verdict {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Fields {
        matrix: Vec<Vec<String>>,
        #[serde(rename = "expect")]
        _expect: String,
    }
    let case: Fields = case.fields()?;
    for row in &case.matrix {
        let (is_dir, is_link, recheck) = combination(row, "60s")?;
        let mut real = PathBuf::new();
        let files = Files::new(recheck, |dir| {
            let pods = dir.join("pods");
            let at = if is_dir {
                pods.join("file")
            } else {
                pods.clone()
            };
            if is_dir {
                fs::create_dir(&pods).expect("a directory");
            }
            real = put(dir, &at, is_link, "image");
        })?;
        let at_row = |e: String| format!("{row:?}: {e}");
        files
            .expect(PodOperation::Add, &["image"])
            .map_err(at_row)?;
        // Without a UID in the file the changed pod is another one.
        fs::write(&real, file_text("image2")).map_err(|e| e.to_string())?;
        let start = Instant::now();
        files
            .expect(PodOperation::Remove, &["image"])
            .map_err(at_row)?;
        files
            .expect(PodOperation::Add, &["image2"])
            .map_err(at_row)?;
        ensure(start.elapsed() <= SEEN, "the change is seen within 5 s")?;
        if is_dir {
            fs::rename(files.pods().join("file"), files.pods().join("renamed"))
                .map_err(|e| e.to_string())?;
            files
                .expect(PodOperation::Remove, &["image2"])
                .map_err(at_row)?;
            files
                .expect(PodOperation::Add, &["image2"])
                .map_err(at_row)?;
        }
    }
    AS_TOLD
}

fn f_5(case: &Case) -> Verdict {
    case.has_only(&["in", "expect"])?;
    let files = Files::new(HOUR, |dir| {
        fs::write(dir.join("pods"), [1, 2, 3]).expect("a file")
    })?;
    let problem = files.problem()?;
    ensure(
        problem.contains("expected a v1 Pod"),
        &format!("that in \"{problem}\""),
    )?;
    same("updates", None, files.updates.try_recv().ok())?;
    AS_TOLD
}

fn f_6(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let files = Files::new(HOUR, |dir| {
        fs::create_dir(dir.join("pods")).expect("a directory")
    })?;
    files.expect(PodOperation::Add, &[])?;
    same("problems", Vec::new(), files.states.problems())?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MergeCase {
    #[serde(default)]
    send: Vec<Value>,
    expect: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiSteps {
    /// What the API server says, and the full set after it: names with their versions, or how many there are.
    steps: Vec<(String, Value)>,
}

/// `list one/p two/p`, `list p(v1)`, `empty list`, `watch modify p`: changes of the pods of the API server.
fn apiserver_source(case: &Case) -> Verdict {
    let ApiSteps { steps } = case.fields()?;
    let mut pods = ApiPods::new("node1");
    // The pods that the API server has, with their versions; 0 where the case gives none.
    let mut known: BTreeMap<String, u32> = BTreeMap::new();
    let object = |full: &str, version: u32| {
        let (namespace, name) = full.split_once('/').unwrap_or(("default", full));
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": full.replace('/', "-"), "resourceVersion": version.to_string(),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"version": version.to_string()}},
            "spec": {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]}})
    };
    for (said, expected) in steps {
        let words: Vec<&str> = said.split(' ').collect();
        let change = match words[..] {
            ["empty", "list"] => {
                known.clear();
                Change::Replaced(Vec::new())
            }
            ["list", ref listed @ ..] => {
                known.clear();
                for pod in listed {
                    let (name, version) = pod.split_once("(v").unwrap_or((pod, "0)"));
                    let number = version.trim_end_matches(')').parse();
                    let number = number.or_else(|_| unknown("version", version))?;
                    known.insert(name.to_owned(), number);
                }
                Change::Replaced(known.iter().map(|(name, n)| object(name, *n)).collect())
            }
            ["watch", "add", name] => {
                known.insert(name.to_owned(), 0);
                Change::Added(object(name, 0))
            }
            ["watch", "modify", name] => {
                let version = known.entry(name.to_owned()).or_default();
                *version += 1;
                Change::Modified(object(name, *version))
            }
            ["watch", "delete", name] | ["delete", name] => {
                let version = known.remove(name).unwrap_or_default();
                Change::Deleted(object(name, version))
            }
            _ => return unknown("step", &said),
        };
        let set = pods.apply(change).set;
        let set = set.ok_or_else(|| format!("no set after {said}"))?;
        let label = |pod: &Arc<Pod>| match pod.raw.value()["metadata"]["labels"]["version"].as_str()
        {
            Some("0") | None => pod.metadata.name.clone(),
            Some(version) => format!("{}{version}", pod.metadata.name),
        };
        let found = match expected {
            Value::Number(_) => json!(set.len()),
            _ => set.iter().map(label).collect::<Value>(),
        };
        same(&format!("after {said}"), expected, found)?;
    }
    AS_TOLD
}

/// A set of pods by `name`, `name/namespace`, and what was done to them; or the whole set in words.
fn merge(case: &Case) -> Verdict {
    let case: MergeCase = case.fields()?;
    if case.send.is_empty() {
        return race(&case.expect);
    }
    let config = PodConfig::new(&[PodSource::File]);
    let mut last: Vec<Pod> = Vec::new();
    let expected = case.expect.as_array().ok_or("expected a list of updates")?;
    same("steps", case.send.len(), expected.len())?;
    for (send, expected) in case.send.iter().zip(expected) {
        last = match send {
            Value::Array(pods) => pods
                .iter()
                .map(|p| named(p.as_str().unwrap_or_default()))
                .collect::<Result<_, _>>()?,
            Value::String(words) => in_words(words, &last)?,
            other => return Err(format!("unknown set {other}")),
        };
        let set = last.iter().cloned().map(Arc::new).collect();
        let got = config.merge(PodSource::File, set, SystemTime::UNIX_EPOCH);
        check(expected, &got).map_err(|e| format!("after {send}: {e}"))?;
    }
    AS_TOLD
}

fn edited(mut pod: Pod, edit: impl FnOnce(&mut Value)) -> Result<Pod, String> {
    pod.raw.edit(edit);
    pod.metadata = fields(&pod.raw.value()["metadata"])?;
    pod.spec = fields(&pod.raw.value()["spec"])?;
    Ok(pod)
}

/// `foo/new with other containers`, `foo2 changed`, `foo/new with deletionTimestamp`.
fn named(words: &str) -> Result<Pod, String> {
    let (full, what) = words.split_once(' ').unwrap_or((words, ""));
    let (name, namespace) = full.split_once('/').unwrap_or((full, "new"));
    let pod = Pod::clone(&pod_of(
        full,
        json!({"containers": [{"name": "c", "image": "i"}]}),
    ));
    edited(pod, |raw| {
        raw["metadata"]["name"] = name.into();
        raw["metadata"]["namespace"] = namespace.into();
    })
    .and_then(|pod| match what {
        "" => Ok(pod),
        "with other containers" | "changed" => edited(pod, |raw| {
            raw["spec"]["containers"][0]["name"] = "other".into()
        }),
        "with deletionTimestamp" => edited(pod, |raw| {
            raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into()
        }),
        other => unknown("change of a pod", other),
    })
}

fn in_words(words: &str, last: &[Pod]) -> Result<Vec<Pod>, String> {
    let first = |edit: fn(&mut Value)| {
        let mut pods = last.to_vec();
        let pod = pods.first_mut().ok_or("no pod before")?;
        *pod = edited(pod.clone(), edit)?;
        Ok(pods)
    };
    let new = |n: usize| {
        let pods = (0..n).map(|i| named(&format!("pod{i}/new")));
        pods.map(|p| {
            edited(p?, |raw| {
                (raw["metadata"]["annotations"], raw["metadata"]["labels"]) =
                    (json!({"a": "1"}), json!({"l": "1"}))
            })
        })
        .collect()
    };
    match words {
        "3 pods" => new(3),
        "pod" => new(1),
        "same" => Ok(last.to_vec()),
        "status of pod 0 changed" => first(|raw| raw["status"] = json!({"message": "changed"})),
        "status and spec of pod 0 changed" => first(|raw| {
            raw["status"] = json!({"message": "changed again"});
            raw["spec"]["containers"][0]["name"] = "other".into();
        }),
        "annotation value changed" => first(|raw| raw["metadata"]["annotations"]["a"] = "2".into()),
        "annotation added" => first(|raw| raw["metadata"]["annotations"]["b"] = "1".into()),
        "annotation removed" => first(|raw| {
            drop(
                raw["metadata"]["annotations"]
                    .as_object_mut()
                    .map(|a| a.shift_remove("b")),
            )
        }),
        "label value changed" => first(|raw| raw["metadata"]["labels"]["l"] = "2".into()),
        other => unknown("set", other),
    }
}

/// What came of a merge: operations, each with its pods as `namespace` and `name`.
fn check(expected: &Value, got: &Merged) -> Result<(), String> {
    let got: Vec<(String, Vec<(String, String)>)> = got
        .updates
        .iter()
        .map(|u| {
            (
                u.op.to_string(),
                u.pods
                    .iter()
                    .map(|p| (p.metadata.namespace.clone(), p.metadata.name.clone()))
                    .collect(),
            )
        })
        .collect();
    let operations = match expected {
        Value::String(_) => vec![expected.clone()],
        Value::Array(list) => list.clone(),
        other => return Err(format!("unknown expectation {other}")),
    };
    same("operations", operations.len(), got.len()).map_err(|e| format!("{e}: {got:?}"))?;
    for (expected, got) in operations.iter().zip(&got) {
        let fits = match expected {
            Value::Array(words) => operation(words, got)?,
            Value::String(words) => operation_in_words(words, got)?,
            other => return Err(format!("unknown operation {other}")),
        };
        ensure(fits, &format!("{expected}, got {got:?}"))?;
    }
    Ok(())
}

type Got = (String, Vec<(String, String)>);

/// `["ADD", "foo", "foo2/new"]`; pods in any order.
fn operation(words: &[Value], (op, pods): &Got) -> Result<bool, String> {
    let words: Vec<String> = words.iter().map(fields).collect::<Result<_, _>>()?;
    let (first, names) = words.split_first().ok_or("an operation without a word")?;
    let fits = |name: &String| match name.split_once('/') {
        Some((name, namespace)) => pods
            .iter()
            .any(|p| *p == (namespace.to_owned(), name.to_owned())),
        None => pods.iter().any(|p| p.1 == *name),
    };
    Ok(first == op && names.len() == pods.len() && names.iter().all(fits))
}

/// `ADD x3`, `UPDATE pod0`, `UPDATE` of one pod.
fn operation_in_words(words: &str, (op, pods): &Got) -> Result<bool, String> {
    let (first, rest) = words.split_once(' ').unwrap_or((words, "x1"));
    Ok(first == op
        && match rest.strip_prefix('x') {
            Some(count) => {
                pods.len()
                    == count
                        .parse::<usize>()
                        .map_err(|_| format!("unknown operation \"{words}\""))?
            }
            None => pods.len() == 1 && pods[0].1 == rest,
        })
}

fn race(expected: &Value) -> Verdict {
    same(
        "expect",
        &json!("registering sources and asking whether all were seen may run at the same time"),
        expected,
    )?;
    let config = PodConfig::new(&[PodSource::File]);
    std::thread::scope(|s| {
        let add = || config.merge(PodSource::Http, Vec::new(), SystemTime::UNIX_EPOCH);
        s.spawn(move || (0..1000).for_each(|_| drop(add())));
        s.spawn(|| (0..1000).for_each(|_| assert!(!config.all_seen())));
    });
    AS_TOLD
}

fn names(updates: &[PodUpdate]) -> Vec<(PodOperation, PodSource, Vec<&str>)> {
    updates
        .iter()
        .map(|u| {
            (
                u.op,
                u.source,
                u.pods.iter().map(|p| p.metadata.name.as_str()).collect(),
            )
        })
        .collect()
}

fn send(config: &PodConfig, source: PodSource, pods: &[&Pod]) -> Vec<PodUpdate> {
    config
        .merge(
            source,
            pods.iter().map(|p| Arc::new((*p).clone())).collect(),
            SystemTime::UNIX_EPOCH,
        )
        .updates
}

/// A name is one source with one set: what is sent under it again replaces that set; another name has a set of its own.
fn mx_1(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let (config, pod, other) = (PodConfig::new(&[]), named("foo")?, named("bar")?);
    send(&config, PodSource::File, &[&pod]);
    use PodOperation::{Add, Remove};
    let again = send(&config, PodSource::File, &[&other]);
    same(
        "the same name",
        vec![
            (Remove, PodSource::File, vec!["foo"]),
            (Add, PodSource::File, vec!["bar"]),
        ],
        names(&again),
    )?;
    let elsewhere = send(&config, PodSource::Http, &[&pod]);
    same(
        "another name",
        vec![(Add, PodSource::Http, vec!["foo"])],
        names(&elsewhere),
    )?;
    AS_TOLD
}

/// The merger gets the source's name and the pods unchanged, but for the annotations that say where they are from.
fn mx_2(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let (config, pod) = (PodConfig::new(&[]), named("foo")?);
    let updates = send(&config, PodSource::File, &[&pod]);
    same(
        "update",
        vec![(PodOperation::Add, PodSource::File, vec!["foo"])],
        names(&updates),
    )?;
    let mut got = Pod::clone(&updates[0].pods[0]);
    same(
        "source",
        Some("file"),
        got.metadata
            .annotations
            .get("kubernetes.io/config.source")
            .map(String::as_str),
    )?;
    got.metadata.annotations.clear();
    got.raw.edit(|raw| {
        raw["metadata"]
            .as_object_mut()
            .map(|m| m.shift_remove("annotations"));
    });
    same("pod", pod, got)?;
    AS_TOLD
}

fn mx_3(case: &Case) -> Verdict {
    case.has_only(&["expect"])?;
    let config = PodConfig::new(&[PodSource::File, PodSource::Api]);
    std::thread::scope(|s| {
        let one = |source: PodSource, prefix: &'static str| {
            let config = &config;
            move || -> Result<(), String> {
                for i in 0..100 {
                    let pod = named(&format!("{prefix}{i}"))?;
                    let updates = send(config, source, &[&pod]);
                    let pods: Vec<_> = updates.iter().flat_map(|u| &u.pods).collect();
                    ensure(
                        updates.iter().all(|u| u.source == source),
                        "updates of this source only",
                    )?;
                    ensure(
                        pods.iter().all(|p| p.metadata.name.starts_with(prefix)),
                        "pods of this source only",
                    )?;
                }
                Ok(())
            }
        };
        let threads = [
            s.spawn(one(PodSource::File, "file")),
            s.spawn(one(PodSource::Api, "api")),
        ];
        threads
            .into_iter()
            .try_for_each(|t| t.join().map_err(|_| "a merge panicked".to_owned())?)
    })?;
    AS_TOLD
}
