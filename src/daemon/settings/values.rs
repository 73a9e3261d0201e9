//! The values of the configuration file. Each function reads one value. The error of a function names the values that
//! are allowed.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use thiserror::Error;
use ureq::http::{HeaderName, HeaderValue};

use super::AuthorizationMode;
use crate::api::cidr::{Cidr, CidrError};
use crate::api::sysctls::SysctlAllowlist;
use crate::api::validation::{is_dns_subdomain, is_qualified_name, is_valid_label_value};
use crate::base::clock::{DurationError, go_duration, parse_go_duration};
use crate::base::http_client::WebUrl;
use crate::cluster::node::facts::Taint;
use crate::daemon::logging::{Format, Levels};
use crate::engine::shims::RuntimeChoice;
use crate::net::network::NetworkChoice;
use crate::net::network::pod_cidrs::{self, PodCidrError};
use crate::net::proxy::auto::ProxyMode;
use crate::pods::container_config::SwapBehavior;
use crate::workloads::OnDeadline;

/// Largest number of process ids that the kernel has (PID_MAX_LIMIT).
const PID_MAX: i64 = 4_194_304;
/// Default port for the health of services, the same as kube-proxy's.
pub(super) const HEALTHZ_PORT: u16 = 10256;

/// The reasons for which a value is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// The text is not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The duration is too short or too long.
    #[error(
        "{} is out of range: allowed are {} to {}",
        go_duration(*value), go_duration(*min), go_duration(*max)
    )]
    DurationOutOfRange {
        /// Duration as given.
        value: Duration,
        /// Shortest duration that is allowed.
        min: Duration,
        /// Longest duration that is allowed.
        max: Duration,
    },
    /// The number is too small or too large.
    #[error("{value} is out of range: allowed are {} to {}", allowed.start(), allowed.end())]
    OutOfRange {
        /// Number as given.
        value: i64,
        /// Numbers that are allowed.
        allowed: RangeInclusive<i64>,
    },
    /// The text is no mode of authorization.
    #[error("\"{0}\" is neither \"Webhook\" nor \"AlwaysAllow\"")]
    AuthorizationMode(String),
    /// The number is not a limit of processes.
    #[error("{0} is out of range: allowed are -1 for no limit and 1 to {PID_MAX}")]
    Pids(i64),
    /// The number is not a port.
    #[error("{0} is out of range: allowed are 1 to 65535, and 0 for nowhere")]
    Port(i64),
    /// The text is not the name of a header.
    #[error("{0:?} is not the name of a header")]
    HeaderName(String),
    /// The value of the header with this name is not text that a header can have. The error does not repeat the value,
    /// because the value may be a password.
    #[error("the value of {0} is not text that a header can have")]
    HeaderValue(String),
    /// The text is not the size of a log.
    #[error("\"{0}\" is not a size from 4Ki to 1024Gi, such as \"10Mi\"")]
    LogSize(String),
    /// Key and value are not a label.
    #[error("{key}={value} is not a label: {complaint}")]
    Label {
        /// Key as given.
        key: String,
        /// Value as given.
        value: String,
        /// First rule that the key or the value breaks.
        complaint: String,
    },
    /// The taint is not one.
    #[error("taint {key:?}: {complaint}")]
    Taint {
        /// Key as given.
        key: String,
        /// First rule that the taint breaks.
        complaint: String,
    },
    /// The text is not an IP address.
    #[error("\"{0}\" is not an IP address")]
    Address(String),
    /// The text is not an IP address with a port.
    #[error(
        "\"{0}\" is not an address with a port such as \"127.0.0.1:10256\" or \"[::1]:10256\"; empty is nowhere"
    )]
    BindAddress(String),
    /// The path is relative.
    #[error("\"{}\" is not an absolute path", .0.display())]
    RelativePath(PathBuf),
    /// The text is not a range of addresses.
    #[error(transparent)]
    Range(#[from] CidrError),
    /// Pods cannot have these ranges.
    #[error("\"{text}\": {cause}")]
    PodCidr {
        /// Text as given.
        text: String,
        /// Cause of the error.
        cause: PodCidrError,
    },
    /// The text is not the name of a domain or of a class.
    #[error("\"{name}\": {complaint}")]
    Subdomain {
        /// Name as given.
        name: String,
        /// First rule that the name breaks.
        complaint: String,
    },
    /// The text is not a host name or an address.
    #[error("\"{0}\" is not a host name or an address")]
    Host(String),
    /// The text does not name a runtime.
    #[error("\"{0}\" is neither \"embedded\" nor the absolute path of an OCI runtime")]
    Runtime(String),
    /// The text is not the name of a node.
    #[error(
        "\"{0}\" is not a DNS subdomain: lower case letters, digits, '-' and '.', at most 253, each part from letter or digit to letter or digit"
    )]
    NodeName(String),
}

/// Checks a value while it is read, so that the error has a position in the file.
fn checked<'de, D: Deserializer<'de>, R: Deserialize<'de>, T, E: Display>(
    d: D,
    check: impl Fn(R) -> Result<T, E>,
) -> Result<Option<T>, D::Error> {
    Option::<R>::deserialize(d)?
        .map(|raw| check(raw).map_err(D::Error::custom))
        .transpose()
}

fn duration_between(text: &str, min: Duration, max: Duration) -> Result<Duration, ValueError> {
    let value = parse_go_duration(text)?;
    match (min..=max).contains(&value) {
        true => Ok(value),
        false => Err(ValueError::DurationOutOfRange { value, min, max }),
    }
}

fn out_of_range(value: i64, allowed: RangeInclusive<i64>) -> ValueError {
    ValueError::OutOfRange { value, allowed }
}

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn check_frequency<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_millis(100), DAY)
    })
}

pub(super) fn pod_url<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<WebUrl>>, D::Error> {
    checked(d, |t: String| match t.as_str() {
        "" => Ok(None),
        // The error does not repeat the URL, because it may contain a password.
        t => WebUrl::parse(t).map(Some).map_err(|e| e.to_string()),
    })
}

type Headers = BTreeMap<String, Vec<String>>;

pub(super) fn headers<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Headers>, D::Error> {
    checked(d, |headers: Headers| {
        for (name, values) in &headers {
            if HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(ValueError::HeaderName(name.clone()));
            }
            if values.iter().any(|v| HeaderValue::from_str(v).is_err()) {
                return Err(ValueError::HeaderValue(name.clone()));
            }
        }
        Ok(headers)
    })
}

pub(super) fn sync_frequency<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_secs(1), DAY)
    })
}

/// The longest time that a shutdown of the node may give its pods.
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(3600);

pub(super) fn shutdown_period<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::ZERO, LONGEST_SHUTDOWN)
    })
}

pub(super) fn percent<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u8>, D::Error> {
    checked(d, |n: i64| {
        let percent = u8::try_from(n).ok().filter(|n| *n <= 100);
        percent.ok_or_else(|| out_of_range(n, 0..=100))
    })
}

pub(super) fn gc_age<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| duration_between(&t, Duration::ZERO, DAY))
}

pub(super) fn review_lifetime<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| duration_between(&t, Duration::ZERO, DAY))
}

pub(super) fn authorization_mode<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<AuthorizationMode>, D::Error> {
    checked(d, |t: String| match t.as_str() {
        "AlwaysAllow" => Ok(AuthorizationMode::AlwaysAllow),
        "Webhook" => Ok(AuthorizationMode::Webhook),
        _ => Err(ValueError::AuthorizationMode(t)),
    })
}

pub(super) fn restart_period<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Duration>, D::Error> {
    checked(d, |t: String| {
        duration_between(&t, Duration::from_secs(1), Duration::from_secs(300))
    })
}

pub(super) fn log_size<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
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
            .ok_or(ValueError::LogSize(t))
    })
}

pub(super) fn log_files<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    checked(d, |n: i64| match n {
        2..=1000 => Ok(n as u32),
        _ => Err(out_of_range(n, 2..=1000)),
    })
}

pub(super) fn max_pods<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    checked(d, |n: i64| match n {
        1..=1_000_000 => Ok(n as usize),
        _ => Err(out_of_range(n, 1..=1_000_000)),
    })
}

pub(super) fn pids_limit<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Option<i64>>, D::Error> {
    checked(d, |n: i64| match n {
        -1 => Ok(None),
        1..=PID_MAX => Ok(Some(n)),
        _ => Err(ValueError::Pids(n)),
    })
}

pub(super) fn swap_behavior<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<SwapBehavior>, D::Error> {
    checked(d, |t: String| t.parse())
}

pub(super) fn on_progress_deadline<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<OnDeadline>, D::Error> {
    checked(d, |t: String| t.parse())
}

pub(super) fn parallel_pulls<'de, D: Deserializer<'de>>(d: D) -> Result<Option<usize>, D::Error> {
    checked(d, |n: i64| match n {
        1..=1000 => Ok(n as usize),
        _ => Err(out_of_range(n, 1..=1000)),
    })
}

type Labels = BTreeMap<String, String>;

pub(super) fn node_labels<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Labels>, D::Error> {
    checked(d, |labels: Labels| {
        for (key, value) in &labels {
            let complaints = [is_qualified_name(key), is_valid_label_value(value)].concat();
            if let Some(complaint) = complaints.first() {
                return Err(ValueError::Label {
                    key: key.clone(),
                    value: value.clone(),
                    complaint: complaint.to_string(),
                });
            }
        }
        Ok(labels)
    })
}

/// A taint as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

/// The effects that a taint may have.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn taints<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Taint>>, D::Error> {
    checked(d, |taints: Vec<WrittenTaint>| {
        taints.into_iter().map(taint).collect::<Result<_, _>>()
    })
}

fn taint(written: WrittenTaint) -> Result<Taint, ValueError> {
    let WrittenTaint { key, value, effect } = written;
    let of_texts = [is_qualified_name(&key), is_valid_label_value(&value)].concat();
    let of_effect = (!EFFECTS.contains(&effect.as_str()))
        .then(|| format!("effect {effect:?} is none of {}", EFFECTS.join(", ")));
    let complaints = of_texts.iter().map(ToString::to_string);
    match complaints.chain(of_effect).next() {
        Some(complaint) => Err(ValueError::Taint { key, complaint }),
        None => Ok(Taint { key, value, effect }),
    }
}

pub(super) fn address<'de, D: Deserializer<'de>>(d: D) -> Result<Option<IpAddr>, D::Error> {
    let address = checked(d, |t: String| match t.as_str() {
        "" => Ok(None),
        t => t
            .parse()
            .map(Some)
            .map_err(|_| ValueError::Address(t.to_owned())),
    });
    Ok(address?.flatten())
}

/// Reads an address with a port. An empty text means that nothing listens. As in kube-proxy's configuration, an
/// address without a port gets the default port.
pub(super) fn bind_address<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Option<SocketAddr>>, D::Error> {
    checked(d, |t: String| {
        if t.is_empty() {
            return Ok(None);
        }
        let alone = t.parse().ok().map(|ip| SocketAddr::new(ip, HEALTHZ_PORT));
        let at = alone.or_else(|| t.parse().ok());
        at.filter(|at| at.port() > 0)
            .map(Some)
            .ok_or(ValueError::BindAddress(t))
    })
}

/// Reads a port. 0 means that nothing listens.
pub(super) fn port_or_none<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Option<u16>>, D::Error> {
    checked(d, |n: i64| match u16::try_from(n) {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err(ValueError::Port(n)),
    })
}

pub(super) fn addresses<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<IpAddr>>, D::Error> {
    checked(d, |all: Vec<String>| {
        let address = |t: &String| t.parse().map_err(|_| ValueError::Address(t.clone()));
        all.iter().map(address).collect()
    })
}

pub(super) fn network_choice<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<NetworkChoice>, D::Error> {
    checked(d, |t: String| t.parse())
}

pub(super) fn log_format<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Option<Format>>, D::Error> {
    checked(d, |t: String| match t.as_str() {
        "" => Ok(None),
        form => form.parse().map(Some),
    })
}

pub(super) fn log_levels<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Levels>, D::Error> {
    checked(d, |t: String| t.parse())
}

pub(super) fn proxy_mode<'de, D: Deserializer<'de>>(d: D) -> Result<Option<ProxyMode>, D::Error> {
    checked(d, |t: String| t.parse())
}

pub(super) fn paths<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<PathBuf>>, D::Error> {
    checked(d, |t: String| {
        let path = |p: &str| match Path::new(p.trim()) {
            path if path.is_absolute() => Ok(path.to_owned()),
            path => Err(ValueError::RelativePath(path.to_owned())),
        };
        t.split(',').map(path).collect()
    })
}

/// Reads one range, or an IPv4 range and an IPv6 range with a comma between them.
pub(super) fn ranges<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<Cidr>>, D::Error> {
    checked(d, |t: String| {
        let all = t.split(',').map(|range| range.trim().parse());
        let all = all.collect::<Result<Vec<Cidr>, CidrError>>()?;
        match pod_cidrs::check(&all) {
            Ok(()) => Ok(all),
            Err(cause) => Err(ValueError::PodCidr { text: t, cause }),
        }
    })
}

pub(super) fn sysctl_patterns<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Vec<String>>, D::Error> {
    checked(d, |all: Vec<String>| {
        let allowed = SysctlAllowlist::new((0, 0), &all);
        allowed.map(|_| all).map_err(|e| e.to_string())
    })
}

pub(super) fn domain<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    checked(d, |t: String| {
        let name = t.strip_suffix('.').unwrap_or(&t).to_owned();
        match is_dns_subdomain(&name).first() {
            Some(complaint) if !name.is_empty() => Err(subdomain(&t, complaint)),
            _ => Ok(name),
        }
    })
}

fn subdomain(name: &str, complaint: impl Display) -> ValueError {
    ValueError::Subdomain {
        name: name.to_owned(),
        complaint: complaint.to_string(),
    }
}

pub(super) fn absolute(path: PathBuf) -> Result<PathBuf, ValueError> {
    match path.is_absolute() {
        true => Ok(path),
        false => Err(ValueError::RelativePath(path)),
    }
}

pub(super) fn absolute_path<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
    checked(d, absolute)
}

/// Reads a path. An empty text means that there is no path.
pub(super) fn path_or_none<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<Option<PathBuf>>, D::Error> {
    checked(d, |p: PathBuf| match p.as_os_str().is_empty() {
        true => Ok(None),
        false => absolute(p).map(Some),
    })
}

pub(super) fn hosts<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<String>>, D::Error> {
    checked(d, |hosts: Vec<String>| {
        match hosts
            .iter()
            .find(|h| h.is_empty() || h.contains(char::is_whitespace))
        {
            Some(bad) => Err(ValueError::Host(bad.clone())),
            None => Ok(hosts),
        }
    })
}

pub(super) fn node_name_or_empty<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<String>, D::Error> {
    checked(d, |t: String| {
        if t.is_empty() {
            Ok(t)
        } else {
            check_node_name(&t)
        }
    })
}

pub(super) fn runtime<'de, D: Deserializer<'de>>(d: D) -> Result<Option<RuntimeChoice>, D::Error> {
    checked(d, |t: String| check_runtime(&t))
}

pub(super) fn runtime_classes<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<BTreeMap<String, RuntimeChoice>>, D::Error> {
    checked(d, |classes: BTreeMap<String, String>| {
        let class = |(name, text): (String, String)| match is_dns_subdomain(&name).first() {
            Some(complaint) => Err(subdomain(&name, complaint)),
            None => Ok((name, check_runtime(&text)?)),
        };
        classes.into_iter().map(class).collect()
    })
}

pub(super) fn check_runtime(text: &str) -> Result<RuntimeChoice, ValueError> {
    match text {
        "embedded" => Ok(RuntimeChoice::Embedded),
        path if Path::new(path).is_absolute() => Ok(RuntimeChoice::Path(path.into())),
        other => Err(ValueError::Runtime(other.to_owned())),
    }
}

/// Returns the name of a node in lower case. The name must be a DNS subdomain, because it becomes part of every pod's
/// name.
pub(super) fn check_node_name(name: &str) -> Result<String, ValueError> {
    let lower = name.to_lowercase();
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |l: &str| {
        l.starts_with(edge) && l.ends_with(edge) && l.chars().all(|c| edge(c) || c == '-')
    };
    if lower.len() <= 253 && lower.split('.').all(label) {
        return Ok(lower);
    }
    Err(ValueError::NodeName(name.to_owned()))
}
