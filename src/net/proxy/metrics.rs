//! The metrics of services, with kube-proxy's names (services 9).
//!
//! Invariants: a thread that counts waits for a reader at most as long as the reader copies the numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::health::answer::Counted;
use super::pace::Step;
use crate::base::clock::Moment;
use crate::base::locks::Locked;
use crate::base::metrics::{Family, Kind};
use crate::net::services::table::{Backends, ServicePortEntry, ServicePortName, ServiceTable};

/// The counters of services that the thread `proxy` updates.
#[derive(Debug, Default)]
pub struct ProxyMetrics(Mutex<Counts>);

#[derive(Clone, Debug, Default)]
struct Counts {
    /// The durations of programming a table, including failed attempts.
    syncs: Buckets,
    /// The durations from the moment when a change of endpoints was seen until this change was in force.
    programming: Buckets,
    synced: Option<SystemTime>,
    queued: Option<SystemTime>,
    /// The time when the first change that still waits was seen.
    waiting: Option<Moment>,
    pending: Changes,
    total: Changes,
    failures: u64,
    /// The number of service ports that drop clients from inside, and the number of service ports that drop
    /// clients from outside.
    no_local: [u64; 2],
}

/// The number of services that differ between two tables, and the number of services whose endpoints differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Changes {
    services: u64,
    endpoints: u64,
}

impl ProxyMetrics {
    /// Records the differences between `wanted` and `applied` as waiting changes. If `step` is `Step::Rest`,
    /// records that no change waits.
    pub fn look(
        &self,
        step: Step,
        now: Moment,
        wall: SystemTime,
        applied: &ServiceTable,
        wanted: &ServiceTable,
    ) {
        let changes = match step {
            Step::Rest => None,
            Step::Wait(_) | Step::Apply => Some(changes(applied, wanted)),
        };
        let mut counts = self.lock();
        counts.pending = changes.unwrap_or_default();
        match changes {
            None => counts.waiting = None,
            Some(_) => {
                counts.queued = Some(wall);
                counts.waiting.get_or_insert(now);
            }
        }
    }

    /// Records that `table` has been in force since `now`, and that programming the table took `took`.
    pub fn synced(&self, took: Duration, now: Moment, wall: SystemTime, table: &ServiceTable) {
        let mut counts = self.lock();
        counts.syncs.observe(&sync_bounds(), took);
        counts.synced = Some(wall);
        let done = std::mem::take(&mut counts.pending);
        counts.total.services += done.services;
        counts.total.endpoints += done.endpoints;
        if let Some(since) = counts.waiting.take() {
            for _ in 0..done.endpoints {
                counts
                    .programming
                    .observe(&programming_bounds(), now.since(since));
            }
        }
        counts.no_local = [
            dropping(table, |entry| &entry.internal),
            dropping(table, |entry| &entry.external),
        ];
    }

    /// Records an attempt to program a table that failed after `took`.
    pub fn failed(&self, took: Duration) {
        let mut counts = self.lock();
        counts.syncs.observe(&sync_bounds(), took);
        counts.failures += 1;
    }

    /// Appends all metrics to `out`. `answers` are the counters of the health server, by path and status
    /// code.
    pub fn write(&self, mode: &str, answers: &[((Counted, u16), u64)], out: &mut String) {
        let counts = self.lock().clone();
        write_syncs(&counts, mode, out);
        write_changes(&counts, out);
        let help = "In Cluster Network Programming Latency in seconds";
        let name = "kubeproxy_network_programming_duration_seconds";
        counts
            .programming
            .write(name, help, &programming_bounds(), out);
        let help = "Number of services with a Local traffic policy and no endpoints";
        let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        let mut family = Family::new(out, name, Kind::Gauge, help);
        for (policy, n) in ["internal", "external"].iter().zip(counts.no_local) {
            family.value(&[("traffic_policy", policy)], n);
        }
        write_answers(answers, out);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.locked()
    }
}

fn write_syncs(counts: &Counts, mode: &str, out: &mut String) {
    let name = "kubeproxy_sync_proxy_rules_duration_seconds";
    let help = "SyncProxyRules latency in seconds";
    counts.syncs.write(name, help, &sync_bounds(), out);
    let name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
    let help = "The last time proxy rules were successfully synced";
    Family::new(out, name, Kind::Gauge, help).real(&[], seconds(counts.synced));
    let name = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds";
    let help = "The last time a sync of proxy rules was queued";
    Family::new(out, name, Kind::Gauge, help).real(&[], seconds(counts.queued));
    if mode == "nftables" {
        let name = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
        let help = "Cumulative proxy nftables sync failures";
        Family::new(out, name, Kind::Counter, help).value(&[], counts.failures);
    }
}

fn write_changes(counts: &Counts, out: &mut String) {
    for (of, help, pending, total) in [
        (
            "endpoint",
            "Endpoint",
            counts.pending.endpoints,
            counts.total.endpoints,
        ),
        (
            "service",
            "Service",
            counts.pending.services,
            counts.total.services,
        ),
    ] {
        let name = format!("kubeproxy_sync_proxy_rules_{of}_changes_pending");
        let text = format!("Pending proxy rules {help} changes");
        Family::new(out, &name, Kind::Gauge, &text).value(&[], pending);
        let name = format!("kubeproxy_sync_proxy_rules_{of}_changes_total");
        let text = format!("Cumulative proxy rules {help} changes");
        Family::new(out, &name, Kind::Counter, &text).value(&[], total);
    }
}

fn write_answers(answers: &[((Counted, u16), u64)], out: &mut String) {
    for (of, path) in [(Counted::Healthz, "healthz"), (Counted::Livez, "livez")] {
        let name = format!("kubeproxy_proxy_{path}_total");
        let help = format!("Cumulative proxy {path} HTTP status");
        let mut family = Family::new(out, &name, Kind::Counter, &help);
        for ((_, code), n) in answers.iter().filter(|((counted, _), _)| *counted == of) {
            family.value(&[("code", &code.to_string())], *n);
        }
    }
}

fn seconds(t: Option<SystemTime>) -> f64 {
    let since = t.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok());
    since.unwrap_or_default().as_secs_f64()
}

/// Counts the services that differ between two tables. A service counts once, however many of its ports differ.
fn changes(before: &ServiceTable, after: &ServiceTable) -> Changes {
    let (before, after) = (by_name(before), by_name(after));
    let (mut services, mut endpoints) = (BTreeSet::new(), BTreeSet::new());
    let names: BTreeSet<&ServicePortName> = before.keys().chain(after.keys()).copied().collect();
    for name in names {
        let (old, new) = (before.get(name), after.get(name));
        let service = (&name.namespace, &name.service);
        if !old.is_some_and(|old| new.is_some_and(|new| is_same_service(old, new))) {
            services.insert(service);
        }
        let of = |entry: Option<&&ServicePortEntry>| -> Vec<Backends> {
            let all = entry.map(|e| e.lists());
            let leading = all.into_iter().flatten();
            let leading = leading.filter(|b| matches!(b, Backends::Some(_)));
            leading.cloned().collect()
        };
        if of(old) != of(new) {
            endpoints.insert(service);
        }
    }
    Changes {
        services: services.len() as u64,
        endpoints: endpoints.len() as u64,
    }
}

fn by_name(table: &ServiceTable) -> BTreeMap<&ServicePortName, &ServicePortEntry> {
    let entries = table.services.iter();
    entries.map(|entry| (&entry.name, entry)).collect()
}

/// Tells whether two entries differ at most in their endpoints.
fn is_same_service(a: &ServicePortEntry, b: &ServicePortEntry) -> bool {
    a.port == b.port
        && a.cluster_ips == b.cluster_ips
        && a.external_ips == b.external_ips
        && a.load_balancer_ips == b.load_balancer_ips
        && a.source_ranges == b.source_ranges
        && a.node_port == b.node_port
        && a.affinity == b.affinity
        && a.external_local == b.external_local
}

/// Counts the service ports that drop clients, because their policy is Local and only other nodes have
/// endpoints.
fn dropping(table: &ServiceTable, of: impl Fn(&ServicePortEntry) -> &Backends) -> u64 {
    let entries = table.services.iter();
    entries.filter(|e| *of(e) == Backends::Drop).count() as u64
}

/// Returns the bounds of the histogram of sync durations, in seconds: 15 bounds. The first is 0.001, and each
/// further bound is twice the bound before it.
fn sync_bounds() -> Vec<f64> {
    (0..15).map(|n| 0.001 * f64::from(1 << n)).collect()
}

/// Returns the bounds of the histogram of programming durations, in seconds: 0, 0.25 and 0.5, then every second up
/// to one minute, every five seconds up to two minutes, and every thirty seconds up to five minutes.
fn programming_bounds() -> Vec<f64> {
    let fine = [0.0, 0.25, 0.5].into_iter();
    let steps = (1..60)
        .chain((60..120).step_by(5))
        .chain((120..=300).step_by(30));
    fine.chain(steps.map(f64::from)).collect()
}

/// A histogram of durations. The last count is for durations above all bounds.
#[derive(Clone, Debug, Default)]
struct Buckets {
    counts: Vec<u64>,
    sum: f64,
}

impl Buckets {
    fn observe(&mut self, bounds: &[f64], took: Duration) {
        let seconds = took.as_secs_f64();
        let at = bounds.iter().position(|bound| seconds <= *bound);
        self.counts.resize(bounds.len() + 1, 0);
        self.counts[at.unwrap_or(bounds.len())] += 1;
        self.sum += seconds;
    }

    fn write(&self, name: &str, help: &str, bounds: &[f64], out: &mut String) {
        let mut counts = self.counts.clone();
        counts.resize(bounds.len() + 1, 0);
        Family::new(out, name, Kind::Histogram, help).buckets_of(&[], bounds, &counts, self.sum);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::api::service::Protocol;

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_millis(ms))
    }

    fn wall(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn some(ports: &[u16]) -> Backends {
        let backend = |port: &u16| SocketAddr::from(([10, 0, 0, 1], *port)).into();
        ports.iter().map(backend).collect()
    }

    fn entry(service: &str, port: &str, backends: Backends) -> ServicePortEntry {
        ServicePortEntry::new(
            ServicePortName {
                namespace: "default".into(),
                service: service.into(),
                port: port.into(),
                protocol: Protocol::Tcp,
            },
            80,
            vec![[10, 96, 0, 7].into()],
            backends,
        )
    }

    fn table(services: Vec<ServicePortEntry>) -> ServiceTable {
        ServiceTable {
            services,
            ..ServiceTable::default()
        }
    }

    fn text(metrics: &ProxyMetrics) -> String {
        let mut out = String::new();
        metrics.write("nftables", &[((Counted::Healthz, 503), 7)], &mut out);
        out
    }

    #[track_caller]
    fn check(metrics: &ProxyMetrics, lines: &[&str]) {
        let text = text(metrics);
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
        }
    }

    #[test]
    fn buckets_are_those_of_kube_proxy() {
        let bounds = sync_bounds();
        assert_eq!((bounds.len(), bounds[0], bounds[14]), (15, 0.001, 16.384));
        let bounds = programming_bounds();
        assert_eq!(bounds.len(), 81);
        assert_eq!(bounds[..5], [0.0, 0.25, 0.5, 1.0, 2.0]);
        assert_eq!(bounds[60..65], [58.0, 59.0, 60.0, 65.0, 70.0][..]);
        assert_eq!(
            bounds[72..],
            [
                110.0, 115.0, 120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0
            ]
        );
    }

    #[test]
    fn a_service_counts_once_and_apart_from_its_endpoints() {
        let check = |a: &[ServicePortEntry], b: &[ServicePortEntry], services, endpoints| {
            let found = changes(&table(a.to_vec()), &table(b.to_vec()));
            assert_eq!(
                found,
                Changes {
                    services,
                    endpoints
                }
            );
        };
        let web = [entry("web", "a", some(&[1])), entry("web", "b", some(&[2]))];
        check(&web, &web, 0, 0);
        check(&[], &web, 1, 1);
        check(&web, &[], 1, 1);
        check(&web[..1], &web, 1, 1);
        let other = [entry("web", "a", some(&[3])), entry("web", "b", some(&[]))];
        check(&web, &other, 0, 1);
        let mut moved = web.clone();
        moved[0].node_port = Some(30000);
        check(&web, &moved, 1, 0);
        check(&[], &[entry("web", "", Backends::Reject)], 1, 0);
        check(&web, &[entry("db", "", some(&[1]))], 2, 2);
    }

    #[test]
    fn what_waits_is_pending_and_counts_when_it_is_in_force() {
        let metrics = ProxyMetrics::default();
        let (empty, web) = (table(vec![]), table(vec![entry("web", "", some(&[1]))]));
        metrics.look(Step::Wait(at(400)), at(100), wall(1500), &empty, &web);
        check(
            &metrics,
            &[
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending 1",
                "kubeproxy_sync_proxy_rules_service_changes_pending 1",
                "kubeproxy_sync_proxy_rules_service_changes_total 0",
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.5",
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds 0",
                "kubeproxy_proxy_healthz_total{code=\"503\"} 7",
            ],
        );
        metrics.failed(Duration::from_millis(1));
        metrics.look(Step::Apply, at(400), wall(1800), &empty, &web);
        metrics.synced(Duration::from_millis(3), at(403), wall(1803), &web);
        metrics.look(Step::Rest, at(500), wall(2000), &web, &web);
        metrics.synced(Duration::from_millis(1), at(501), wall(2001), &web);
        check(
            &metrics,
            &[
                "kubeproxy_sync_proxy_rules_endpoint_changes_pending 0",
                "kubeproxy_sync_proxy_rules_endpoint_changes_total 1",
                "kubeproxy_sync_proxy_rules_service_changes_total 1",
                "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds 1.8",
                "kubeproxy_sync_proxy_rules_last_timestamp_seconds 2.001",
                "kubeproxy_sync_proxy_rules_duration_seconds_count 3",
                "kubeproxy_sync_proxy_rules_nftables_sync_failures_total 1",
                "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.25\"} 0",
                "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.5\"} 1",
                "kubeproxy_network_programming_duration_seconds_count 1",
            ],
        );
    }

    /// A change that is undone before it is programmed does not count.
    #[test]
    fn a_change_that_is_taken_back_counts_nothing() {
        let metrics = ProxyMetrics::default();
        let (empty, web) = (table(vec![]), table(vec![entry("web", "", some(&[1]))]));
        metrics.look(Step::Wait(at(400)), at(100), wall(0), &empty, &web);
        metrics.look(Step::Rest, at(200), wall(0), &empty, &empty);
        metrics.look(Step::Apply, at(5000), wall(0), &empty, &web);
        metrics.synced(Duration::ZERO, at(5001), wall(0), &web);
        let bucket = "kubeproxy_network_programming_duration_seconds_bucket{le=\"0.25\"} 1";
        check(&metrics, &[bucket]);
    }

    #[test]
    fn services_without_a_local_endpoint_are_those_that_drop() {
        let metrics = ProxyMetrics::default();
        let mut web = entry("web", "", some(&[1]));
        web.external = Backends::Drop;
        metrics.synced(Duration::ZERO, at(0), wall(0), &table(vec![web]));
        let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        check(
            &metrics,
            &[
                &format!("{name}{{traffic_policy=\"internal\"}} 0"),
                &format!("{name}{{traffic_policy=\"external\"}} 1"),
            ],
        );
    }
}
