//! The resources that a pod needs and may use as a whole, by the API's rule. Init containers run one at a time, each
//! beside the sidecars before it. The regular containers run beside all sidecars.

use super::{Container, Pod};

/// Returns the largest amount that the pod's containers need at any one time. The function `of` returns the amount
/// that one container needs.
pub fn needed(pod: &Pod, of: impl Fn(&Container) -> i64) -> i64 {
    steps(pod, of, |_| {})
}

/// Returns the largest amount that the pod may use, or None if a container has no limit. The function `of` returns the
/// limit of one container, where 0 or less means that the container has no limit. As in the kubelet's
/// `ResourceConfigForPod`, an init container has at least the limits of the sidecars before it.
pub fn limit(pod: &Pod, of: impl Fn(&Container) -> i64) -> Option<i64> {
    let mut all_have_one = true;
    let most = steps(pod, of, |step| all_have_one &= step > 0);
    (all_have_one && most > 0).then_some(most)
}

/// Goes through the containers in the order of their start, and returns the largest amount that the pod needs at any
/// one time. The function `each` gets the amount of every init container together with the sidecars before it, and the
/// amount of every regular container.
fn steps(pod: &Pod, of: impl Fn(&Container) -> i64, mut each: impl FnMut(i64)) -> i64 {
    let (mut sidecars, mut most) = (0_i64, 0_i64);
    for container in &pod.spec.init_containers {
        let step = sidecars.saturating_add(of(container));
        if container.always_restarts() {
            sidecars = step;
        }
        each(step);
        most = most.max(step);
    }
    let lasting = pod.spec.containers.iter().map(|c| {
        let own = of(c);
        each(own);
        own
    });
    lasting.fold(sidecars, i64::saturating_add).max(most)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods::pod;

    /// Reads the container's name as a number, which is the amount of the container in these tests.
    fn number(container: &Container) -> i64 {
        container.name.parse().unwrap()
    }

    #[track_caller]
    fn check(init: &[(&str, bool)], regular: &[&str], needs: i64, may: Option<i64>) {
        let init = init.iter().map(|(name, sidecar)| {
            let mut container = json!({"name": name});
            if *sidecar {
                container["restartPolicy"] = "Always".into();
            }
            container
        });
        let regular: Vec<Value> = regular.iter().map(|n| json!({"name": n})).collect();
        let init: Vec<Value> = init.collect();
        let spec = json!({"initContainers": init, "containers": regular});
        let pod = pod("p").spec(spec).build();
        assert_eq!((needed(&pod, number), limit(&pod, number)), (needs, may));
    }

    #[test]
    fn regular_containers_run_beside_one_another() {
        check(&[], &["100", "200"], 300, Some(300));
        check(&[], &["100", "0"], 100, None);
        check(&[], &["0"], 0, None);
    }

    #[test]
    fn init_containers_run_one_at_a_time_and_sidecars_stay() {
        let (once, stays) = (false, true);
        check(&[("500", once), ("700", once)], &["300"], 700, Some(700));
        check(&[("100", stays)], &["300"], 400, Some(400));
        check(&[("100", stays), ("50", stays)], &["300"], 450, Some(450));
        check(&[("100", stays), ("600", once)], &["300"], 700, Some(700));
        check(&[("600", once), ("100", stays)], &["300"], 600, Some(600));
    }

    #[test]
    fn a_container_of_the_start_without_a_limit_leaves_the_pod_without_one() {
        check(&[("0", false)], &["300"], 300, None);
        check(&[("0", true)], &["300"], 300, None);
        // The kubelet looks only at the sum of an init container and the sidecars before it, so the init container
        // need not have a limit.
        check(&[("100", true), ("0", false)], &["300"], 400, Some(400));
    }
}
