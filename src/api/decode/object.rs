//! Decodes the objects beside pods. ConfigMaps, Secrets and PersistentVolumeClaims are decoded in this file, with the
//! API's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::error::Findings;
use super::{endpoints, service, typed};
use crate::api::field::{FieldError, Step, child, clip, entry};
use crate::api::objects::{
    ConfigMap, DOCKER_CONFIG_JSON, DOCKERCFG, LocalObject, ObjectContent, ObjectKey, ObjectKind,
    PersistentVolumeClaim, RuntimeClass, Secret,
};
use crate::api::source::PodSource;
use crate::api::support::{self, Verdict};
use crate::api::validation::{NO_BLOCK_VOLUMES, names};
use crate::base::spelling;

/// Largest number of bytes in the values of a ConfigMap or Secret: 1 MiB.
const MOST_BYTES: usize = 1 << 20;

/// Type of a Secret that does not name its type.
const OPAQUE: &str = "Opaque";

/// Keys that a Secret of a type must have. A basic-auth Secret needs one of two keys, which `check_type` checks.
const REQUIRED_KEYS: [(&str, &[&str]); 5] = [
    (DOCKER_CONFIG_JSON.0, &[DOCKER_CONFIG_JSON.1]),
    (DOCKERCFG.0, &[DOCKERCFG.1]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/basic-auth", &[]),
];

/// Decodes the object in `raw`. Returns the object and notes. Problems of the object go to `findings`.
pub(super) fn object(
    kind: ObjectKind,
    raw: Value,
    source: PodSource,
    findings: &mut Findings,
) -> (LocalObject, Vec<String>) {
    type ReadContent = fn(&mut Reader, BTreeMap<String, String>) -> ObjectContent;
    let (content, known): (ReadContent, &[&str]) = match kind {
        ObjectKind::ConfigMap => (
            |reader, labels| ObjectContent::ConfigMap(Arc::new(reader.config_map(labels))),
            &["data", "binaryData", "immutable", "metadata"],
        ),
        ObjectKind::Secret => (
            |reader, labels| ObjectContent::Secret(Arc::new(reader.secret(labels))),
            &["data", "stringData", "type", "immutable", "metadata"],
        ),
        ObjectKind::PersistentVolumeClaim => (
            |reader, labels| ObjectContent::PersistentVolumeClaim(Arc::new(reader.claim(labels))),
            &["spec", "status", "metadata"],
        ),
        ObjectKind::RuntimeClass => (
            |reader, _| ObjectContent::RuntimeClass(Arc::new(reader.runtime_class())),
            &["handler", "overhead", "scheduling", "metadata"],
        ),
        ObjectKind::Service => return service::service(raw, source, findings),
        ObjectKind::EndpointSlice => return endpoints::slice(raw, source, findings),
        ObjectKind::Endpoints => return endpoints::endpoints(raw, source, findings),
    };
    let mut reader = Reader::new(raw, source, findings);
    let (key, labels) = reader.metadata(kind);
    let content = content(&mut reader, labels);
    reader.unknown_fields(known);
    (LocalObject { key, content }, reader.warnings)
}

struct Reader<'f, 't> {
    /// Fields that were not read yet.
    raw: Map<String, Value>,
    source: PodSource,
    findings: &'f mut Findings<'t>,
    warnings: Vec<String>,
}

impl<'f, 't> Reader<'f, 't> {
    fn new(mut raw: Value, source: PodSource, findings: &'f mut Findings<'t>) -> Self {
        typed::strip_nulls(&mut raw);
        Self {
            raw: raw.as_object_mut().map(std::mem::take).unwrap_or_default(),
            source,
            findings,
            warnings: Vec::new(),
        }
    }

    fn metadata(&mut self, kind: ObjectKind) -> (ObjectKey, BTreeMap<String, String>) {
        self.raw.shift_remove("apiVersion");
        self.raw.shift_remove("kind");
        let mut metadata = self.map("metadata");
        let mut text = |name: &str| match metadata.shift_remove(name) {
            Some(Value::String(text)) => text,
            Some(other) => {
                let path = child("metadata", name);
                let text = typed::mismatch(&path, &other, "a text (\"...\")");
                self.findings.add_for(&path, text);
                String::new()
            }
            None => String::new(),
        };
        let (name, mut namespace) = (text("name"), text("namespace"));
        let labels = self.labels(metadata.shift_remove("labels"));
        let has_namespace = kind != ObjectKind::RuntimeClass;
        if namespace.is_empty() && has_namespace {
            namespace = "default".to_owned();
        }
        for (key, value) in &metadata {
            let path = [Step::Key("metadata".into()), Step::Key(key.clone())];
            let read = ["uid", "annotations"].contains(&key.as_str());
            match support::verdict(self.source, &path, value) {
                _ if read => {}
                Verdict::Fine => {}
                Verdict::Warn(text) => self.warnings.push(text),
                Verdict::Refuse { text, .. } => {
                    self.findings.add_for(&child("metadata", key), text);
                }
            }
        }
        if name.is_empty() {
            let what = format!("name is needed for the {}", kind.as_str());
            self.error(&FieldError::required("metadata.name", what));
        }
        let complaints = match name.is_empty() {
            true => Vec::new(),
            false => names::is_dns_subdomain(&name),
        };
        for why in complaints {
            self.error(&FieldError::invalid("metadata.name", name.as_str(), why));
        }
        let complaints = match has_namespace {
            true => names::is_dns_label(&namespace),
            false => Vec::new(),
        };
        for why in complaints {
            self.error(&FieldError::invalid(
                "metadata.namespace",
                namespace.as_str(),
                why,
            ));
        }
        (ObjectKey::new(kind, namespace, name), labels)
    }

    fn labels(&mut self, written: Option<Value>) -> BTreeMap<String, String> {
        let field = "metadata.labels";
        let written = match written {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(other) => {
                let text = typed::mismatch(field, &other, "an object ({...})");
                self.findings.add_for(field, text);
                Map::new()
            }
        };
        let mut labels = BTreeMap::new();
        for (key, value) in written {
            match value {
                Value::String(text) => drop(labels.insert(key, text)),
                other => {
                    let path = entry(field, &key);
                    let text = typed::mismatch(&path, &other, "a text (\"...\")");
                    self.findings.add_for(&path, text);
                }
            }
        }
        labels
    }

    fn config_map(&mut self, labels: BTreeMap<String, String>) -> ConfigMap {
        let data = self.texts("data");
        let binary_data = self.bytes("binaryData");
        for key in data.keys().filter(|key| binary_data.contains_key(*key)) {
            let why = "duplicate of key present in binaryData";
            self.error(&FieldError::invalid(entry("data", key), key.as_str(), why));
        }
        let size = data.values().map(String::len);
        let size = size.chain(binary_data.values().map(Vec::len)).sum();
        self.check_size(size, "data");
        ConfigMap {
            labels,
            data,
            binary_data,
            immutable: self.flag("immutable"),
        }
    }

    fn secret(&mut self, labels: BTreeMap<String, String>) -> Secret {
        let mut data = self.bytes("data");
        let texts = self.texts("stringData");
        data.extend(texts.into_iter().map(|(k, v)| (k, v.into_bytes())));
        self.check_size(data.values().map(Vec::len).sum(), "data");
        let type_ = match self.raw.shift_remove("type") {
            None => OPAQUE.to_owned(),
            Some(Value::String(type_)) if type_.is_empty() => OPAQUE.to_owned(),
            Some(Value::String(type_)) => type_,
            Some(other) => {
                let text = typed::mismatch("type", &other, "a text (\"...\")");
                self.findings.add_for("type", text);
                OPAQUE.to_owned()
            }
        };
        self.check_type(&type_, &data);
        Secret {
            labels,
            type_,
            data,
            immutable: self.flag("immutable"),
        }
    }

    fn claim(&mut self, labels: BTreeMap<String, String>) -> PersistentVolumeClaim {
        // A claim may ask for any size, class and access mode, and always gets a directory on the node's disk.
        let spec = self.raw.shift_remove("spec").unwrap_or_default();
        if spec["volumeMode"] == "Block" {
            let text = format!("not supported: a claim is a directory, and {NO_BLOCK_VOLUMES}");
            self.error(&FieldError::forbidden("spec.volumeMode", text));
        }
        self.raw.shift_remove("status");
        PersistentVolumeClaim {
            labels,
            volume: None,
        }
    }

    /// Reads a class. The API server has put its overhead and its scheduling into the pods.
    fn runtime_class(&mut self) -> RuntimeClass {
        self.raw.shift_remove("overhead");
        self.raw.shift_remove("scheduling");
        let handler = self.raw.shift_remove("handler");
        let handler = handler.and_then(|handler| handler.as_str().map(str::to_owned));
        if handler.is_none() {
            self.error(&FieldError::required("handler", ""));
        }
        RuntimeClass {
            handler: handler.unwrap_or_default(),
        }
    }

    fn check_type(&mut self, type_: &str, data: &BTreeMap<String, Vec<u8>>) {
        let required = REQUIRED_KEYS.iter().find(|(known, _)| *known == type_);
        let required = required.map_or(&[][..], |(_, keys)| *keys);
        for key in required.iter().filter(|key| !data.contains_key(**key)) {
            self.error(&FieldError::required(entry("data", key), ""));
        }
        let logins = ["username", "password"];
        let lacks_login = !logins.iter().any(|key| data.contains_key(*key));
        if type_ == "kubernetes.io/basic-auth" && lacks_login {
            for key in logins {
                self.error(&FieldError::required(entry("data", key), ""));
            }
        }
        for key in required.iter().filter(|key| key.starts_with(".docker")) {
            let is_json = |bytes: &Vec<u8>| serde_json::from_slice::<Value>(bytes).is_ok();
            if data.get(*key).is_some_and(|bytes| !is_json(bytes)) {
                // The error leaves the value out, because the value is secret.
                let path = entry("data", key);
                let text = format!("{path}: Invalid value: must be JSON, as docker's config.json");
                self.findings.add_for(&path, text);
            }
        }
    }

    fn check_size(&mut self, size: usize, path: &str) {
        if size > MOST_BYTES {
            self.error(&FieldError::too_long(path, MOST_BYTES));
        }
    }

    fn texts(&mut self, field: &str) -> BTreeMap<String, String> {
        let mut texts = BTreeMap::new();
        for (key, value) in self.keyed(field) {
            match value {
                Value::String(text) => drop(texts.insert(key, text)),
                other => self.not_a_text(&entry(field, &key), &other),
            }
        }
        texts
    }

    fn bytes(&mut self, field: &str) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        for (key, value) in self.keyed(field) {
            let path = entry(field, &key);
            let Value::String(text) = value else {
                self.not_a_text(&path, &value);
                continue;
            };
            let packed: String = text.chars().filter(|c| !"\r\n".contains(*c)).collect();
            match STANDARD.decode(packed) {
                Ok(bytes) => drop(all.insert(key, bytes)),
                Err(_) => {
                    let plain = if field == "data" {
                        "stringData"
                    } else {
                        "data"
                    };
                    let text = format!(
                        "{path}: Invalid value: must be base64: encode it, or write the plain text under {plain}"
                    );
                    self.findings.add_for(&path, text);
                }
            }
        }
        all
    }

    /// Adds the error that a value is not a text. The error leaves the value out, because the value may be secret.
    fn not_a_text(&mut self, path: &str, value: &Value) {
        let found = match value {
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
            _ => "a number or a boolean; write it in quotes",
        };
        let text = format!("{path}: Invalid value: must be a text (\"...\"), not {found}");
        self.findings.add_for(path, text);
    }

    /// Returns the entries of the map `field`. Each key that is not a valid key of a ConfigMap or Secret causes an
    /// error.
    fn keyed(&mut self, field: &str) -> Map<String, Value> {
        let map = self.map(field);
        for key in map.keys() {
            for why in names::is_config_map_key(key) {
                self.error(&FieldError::invalid(entry(field, key), clip(key), why));
            }
        }
        map
    }

    fn map(&mut self, field: &str) -> Map<String, Value> {
        match self.raw.shift_remove(field) {
            None => Map::new(),
            Some(Value::Object(map)) => map,
            Some(other) => {
                let text = match &other {
                    Value::Array(_) => {
                        typed::mismatch(field, &Value::Array(vec![]), "an object ({...})")
                    }
                    _ => format!("{field}: Invalid value: must be an object ({{...}})"),
                };
                self.findings.add_for(field, text);
                Map::new()
            }
        }
    }

    fn flag(&mut self, field: &str) -> bool {
        match self.raw.shift_remove(field) {
            None => false,
            Some(Value::Bool(on)) => on,
            Some(other) => {
                let text = typed::mismatch(field, &other, "true or false");
                self.findings.add_for(field, text);
                false
            }
        }
    }

    /// Refuses each unknown field, because data in such a field would be lost without notice.
    fn unknown_fields(&mut self, known: &[&str]) {
        let names: BTreeSet<String> = self.raw.keys().cloned().collect();
        for name in names {
            let meant = spelling::nearest(&name, known.iter().copied());
            let hint = match meant {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("known here are {}", known.join(", ")),
            };
            let text = format!("{}: unknown field: {hint}", clip(&name));
            self.findings.add_for(&name, text);
        }
    }

    fn error(&mut self, error: &FieldError) {
        self.findings.add_error(error);
    }
}

#[cfg(test)]
mod tests;
