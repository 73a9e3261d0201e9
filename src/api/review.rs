//! The reviews by which a node asks an API server who a client is and what the client may do: TokenReview and
//! SubjectAccessReview (kubelet-probes 11.1).
//!
//! Invariant: pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thiserror::Error;

/// The user that an API server or a certificate names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name of the user. It is never empty.
    pub name: String,
    /// UID of the user, or empty.
    pub uid: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Further facts about the user, for the authorizer alone.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The reasons why there is no review.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoReview {
    /// Too many questions wait for the API server.
    #[error("too many other questions wait for the API server; try again later")]
    Busy,
    /// There is no connection to the API server.
    #[error("there is no connection to the API server")]
    NoConnection,
    /// The API server has not answered in time.
    #[error("the API server does not answer")]
    Late,
    /// The API server has answered with an error.
    #[error("the API server answers {code}: {message}")]
    Refused {
        /// HTTP status of the answer.
        code: u16,
        /// Sentence of the answer.
        message: String,
    },
}

/// The access to the node that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAccess<'a> {
    /// Verb of the API, for example `get`.
    pub verb: &'a str,
    /// Subresource of the node, for example `proxy`.
    pub subresource: &'a str,
    /// Name of the node.
    pub node: &'a str,
}

/// Returns the TokenReview that asks who has the token.
pub fn token_review(token: &str) -> Value {
    json!({
        "kind": "TokenReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "spec": {"token": token},
        "status": {"user": {}},
    })
}

/// Returns the SubjectAccessReview that asks whether the user may do something with the node.
pub fn access_review(user: &User, access: NodeAccess<'_>) -> Value {
    let mut spec = Map::new();
    let attributes = json!({
        "verb": access.verb,
        "version": "v1",
        "resource": "nodes",
        "subresource": access.subresource,
        "name": access.node,
    });
    spec.insert("resourceAttributes".into(), attributes);
    spec.insert("user".into(), user.name.as_str().into());
    if !user.groups.is_empty() {
        spec.insert("groups".into(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    })
}

/// Returns the user that a TokenReview names; None if the token is not valid.
pub fn reviewed_user(review: &Value) -> Option<User> {
    let status = &review["status"];
    if status["authenticated"] != true {
        return None;
    }
    let user = &status["user"];
    let text = |key: &str| user[key].as_str().unwrap_or_default().to_owned();
    let extra = user["extra"].as_object().into_iter().flatten();
    Some(User {
        name: Some(text("username")).filter(|name| !name.is_empty())?,
        uid: text("uid"),
        groups: texts(&user["groups"]),
        extra: extra.map(|(key, all)| (key.clone(), texts(all))).collect(),
    })
}

/// Returns true if a SubjectAccessReview allows the access.
pub fn is_allowed(review: &Value) -> bool {
    review["status"]["allowed"] == true && review["status"]["denied"] != true
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().map(Value::as_str);
    texts.flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_authenticated_token_has_a_user() {
        let review = |status: Value| reviewed_user(&json!({"status": status}));
        let user = json!({"username": "a", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}});
        let known = review(json!({"authenticated": true, "user": user})).unwrap();
        assert_eq!(
            known,
            User {
                name: "a".into(),
                uid: "u".into(),
                groups: vec!["g".into()],
                extra: [("k".to_owned(), vec!["v".to_owned()])].into(),
            }
        );
        for status in [
            json!({"user": user}),
            json!({"authenticated": false, "user": user}),
            json!({"authenticated": "true", "user": user}),
            json!({"authenticated": true, "user": {}}),
            json!({"user": {}, "error": "invalid bearer token"}),
            Value::Null,
        ] {
            assert_eq!(review(status.clone()), None, "{status}");
        }
    }

    #[test]
    fn an_access_is_allowed_by_a_true_alone() {
        let allowed = |status: Value| is_allowed(&json!({"status": status}));
        assert!(allowed(json!({"allowed": true})));
        assert!(!allowed(json!({"allowed": false})));
        assert!(!allowed(json!({"allowed": true, "denied": true})));
        assert!(!allowed(json!({"allowed": "true"})));
        assert!(!allowed(json!({})));
    }
}
