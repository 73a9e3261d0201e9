//! The fields that tell the containers of a pod how to resolve names: `hostAliases` and `dnsConfig`.

use serde::{Deserialize, Serialize};

/// `hostAliases[]`: a line of the containers' /etc/hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostAlias {
    /// IP address of the line.
    pub ip: String,
    /// Names for the address, each a DNS subdomain.
    pub hostnames: Vec<String>,
}

/// `dnsConfig`: resolver settings that are added to those of `dnsPolicy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDnsConfig {
    /// IP addresses of DNS servers, at most 3.
    pub nameservers: Vec<String>,
    /// Search domains: DNS subdomains, with or without a dot at the end. At most 32 domains and 2048 characters.
    pub searches: Vec<String>,
    /// Options of the resolver. An option replaces the option of the same name that `dnsPolicy` gives.
    pub options: Vec<PodDnsConfigOption>,
}

/// `dnsConfig.options[]`: an option of the resolver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDnsConfigOption {
    /// Name of a resolver option, such as `ndots`.
    pub name: String,
    /// Value of the option, which follows the name after a colon; None if the option has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}
