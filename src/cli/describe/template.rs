//! The template of pods in the output of `describe` and `rollout history`, in kubectl's layout.
//!
//! Invariants: pure.

use serde_json::Value;

use super::lines::{annotations, labels, put, scalar};
use super::{containers, volumes};
use crate::base::json;
use crate::cli::columns::string_map;
use crate::face::views::workloads::selector_text;

/// The indentation of everything in a template.
const INDENT: &str = "  ";

/// Writes the section of a template.
pub(in crate::cli) fn write(w: &mut String, template: &Value) {
    put!(w, "Pod Template:");
    let (metadata, spec) = (&template["metadata"], &template["spec"]);
    labels(w, "  Labels", string_map(&metadata["labels"]));
    if !string_map(&metadata["annotations"]).is_empty() {
        annotations(w, "  Annotations", &metadata["annotations"]);
    }
    text(w, "Service Account", &spec["serviceAccountName"]);
    for (title, list) in [
        ("Init Containers", "initContainers"),
        ("Containers", "containers"),
    ] {
        // A template has no statuses and waits for no pulls.
        containers::all(w, (INDENT, title), (template, list), &[], None);
    }
    volumes::volumes(w, INDENT, &spec["volumes"]);
    spread(w, &spec["topologySpreadConstraints"]);
    text(w, "Priority Class Name", &spec["priorityClassName"]);
    labels(w, "  Node-Selectors", string_map(&spec["nodeSelector"]));
    tolerations(w, &spec["tolerations"]);
}

fn text(w: &mut String, title: &str, value: &Value) {
    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
        put!(w, "{INDENT}{title}:\t{text}");
    }
}

/// Returns the elements of a list, sorted by a text field.
fn sorted<'a>(list: &'a Value, key: &str) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    all.sort_by_key(|item| item[key].as_str());
    all
}

fn spread(w: &mut String, list: &Value) {
    let mut title = "  Topology Spread Constraints:";
    for constraint in sorted(list, "topologyKey") {
        let of = |key: &str| constraint[key].as_str().unwrap_or_default();
        let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
        let selector = json::from_value(&constraint["labelSelector"]).ok();
        let selector = selector.map(|s| format!(" for selector {}", selector_text(&s)));
        put!(
            w,
            "{title}\t{}:{} when max skew {skew} is exceeded{}",
            of("topologyKey"),
            of("whenUnsatisfiable"),
            selector.unwrap_or_default()
        );
        title = INDENT;
    }
}

fn tolerations(w: &mut String, list: &Value) {
    let all = sorted(list, "key");
    if all.is_empty() {
        put!(w, "  Tolerations:\t<none>");
    }
    let mut title = "  Tolerations:";
    for toleration in all {
        put!(w, "{title}\t{}", toleration_text(toleration));
        title = "";
    }
}

/// Returns a toleration in kubectl's form, for example `key=value:NoExecute for 300s`.
fn toleration_text(toleration: &Value) -> String {
    let of = |key: &str| toleration[key].as_str().unwrap_or_default();
    let mut text = of("key").to_owned();
    for (sign, key) in [('=', "value"), (':', "effect")] {
        if !of(key).is_empty() {
            text.push(sign);
            text.push_str(of(key));
        }
    }
    if of("operator") == "Exists" && of("value").is_empty() {
        let space = if text.is_empty() { "" } else { " " };
        text.push_str(space);
        text.push_str("op=Exists");
    }
    if let Some(seconds) = scalar(&toleration["tolerationSeconds"]) {
        text.push_str(&format!(" for {seconds}s"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_is_written_as_kubectl_writes_it() {
        let tolerations = json!([
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"operator": "Exists"},
            {"key": "a", "value": "b"},
        ]);
        let spread = json!([{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1,
            "labelSelector": {"matchLabels": {"app": "web"}}}]);
        let template = json!({
            "metadata": {"labels": {"app": "web", "tier": "a"}, "annotations": {"n": "1"}},
            "spec": {"serviceAccountName": "sa", "priorityClassName": "high", "tolerations": tolerations,
                "topologySpreadConstraints": spread, "nodeSelector": {"disk": "ssd"},
                "initContainers": [{"name": "first", "image": "i:1"}],
                "containers": [{"name": "main", "image": "app:1", "env": [{"name": "N", "valueFrom": {"fieldRef":
                    {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]}],
                "volumes": [{"name": "data", "emptyDir": {}}]},
        });
        let mut w = String::new();
        write(&mut w, &template);
        let expected = "\
Pod Template:
  Labels:\tapp=web
\ttier=a
  Annotations:\tn: 1
  Service Account:\tsa
  Init Containers:
   first:
    Image:\ti:1
    Port:\t<none>
    Host Port:\t<none>
    Environment:\t<none>
    Mounts:\t<none>
  Containers:
   main:
    Image:\tapp:1
    Port:\t<none>
    Host Port:\t<none>
    Environment:
      N:\t (v1:metadata.name)
    Mounts:\t<none>
  Volumes:
   data:
    Type:\tEmptyDir (a temporary directory that shares a pod's lifetime)
    Medium:\t
    SizeLimit:\t<unset>
  Topology Spread Constraints:\tzone:DoNotSchedule when max skew 1 is exceeded for selector app=web
  Priority Class Name:\thigh
  Node-Selectors:\tdisk=ssd
  Tolerations:\top=Exists
\ta=b
\tk:NoExecute op=Exists for 300s
";
        assert_eq!(w, expected);
        let mut w = String::new();
        write(&mut w, &json!({"spec": {"containers": []}}));
        let bare = "Pod Template:\n  Labels:\t<none>\n  Volumes:\t<none>\n  Node-Selectors:\t<none>\n  Tolerations:\t<none>\n";
        assert_eq!(w, bare);
    }
}
