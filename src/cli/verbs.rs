//! The table of the verbs. A new verb is a file of its own with a [`Verb`] in it, and a row here.

use super::args::Verb;
use super::{
    apply, check_host, condition, delete, describe, get, image, logs, metrics, pause, probe,
    restart, run, try_out, validate, version, wait,
};

/// Every verb but `help`, in the order of `help`.
pub const VERBS: [&Verb; 18] = [
    &run::VERB,
    &try_out::VERB,
    &get::VERB,
    &describe::VERB,
    &wait::VERB,
    &logs::VERB,
    &probe::VERB,
    &pause::PAUSE,
    &pause::RESUME,
    &apply::VERB,
    &restart::VERB,
    &delete::VERB,
    &condition::VERB,
    &metrics::VERB,
    &validate::VERB,
    &image::VERB,
    &check_host::VERB,
    &version::VERB,
];
