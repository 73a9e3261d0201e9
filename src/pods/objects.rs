//! The objects of all sources that are not pods.
//!
//! Invariants: a source always passes its full set. If the file of an object has become bad, the set has the last good
//! version of the object. If two sources have the same object, the first source in the order of [`PodSource`] counts.
//! A pod of an API server sees the objects of the API server only, and every other pod sees all others only: nobody can
//! give a pod a Secret by a file or an object of the same name that the pod's author does not know of.
//! Each reader of changes has its own account, so that no reader takes the changes of another reader. Hooks are called
//! after the lock of the store is released.

mod of_api;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::of_api::ApiObjects;
use crate::api::objects::{LocalObject, ObjectContent, ObjectKey, ObjectKind, ObjectSet};
use crate::api::references::references;
use crate::api::service::Service;
use crate::api::service_account::{NoToken, Token, TokenKey};
use crate::api::{Pod, PodSource, PodUid};
use crate::base::cancel::Cancel;
use crate::base::locks::Locked;
use crate::net::services::inputs::ServiceObjects;

type Set = BTreeMap<ObjectKey, ObjectContent>;
type Hook = Arc<dyn Fn() + Send + Sync>;

/// The changes that one reader has not taken yet.
struct Account {
    /// The kinds of objects that the reader watches.
    kinds: &'static [ObjectKind],
    /// The objects that were added, changed or removed since the reader last took its changes.
    changed: BTreeSet<ObjectKey>,
    hook: Hook,
}

impl Account {
    /// Notes the changes that concern the reader. Returns true if there are any.
    fn note(&mut self, changed: &[ObjectKey]) -> bool {
        let mine = changed.iter().filter(|key| self.kinds.contains(&key.kind));
        let mine: Vec<ObjectKey> = mine.cloned().collect();
        self.changed.extend(mine.iter().cloned());
        !mine.is_empty()
    }
}

struct State {
    /// The objects of each source of full sets.
    sets: BTreeMap<PodSource, Set>,
    of_api: ApiObjects,
    /// The account of the sync loop, for objects that pods refer to.
    of_pods: Account,
    /// The accounts of the readers that [`Objects::watch`] has added.
    watches: Vec<Account>,
}

impl State {
    fn get(&self, key: &ObjectKey) -> Option<&ObjectContent> {
        self.sets.values().find_map(|set| set.get(key))
    }

    /// Returns each object of the sources in the order of the keys. If two sources have the same object, the first
    /// source counts.
    fn used(&self) -> BTreeMap<&ObjectKey, &ObjectContent> {
        // The first source is inserted last, so its objects replace the same objects of later sources.
        self.sets.values().rev().flatten().collect()
    }

    /// Notes changes in all accounts. Returns the hooks to call.
    fn note(&mut self, changed: &[ObjectKey], is_first: bool) -> Vec<Hook> {
        let of_pods = self
            .of_pods
            .note(changed)
            .then(|| self.of_pods.hook.clone());
        let watches = self.watches.iter_mut();
        let told = watches.filter_map(|watch| {
            let concerned = watch.note(changed);
            (concerned || is_first).then(|| watch.hook.clone())
        });
        of_pods.into_iter().chain(told).collect()
    }
}

/// The store of objects. The sources write the objects. The volumes and variables of pods, and the services, read them.
pub struct Objects {
    state: Mutex<State>,
    /// Something of the API server has become known.
    known: Condvar,
}

/// Kinds of objects that pods refer to.
const OF_PODS: [ObjectKind; 4] = [
    ObjectKind::ConfigMap,
    ObjectKind::Secret,
    ObjectKind::PersistentVolumeClaim,
    ObjectKind::RuntimeClass,
];

/// Namespace of the API server's own service, which every pod gets variables for.
pub const MASTER_NAMESPACE: &str = "default";

/// Time between two looks whether a wait for objects is cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// The changes since the sync loop last took them.
#[derive(Debug, Default)]
pub struct Changed {
    /// The objects that were added, changed or removed.
    objects: BTreeSet<ObjectKey>,
    /// The pods whose tokens have changed.
    pods: BTreeSet<PodUid>,
}

impl Changed {
    /// True if the pod uses something that has changed.
    pub fn concerns(&self, pod: &Pod) -> bool {
        let mut used = references(pod).into_iter();
        self.pods.contains(pod.uid()) || used.any(|key| self.objects.contains(&key))
    }
}

impl Default for Objects {
    fn default() -> Self {
        Self::new(|| {})
    }
}

impl Objects {
    /// Makes an empty store. `on_change` is called after each change of an object that pods may refer to. The call
    /// comes on the thread of a source, so it must not block.
    pub fn new(on_change: impl Fn() + Send + Sync + 'static) -> Self {
        let of_pods = Account {
            kinds: &OF_PODS,
            changed: BTreeSet::new(),
            hook: Arc::new(on_change),
        };
        let state = State {
            sets: BTreeMap::new(),
            of_api: ApiObjects::default(),
            of_pods,
            watches: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            known: Condvar::new(),
        }
    }

    /// Returns the existing objects among those that the pod refers to.
    pub fn of_pod(&self, pod: &Pod) -> ObjectSet {
        let keys = references(pod);
        match pod.source() {
            PodSource::Api => self.lock().of_api.of(keys, TokenKey::all_of(pod)),
            PodSource::File | PodSource::Http | PodSource::Controller => self.of(keys),
        }
    }

    /// Waits until something is known of each object and token of a pod of the API server, at most for `limit`, or until
    /// `cancel` is cancelled. The pod has usually come a moment before its objects.
    pub fn wait_until_known(&self, pod: &Pod, cancel: &Cancel, limit: Duration) {
        if pod.source() == PodSource::Api {
            let (keys, tokens) = (references(pod), TokenKey::all_of(pod));
            self.wait(cancel, limit, |of_api| of_api.knows(&keys, &tokens));
        }
    }

    /// Waits until the services are known that a pod of the API server gets variables for, as [`Self::wait_until_known`]
    /// waits.
    pub fn wait_for_services(&self, pod: &Pod, cancel: &Cancel, limit: Duration) {
        if pod.source() == PodSource::Api {
            let namespaces = [MASTER_NAMESPACE, pod.metadata.namespace.as_str()];
            self.wait(cancel, limit, |of_api| of_api.knows_services(&namespaces));
        }
    }

    fn wait(&self, cancel: &Cancel, limit: Duration, is_known: impl Fn(&ApiObjects) -> bool) {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        while !is_known(&state.of_api) && !cancel.is_cancelled() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.known.wait_timeout(state, left.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes all services of a namespace of the API server; None if no pod is left there.
    pub fn put_services(&self, namespace: &str, services: Option<Vec<(ObjectKey, Arc<Service>)>>) {
        self.lock().of_api.put_services(namespace, services);
        self.known.notify_all();
    }

    /// Returns the services of the API server that a pod gets variables for: those of its namespace, and the API server's
    /// own.
    pub fn services_for(&self, pod: &Pod) -> Vec<(ObjectKey, Arc<Service>)> {
        let namespace = pod.metadata.namespace.as_str();
        let state = self.lock();
        let mut services = state.of_api.services(namespace);
        if namespace != MASTER_NAMESPACE {
            services.extend(state.of_api.services(MASTER_NAMESPACE));
        }
        services
    }

    /// Takes all services and endpoint slices of a cluster, which this node serves.
    pub fn put_cluster_services(&self, services: ServiceObjects) {
        let mut state = self.lock();
        state.of_api.served = Some(services);
        let watches = state.watches.iter();
        let readers = watches.filter(|watch| watch.kinds.contains(&ObjectKind::Service));
        let hooks: Vec<Hook> = readers.map(|watch| watch.hook.clone()).collect();
        self.tell(state, &hooks);
    }

    /// True if [`Self::put_cluster_services`] was called.
    pub fn has_cluster_services(&self) -> bool {
        self.lock().of_api.served.is_some()
    }

    /// Returns what [`Self::put_cluster_services`] was given last.
    pub fn cluster_services(&self) -> Option<ServiceObjects> {
        self.lock().of_api.served.clone()
    }

    /// Takes an object of the API server; None if the object is known to be missing.
    pub fn put_of_api(&self, key: &ObjectKey, content: Option<ObjectContent>) {
        let mut state = self.lock();
        if !state.of_api.put(key, content) {
            return;
        }
        let hooks = state.note(std::slice::from_ref(key), false);
        self.tell(state, &hooks);
    }

    /// Takes a token of a pod of the API server, or the reason why there is none.
    pub fn put_token(&self, key: &TokenKey, token: Result<Token, NoToken>) {
        let mut state = self.lock();
        if !state.of_api.put_token(key, token) {
            return;
        }
        let hooks = [state.of_pods.hook.clone()];
        self.tell(state, &hooks);
    }

    /// Forgets an object of the API server that no pod uses any more.
    pub fn forget_of_api(&self, key: &ObjectKey) {
        self.lock().of_api.forget(key);
    }

    /// Forgets a token that no pod uses any more.
    pub fn forget_token(&self, key: &TokenKey) {
        self.lock().of_api.forget_token(key);
    }

    fn tell(&self, state: MutexGuard<'_, State>, hooks: &[Hook]) {
        drop(state);
        self.known.notify_all();
        hooks.iter().for_each(|hook| hook());
    }

    /// Returns the existing objects among `keys`.
    fn of(&self, keys: BTreeSet<ObjectKey>) -> ObjectSet {
        let state = self.lock();
        let there = |key: ObjectKey| {
            let content = state.get(&key)?.clone();
            Some(LocalObject { key, content })
        };
        keys.into_iter().filter_map(there).collect()
    }

    /// Returns every object of a kind, in the order of namespace and name.
    pub fn of_kind(&self, kind: ObjectKind) -> Vec<LocalObject> {
        let state = self.lock();
        let of_kind = state.used().into_iter().filter(|(key, _)| key.kind == kind);
        let object = |(key, content): (&ObjectKey, &ObjectContent)| LocalObject {
            key: key.clone(),
            content: content.clone(),
        };
        of_kind.map(object).collect()
    }

    /// Returns every Service and every EndpointSlice, all read at the same moment.
    pub fn services(&self) -> ServiceObjects {
        let mut found = ServiceObjects::default();
        for (key, content) in self.lock().used() {
            match content {
                ObjectContent::Service(service) => {
                    found.services.push((key.clone(), service.clone()));
                }
                ObjectContent::EndpointSlice(slice) => {
                    found.slices.push((key.clone(), slice.clone()));
                }
                ObjectContent::Endpoints(slices) => {
                    let keyed = slices.iter().map(|slice| (key.clone(), slice.clone()));
                    found.slices.extend(keyed);
                }
                ObjectContent::ConfigMap(_)
                | ObjectContent::Secret(_)
                | ObjectContent::PersistentVolumeClaim(_)
                | ObjectContent::RuntimeClass(_) => {}
            }
        }
        found
    }

    /// True if this source has passed its objects, even an empty set. Before that, a missing object may still come.
    pub fn has_spoken(&self, source: PodSource) -> bool {
        self.lock().sets.contains_key(&source)
    }

    /// Replaces the whole set of a source, and calls the hooks of the readers whose objects changed.
    pub fn replace(&self, source: PodSource, objects: Vec<LocalObject>) {
        let new: Set = objects.into_iter().map(|o| (o.key, o.content)).collect();
        let mut state = self.lock();
        let old = state.sets.insert(source, new);
        let is_first = old.is_none();
        let old = old.unwrap_or_default();
        let new = &state.sets[&source];
        let differs = |key: &&ObjectKey| old.get(*key) != new.get(*key);
        let changed: Vec<ObjectKey> = old
            .keys()
            .chain(new.keys())
            .filter(differs)
            .cloned()
            .collect();
        let hooks = state.note(&changed, is_first);
        drop(state);
        hooks.iter().for_each(|hook| hook());
    }

    /// Returns the changes of objects and tokens of pods since the last call. Only the sync loop calls this function.
    pub fn take_changed(&self) -> Changed {
        let mut state = self.lock();
        Changed {
            objects: std::mem::take(&mut state.of_pods.changed),
            pods: state.of_api.take_changed(),
        }
    }

    /// Adds one more reader of changes. `on_change` is called after each change of an object of these kinds, and when a
    /// source has passed its first set. The call comes on the thread of a source, so it must not block. Objects that
    /// already exist count as added, but without a call of `on_change`.
    pub fn watch(
        self: &Arc<Self>,
        kinds: &'static [ObjectKind],
        on_change: impl Fn() + Send + Sync + 'static,
    ) -> ObjectWatch {
        let mut state = self.lock();
        let there: Vec<ObjectKey> = state.used().into_keys().cloned().collect();
        let mut account = Account {
            kinds,
            changed: BTreeSet::new(),
            hook: Arc::new(on_change),
        };
        account.note(&there);
        state.watches.push(account);
        ObjectWatch {
            objects: self.clone(),
            place: state.watches.len() - 1,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

/// A reader of changes, which [`Objects::watch`] makes.
pub struct ObjectWatch {
    objects: Arc<Objects>,
    place: usize,
}

impl ObjectWatch {
    /// Returns the watched objects that were added, changed or removed since the last call.
    pub fn take_changed(&self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.objects.lock().watches[self.place].changed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::api::objects::ConfigMap;
    use crate::api::service::EndpointSlice;
    use crate::api::service::IpFamily;
    use crate::api::source::SOURCE_ANNOTATION;
    use crate::test_pods;

    fn map(name: &str, value: &str) -> LocalObject {
        LocalObject {
            key: ObjectKey::new(ObjectKind::ConfigMap, "default", name),
            content: ObjectContent::ConfigMap(Arc::new(ConfigMap {
                data: [("k".to_owned(), value.to_owned())].into(),
                ..ConfigMap::default()
            })),
        }
    }

    fn service(name: &str, port: u16) -> LocalObject {
        let service = Service {
            health_check_node_port: Some(port),
            ..Service::default()
        };
        LocalObject {
            key: ObjectKey::new(ObjectKind::Service, "default", name),
            content: ObjectContent::Service(Arc::new(service)),
        }
    }

    fn slice(service: &str) -> Arc<EndpointSlice> {
        Arc::new(EndpointSlice {
            service: service.to_owned(),
            family: IpFamily::V4,
            endpoints: Vec::new(),
            ports: Vec::new(),
        })
    }

    fn object(kind: ObjectKind, name: &str, content: ObjectContent) -> LocalObject {
        let key = ObjectKey::new(kind, "default", name);
        LocalObject { key, content }
    }

    fn value(objects: &Objects, name: &str) -> Option<String> {
        let found = objects.of([map(name, "").key].into());
        let map = found.config_map("default", name).ok()?;
        map.data.get("k").cloned()
    }

    fn names(changed: BTreeSet<ObjectKey>) -> Vec<String> {
        changed.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn a_change_is_told_once_and_names_what_has_changed() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&calls);
        let objects = Objects::new(move || _ = seen.fetch_add(1, Ordering::Relaxed));
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "1")]);
        assert_eq!(names(objects.take_changed().objects), ["a", "b"]);
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "2")]);
        objects.replace(PodSource::File, vec![map("a", "1"), map("b", "2")]);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        objects.replace(PodSource::File, vec![map("b", "2")]);
        assert_eq!(names(objects.take_changed().objects), ["a", "b"]);
        assert_eq!(names(objects.take_changed().objects), [""; 0]);
        assert_eq!(value(&objects, "a"), None);
        assert_eq!(value(&objects, "b").as_deref(), Some("2"));
        let found = objects.of([map("a", "").key, map("b", "").key].into());
        assert!(found.config_map("default", "b").is_ok());
        assert!(found.secret("default", "b").is_err());
        assert!(found.config_map("other", "b").is_err());
    }

    #[test]
    fn of_two_sources_the_file_comes_first() {
        let objects = Objects::default();
        objects.replace(PodSource::Http, vec![map("a", "http")]);
        assert_eq!(value(&objects, "a").as_deref(), Some("http"));
        objects.replace(PodSource::File, vec![map("a", "file")]);
        assert_eq!(value(&objects, "a").as_deref(), Some("file"));
        objects.replace(PodSource::File, Vec::new());
        assert_eq!(value(&objects, "a").as_deref(), Some("http"));
    }

    #[test]
    fn the_objects_of_a_kind_are_those_in_use() {
        let objects = Objects::default();
        objects.replace(PodSource::Http, vec![map("b", "1"), map("a", "http")]);
        objects.replace(PodSource::File, vec![map("a", "file"), service("web", 1)]);
        let of_kind = objects.of_kind(ObjectKind::ConfigMap);
        let shown: Vec<_> = of_kind
            .iter()
            .map(|o| (o.key.name.as_str(), o.v1()["data"]["k"].clone()))
            .collect();
        assert_eq!(shown, [("a", "file".into()), ("b", "1".into())]);
    }

    #[test]
    fn each_reader_learns_of_its_own_kinds_and_takes_nothing_from_the_other() {
        let calls = Arc::new(AtomicUsize::new(0));
        let objects = Arc::new(Objects::default());
        objects.replace(PodSource::File, vec![map("a", "1"), service("web", 1)]);
        let seen = calls.clone();
        let watch = objects.watch(&ObjectKind::OF_SERVICES, move || {
            _ = seen.fetch_add(1, Ordering::Relaxed);
        });
        let called = || calls.swap(0, Ordering::Relaxed);
        assert_eq!(called(), 0);
        assert_eq!(
            names(watch.take_changed()),
            ["web"],
            "what was there before"
        );
        assert_eq!(names(objects.take_changed().objects), ["a"]);
        objects.replace(PodSource::File, vec![map("a", "2"), service("web", 1)]);
        assert_eq!(called(), 0);
        objects.replace(PodSource::File, vec![map("a", "2"), service("web", 2)]);
        assert_eq!(called(), 1);
        assert_eq!(names(objects.take_changed().objects), ["a"]);
        assert_eq!(names(watch.take_changed()), ["web"]);
        objects.replace(PodSource::File, vec![]);
        assert_eq!(names(watch.take_changed()), ["web"], "it has gone");
        assert_eq!(names(watch.take_changed()), [""; 0]);
    }

    #[test]
    fn a_source_that_has_nothing_has_spoken_all_the_same() {
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        let objects = Arc::new(Objects::new(|| panic!("no object of a pod has changed")));
        let hook = move || _ = seen.fetch_add(1, Ordering::Relaxed);
        let _watch = objects.watch(&ObjectKind::OF_SERVICES, hook);
        assert!(!objects.has_spoken(PodSource::File));
        objects.replace(PodSource::File, vec![]);
        assert!(objects.has_spoken(PodSource::File) && !objects.has_spoken(PodSource::Http));
        objects.replace(PodSource::File, vec![]);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn services_and_slices_are_those_of_all_sources_and_the_first_wins() {
        let objects = Objects::default();
        let of_slices = |name: &str| {
            let content = ObjectContent::EndpointSlice(slice(name));
            object(ObjectKind::EndpointSlice, "s", content)
        };
        let mirrored = ObjectContent::Endpoints(vec![slice("web"), slice("web")]);
        let mirrored = object(ObjectKind::Endpoints, "web", mirrored);
        objects.replace(PodSource::File, vec![service("web", 1), of_slices("file")]);
        let http = vec![
            service("web", 2),
            service("db", 3),
            of_slices("http"),
            mirrored,
        ];
        objects.replace(PodSource::Http, http);
        let found = objects.services();
        let services = found.services.iter().map(|(key, service)| {
            let port = service.health_check_node_port.unwrap();
            format!("{key} {port}")
        });
        let expected = ["Service default/db 3", "Service default/web 1"];
        assert_eq!(services.collect::<Vec<_>>(), expected);
        let slices = found.slices.iter();
        let slices: Vec<_> = slices
            .map(|(key, s)| format!("{key} {}", s.service))
            .collect();
        let mirror = "Endpoints default/web web";
        assert_eq!(slices, ["EndpointSlice default/s file", mirror, mirror]);
        objects.replace(PodSource::File, vec![]);
        let found = objects.services();
        assert_eq!(found.services[1].1.health_check_node_port, Some(2));
        assert_eq!(found.slices[0].1.service, "http");
    }

    fn pod_of(source: PodSource, volumes: serde_json::Value) -> Pod {
        let pod = test_pods::pod("p").spec(serde_json::json!({"volumes": volumes}));
        pod.annotation(SOURCE_ANNOTATION, source.as_str()).build()
    }

    #[test]
    fn a_pod_sees_the_objects_of_its_own_side_only() {
        let volumes = serde_json::json!([{"name": "v", "configMap": {"name": "a"}}]);
        let (of_file, of_api) = (
            pod_of(PodSource::File, volumes.clone()),
            pod_of(PodSource::Api, volumes),
        );
        let objects = Objects::default();
        let seen = |pod: &Pod| {
            let found = objects.of_pod(pod);
            let map = found.config_map("default", "a").cloned();
            map.map(|map| map.data["k"].clone())
                .map_err(|e| e.to_string())
        };
        let not_found = Err("configmap \"a\" not found".to_owned());
        assert_eq!(seen(&of_file), not_found);
        let not_known =
            "failed to sync configmap cache: the API server has not said yet whether \"a\" exists";
        assert_eq!(seen(&of_api), Err(not_known.to_owned()));
        objects.replace(PodSource::File, vec![map("a", "file")]);
        assert_eq!(seen(&of_api), Err(not_known.to_owned()));
        let LocalObject { key, content } = map("a", "api");
        objects.put_of_api(&key, None);
        assert_eq!(seen(&of_api), not_found);
        objects.put_of_api(&key, Some(content));
        assert_eq!(seen(&of_api).as_deref(), Ok("api"));
        assert_eq!(seen(&of_file).as_deref(), Ok("file"));
        objects.forget_of_api(&key);
        assert_eq!(seen(&of_api), Err(not_known.to_owned()));
    }

    #[test]
    fn a_change_concerns_the_pods_that_use_it() {
        let told = Arc::new(AtomicUsize::new(0));
        let seen = told.clone();
        let objects = Objects::new(move || _ = seen.fetch_add(1, Ordering::Relaxed));
        let token =
            serde_json::json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 600}});
        let volumes = serde_json::json!([
            {"name": "v", "configMap": {"name": "a"}},
            {"name": "t", "projected": {"sources": [token]}}]);
        let pod = pod_of(PodSource::Api, volumes);
        let mut other = pod_of(PodSource::Api, serde_json::json!([]));
        other.metadata.uid = "other".into();
        let key = TokenKey::all_of(&pod).pop_first().unwrap();
        objects.put_of_api(&map("a", "").key, None);
        assert!(objects.take_changed().concerns(&pod) && !objects.take_changed().concerns(&pod));
        objects.put_token(&key, Ok("one".into()));
        assert!(objects.take_changed().concerns(&pod));
        objects.put_token(&key, Ok("one".into()));
        objects.put_of_api(&map("a", "").key, None);
        assert_eq!(told.load(Ordering::Relaxed), 2, "nothing is told twice");
        objects.put_token(&key, Ok("two".into()));
        assert!(!objects.take_changed().concerns(&other));
        assert_eq!(objects.of_pod(&pod).token(&key), Ok("two".into()));
        objects.forget_token(&key);
        assert_eq!(objects.of_pod(&pod).token(&key), Err(NoToken::NotKnown));
    }

    #[test]
    fn a_wait_ends_when_all_is_known_or_cancelled_or_late() {
        let token =
            serde_json::json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 600}});
        let volumes = serde_json::json!([
            {"name": "v", "configMap": {"name": "a"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "t", "projected": {"sources": [token]}}]);
        let pod = pod_of(PodSource::Api, volumes);
        let key = TokenKey::all_of(&pod).pop_first().unwrap();
        let objects = Objects::default();
        let hour = Duration::from_secs(3600);
        objects.wait_until_known(&pod, &Cancel::default(), Duration::ZERO);
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            let wait = || objects.wait_until_known(&pod, &cancel, hour);
            let waiting = scope.spawn(wait);
            cancel.cancel();
            waiting.join().unwrap();
        });
        std::thread::scope(|scope| {
            let wait = || objects.wait_until_known(&pod, &Cancel::default(), hour);
            let waiting = scope.spawn(wait);
            objects.put_of_api(&map("a", "").key, None);
            let claim = ObjectKey::new(ObjectKind::PersistentVolumeClaim, "default", "c");
            objects.put_of_api(&claim, None);
            objects.put_token(&key, Err(NoToken::Refused("no".to_owned())));
            waiting.join().unwrap();
        });
        std::thread::scope(|scope| {
            let wait = || objects.wait_for_services(&pod, &Cancel::default(), hour);
            let waiting = scope.spawn(wait);
            objects.put_services("default", Some(Vec::new()));
            waiting.join().unwrap();
        });
        let of_file = pod_of(
            PodSource::File,
            serde_json::json!([{"name": "v", "configMap": {"name": "b"}}]),
        );
        objects.wait_until_known(&of_file, &Cancel::default(), hour);
        objects.wait_for_services(&of_file, &Cancel::default(), hour);
    }
}
