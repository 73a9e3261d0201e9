use std::fs;

use serde_json::json;

use super::*;
use crate::api::test_pods;

fn pod(volumes: serde_json::Value) -> Pod {
    test_pods::pod("p")
        .spec(json!({"volumes": volumes}))
        .build()
}

#[test]
fn an_empty_dir_keeps_what_is_in_it_until_the_pod_has_finished() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(
        json!([{"name": "disk"}, {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]),
    );
    let volumes = Volumes::new();
    let mounted = volumes.set_up(&pod, dir.path()).unwrap();
    let disk = mounted.source("disk").unwrap().to_owned();
    assert_eq!(
        disk,
        dir.path().join("volumes/kubernetes.io~empty-dir/disk")
    );
    fs::write(disk.join("kept"), "x").unwrap();
    assert_eq!(volumes.set_up(&pod, dir.path()).unwrap(), mounted);
    assert!(disk.join("kept").exists());
    let tmpfs = Tmpfs {
        path: mounted.source("mem").unwrap().to_owned(),
        size: Some(1 << 20),
    };
    assert_eq!(mounted.tmpfs(), [tmpfs]);
    volumes.tear_down(&pod, dir.path()).unwrap();
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert!(!disk.exists());
}

#[test]
fn the_end_of_a_pod_leaves_the_nodes_own_directories_alone() {
    let (dir, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pod = pod(json!([{"name": "v", "hostPath": {"path": own.path()}}]));
    let volumes = Volumes::new();
    let mounted = volumes.set_up(&pod, dir.path()).unwrap();
    assert_eq!(mounted.source("v"), Some(own.path()));
    volumes.tear_down(&pod, dir.path()).unwrap();
    assert!(own.path().exists());
}

#[test]
fn a_type_that_does_not_fit_names_the_volume_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    let pod = pod(json!([{"name": "v", "hostPath": {"path": missing, "type": "Directory"}}]));
    let error = Volumes::new().set_up(&pod, dir.path()).unwrap_err();
    let expected = format!(
        "MountVolume.SetUp failed for volume \"v\" : hostPath type check failed: {} does not exist and type is Directory; \
         create the directory first, or use type DirectoryOrCreate",
        missing.display()
    );
    assert_eq!(error.to_string(), expected);
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

    fn set_up(&self, volume: &Volume, dir: &Path) -> Result<SetUp, String> {
        let write =
            fs::create_dir_all(dir).and_then(|()| fs::write(dir.join("name"), &volume.name));
        write.map_err(|e| e.to_string())?;
        Ok(SetUp {
            source: dir.to_owned(),
            tmpfs: None,
        })
    }
}

/// The seam: a new volume type is one implementor, and no other code knows it.
#[test]
fn a_new_type_of_volume_is_set_up_mounted_and_torn_down_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let pod = pod(json!([{"name": "name-a"}, {"name": "plain"}]));
    let volumes = Volumes::new().with(Box::new(NameVolume));
    let mounted = volumes.set_up(&pod, dir.path()).unwrap();
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
