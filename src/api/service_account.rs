//! The tokens of service accounts that a pod of an API server has in its projected volumes.
//!
//! Invariant: a token is in no text. Only [`Token::expose`] returns it, for the file that a container reads and for the
//! record of a token.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::PodUid;
use super::field_ref::service_account_name;
use super::pod::{Pod, ServiceAccountTokenProjection};

/// Name of the service account of a pod that names none.
const DEFAULT: &str = "default";

/// A token that a pod asks for. Two volumes that ask for the same get the same token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// UID of the pod.
    pub pod: PodUid,
    /// Name of the service account, in the namespace of the pod.
    pub service_account: String,
    /// Audience of the token, or empty for the API server.
    pub audience: String,
    /// Life that is asked for, in seconds.
    pub expiration_seconds: i64,
}

impl TokenKey {
    /// Returns the token that a source of a projected volume asks for.
    pub fn of(pod: &Pod, source: &ServiceAccountTokenProjection) -> Self {
        let name = service_account_name(pod);
        Self {
            pod: pod.uid().clone(),
            service_account: if name.is_empty() {
                DEFAULT.to_owned()
            } else {
                name
            },
            audience: source.audience.clone(),
            expiration_seconds: source.expiration_seconds,
        }
    }

    /// Returns every token that the volumes of the pod ask for.
    pub fn all_of(pod: &Pod) -> BTreeSet<Self> {
        let volumes = pod.spec.volumes.iter().filter_map(|v| v.projected.as_ref());
        let sources = volumes.flat_map(|volume| &volume.sources);
        let tokens = sources.filter_map(|source| source.service_account_token.as_ref());
        tokens.map(|source| Self::of(pod, source)).collect()
    }
}

/// A token of a service account.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Returns the text of the token.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The reason why a pod has no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoToken {
    /// The API server has not answered yet.
    #[error("failed to fetch token: the API server has not answered yet")]
    NotKnown,
    /// The API server refuses the token, with this sentence.
    #[error("failed to fetch token: {0}")]
    Refused(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_pods;

    #[test]
    fn a_pod_asks_for_each_token_once_and_for_the_default_account() {
        let token = |audience: &str| json!({"serviceAccountToken": {"path": "t", "audience": audience, "expirationSeconds": 600}});
        let spec = json!({"volumes": [
            {"name": "a", "projected": {"sources": [token(""), token("vault"), {"downwardAPI": {}}]}},
            {"name": "b", "projected": {"sources": [token("")]}},
            {"name": "c", "configMap": {"name": "m"}}]});
        let pod = test_pods::pod("p").spec(spec.clone()).build();
        let tokens: Vec<TokenKey> = TokenKey::all_of(&pod).into_iter().collect();
        let shown = |tokens: &[TokenKey]| -> Vec<String> {
            let shown = tokens.iter();
            shown
                .map(|t| {
                    format!(
                        "{} {:?} {}",
                        t.service_account, t.audience, t.expiration_seconds
                    )
                })
                .collect()
        };
        assert_eq!(
            shown(&tokens),
            ["default \"\" 600", "default \"vault\" 600"]
        );
        assert_eq!(tokens[0].pod, *pod.uid());
        let mut spec = spec;
        spec["serviceAccountName"] = "robot".into();
        let pod = test_pods::pod("p").spec(spec).build();
        let tokens: Vec<TokenKey> = TokenKey::all_of(&pod).into_iter().collect();
        assert_eq!(shown(&tokens)[0], "robot \"\" 600");
    }

    #[test]
    fn a_debug_text_does_not_show_the_token() {
        assert_eq!(format!("{:?}", Token::from("hunter2")), "Token");
    }
}
