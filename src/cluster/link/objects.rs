//! The ConfigMaps, Secrets, claims, runtime classes, tokens and services that the pods of this node use: what is watched and asked for them, and what becomes of
//! the answers.
//!
//! Invariants: nothing is asked for that no pod uses. Each object has one watch for all pods that use it, on the connection
//! that everything goes over, so an object costs a stream and no thread. A server takes about a hundred streams; the
//! objects beyond [`MOST_WATCHES`] are read once a minute, as a kubelet without watches does. An object that can never
//! change is watched no longer once it is known. Claims and their volumes, which a node may not watch, are read until the
//! volume of a claim is known. Every last answer is kept on the disk for a start without the link.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::Watched;
use super::kept_objects::KeptObjects;
use crate::api::claimed_volume::{ClaimedVolume, NoVolume, bound_to};
use crate::api::decode;
use crate::api::objects::{
    LocalObject, ObjectContent, ObjectKey, ObjectKind, PersistentVolumeClaim,
};
use crate::api::references::references;
use crate::api::service::Service;
use crate::api::service_account::TokenKey;
use crate::api::{Pod, PodUid};
use crate::base::clock::Moment;
use crate::cluster::client::Client;
use crate::cluster::exchange::{Answer, BackOff, Method, Request};
use crate::cluster::reflector::{Change, Selection};
use crate::cluster::tokens::{Fetched, Tokens};
use crate::cluster::watches::Watches;
use crate::pods::objects::{MASTER_NAMESPACE, Objects};

/// Largest number of watches of all kinds, which leaves room for the requests of a node on its connection.
const MOST_WATCHES: usize = 64;
/// Largest number of watches with those of services.
const MOST_WITH_SERVICES: usize = 90;
/// Time for which the services of a namespace are watched after its last pod has gone. The next pod of a CronJob would ask for
/// all of them again.
const LINGER: Duration = Duration::from_secs(600);
/// Time between two readings of an object that has no watch.
const READ_PERIOD: Duration = Duration::from_secs(60);
/// Time before an object is read again that could not be read.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// The knowledge of the objects that pods use.
pub(super) struct PodObjects {
    store: Arc<Objects>,
    kept: KeptObjects,
    used: BTreeSet<ObjectKey>,
    /// The pods of the last set, each with its generation and whether it ends. The same pods use the same.
    seen: BTreeSet<(PodUid, Option<i64>, bool)>,
    /// The objects without a watch, with the moment of the next reading; None while a reading is under way.
    read: BTreeMap<ObjectKey, Option<Moment>>,
    /// The claims whose volumes are not known yet.
    claims: BTreeMap<ObjectKey, Claim>,
    /// The pods that use each claim.
    claim_users: BTreeMap<ObjectKey, BTreeSet<PodUid>>,
    tokens: Tokens,
    /// The services of each namespace that pods are in, or were a moment ago.
    services: BTreeMap<String, Namespace>,
}

/// A claim whose volume is not known yet.
#[derive(Default)]
struct Claim {
    /// The claim with the name of its volume, which is read next; None while the claim is read.
    bound: Option<(Value, String)>,
    back_off: BackOff,
}

/// The services of a namespace.
#[derive(Default)]
struct Namespace {
    /// The services by their names.
    services: BTreeMap<String, Arc<Service>>,
    /// The moment since which no pod is in the namespace; None if there is one.
    unused_since: Option<Moment>,
}

impl PodObjects {
    /// Begins without pods. `kept` is the directory of what is kept for a start without the link.
    pub(super) fn new(store: Arc<Objects>, kept: PathBuf) -> Self {
        Self {
            store,
            kept: KeptObjects::open(kept),
            used: BTreeSet::new(),
            seen: BTreeSet::new(),
            read: BTreeMap::new(),
            claims: BTreeMap::new(),
            claim_users: BTreeMap::new(),
            tokens: Tokens::default(),
            services: BTreeMap::new(),
        }
    }

    /// Begins anew after a panic, without any watch. What the pods know stays.
    pub(super) fn doubt(&mut self) {
        self.seen.clear();
        self.used.clear();
        self.read.clear();
        self.claims.clear();
        self.claim_users.clear();
        self.tokens = Tokens::default();
        self.services.clear();
    }

    /// Takes the pods that should run here, before they are handed on.
    pub(super) fn use_by(
        &mut self,
        now: Moment,
        pods: &[Arc<Pod>],
        watches: &mut Watches<Watched>,
        client: &mut Client,
    ) {
        let seen = pods.iter().map(|pod| {
            let metadata = &pod.metadata;
            let is_ending = metadata.deletion_timestamp.is_some();
            (pod.uid().clone(), metadata.generation, is_ending)
        });
        let seen: BTreeSet<_> = seen.collect();
        // Most sets differ in the statuses of the pods alone.
        if seen == self.seen && !seen.is_empty() {
            return;
        }
        self.seen = seen;
        let keys = pods.iter().flat_map(|pod| references(pod));
        let is_asked_for = |key: &ObjectKey| ObjectKind::OF_API.contains(&key.kind);
        let used: BTreeSet<ObjectKey> = keys.filter(is_asked_for).collect();
        for key in self.claims_of_new_pods(pods) {
            self.used.remove(&key);
            self.read.remove(&key);
            self.claims.remove(&key);
            self.store.forget_of_api(&key);
            self.kept.put(&key, None);
        }
        for key in self.used.difference(&used) {
            watches.remove(&Watched::Object(key.clone()), client);
            self.read.remove(key);
            self.claims.remove(key);
            self.store.forget_of_api(key);
        }
        for key in used.difference(&self.used) {
            if let Some(object) = self.kept.object(key) {
                put(&self.store, key, Some(object));
            }
            match selection(key) {
                Some(selection) if watches.len() < MOST_WATCHES => {
                    watches.add(Watched::Object(key.clone()), selection);
                }
                _ => drop(self.read.insert(key.clone(), Some(now))),
            }
        }
        self.used = used;
        self.use_services(now, pods, watches, client);
        self.use_tokens(now, pods);
        self.kept.retain(&self.used, self.tokens.keys());
    }

    /// Takes the pods that use claims, and returns the claims of which every user is another than before. In between
    /// the claim may have been deleted and made anew for another volume; as long as one of its users stays, it cannot be.
    fn claims_of_new_pods(&mut self, pods: &[Arc<Pod>]) -> Vec<ObjectKey> {
        let mut users: BTreeMap<ObjectKey, BTreeSet<PodUid>> = BTreeMap::new();
        for pod in pods {
            let claims = references(pod).into_iter();
            for key in claims.filter(|key| key.kind == ObjectKind::PersistentVolumeClaim) {
                users.entry(key).or_default().insert(pod.uid().clone());
            }
        }
        let before = std::mem::replace(&mut self.claim_users, users);
        let is_new = |(key, old): &(ObjectKey, BTreeSet<PodUid>)| {
            let now = self.claim_users.get(key);
            now.is_some_and(|now| now.is_disjoint(old))
        };
        before
            .into_iter()
            .filter(is_new)
            .map(|(key, _)| key)
            .collect()
    }

    fn use_services(
        &mut self,
        now: Moment,
        pods: &[Arc<Pod>],
        watches: &mut Watches<Watched>,
        client: &mut Client,
    ) {
        let namespaces = pods.iter().map(|pod| pod.metadata.namespace.clone());
        let mut used: BTreeSet<String> = namespaces.collect();
        if !used.is_empty() {
            used.insert(MASTER_NAMESPACE.to_owned());
        }
        for (namespace, known) in &mut self.services {
            known.unused_since = match used.contains(namespace) {
                true => None,
                false => known.unused_since.or(Some(now)),
            };
        }
        let known: BTreeSet<String> = self.services.keys().cloned().collect();
        for namespace in used.difference(&known) {
            if watches.len() >= MOST_WITH_SERVICES {
                self.forget_services(now + LINGER, watches, client);
            }
            self.services
                .insert(namespace.clone(), Namespace::default());
            if watches.len() < MOST_WITH_SERVICES {
                let selection = Selection::services_of(namespace);
                watches.add(Watched::Services(namespace.clone()), selection);
            } else {
                log::warn!(
                    "pods of the namespace {namespace} get no variables for services: pods of too many namespaces run here"
                );
                self.store.put_services(namespace, Some(Vec::new()));
            }
        }
    }

    /// Ends the watches of services that no pod has used for [`LINGER`].
    pub(super) fn forget_services(
        &mut self,
        now: Moment,
        watches: &mut Watches<Watched>,
        client: &mut Client,
    ) {
        let store = &self.store;
        self.services.retain(|namespace, known| {
            let is_used = known.unused_since.is_none_or(|since| now < since + LINGER);
            if !is_used {
                watches.remove(&Watched::Services(namespace.clone()), client);
                store.put_services(namespace, None);
            }
            is_used
        });
    }

    /// Takes what the watch of the services of a namespace has brought.
    pub(super) fn observe_services(&mut self, namespace: &str, change: Change) {
        let Some(Namespace { services, .. }) = self.services.get_mut(namespace) else {
            return;
        };
        match change {
            Change::Replaced(objects) => {
                *services = objects.into_iter().filter_map(service).collect();
            }
            Change::Added(object) | Change::Modified(object) => services.extend(service(object)),
            Change::Deleted(object) => {
                let name = object["metadata"]["name"].as_str();
                services.remove(name.unwrap_or_default());
            }
        }
        let all = services.iter().map(|(name, service)| {
            let key = ObjectKey::new(ObjectKind::Service, namespace, name);
            (key, service.clone())
        });
        self.store.put_services(namespace, Some(all.collect()));
    }

    fn use_tokens(&mut self, now: Moment, pods: &[Arc<Pod>]) {
        let (old, new) = self.tokens.use_by(now, pods.iter().map(Arc::as_ref));
        old.iter().for_each(|key| self.store.forget_token(key));
        let wall = SystemTime::now();
        for key in new {
            let Some(kept) = self.kept.token(&key) else {
                continue;
            };
            if self.tokens.restore(now, wall, &key, &kept) {
                log::warn!(
                    "the token of the service account {} for the pod {} has expired; it is renewed when the API server can \
                     be asked",
                    key.service_account,
                    key.pod
                );
            }
            self.store.put_token(&key, Ok(kept.token));
        }
    }

    /// Takes what the watch of an object has brought.
    pub(super) fn observe(
        &mut self,
        key: &ObjectKey,
        change: Change,
        watches: &mut Watches<Watched>,
        client: &mut Client,
    ) {
        let object = match change {
            Change::Replaced(objects) => objects.into_iter().next(),
            Change::Added(object) | Change::Modified(object) => Some(object),
            Change::Deleted(_) => None,
        };
        if self.take(key, object) {
            watches.remove(&Watched::Object(key.clone()), client);
        }
    }

    /// Takes an object; None if it is missing. Returns true if it can never change.
    fn take(&mut self, key: &ObjectKey, object: Option<Value>) -> bool {
        if !self.used.contains(key) {
            return false;
        }
        self.kept.put(key, object.as_ref());
        put(&self.store, key, object)
    }

    /// Returns the readings of objects that are due.
    pub(super) fn read_due(&mut self, now: Moment) -> Vec<(ObjectKey, Request)> {
        let due = self.read.iter_mut();
        let due = due.filter(|(_, at)| at.is_some_and(|at| now >= at));
        let volume = |key: &ObjectKey| Some(&self.claims.get(key)?.bound.as_ref()?.1);
        due.map(|(key, at)| {
            *at = None;
            let path = volume(key).map_or_else(|| path_of(key), |name| path_of_volume(name));
            (key.clone(), get(path))
        })
        .collect()
    }

    /// Takes the answer to the reading of an object.
    pub(super) fn answered(&mut self, now: Moment, key: &ObjectKey, answer: &Answer) {
        if key.kind == ObjectKind::PersistentVolumeClaim {
            return self.claim_answered(now, key, answer);
        }
        let Some(at) = self.read.get_mut(key) else {
            return;
        };
        let again = match answer.code() {
            200 | 404 => READ_PERIOD,
            _ => answer.retry_after().unwrap_or(READ_AGAIN),
        };
        *at = Some(now + again);
        let is_final = match (answer.object(), answer.code()) {
            (Some(object), _) => self.take(key, Some(object.clone())),
            (None, 404) => self.take(key, None),
            (None, code) => {
                log::debug!("cannot read {key}: {code} {}", answer.message());
                false
            }
        };
        if is_final {
            self.read.remove(key);
        }
    }

    /// Takes the answer to the reading of a claim, or of the volume that it is bound to.
    fn claim_answered(&mut self, now: Moment, key: &ObjectKey, answer: &Answer) {
        let Some(at) = self.read.get_mut(key) else {
            return;
        };
        let claim = self.claims.entry(key.clone()).or_default();
        // What is known now; None if the answer says nothing.
        let known = match (claim.bound.take(), answer.object(), answer.code()) {
            (None, Some(object), _) => match bound_to(object) {
                Ok(volume) => {
                    claim.bound = Some((object.clone(), volume.to_owned()));
                    *at = Some(now);
                    return;
                }
                Err(why) => Some(Some(claim_content(Err(why)))),
            },
            (None, None, 404) => Some(None),
            (Some((mut object, _)), Some(volume), _) => match ClaimedVolume::of(&object, volume) {
                Ok(_) => {
                    object[VOLUME] = volume.clone();
                    self.read.remove(key);
                    self.claims.remove(key);
                    self.take(key, Some(object));
                    return;
                }
                Err(why) => Some(Some(claim_content(Err(why)))),
            },
            (Some((_, volume)), None, 404) => {
                Some(Some(claim_content(Err(NoVolume::Missing(volume)))))
            }
            (_, None, code) => {
                log::debug!("cannot read {key}: {code} {}", answer.message());
                None
            }
        };
        *at = Some(now + claim.back_off.next(answer.retry_after()));
        if let Some(content) = known {
            self.store.put_of_api(key, content);
        }
    }

    /// Returns the requests for tokens that are due.
    pub(super) fn tokens_due(&mut self, now: Moment) -> Vec<(TokenKey, Request)> {
        self.tokens.next(now)
    }

    /// Takes the answer to a request for a token. `random` is at least 0 and below 1.
    pub(super) fn token_answered(
        &mut self,
        now: Moment,
        key: &TokenKey,
        answer: &Answer,
        random: f64,
    ) {
        let TokenKey {
            pod,
            service_account,
            ..
        } = key;
        match self.tokens.answered(now, key, answer, random) {
            Fetched::Token(issued) => {
                self.kept.put_token(key, &issued);
                self.store.put_token(key, Ok(issued.token));
            }
            Fetched::None(why) => self.store.put_token(key, Err(why)),
            Fetched::Kept { why, has_expired } if has_expired => log::warn!(
                "the token of the service account {service_account} for the pod {pod} has expired and cannot be renewed: {}",
                match why.as_str() {
                    "" => "the API server does not answer",
                    why => why,
                }
            ),
            Fetched::Kept { why, .. } => log::debug!(
                "the token of the service account {service_account} for the pod {pod} cannot be renewed yet: {why}"
            ),
            Fetched::Again => {}
        }
    }

    /// Returns the moment at which something is due although nothing comes.
    pub(super) fn deadline(&self) -> Option<Moment> {
        let read = self.read.values().copied().flatten();
        let unused = self.services.values().filter_map(|of| of.unused_since);
        let unused = unused.map(|since| since + LINGER);
        read.chain(self.tokens.deadline()).chain(unused).min()
    }
}

/// Hands an object on; None if it is missing. Returns true if it can never change.
fn put(store: &Objects, key: &ObjectKey, object: Option<Value>) -> bool {
    let Some(object) = object else {
        store.put_of_api(key, None);
        return false;
    };
    if key.kind == ObjectKind::PersistentVolumeClaim {
        let volume = ClaimedVolume::of(&object, &object[VOLUME]);
        store.put_of_api(key, Some(claim_content(volume)));
        return false;
    }
    match decode::api_object(key.kind, object) {
        Ok(object) => {
            let is_final = is_immutable(&object.content);
            store.put_of_api(key, Some(object.content));
            is_final
        }
        Err(e) => {
            log::warn!("{key} of the API server is not used: {}", e.one_line());
            false
        }
    }
}

/// Reads a service, with its name.
fn service(object: Value) -> Option<(String, Arc<Service>)> {
    match decode::api_object(ObjectKind::Service, object) {
        Ok(LocalObject {
            key,
            content: ObjectContent::Service(service),
        }) => Some((key.name, service)),
        Ok(_) => None,
        Err(e) => {
            log::debug!("a service of the API server is not used: {}", e.one_line());
            None
        }
    }
}

fn is_immutable(content: &ObjectContent) -> bool {
    match content {
        ObjectContent::ConfigMap(map) => map.immutable,
        ObjectContent::Secret(secret) => secret.immutable,
        _ => false,
    }
}

/// The field of a claim in which its volume is kept.
const VOLUME: &str = "persistentVolume";

fn claim_content(volume: Result<ClaimedVolume, NoVolume>) -> ObjectContent {
    ObjectContent::PersistentVolumeClaim(Arc::new(PersistentVolumeClaim {
        volume: Some(volume),
        ..PersistentVolumeClaim::default()
    }))
}

/// The selection of an object that a node watches; None for objects that it may not watch.
fn selection(key: &ObjectKey) -> Option<Selection> {
    match key.kind {
        ObjectKind::ConfigMap => Some(Selection::config_map(&key.namespace, &key.name)),
        ObjectKind::Secret => Some(Selection::secret(&key.namespace, &key.name)),
        ObjectKind::RuntimeClass => Some(Selection::runtime_class(&key.name)),
        _ => None,
    }
}

fn path_of_volume(name: &str) -> String {
    format!("/api/v1/persistentvolumes/{name}")
}

fn path_of(key: &ObjectKey) -> String {
    let ObjectKey {
        kind,
        namespace,
        name,
    } = key;
    match kind {
        ObjectKind::RuntimeClass => format!("/apis/node.k8s.io/v1/runtimeclasses/{name}"),
        _ => format!("/api/v1/namespaces/{namespace}/{}s/{name}", kind.resource()),
    }
}

fn get(path: String) -> Request {
    Request {
        method: Method::Get,
        path,
        body: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::source::SOURCE_ANNOTATION;
    use crate::base::bell::Bell;
    use crate::test_pods;

    fn pod_in(namespace: &str) -> Arc<Pod> {
        let pod = test_pods::pod("p").annotation(SOURCE_ANNOTATION, "api");
        let mut pod = pod.build();
        pod.metadata.namespace = namespace.to_owned();
        pod.metadata.uid = namespace.into();
        pod.into()
    }

    /// The knowledge of a node without pods, and a link that leads nowhere.
    fn begun(directory: &std::path::Path) -> (PodObjects, Watches<Watched>, Client) {
        let bell = Arc::new(Bell::new().unwrap());
        let client = Client::new(directory.join("none"), bell, at(0));
        let objects = PodObjects::new(Arc::default(), directory.to_owned());
        (objects, Watches::default(), client)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(10_000 + seconds))
    }

    /// A pod that uses the claim `data`.
    fn claimant(uid: &str) -> Arc<Pod> {
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}});
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "volumes": [volume]});
        let pod = test_pods::pod("p").annotation(SOURCE_ANNOTATION, "api");
        let mut pod = pod.spec(spec).build();
        pod.metadata.uid = uid.into();
        pod.into()
    }

    /// While the link was away, a pod and its claim may have been deleted and made anew with the same names.
    #[test]
    fn a_claim_is_read_again_for_pods_that_are_all_new() {
        let directory = tempfile::tempdir().unwrap();
        let (mut objects, mut watches, mut client) = begun(directory.path());
        let mut reads = |objects: &mut PodObjects, uids: &[&str]| {
            let pods: Vec<_> = uids.iter().map(|uid| claimant(uid)).collect();
            objects.use_by(at(0), &pods, &mut watches, &mut client);
            objects.read_due(at(0)).len()
        };
        assert_eq!(reads(&mut objects, &["a"]), 1);
        let key = ObjectKey::new(ObjectKind::PersistentVolumeClaim, "default", "data");
        let volume = json!({"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": "/old"}}});
        objects.take(
            &key,
            Some(json!({"metadata": {"name": "data"}, "persistentVolume": volume})),
        );
        objects.read.remove(&key);
        assert_eq!(reads(&mut objects, &["a", "b"]), 0);
        assert!(objects.kept.object(&key).is_some());
        assert_eq!(reads(&mut objects, &["c"]), 1);
        assert!(
            objects.kept.object(&key).is_none(),
            "the old volume is not known any more"
        );
    }

    #[test]
    fn services_are_watched_for_a_while_after_the_last_pod() {
        let directory = tempfile::tempdir().unwrap();
        let (mut objects, mut watches, mut client) = begun(directory.path());
        let watched =
            |watches: &Watches<Watched>| watches.has(&Watched::Services("jobs".to_owned()));
        let (jobs, other) = ([pod_in("jobs")], [pod_in("other")]);
        objects.use_by(at(0), &jobs, &mut watches, &mut client);
        assert!(watched(&watches));
        objects.use_by(at(10), &other, &mut watches, &mut client);
        assert_eq!(objects.deadline(), Some(at(10) + LINGER));
        objects.forget_services(at(300), &mut watches, &mut client);
        objects.use_by(at(300), &jobs, &mut watches, &mut client);
        objects.forget_services(at(10) + LINGER, &mut watches, &mut client);
        assert!(watched(&watches), "it was used again");
        objects.use_by(at(900), &other, &mut watches, &mut client);
        objects.forget_services(at(899) + LINGER, &mut watches, &mut client);
        assert!(watched(&watches));
        objects.forget_services(at(900) + LINGER, &mut watches, &mut client);
        assert!(!watched(&watches));
    }
}
