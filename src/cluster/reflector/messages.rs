//! The inputs of a reflector, and the actions of its caller.

use std::time::Duration;

use serde_json::Value;

use super::lines::LineTooLong;
use super::request::Request;
use super::trouble::Trouble;

/// The input of a step. All but `Tick` concern the last request.
#[derive(Debug)]
pub enum Input<'a> {
    /// The time of [`super::Reflector::deadline`] has come.
    Tick,
    /// The head of a watch has come, with the status 200.
    Opened,
    /// The watch has brought a line.
    Line(&'a [u8]),
    /// The watch has brought a line that is too long.
    LineTooLong(LineTooLong),
    /// The answer to a request for a list has come, with the status 200. The whole body is here.
    Listed(&'a [u8]),
    /// The answer has another status than 200.
    Refused {
        /// HTTP status.
        code: u16,
        /// Value of the header `Retry-After`.
        retry_after: Option<Duration>,
        /// The body, or its beginning.
        body: &'a [u8],
    },
    /// The connection has ended, or there was none.
    Ended {
        /// Reason; None if the API server has ended a watch in the proper way.
        cause: Option<&'a str>,
    },
}

/// A change that the caller makes to its store.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// These are all objects of the selection. Said once per full list: from then on, the store is synced.
    Replaced(Vec<Value>),
    /// The object is new.
    Added(Value),
    /// The object has changed.
    Modified(Value),
    /// The object is gone. It is as it was last.
    Deleted(Value),
}

/// An action that the caller carries out, in the order of the list.
#[derive(Debug)]
pub enum Action {
    /// Send this request.
    Get(Request),
    /// Close the connection of the last request.
    Close,
    /// Make this change to the store.
    Change(Change),
    /// Write this to the log.
    Report(Trouble),
}
