//! The kubelet's metrics of volumes.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Pod;
use crate::base::metrics::{Family, Kind};
use crate::base::paths::Layout;
use crate::engine::stats::Disk;
use crate::pods::volumes::Volumes;

/// Appends the numbers of volumes by type: desired volumes are those of all active pods, and actual volumes are those
/// of active pods with a sandbox.
pub(super) fn write_counts(
    pods: &[&Pod],
    volumes: &Volumes,
    has_sandbox: impl Fn(&Pod) -> bool,
    out: &mut String,
) {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for pod in pods {
        let states: &[&str] = match has_sandbox(pod) {
            true => &["actual_state_of_world", "desired_state_of_world"],
            false => &["desired_state_of_world"],
        };
        let all = pod.spec.volumes.iter();
        for plugin in all.filter_map(|volume| volumes.plugin_name(volume)) {
            for state in states {
                *counts.entry((plugin, state)).or_default() += 1;
            }
        }
    }
    let help = "Number of volumes in Volume Manager";
    let mut family = Family::new(out, "volume_manager_total_volumes", Kind::Gauge, help);
    for ((plugin, state), n) in counts {
        family.value(&[("plugin_name", plugin), ("state", state)], n);
    }
}

/// Appends the numbers of bytes and inodes of the claims that active pods use. Like the kubelet's numbers for local
/// volumes, the numbers are those of the whole file system that the claim is on.
pub(super) fn write_claims(pods: &[&Pod], layout: &Layout, out: &mut String) {
    let claims = pods.iter().flat_map(|pod| {
        let volumes = pod.spec.volumes.iter();
        let claims = volumes.filter_map(|v| v.persistent_volume_claim.as_ref());
        claims.map(|claim| (pod.metadata.namespace.as_str(), claim.claim_name.as_str()))
    });
    let claims: BTreeSet<_> = claims.collect();
    let disk =
        |(namespace, name): (&str, &str)| Disk::of(&layout.claims().join(namespace).join(name));
    let disks = claims.into_iter().map(|claim| (claim, disk(claim)));
    let disks: Vec<_> = disks
        .filter_map(|(claim, disk)| Some((claim, disk?)))
        .collect();
    type Value = fn(&Disk) -> u64;
    let families: [(&str, &str, Value); 6] = [
        (
            "kubelet_volume_stats_available_bytes",
            "Number of available bytes in the volume",
            |disk| disk.available,
        ),
        (
            "kubelet_volume_stats_capacity_bytes",
            "Capacity in bytes of the volume",
            |disk| disk.capacity,
        ),
        (
            "kubelet_volume_stats_inodes",
            "Maximum number of inodes in the volume",
            |disk| disk.inodes,
        ),
        (
            "kubelet_volume_stats_inodes_free",
            "Number of free inodes in the volume",
            |disk| disk.inodes_free,
        ),
        (
            "kubelet_volume_stats_inodes_used",
            "Number of used inodes in the volume",
            |disk| disk.inodes.saturating_sub(disk.inodes_free),
        ),
        (
            "kubelet_volume_stats_used_bytes",
            "Number of used bytes in the volume",
            |disk| disk.used,
        ),
    ];
    for (name, help, value) in families {
        let mut family = Family::new(out, name, Kind::Gauge, help);
        for ((namespace, claim), disk) in &disks {
            let labels = [("namespace", *namespace), ("persistentvolumeclaim", *claim)];
            family.value(&labels, value(disk));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    #[test]
    fn volumes_are_counted_by_type_and_claims_measured() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.make(&layout.claims().join("default/data")).unwrap();
        let volumes = json!([{"name": "a"}, {"name": "b", "emptyDir": {}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "none"}}]);
        let pod = |name: &str| {
            test_pods::pod(name)
                .spec(json!({"volumes": volumes}))
                .build()
        };
        let (one, two) = (pod("one"), pod("two"));
        let mut out = String::new();
        let runs = |pod: &Pod| pod.metadata.name == "one";
        write_counts(&[&one, &two], &Volumes::new(), runs, &mut out);
        write_claims(&[&one, &two], &layout, &mut out);
        for line in [
            "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"actual_state_of_world\"} 2",
            "volume_manager_total_volumes{plugin_name=\"kubernetes.io/empty-dir\",state=\"desired_state_of_world\"} 4",
            "volume_manager_total_volumes{plugin_name=\"kubernetes.io/local-volume\",state=\"desired_state_of_world\"} 4",
        ] {
            assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
        }
        let of = |name: &str| {
            let label = "{namespace=\"default\",persistentvolumeclaim=\"data\"} ";
            let lines = out.lines();
            let mut values = lines.filter_map(|l| l.strip_prefix(name)?.strip_prefix(label));
            values
                .next()
                .unwrap_or_else(|| panic!("{name} in\n{out}"))
                .parse::<u64>()
                .unwrap()
        };
        let capacity = of("kubelet_volume_stats_capacity_bytes");
        assert!(of("kubelet_volume_stats_used_bytes") <= capacity);
        assert!(of("kubelet_volume_stats_available_bytes") <= capacity);
        let inodes = of("kubelet_volume_stats_inodes");
        assert_eq!(
            of("kubelet_volume_stats_inodes_used") + of("kubelet_volume_stats_inodes_free"),
            inodes
        );
        assert!(!out.contains("claim=\"none\""), "it is not made yet");
    }
}
