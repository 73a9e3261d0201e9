//! The requests by which a reflector lists and watches its objects.
//!
//! Invariant: the parameters of a query are in the order of their names, as the kubelet sends them.

use std::time::Duration;

use crate::base::clock::go_duration;

/// Largest number of objects in a page of a list.
const PAGE: &str = "500";
/// Shortest time in seconds that the API server is asked to keep a watch open. The longest time is double.
const WATCH_SECONDS: u32 = 300;
/// Shortest time in seconds that the API server is asked to keep the watch of one object open.
const OBJECT_WATCH_SECONDS: u32 = 1800;

/// Label selector of what kube-proxy reads: nothing of a headless service, or of one that is left to another proxy.
const PROXIED: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";

/// The objects that a reflector lists and watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Path of the collection, such as `/api/v1/pods`.
    collection: String,
    /// Field selector, or empty for all objects of the collection.
    field_selector: String,
    /// Label selector, or empty.
    label_selector: &'static str,
    /// Shortest time of a watch in seconds.
    watch_seconds: u32,
    /// True if the query also has `timeout`, as the queries of client-go's informers have.
    has_timeout: bool,
    reader: Reader,
}

/// The identity with which a selection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The node's own.
    Node,
    /// That of a service proxy.
    ServiceProxy,
}

impl Selection {
    /// Returns the selection of the pods that are bound to a node.
    pub fn pods_of_node(node_name: &str) -> Self {
        Self {
            has_timeout: false,
            ..Self::informer("/api/v1/pods", format!("spec.nodeName={node_name}"))
        }
    }

    /// Returns the selection of the Node object of a node.
    pub fn node(name: &str) -> Self {
        Self::informer("/api/v1/nodes", format!("metadata.name={name}"))
    }

    /// Returns the selection of the services of a namespace but headless ones.
    pub fn services_of(namespace: &str) -> Self {
        Self::informer(
            &format!("/api/v1/namespaces/{namespace}/services"),
            "spec.clusterIP!=None".to_owned(),
        )
    }

    /// Returns the selection of all services but headless ones.
    pub fn services() -> Self {
        Self::informer("/api/v1/services", "spec.clusterIP!=None".to_owned())
    }

    /// Returns the selection of all services that a service proxy serves.
    pub fn proxied_services() -> Self {
        Self {
            label_selector: PROXIED,
            reader: Reader::ServiceProxy,
            ..Self::services()
        }
    }

    /// Returns the selection of all endpoint slices that a service proxy reads.
    pub fn proxied_slices() -> Self {
        Self {
            label_selector: PROXIED,
            reader: Reader::ServiceProxy,
            ..Self::informer("/apis/discovery.k8s.io/v1/endpointslices", String::new())
        }
    }

    /// Returns the selection of the ranges of service addresses.
    pub fn service_cidrs() -> Self {
        Self {
            reader: Reader::ServiceProxy,
            ..Self::informer("/apis/networking.k8s.io/v1/servicecidrs", String::new())
        }
    }

    /// Returns the selection of one runtime class, which need not exist. A kubelet watches all of them.
    pub fn runtime_class(name: &str) -> Self {
        Self {
            watch_seconds: OBJECT_WATCH_SECONDS,
            ..Self::informer(
                "/apis/node.k8s.io/v1/runtimeclasses",
                format!("metadata.name={name}"),
            )
        }
    }

    /// Returns the selection of one Secret, which need not exist.
    pub fn secret(namespace: &str, name: &str) -> Self {
        Self::object("secrets", namespace, name)
    }

    /// Returns the selection of one ConfigMap, which need not exist.
    pub fn config_map(namespace: &str, name: &str) -> Self {
        Self::object("configmaps", namespace, name)
    }

    fn informer(collection: &str, field_selector: String) -> Self {
        Self {
            collection: collection.to_owned(),
            field_selector,
            label_selector: "",
            watch_seconds: WATCH_SECONDS,
            has_timeout: true,
            reader: Reader::Node,
        }
    }

    fn object(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            watch_seconds: OBJECT_WATCH_SECONDS,
            ..Self::informer(
                &format!("/api/v1/namespaces/{namespace}/{resource}"),
                format!("metadata.name={name}"),
            )
        }
    }

    /// Returns the identity that must be allowed to read the selection.
    pub(super) fn reader(&self) -> Reader {
        self.reader
    }

    /// Returns the path of the collection, for texts.
    pub fn collection(&self) -> &str {
        &self.collection
    }

    /// Returns the request for the whole selection as a stream: each object, a bookmark, and then the changes.
    /// `version` is the last known resource version, or empty. `random` is at least 0 and below 1.
    pub(super) fn watch_list(&self, version: &str, random: f64) -> Request {
        let mut query = self.query();
        query.add("allowWatchBookmarks", "true");
        query.add("resourceVersion", version);
        query.add("resourceVersionMatch", "NotOlderThan");
        query.add("sendInitialEvents", "true");
        self.watch_request(query, random)
    }

    /// Returns the request for the changes after `version`.
    pub(super) fn watch(&self, version: &str, random: f64) -> Request {
        let mut query = self.query();
        query.add("allowWatchBookmarks", "true");
        query.add("resourceVersion", version);
        self.watch_request(query, random)
    }

    fn watch_request(&self, mut query: Query, random: f64) -> Request {
        let seconds = (f64::from(self.watch_seconds) * (1.0 + random)) as u64;
        if self.has_timeout {
            query.add("timeout", &go_duration(Duration::from_secs(seconds)));
        }
        query.add("timeoutSeconds", &seconds.to_string());
        query.add("watch", "true");
        Request {
            path: query.path(&self.collection),
            is_watch: true,
        }
    }

    /// Returns the request for a page of a list.
    pub(super) fn list(&self, page: &Page) -> Request {
        let mut query = self.query();
        match page {
            Page::OfCache => {
                query.add("limit", PAGE);
                query.add("resourceVersion", "0");
            }
            // Together with a limit, the API server would take the version for an exact one.
            Page::NotOlderThan(version) => query.add("resourceVersion", version),
            Page::Newest => query.add("limit", PAGE),
            Page::Further(token) => {
                query.add("continue", token);
                query.add("limit", PAGE);
            }
        }
        Request {
            path: query.path(&self.collection),
            is_watch: false,
        }
    }

    fn query(&self) -> Query {
        let mut query = Query(Vec::new());
        query.add("fieldSelector", &self.field_selector);
        query.add("labelSelector", self.label_selector);
        query
    }
}

/// The page of a list that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The first page of what the API server has in its cache.
    OfCache,
    /// All objects, at a version that is not older than this one.
    NotOlderThan(String),
    /// The first page of the newest version.
    Newest,
    /// The page that follows another page, which had this token.
    Further(String),
}

/// A GET request that the caller sends to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Path with its query.
    pub path: String,
    /// True if a good answer is a stream of lines, each with one event. Otherwise, it is one JSON document.
    pub is_watch: bool,
}

/// The parameters of a query that are not empty.
struct Query(Vec<(&'static str, String)>);

impl Query {
    fn add(&mut self, name: &'static str, value: &str) {
        if !value.is_empty() {
            self.0.push((name, escaped(value)));
        }
    }

    /// Returns the path with the parameters in the order of their names.
    fn path(mut self, collection: &str) -> String {
        self.0.sort_unstable();
        let mut path = collection.to_owned();
        for (index, (name, value)) in self.0.iter().enumerate() {
            let before = if index == 0 { '?' } else { '&' };
            path.push(before);
            path.push_str(name);
            path.push('=');
            path.push_str(value);
        }
        path
    }
}

/// Returns the value of a parameter, escaped.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
