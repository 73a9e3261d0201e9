//! The daemon's configuration: `config.json`, and options of the command line that override it. Keys have the names
//! of KubeletConfiguration where the kubelet has such a key. Every key is in config/config.json with its default (a
//! test compares the two).

mod error;
mod file;
mod reload;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::cidr::Cidr;
use crate::api::service::DNS_PLACE;
use crate::base::clock::go_duration;
use crate::base::http_client::WebUrl;
use crate::base::json;
use crate::base::live::Live;
use crate::base::paths::Layout;
use crate::base::sys::cgroup_mounts::is_pure_v2;
use crate::cluster::node::facts::Taint;
use crate::cluster::reviews::Lifetimes;
use crate::daemon::logging::{Format, Levels};
use crate::engine::images::ImageGcPolicy;
use crate::engine::images::manager::Parallel;
use crate::engine::images::registry::Registries;
use crate::engine::shims::{LogBounds, RuntimeChoice, ShimOptions};
use crate::net::network::cni::{BIN_DIRS, CniSettings};
use crate::net::network::pod_cidrs::PodCidrs;
use crate::net::network::{NetworkChoice, NetworkSettings};
use crate::net::proxy::auto::ProxyMode;
use crate::pods::container_config::{ClusterDns, ResourcePolicy, SwapBehavior};
use crate::pods::drain::ShutdownGrace;
use crate::pods::kuberuntime::NodeDns;
use crate::workloads::{self as controllers, OnDeadline};
pub use error::{FileError, SettingsError};
use file::{File, check_oom_kill, host_name, own_address};
pub use reload::AT_ONCE;
use values::HEALTHZ_PORT;
pub use values::ValueError;

/// The validated configuration of the daemon. The comment of each field begins with the field's key. The table in
/// docs/manual/configuration.md consists of these comments, so their links are relative to that page.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `nodeName`: the name of the node, which ends every pod's name, in lower case; empty means the host name.
    pub node_name: String,
    /// `kubeconfig`: the kubeconfig with which the daemon is a node of a cluster ([A node of a cluster](cluster.md));
    /// empty means that the node stands alone.
    pub kubeconfig: Option<PathBuf>,
    /// `proxyKubeconfig`: the kubeconfig with which the services and endpoint slices of the cluster are read, so that
    /// podprobe serves them in place of kube-proxy ([A node of a cluster](cluster.md#services)); empty means that it
    /// serves none.
    pub proxy_kubeconfig: Option<PathBuf>,
    /// `registerWithTaints`: the taints that the node has when it is registered in a cluster, each with `key`, `value`
    /// and `effect`.
    pub register_with_taints: Vec<Taint>,
    /// `staticPodPath`: the watched directory of pod files, or a single file.
    pub static_pod_path: PathBuf,
    /// `fileCheckFrequency`: the time between two listings of the directory, which is also watched; 100ms to 24h.
    pub file_check_frequency: Duration,
    /// `staticPodURL`: the URL that pods are also fetched from, http or https ([Pods from a
    /// URL](pod-files.md#pods-from-a-url)); empty means that no pods are fetched.
    pub static_pod_url: Option<WebUrl>,
    /// `staticPodURLHeader`: headers of the requests for pods, each with its values.
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// `httpCheckFrequency`: the time between two requests for pods; 100ms to 24h.
    pub http_check_frequency: Duration,
    /// `syncFrequency`: the time between two syncs of a healthy pod; 1s to 24h.
    pub sync_frequency: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`: the longest back-off before a restart; 1s to 300s.
    pub max_container_restart_period: Duration,
    /// `containerLogMaxSize`: the size at which a log is rotated; 4Ki to 1024Gi.
    pub container_log_max_size: u64,
    /// `containerLogMaxFiles`: the number of files of a log that are kept, the current one included; 2 to 1000.
    pub container_log_max_files: u32,
    /// `nodeIP`: the address of pods with hostNetwork, which their probes connect to; empty means the node's own
    /// ([below](#addresses)).
    pub node_ip: IpAddr,
    /// `network`: the network of pods: `auto`, `bridge`, `cni` or `none` ([below](#network-and-proxymode)).
    pub network: NetworkChoice,
    /// `cniConfDir`: the directory of CNI configurations; empty means `etc/cni/net.d` below the root.
    pub cni_conf_dir: Option<PathBuf>,
    /// `cniBinDir`: the directories of CNI plugins in the order in which they are searched, with a comma between
    /// them.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// `podCIDR`: the range of pod addresses, IPv4 or IPv6, or one of each with a comma between them; prefix 8 to 30
    /// or 48 to 126. In a cluster the ranges that the control plane gives the node count instead, if it gives any.
    pub pod_cidrs: Vec<Cidr>,
    /// `serviceCIDR`: the range of service addresses, in the same form as `podCIDR`. It does not count in a cluster,
    /// whose control plane gives services their addresses.
    pub service_cidrs: Vec<Cidr>,
    /// `proxyMode`: the data path that leads clients of services to pods: `auto`, `nftables` or `userspace`
    /// ([below](#network-and-proxymode)).
    pub proxy_mode: ProxyMode,
    /// `healthzBindAddress`: the address with a port where the health of services is served
    /// ([Health](services-and-names.md#health)); empty means that the daemon does not listen.
    pub healthz_bind_address: Option<SocketAddr>,
    /// `healthzPort`: the port on 127.0.0.1 where the daemon's own health is served ([Server](server.md)); 0 means
    /// that the daemon does not listen.
    pub healthz_port: Option<u16>,
    /// `address`: the address that the server listens on with `port`.
    pub address: IpAddr,
    /// `port`: the port where the server answers with TLS; it needs a client CA or a token, or a cluster; 0 means that
    /// the server does not listen.
    pub port: Option<u16>,
    /// `tlsCertFile`: the certificate of the server on `port`, with the intermediate ones, in PEM; empty means that the
    /// server makes one and signs it itself.
    pub tls_cert_file: Option<PathBuf>,
    /// `tlsPrivateKeyFile`: the key of `tlsCertFile`, in PEM, in a file that only its owner can read.
    pub tls_private_key_file: Option<PathBuf>,
    /// `authentication.x509.clientCAFile`: certificate authorities, in PEM; a client on `port` with a certificate of
    /// one of them may do everything, or in a cluster what `authorization.mode` allows.
    pub client_ca_file: Option<PathBuf>,
    /// `authentication.bearerTokenFile`: a file with a token of 16 to 4096 characters, which only its owner can read;
    /// a client that sends the token on `port` may do everything.
    pub bearer_token_file: Option<PathBuf>,
    /// `authentication.webhook.enabled`: true if the API server is asked who has a token that a client sends on `port`;
    /// null means true in a cluster, and false on a node that stands alone.
    pub token_webhook: bool,
    /// `authorization.mode`: `Webhook` if the API server is asked what a client on `port` may do, or `AlwaysAllow`; null
    /// means `Webhook` in a cluster, and `AlwaysAllow` on a node that stands alone
    /// ([A node of a cluster](cluster.md#who-may-ask-the-node)).
    pub authorization_mode: AuthorizationMode,
    /// `authentication.webhook.cacheTTL`: the time for which the user of a token is remembered; 0s to 24h.
    pub token_ttl: Duration,
    /// `authorization.webhook.cacheAuthorizedTTL`: the time for which it is remembered that a user may do something; 0s
    /// to 24h.
    pub authorized_ttl: Duration,
    /// `authorization.webhook.cacheUnauthorizedTTL`: the time for which it is remembered that a user may not do
    /// something; 0s to 24h.
    pub unauthorized_ttl: Duration,
    /// `readOnlyPort`: the port on 127.0.0.1 where every client gets metrics, pods and the status page; 0 means that
    /// the server does not listen.
    pub read_only_port: Option<u16>,
    /// `enableDebuggingHandlers`: true if the server answers exec, run, attach, port-forward, cp and logs.
    pub enable_debugging_handlers: bool,
    /// `allowProbeHosts`: hosts that a probe may name besides the pod's own addresses and loopback.
    pub allow_probe_hosts: Vec<String>,
    /// `maxPods`: the largest number of pods that run at the same time; 1 or more.
    pub max_pods: usize,
    /// `podPidsLimit`: the largest number of processes and threads in a pod; -1 means no limit.
    pub pod_pids_limit: Option<i64>,
    /// `singleProcessOOMKill`: true if the kernel kills one process of a container that runs out of memory, false if
    /// it kills all; null lets the cgroup version decide ([below](#memory)).
    pub single_process_oom_kill: Option<bool>,
    /// `memorySwap.swapBehavior`: the containers that may be swapped out: `NoSwap` means none, `LimitedSwap` means
    /// Burstable ones, in part ([below](#memory)).
    pub swap_behavior: SwapBehavior,
    /// `nodeLabels`: labels of the node, in addition to those that every node has.
    pub node_labels: BTreeMap<String, String>,
    /// `allowedUnsafeSysctls`: kernel parameters that pods may set besides the safe ones; a name that ends with `*`
    /// means all parameters that begin with the text before it.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `resolvConf`: the resolver file that the resolver files of pods are made from; empty means the resolver of the
    /// node itself.
    pub resolv_conf: Option<PathBuf>,
    /// `clusterDNS`: addresses of the resolver of pods with `dnsPolicy: ClusterFirst`; an empty list means podprobe's
    /// own resolver ([below](#resolvers)).
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`: the domain of the cluster ([below](#resolvers)); empty means that services have no names.
    pub cluster_domain: String,
    /// `imageGCHighThresholdPercent`: the use of the disk at which pulled images are removed that no container uses;
    /// 0 to 100, and 100 means never.
    pub image_gc_high_threshold_percent: u8,
    /// `imageGCLowThresholdPercent`: the use of the disk down to which images are removed; less than the high
    /// threshold.
    pub image_gc_low_threshold_percent: u8,
    /// `imageMinimumGCAge`: the age below which an image is not removed; 0s to 24h.
    pub image_minimum_gc_age: Duration,
    /// `onProgressDeadline`: what a Deployment does when a rollout makes no progress for its `progressDeadlineSeconds`:
    /// `report` or `rollback`; the annotation `podprobe.io/on-progress-deadline` of a Deployment counts more
    /// ([below](#deployments)).
    pub on_progress_deadline: OnDeadline,
    /// `serializeImagePulls`: true if images are pulled one after the other; must be false for parallel pulls.
    pub serialize_image_pulls: bool,
    /// `maxParallelImagePulls`: the largest number of parallel pulls if pulls are not serialized; null means no
    /// limit.
    pub max_parallel_image_pulls: Option<usize>,
    /// `registries`: settings of registries: mirrors, logins, certificates ([Images](images.md#registries)).
    pub registries: Registries,
    /// `runtime`: `embedded`, or the absolute path of an OCI runtime such as runc or crun.
    pub runtime: RuntimeChoice,
    /// `runtimeClasses`: more runtimes by the name that a pod gives in `runtimeClassName`, or in a cluster by the
    /// `handler` of that class; each is `embedded` or an absolute path.
    pub runtime_classes: BTreeMap<String, RuntimeChoice>,
    /// `allowUnfilteredDevices`: true if containers may run on a node whose kernel cannot filter their devices
    /// ([Volumes](volumes.md#devices)); any image can then read and write the node's disks.
    pub allow_unfiltered_devices: bool,
    /// `loadAppArmorProfile`: true if the daemon loads its own profile `podprobe-default` when it starts, and
    /// replaces one of that name ([AppArmor](apparmor.md)).
    pub load_app_armor_profile: bool,
    /// `shutdownGracePeriod`: the time in which all pods end when the node shuts down ([Cordon,
    /// drain, shutdown](shutdown.md)); 0s to 1h. With 0s podprobe does nothing at a shutdown.
    pub shutdown_grace_period: Duration,
    /// `shutdownGracePeriodCriticalPods`: the part of `shutdownGracePeriod` that critical pods have after the others; at
    /// most `shutdownGracePeriod`.
    pub shutdown_grace_period_critical_pods: Duration,
    /// `logging.format`: the form of the daemon's log: `text`, `json` or `journald`; empty means `journald` if stderr is
    /// systemd's journal, and `text` otherwise ([The log](log.md)).
    pub log_format: Option<Format>,
    /// `logging.level`: the level of the daemon's log, with other levels for single subjects, such as `warn,probes=debug`;
    /// `PODPROBE_LOG` counts more ([The log](log.md#levels)).
    pub log_levels: Levels,
    /// Content of the file as it was read, for clients that ask for the configuration in force. This field has no
    /// key.
    pub written: Option<Arc<Value>>,
    /// Place from which the configuration can be read again. This field has no key.
    pub origin: Option<Origin>,
}

/// The place of a configuration: the file, and the options of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    layout: Layout,
    named: Option<PathBuf>,
    overrides: Overrides,
}

/// The value of `authorization.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// Whoever has authenticated may do everything.
    AlwaysAllow,
    /// The API server is asked.
    Webhook,
}

/// The file with every key and its default.
pub const SHIPPED: &str = include_str!("../../../config/config.json");
impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: "localhost".into(),
            kubeconfig: None,
            proxy_kubeconfig: None,
            register_with_taints: Vec::new(),
            static_pod_path: PathBuf::from("/etc/podprobe/pods"),
            file_check_frequency: Duration::from_secs(20),
            static_pod_url: None,
            static_pod_url_header: BTreeMap::new(),
            http_check_frequency: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            max_container_restart_period: Duration::from_secs(300),
            container_log_max_size: 10 << 20,
            container_log_max_files: 5,
            node_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            network: NetworkChoice::Auto,
            cni_conf_dir: None,
            cni_bin_dirs: BIN_DIRS.map(PathBuf::from).into(),
            pod_cidrs: vec![Cidr::v4([10, 244, 0, 0], 24)],
            service_cidrs: vec![Cidr::v4([10, 96, 0, 0], 16)],
            proxy_mode: ProxyMode::Auto,
            healthz_bind_address: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), HEALTHZ_PORT)),
            healthz_port: Some(10248),
            address: Ipv4Addr::UNSPECIFIED.into(),
            port: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            client_ca_file: None,
            bearer_token_file: None,
            token_webhook: false,
            authorization_mode: AuthorizationMode::AlwaysAllow,
            token_ttl: Duration::from_secs(120),
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
            read_only_port: None,
            enable_debugging_handlers: true,
            allow_probe_hosts: Vec::new(),
            max_pods: 110,
            pod_pids_limit: None,
            single_process_oom_kill: None,
            swap_behavior: SwapBehavior::NoSwap,
            node_labels: BTreeMap::new(),
            allowed_unsafe_sysctls: Vec::new(),
            resolv_conf: Some("/etc/resolv.conf".into()),
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".into(),
            image_gc_high_threshold_percent: ImageGcPolicy::default().high_percent,
            image_gc_low_threshold_percent: ImageGcPolicy::default().low_percent,
            image_minimum_gc_age: ImageGcPolicy::default().min_age,
            on_progress_deadline: OnDeadline::Report,
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            registries: Registries::default(),
            runtime: RuntimeChoice::Embedded,
            runtime_classes: BTreeMap::new(),
            allow_unfiltered_devices: false,
            load_app_armor_profile: false,
            shutdown_grace_period: Duration::from_secs(30),
            shutdown_grace_period_critical_pods: Duration::from_secs(10),
            log_format: None,
            log_levels: Levels::default(),
            written: None,
            origin: None,
        }
    }
}

/// Options of the command line that override the configuration file. None keeps the value of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// Path of the directory of pod files, from `--pods`.
    pub static_pod_path: Option<PathBuf>,
    /// Runtime from `--runtime`.
    pub runtime: Option<RuntimeChoice>,
    /// Kind of network from `--network`.
    pub network: Option<NetworkChoice>,
    /// Name of the node, from `--node-name`.
    pub node_name: Option<String>,
    /// Form of the log, from `--log-format`.
    pub log_format: Option<Format>,
    /// Levels of the log, from the variable PODPROBE_LOG.
    pub log_levels: Option<Levels>,
}

impl Settings {
    /// Returns the times for which answers of the API server about clients are good.
    pub const fn review_lifetimes(&self) -> Lifetimes {
        Lifetimes {
            token: self.token_ttl,
            authorized: self.authorized_ttl,
            unauthorized: self.unauthorized_ttl,
        }
    }

    /// Returns the times of a shutdown of the node.
    pub const fn shutdown_grace(&self) -> ShutdownGrace {
        ShutdownGrace {
            all: self.shutdown_grace_period,
            critical: self.shutdown_grace_period_critical_pods,
        }
    }

    /// Returns the addresses at which podprobe itself answers DNS queries: the tenth address of each range of
    /// services. The list is empty if `clusterDNS` names other resolvers, if there is no `clusterDomain`, or if the node
    /// is one of a cluster, whose names podprobe does not know.
    pub fn own_dns(&self) -> Vec<IpAddr> {
        let has_other = !self.cluster_dns.is_empty() || self.kubeconfig.is_some();
        if has_other || self.cluster_domain.is_empty() {
            return Vec::new();
        }
        let ranges = self.service_cidrs.iter();
        ranges.filter_map(|range| range.nth(DNS_PLACE)).collect()
    }

    /// Reads the configuration. `named` is the file of `--config`. Without this option, the file is
    /// `layout.config_file()`, which may be missing. The pods directory is that of `overrides`, else that of the file,
    /// else `layout.pods_dir()`.
    ///
    /// # Errors
    /// Returns [`SettingsError`] if a named file is missing, a file cannot be read, a key is unknown or a value is
    /// not allowed.
    pub fn load(
        layout: &Layout,
        named: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<Self, SettingsError> {
        let file = File::read(layout, named)?;
        let mut settings = file.resolve(layout, overrides, &host_name(), own_address)?;
        check_oom_kill(settings.single_process_oom_kill, is_pure_v2())?;
        let path = named.map_or_else(|| layout.config_file(), Path::to_owned);
        let written = fs::read(path).ok();
        let written = written.and_then(|bytes| json::from_slice(&bytes).ok());
        settings.written = written.map(Arc::new);
        settings.origin = Some(Origin {
            layout: layout.clone(),
            named: named.map(Path::to_owned),
            overrides: overrides.clone(),
        });
        Ok(settings)
    }

    /// Returns every key with its value in force, as `/configz` shows it. Values that may be passwords are masked.
    pub fn in_force(&self) -> Value {
        let mut all = self.values();
        if let Some(headers) = all["staticPodURLHeader"].as_object_mut() {
            headers.values_mut().for_each(|v| *v = json!(["*****"]));
        }
        all
    }

    /// Returns every key with its value in force, passwords included.
    fn values(&self) -> Value {
        let mut all: Value = serde_json::from_str(SHIPPED).unwrap_or_default();
        if let Some(written) = &self.written {
            overlay(&mut all, written);
        }
        let path = |path: &Path| Value::from(path.display().to_string());
        all["nodeName"] = self.node_name.clone().into();
        all["staticPodPath"] = path(&self.static_pod_path);
        all["nodeIP"] = self.node_ip.to_string().into();
        let single = self.single_process_oom_kill;
        all["singleProcessOOMKill"] = single.unwrap_or_else(|| !is_pure_v2()).into();
        let critical = self.shutdown_grace_period_critical_pods;
        all["shutdownGracePeriodCriticalPods"] = go_duration(critical).into();
        let format = self.log_format.map(|format| format.to_string());
        all["logging"]["format"] = format.unwrap_or_default().into();
        all["logging"]["level"] = self.log_levels.to_string().into();
        all["runtime"] = match &self.runtime {
            RuntimeChoice::Embedded => "embedded".into(),
            RuntimeChoice::Path(runtime) => path(runtime),
        };
        let url = self.static_pod_url.as_ref().map(WebUrl::to_string);
        all["staticPodURL"] = url.unwrap_or_default().into();
        all
    }

    /// Reads only the key `registries`, for commands that only pull images.
    ///
    /// # Errors
    /// Returns [`SettingsError`] if the file cannot be read or used.
    pub fn load_registries(
        layout: &Layout,
        named: Option<&Path>,
    ) -> Result<Registries, SettingsError> {
        Ok(File::read(layout, named)?.registries.unwrap_or_default())
    }

    /// Returns the policy for removing pulled images when the disk is full.
    pub fn image_gc(&self) -> ImageGcPolicy {
        ImageGcPolicy {
            high_percent: self.image_gc_high_threshold_percent,
            low_percent: self.image_gc_low_threshold_percent,
            min_age: self.image_minimum_gc_age,
        }
    }

    /// Returns the settings of the pods' networks.
    pub fn networks(&self, layout: &Layout) -> NetworkSettings {
        NetworkSettings {
            choice: self.network,
            node_ip: self.node_ip,
            pod_cidrs: match self.kubeconfig {
                Some(_) => PodCidrs::of_a_cluster(self.pod_cidrs.clone(), layout.cluster()),
                None => PodCidrs::configured(self.pod_cidrs.clone()),
            },
            id: layout.id(),
            run: layout.run_dir(),
            records: layout.sandboxes(),
            proxy: layout.proxy_dir(),
            cni: CniSettings {
                conf_dir: self
                    .cni_conf_dir
                    .clone()
                    .unwrap_or_else(|| layout.cni_conf_dir()),
                bin_dirs: self.cni_bin_dirs.clone(),
                cache_dir: layout.cni_cache(),
            },
        }
    }

    /// Returns the options of the runtime of this node. The layout must be absolute.
    pub fn shims(&self, layout: &Layout) -> ShimOptions {
        ShimOptions {
            runtime: self.runtime.clone(),
            classes: self.runtime_classes.clone(),
            unfiltered_devices: self.allow_unfiltered_devices,
            network: self.networks(layout),
            logs: Live::new(self.log_bounds()),
        }
    }

    /// Returns the bounds of the logs of containers.
    pub fn log_bounds(&self) -> LogBounds {
        LogBounds {
            max_size: self.container_log_max_size,
            max_files: self.container_log_max_files,
        }
    }

    /// Returns the settings that limit the resources of pods.
    pub fn resource_policy(&self) -> ResourcePolicy {
        ResourcePolicy {
            pod_pids_limit: self.pod_pids_limit,
            single_process_oom_kill: self.single_process_oom_kill,
            swap: self.swap_behavior,
        }
    }

    /// Returns the settings of the pods' resolvers.
    pub fn node_dns(&self) -> NodeDns {
        NodeDns {
            cluster: ClusterDns {
                servers: self.cluster_dns.clone(),
                domain: self.cluster_domain.clone(),
            },
            own_dns: self.own_dns(),
            resolv_conf: self.resolv_conf.clone(),
            node_ip: self.node_ip,
        }
    }

    /// Returns the settings of controllers.
    pub fn controllers(&self) -> controllers::Settings {
        controllers::Settings {
            on_progress_deadline: self.on_progress_deadline,
        }
    }

    /// Returns how many images may be pulled at the same time.
    pub fn parallel_image_pulls(&self) -> Parallel {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (true, _) => Parallel::Serial,
            (false, None) => Parallel::Unlimited,
            (false, Some(n)) => Parallel::AtMost(n),
        }
    }
}

/// Replaces the values of `below` by those of `above`, key by key. A null in `above` keeps the value of `below`.
fn overlay(below: &mut Value, above: &Value) {
    match (below, above) {
        (_, Value::Null) => {}
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                overlay(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}
