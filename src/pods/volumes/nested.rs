//! Mounts below a volume of objects. The directories for these mounts are made in advance, because nothing can be made
//! in the volume later.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::api::Pod;
use crate::api::pod::{Container, VolumeMount};

/// Returns the paths below this volume at which the pod's containers mount other volumes, relative to the volume. If
/// one such mount lies below another, only the upper path is returned.
pub(super) fn mount_points(pod: &Pod, volume: &str) -> BTreeSet<PathBuf> {
    let containers = pod.spec.all_containers();
    containers.flat_map(|c| below(c, volume)).collect()
}

fn below(container: &Container, volume: &str) -> Vec<PathBuf> {
    let mounts = &container.volume_mounts;
    let all: BTreeSet<PathBuf> = mounts.iter().map(clean).collect();
    let of_volume = mounts
        .iter()
        .filter(|m| m.name == volume && m.sub_path.is_empty() && m.sub_path_expr.is_empty());
    let mut found = Vec::new();
    for at in of_volume.map(clean) {
        let mut last: Option<&PathBuf> = None;
        // In this order a path comes right before all paths below it.
        for path in all.iter().filter(|path| **path != at) {
            let Ok(relative) = path.strip_prefix(&at) else {
                continue;
            };
            if last.is_none_or(|last| !path.starts_with(last)) {
                found.push(relative.to_owned());
                last = Some(path);
            }
        }
    }
    found
}

/// Returns the path of a mount without empty parts and dots. A `..` in the root directory has no effect.
fn clean(mount: &VolumeMount) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in Path::new(&*mount.destination()).components() {
        match part {
            Component::ParentDir => drop(clean.pop()),
            Component::Normal(name) => clean.push(name),
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    #[track_caller]
    fn check(mounts: serde_json::Value, expected: &[&str]) {
        let containers = json!([{"name": "c", "image": "i", "volumeMounts": mounts}]);
        let pod = test_pods::pod("p")
            .spec(json!({"containers": containers}))
            .build();
        let found: Vec<_> = mount_points(&pod, "v").into_iter().collect();
        let expected: Vec<_> = expected.iter().map(PathBuf::from).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_uppermost_mounts_below_a_volume_are_made() {
        let at = |name: &str, path: &str| json!({"name": name, "mountPath": path});
        check(
            json!([at("v", "/etc/a"), at("w", "/etc/a/custom")]),
            &["custom"],
        );
        check(
            json!([at("w", "/etc/a/custom"), at("v", "/etc/a/")]),
            &["custom"],
        );
        check(
            json!([at("v", "/etc/a"), at("w", "/etc/ab"), at("x", "/etc")]),
            &[],
        );
        let names = ["/a/n", "/a/n-2", "/a/n/m", "/a/n.3/./m", "/a/../a/o"];
        let mut mounts = vec![at("v", "/a")];
        mounts.extend(names.map(|path| at("w", path)));
        check(mounts.into(), &["n", "n-2", "n.3/m", "o"]);
    }

    #[test]
    fn one_file_of_a_volume_has_nothing_below() {
        let file = json!({"name": "v", "mountPath": "/a", "subPath": "f"});
        check(json!([file, {"name": "w", "mountPath": "/a/b"}]), &[]);
    }
}
