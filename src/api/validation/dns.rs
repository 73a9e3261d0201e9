//! Validates the fields for host names of containers and for their resolver (kubelet-probes 1.7).

use std::net::IpAddr;

use super::checks::named;
use super::names::{is_dns_label, is_dns_subdomain};
use crate::api::field::{FieldError, child, item};
use crate::api::pod::{PodDnsConfig, PodSpec};

const POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// Length of the longest host name that the kernel accepts, in bytes.
const HOST_NAME_MAX: usize = 64;
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCH_CHARACTERS_MAX: usize = 2048;

pub(super) fn validate_policy(errors: &mut Vec<FieldError>, policy: &str, path: &str) {
    if policy.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported(path, policy, &POLICIES));
    }
}

pub(super) fn validate_dns_config(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    let policy = spec.dns_policy.as_str();
    match &spec.dns_config {
        None if policy == "None" => errors.push(FieldError::required(
            path,
            "must provide `dnsConfig` when `dnsPolicy` is None",
        )),
        Some(config) if policy == "None" && config.nameservers.is_empty() => {
            errors.push(FieldError::required(
                child(path, "nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            ));
        }
        Some(config) => dns_config(errors, config, path),
        None => {}
    }
}

fn dns_config(errors: &mut Vec<FieldError>, config: &PodDnsConfig, path: &str) {
    let at = child(path, "nameservers");
    if config.nameservers.len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.push(FieldError::invalid(
            at.as_str(),
            config.nameservers.clone(),
            detail,
        ));
    }
    for (index, address) in config.nameservers.iter().enumerate() {
        ip(errors, &item(&at, index), address);
    }
    searches(errors, &config.searches, &child(path, "searches"));
    for (index, option) in config.options.iter().enumerate() {
        let at = item(&child(path, "options"), index);
        if option.name.is_empty() {
            errors.push(FieldError::required(at.as_str(), "must not be empty"));
        }
        one_word(errors, &child(&at, "name"), &option.name);
        one_word(
            errors,
            &child(&at, "value"),
            option.value.as_deref().unwrap_or_default(),
        );
    }
}

/// Refuses a text with white space or control characters. The API accepts any text, but such a text would become
/// several words or lines of resolv.conf.
fn one_word(errors: &mut Vec<FieldError>, path: &str, text: &str) {
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        let detail = "must not contain white space or control characters: it becomes a word of /etc/resolv.conf";
        errors.push(FieldError::invalid(path, text, detail));
    }
}

fn searches(errors: &mut Vec<FieldError>, searches: &[String], path: &str) {
    if searches.len() > SEARCHES_MAX {
        let detail = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.push(FieldError::invalid(path, searches.to_vec(), detail));
    }
    if searches.join(" ").len() > SEARCH_CHARACTERS_MAX {
        let detail = format!(
            "must not have more than {SEARCH_CHARACTERS_MAX} characters (including spaces) in the search list"
        );
        errors.push(FieldError::invalid(path, searches.to_vec(), detail));
    }
    for (index, search) in searches.iter().enumerate() {
        // A dot at the end is allowed: it stands for the root.
        let name = search.strip_suffix('.').unwrap_or(search);
        named(errors, &item(path, index), name, is_dns_subdomain);
    }
}

/// Checks `hostname`, `subdomain`, `hostnameOverride` and `hostAliases`.
pub(super) fn validate_names(errors: &mut Vec<FieldError>, spec: &PodSpec, path: &str) {
    for (field, name) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if !name.is_empty() {
            named(errors, &child(path, field), name, is_dns_label);
        }
    }
    if let Some(name) = &spec.hostname_override {
        host_name_override(errors, spec, name, &child(path, "hostnameOverride"));
    }
    for (index, alias) in spec.host_aliases.iter().enumerate() {
        let path = item(&child(path, "hostAliases"), index);
        ip(errors, &child(&path, "ip"), &alias.ip);
        for (index, name) in alias.hostnames.iter().enumerate() {
            let at = item(&child(&path, "hostnames"), index);
            named(errors, &at, name, is_dns_subdomain);
        }
    }
}

fn host_name_override(errors: &mut Vec<FieldError>, spec: &PodSpec, name: &str, path: &str) {
    named(errors, path, name, is_dns_subdomain);
    if name.len() > HOST_NAME_MAX {
        errors.push(FieldError::too_long(path, HOST_NAME_MAX));
    }
    for (set, other) in [
        (spec.host_network, "hostNetwork"),
        (spec.set_hostname_as_fqdn, "setHostnameAsFQDN"),
    ] {
        if set {
            let detail = format!("may not be specified when `{other}` is true");
            errors.push(FieldError::forbidden(path, detail));
        }
    }
}

/// Checks an address with the API's older rule. Addresses with leading zeros are refused, because some programs read
/// them as octal and others as decimal.
fn ip(errors: &mut Vec<FieldError>, path: &str, address: &str) {
    if address.parse::<IpAddr>().is_err() {
        let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
        errors.push(FieldError::invalid(path, address, detail));
    }
}
