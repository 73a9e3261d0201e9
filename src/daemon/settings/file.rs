//! The configuration file as it is written, and the settings that it results in.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use serde::Deserialize;

use super::error::{FileError, SettingsError};
use super::values::{
    absolute_path, address, addresses, authorization_mode, bind_address, check_frequency,
    check_node_name, domain, gc_age, headers, hosts, log_files, log_format, log_levels, log_size,
    max_pods, network_choice, node_labels, node_name_or_empty, on_progress_deadline,
    parallel_pulls, path_or_none, paths, percent, pids_limit, pod_url, port_or_none, proxy_mode,
    ranges, restart_period, review_lifetime, runtime, runtime_classes, shutdown_period,
    swap_behavior, sync_frequency, sysctl_patterns, taints,
};
use super::{AuthorizationMode, Overrides, Settings};
use crate::api::cidr::Cidr;
use crate::api::decode;
use crate::base::http_client::WebUrl;
use crate::base::paths::Layout;
use crate::cluster::node::facts::Taint;
use crate::daemon::logging::{Format, Levels};
use crate::engine::images::registry::Registries;
use crate::engine::shims::RuntimeChoice;
use crate::net::network::NetworkChoice;
use crate::net::proxy::auto::ProxyMode;
use crate::pods::container_config::SwapBehavior;
use crate::workloads::OnDeadline;

/// The keys of config.json as written. Every key is optional, and null means that the key is absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct File {
    #[serde(deserialize_with = "node_name_or_empty")]
    node_name: Option<String>,
    #[serde(deserialize_with = "path_or_none")]
    kubeconfig: Option<Option<PathBuf>>,
    #[serde(deserialize_with = "path_or_none")]
    proxy_kubeconfig: Option<Option<PathBuf>>,
    #[serde(deserialize_with = "taints")]
    register_with_taints: Option<Vec<Taint>>,
    #[serde(deserialize_with = "absolute_path")]
    static_pod_path: Option<PathBuf>,
    #[serde(deserialize_with = "check_frequency")]
    file_check_frequency: Option<Duration>,
    #[serde(rename = "staticPodURL", deserialize_with = "pod_url")]
    static_pod_url: Option<Option<WebUrl>>,
    #[serde(rename = "staticPodURLHeader", deserialize_with = "headers")]
    static_pod_url_header: Option<BTreeMap<String, Vec<String>>>,
    #[serde(deserialize_with = "check_frequency")]
    http_check_frequency: Option<Duration>,
    #[serde(deserialize_with = "sync_frequency")]
    sync_frequency: Option<Duration>,
    crash_loop_back_off: CrashLoopBackOff,
    #[serde(deserialize_with = "log_size")]
    container_log_max_size: Option<u64>,
    #[serde(deserialize_with = "log_files")]
    container_log_max_files: Option<u32>,
    #[serde(rename = "nodeIP", deserialize_with = "address")]
    node_ip: Option<IpAddr>,
    #[serde(deserialize_with = "network_choice")]
    network: Option<NetworkChoice>,
    #[serde(deserialize_with = "path_or_none")]
    cni_conf_dir: Option<Option<PathBuf>>,
    #[serde(rename = "cniBinDir", deserialize_with = "paths")]
    cni_bin_dirs: Option<Vec<PathBuf>>,
    #[serde(rename = "podCIDR", deserialize_with = "ranges")]
    pod_cidrs: Option<Vec<Cidr>>,
    #[serde(rename = "serviceCIDR", deserialize_with = "ranges")]
    service_cidrs: Option<Vec<Cidr>>,
    #[serde(deserialize_with = "proxy_mode")]
    proxy_mode: Option<ProxyMode>,
    #[serde(deserialize_with = "bind_address")]
    healthz_bind_address: Option<Option<SocketAddr>>,
    #[serde(deserialize_with = "port_or_none")]
    healthz_port: Option<Option<u16>>,
    #[serde(deserialize_with = "address")]
    address: Option<IpAddr>,
    #[serde(deserialize_with = "port_or_none")]
    port: Option<Option<u16>>,
    #[serde(deserialize_with = "path_or_none")]
    tls_cert_file: Option<Option<PathBuf>>,
    #[serde(deserialize_with = "path_or_none")]
    tls_private_key_file: Option<Option<PathBuf>>,
    authentication: Authentication,
    authorization: Authorization,
    #[serde(deserialize_with = "port_or_none")]
    read_only_port: Option<Option<u16>>,
    enable_debugging_handlers: Option<bool>,
    #[serde(deserialize_with = "hosts")]
    allow_probe_hosts: Option<Vec<String>>,
    #[serde(deserialize_with = "max_pods")]
    max_pods: Option<usize>,
    #[serde(deserialize_with = "pids_limit")]
    pod_pids_limit: Option<Option<i64>>,
    #[serde(rename = "singleProcessOOMKill")]
    single_process_oom_kill: Option<bool>,
    memory_swap: MemorySwap,
    #[serde(deserialize_with = "node_labels")]
    node_labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "sysctl_patterns")]
    allowed_unsafe_sysctls: Option<Vec<String>>,
    #[serde(deserialize_with = "path_or_none")]
    resolv_conf: Option<Option<PathBuf>>,
    #[serde(rename = "clusterDNS", deserialize_with = "addresses")]
    cluster_dns: Option<Vec<IpAddr>>,
    #[serde(deserialize_with = "domain")]
    cluster_domain: Option<String>,
    #[serde(rename = "imageGCHighThresholdPercent", deserialize_with = "percent")]
    image_gc_high_threshold_percent: Option<u8>,
    #[serde(rename = "imageGCLowThresholdPercent", deserialize_with = "percent")]
    image_gc_low_threshold_percent: Option<u8>,
    #[serde(rename = "imageMinimumGCAge", deserialize_with = "gc_age")]
    image_minimum_gc_age: Option<Duration>,
    #[serde(deserialize_with = "on_progress_deadline")]
    on_progress_deadline: Option<OnDeadline>,
    serialize_image_pulls: Option<bool>,
    #[serde(deserialize_with = "parallel_pulls")]
    max_parallel_image_pulls: Option<usize>,
    pub(super) registries: Option<Registries>,
    #[serde(deserialize_with = "runtime")]
    runtime: Option<RuntimeChoice>,
    #[serde(deserialize_with = "runtime_classes")]
    runtime_classes: Option<BTreeMap<String, RuntimeChoice>>,
    allow_unfiltered_devices: Option<bool>,
    load_app_armor_profile: Option<bool>,
    #[serde(deserialize_with = "shutdown_period")]
    shutdown_grace_period: Option<Duration>,
    #[serde(deserialize_with = "shutdown_period")]
    shutdown_grace_period_critical_pods: Option<Duration>,
    logging: Logging,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Logging {
    #[serde(deserialize_with = "log_format")]
    format: Option<Option<Format>>,
    #[serde(deserialize_with = "log_levels")]
    level: Option<Levels>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct CrashLoopBackOff {
    #[serde(deserialize_with = "restart_period")]
    max_container_restart_period: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct MemorySwap {
    #[serde(deserialize_with = "swap_behavior")]
    swap_behavior: Option<SwapBehavior>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Authentication {
    x509: X509,
    webhook: TokenWebhook,
    #[serde(deserialize_with = "path_or_none")]
    bearer_token_file: Option<Option<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TokenWebhook {
    enabled: Option<bool>,
    #[serde(rename = "cacheTTL", deserialize_with = "review_lifetime")]
    cache_ttl: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(super) struct Authorization {
    #[serde(deserialize_with = "authorization_mode")]
    mode: Option<AuthorizationMode>,
    webhook: AccessWebhook,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AccessWebhook {
    #[serde(rename = "cacheAuthorizedTTL", deserialize_with = "review_lifetime")]
    cache_authorized_ttl: Option<Duration>,
    #[serde(rename = "cacheUnauthorizedTTL", deserialize_with = "review_lifetime")]
    cache_unauthorized_ttl: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct X509 {
    #[serde(rename = "clientCAFile", deserialize_with = "path_or_none")]
    client_ca_file: Option<Option<PathBuf>>,
}

impl File {
    pub(super) fn read(layout: &Layout, named: Option<&Path>) -> Result<Self, SettingsError> {
        let path = named.map_or_else(|| layout.config_file(), Path::to_owned);
        match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(|cause| SettingsError::Unusable { path, cause }),
            Err(e) if named.is_none() && e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(cause) => Err(SettingsError::Unread { path, cause }),
        }
    }

    pub(super) fn resolve(
        self,
        layout: &Layout,
        overrides: &Overrides,
        host_name: &str,
        own_address: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<Settings, SettingsError> {
        let d = Settings::default();
        let node_name = match (
            &overrides.node_name,
            self.node_name.filter(|n| !n.is_empty()),
        ) {
            (Some(name), _) => check_node_name(name).map_err(SettingsError::NodeNameOption)?,
            (None, Some(name)) => name,
            (None, None) => check_node_name(host_name).map_err(SettingsError::HostName)?,
        };
        let runtime = overrides.runtime.clone();
        let gc_high = self.image_gc_high_threshold_percent;
        let gc_high = gc_high.unwrap_or(d.image_gc_high_threshold_percent);
        let gc_low = self.image_gc_low_threshold_percent;
        let gc_low = gc_low.unwrap_or(d.image_gc_low_threshold_percent);
        if gc_low >= gc_high {
            return Err(SettingsError::ImageThresholds {
                low: gc_low,
                high: gc_high,
            });
        }
        let max_parallel = self.max_parallel_image_pulls;
        // The default and the check are those of the kubelet.
        let serialize = self.serialize_image_pulls;
        let serialize = serialize.unwrap_or(max_parallel.is_none_or(|n| n == 1));
        if serialize && max_parallel.is_some_and(|n| n > 1) {
            return Err(SettingsError::ParallelPulls);
        }
        let shutdown = self.shutdown_grace_period;
        let shutdown = shutdown.unwrap_or(d.shutdown_grace_period);
        // Without a time for all pods, critical pods have none either.
        let critical = self.shutdown_grace_period_critical_pods;
        let of_critical = critical.unwrap_or(d.shutdown_grace_period_critical_pods.min(shutdown));
        if of_critical > shutdown {
            return Err(SettingsError::ShutdownPeriods {
                critical: of_critical,
                all: shutdown,
            });
        }
        let port = self.port.unwrap_or(d.port);
        let tls_cert_file = self.tls_cert_file.unwrap_or(d.tls_cert_file);
        let tls_private_key_file = self.tls_private_key_file.unwrap_or(d.tls_private_key_file);
        let client_ca_file = self.authentication.x509.client_ca_file;
        let client_ca_file = client_ca_file.unwrap_or(d.client_ca_file);
        let bearer_token_file = self.authentication.bearer_token_file;
        let bearer_token_file = bearer_token_file.unwrap_or(d.bearer_token_file);
        let kubeconfig = self.kubeconfig.unwrap_or(d.kubeconfig);
        // In a cluster the defaults are those of a kubelet. A node that stands alone has nobody to ask.
        let webhook = self.authentication.webhook;
        let token_webhook = webhook.enabled.unwrap_or(kubeconfig.is_some());
        let authorization_mode = self.authorization.mode.unwrap_or(match kubeconfig {
            Some(_) => AuthorizationMode::Webhook,
            None => AuthorizationMode::AlwaysAllow,
        });
        let proxy_kubeconfig = self.proxy_kubeconfig.unwrap_or(d.proxy_kubeconfig);
        if kubeconfig.is_none() {
            if proxy_kubeconfig.is_some() {
                return Err(SettingsError::NoCluster("proxyKubeconfig"));
            }
            if token_webhook {
                return Err(SettingsError::NoCluster("authentication.webhook.enabled"));
            }
            if authorization_mode == AuthorizationMode::Webhook {
                return Err(SettingsError::NoCluster("authorization.mode Webhook"));
            }
        }
        if tls_cert_file.is_some() != tls_private_key_file.is_some() {
            return Err(SettingsError::HalfAPair);
        }
        if let Some(port) = port {
            let has_clients = client_ca_file.is_some() || bearer_token_file.is_some();
            if !has_clients && !token_webhook {
                return Err(SettingsError::NoClients(port));
            }
        }
        let of_access = self.authorization.webhook;
        Ok(Settings {
            node_name,
            kubeconfig,
            proxy_kubeconfig,
            register_with_taints: self.register_with_taints.unwrap_or(d.register_with_taints),
            static_pod_path: overrides
                .static_pod_path
                .clone()
                .or(self.static_pod_path)
                .unwrap_or_else(|| layout.pods_dir()),
            file_check_frequency: self.file_check_frequency.unwrap_or(d.file_check_frequency),
            static_pod_url: self.static_pod_url.unwrap_or(d.static_pod_url),
            static_pod_url_header: self
                .static_pod_url_header
                .unwrap_or(d.static_pod_url_header),
            http_check_frequency: self.http_check_frequency.unwrap_or(d.http_check_frequency),
            sync_frequency: self.sync_frequency.unwrap_or(d.sync_frequency),
            max_container_restart_period: self
                .crash_loop_back_off
                .max_container_restart_period
                .unwrap_or(d.max_container_restart_period),
            container_log_max_size: self
                .container_log_max_size
                .unwrap_or(d.container_log_max_size),
            container_log_max_files: self
                .container_log_max_files
                .unwrap_or(d.container_log_max_files),
            node_ip: self.node_ip.or_else(own_address).unwrap_or(d.node_ip),
            network: overrides.network.or(self.network).unwrap_or(d.network),
            proxy_mode: self.proxy_mode.unwrap_or(d.proxy_mode),
            cni_conf_dir: self.cni_conf_dir.unwrap_or(d.cni_conf_dir),
            cni_bin_dirs: self.cni_bin_dirs.unwrap_or(d.cni_bin_dirs),
            pod_cidrs: self.pod_cidrs.unwrap_or(d.pod_cidrs),
            service_cidrs: self.service_cidrs.unwrap_or(d.service_cidrs),
            healthz_bind_address: self.healthz_bind_address.unwrap_or(d.healthz_bind_address),
            healthz_port: self.healthz_port.unwrap_or(d.healthz_port),
            address: self.address.unwrap_or(d.address),
            port,
            tls_cert_file,
            tls_private_key_file,
            client_ca_file,
            bearer_token_file,
            token_webhook,
            authorization_mode,
            token_ttl: webhook.cache_ttl.unwrap_or(d.token_ttl),
            authorized_ttl: of_access.cache_authorized_ttl.unwrap_or(d.authorized_ttl),
            unauthorized_ttl: of_access
                .cache_unauthorized_ttl
                .unwrap_or(d.unauthorized_ttl),
            read_only_port: self.read_only_port.unwrap_or(d.read_only_port),
            enable_debugging_handlers: self
                .enable_debugging_handlers
                .unwrap_or(d.enable_debugging_handlers),
            allow_probe_hosts: self.allow_probe_hosts.unwrap_or(d.allow_probe_hosts),
            max_pods: self.max_pods.unwrap_or(d.max_pods),
            pod_pids_limit: self.pod_pids_limit.unwrap_or(d.pod_pids_limit),
            single_process_oom_kill: self.single_process_oom_kill,
            swap_behavior: self.memory_swap.swap_behavior.unwrap_or(d.swap_behavior),
            node_labels: self.node_labels.unwrap_or(d.node_labels),
            allowed_unsafe_sysctls: self
                .allowed_unsafe_sysctls
                .unwrap_or(d.allowed_unsafe_sysctls),
            resolv_conf: self.resolv_conf.unwrap_or(d.resolv_conf),
            cluster_dns: self.cluster_dns.unwrap_or(d.cluster_dns),
            cluster_domain: self.cluster_domain.unwrap_or(d.cluster_domain),
            image_gc_high_threshold_percent: gc_high,
            image_gc_low_threshold_percent: gc_low,
            image_minimum_gc_age: self.image_minimum_gc_age.unwrap_or(d.image_minimum_gc_age),
            on_progress_deadline: self.on_progress_deadline.unwrap_or(d.on_progress_deadline),
            serialize_image_pulls: serialize,
            max_parallel_image_pulls: max_parallel,
            registries: self.registries.unwrap_or(d.registries),
            runtime: runtime.or(self.runtime).unwrap_or(d.runtime),
            runtime_classes: self.runtime_classes.unwrap_or(d.runtime_classes),
            allow_unfiltered_devices: self
                .allow_unfiltered_devices
                .unwrap_or(d.allow_unfiltered_devices),
            load_app_armor_profile: self
                .load_app_armor_profile
                .unwrap_or(d.load_app_armor_profile),
            shutdown_grace_period: shutdown,
            shutdown_grace_period_critical_pods: of_critical,
            log_format: overrides
                .log_format
                .or(self.logging.format.unwrap_or(d.log_format)),
            log_levels: overrides
                .log_levels
                .clone()
                .or(self.logging.level)
                .unwrap_or(d.log_levels),
            written: None,
            origin: None,
        })
    }
}

pub(super) fn host_name() -> String {
    nix::unistd::gethostname()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns the source address of packets to other hosts: the address of the interface with the default route, as the
/// kubelet finds it. Returns None without a route. Nothing is sent, because connecting a datagram socket only chooses
/// a route.
pub(super) fn own_address() -> Option<IpAddr> {
    let towards = |bind: &str, documentation: &str| {
        let socket = UdpSocket::bind((bind, 0)).ok()?;
        socket.connect((documentation, 9)).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    };
    towards("0.0.0.0", "192.0.2.1").or_else(|| towards("::", "2001:db8::1"))
}

/// Checks `singleProcessOOMKill` as the kubelet does: false needs cgroup v2.
pub(super) fn check_oom_kill(single: Option<bool>, pure_v2: bool) -> Result<(), SettingsError> {
    match (single, pure_v2) {
        (Some(false), false) => Err(SettingsError::OomKill),
        _ => Ok(()),
    }
}

pub(super) fn parse(bytes: &[u8]) -> Result<File, FileError> {
    // serde would accept `[]` as an object without keys.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(FileError::NoObject);
    }
    Ok(decode::configuration(bytes).map_err(Box::new)?)
}
