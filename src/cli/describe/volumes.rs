//! The volumes of a pod or a template in the output of `describe`, in kubectl's layout.

use serde_json::Value;

use super::lines::{put, scalar};

/// The lines below a volume's name, each with its title and value.
type Rows = Vec<(&'static str, String)>;

/// Writes the section of the volumes. `indent` stands before the title, and a part of it before the names.
pub(super) fn volumes(w: &mut String, indent: &str, list: &Value) {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return put!(w, "{indent}Volumes:\t<none>");
    }
    put!(w, "{indent}Volumes:");
    let indent = if indent.is_empty() { "" } else { " " };
    for v in list {
        put!(w, "  {indent}{}:", text(&v["name"]));
        for (title, value) in rows(v) {
            put!(w, "    {title}:\t{value}");
        }
    }
}

fn rows(v: &Value) -> Rows {
    type Describe = fn(&Value) -> Rows;
    let types: [(&str, Describe); 7] = [
        ("hostPath", host_path),
        ("configMap", config_map),
        ("secret", secret),
        ("downwardAPI", downward_api),
        ("projected", projected),
        ("persistentVolumeClaim", claim),
        ("image", image),
    ];
    let found = types.iter().find(|(key, _)| v[*key].is_object());
    found.map_or_else(|| empty_dir(&v["emptyDir"]), |(key, rows)| rows(&v[*key]))
}

fn empty_dir(v: &Value) -> Rows {
    let size = scalar(&v["sizeLimit"]).unwrap_or_else(|| "<unset>".into());
    vec![
        (
            "Type",
            "EmptyDir (a temporary directory that shares a pod's lifetime)".into(),
        ),
        ("Medium", text(&v["medium"])),
        ("SizeLimit", size),
    ]
}

fn host_path(v: &Value) -> Rows {
    vec![
        ("Type", "HostPath (bare host directory volume)".into()),
        ("Path", text(&v["path"])),
        ("HostPathType", text(&v["type"])),
    ]
}

fn config_map(v: &Value) -> Rows {
    vec![
        (
            "Type",
            "ConfigMap (a volume populated by a ConfigMap)".into(),
        ),
        ("Name", text(&v["name"])),
        ("Optional", is_true(&v["optional"])),
    ]
}

fn secret(v: &Value) -> Rows {
    vec![
        ("Type", "Secret (a volume populated by a Secret)".into()),
        ("SecretName", text(&v["secretName"])),
        ("Optional", is_true(&v["optional"])),
    ]
}

fn downward_api(v: &Value) -> Rows {
    let title = "DownwardAPI (a volume populated by information about the pod)";
    let mut rows = vec![("Type", title.to_owned()), ("Items", String::new())];
    let items = v["items"].as_array().into_iter().flatten();
    let lines = items.map(|item| {
        let field = match item["fieldRef"].is_object() {
            true => text(&item["fieldRef"]["fieldPath"]),
            false => text(&item["resourceFieldRef"]["resource"]),
        };
        format!("\n      {field} -> {}", text(&item["path"]))
    });
    rows[1].1 = lines.collect();
    rows
}

fn projected(v: &Value) -> Rows {
    let title = "Projected (a volume that contains injected data from multiple sources)";
    let mut rows = vec![("Type", title.to_owned())];
    for source in v["sources"].as_array().into_iter().flatten() {
        let named = [("secret", "SecretName"), ("configMap", "ConfigMapName")];
        for (key, title) in named {
            if source[key].is_object() {
                rows.push((title, text(&source[key]["name"])));
                rows.push(("Optional", is_true(&source[key]["optional"])));
            }
        }
        if source["downwardAPI"].is_object() {
            rows.push(("DownwardAPI", "true".into()));
        }
    }
    rows
}

fn claim(v: &Value) -> Rows {
    let title =
        "PersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)";
    vec![
        ("Type", title.into()),
        ("ClaimName", text(&v["claimName"])),
        ("ReadOnly", is_true(&v["readOnly"])),
    ]
}

fn image(v: &Value) -> Rows {
    vec![
        ("Type", "Image (a container image or OCI artifact)".into()),
        ("Reference", text(&v["reference"])),
        ("PullPolicy", text(&v["pullPolicy"])),
    ]
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn is_true(v: &Value) -> String {
    v.as_bool().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each type of volume is described with its own name and its own lines. No type is described as an emptyDir
    /// by mistake.
    #[test]
    fn each_type_of_volume_is_described_as_kubectl_does() {
        let sources = json!([
            {"secret": {"name": "s"}},
            {"configMap": {"name": "c", "optional": true}},
            {"downwardAPI": {}},
        ]);
        let items = json!([
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}},
        ]);
        let list = json!([
            {"name": "a", "emptyDir": {"medium": "Memory"}},
            {"name": "b", "hostPath": {"path": "/x", "type": "File"}},
            {"name": "c", "configMap": {"name": "conf"}},
            {"name": "d", "secret": {"secretName": "pass", "optional": true}},
            {"name": "e", "downwardAPI": {"items": items}},
            {"name": "f", "projected": {"sources": sources}},
            {"name": "g", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "h", "image": {"reference": "data:1", "pullPolicy": "Never"}},
        ]);
        let mut w = String::new();
        volumes(&mut w, "", &list);
        let expected = "\
Volumes:
  a:
    Type:\tEmptyDir (a temporary directory that shares a pod's lifetime)
    Medium:\tMemory
    SizeLimit:\t<unset>
  b:
    Type:\tHostPath (bare host directory volume)
    Path:\t/x
    HostPathType:\tFile
  c:
    Type:\tConfigMap (a volume populated by a ConfigMap)
    Name:\tconf
    Optional:\tfalse
  d:
    Type:\tSecret (a volume populated by a Secret)
    SecretName:\tpass
    Optional:\ttrue
  e:
    Type:\tDownwardAPI (a volume populated by information about the pod)
    Items:\t
      metadata.labels -> labels
      limits.cpu -> cpu
  f:
    Type:\tProjected (a volume that contains injected data from multiple sources)
    SecretName:\ts
    Optional:\tfalse
    ConfigMapName:\tc
    Optional:\ttrue
    DownwardAPI:\ttrue
  g:
    Type:\tPersistentVolumeClaim (a reference to a PersistentVolumeClaim in the same namespace)
    ClaimName:\tdata
    ReadOnly:\tfalse
  h:
    Type:\tImage (a container image or OCI artifact)
    Reference:\tdata:1
    PullPolicy:\tNever
";
        assert_eq!(w, expected);
    }
}
