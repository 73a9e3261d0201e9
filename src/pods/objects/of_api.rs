//! The objects and tokens of an API server that the pods of this node use. They come one by one.
//!
//! Invariant: an object that is not in the store is one of which nothing is known yet. An object that is known to be
//! missing is in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::api::PodUid;
use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind, ObjectSet};
use crate::api::service::Service;
use crate::api::service_account::{NoToken, Token, TokenKey};
use crate::net::services::inputs::ServiceObjects;

/// The knowledge of the objects and tokens of an API server.
#[derive(Default)]
pub(super) struct ApiObjects {
    /// Each object of which something is known. None for one that is missing.
    objects: BTreeMap<ObjectKey, Option<ObjectContent>>,
    tokens: BTreeMap<TokenKey, Result<Token, NoToken>>,
    /// The services of each namespace of which they are known.
    services: BTreeMap<String, Vec<(ObjectKey, Arc<Service>)>>,
    /// All services and endpoint slices of the cluster; None if this node does not serve them, or knows none yet.
    pub(super) served: Option<ServiceObjects>,
    /// The pods whose tokens have changed since the last call of [`Self::take_changed`].
    changed: BTreeSet<PodUid>,
}

impl ApiObjects {
    /// Takes an object, or the knowledge that it is missing. Returns true if that is new.
    pub(super) fn put(&mut self, key: &ObjectKey, content: Option<ObjectContent>) -> bool {
        let is_new = self.objects.get(key) != Some(&content);
        if is_new {
            self.objects.insert(key.clone(), content);
        }
        is_new
    }

    /// Forgets what is known of an object.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        self.objects.remove(key);
    }

    /// Takes a token, or the reason why there is none. Returns true if that is new.
    pub(super) fn put_token(&mut self, key: &TokenKey, token: Result<Token, NoToken>) -> bool {
        let is_new = self.tokens.get(key) != Some(&token);
        if is_new {
            self.tokens.insert(key.clone(), token);
            self.changed.insert(key.pod.clone());
        }
        is_new
    }

    /// Forgets a token.
    pub(super) fn forget_token(&mut self, key: &TokenKey) {
        self.tokens.remove(key);
    }

    /// Takes all services of a namespace; None to forget them.
    pub(super) fn put_services(
        &mut self,
        namespace: &str,
        services: Option<Vec<(ObjectKey, Arc<Service>)>>,
    ) {
        match services {
            Some(services) => drop(self.services.insert(namespace.to_owned(), services)),
            None => drop(self.services.remove(namespace)),
        }
    }

    /// Returns the services of a namespace, or nothing while they are not known.
    pub(super) fn services(&self, namespace: &str) -> Vec<(ObjectKey, Arc<Service>)> {
        self.services.get(namespace).cloned().unwrap_or_default()
    }

    /// True if the services of these namespaces are known.
    pub(super) fn knows_services(&self, namespaces: &[&str]) -> bool {
        let mut namespaces = namespaces.iter();
        namespaces.all(|namespace| self.services.contains_key(*namespace))
    }

    /// Returns the pods whose tokens have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<PodUid> {
        std::mem::take(&mut self.changed)
    }

    /// True if something is known of each of these objects and tokens.
    pub(super) fn knows(&self, keys: &BTreeSet<ObjectKey>, tokens: &BTreeSet<TokenKey>) -> bool {
        let mut keys = keys.iter().filter(|key| is_asked_for(key));
        keys.all(|key| self.objects.contains_key(key))
            && tokens.iter().all(|key| self.tokens.contains_key(key))
    }

    /// Returns what is known of these objects and tokens.
    pub(super) fn of(&self, keys: BTreeSet<ObjectKey>, tokens: BTreeSet<TokenKey>) -> ObjectSet {
        let there = keys.iter().filter_map(|key| {
            let content = self.objects.get(key)?.clone()?;
            let key = key.clone();
            Some(LocalObject { key, content })
        });
        let mut set: ObjectSet = there.collect();
        for key in keys {
            if is_asked_for(&key) && !self.objects.contains_key(&key) {
                set.add_unknown(key);
            }
        }
        for key in tokens {
            let token = self.tokens.get(&key).cloned();
            set.add_token(key, token.unwrap_or(Err(NoToken::NotKnown)));
        }
        set
    }
}

/// True if the API server is asked for objects of this kind.
fn is_asked_for(key: &ObjectKey) -> bool {
    ObjectKind::OF_API.contains(&key.kind)
}
