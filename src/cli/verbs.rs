//! The table of the verbs. A new verb is a file of its own with a [`Verb`], and a row in this table.

use super::args::Verb;
use super::{
    apply, check_host, completion, condition, config, cp, create, delete, describe, drain, events,
    exec, get, image, install, logs, man, metrics, pause, port_forward, probe, rerun, restart,
    rollout, run, scale, status, top, try_out, validate, version, wait,
};

/// Every verb except `help`, in the order of the help text.
pub static VERBS: [&Verb; 37] = [
    &run::VERB,
    &try_out::VERB,
    &status::VERB,
    &top::VERB,
    &get::VERB,
    &events::VERB,
    &describe::VERB,
    &wait::VERB,
    &logs::VERB,
    &exec::EXEC,
    &exec::ATTACH,
    &port_forward::VERB,
    &cp::VERB,
    &probe::VERB,
    &pause::PAUSE,
    &pause::RESUME,
    &apply::VERB,
    &rollout::VERB,
    &scale::VERB,
    &create::VERB,
    &rerun::VERB,
    &restart::VERB,
    &delete::VERB,
    &condition::VERB,
    &metrics::VERB,
    &validate::VERB,
    &image::VERB,
    &drain::CORDON,
    &drain::DRAIN,
    &drain::UNCORDON,
    &check_host::VERB,
    &config::VERB,
    &install::INSTALL,
    &install::UNINSTALL,
    &completion::VERB,
    &man::VERB,
    &version::VERB,
];
