//! An API server for tests: HTTP/2 with TLS on loopback, real watches, strategic merge patches, and the refusals of the real
//! one ([`rules`]). It breaks what it is told to break ([`Fault`]).
//!
//! It has no controllers and no admission: a test plays the scheduler and kubectl ([`ApiServer::create_pod`] and others).

mod connection;
mod merge_patch;
mod rules;
mod store;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use podprobe::base::bell::Bell;
use podprobe::base::clock::Time;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use self::rules::Refusal;
pub(crate) use self::rules::{READER, READER_TOKEN};
pub(crate) use self::store::Key;
use self::store::{Selection, Store, line};
use super::authority::Authority;
use super::skip::has;
use super::{CEILING, wait_until};

/// What the server does to a request instead of answering it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It answers with this code and this text, and `Retry-After` in seconds.
    Status(u16, &'static str, Option<u32>),
    /// It answers 200 with a text that is not JSON.
    Garbage,
    /// It does what was asked, and answers late.
    Late(Duration),
    /// It never answers.
    Silent,
    /// It resets the stream.
    Reset,
}

/// A fault with the requests that it concerns.
struct Broken {
    method: &'static str,
    path: String,
    times: usize,
    fault: Fault,
}

/// A request as it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path with query.
    pub(crate) path: String,
    pub(crate) body: Value,
    pub(crate) user_agent: String,
    content_type: String,
    token: Option<String>,
    has_certificate: bool,
}

impl Asked {
    fn new<T>(request: &http::Request<T>, body: &[u8], has_certificate: bool) -> Self {
        let header = |name: &str| {
            let value = request.headers().get(name).and_then(|v| v.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let uri = request.uri().path_and_query();
        Self {
            method: request.method().to_string(),
            path: uri.map(ToString::to_string).unwrap_or_default(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            user_agent: header("user-agent"),
            content_type: header("content-type"),
            token: header("authorization")
                .strip_prefix("Bearer ")
                .map(str::to_owned),
            has_certificate,
        }
    }

    /// The path without its query, in its parts.
    fn parts(&self) -> Vec<&str> {
        let path = self.path.split('?').next().unwrap_or_default();
        path.split('/').filter(|part| !part.is_empty()).collect()
    }

    fn query(&self, name: &str) -> Option<String> {
        let (_, query) = self.path.split_once('?')?;
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        Some(
            value
                .replace("%3D", "=")
                .replace("%21", "!")
                .replace("%2C", ",")
                .replace("%2F", "/"),
        )
    }
}

/// What a connection does with a request.
enum Answer {
    Now {
        code: u16,
        retry_after: Option<u32>,
        body: Vec<u8>,
    },
    Watch(Watch),
    After(Duration),
    Never,
    Reset,
}

/// A watch, and what it has told.
struct Watch {
    selection: Selection,
    since: u64,
    /// Lines that are told first.
    first: String,
    /// True if the watch ends after them.
    ends: bool,
}

/// The state that all connections share.
pub(super) struct Server {
    store: Mutex<Store>,
    bells: Mutex<Vec<Arc<Bell>>>,
    faults: Mutex<Vec<Broken>>,
    asked: Mutex<Vec<Asked>>,
    token: Mutex<String>,
    /// What users may do: user, verb and subresource of the nodes.
    grants: Mutex<Vec<[String; 3]>>,
    /// Connections of an earlier generation are cut off.
    generation: AtomicU64,
    is_down: AtomicBool,
    /// True while connections are made and nobody answers on them.
    is_held: AtomicBool,
    is_over: AtomicBool,
    has_watch_list: AtomicBool,
    /// Number of tokens of service accounts that were issued.
    tokens: AtomicU64,
    /// Life in seconds of the tokens that are issued; 0 for the one that is asked for.
    token_life: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    fn ring(&self) {
        locked(&self.bells).iter().for_each(|bell| bell.ring());
    }

    /// Takes note of a request, and answers it or breaks it.
    fn take(&self, asked: &Asked) -> Answer {
        locked(&self.asked).push(asked.clone());
        let mut faults = locked(&self.faults);
        let concerned = faults.iter_mut().find(|broken| {
            broken.times > 0 && broken.method == asked.method && asked.path.contains(&broken.path)
        });
        let Some(broken) = concerned else {
            drop(faults);
            return self.answer(asked);
        };
        broken.times -= 1;
        match broken.fault.clone() {
            Fault::Status(code, text, retry_after) => Answer::Now {
                code,
                retry_after,
                body: text.into(),
            },
            Fault::Garbage => answered(200, b"{\"kind\": garbage\n".to_vec()),
            Fault::Late(delay) => Answer::After(delay),
            Fault::Silent => Answer::Never,
            Fault::Reset => Answer::Reset,
        }
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let is_node = asked.has_certificate || asked.token.as_ref() == Some(&*locked(&self.token));
        let is_proxy = asked.token.as_deref() == Some(PROXY_TOKEN);
        if !is_node && !is_proxy {
            return refused(&(401, "Unauthorized".to_owned()));
        }
        if let Err(refusal) = rules::may_read_services(is_proxy, &asked.method, &asked.parts()) {
            return refused(&refusal);
        }
        let answer = self
            .route(asked)
            .unwrap_or_else(|refusal| refused(&refusal));
        self.ring();
        answer
    }

    fn route(&self, asked: &Asked) -> Result<Answer, Refusal> {
        let parts = asked.parts();
        let path = match parts[..] {
            ["api", "v1", ref rest @ ..] | ["apis", _, _, ref rest @ ..] => rest,
            _ => return Err((404, format!("no such path: {}", asked.path))),
        };
        let mut store = locked(&self.store);
        let store = &mut *store;
        let key = |resource: &str, namespace: &str, name: &str| -> Key {
            (resource.to_owned(), namespace.to_owned(), name.to_owned())
        };
        match (asked.method.as_str(), path) {
            ("GET", ["namespaces", namespace, resource]) => {
                self.list(store, asked, resource, Some(namespace))
            }
            ("GET", [resource]) => self.list(store, asked, resource, None),
            (
                "GET",
                [
                    "namespaces",
                    namespace,
                    resource @ ("configmaps" | "secrets" | "persistentvolumeclaims"),
                    name,
                ],
            ) => {
                may_read(store, resource, namespace, Some(name))?;
                found(store, &key(resource, namespace, name))
            }
            ("POST", ["namespaces", namespace, "serviceaccounts", account, "token"]) => {
                self.token(store, namespace, account, asked)
            }
            ("GET", ["namespaces", namespace, resource, name]) => {
                found(store, &key(resource, namespace, name))
            }
            ("GET", ["persistentvolumes", name]) => {
                let pods: Vec<_> = store.of("pods").map(|(_, pod)| pod).collect();
                let claims = store.of("persistentvolumeclaims").map(|(_, claim)| claim);
                rules::read_volume_by_node(&pods, claims, name)?;
                found(store, &key("persistentvolumes", "", name))
            }
            ("GET", [resource, name]) => found(store, &key(resource, "", name)),
            ("POST", ["nodes"]) => create(store, &key("nodes", "", name_of(&asked.body)), asked),
            ("POST", ["tokenreviews"]) => Ok(object(201, &rules::token_review(&asked.body)?)),
            ("POST", ["subjectaccessreviews"]) => {
                let grants = locked(&self.grants);
                Ok(object(201, &rules::access_review(&asked.body, &grants)?))
            }
            ("PATCH", ["nodes", name, "status"]) => {
                patch_node(store, &key("nodes", "", name), asked)
            }
            ("POST", ["namespaces", namespace, "pods"]) => {
                let key = key("pods", namespace, name_of(&asked.body));
                let node_name = asked.body["spec"]["nodeName"].as_str().unwrap_or_default();
                let node = store.get(&("nodes".to_owned(), String::new(), node_name.to_owned()));
                rules::mirror_pod(node.unwrap_or(&Value::Null), &asked.body)?;
                create(store, &key, asked)
            }
            ("PATCH", ["namespaces", namespace, "pods", name, "status"]) => {
                patch_status(store, &key("pods", namespace, name), asked)
            }
            ("DELETE", ["namespaces", namespace, "pods", name]) => {
                delete(store, &key("pods", namespace, name), asked)
            }
            ("POST", ["namespaces", namespace, "events"]) => {
                rules::event(namespace, &asked.body)?;
                create(
                    store,
                    &key("events", namespace, name_of(&asked.body)),
                    asked,
                )
            }
            ("PATCH", ["namespaces", namespace, "events", name]) => {
                let key = key("events", namespace, name);
                patch(store, &key, asked)
            }
            ("POST", ["namespaces", namespace, "leases"]) => {
                rules::lease(None, &asked.body)?;
                create(
                    store,
                    &key("leases", namespace, name_of(&asked.body)),
                    asked,
                )
            }
            (method @ ("PUT" | "PATCH"), ["namespaces", namespace, "leases", name]) => {
                let key = key("leases", namespace, name);
                let old = store.get(&key).ok_or_else(|| not_found(&key))?;
                let new = match method {
                    "PUT" => asked.body.clone(),
                    _ => patched(store, &key, asked)?,
                };
                rules::lease(Some(old), &new)?;
                Ok(object(200, &store.put(&key, new)))
            }
            _ => Err((
                404,
                format!("no such path: {} {}", asked.method, asked.path),
            )),
        }
    }

    /// Issues a token that names its service account and its number.
    fn token(
        &self,
        store: &Store,
        namespace: &str,
        account: &str,
        asked: &Asked,
    ) -> Result<Answer, Refusal> {
        let key = |resource: &str, name: &str| -> Key {
            (resource.to_owned(), namespace.to_owned(), name.to_owned())
        };
        let name = asked.body["spec"]["boundObjectRef"]["name"].as_str();
        let pod = store.get(&key("pods", name.unwrap_or_default()));
        let has_account =
            account == "default" || store.get(&key("serviceaccounts", account)).is_some();
        rules::token(pod, account, has_account, &asked.body)?;
        let number = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
        let mut issued = asked.body.clone();
        let life = match self.token_life.load(Ordering::SeqCst) {
            0 => asked.body["spec"]["expirationSeconds"]
                .as_u64()
                .unwrap_or_default(),
            life => life,
        };
        let expires = SystemTime::now() + Duration::from_secs(life);
        issued["spec"]["expirationSeconds"] = life.into();
        issued["status"] = json!({"token": format!("token-{account}-{number}"),
            "expirationTimestamp": Time::from(expires).to_string()});
        Ok(object(201, &issued))
    }

    fn list(
        &self,
        store: &Store,
        asked: &Asked,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<Answer, Refusal> {
        let field = asked.query("fieldSelector");
        let field =
            field.and_then(|f| f.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())));
        let labels = asked.query("labelSelector").unwrap_or_default();
        let labels = labels.split(',');
        if resource == "pods" && field.is_none() {
            return Err((
                403,
                "pods is forbidden: a node reads its own pods".to_owned(),
            ));
        }
        rules::only_one_by_one(resource)?;
        if let ("configmaps" | "secrets", Some(namespace)) = (resource, namespace) {
            let name = field.as_ref().filter(|(field, _)| field == "metadata.name");
            let name = name.map(|(_, name)| name.as_str());
            may_read(store, resource, namespace, name)?;
        }
        let selection = Selection {
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            field: field.filter(|(field, _)| !field.ends_with('!')),
            without_labels: labels
                .filter_map(|l| l.strip_prefix('!').map(str::to_owned))
                .collect(),
        };
        let all = store
            .of(resource)
            .filter(|(key, object)| selection.fits(key, object));
        let all = all.map(|(_, object)| object.clone());
        if asked.query("watch").is_none() {
            let items: Vec<Value> = all.collect();
            let version = store.version.to_string();
            return Ok(object(
                200,
                &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items}),
            ));
        }
        let version = asked.query("resourceVersion").unwrap_or_default();
        let version = version.parse().unwrap_or(0);
        let mut watch = Watch {
            selection: selection.clone(),
            since: store.version,
            first: String::new(),
            ends: false,
        };
        if asked.query("sendInitialEvents").is_some() {
            if !self.has_watch_list.load(Ordering::SeqCst) {
                return Err((
                    422,
                    "sendInitialEvents: Forbidden: is not supported".to_owned(),
                ));
            }
            watch.first = all.map(|object| line("ADDED", &object)).collect();
            let bookmark = json!({"kind": "Object", "apiVersion": "v1", "metadata": {
                "resourceVersion": store.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"}}});
            watch.first.push_str(&line("BOOKMARK", &bookmark));
        } else if version < store.compacted {
            let gone = (410, "too old resource version".to_owned());
            let mut status = rules::status_of(&gone);
            status["reason"] = "Expired".into();
            watch.first = line("ERROR", &status);
            watch.ends = true;
        } else {
            watch.since = version;
        }
        Ok(Answer::Watch(watch))
    }

    /// Returns the new lines of a watch, and whether it goes on.
    fn news(&self, watch: &mut Watch) -> (String, bool) {
        let store = locked(&self.store);
        let mut lines = std::mem::take(&mut watch.first);
        let new = store
            .changes
            .iter()
            .filter(|change| change.version > watch.since);
        for change in new.filter(|c| watch.selection.fits(&c.key, &c.object)) {
            lines.push_str(&line(change.type_, &change.object));
        }
        watch.since = store.version;
        (lines, !watch.ends)
    }
}

fn answered(code: u16, body: Vec<u8>) -> Answer {
    Answer::Now {
        code,
        retry_after: None,
        body,
    }
}

fn object(code: u16, object: &Value) -> Answer {
    answered(code, object.to_string().into_bytes())
}

fn refused(refusal: &Refusal) -> Answer {
    object(refusal.0, &rules::status_of(refusal))
}

fn not_found(key: &Key) -> Refusal {
    (404, format!("{} \"{}\" not found", key.0, key.2))
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn found(store: &Store, key: &Key) -> Result<Answer, Refusal> {
    store
        .get(key)
        .map(|found| object(200, found))
        .ok_or_else(|| not_found(key))
}

fn may_read(
    store: &Store,
    resource: &str,
    namespace: &str,
    name: Option<&str>,
) -> Result<(), Refusal> {
    let pods = store.of("pods").map(|(_, pod)| pod);
    rules::read_by_node(pods, resource, namespace, name)
}

fn create(store: &mut Store, key: &Key, asked: &Asked) -> Result<Answer, Refusal> {
    if store.get(key).is_some() {
        return Err((409, format!("{} \"{}\" already exists", key.0, key.2)));
    }
    Ok(object(201, &store.put(key, asked.body.clone())))
}

fn patched(store: &Store, key: &Key, asked: &Asked) -> Result<Value, Refusal> {
    if asked.content_type != "application/strategic-merge-patch+json" {
        return Err((
            415,
            format!("no patch is of the type {}", asked.content_type),
        ));
    }
    let mut new = store.get(key).ok_or_else(|| not_found(key))?.clone();
    merge_patch::apply(&mut new, &asked.body);
    Ok(new)
}

fn patch(store: &mut Store, key: &Key, asked: &Asked) -> Result<Answer, Refusal> {
    let new = patched(store, key, asked)?;
    Ok(object(200, &store.put(key, new)))
}

fn patch_node(store: &mut Store, key: &Key, asked: &Asked) -> Result<Answer, Refusal> {
    let new = patched(store, key, asked)?;
    rules::node_status(&new)?;
    Ok(object(200, &store.put(key, new)))
}

fn patch_status(store: &mut Store, key: &Key, asked: &Asked) -> Result<Answer, Refusal> {
    let old = store.get(key).ok_or_else(|| not_found(key))?.clone();
    rules::status_patch(&old, &asked.body)?;
    let mut new = patched(store, key, asked)?;
    // A node changes the status of a pod, and nothing else.
    new["spec"] = old["spec"].clone();
    new["metadata"] = old["metadata"].clone();
    rules::new_status(&old, &new)?;
    if new == old {
        return Ok(object(200, &old));
    }
    Ok(object(200, &store.put(key, new)))
}

fn delete(store: &mut Store, key: &Key, asked: &Asked) -> Result<Answer, Refusal> {
    let old = store.get(key).ok_or_else(|| not_found(key))?;
    let uid = &asked.body["preconditions"]["uid"];
    if !uid.is_null() && uid != &old["metadata"]["uid"] {
        return Err((
            409,
            format!("Precondition failed: UID in precondition: {uid}"),
        ));
    }
    if asked.body["gracePeriodSeconds"] != 0 {
        return Err((422, "a node deletes with the grace period 0".to_owned()));
    }
    let gone = store.remove(key);
    Ok(object(200, &gone.unwrap_or_default()))
}

/// An API server that runs until it is dropped.
pub(crate) struct ApiServer {
    server: Arc<Server>,
    pub(crate) authority: Authority,
    pub(crate) address: SocketAddr,
    accepting: Option<JoinHandle<()>>,
}

/// The token of the node at the beginning.
pub(crate) const TOKEN: &str = "token-of-the-node";
/// The token of a service proxy.
const PROXY_TOKEN: &str = "token-of-the-proxy";

impl ApiServer {
    /// Starts a server; None where there is no openssl for its certificates, so that the test is skipped.
    pub(crate) fn start() -> Option<Self> {
        if !has("openssl", "openssl") {
            return None;
        }
        let authority = Authority::new();
        authority.leaf("ca", "server");
        authority.certificate("ca", "node", "/O=system:nodes/CN=system:node:edge");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = tls(&authority);
        let server = Arc::new(Server {
            store: Mutex::default(),
            bells: Mutex::default(),
            faults: Mutex::default(),
            asked: Mutex::default(),
            token: Mutex::new(TOKEN.to_owned()),
            generation: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            has_watch_list: AtomicBool::new(true),
            tokens: AtomicU64::new(0),
            token_life: AtomicU64::new(0),
            grants: Mutex::default(),
        });
        let serving = server.clone();
        let accepting = std::thread::spawn(move || accept(&serving, &listener, &config));
        Some(Self {
            server,
            authority,
            address,
            accepting: Some(accepting),
        })
    }

    /// Writes a kubeconfig with the node's token in a file, and returns its path.
    pub(crate) fn kubeconfig_with_token(&self) -> PathBuf {
        let token = self.authority.secret("token", TOKEN, 0o600);
        self.kubeconfig("kubeconfig", &json!({"tokenFile": token}))
    }

    /// Writes a kubeconfig of a service proxy, and returns its path.
    pub(crate) fn kubeconfig_of_proxy(&self) -> PathBuf {
        self.kubeconfig("proxy-kubeconfig", &json!({"token": PROXY_TOKEN}))
    }

    /// Writes a kubeconfig with the node's certificate, and returns its path.
    pub(crate) fn kubeconfig_with_certificate(&self) -> PathBuf {
        let (certificate, key) = (
            self.authority.path("node.pem"),
            self.authority.path("node.key"),
        );
        let user = json!({"client-certificate": certificate, "client-key": key});
        self.kubeconfig("kubeconfig", &user)
    }

    fn kubeconfig(&self, name: &str, user: &Value) -> PathBuf {
        let cluster = json!({"server": format!("https://{}", self.address),
            "certificate-authority": self.authority.path("ca.pem")});
        let config = json!({"kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
        PathBuf::from(self.authority.secret(name, &config.to_string(), 0o600))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.server.store)
    }

    /// Breaks the next `times` requests of this method whose path contains `path`.
    pub(crate) fn fail(&self, method: &'static str, path: &str, times: usize, fault: Fault) {
        locked(&self.server.faults).push(Broken {
            method,
            path: path.to_owned(),
            times,
            fault,
        });
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        locked(&self.server.asked).clone()
    }

    /// Number of requests of this method whose path contains `path`.
    pub(crate) fn count(&self, method: &str, path: &str) -> usize {
        let asked = locked(&self.server.asked);
        asked
            .iter()
            .filter(|a| a.method == method && a.path.contains(path))
            .count()
    }

    /// Allows a user one verb on one subresource of the nodes.
    pub(crate) fn grant(&self, user: &str, verb: &str, subresource: &str) {
        let grant = [user, verb, subresource].map(str::to_owned);
        locked(&self.server.grants).push(grant);
    }

    /// The node signs in with another token from now on.
    pub(crate) fn change_token(&self, token: &str) {
        token.clone_into(&mut locked(&self.server.token));
    }

    /// Issues tokens of service accounts with this life, whatever is asked for.
    pub(crate) fn issue_tokens_for(&self, life: Duration) {
        self.server
            .token_life
            .store(life.as_secs(), Ordering::SeqCst);
    }

    /// Serves no initial lists of watches, as API servers without WatchList.
    pub(crate) fn without_watch_list(&self) {
        self.server.has_watch_list.store(false, Ordering::SeqCst);
    }

    /// Forgets all changes: watches from an earlier version get 410.
    pub(crate) fn compact(&self) {
        self.store().compact();
    }

    /// Cuts all connections off.
    pub(crate) fn cut(&self) {
        self.server.generation.fetch_add(1, Ordering::SeqCst);
        self.server.ring();
    }

    /// Cuts all connections off, and takes no new ones until [`Self::up`].
    pub(crate) fn down(&self) {
        self.server.is_down.store(true, Ordering::SeqCst);
        self.cut();
    }

    pub(crate) fn up(&self) {
        self.server.is_down.store(false, Ordering::SeqCst);
    }

    /// Lets new connections wait for an answer until [`Self::release`].
    pub(crate) fn hold(&self) {
        self.server.is_held.store(true, Ordering::SeqCst);
    }

    pub(crate) fn release(&self) {
        self.server.is_held.store(false, Ordering::SeqCst);
    }

    pub(crate) fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.store().get(&key).cloned()
    }

    pub(crate) fn all(&self, resource: &str) -> Vec<Value> {
        self.store()
            .of(resource)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// All versions of all objects of a resource, from the first.
    pub(crate) fn history(&self, resource: &str) -> Vec<Value> {
        let store = self.store();
        let all = store.history.iter().filter(|(key, _)| key.0 == resource);
        all.map(|(_, object)| object.clone()).collect()
    }

    /// Creates or replaces an object, as a person or a controller does.
    pub(crate) fn put(&self, resource: &str, object: Value) -> Value {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let key = (
            resource.to_owned(),
            namespace.to_owned(),
            name_of(&object).to_owned(),
        );
        let stored = self.store().put(&key, object);
        self.server.ring();
        stored
    }

    /// Changes an object, as a person or a controller does.
    pub(crate) fn edit(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        let mut store = self.store();
        let mut object = store.get(&key).cloned().unwrap();
        edit(&mut object);
        store.put(&key, object);
        drop(store);
        self.server.ring();
    }

    /// Removes an object at once.
    pub(crate) fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let key = (resource.to_owned(), namespace.to_owned(), name.to_owned());
        self.store().remove(&key);
        self.server.ring();
    }

    /// Creates a pod that is bound to the node `edge`.
    pub(crate) fn create_pod(&self, name: &str, mut spec: Value) -> Value {
        spec["nodeName"] = super::daemon::NODE.into();
        let pod = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}});
        self.put("pods", pod)
    }

    /// Changes a pod as `kubectl patch` does: with a new generation.
    pub(crate) fn edit_pod(&self, name: &str, edit: impl FnOnce(&mut Value)) -> Value {
        let mut pod = self.pod(name).unwrap();
        edit(&mut pod);
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(1);
        pod["metadata"]["generation"] = (generation + 1).into();
        self.put("pods", pod)
    }

    /// Deletes a pod as kubectl does: the node has `grace` seconds. A pod that has ended is gone at once.
    pub(crate) fn delete_pod(&self, name: &str, grace: i64) {
        let phase = self.pod(name).unwrap()["status"]["phase"].clone();
        let has_ended = phase == "Succeeded" || phase == "Failed";
        let grace = if has_ended { 0 } else { grace };
        self.edit_pod(name, |pod| {
            pod["metadata"]["deletionTimestamp"] = "2026-11-27T09:00:00Z".into();
            pod["metadata"]["deletionGracePeriodSeconds"] = grace.into();
        });
        if grace == 0 {
            self.remove("pods", "default", name);
        }
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.get("pods", "default", name)
    }

    /// Waits until the pod's object is as `is_right` wants it, and returns it.
    #[track_caller]
    pub(crate) fn wait_for_pod(&self, name: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let pod = self.pod(name).unwrap_or_default();
            if is_right(&pod) {
                return pod;
            }
            assert!(begun.elapsed() < CEILING, "the pod {name} stays as {pod:#}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_phase(&self, name: &str, phase: &str) -> Value {
        self.wait_for_pod(name, |pod| pod["status"]["phase"] == phase)
    }

    #[track_caller]
    pub(crate) fn wait_until_gone(&self, name: &str) {
        wait_until(&format!("the pod {name} to be gone"), || {
            self.pod(name).is_none()
        });
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.server.is_over.store(true, Ordering::SeqCst);
        self.cut();
        // The thread waits for a connection.
        let _ = std::net::TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(server: &Arc<Server>, listener: &TcpListener, config: &Arc<ServerConfig>) {
    let mut threads = Vec::new();
    for socket in listener.incoming() {
        if server.is_over.load(Ordering::SeqCst) {
            break;
        }
        let Ok(socket) = socket else { continue };
        if server.is_down.load(Ordering::SeqCst) {
            continue;
        }
        let bell = Arc::new(Bell::new().unwrap());
        locked(&server.bells).push(bell.clone());
        let (serving, config) = (server.clone(), config.clone());
        threads.push(std::thread::spawn(move || {
            let is_held = || serving.is_held.load(Ordering::SeqCst);
            while is_held() && !serving.is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            connection::serve(&serving, socket, config, &bell);
            locked(&serving.bells).retain(|other| !Arc::ptr_eq(other, &bell));
        }));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

fn tls(authority: &Authority) -> Arc<ServerConfig> {
    let read = |name: &str| fs::read(authority.path(name)).unwrap();
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(&read(name))
            .map(Result::unwrap)
            .collect()
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca.pem") {
        roots.add(certificate).unwrap();
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let clients = clients.allow_unauthenticated().build().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&read("server.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates("server.pem"), key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}
