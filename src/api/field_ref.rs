//! The values of `fieldRef` and `resourceFieldRef`, for variables and for downwardAPI volumes.
//!
//! Invariant: a value depends only on the pod and on [`PodFacts`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::huge_pages;
use super::pod::{Container, Pod, ResourceFieldSelector};
use super::quantity::Quantity;
use super::validation::names;

/// The reasons for which a reference has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldRefError {
    /// The path does not name a field.
    #[error("unsupported fieldPath: {0}")]
    Path(String),
    /// The path has a key, but the field has no keys.
    #[error("fieldPath {0:?} does not support subscript")]
    Subscript(String),
    /// The key in the path is not a valid name of a label or an annotation.
    #[error("invalid key subscript in {path}: {}", complaints.join(";"))]
    Key {
        /// Path with the key.
        path: String,
        /// Complaints about the key, in the API's words.
        complaints: Vec<String>,
    },
    /// The pod has no container of that name.
    #[error("container {0} not found")]
    Container(String),
    /// A reference cannot name this resource.
    #[error("unsupported container resource : {0}")]
    Resource(String),
    /// The divisor is negative.
    #[error("divisor {0:?} is negative")]
    Divisor(String),
    /// A limit, a request or the divisor is not a quantity.
    #[error("{0:?} is no quantity")]
    Quantity(String),
}

/// Facts about a pod and its node that are not in the pod's object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Addresses of the node, primary first.
    pub host_ips: Vec<String>,
    /// Addresses of the pod, primary first. Empty while the pod has no address.
    pub pod_ips: Vec<String>,
    /// Resources of the node. A limit that a container does not have counts as the node's amount.
    pub allocatable: Allocatable,
}

/// Resources that the node has for pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Processor time in thousandths of a processor.
    pub milli_cpu: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Size of the disk below /var/lib/podprobe in bytes.
    pub ephemeral_storage: i64,
}

/// Returns the value of a `fieldRef`. The value of a label or annotation that the pod does not have is empty, as in
/// the kubelet.
///
/// # Errors
/// Returns a [`FieldRefError`], in Kubernetes' words, for a path that names no field.
pub fn field_value(pod: &Pod, facts: &PodFacts, path: &str) -> Result<String, FieldRefError> {
    if let Some((map, key)) = subscript(path) {
        return entry_value(pod, path, map, key);
    }
    let first = |all: &[String]| all.first().cloned().unwrap_or_default();
    let m = &pod.metadata;
    Ok(match path {
        "metadata.name" => m.name.clone(),
        "metadata.namespace" => m.namespace.clone(),
        "metadata.uid" => m.uid.to_string(),
        "metadata.labels" => format_map(&m.labels),
        "metadata.annotations" => format_map(&m.annotations),
        "spec.nodeName" | "spec.host" => pod.spec.node_name.clone(),
        "spec.serviceAccountName" => service_account_name(pod),
        "status.hostIP" => first(&facts.host_ips),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => first(&facts.pod_ips),
        "status.podIPs" => facts.pod_ips.join(","),
        _ => return Err(FieldRefError::Path(path.to_owned())),
    })
}

/// Splits `metadata.labels['key']` into map and key. Returns None if the path has no key in brackets.
pub fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

fn entry_value(pod: &Pod, path: &str, map: &str, key: &str) -> Result<String, FieldRefError> {
    let (values, complaints) = match map {
        "metadata.labels" => (&pod.metadata.labels, names::is_qualified_name(key)),
        "metadata.annotations" => (
            &pod.metadata.annotations,
            names::is_qualified_name(&key.to_lowercase()),
        ),
        _ => return Err(FieldRefError::Subscript(path.to_owned())),
    };
    match complaints.is_empty() {
        true => Ok(values.get(key).cloned().unwrap_or_default()),
        false => Err(FieldRefError::Key {
            path: path.to_owned(),
            complaints,
        }),
    }
}

/// Returns the name of the pod's service account, or an empty text. Only the raw object has this name, because only an API
/// server acts on it.
pub(super) fn service_account_name(pod: &Pod) -> String {
    let spec = pod.raw.at("/spec").unwrap_or_default();
    let name = |field: &str| spec[field].as_str().filter(|name| !name.is_empty());
    let name = name("serviceAccountName").or_else(|| name("serviceAccount"));
    name.unwrap_or_default().to_owned()
}

/// Renders a map in the order of its keys, as one line `key="value"` for each entry. The last line has no line end.
fn format_map(map: &BTreeMap<String, String>) -> String {
    let lines: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}={}", go_quote(value)))
        .collect();
    lines.join("\n")
}

/// Quotes a text as Go's `%q` does.
fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        push_quoted(&mut quoted, c);
    }
    quoted.push('"');
    quoted
}

fn push_quoted(to: &mut String, c: char) {
    let short = match c {
        '"' | '\\' => Some(c),
        '\x07' => Some('a'),
        '\x08' => Some('b'),
        '\x0c' => Some('f'),
        '\n' => Some('n'),
        '\r' => Some('r'),
        '\t' => Some('t'),
        '\x0b' => Some('v'),
        _ => None,
    };
    // The list of printable characters is that of Rust. `escape_debug` escapes the apostrophe although Go does not.
    let printable = c == '\'' || c.escape_debug().count() == 1;
    let written = match (short, c as u32) {
        (Some(short), _) => write!(to, "\\{short}"),
        (None, _) if printable => write!(to, "{c}"),
        (None, code @ 0..0x80) => write!(to, "\\x{code:02x}"),
        (None, code @ 0..0x1_0000) => write!(to, "\\u{code:04x}"),
        (None, code) => write!(to, "\\U{code:08x}"),
    };
    written.expect("a String takes every text");
}

/// Returns the value of a `resourceFieldRef`, in units of its divisor and rounded up. `own` is the container that has
/// the variable. For a volume, `own` is None, and the reference must name a container.
///
/// # Errors
/// Returns a [`FieldRefError`] if there is no such container or resource, or if a quantity cannot be used.
pub fn resource_value(
    pod: &Pod,
    own: Option<&Container>,
    facts: &PodFacts,
    selector: &ResourceFieldSelector,
) -> Result<String, FieldRefError> {
    let name = &selector.container_name;
    let own = own.filter(|_| name.is_empty());
    let named = own.or_else(|| pod.container(name));
    let container = named.ok_or_else(|| FieldRefError::Container(name.clone()))?;
    let resource = Resource::named(&selector.resource)
        .ok_or_else(|| FieldRefError::Resource(selector.resource.clone()))?;
    let amount = resource.amount(container, facts.allocatable)?;
    let divisor = resource.divisor(selector)?;
    // The kubelet divides floating point numbers. The results of whole numbers differ only beyond 2^53.
    let (amount, divisor) = (i128::from(amount), i128::from(divisor));
    let up = i128::from(amount.rem_euclid(divisor) != 0);
    Ok((amount.div_euclid(divisor) + up).to_string())
}

/// A resource in a `resourceFieldRef`: one of [`RESOURCES`], or huge pages.
struct Resource<'a> {
    is_limit: bool,
    name: &'a str,
}

/// The resources that can follow `limits.` or `requests.` in a `resourceFieldRef`.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

impl<'a> Resource<'a> {
    fn named(text: &'a str) -> Option<Self> {
        let (list, name) = text.split_once('.')?;
        let is_known = RESOURCES.contains(&name) || huge_pages::is_resource(name);
        is_known.then_some(())?;
        Some(Self {
            is_limit: match list {
                "limits" => true,
                "requests" => false,
                _ => return None,
            },
            name,
        })
    }

    /// Returns the amount of the resource, in thousandths of a processor for cpu, otherwise in units such as bytes.
    fn amount(
        &self,
        container: &Container,
        allocatable: Allocatable,
    ) -> Result<i64, FieldRefError> {
        let r = &container.resources;
        let list = if self.is_limit {
            &r.limits
        } else {
            &r.requests
        };
        let written = match list.get(self.name) {
            Some(quantity) => self.measure(quantity)?,
            None => 0,
        };
        Ok(match (self.is_limit && written == 0, self.name) {
            (false, _) => written,
            (true, "cpu") => allocatable.milli_cpu,
            (true, "memory") => allocatable.memory,
            // Huge pages are never overcommitted: a container without a limit has none.
            (true, name) if huge_pages::is_resource(name) => 0,
            (true, _) => allocatable.ephemeral_storage,
        })
    }

    /// Returns the divisor. A divisor that is missing or 0 counts as 1.
    fn divisor(&self, selector: &ResourceFieldSelector) -> Result<i64, FieldRefError> {
        let one = Quantity("1".into());
        let written = selector.divisor.as_ref().unwrap_or(&one);
        match self.measure(written)? {
            0 => self.measure(&one),
            negative if negative < 0 => Err(FieldRefError::Divisor(written.0.clone())),
            divisor => Ok(divisor),
        }
    }

    fn measure(&self, quantity: &Quantity) -> Result<i64, FieldRefError> {
        let measured = match self.name {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        measured.ok_or_else(|| FieldRefError::Quantity(quantity.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    fn facts() -> PodFacts {
        PodFacts {
            host_ips: vec!["192.168.7.1".into(), "fd00::1".into()],
            pod_ips: vec!["10.0.0.5".into(), "fd00::5".into()],
            allocatable: Allocatable {
                milli_cpu: 3500,
                memory: 1 << 30,
                ephemeral_storage: 10_000_000_001,
            },
        }
    }

    fn pod() -> Pod {
        test_pods::pod("web")
            .uid("u-1")
            .label("app", "web")
            .label("a.b/c", "say \"hi\"\n\u{1}'ä'\u{200b}")
            .annotation("Example.com/Note", "n")
            .spec(json!({
                "nodeName": "edge",
                "serviceAccountName": "robot",
                "initContainers": [{"name": "i", "resources": {"limits": {"cpu": "1"}}}],
                "containers": [
                    {"name": "c", "resources": {
                        "limits": {"cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                        "requests": {"cpu": "250m", "memory": "32Mi", "ephemeral-storage": "1k"}}},
                    {"name": "none"}],
            }))
            .build()
    }

    #[track_caller]
    fn check(path: &str, expected: Result<&str, &str>) {
        let value = field_value(&pod(), &facts(), path).map_err(|e| e.to_string());
        assert_eq!(value.as_deref().map_err(String::as_str), expected, "{path}");
    }

    #[test]
    fn each_field_has_its_value() {
        check("metadata.name", Ok("web"));
        check("metadata.namespace", Ok("default"));
        check("metadata.uid", Ok("u-1"));
        check("spec.nodeName", Ok("edge"));
        check("spec.serviceAccountName", Ok("robot"));
        check("status.hostIP", Ok("192.168.7.1"));
        check("status.hostIPs", Ok("192.168.7.1,fd00::1"));
        check("status.podIP", Ok("10.0.0.5"));
        check("status.podIPs", Ok("10.0.0.5,fd00::5"));
        check("metadata.labels['app']", Ok("web"));
        check("metadata.labels['none']", Ok(""));
        check("metadata.annotations['Example.com/Note']", Ok("n"));
    }

    #[test]
    fn a_map_is_a_line_for_each_key_in_gos_quotes() {
        check(
            "metadata.labels",
            Ok("a.b/c=\"say \\\"hi\\\"\\n\\x01'ä'\\u200b\"\napp=\"web\""),
        );
    }

    #[test]
    fn what_is_no_field_is_refused_in_kubernetes_words() {
        check("spec.hostname", Err("unsupported fieldPath: spec.hostname"));
        check("", Err("unsupported fieldPath: "));
        let path = "spec.nodeName['x']";
        let text = "fieldPath \"spec.nodeName['x']\" does not support subscript";
        check(path, Err(text));
        let bad = field_value(&pod(), &facts(), "metadata.labels['a b']");
        let bad = bad.unwrap_err().to_string();
        assert!(
            bad.starts_with("invalid key subscript in metadata.labels['a b']: name part must"),
            "{bad}"
        );
    }

    #[test]
    fn an_address_that_the_pod_does_not_have_yet_is_empty() {
        let none = PodFacts::default();
        assert_eq!(field_value(&pod(), &none, "status.podIP"), Ok("".into()));
        assert_eq!(field_value(&pod(), &none, "status.podIPs"), Ok("".into()));
    }

    #[track_caller]
    fn resource(container: &str, resource: &str, divisor: &str, expected: Result<&str, &str>) {
        let pod = pod();
        let selector = ResourceFieldSelector {
            container_name: container.into(),
            resource: resource.into(),
            divisor: (!divisor.is_empty()).then(|| Quantity(divisor.into())),
        };
        let own = &pod.spec.containers[0];
        let value = resource_value(&pod, Some(own), &facts(), &selector);
        let value = value.map_err(|e| e.to_string());
        assert_eq!(value.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn a_resource_is_counted_in_its_divisor_and_rounded_up() {
        resource("", "limits.cpu", "", Ok("2"));
        resource("c", "limits.cpu", "0", Ok("2"));
        resource("", "limits.cpu", "1m", Ok("1500"));
        resource("", "limits.cpu", "7m", Ok("215"));
        resource("", "requests.cpu", "", Ok("1"));
        resource("", "limits.memory", "", Ok("67108864"));
        resource("", "limits.memory", "1Mi", Ok("64"));
        resource("", "requests.memory", "1M", Ok("34"));
        resource("", "requests.ephemeral-storage", "", Ok("1000"));
        resource("", "limits.hugepages-2Mi", "1Mi", Ok("4"));
        resource("none", "limits.hugepages-2Mi", "", Ok("0"));
    }

    #[test]
    fn a_missing_limit_is_the_nodes_and_a_missing_request_is_0() {
        resource("none", "limits.cpu", "", Ok("4"));
        resource("none", "limits.cpu", "1m", Ok("3500"));
        resource("none", "limits.memory", "1Gi", Ok("1"));
        resource("", "limits.ephemeral-storage", "1G", Ok("11"));
        resource("none", "requests.memory", "", Ok("0"));
        resource("i", "limits.cpu", "", Ok("1"));
    }

    #[test]
    fn a_resource_that_cannot_be_had_says_why() {
        resource("x", "limits.cpu", "", Err("container x not found"));
        let unsupported = Err("unsupported container resource : limits.gpu");
        resource("", "limits.gpu", "", unsupported);
        resource("", "limits.cpu", "-1", Err("divisor \"-1\" is negative"));
        let pod = pod();
        let selector = ResourceFieldSelector::default();
        assert_eq!(
            resource_value(&pod, None, &facts(), &selector),
            Err(FieldRefError::Container(String::new()))
        );
    }
}
