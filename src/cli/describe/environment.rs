//! The environment variables of a container in the output of `describe pod`, in kubectl's layout. If a variable
//! comes from a Secret, only the key is shown.

use serde_json::Value;

use super::lines::put;

/// Writes the variables of a container, and the names of the ConfigMaps and Secrets from which all keys become
/// variables.
pub(super) fn write(w: &mut String, pod: &Value, container: &Value) {
    let from = items(&container["envFrom"]);
    if !from.is_empty() {
        put!(w, "    Environment Variables from:");
    }
    for source in from {
        source_line(w, source);
    }
    let list = items(&container["env"]);
    let none = if list.is_empty() { "\t<none>" } else { "" };
    put!(w, "    Environment:{none}");
    for variable in list {
        let value = match &variable["valueFrom"] {
            Value::Object(_) => value_from(pod, container, &variable["valueFrom"]),
            _ => text(&variable["value"]).replace('\n', "\n      \t"),
        };
        put!(w, "      {}:\t{value}", text(&variable["name"]));
    }
}

fn source_line(w: &mut String, source: &Value) {
    let kinds = [("configMapRef", "ConfigMap"), ("secretRef", "Secret")];
    let Some((reference, kind)) = kinds
        .into_iter()
        .find_map(|(field, kind)| Some((source.get(field)?, kind)))
    else {
        return;
    };
    let with = match text(&source["prefix"]) {
        "" => String::new(),
        prefix => format!(" with prefix '{prefix}'"),
    };
    let name = text(&reference["name"]);
    put!(
        w,
        "      {name}\t{kind}{with}\tOptional: {}",
        optional(reference)
    );
}

fn value_from(pod: &Value, container: &Value, from: &Value) -> String {
    if let Some(field) = from.get("fieldRef") {
        let path = text(&field["fieldPath"]);
        let value = pod.pointer(&format!("/{}", path.replace('.', "/")));
        let value = value.map_or("", text);
        return format!("{value} ({}:{path})", text(&field["apiVersion"]));
    }
    if let Some(field) = from.get("resourceFieldRef") {
        let resource = text(&field["resource"]);
        let of = match text(&field["containerName"]) {
            "" => text(&container["name"]),
            other => other,
        };
        return format!("({resource} of {of})");
    }
    if let Some(key) = from.get("configMapKeyRef") {
        let (name, of) = (text(&key["name"]), text(&key["key"]));
        let optional = optional(key);
        return format!("<set to the key '{of}' of config map '{name}'>\tOptional: {optional}");
    }
    let key = &from["secretKeyRef"];
    let (name, of) = (text(&key["name"]), text(&key["key"]));
    let optional = optional(key);
    format!("<set to the key '{of}' in secret '{name}'>\tOptional: {optional}")
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn optional(reference: &Value) -> bool {
    reference["optional"] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_source_of_a_variable_is_shown_and_no_secret() {
        let key = |optional: bool| json!({"name": "n", "key": "k", "optional": optional});
        let pod = json!({"metadata": {"name": "web-edge"}});
        let field = |path: &str| json!({"apiVersion": "v1", "fieldPath": path});
        let container = json!({
            "name": "c",
            "envFrom": [{"configMapRef": {"name": "settings"}}, {"prefix": "DB_", "secretRef": {"name": "login", "optional": true}}],
            "env": [
                {"name": "A", "value": "one\ntwo"},
                {"name": "B", "valueFrom": {"fieldRef": field("metadata.name")}},
                {"name": "C", "valueFrom": {"fieldRef": field("status.podIP")}},
                {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "E", "valueFrom": {"configMapKeyRef": key(false)}},
                {"name": "F", "valueFrom": {"secretKeyRef": key(true)}},
            ],
        });
        let mut w = String::new();
        write(&mut w, &pod, &container);
        let expected = "    Environment Variables from:
      settings\tConfigMap\tOptional: false
      login\tSecret with prefix 'DB_'\tOptional: true
    Environment:
      A:\tone
      \ttwo
      B:\tweb-edge (v1:metadata.name)
      C:\t (v1:status.podIP)
      D:\t(limits.cpu of c)
      E:\t<set to the key 'k' of config map 'n'>\tOptional: false
      F:\t<set to the key 'k' in secret 'n'>\tOptional: true
";
        assert_eq!(w, expected);
        let mut w = String::new();
        write(&mut w, &pod, &json!({"name": "c"}));
        assert_eq!(w, "    Environment:\t<none>\n");
    }
}
