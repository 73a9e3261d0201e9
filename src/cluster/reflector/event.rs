//! The answers of an API server as a reflector reads them: events of a watch, pages of a list, and refusals.

use serde_json::{Map, Value};

use super::trouble::{BadAnswer, NO_RELATIONSHIP};

/// Annotation of the bookmark after which a watch has sent every object that was there when it began.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Largest number of characters of a message of the API server that texts repeat.
const MESSAGE: usize = 500;

/// An event of a watch.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// The object is new in the selection.
    Added(Value),
    /// The object has changed.
    Modified(Value),
    /// The object is gone, or no longer in the selection. The object is as it was last.
    Deleted(Value),
    /// Everything up to the version has been sent.
    Bookmark {
        /// Version up to which the watch has sent everything.
        version: String,
        /// True if this is the end of the objects that were there when the watch began.
        is_end_of_initial: bool,
    },
    /// The watch ends with an error.
    Error(Refusal),
}

impl Event {
    /// Reads a line of a watch.
    pub(super) fn read(line: &[u8]) -> Result<Self, BadAnswer> {
        let mut event: Value = serde_json::from_slice(line)?;
        let mut object = event["object"].take();
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "ERROR" {
            return Ok(Self::Error(Refusal::of_status(&object)));
        }
        let version = version_of(&object)?;
        if kind == "BOOKMARK" {
            let end = &object["metadata"]["annotations"][INITIAL_EVENTS_END];
            return Ok(Self::Bookmark {
                version,
                is_end_of_initial: end == "true",
            });
        }
        name_of(&object)?;
        slim(&mut object);
        match kind {
            "ADDED" => Ok(Self::Added(object)),
            "MODIFIED" => Ok(Self::Modified(object)),
            "DELETED" => Ok(Self::Deleted(object)),
            other => Err(BadAnswer::Type(clipped(other))),
        }
    }
}

/// A page of a list.
#[derive(Debug, PartialEq)]
pub(super) struct ListPage {
    /// Objects of the page, each with its `kind` and `apiVersion`.
    pub(super) items: Vec<Value>,
    /// Version of the list.
    pub(super) version: String,
    /// Token for the next page; None for the last page.
    pub(super) further: Option<String>,
}

impl ListPage {
    /// Reads the answer to a request for a list.
    pub(super) fn read(body: &[u8]) -> Result<Self, BadAnswer> {
        let mut list: Value = serde_json::from_slice(body)?;
        let version = version_of(&list)?;
        let further = list["metadata"]["continue"].as_str();
        let further = further.filter(|token| !token.is_empty()).map(str::to_owned);
        let kind = list["kind"].as_str().unwrap_or_default();
        let kind = kind.strip_suffix("List").unwrap_or_default().to_owned();
        let api_version = list["apiVersion"].take();
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        for item in &mut items {
            version_of(item)?;
            name_of(item)?;
            slim(item);
            // A list says the kind of its items once for all of them.
            if let Value::Object(map) = item {
                let own: Map<String, Value> = std::mem::take(map);
                map.insert("kind".into(), kind.as_str().into());
                map.insert("apiVersion".into(), api_version.clone());
                map.extend(own);
            }
        }
        Ok(Self {
            items,
            version,
            further,
        })
    }
}

/// A refusal of the API server: the status of an HTTP answer, or the error that ends a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    /// HTTP status; 0 if an error of a watch has none.
    pub(super) code: u16,
    /// Message of the API server, clipped.
    pub(super) message: String,
    /// True if the requested version is newer than what the API server has.
    is_too_large: bool,
    /// True if the requested version is older than what the API server keeps.
    is_expired: bool,
}

impl Refusal {
    /// Reads a `Status`, which is the object of an event ERROR.
    fn of_status(status: &Value) -> Self {
        let reason = status["reason"].as_str().unwrap_or_default();
        let code = status["code"].as_u64().unwrap_or_default();
        let code = u16::try_from(code).unwrap_or_default();
        let causes = status["details"]["causes"].as_array();
        let is_too_large = |cause: &Value| cause["reason"] == "ResourceVersionTooLarge";
        Self {
            code,
            message: clipped(status["message"].as_str().unwrap_or_default()),
            is_too_large: causes.is_some_and(|causes| causes.iter().any(is_too_large)),
            is_expired: code == 410 || ["Expired", "Gone"].contains(&reason),
        }
    }

    /// Reads an HTTP answer. Proxies on the way answer with plain text.
    pub(super) fn of_answer(code: u16, body: &[u8]) -> Self {
        let status = serde_json::from_slice(body).unwrap_or_default();
        let read = Self::of_status(&status);
        let message = match read.message.is_empty() {
            true => clipped(String::from_utf8_lossy(body).trim()),
            false => read.message,
        };
        Self {
            code,
            message,
            is_expired: code == 410,
            ..read
        }
    }

    /// True if the API server cannot continue from the requested version.
    pub(super) fn has_lost_the_version(&self) -> bool {
        self.is_expired || self.is_too_large
    }

    /// True if a plain list may be answered although a watch with an initial list is refused: the API server has none, or its
    /// etcd is too old for them.
    pub(super) fn is_of_the_watch_list(&self) -> bool {
        !matches!(self.code, 401 | 403 | 429) && !self.has_lost_the_version()
    }

    /// True if the authorizer does not know yet that a pod of the node refers to the object. It follows the API
    /// server's own watch, so it is behind for some milliseconds after a binding, and longer after a start.
    pub(super) fn is_of_a_late_authorizer(&self) -> bool {
        self.message.contains(NO_RELATIONSHIP)
    }
}

/// Returns namespace and name of an object, which is what the object is known by in its collection.
pub(super) fn key_of(object: &Value) -> (String, String) {
    let text = |field: &str| {
        let text = object["metadata"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    (text("namespace"), text("name"))
}

/// Returns the resource version of an object or a list.
pub(super) fn version_of(object: &Value) -> Result<String, BadAnswer> {
    text_of(object, "resourceVersion")
}

fn name_of(object: &Value) -> Result<String, BadAnswer> {
    text_of(object, "name")
}

fn text_of(object: &Value, field: &'static str) -> Result<String, BadAnswer> {
    let text = object["metadata"][field].as_str();
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Err(BadAnswer::Lacks(field)), |text| Ok(text.to_owned()))
}

/// Removes what nobody reads and what takes a third of an object: who has set which field.
fn slim(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.shift_remove("managedFields");
    }
}

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
