//! The order in which containers end when the whole pod is killed (kubelet-probes 8.5, "turn order").

use crate::api::pod::PodSpec;

/// Returns the containers that must end before the container `name`. For a sidecar these are all regular containers and
/// the sidecars after it. For any other container the list is empty.
pub fn ends_after<'a>(spec: &'a PodSpec, name: &str) -> Vec<&'a str> {
    if !spec.is_sidecar(name) {
        return Vec::new();
    }
    let later = spec.sidecars().skip_while(|c| c.name != name).skip(1);
    spec.containers
        .iter()
        .chain(later)
        .map(|c| c.name.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &[&str]) {
        let sidecar = |name: &str| json!({"name": name, "restartPolicy": "Always"});
        let spec: PodSpec = serde_json::from_value(
            json!({"initContainers": [sidecar("s1"), {"name": "i"}, sidecar("s2"), sidecar("s3")],
            "containers": [{"name": "a"}, {"name": "b"}]}),
        )
        .unwrap();
        assert_eq!(ends_after(&spec, name), expected, "{name}");
    }

    #[test]
    fn sidecars_end_last_and_in_reverse_order() {
        check("a", &[]);
        check("i", &[]);
        check("s3", &["a", "b"]);
        check("s2", &["a", "b", "s3"]);
        check("s1", &["a", "b", "s2", "s3"]);
        check("gone", &[]);
    }
}
