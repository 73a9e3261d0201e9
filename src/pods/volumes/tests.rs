use std::fs;

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::api::objects::{ConfigMap, LocalObject, ObjectContent, ObjectKey, ObjectKind, Secret};
use crate::test_pods;

fn pod(volumes: serde_json::Value) -> Pod {
    test_pods::pod("p")
        .spec(json!({"volumes": volumes}))
        .build()
}

fn set_up(volumes: &Volumes, pod: &Pod, dir: &Path) -> Result<MountedVolumes, VolumeError> {
    set_up_with(&ObjectSet::default(), volumes, pod, dir)
}

fn set_up_with(
    objects: &ObjectSet,
    volumes: &Volumes,
    pod: &Pod,
    dir: &Path,
) -> Result<MountedVolumes, VolumeError> {
    let context = Context {
        pod,
        objects,
        allocatable: Allocatable::default(),
        node_name: "edge",
        node_labels: &Default::default(),
        claims: &dir.join("claims"),
    };
    volumes.set_up(&context, dir)
}

#[test]
fn an_empty_dir_keeps_what_is_in_it_until_the_pod_has_finished() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(
        json!([{"name": "disk"}, {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]),
    );
    let volumes = Volumes::new();
    let mounted = set_up(&volumes, &pod, dir.path()).unwrap();
    let disk = mounted.source("disk").unwrap().to_owned();
    assert_eq!(
        disk,
        dir.path().join("volumes/kubernetes.io~empty-dir/disk")
    );
    fs::write(disk.join("kept"), "x").unwrap();
    assert_eq!(set_up(&volumes, &pod, dir.path()).unwrap(), mounted);
    assert!(disk.join("kept").exists());
    let tmpfs = Tmpfs {
        path: mounted.source("mem").unwrap().to_owned(),
        size: Some(1 << 20),
        page_size: None,
        is_sticky: true,
    };
    assert_eq!(mounted.tmpfs(), [tmpfs]);
    volumes.tear_down(&pod, dir.path()).unwrap();
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert!(!disk.exists());
}

/// The page size of a huge-page volume is that of its medium, or else the size that the pod's containers request.
#[test]
fn huge_pages_have_the_size_that_the_pod_requests() {
    let dir = tempfile::tempdir().unwrap();
    let page_size = |medium: &str, requests: serde_json::Value, init: serde_json::Value| {
        let pod = test_pods::pod("p").spec(json!({
            "volumes": [{"name": "v", "emptyDir": {"medium": medium, "sizeLimit": "4Mi"}}],
            "initContainers": [{"name": "i", "resources": {"requests": init}}],
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        }));
        let mounted = set_up(&Volumes::new(), &pod.build(), dir.path());
        mounted
            .map(|m| (m.tmpfs()[0].page_size, m.tmpfs()[0].size))
            .map_err(|e| e.cause.to_string())
    };
    let (two, one) = (
        json!({"hugepages-2Mi": "4Mi"}),
        json!({"hugepages-1Gi": "1Gi"}),
    );
    let (none, limit) = (json!({}), Some(4 << 20));
    let small = Ok((Some(2 << 20), limit));
    assert_eq!(page_size("HugePages", two.clone(), none.clone()), small);
    assert_eq!(page_size("HugePages", none.clone(), two.clone()), small);
    assert_eq!(page_size("HugePages-2Mi", one.clone(), two.clone()), small);
    assert_eq!(
        page_size("HugePages-1Gi", one.clone(), two.clone()),
        Ok((Some(1 << 30), Some(1 << 30))),
        "a size limit counts in whole pages"
    );
    assert_eq!(
        page_size("HugePages", one, two.clone()),
        Err(
            "medium: HugePages can't be used if container requests multiple huge page sizes".into()
        )
    );
    for medium in ["HugePages", "HugePages-2Mi"] {
        let text = format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        );
        assert_eq!(page_size(medium, none.clone(), none.clone()), Err(text));
    }
}

#[test]
fn only_a_volume_on_the_disk_with_a_limit_is_measured() {
    let with = |limit: serde_json::Value| json!({"name": "v", "emptyDir": limit});
    let limited = |volume: serde_json::Value| {
        let all = Volumes::new().limited(&pod(json!([volume])), Path::new("/p"));
        all.into_iter().next().map(|v| (v.limit, v.written, v.dir))
    };
    let dir = Path::new("/p/volumes/kubernetes.io~empty-dir/v").to_owned();
    for (written, bytes) in [("1Mi", 1 << 20), ("1k", 1000), ("1m", 1), ("0.5Ki", 512)] {
        let found = limited(with(json!({"sizeLimit": written})));
        assert_eq!(found, Some((bytes, written.to_owned(), dir.clone())));
    }
    for unlimited in [
        with(json!({})),
        with(json!({"sizeLimit": "0"})),
        with(json!({"sizeLimit": "1Mi", "medium": "Memory"})),
        with(json!({"sizeLimit": "2Mi", "medium": "HugePages"})),
        json!({"name": "v"}),
        json!({"name": "v", "hostPath": {"path": "/x"}}),
    ] {
        assert_eq!(limited(unlimited.clone()), None, "{unlimited}");
    }
}

#[test]
fn the_end_of_a_pod_leaves_the_nodes_own_directories_alone() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pod = pod(json!([{"name": "v", "hostPath": {"path": own.path()}}]));
    let volumes = Volumes::new();
    let mounted = set_up(&volumes, &pod, dir.path()).unwrap();
    assert_eq!(mounted.source("v"), Some(own.path()));
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert!(own.path().exists());
}

#[test]
fn a_type_that_does_not_fit_names_the_volume_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    let pod = pod(json!([{"name": "v", "hostPath": {"path": missing, "type": "Directory"}}]));
    let error = set_up(&Volumes::new(), &pod, dir.path()).unwrap_err();
    let expected = format!(
        "MountVolume.SetUp failed for volume \"v\" : hostPath {} doesn't exist; \
         create the directory first, or use type DirectoryOrCreate",
        missing.display()
    );
    assert_eq!(error.to_string(), expected);
}

/// Tries every `hostPath` type with a file of every kind that a test can have. Only the right kind fits.
#[test]
fn a_host_path_of_a_type_is_of_that_type_and_of_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let block = a_block_device(&at("block"));
    let files = [
        ("Directory", "directory", Some(dir.path().to_owned())),
        ("File", "file", Some(at("file"))),
        ("Socket", "socket file", Some(at("socket"))),
        ("CharDevice", "character device", Some("/dev/null".into())),
        ("BlockDevice", "block device", block),
    ];
    for (type_, word, _) in &files {
        for (is, _, path) in &files {
            let Some(path) = path else { continue };
            let pod = pod(json!([{"name": "v", "hostPath": {"path": path, "type": type_}}]));
            let result = set_up(&Volumes::new(), &pod, dir.path());
            let error = result.err().map(|e| e.cause.to_string());
            let path = path.display();
            let expected = (type_ != is).then(|| {
                format!("hostPath type check failed: {path} is not a {word}, it's a {is}; name a {word} or change the type")
            });
            assert_eq!(error, expected);
        }
    }
}

/// Returns one of the node's block devices, or makes one for the test. Returns `None` if no block device can be made.
fn a_block_device(path: &Path) -> Option<PathBuf> {
    let loop0 = PathBuf::from("/dev/loop0");
    if loop0.exists() {
        return Some(loop0);
    }
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let made = mknod(path, SFlag::S_IFBLK, Mode::S_IRUSR, makedev(7, 0));
    match made {
        Ok(()) => Some(path.to_owned()),
        Err(e) => {
            crate::skip::skip(&format!("the part with a block device: {e}"));
            None
        }
    }
}

/// The runtime mounts the image. So the volume has no path on the node and is not given to a group.
#[test]
fn an_image_is_named_and_has_no_path() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(json!([{"name": "v", "image": {"reference": "data:1", "pullPolicy": "Always"}}]));
    let volumes = Volumes::new();
    let mounted = set_up(&volumes, &pod, dir.path()).unwrap();
    assert_eq!(mounted.image("v"), pod.spec.volumes[0].image.as_ref());
    assert_eq!((mounted.source("v"), mounted.need_root()), (None, false));
    assert!(mounted.is_read_only("v"));
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A volume type of this test: a file that contains the volume's name.
struct NameVolume;

impl VolumeType for NameVolume {
    fn plugin_name(&self) -> &'static str {
        "test/name"
    }

    fn supports(&self, volume: &Volume) -> bool {
        volume.name.starts_with("name-")
    }

    fn set_up(&self, _: &Context<'_>, volume: &Volume, dir: &Path) -> Result<SetUp, SetUpError> {
        let write =
            fs::create_dir_all(dir).and_then(|()| fs::write(dir.join("name"), &volume.name));
        write.map_err(|e| SetUpError::make(dir, e))?;
        Ok(SetUp::at(dir.to_owned()))
    }
}

/// A new volume type needs only one implementor. No other code knows the type.
#[test]
fn a_new_type_of_volume_is_set_up_mounted_and_torn_down_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(json!([{"name": "name-a"}, {"name": "plain"}]));
    let volumes = Volumes::new().with(Box::new(NameVolume));
    let mounted = set_up(&volumes, &pod, dir.path()).unwrap();
    let at = dir.path().join("volumes/test~name/name-a");
    assert_eq!(mounted.source("name-a"), Some(at.as_path()));
    assert_eq!(fs::read_to_string(at.join("name")).unwrap(), "name-a");
    assert!(
        mounted
            .source("plain")
            .unwrap()
            .ends_with("kubernetes.io~empty-dir/plain")
    );
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert!(!at.exists());
}

fn config_map(name: &str, data: &[(&str, &str)]) -> LocalObject {
    let data = data.iter();
    let map = ConfigMap {
        data: data.map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        binary_data: [("bin".to_owned(), vec![0, 255])].into(),
        ..ConfigMap::default()
    };
    LocalObject {
        key: ObjectKey::new(ObjectKind::ConfigMap, "default", name),
        content: ObjectContent::ConfigMap(Arc::new(map)),
    }
}

fn objects() -> ObjectSet {
    let secret = Secret {
        data: [("token".to_owned(), b"hunter2".to_vec())].into(),
        ..Secret::default()
    };
    [
        config_map("conf", &[("a", "1"), ("b", "2")]),
        LocalObject {
            key: ObjectKey::new(ObjectKind::Secret, "default", "pass"),
            content: ObjectContent::Secret(Arc::new(secret)),
        },
        LocalObject {
            key: ObjectKey::new(ObjectKind::PersistentVolumeClaim, "default", "data"),
            content: ObjectContent::PersistentVolumeClaim(Arc::default()),
        },
    ]
    .into_iter()
    .collect()
}

/// Checks each file of a volume with its mode and content, or the text of the error.
#[track_caller]
fn check(source: serde_json::Value, expected: Result<&[(&str, u32, &str)], &str>) {
    let dir = tempfile::tempdir().unwrap();
    let mut volume = source;
    volume["name"] = json!("v");
    let pod = test_pods::pod("p")
        .label("app", "web")
        .spec(json!({"volumes": [volume], "containers": [{"name": "c"}]}))
        .build();
    let mounted = set_up_with(&objects(), &Volumes::new(), &pod, dir.path()).unwrap();
    assert!(mounted.is_read_only("v"));
    assert_eq!(mounted.tmpfs().len(), 1);
    let payload = mounted.contents[0].payload.clone();
    assert_eq!(mounted.check().is_ok(), payload.is_ok());
    let payload = payload.map_err(|e| e.to_string());
    let found = payload.as_ref().map_err(String::as_str);
    assert_eq!(
        found,
        expected.map(Payload::of_texts).as_ref().map_err(|e| *e)
    );
}

#[test]
fn keys_of_objects_become_files() {
    check(
        json!({"configMap": {"name": "conf", "items": [{"key": "b", "path": "d/b", "mode": 0o600}], "defaultMode": 0o640}}),
        Ok(&[("d/b", 0o600, "2")]),
    );
    check(
        json!({"secret": {"secretName": "pass", "defaultMode": 0o400}}),
        Ok(&[("token", 0o400, "hunter2")]),
    );
    check(
        json!({"configMap": {"name": "none"}}),
        Err("configmap \"none\" not found"),
    );
    check(
        json!({"secret": {"secretName": "none"}}),
        Err("secret \"none\" not found"),
    );
    let items = json!([{"key": "none", "path": "p"}]);
    check(
        json!({"configMap": {"name": "conf", "items": items}}),
        Err("configmap references non-existent config key: none"),
    );
    check(
        json!({"secret": {"secretName": "pass", "items": items}}),
        Err("references non-existent secret key: none"),
    );
    for optional in [
        json!({"configMap": {"name": "none", "optional": true}}),
        json!({"configMap": {"name": "conf", "items": items, "optional": true}}),
        json!({"secret": {"secretName": "none", "items": items, "optional": true}}),
    ] {
        check(optional, Ok(&[]));
    }
}

#[test]
fn a_config_map_has_texts_and_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(json!([{"name": "v", "configMap": {"name": "conf"}}]));
    let mounted = set_up_with(&objects(), &Volumes::new(), &pod, dir.path()).unwrap();
    let payload = mounted.contents[0].payload.as_ref().unwrap();
    let names: Vec<&str> = payload.files().map(|(path, _)| path).collect();
    assert_eq!(names, ["a", "b", "bin"]);
    assert_eq!(payload.file("bin").unwrap().data, [0, 255]);
    assert_eq!(payload.file("a").unwrap().mode, 0o644);
}

#[test]
fn fields_of_the_pod_become_files() {
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let resource = json!({"path": "r", "mode": 0o600,
        "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu"}});
    check(
        json!({"downwardAPI": {"items": [field("n", "metadata.name"), field("l", "metadata.labels"), resource]}}),
        Ok(&[
            ("n", 0o644, "p"),
            ("l", 0o644, "app=\"web\""),
            ("r", 0o600, "0"),
        ]),
    );
    let missing =
        json!({"path": "r", "resourceFieldRef": {"containerName": "x", "resource": "limits.cpu"}});
    check(
        json!({"downwardAPI": {"items": [missing]}}),
        Err("container x not found"),
    );
}

#[test]
fn a_projected_volume_has_the_files_of_all_its_sources() {
    let keys = |name: &str, key: &str, path: &str| json!({"name": name, "items": [{"key": key, "path": path}]});
    let field = json!({"items": [{"path": "f", "fieldRef": {"fieldPath": "metadata.uid"}}]});
    check(
        json!({"projected": {"defaultMode": 0o440, "sources": [
            {"configMap": keys("conf", "a", "x/a")}, {"secret": keys("pass", "token", "x/t")}, {"downwardAPI": field}]}}),
        Ok(&[
            ("x/a", 0o440, "1"),
            ("x/t", 0o440, "hunter2"),
            ("f", 0o440, "p"),
        ]),
    );
    check(
        json!({"projected": {"sources": [{"configMap": keys("none", "a", "a")}, {"secret": keys("pass", "no", "b")}]}}),
        Err("[configmap \"none\" not found, references non-existent secret key: no]"),
    );
    check(
        json!({"projected": {"sources": [{"configMap": keys("conf", "a", "x")}, {"secret": keys("pass", "token", "x/t")}]}}),
        Err("path \"x\" is a file and a directory"),
    );
}

#[test]
fn a_claim_is_a_directory_that_no_pod_removes() {
    let dir = tempfile::tempdir().unwrap();
    let volume =
        |claim: &str| json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    let (there, missing) = (pod(volume("data")), pod(volume("../data")));
    let volumes = Volumes::new();
    let mounted = set_up_with(&objects(), &volumes, &there, dir.path()).unwrap();
    let at = dir.path().join("claims/default/data");
    assert_eq!(mounted.source("v"), Some(at.as_path()));
    mounted.check().unwrap();
    assert!(!mounted.is_read_only("v"));
    assert_eq!(
        fs::metadata(&at).unwrap().permissions().mode() & 0o7777,
        0o777
    );
    fs::write(at.join("kept"), "").unwrap();
    volumes.tear_down(&there, dir.path()).unwrap();
    assert!(at.join("kept").exists());
    let mounted = set_up_with(&objects(), &volumes, &missing, dir.path()).unwrap();
    let error = mounted.check().unwrap_err().to_string();
    let expected =
        "MountVolume.SetUp failed for volume \"v\" : persistentvolumeclaim \"../data\" not found";
    assert_eq!(error, expected);
    assert_eq!(
        fs::read_dir(dir.path().join("claims/default"))
            .unwrap()
            .count(),
        1
    );
}

#[test]
fn content_is_written_into_memory_only_and_old_content_stays_usable() {
    let pod = pod(json!([{"name": "v", "secret": {"secretName": "pass"}}]));
    let root: OwnedFd = fs::File::open("/").unwrap().into();
    let of = |dir: &Path, objects: &ObjectSet| {
        set_up_with(objects, &Volumes::new(), &pod, dir)
            .unwrap()
            .fill(&root)
    };
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let causes = |outdated: Vec<Outdated>| -> Vec<(String, bool)> {
        let text = |o: Outdated| (o.error.cause.to_string(), o.usable);
        outdated.into_iter().map(text).collect()
    };
    let missing = "secret \"pass\" not found".to_owned();
    let none = ObjectSet::default();
    assert_eq!(causes(of(memory.path(), &none)), [(missing.clone(), false)]);
    assert_eq!(causes(of(memory.path(), &objects())), []);
    let file = memory.path().join("volumes/kubernetes.io~secret/v/token");
    assert_eq!(fs::read_to_string(&file).unwrap(), "hunter2");
    assert_eq!(causes(of(memory.path(), &none)), [(missing, true)]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "hunter2");
    let disk = tempfile::tempdir_in("/var/tmp").unwrap();
    let refused = ("its directory is not in memory".to_owned(), false);
    assert_eq!(causes(of(disk.path(), &objects())), [refused]);
}
