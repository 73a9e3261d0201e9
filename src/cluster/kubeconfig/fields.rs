//! The sections of a kubeconfig and their fields.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Content;
use super::error::{KubeconfigError, Refusal};
use crate::base::spelling;

/// Fields of a cluster that podprobe reads, refuses, or may leave out.
pub(super) const CLUSTER: &[&str] = &[
    "server",
    "tls-server-name",
    "insecure-skip-tls-verify",
    "certificate-authority",
    "certificate-authority-data",
    "proxy-url",
    "disable-compression",
    "extensions",
];

/// Fields of a user that podprobe reads, refuses, or may leave out.
pub(super) const USER: &[&str] = &[
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "token",
    "tokenFile",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
    "username",
    "password",
    "auth-provider",
    "exec",
    "extensions",
];

/// Fields of a cluster that refuse the kubeconfig.
pub(super) const REFUSED_OF_CLUSTER: &[(&str, Refusal)] = &[("proxy-url", Refusal::Proxy)];

/// Fields of a user that refuse the kubeconfig.
pub(super) const REFUSED_OF_USER: &[(&str, Refusal)] = &[
    ("exec", Refusal::Exec),
    ("auth-provider", Refusal::AuthProvider),
    ("username", Refusal::Password),
    ("password", Refusal::Password),
    ("as", Refusal::Impersonation),
    ("as-uid", Refusal::Impersonation),
    ("as-groups", Refusal::Impersonation),
    ("as-user-extra", Refusal::Impersonation),
];

/// An object of a kubeconfig with its place, such as `users[0].user`.
pub(super) struct Section<'v> {
    map: &'v Map<String, Value>,
    place: String,
}

impl<'v> Section<'v> {
    /// Returns the whole kubeconfig.
    pub(super) fn top(map: &'v Map<String, Value>) -> Self {
        Self {
            map,
            place: String::new(),
        }
    }

    /// Returns the path of the section.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Returns the path of a field.
    pub(super) fn path(&self, field: &str) -> String {
        match self.place.as_str() {
            "" => field.to_owned(),
            place => format!("{place}.{field}"),
        }
    }

    fn mistyped(&self, field: &str, expected: &'static str) -> KubeconfigError {
        KubeconfigError::Type {
            path: self.path(field),
            expected,
        }
    }

    /// True if the field has a value that is not empty.
    pub(super) fn has(&self, field: &str) -> bool {
        match self.map.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        }
    }

    /// Returns the text of a field; empty if there is none.
    pub(super) fn text(&self, field: &str) -> Result<&'v str, KubeconfigError> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.mistyped(field, "a text (\"...\")")),
        }
    }

    /// Returns the truth value of a field; false if there is none.
    pub(super) fn flag(&self, field: &str) -> Result<bool, KubeconfigError> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.mistyped(field, "true or false")),
        }
    }

    /// Returns the object in `object` of the entry of `list` that has this name. `from` is the path of the field that
    /// gives the name.
    pub(super) fn named(
        &self,
        list: &'static str,
        object: &str,
        name: &str,
        from: &str,
    ) -> Result<Section<'v>, KubeconfigError> {
        let entries = match self.map.get(list) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(_) => return Err(self.mistyped(list, "a list ([...])")),
        };
        let Some(index) = entries.iter().position(|entry| entry["name"] == name) else {
            let names = entries.iter().filter_map(|entry| entry["name"].as_str());
            return Err(KubeconfigError::NotListed {
                path: from.to_owned(),
                name: name.to_owned(),
                list,
                known_names: names.map(str::to_owned).collect(),
            });
        };
        let place = format!("{list}[{index}].{object}");
        match &entries[index][object] {
            Value::Object(map) => Ok(Section { map, place }),
            Value::Null => Err(KubeconfigError::Lacks(place)),
            _ => Err(KubeconfigError::Type {
                path: place,
                expected: "an object ({...})",
            }),
        }
    }

    /// Returns the content of `<field>-data`, or the file that `field` names.
    pub(super) fn content(
        &self,
        field: &str,
        directory: &Path,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Content>, KubeconfigError> {
        let inline = format!("{field}-data");
        let (data, file) = (self.text(&inline)?, self.text(field)?);
        if data.is_empty() {
            return Ok((!file.is_empty()).then(|| Content::File(directory.join(file))));
        }
        if !file.is_empty() {
            warnings.push(format!(
                "{}: not acted on: {} is given too, and counts instead",
                self.path(field),
                self.path(&inline)
            ));
        }
        let packed: String = data.split_ascii_whitespace().collect();
        let bytes = STANDARD.decode(packed);
        let bytes = bytes.map_err(|_| KubeconfigError::NotBase64(self.path(&inline)))?;
        Ok(Some(Content::Inline(bytes)))
    }

    /// Returns a warning for each field that is not in `known`.
    pub(super) fn unknown_fields(&self, known: &[&str]) -> Vec<String> {
        let unknown = self.map.keys().filter(|key| !known.contains(&key.as_str()));
        let warning = |key: &String| {
            let path = self.path(key);
            match spelling::nearest(key, known.iter().copied()) {
                Some(meant) => {
                    format!("{path}: not acted on: unknown field: did you mean \"{meant}\"?")
                }
                None => format!("{path}: not acted on: unknown field"),
            }
        };
        unknown.map(warning).collect()
    }
}
