//! The fields by which the containers of a pod resolve names: `hostAliases` and `dnsConfig`.

use serde::{Deserialize, Serialize};

/// `hostAliases[]`: a line of the containers' /etc/hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostAlias {
    /// An IP address.
    pub ip: String,
    /// DNS subdomains.
    pub hostnames: Vec<String>,
}

/// `dnsConfig`: added to what `dnsPolicy` gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDnsConfig {
    /// IP addresses, at most 3.
    pub nameservers: Vec<String>,
    /// DNS subdomains, with or without a dot at the end; at most 32, and 2048 characters.
    pub searches: Vec<String>,
    /// Replace the options of the same name.
    pub options: Vec<PodDnsConfigOption>,
}

/// `dnsConfig.options[]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDnsConfigOption {
    /// Name of a resolver option, such as `ndots`.
    pub name: String,
    /// Follows the name after a colon; None is an option without a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
