//! Pods for unit tests: `pod("web").spec(json!({…})).build()`.
#![allow(dead_code, reason = "each wing takes what it needs")]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::pod::Pod;
use crate::api::raw_object::RawObject;

/// Builder of a pod in the namespace `default` with its name as UID. The builder adds no defaults and validates
/// nothing.
pub(crate) struct PodBuilder(Value);

/// Returns a builder for a pod of that name, without containers.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {},
    }))
}

impl PodBuilder {
    /// Sets the UID, which otherwise equals the name.
    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.0["metadata"]["uid"] = uid.into();
        self
    }

    /// Sets the namespace, which is otherwise `default`.
    pub(crate) fn namespace(mut self, namespace: &str) -> Self {
        self.0["metadata"]["namespace"] = namespace.into();
        self
    }

    /// Adds a label.
    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// Adds an annotation.
    pub(crate) fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Sets the whole `spec`.
    pub(crate) fn spec(mut self, spec: Value) -> Self {
        self.0["spec"] = spec;
        self
    }

    /// Changes the object by a function. The typed view follows the object.
    pub(crate) fn edit(mut self, edit: impl FnOnce(&mut Value)) -> Self {
        edit(&mut self.0);
        self
    }

    /// Returns the pod. Its raw object and its typed view have the same content.
    #[track_caller]
    pub(crate) fn build(self) -> Pod {
        let typed = |field: &str| self.0[field].clone();
        Pod {
            metadata: serde_json::from_value(typed("metadata")).expect("metadata of a v1 pod"),
            spec: serde_json::from_value(typed("spec")).expect("spec of a v1 pod"),
            raw: RawObject::new(&self.0),
        }
    }

    /// Builds the pod as [`Self::build`] does and returns it shared.
    #[track_caller]
    pub(crate) fn arc(self) -> Arc<Pod> {
        Arc::new(self.build())
    }
}
