//! The failures of a reflector, as texts for people. The caller writes the log.

use std::time::Duration;

use super::lines::LineTooLong;
use super::request::Reader;

/// The reasons for which an answer of the API server cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BadAnswer {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The event has a type that no watch has.
    #[error("it has the event type {0:?}")]
    Type(String),
    /// The object lacks a field of its metadata that every object has.
    #[error("its object has no metadata.{0}")]
    Lacks(&'static str),
}

/// A failed attempt to list or watch a selection. The reflector tries again by itself.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There was no connection, or it ended before the answer.
    #[error("cannot ask the API server for {collection}: {cause}")]
    Connection {
        /// Path of the collection.
        collection: String,
        /// Reason in the words of the connection.
        cause: String,
    },
    /// The API server did not answer in time.
    #[error("the API server has not answered for {collection} within {}s", limit.as_secs())]
    NoAnswer {
        /// Path of the collection.
        collection: String,
        /// Time that it had for its answer.
        limit: Duration,
    },
    /// The API server refused the request, or ended the watch with an error.
    #[error("the API server refuses {collection} with status {code}: {message}{}", way_out(*code, *reader, message))]
    Refused {
        /// Path of the collection.
        collection: String,
        /// Identity that was refused.
        reader: Reader,
        /// HTTP status.
        code: u16,
        /// Message of the API server.
        message: String,
    },
    /// The API server no longer has the changes since the last known version, so the whole list is read again.
    #[error(
        "the API server has no changes of {collection} since the last known version: {message}"
    )]
    Expired {
        /// Path of the collection.
        collection: String,
        /// Message of the API server.
        message: String,
    },
    /// Nothing came for so long that the connection must be dead, because bookmarks come every minute.
    #[error("the watch of {collection} has been silent for {}s: connecting anew", limit.as_secs())]
    Silent {
        /// Path of the collection.
        collection: String,
        /// Time without a line.
        limit: Duration,
    },
    /// The watch did not say where its initial list ends.
    #[error("the watch of {collection} has not ended its initial list within {}s: asking for a list", limit.as_secs())]
    NoEndOfInitial {
        /// Path of the collection.
        collection: String,
        /// Time that the initial list had.
        limit: Duration,
    },
    /// The answer cannot be read.
    #[error("cannot read an answer of the API server for {collection}: {cause}")]
    Unreadable {
        /// Path of the collection.
        collection: String,
        /// Reason.
        cause: BadAnswer,
    },
    /// A line of the watch is too long.
    #[error("cannot read the watch of {collection}: {cause}; make the objects smaller")]
    LineTooLong {
        /// Path of the collection.
        collection: String,
        /// Reason.
        cause: LineTooLong,
    },
    /// The initial list is too big.
    #[error(
        "the list of {collection} has more than {limit} bytes, which is too much for this node: bind fewer objects to it"
    )]
    ListTooBig {
        /// Path of the collection.
        collection: String,
        /// Largest number of bytes.
        limit: usize,
    },
}

/// The authorizer's words about an object that no pod of the node refers to, as far as it knows.
pub(super) const NO_RELATIONSHIP: &str = "no relationship found";

/// Returns what to do about a refusal, if the credentials are the cause.
fn way_out(code: u16, reader: Reader, message: &str) -> &'static str {
    match (code, reader) {
        (403, Reader::Node) if message.contains(NO_RELATIONSHIP) => {
            "; this passes when the API server knows the node's pods, and stays if none of them uses the object"
        }
        (401, _) => "; renew the client certificate or the token that the kubeconfig names",
        (403, Reader::Node) => {
            "; the kubeconfig must have the credentials of system:node:NAME, with the name of this node"
        }
        (403, Reader::ServiceProxy) => {
            "; bind the ClusterRole system:node-proxier to the user of proxyKubeconfig"
        }
        _ => "",
    }
}
