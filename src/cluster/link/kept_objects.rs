//! The ConfigMaps, Secrets and tokens that the API server has given, kept on the disk for a start without the link.
//!
//! Invariants: only root can read the records. A record is written when what it says has changed, and removed when no pod
//! uses it. An object that is missing has no record.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ring::digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kept::Kept;
use crate::api::objects::{ObjectKey, ObjectKind};
use crate::api::service_account::TokenKey;
use crate::base::json;
use crate::cluster::tokens::IssuedToken;

/// Number of bytes of a digest that name a record.
const ID: usize = 16;
/// Word for a record in the log.
const WHAT: &str = "the object";

/// An object or a token as it is kept: one of the two.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<KeptObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<KeptToken>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptObject {
    // The record is found by its id. Kind, namespace and name are for a person who looks at it.
    kind: ObjectKind,
    namespace: String,
    name: String,
    /// The object as text, which takes less memory than a tree of values.
    content: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptToken {
    // As of an object: the first four fields are for a person.
    pod: String,
    service_account: String,
    audience: String,
    expiration_seconds: i64,
    token: String,
    life_seconds: u64,
    /// Seconds since 1970.
    expires: u64,
}

/// All kept objects and tokens.
pub(super) struct KeptObjects(Kept<Record>);

impl KeptObjects {
    /// Reads what an earlier daemon has kept.
    pub(super) fn open(directory: PathBuf) -> Self {
        let cost = "pods with ConfigMaps and Secrets start when the API server can be asked";
        Self(Kept::open(directory, cost))
    }

    /// Returns the object as it was last.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<Value> {
        let kept = self.0.get(&id_of_object(key))?.object.as_ref()?;
        json::from_slice(kept.content.as_bytes()).ok()
    }

    /// Returns the token that was issued last.
    pub(super) fn token(&self, key: &TokenKey) -> Option<IssuedToken> {
        let kept = self.0.get(&id_of_token(key))?.token.as_ref()?;
        Some(IssuedToken {
            token: kept.token.as_str().into(),
            life: Duration::from_secs(kept.life_seconds),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(kept.expires),
        })
    }

    /// Takes an object; None if it is missing.
    pub(super) fn put(&mut self, key: &ObjectKey, object: Option<&Value>) {
        let id = id_of_object(key);
        let Some(object) = object else {
            return self.0.remove(&id, WHAT);
        };
        let content = stripped(object).to_string();
        let known = self.0.get(&id).and_then(|kept| kept.object.as_ref());
        if known.is_some_and(|known| known.content == content) {
            return;
        }
        let object = KeptObject {
            kind: key.kind,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            content,
        };
        let record = Record {
            object: Some(object),
            token: None,
        };
        self.0.put(&id, record, &key.to_string());
    }

    /// Takes a token.
    pub(super) fn put_token(&mut self, key: &TokenKey, issued: &IssuedToken) {
        let expires = issued.expires.duration_since(SystemTime::UNIX_EPOCH);
        let token = KeptToken {
            pod: key.pod.to_string(),
            service_account: key.service_account.clone(),
            audience: key.audience.clone(),
            expiration_seconds: key.expiration_seconds,
            token: issued.token.expose().to_owned(),
            life_seconds: issued.life.as_secs(),
            expires: expires.unwrap_or_default().as_secs(),
        };
        let record = Record {
            object: None,
            token: Some(token),
        };
        self.0.put(&id_of_token(key), record, "a token");
    }

    /// Removes all but these objects and tokens, which are in use.
    pub(super) fn retain<'k>(
        &mut self,
        objects: &BTreeSet<ObjectKey>,
        tokens: impl Iterator<Item = &'k TokenKey>,
    ) {
        let objects = objects.iter().map(id_of_object);
        let ids: BTreeSet<String> = objects.chain(tokens.map(id_of_token)).collect();
        self.0.retain(WHAT, |id| ids.contains(id));
    }
}

/// Returns the object without the metadata that changes with its version, or that nobody here reads.
fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["resourceVersion", "managedFields"] {
            metadata.shift_remove(field);
        }
    }
    object
}

fn id_of_object(key: &ObjectKey) -> String {
    id(&[key.kind.as_str(), &key.namespace, &key.name])
}

fn id_of_token(key: &TokenKey) -> String {
    let seconds = key.expiration_seconds.to_string();
    id(&[
        "token",
        key.pod.as_str(),
        &key.service_account,
        &key.audience,
        &seconds,
    ])
}

/// Returns the name of a record. Names of objects are too long for names of files, and an audience is any text.
fn id(parts: &[&str]) -> String {
    let digest = digest::digest(&digest::SHA256, parts.join("\n").as_bytes());
    let digits = digest.as_ref().iter().take(ID);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::Pod;
    use crate::test_pods;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Secret, "default", name)
    }

    fn token_key(pod: &Pod) -> TokenKey {
        TokenKey::all_of(pod).pop_first().unwrap()
    }

    fn pod() -> Arc<Pod> {
        let token = json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 600}});
        let volume = json!({"name": "t", "projected": {"sources": [token]}});
        test_pods::pod("p").spec(json!({"volumes": [volume]})).arc()
    }

    fn secret(value: &str, version: u32) -> Value {
        json!({"metadata": {"name": "a", "resourceVersion": version.to_string()}, "data": {"k": value}})
    }

    fn issued() -> IssuedToken {
        IssuedToken {
            token: "one".into(),
            life: Duration::from_secs(600),
            expires: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        }
    }

    #[test]
    fn what_pods_use_is_found_again_and_the_rest_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || KeptObjects::open(directory.path().to_owned());
        let pod = pod();
        let mut kept = open();
        kept.put(&key("a"), Some(&secret("djE=", 1)));
        kept.put(&key("a"), Some(&secret("djI=", 2)));
        kept.put(&key("b"), Some(&secret("djE=", 3)));
        kept.put(&key("c"), Some(&secret("djE=", 4)));
        kept.put(&key("c"), None);
        kept.put_token(&token_key(&pod), &issued());
        let mut again = open();
        assert_eq!(again.object(&key("a")).unwrap()["data"]["k"], "djI=");
        assert!(again.object(&key("b")).is_some() && again.object(&key("c")).is_none());
        assert_eq!(again.token(&token_key(&pod)), Some(issued()));
        again.retain(&[key("a")].into(), [&token_key(&pod)].into_iter());
        let again = open();
        assert!(again.object(&key("a")).is_some() && again.object(&key("b")).is_none());
        assert!(again.token(&token_key(&pod)).is_some());
        let mut again = open();
        again.retain(&BTreeSet::new(), [].into_iter());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_new_version_of_the_same_content_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut kept = KeptObjects::open(directory.path().to_owned());
        kept.put(&key("a"), Some(&secret("djE=", 1)));
        let file = fs::read_dir(directory.path()).unwrap().next().unwrap();
        fs::remove_file(file.unwrap().path()).unwrap();
        kept.put(&key("a"), Some(&secret("djE=", 2)));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn nobody_but_root_reads_a_record() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let mut kept = KeptObjects::open(directory.path().to_owned());
        kept.put(&key("a"), Some(&secret("djE=", 1)));
        let file = fs::read_dir(directory.path()).unwrap().next().unwrap();
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn names_that_are_joined_differently_do_not_meet() {
        assert_ne!(id(&["a", "b"]), id(&["ab"]));
        let long = "n".repeat(253);
        assert_eq!(id_of_object(&key(&long)).len(), 2 * ID);
    }
}
