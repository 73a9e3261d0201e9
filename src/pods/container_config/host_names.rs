//! The host names of a pod's containers (the kubelet's `GeneratePodHostNameAndDomain` and `GetNodenameForKernel`;
//! kubelet-probes 8.10).

use crate::api::Pod;

/// The length in bytes of the longest host name that a pod gets.
const SHORT_MAX: usize = 63;
/// The length in bytes of the longest host name that the kernel accepts.
const KERNEL_MAX: usize = 64;

/// The host names of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNames {
    /// The host name without its domain.
    pub short: String,
    /// The domain of the pod, or an empty text if the pod has no subdomain.
    pub domain: String,
    /// The host name that processes see.
    pub kernel: String,
}

/// A host name with domain that is longer than the kernel accepts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long ({KERNEL_MAX} characters is the max, {} characters requested)",
    .name.len()
)]
pub struct HostNameError {
    /// The host name with its domain.
    pub name: String,
}

/// Returns the host names of `pod`. `node` is the node's own host name.
///
/// # Errors
/// Returns [`HostNameError`] if the host name with its domain is longer than the kernel accepts.
pub fn host_names(pod: &Pod, cluster_domain: &str, node: &str) -> Result<HostNames, HostNameError> {
    let s = &pod.spec;
    let (short, domain) = match &s.hostname_override {
        Some(name) => (cut(name), String::new()),
        None if s.hostname.is_empty() => (cut(&pod.metadata.name), domain(pod, cluster_domain)),
        None => (cut(&s.hostname), domain(pod, cluster_domain)),
    };
    let kernel = match () {
        () if s.host_network => node.to_owned(),
        () if s.set_hostname_as_fqdn && !domain.is_empty() => full(&short, &domain)?,
        () => short.clone(),
    };
    Ok(HostNames {
        short,
        domain,
        kernel,
    })
}

fn domain(pod: &Pod, cluster_domain: &str) -> String {
    let (subdomain, namespace) = (&pod.spec.subdomain, &pod.metadata.namespace);
    if subdomain.is_empty() {
        return String::new();
    }
    // Without a cluster domain the name ends with `svc` (deviations: no-cluster-domain).
    let dot = if cluster_domain.is_empty() { "" } else { "." };
    format!("{subdomain}.{namespace}.svc{dot}{cluster_domain}")
}

/// Returns the first 63 bytes of a name, without '-' and '.' at the end.
fn cut(name: &str) -> String {
    if name.len() <= SHORT_MAX {
        return name.to_owned();
    }
    let mut end = SHORT_MAX;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].trim_end_matches(['-', '.']).to_owned()
}

fn full(short: &str, domain: &str) -> Result<String, HostNameError> {
    let name = format!("{short}.{domain}");
    match name.len() <= KERNEL_MAX {
        true => Ok(name),
        false => Err(HostNameError { name }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test_pods;

    fn names(name: &str, mut spec: Value) -> Result<HostNames, HostNameError> {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
        let pod = test_pods::pod(name).spec(spec).build();
        host_names(&pod, "cluster.local", "node")
    }

    #[track_caller]
    fn check(name: &str, spec: Value, expected: [&str; 3]) {
        let n = names(name, spec).unwrap();
        assert_eq!([n.short, n.domain, n.kernel], expected);
    }

    #[test]
    fn the_name_is_the_pod_s_or_its_own_and_is_cut_as_the_kubelet_cuts_it() {
        let long = format!("{}-.tail", "a".repeat(61));
        let short = "a".repeat(61);
        check(&long, json!({}), [&short, "", &short]);
        check("pod", json!({"hostname": "own"}), ["own", "", "own"]);
        check("pod", json!({}), ["pod", "", "pod"]);
        check("pod", json!({"hostNetwork": true}), ["pod", "", "node"]);
    }

    #[test]
    fn a_subdomain_gives_a_domain_and_an_override_wins_over_everything() {
        let domain = "sub.default.svc.cluster.local";
        check("p", json!({"subdomain": "sub"}), ["p", domain, "p"]);
        let full = format!("p.{domain}");
        check(
            "p",
            json!({"subdomain": "sub", "setHostnameAsFQDN": true}),
            ["p", domain, &full],
        );
        check("p", json!({"setHostnameAsFQDN": true}), ["p", "", "p"]);
        check(
            "p",
            json!({"subdomain": "sub", "hostname": "h", "hostnameOverride": "a.b"}),
            ["a.b", "", "a.b"],
        );
    }

    #[test]
    fn a_full_name_of_64_is_taken_and_of_65_refused() {
        let spec = || json!({"subdomain": "sub", "setHostnameAsFQDN": true});
        let longest = "p".repeat(34);
        let kernel = names(&longest, spec()).unwrap().kernel;
        assert_eq!(kernel.len(), 64);
        let name = "p".repeat(35);
        assert_eq!(
            names(&name, spec()).unwrap_err().to_string(),
            format!(
                "failed to construct FQDN from pod hostname and cluster domain, FQDN {name}.sub.default.svc.cluster.local is too long (64 characters is the max, 65 characters requested)"
            )
        );
    }

    /// Without a cluster domain in the configuration the domain of a pod ends with `svc` (deviations:
    /// no-cluster-domain).
    #[test]
    fn without_a_cluster_domain_the_domain_ends_with_svc() {
        let spec = json!({"subdomain": "sub", "containers": []});
        let pod = test_pods::pod("p").spec(spec).build();
        let names = host_names(&pod, "", "node").unwrap();
        assert_eq!(names.domain, "sub.default.svc");
    }
}
