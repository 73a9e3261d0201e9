//! The daemon's configuration: `config.json` with KubeletConfiguration's names wherever the kubelet has one, and the
//! command line over it. Every key is in config/config.json with its default (a test compares the two).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs, io};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use ureq::http::{HeaderName, HeaderValue};

use crate::api::cidr::Cidr;
use crate::api::decode;
use crate::api::service::DNS_PLACE;
use crate::api::sysctls::SysctlAllowlist;
use crate::api::validation::{is_dns_subdomain, is_qualified_name, is_valid_label_value};
use crate::base::http_client::WebUrl;
use crate::base::paths::Layout;
use crate::base::sys::cgroup_mounts::is_pure_v2;
use crate::engine::images::ImageGcPolicy;
use crate::engine::images::manager::Parallel;
use crate::engine::images::registry::Registries;
use crate::engine::shims::{RuntimeChoice, ShimOptions};
use crate::net::network::cni::{BIN_DIRS, CniSettings};
use crate::net::network::{NetworkChoice, NetworkSettings};
use crate::net::proxy::auto::ProxyMode;
use crate::pods::container_config::{ClusterDns, ResourcePolicy, SwapBehavior};
use crate::pods::kuberuntime::NodeDns;

/// The validated configuration of the daemon. The first word of a field's comment is its key; the table in
/// docs/manual/configuration.md is made of them, and their links lead from there.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `nodeName`: the end of every pod's name, in lower case; empty is the host name.
    pub node_name: String,
    /// `staticPodPath`: the watched directory of pod files, or one file.
    pub static_pod_path: PathBuf,
    /// `fileCheckFrequency`: how often the directory is listed besides being watched; 100ms to 24h.
    pub file_check_frequency: Duration,
    /// `staticPodURL`: where pods are fetched from besides, http or https ([Pods from a URL](pod-files.md#pods-from-a-url)); empty is nowhere.
    pub static_pod_url: Option<WebUrl>,
    /// `staticPodURLHeader`: headers of these requests, each with its values.
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// `httpCheckFrequency`: the time between two such requests; 100ms to 24h.
    pub http_check_frequency: Duration,
    /// `syncFrequency`: how often a healthy pod is looked at again; 1s to 24h.
    pub sync_frequency: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`: the longest wait before a restart; 1s to 300s.
    pub max_container_restart_period: Duration,
    /// `containerLogMaxSize`: the size at which a log is rotated; 4Ki to 1024Gi.
    pub container_log_max_size: u64,
    /// `containerLogMaxFiles`: how many files of a log are kept, the current one included; 2 to 1000.
    pub container_log_max_files: u32,
    /// `nodeIP`: the address of pods with hostNetwork, where their probes go; empty is the node's own ([below](#addresses)).
    pub node_ip: IpAddr,
    /// `network`: what connects pods: `auto`, `bridge`, `cni` or `none` ([below](#network-and-proxymode)).
    pub network: NetworkChoice,
    /// `cniConfDir`: the directory of CNI configurations; empty is `etc/cni/net.d` below the root.
    pub cni_conf_dir: Option<PathBuf>,
    /// `cniBinDir`: the directories of CNI plugins, the first one first, with a comma between them.
    pub cni_bin_dirs: Vec<PathBuf>,
    /// `podCIDR`: the addresses of pods, IPv4 or IPv6, or one of each with a comma between them; prefix 8 to 30 or 48 to 126.
    pub pod_cidrs: Vec<Cidr>,
    /// `serviceCIDR`: the addresses of services, in the same form.
    pub service_cidrs: Vec<Cidr>,
    /// `proxyMode`: what sends clients of services to pods: `auto`, `nftables` or `userspace` ([below](#network-and-proxymode)).
    pub proxy_mode: ProxyMode,
    /// `healthzBindAddress`: where the health of services is asked for ([Health](services-and-names.md#health)), an address with a port; empty is nowhere.
    pub healthz_bind_address: Option<SocketAddr>,
    /// `healthzPort`: the port of the daemon's own health on 127.0.0.1 ([Server](server.md)); 0 is nowhere.
    pub healthz_port: Option<u16>,
    /// `address`: the address of `port`.
    pub address: IpAddr,
    /// `port`: the port where the server answers with TLS; it needs the two files of TLS, and a client CA or a token; 0 is nowhere.
    pub port: Option<u16>,
    /// `tlsCertFile`: the certificate that the server shows on `port`, with the intermediate ones, in PEM.
    pub tls_cert_file: Option<PathBuf>,
    /// `tlsPrivateKeyFile`: its key, in PEM, which only its owner can read.
    pub tls_private_key_file: Option<PathBuf>,
    /// `authentication.x509.clientCAFile`: certificate authorities, in PEM; a client on `port` with a certificate of theirs may do everything.
    pub client_ca_file: Option<PathBuf>,
    /// `authentication.bearerTokenFile`: a token; a client that sends it on `port` may do everything; 16 to 4096 characters, in a file that only its owner can read.
    pub bearer_token_file: Option<PathBuf>,
    /// `readOnlyPort`: the port on 127.0.0.1 where everybody gets metrics, pods and the status page; 0 is nowhere.
    pub read_only_port: Option<u16>,
    /// `enableDebuggingHandlers`: whether the server answers exec, run, attach, port-forward, cp and logs.
    pub enable_debugging_handlers: bool,
    /// `allowProbeHosts`: hosts that a probe may name besides the pod's own addresses and loopback.
    pub allow_probe_hosts: Vec<String>,
    /// `maxPods`: how many pods run at a time; 1 or more.
    pub max_pods: usize,
    /// `podPidsLimit`: how many processes and threads a pod may have; -1 is no limit.
    pub pod_pids_limit: Option<i64>,
    /// `singleProcessOOMKill`: of a container that has no memory left the kernel kills one process (true) or all (false); null goes by the cgroups ([below](#memory)).
    pub single_process_oom_kill: Option<bool>,
    /// `memorySwap.swapBehavior`: which containers may be swapped out: `NoSwap` or `LimitedSwap` ([below](#memory)).
    pub swap_behavior: SwapBehavior,
    /// `nodeLabels`: labels of the node besides those that every node has.
    pub node_labels: BTreeMap<String, String>,
    /// `allowedUnsafeSysctls`: kernel parameters that pods may set besides the safe ones; one that ends with `*` stands for all that begin so.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// `resolvConf`: the node's resolver file, from which the pods' are made; empty is the resolver of the node itself.
    pub resolv_conf: Option<PathBuf>,
    /// `clusterDNS`: addresses of the resolver of pods with `dnsPolicy: ClusterFirst`; none is podprobe's own ([below](#resolvers)).
    pub cluster_dns: Vec<IpAddr>,
    /// `clusterDomain`: the domain of the cluster ([below](#resolvers)); empty: there are no names of services.
    pub cluster_domain: String,
    /// `imageGCHighThresholdPercent`: when the disk is as full as this, pulled images that no container uses are removed; 0 to 100, 100 is never.
    pub image_gc_high_threshold_percent: u8,
    /// `imageGCLowThresholdPercent`: images are removed until the disk is as full as this; less than the high one.
    pub image_gc_low_threshold_percent: u8,
    /// `imageMinimumGCAge`: an image that came less than this ago stays; 0s to 24h.
    pub image_minimum_gc_age: Duration,
    /// `serializeImagePulls`: whether images are pulled one after the other; must be false for more at once.
    pub serialize_image_pulls: bool,
    /// `maxParallelImagePulls`: how many images are pulled at once when they are not serialized; null is as many as are wanted.
    pub max_parallel_image_pulls: Option<usize>,
    /// `registries`: what differs for registries: mirrors, logins, certificates ([Images](images.md#registries)).
    pub registries: Registries,
    /// `runtime`: `embedded`, or the absolute path of an OCI runtime such as runc or crun.
    pub runtime: RuntimeChoice,
    /// `runtimeClasses`: further runtimes by the name that a pod gives in `runtimeClassName`, each `embedded` or a path.
    pub runtime_classes: BTreeMap<String, RuntimeChoice>,
    /// `allowUnfilteredDevices`: whether containers run on a node whose kernel cannot filter their devices ([Volumes](volumes.md#devices)); there any image can read and write the node's disks.
    pub allow_unfiltered_devices: bool,
    /// `loadAppArmorProfile`: whether the daemon loads its own `podprobe-default` when it starts, in place of one of that name ([AppArmor](apparmor.md)).
    pub load_app_armor_profile: bool,
    /// The file as it was read, for who asks for the configuration in force; no key of it.
    pub written: Option<Arc<Value>>,
}

/// Every key with its default.
const SHIPPED: &str = include_str!("../../config/config.json");
/// The kernel's most (PID_MAX_LIMIT).
const PID_MAX: i64 = 4_194_304;
/// kube-proxy's.
const HEALTHZ_PORT: u16 = 10256;

impl Default for Settings {
    fn default() -> Self {
        Self {
            node_name: "localhost".into(),
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
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            registries: Registries::default(),
            runtime: RuntimeChoice::Embedded,
            runtime_classes: BTreeMap::new(),
            allow_unfiltered_devices: false,
            load_app_armor_profile: false,
            written: None,
        }
    }
}

/// Options of the command line that override the file; None leaves the file's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--pods`.
    pub static_pod_path: Option<PathBuf>,
    /// `--runtime`: `embedded` or a path.
    pub runtime: Option<String>,
    /// `--node-name`.
    pub node_name: Option<String>,
}

/// The configuration cannot be used: one sentence with file, line, column, key and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError(String);

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

/// config.json as written; every key is optional, and null means absent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct File {
    #[serde(deserialize_with = "node_name_or_empty")]
    node_name: Option<String>,
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
    serialize_image_pulls: Option<bool>,
    #[serde(deserialize_with = "parallel_pulls")]
    max_parallel_image_pulls: Option<usize>,
    registries: Option<Registries>,
    #[serde(deserialize_with = "runtime")]
    runtime: Option<RuntimeChoice>,
    #[serde(deserialize_with = "runtime_classes")]
    runtime_classes: Option<BTreeMap<String, RuntimeChoice>>,
    allow_unfiltered_devices: Option<bool>,
    load_app_armor_profile: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct CrashLoopBackOff {
    #[serde(deserialize_with = "restart_period")]
    max_container_restart_period: Option<Duration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct MemorySwap {
    #[serde(deserialize_with = "swap_behavior")]
    swap_behavior: Option<SwapBehavior>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Authentication {
    x509: X509,
    #[serde(deserialize_with = "path_or_none")]
    bearer_token_file: Option<Option<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct X509 {
    #[serde(rename = "clientCAFile", deserialize_with = "path_or_none")]
    client_ca_file: Option<Option<PathBuf>>,
}

impl Settings {
    /// Where podprobe answers names itself: the tenth address of each range of services. Nowhere where `clusterDNS` names
    /// other resolvers or there is no `clusterDomain`.
    pub fn own_dns(&self) -> Vec<IpAddr> {
        if !self.cluster_dns.is_empty() || self.cluster_domain.is_empty() {
            return Vec::new();
        }
        let ranges = self.service_cidrs.iter();
        ranges.filter_map(|range| range.nth(DNS_PLACE)).collect()
    }

    /// Reads the configuration: `named` is the file of `--config`; without it
    /// `layout.config_file()`, which may be missing. The pods directory is the one of `overrides`,
    /// else of the file, else `layout.pods_dir()`.
    ///
    /// # Errors
    /// A named file is missing, a file cannot be read, a key is unknown or a value is not allowed.
    pub fn load(
        layout: &Layout,
        named: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<Self, SettingsError> {
        let mut settings = File::read(layout, named)?
            .resolve(layout, overrides, &host_name(), own_address)
            .and_then(|s| check_oom_kill(s.single_process_oom_kill, is_pure_v2()).map(|()| s))
            .map_err(SettingsError)?;
        let path = named.map_or_else(|| layout.config_file(), Path::to_owned);
        let written = fs::read(path).ok();
        let written = written.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        settings.written = written.map(Arc::new);
        Ok(settings)
    }

    /// Every key with its value in force, as `/configz` shows it; what may hold a password is masked.
    pub fn in_force(&self) -> Value {
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
        all["runtime"] = match &self.runtime {
            RuntimeChoice::Embedded => "embedded".into(),
            RuntimeChoice::Path(runtime) => path(runtime),
        };
        let url = self.static_pod_url.as_ref().map(WebUrl::to_string);
        all["staticPodURL"] = url.unwrap_or_default().into();
        if let Some(headers) = all["staticPodURLHeader"].as_object_mut() {
            headers.values_mut().for_each(|v| *v = json!(["*****"]));
        }
        all
    }

    /// The key `registries` alone, for who only pulls images.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_registries(
        layout: &Layout,
        named: Option<&Path>,
    ) -> Result<Registries, SettingsError> {
        Ok(File::read(layout, named)?.registries.unwrap_or_default())
    }

    /// Which pulled images are removed when the disk is full.
    pub fn image_gc(&self) -> ImageGcPolicy {
        ImageGcPolicy {
            high_percent: self.image_gc_high_threshold_percent,
            low_percent: self.image_gc_low_threshold_percent,
            min_age: self.image_minimum_gc_age,
        }
    }

    /// What the networks of pods are made from.
    pub fn networks(&self, layout: &Layout) -> NetworkSettings {
        NetworkSettings {
            choice: self.network,
            node_ip: self.node_ip,
            pod_cidrs: self.pod_cidrs.clone(),
            id: layout.id(),
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

    /// What the runtime of this node is made with. The layout is absolute.
    pub fn shims(&self, layout: &Layout) -> ShimOptions {
        ShimOptions {
            runtime: self.runtime.clone(),
            classes: self.runtime_classes.clone(),
            unfiltered_devices: self.allow_unfiltered_devices,
            network: self.networks(layout),
            log_max_size: self.container_log_max_size,
            log_max_files: self.container_log_max_files,
        }
    }

    /// What is said of the resources of pods.
    pub fn resource_policy(&self) -> ResourcePolicy {
        ResourcePolicy {
            pod_pids_limit: self.pod_pids_limit,
            single_process_oom_kill: self.single_process_oom_kill,
            swap: self.swap_behavior,
        }
    }

    /// What is said about names.
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

    /// How many images are pulled at once.
    pub fn parallel_image_pulls(&self) -> Parallel {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (true, _) => Parallel::Serial,
            (false, None) => Parallel::Unlimited,
            (false, Some(n)) => Parallel::AtMost(n),
        }
    }
}

impl File {
    fn read(layout: &Layout, named: Option<&Path>) -> Result<Self, SettingsError> {
        let path = named.map_or_else(|| layout.config_file(), Path::to_owned);
        let text = |verb: &str, e: String| {
            SettingsError(format!(
                "cannot {verb} configuration {}: {e}",
                path.display()
            ))
        };
        match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(|e| text("use", e)),
            Err(e) if named.is_none() && e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(text("read", e.to_string())),
        }
    }

    fn resolve(
        self,
        layout: &Layout,
        overrides: &Overrides,
        host_name: &str,
        own_address: impl FnOnce() -> Option<IpAddr>,
    ) -> Result<Settings, String> {
        let d = Settings::default();
        let flag = |name: &'static str| move |e: String| format!("cannot use {name}: {e}");
        let node_name = match (&overrides.node_name, self.node_name.filter(|n| !n.is_empty())) {
            (Some(name), _) => check_node_name(name).map_err(flag("--node-name"))?,
            (None, Some(name)) => name,
            (None, None) => check_node_name(host_name).map_err(|e| {
                format!("cannot use the host name as node name: {e}; set nodeName in the configuration or give --node-name")
            })?,
        };
        let runtime = overrides
            .runtime
            .as_deref()
            .map(|r| check_runtime(r).map_err(flag("--runtime")))
            .transpose()?;
        let gc_high = self.image_gc_high_threshold_percent;
        let gc_high = gc_high.unwrap_or(d.image_gc_high_threshold_percent);
        let gc_low = self.image_gc_low_threshold_percent;
        let gc_low = gc_low.unwrap_or(d.image_gc_low_threshold_percent);
        if gc_low >= gc_high {
            return Err(format!(
                "imageGCLowThresholdPercent ({gc_low}) must be less than imageGCHighThresholdPercent ({gc_high})"
            ));
        }
        let max_parallel = self.max_parallel_image_pulls;
        // The kubelet's default and its check.
        let serialize = self.serialize_image_pulls;
        let serialize = serialize.unwrap_or(max_parallel.is_none_or(|n| n == 1));
        if serialize && max_parallel.is_some_and(|n| n > 1) {
            return Err("maxParallelImagePulls cannot be larger than 1 unless serializeImagePulls is set to false".into());
        }
        let port = self.port.unwrap_or(d.port);
        let tls_cert_file = self.tls_cert_file.unwrap_or(d.tls_cert_file);
        let tls_private_key_file = self.tls_private_key_file.unwrap_or(d.tls_private_key_file);
        let client_ca_file = self.authentication.x509.client_ca_file;
        let client_ca_file = client_ca_file.unwrap_or(d.client_ca_file);
        let bearer_token_file = self.authentication.bearer_token_file;
        let bearer_token_file = bearer_token_file.unwrap_or(d.bearer_token_file);
        if let Some(port) = port {
            if tls_cert_file.is_none() || tls_private_key_file.is_none() {
                return Err(format!(
                    "port {port} needs tlsCertFile and tlsPrivateKeyFile: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -subj /CN={node_name} makes a pair"
                ));
            }
            if client_ca_file.is_none() && bearer_token_file.is_none() {
                return Err(format!(
                    "port {port} needs authentication.x509.clientCAFile or authentication.bearerTokenFile: without one of them nobody could be let in"
                ));
            }
        }
        Ok(Settings {
            node_name,
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
            network: self.network.unwrap_or(d.network),
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
            written: None,
        })
    }
}

/// Replaces what `above` has, key by key; null leaves it.
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

fn host_name() -> String {
    nix::unistd::gethostname()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// The source address of packets to other hosts, as the kubelet finds it: the address of the
/// interface with the default route. None without a route. Nothing is sent: a datagram socket only
/// chooses a route.
fn own_address() -> Option<IpAddr> {
    let towards = |bind: &str, documentation: &str| {
        let socket = UdpSocket::bind((bind, 0)).ok()?;
        socket.connect((documentation, 9)).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    };
    towards("0.0.0.0", "192.0.2.1").or_else(|| towards("::", "2001:db8::1"))
}

fn parse(bytes: &[u8]) -> Result<File, String> {
    // serde would read `[]` as an object without keys.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err("it is not a JSON object; an empty one, {}, means every default".into());
    }
    decode::configuration(bytes)
}

/// Parses a Go duration: `20s`, `1m30s`, `1.5h`, `100ms`. No sign, and a unit on every number but 0.
///
/// # Errors
/// The text is not a duration.
pub fn parse_go_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let bad = || format!("\"{text}\" is not a duration such as \"20s\", \"1m30s\" or \"100ms\"");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(bad)?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let (_, factor) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(bad)?;
        seconds += number.parse::<f64>().map_err(|_| bad())? * factor;
        rest = tail;
    }
    if text.is_empty() {
        Err(bad())
    } else {
        Duration::try_from_secs_f64(seconds).map_err(|_| bad())
    }
}

/// A value that is checked while it is read, so that the error has a position in the file.
fn checked<'de, D: Deserializer<'de>, R: Deserialize<'de>, T>(
    d: D,
    check: impl Fn(R) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    Option::<R>::deserialize(d)?
        .map(|raw| check(raw).map_err(D::Error::custom))
        .transpose()
}

fn duration_between(text: &str, min: Duration, max: Duration) -> Result<Duration, String> {
    let value = parse_go_duration(text)?;
    let show = crate::base::clock::go_duration;
    if value < min || value > max {
        return Err(format!(
            "{} is out of range: allowed are {} to {}",
            show(value),
            show(min),
            show(max)
        ));
    }
    Ok(value)
}

const DAY: Duration = Duration::from_secs(86_400);

fn check_frequency<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_millis(100), DAY)
    })
}

fn pod_url<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<WebUrl>>, D::Error> {
    checked(d, |t: String| match t.as_str() {
        "" => Ok(None),
        // not repeated in the error: it may hold a password
        t => WebUrl::parse(t).map(Some),
    })
}

type Headers = BTreeMap<String, Vec<String>>;

fn headers<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Headers>, D::Error> {
    checked(d, |headers: Headers| {
        for (name, values) in &headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(format!("{name:?} is not the name of a header"));
            }
            if values.iter().any(|v| HeaderValue::from_str(v).is_err()) {
                return Err(format!(
                    "the value of {name} is not text that a header can have"
                ));
            }
        }
        Ok(headers)
    })
}

fn sync_frequency<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_secs(1), DAY)
    })
}

fn percent<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    checked(d, |n: i64| {
        let percent = u8::try_from(n).ok().filter(|n| *n <= 100);
        percent.ok_or_else(|| format!("{n} is out of range: allowed are 0 to 100"))
    })
}

fn gc_age<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| duration_between(&t, Duration::ZERO, DAY))
}

fn restart_period<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_secs(1), Duration::from_secs(300))
    })
}

fn log_size<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    checked(d, |t: String| {
        const UNITS: [(&str, u64); 6] = [
            ("Ki", 1 << 10),
            ("Mi", 1 << 20),
            ("Gi", 1 << 30),
            ("k", 1000),
            ("M", 1_000_000),
            ("G", 1_000_000_000),
        ];
        let (unit, factor) = UNITS
            .into_iter()
            .find(|(unit, _)| t.ends_with(unit))
            .unwrap_or(("", 1));
        let number = t
            .strip_suffix(unit)
            .and_then(|n| n.parse::<u64>().ok())
            .and_then(|n| n.checked_mul(factor));
        number
            .filter(|n| (4096..=1 << 40).contains(n))
            .ok_or_else(|| format!("\"{t}\" is not a size from 4Ki to 1024Gi, such as \"10Mi\""))
    })
}

fn log_files<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    checked(d, |n: i64| match n {
        2..=1000 => Ok(n as u32),
        _ => Err(format!("{n} is out of range: allowed are 2 to 1000")),
    })
}

fn max_pods<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    checked(d, |n: i64| match n {
        1..=1_000_000 => Ok(n as usize),
        _ => Err(format!("{n} is out of range: allowed are 1 to 1000000")),
    })
}

fn pids_limit<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<i64>>, D::Error> {
    checked(d, |n: i64| match n {
        -1 => Ok(None),
        1..=PID_MAX => Ok(Some(n)),
        _ => Err(format!(
            "{n} is out of range: allowed are -1 for no limit and 1 to {PID_MAX}"
        )),
    })
}

fn swap_behavior<'de, D: Deserializer<'de>>(d: D) -> Result<Option<SwapBehavior>, D::Error> {
    checked(d, |t: String| t.parse())
}

/// The kubelet's check.
fn check_oom_kill(single: Option<bool>, pure_v2: bool) -> Result<(), String> {
    match (single, pure_v2) {
        (Some(false), false) => Err(
            "singleProcessOOMKill cannot be false on this node: with cgroups v1 the kernel kills one process; remove it, or use cgroup v2"
                .into(),
        ),
        _ => Ok(()),
    }
}

fn parallel_pulls<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    checked(d, |n: i64| match n {
        1..=1000 => Ok(n as usize),
        _ => Err(format!("{n} is out of range: allowed are 1 to 1000")),
    })
}

fn node_labels<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    checked(d, |labels: BTreeMap<String, String>| {
        for (key, value) in &labels {
            let complaints = [is_qualified_name(key), is_valid_label_value(value)].concat();
            if let Some(complaint) = complaints.first() {
                return Err(format!("{key}={value} is not a label: {complaint}"));
            }
        }
        Ok(labels)
    })
}

fn address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<IpAddr>, D::Error> {
    let address = checked(d, |t: String| match t.as_str() {
        "" => Ok(None),
        t => t
            .parse()
            .map(Some)
            .map_err(|_| format!("\"{t}\" is not an IP address")),
    });
    Ok(address?.flatten())
}

/// As in kube-proxy's configuration, an address alone has the default port.
fn bind_address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<SocketAddr>>, D::Error> {
    checked(d, |t: String| {
        if t.is_empty() {
            return Ok(None);
        }
        let alone = t.parse().ok().map(|ip| SocketAddr::new(ip, HEALTHZ_PORT));
        let at = alone.or_else(|| t.parse().ok());
        at.filter(|at| at.port() > 0).map(Some).ok_or_else(|| {
            format!("\"{t}\" is not an address with a port such as \"127.0.0.1:10256\" or \"[::1]:10256\"; empty is nowhere")
        })
    })
}

/// 0 is nowhere.
fn port_or_none<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<u16>>, D::Error> {
    checked(d, |n: i64| match u16::try_from(n) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(format!(
            "{n} is out of range: allowed are 1 to 65535, and 0 for nowhere"
        )),
    })
}

fn addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<IpAddr>>, D::Error> {
    checked(d, |all: Vec<String>| {
        let address = |t: &String| {
            t.parse()
                .map_err(|_| format!("\"{t}\" is not an IP address"))
        };
        all.iter().map(address).collect()
    })
}

fn network_choice<'de, D: Deserializer<'de>>(d: D) -> Result<Option<NetworkChoice>, D::Error> {
    checked(d, |t: String| t.parse())
}

fn proxy_mode<'de, D: Deserializer<'de>>(d: D) -> Result<Option<ProxyMode>, D::Error> {
    checked(d, |t: String| t.parse())
}

fn paths<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<PathBuf>>, D::Error> {
    checked(d, |t: String| {
        let path = |p: &str| match Path::new(p.trim()) {
            path if path.is_absolute() => Ok(path.to_owned()),
            path => Err(format!("\"{}\" is not an absolute path", path.display())),
        };
        t.split(',').map(path).collect()
    })
}

/// One range, or one of each family with a comma between them.
fn ranges<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Cidr>>, D::Error> {
    checked(d, |t: String| {
        let all = t.split(',').map(|r| pod_range(r.trim()));
        let all = all.collect::<Result<Vec<Cidr>, _>>()?;
        match all[..] {
            [_] => Ok(all),
            [a, b] if a.network.is_ipv4() != b.network.is_ipv4() => Ok(all),
            _ => Err(format!(
                "\"{t}\": at most one range of IPv4 and one of IPv6"
            )),
        }
    })
}

fn pod_range(text: &str) -> Result<Cidr, String> {
    let range: Cidr = text.parse()?;
    let allowed = if range.network.is_ipv4() {
        8..=30
    } else {
        48..=126
    };
    match allowed.contains(&range.prefix) {
        true => Ok(range),
        false => Err(format!(
            "\"{text}\": its prefix must be {} to {}",
            allowed.start(),
            allowed.end()
        )),
    }
}

fn sysctl_patterns<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    checked(d, |all: Vec<String>| {
        SysctlAllowlist::new((0, 0), &all).map(|_| all)
    })
}

fn domain<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    checked(d, |t: String| {
        let name = t.strip_suffix('.').unwrap_or(&t).to_owned();
        match is_dns_subdomain(&name).first() {
            Some(complaint) if !name.is_empty() => Err(format!("\"{t}\": {complaint}")),
            _ => Ok(name),
        }
    })
}

fn absolute(path: PathBuf) -> Result<PathBuf, String> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("\"{}\" is not an absolute path", path.display()))
    }
}

fn absolute_path<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
    checked(d, absolute)
}

/// Empty is none.
fn path_or_none<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<PathBuf>>, D::Error> {
    checked(d, |p: PathBuf| match p.as_os_str().is_empty() {
        true => Ok(None),
        false => absolute(p).map(Some),
    })
}

fn hosts<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    checked(d, |hosts: Vec<String>| {
        match hosts
            .iter()
            .find(|h| h.is_empty() || h.contains(char::is_whitespace))
        {
            Some(bad) => Err(format!("\"{bad}\" is not a host name or an address")),
            None => Ok(hosts),
        }
    })
}

fn node_name_or_empty<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    checked(d, |t: String| {
        if t.is_empty() {
            Ok(t)
        } else {
            check_node_name(&t)
        }
    })
}

fn runtime<'de, D: Deserializer<'de>>(d: D) -> Result<Option<RuntimeChoice>, D::Error> {
    checked(d, |t: String| check_runtime(&t))
}

fn runtime_classes<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<BTreeMap<String, RuntimeChoice>>, D::Error> {
    checked(d, |classes: BTreeMap<String, String>| {
        let class = |(name, text): (String, String)| match is_dns_subdomain(&name).first() {
            Some(complaint) => Err(format!("\"{name}\": {complaint}")),
            None => Ok((name, check_runtime(&text)?)),
        };
        classes.into_iter().map(class).collect()
    })
}

fn check_runtime(text: &str) -> Result<RuntimeChoice, String> {
    match text {
        "embedded" => Ok(RuntimeChoice::Embedded),
        path if Path::new(path).is_absolute() => Ok(RuntimeChoice::Path(path.into())),
        other => Err(format!(
            "\"{other}\" is neither \"embedded\" nor the absolute path of an OCI runtime"
        )),
    }
}

/// Lower case; a DNS subdomain, since it becomes part of every pod's name.
fn check_node_name(name: &str) -> Result<String, String> {
    let lower = name.to_lowercase();
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |l: &str| {
        l.starts_with(edge) && l.ends_with(edge) && l.chars().all(|c| edge(c) || c == '-')
    };
    if lower.len() <= 253 && lower.split('.').all(label) {
        return Ok(lower);
    }
    Err(format!(
        "\"{name}\" is not a DNS subdomain: lower case letters, digits, '-' and '.', at most 253, each part from letter or digit to letter or digit"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(json: &str, expected: &str) {
        assert_eq!(parse(json.as_bytes()).map(drop), Err(expected.into()));
    }

    fn resolve(json: &str, root: &str, overrides: &Overrides) -> Result<Settings, String> {
        parse(json.as_bytes())
            .unwrap()
            .resolve(&Layout::new(root), overrides, "Host1", || None)
    }

    #[test]
    fn podprobe_answers_names_unless_others_are_named_or_there_is_no_domain() {
        let mut settings = Settings {
            service_cidrs: ["10.96.0.0/16", "fd00:96::/112"]
                .map(|c| c.parse().unwrap())
                .into(),
            ..Settings::default()
        };
        let own = ["10.96.0.10", "fd00:96::a"].map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(settings.node_dns().own_dns, own);
        settings.cluster_dns = vec!["192.0.2.53".parse().unwrap()];
        let dns = settings.node_dns();
        assert_eq!(
            (dns.own_dns, dns.cluster.servers),
            (vec![], settings.cluster_dns.clone())
        );
        settings.cluster_dns.clear();
        settings.cluster_domain.clear();
        assert!(settings.node_dns().own_dns.is_empty());
    }

    #[test]
    fn the_shipped_file_has_every_key_with_its_default() {
        let defaults = Settings {
            node_name: "host1".into(),
            ..Settings::default()
        };
        assert_eq!(
            resolve(SHIPPED, "/", &Overrides::default()),
            Ok(defaults.clone())
        );
        assert_eq!(resolve("{}", "/", &Overrides::default()), Ok(defaults));
        let shipped: serde_json::Value = serde_json::from_str(SHIPPED).unwrap();
        let keys = |v: &serde_json::Value| {
            v.as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<std::collections::BTreeSet<_>>()
        };
        // serde names every known key when it meets an unknown one.
        let known = |json: &str| {
            let text = serde_json::from_str::<File>(json).unwrap_err().to_string();
            text.split('`')
                .skip(3)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(keys(&shipped), known("{\"-\": 1}"));
        assert_eq!(
            keys(&shipped["crashLoopBackOff"]),
            known("{\"crashLoopBackOff\": {\"-\": 1}}")
        );
        assert_eq!(
            keys(&shipped["memorySwap"]),
            known("{\"memorySwap\": {\"-\": 1}}")
        );
        assert_eq!(
            keys(&shipped["authentication"]),
            known("{\"authentication\": {\"-\": 1}}")
        );
        assert_eq!(
            keys(&shipped["authentication"]["x509"]),
            known("{\"authentication\": {\"x509\": {\"-\": 1}}}")
        );
    }

    #[test]
    fn what_is_in_force_has_every_key_and_no_password() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        let file = dir.path().join("c.json");
        let text = r#"{"maxPods": 7, "nodeLabels": {"a": "b"}, "runtime": null,
            "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"}, "staticPodURL": "https://h/p",
            "staticPodURLHeader": {"Authorization": ["Bearer secret"]}}"#;
        fs::write(&file, text).unwrap();
        let overrides = Overrides {
            static_pod_path: Some("/p".into()),
            node_name: Some("edge".into()),
            runtime: Some("/usr/bin/crun".into()),
        };
        let settings = Settings::load(&layout, Some(&file), &overrides).unwrap();
        let all = settings.in_force();
        let shipped: Value = serde_json::from_str(SHIPPED).unwrap();
        let keys = |v: &Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&all), keys(&shipped));
        assert_eq!(all["maxPods"], 7);
        assert_eq!(all["nodeLabels"], json!({"a": "b"}));
        let period = &all["crashLoopBackOff"]["maxContainerRestartPeriod"];
        assert_eq!(period, "10s");
        assert_eq!(all["syncFrequency"], "60s", "a default");
        assert_eq!(all["staticPodPath"], "/p");
        assert_eq!(
            (&all["nodeName"], &all["runtime"]),
            (&json!("edge"), &json!("/usr/bin/crun"))
        );
        assert_eq!(
            all["staticPodURLHeader"],
            json!({"Authorization": ["*****"]})
        );
        assert!(!all.to_string().contains("secret"), "{all}");
    }

    #[test]
    fn a_port_needs_tls_and_a_way_to_know_clients_by() {
        let of = |json: &str| resolve(json, "/", &Overrides::default());
        check_error(
            r#"{"readOnlyPort": 65536}"#,
            "readOnlyPort: 65536 is out of range: allowed are 1 to 65535, and 0 for nowhere at line 1 column 2",
        );
        let port = of(r#"{"port": 10250}"#).unwrap_err();
        assert!(
            port.starts_with("port 10250 needs tlsCertFile and tlsPrivateKeyFile: openssl req"),
            "{port}"
        );
        let tls = r#""port": 10250, "tlsCertFile": "/c", "tlsPrivateKeyFile": "/k""#;
        assert_eq!(
            of(&format!("{{{tls}}}")).unwrap_err(),
            "port 10250 needs authentication.x509.clientCAFile or authentication.bearerTokenFile: without one of them nobody could be let in"
        );
        for known in [
            r#""x509": {"clientCAFile": "/a"}"#,
            r#""bearerTokenFile": "/t""#,
        ] {
            let settings = of(&format!(r#"{{{tls}, "authentication": {{{known}}}}}"#)).unwrap();
            assert_eq!(settings.port, Some(10250));
        }
        let off = of(r#"{"healthzPort": 0, "port": 0, "readOnlyPort": 0}"#).unwrap();
        assert_eq!(
            (off.healthz_port, off.port, off.read_only_port),
            (None, None, None)
        );
    }

    #[test]
    fn health_is_asked_for_at_an_address_with_a_port_or_nowhere() {
        let read = |at: &str| {
            let json = format!(r#"{{"healthzBindAddress": "{at}"}}"#);
            let settings = resolve(&json, "/", &Overrides::default()).unwrap();
            let at = settings.healthz_bind_address;
            at.map(|at| at.to_string()).unwrap_or_default()
        };
        for (text, expected) in [
            ("", ""),
            ("0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:65535", "[::1]:65535"),
            ("192.0.2.1", "192.0.2.1:10256"),
            ("::", "[::]:10256"),
        ] {
            assert_eq!(read(text), expected);
        }
        for bad in [
            "localhost:1",
            ":1",
            "1",
            "127.0.0.1:0",
            "127.0.0.1:65536",
            "[::1]",
            " ",
        ] {
            check_error(
                &format!(r#"{{"healthzBindAddress": "{bad}"}}"#),
                &format!(
                    "healthzBindAddress: \"{bad}\" is not an address with a port such as \"127.0.0.1:10256\" or \"[::1]:10256\"; empty is nowhere at line 1 column 2"
                ),
            );
        }
    }

    #[test]
    fn the_resolver_and_the_cluster_s_names() {
        let read = |json: &str| resolve(json, "/", &Overrides::default()).unwrap();
        let s = read(
            r#"{"resolvConf": "", "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local."}"#,
        );
        assert_eq!(s.resolv_conf, None);
        assert_eq!(s.cluster_dns, ["10.96.0.10".parse::<IpAddr>().unwrap()]);
        assert_eq!(s.cluster_domain, "cluster.local");
        let classes = read(r#"{"runtimeClasses": {"crun": "/usr/bin/crun"}}"#).runtime_classes;
        assert_eq!(classes["crun"], RuntimeChoice::Path("/usr/bin/crun".into()));
        assert_eq!(read("{}").resolv_conf, Some("/etc/resolv.conf".into()));
        check_error(
            r#"{"clusterDNS": ["dns"]}"#,
            "clusterDNS: \"dns\" is not an IP address at line 1 column 2",
        );
    }

    #[test]
    fn the_node_has_labels_and_a_number_of_pods() {
        let settings = resolve(
            "{\"maxPods\": 5, \"nodeLabels\": {\"example.com/disk\": \"ssd\"}}",
            "/",
            &Overrides::default(),
        )
        .unwrap();
        assert_eq!(settings.max_pods, 5);
        assert_eq!(settings.node_labels["example.com/disk"], "ssd");
        check_error(
            "{\"maxPods\": 0}",
            "maxPods: 0 is out of range: allowed are 1 to 1000000 at line 1 column 2",
        );
        let error = parse(b"{\"nodeLabels\": {\"a b\": \"c\"}}").unwrap_err();
        assert!(
            error.starts_with("nodeLabels: a b=c is not a label: name part must"),
            "{error}"
        );
    }

    #[test]
    fn the_resources_of_pods_have_the_kubelet_s_keys() {
        let of = |json: &str| {
            let s = resolve(json, "/", &Overrides::default()).unwrap();
            (s.pod_pids_limit, s.single_process_oom_kill, s.swap_behavior)
        };
        let (no, limited) = (SwapBehavior::NoSwap, SwapBehavior::LimitedSwap);
        assert_eq!(of("{\"podPidsLimit\": -1}"), (None, None, no));
        let all = "{\"podPidsLimit\": 512, \"singleProcessOOMKill\": true, \"memorySwap\": {\"swapBehavior\": \"LimitedSwap\"}}";
        assert_eq!(of(all), (Some(512), Some(true), limited));
        assert_eq!(of("{\"memorySwap\": {\"swapBehavior\": \"\"}}").2, no);
        let refusal = check_oom_kill(Some(false), false).unwrap_err();
        assert!(refusal.contains("cgroups v1"), "{refusal}");
        for (single, v2) in [(Some(false), true), (Some(true), false), (None, false)] {
            assert_eq!(check_oom_kill(single, v2), Ok(()));
        }
    }

    #[test]
    fn image_pulls_are_serial_unless_a_number_is_given() {
        let pulls = |json: &str| {
            resolve(json, "/", &Overrides::default()).map(|s| s.parallel_image_pulls())
        };
        assert_eq!(pulls("{}"), Ok(Parallel::Serial));
        assert_eq!(
            pulls(r#"{"maxParallelImagePulls": 1}"#),
            Ok(Parallel::Serial)
        );
        assert_eq!(
            pulls(r#"{"maxParallelImagePulls": 3}"#),
            Ok(Parallel::AtMost(3))
        );
        assert_eq!(
            pulls(r#"{"serializeImagePulls": false}"#),
            Ok(Parallel::Unlimited)
        );
        assert!(pulls(r#"{"serializeImagePulls": true, "maxParallelImagePulls": 2}"#).is_err());
        check_error(
            r#"{"maxParallelImagePulls": 0}"#,
            "maxParallelImagePulls: 0 is out of range: allowed are 1 to 1000 at line 1 column 2",
        );
        let error = parse(br#"{"registries": {"hosts": {"r": {"plainHttp": true}}}}"#).unwrap_err();
        assert!(error.contains("did you mean \"plainHTTP\"?"), "{error}");
    }

    #[test]
    fn errors_name_key_place_and_range() {
        check_error(
            "{\n \"syncFrequncy\": \"1s\"}",
            "syncFrequncy: unknown key \"syncFrequncy\", did you mean \"syncFrequency\"? at line 2 column 2",
        );
        check_error(
            "{\"syncFrequency\": \"10ms\"}",
            "syncFrequency: 10ms is out of range: allowed are 1s to 24h0m0s at line 1 column 2",
        );
        check_error(
            "{\"crashLoopBackOff\": {\"maxContainerRestartPeriod\": \"301s\"}}",
            "crashLoopBackOff.maxContainerRestartPeriod: 5m1s is out of range: allowed are 1s to 5m0s at line 1 column 23",
        );
        check_error(
            "{\"containerLogMaxFiles\": 1}",
            "containerLogMaxFiles: 1 is out of range: allowed are 2 to 1000 at line 1 column 2",
        );
    }

    #[test]
    fn wrong_values_are_refused() {
        for json in [
            r#"{"fileCheckFrequency": "99ms"}"#,
            r#"{"fileCheckFrequency": "20"}"#,
            r#"{"fileCheckFrequency": 20}"#,
            r#"{"containerLogMaxSize": "10Xi"}"#,
            r#"{"containerLogMaxSize": "0"}"#,
            r#"{"nodeIP": "node1"}"#,
            r#"{"nodeName": "node_1"}"#,
            r#"{"allowProbeHosts": [""]}"#,
            r#"{"staticPodPath": "pods"}"#,
            r#"{"resolvConf": "resolv.conf"}"#,
            r#"{"allowedUnsafeSysctls": ["kernel.*"]}"#,
            r#"{"clusterDNS": ["10.96.0.10", "dns"]}"#,
            r#"{"clusterDomain": "Cluster.local"}"#,
            r#"{"runtime": "runc"}"#,
            r#"{"runtimeClasses": {"crun": "crun"}}"#,
            r#"{"runtimeClasses": {"C": "/usr/bin/crun"}}"#,
            r#"{"podPidsLimit": 0}"#,
            r#"{"podPidsLimit": -2}"#,
            r#"{"singleProcessOOMKill": "no"}"#,
            r#"{"memorySwap": {"swapBehavior": "UnlimitedSwap"}}"#,
            r#"{"crashLoopBackOff": []}"#,
            r#"{"maxPods": 5, "maxPods": 6}"#,
            r#"{} x"#,
            r#"[]"#,
            "",
        ] {
            assert!(parse(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_the_file_over_the_root() {
        let overrides = Overrides {
            static_pod_path: Some("/p".into()),
            runtime: Some("/usr/sbin/runc".into()),
            node_name: Some("N".into()),
        };
        let file = r#"{"staticPodPath": "/f", "nodeName": "m"}"#;
        let s = resolve(file, "/r", &overrides).unwrap();
        assert_eq!(
            (s.static_pod_path.to_str().unwrap(), s.node_name.as_str()),
            ("/p", "n")
        );
        assert_eq!(s.runtime, RuntimeChoice::Path("/usr/sbin/runc".into()));
        let s = resolve(file, "/r", &Overrides::default()).unwrap();
        assert_eq!(
            (s.static_pod_path.to_str().unwrap(), s.node_name.as_str()),
            ("/f", "m")
        );
        assert_eq!(
            resolve("{}", "/r", &Overrides::default())
                .unwrap()
                .static_pod_path,
            Path::new("/r/etc/podprobe/pods")
        );
    }

    #[test]
    fn the_address_is_the_nodes_own_unless_the_file_names_another() {
        let check = |json: &str, own: Option<&str>, expected: &str| {
            let own = || own.map(|ip| ip.parse().unwrap());
            let file = parse(json.as_bytes()).unwrap();
            let s = file.resolve(&Layout::new("/"), &Overrides::default(), "h", own);
            assert_eq!(s.unwrap().node_ip.to_string(), expected, "{json}");
        };
        check("{}", Some("10.0.0.7"), "10.0.0.7");
        check(r#"{"nodeIP": ""}"#, Some("fd00::7"), "fd00::7");
        check("{}", None, "127.0.0.1");
        check(r#"{"nodeIP": "10.0.0.8"}"#, Some("10.0.0.7"), "10.0.0.8");
        check_error(
            r#"{"nodeIP": "here"}"#,
            "nodeIP: \"here\" is not an IP address at line 1 column 2",
        );
    }

    #[test]
    fn only_the_default_file_may_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let overrides = Overrides {
            node_name: Some("n".into()),
            ..Overrides::default()
        };
        let layout = Layout::new(dir.path());
        assert!(Settings::load(&layout, None, &overrides).is_ok());
        let named = dir.path().join("c.json");
        let e = Settings::load(&layout, Some(&named), &overrides)
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with(&format!(
                "cannot read configuration {}: No such file",
                named.display()
            )),
            "{e}"
        );
        fs::write(&named, "{\"x\": 1}").unwrap();
        let e = Settings::load(&layout, Some(&named), &overrides)
            .unwrap_err()
            .to_string();
        assert!(
            e.starts_with(&format!(
                "cannot use configuration {}: x: unknown key \"x\"; known are nodeName",
                named.display()
            )),
            "{e}"
        );
    }

    #[test]
    fn durations_as_go_writes_them() {
        let ms = |t| parse_go_duration(t).map(|d| d.as_millis()).ok();
        assert_eq!(
            [ms("20s"), ms("1m30s"), ms("1.5h"), ms("100ms"), ms("0")],
            [
                Some(20_000),
                Some(90_000),
                Some(5_400_000),
                Some(100),
                Some(0)
            ]
        );
        assert_eq!(
            [ms(""), ms("5"), ms("s"), ms("-1s"), ms("1x"), ms("1.2.3s")],
            [None; 6]
        );
    }
}
