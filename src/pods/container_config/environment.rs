//! The container's own variables, and `$(NAME)` in its command (kubelet-probes 3.2.1, 3.2.2).

use crate::api::expansion::expand;
use crate::api::field_ref::{FieldRefError, PodFacts, field_value, resource_value};
use crate::api::objects::{NoObject, ObjectKey, ObjectKind, ObjectSet};
use crate::api::pod::{EnvFromSource, EnvVarSource, KeySelector};
use crate::api::{Container, Pod};

/// Names and values of variables, in the order of the container's environment.
type Variables = Vec<(String, String)>;

/// The reason why a variable of a container has no value. The text never shows a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// The object with the value is missing.
    #[error(transparent)]
    NoObject(#[from] NoObject),
    /// The object with the value does not have the key.
    #[error("couldn't find key {key} in {object}")]
    NoKey {
        /// The key that the variable names.
        key: String,
        /// The object that does not have the key.
        object: ObjectKey,
    },
    /// The value in a Secret has a NUL byte, which would end the variable early.
    #[error(
        "key {key} of {object} cannot be a variable: its value has a NUL byte; mount it as a volume"
    )]
    Nul {
        /// The key of the value.
        key: String,
        /// The object with the value.
        object: ObjectKey,
    },
    /// The value in a Secret is not UTF-8 text.
    #[error(
        "key {key} of {object} cannot be a variable: its value is not UTF-8; mount it as a volume"
    )]
    NotUtf8 {
        /// The key of the value.
        key: String,
        /// The object with the value.
        object: ObjectKey,
    },
    /// A field or a resource of the pod has no value.
    #[error(transparent)]
    Field(#[from] FieldRefError),
}

/// The inputs from which a container's variables are made.
pub(super) struct Sources<'a> {
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    /// The objects that the pod refers to, as far as they exist.
    pub(super) objects: &'a ObjectSet,
    pub(super) facts: &'a PodFacts,
    /// The variables of services.
    pub(super) services: &'a [(String, String)],
}

impl Sources<'_> {
    /// Returns the container's variables: first the keys of `envFrom`, then the variables of `env`, each expanded with
    /// the variables before it. If a name is repeated, its last value counts. A missing source that is optional is left
    /// out. Variables of services come last, unless the container has a variable of the same name. `env` may refer to
    /// the variables of services.
    ///
    /// # Errors
    /// Returns [`EnvironmentError`] if an object, key or field does not exist, or if a value cannot be the value of a
    /// variable.
    pub(super) fn variables(&self) -> Result<Variables, EnvironmentError> {
        let mut all = Variables::with_capacity(self.container.env.len());
        for source in &self.container.env_from {
            for (key, value) in self.every_key(source)? {
                set(&mut all, format!("{}{key}", source.prefix), value);
            }
        }
        for variable in &self.container.env {
            let value = match &variable.value_from {
                Some(from) if variable.value.is_empty() => self.value(from)?,
                _ => Some(expand(&variable.value, |name| {
                    find(&all, name).or_else(|| find(self.services, name))
                })),
            };
            if let Some(value) = value {
                set(&mut all, variable.name.clone(), value);
            }
        }
        for (name, value) in self.services {
            if !all.iter().any(|own| own.0 == *name) {
                all.push((name.clone(), value.clone()));
            }
        }
        Ok(all)
    }

    fn every_key(&self, source: &EnvFromSource) -> Result<Variables, EnvironmentError> {
        let namespace = &self.pod.metadata.namespace;
        if let Some(r) = &source.config_map_ref {
            let map = self.objects.config_map(namespace, &r.name);
            return match map {
                Err(e) if r.optional == Some(true) && e.is_missing() => Ok(Variables::new()),
                Err(e) => Err(e.into()),
                Ok(map) => Ok(map.data.clone().into_iter().collect()),
            };
        }
        let Some(r) = &source.secret_ref else {
            return Ok(Variables::new());
        };
        match self.objects.secret(namespace, &r.name) {
            Err(e) if r.optional == Some(true) && e.is_missing() => Ok(Variables::new()),
            Err(e) => Err(e.into()),
            Ok(secret) => {
                let entries = secret.data.iter();
                let object = ObjectKey::new(ObjectKind::Secret, namespace, &r.name);
                let text = |(key, bytes): (&String, &Vec<u8>)| {
                    Ok((key.clone(), as_text(bytes, key, &object)?))
                };
                entries.map(text).collect()
            }
        }
    }

    /// Returns the value of a variable from the variable's source, or `None` if the source is missing and optional.
    fn value(&self, from: &EnvVarSource) -> Result<Option<String>, EnvironmentError> {
        if let Some(field) = &from.field_ref {
            let value = field_value(self.pod, self.facts, &field.field_path);
            return Ok(Some(value?));
        }
        if let Some(selector) = &from.resource_field_ref {
            let value = resource_value(self.pod, Some(self.container), self.facts, selector);
            return Ok(Some(value?));
        }
        if let Some(selector) = &from.config_map_key_ref {
            return self.key_of_config_map(selector);
        }
        match &from.secret_key_ref {
            Some(selector) => self.key_of_secret(selector),
            None => Ok(Some(String::new())),
        }
    }

    fn key_of_config_map(
        &self,
        selector: &KeySelector,
    ) -> Result<Option<String>, EnvironmentError> {
        let namespace = &self.pod.metadata.namespace;
        let is_optional = selector.optional == Some(true);
        let map = match self.objects.config_map(namespace, &selector.name) {
            Err(e) if is_optional && e.is_missing() => return Ok(None),
            map => map?,
        };
        match map.data.get(&selector.key) {
            Some(value) => Ok(Some(value.clone())),
            None if is_optional => Ok(None),
            None => Err(EnvironmentError::NoKey {
                key: selector.key.clone(),
                object: ObjectKey::new(ObjectKind::ConfigMap, namespace, &selector.name),
            }),
        }
    }

    fn key_of_secret(&self, selector: &KeySelector) -> Result<Option<String>, EnvironmentError> {
        let namespace = &self.pod.metadata.namespace;
        let is_optional = selector.optional == Some(true);
        let secret = match self.objects.secret(namespace, &selector.name) {
            Err(e) if is_optional && e.is_missing() => return Ok(None),
            secret => secret?,
        };
        let object = ObjectKey::new(ObjectKind::Secret, namespace, &selector.name);
        match secret.data.get(&selector.key) {
            Some(bytes) => as_text(bytes, &selector.key, &object).map(Some),
            None if is_optional => Ok(None),
            None => Err(EnvironmentError::NoKey {
                key: selector.key.clone(),
                object,
            }),
        }
    }
}

/// Tells whether a variable of the container needs the pod's addresses.
pub fn needs_pod_ips(container: &Container) -> bool {
    let fields = container.env.iter().filter_map(|v| {
        let field = v.value_from.as_ref()?.field_ref.as_ref()?;
        Some(field.field_path.as_str())
    });
    fields
        .into_iter()
        .any(|path| path.starts_with("status.podIP"))
}

/// Expands the words of a command with the container's own variables. The image's variables are not used.
pub(super) fn expand_words(words: &[String], variables: &[(String, String)]) -> Vec<String> {
    words
        .iter()
        .map(|w| expand(w, |name| find(variables, name)))
        .collect()
}

fn set(all: &mut Variables, name: String, value: String) {
    match all.iter_mut().find(|v| v.0 == name) {
        Some(v) => v.1 = value,
        None => all.push((name, value)),
    }
}

fn find(all: &[(String, String)], name: &str) -> Option<String> {
    all.iter().find(|v| v.0 == name).map(|v| v.1.clone())
}

/// Returns the bytes of a Secret as the value of a variable.
fn as_text(bytes: &[u8], key: &str, object: &ObjectKey) -> Result<String, EnvironmentError> {
    let (key, object) = (key.to_owned(), object.clone());
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        Ok(_) => Err(EnvironmentError::Nul { key, object }),
        Err(_) => Err(EnvironmentError::NotUtf8 { key, object }),
    }
}

#[cfg(test)]
mod tests;
