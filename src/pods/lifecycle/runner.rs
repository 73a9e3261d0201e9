//! Runs the handlers of hooks: the kubelet's `HandlerRunner`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::http::{Reached, Request};
use super::message::{of_fallback, of_http, of_invalid};
use super::{HookError, HookSubject, Hooks, exec};
use crate::api::pod::HttpGetAction;
use crate::api::probe_host::ProbeHosts;
use crate::api::status::PodIp;
use crate::api::{HookKind, Pod, PodStatus};
use crate::base::cancel::Cancel;
use crate::engine::runtime::{Runtime, RuntimeError};
use crate::pods::events::{EventType, Recorder};
use crate::pods::prober::http::GetError;
use crate::pods::prober::ports::{PortError, resolve_port};
use crate::pods::prober::target::{TargetError, is_node_address, resolve_target};
use crate::pods::prober::url::ProbeUrl;

/// The time limit that the code uses for a hook without a time limit: a year. A finite limit lets the code compute with
/// times.
const NO_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The reason why an httpGet hook has no answer.
#[derive(Debug, thiserror::Error)]
enum HttpGetError {
    /// The port does not exist or is not valid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The host is not allowed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The runtime cannot return the pod's addresses or its network namespace.
    #[error(transparent)]
    Network(#[from] RuntimeError),
    /// The request got no answer.
    #[error(transparent)]
    Request(#[from] GetError),
}

/// Runs hooks through a runtime and over the network.
pub struct HandlerRunner {
    /// The runtime, which runs commands and knows the pods' addresses and network namespaces.
    pub runtime: Arc<dyn Runtime>,
    /// The recorder of events. The recorder gets an event when a hook falls back to http.
    pub recorder: Arc<Recorder>,
    /// The address of pods that use the node's network.
    pub node_ip: IpAddr,
    /// The hosts that hooks may name. Probes may name the same hosts.
    pub allow_probe_hosts: Vec<String>,
}

impl Hooks for HandlerRunner {
    fn pre_stop(
        &self,
        subject: HookSubject<'_>,
        grace: Duration,
        ran: Duration,
        cancel: &Cancel,
    ) -> Result<(), HookError> {
        self.run(HookKind::PreStop, subject, grace, ran, cancel)
    }

    fn post_start(&self, subject: HookSubject<'_>, cancel: &Cancel) -> Result<(), HookError> {
        self.run(
            HookKind::PostStart,
            subject,
            NO_LIMIT,
            Duration::ZERO,
            cancel,
        )
    }
}

impl HandlerRunner {
    fn run(
        &self,
        kind: HookKind,
        subject: HookSubject<'_>,
        limit: Duration,
        ran: Duration,
        cancel: &Cancel,
    ) -> Result<(), HookError> {
        let Some(hook) = subject.container.hook(kind) else {
            return Ok(());
        };
        if cancel.is_cancelled() {
            return Err(HookError::Cancelled);
        }
        if let Some(action) = &hook.exec {
            exec::run(&*self.runtime, subject, &action.command, limit, cancel)
        } else if let Some(action) = &hook.http_get {
            self.http_get(action, subject, limit, cancel)
        } else if let Some(action) = &hook.sleep {
            sleep(action.seconds, limit, ran, cancel)
        } else {
            Err(HookError::Failed(of_invalid("tcpSocket")))
        }
    }

    fn http_get(
        &self,
        action: &HttpGetAction,
        subject: HookSubject<'_>,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<(), HookError> {
        let sent = self.request(action, subject).and_then(|request| {
            let authority = request.url.authority();
            Ok((request.send(limit, cancel)?, authority))
        });
        match sent {
            Ok((Reached::AsAsked, _)) => Ok(()),
            Ok((Reached::ByHttp, authority)) => {
                self.say_that_it_fell_back(subject.pod, &authority);
                Ok(())
            }
            Err(_) if cancel.is_cancelled() => Err(HookError::Cancelled),
            Err(error) => {
                let error = error.to_string();
                Err(HookError::Failed(of_http(subject, &action.path, &error)))
            }
        }
    }

    fn request(
        &self,
        action: &HttpGetAction,
        subject: HookSubject<'_>,
    ) -> Result<Request, HttpGetError> {
        let port = resolve_port(&action.port, &subject.container.ports)?;
        let uid = subject.pod.uid();
        let netns = self.runtime.network_namespace(uid);
        let hosts = ProbeHosts {
            allowed: &self.allow_probe_hosts,
            is_node_address: &is_node_address,
        };
        let netns = netns?;
        let addresses = self.addresses(subject.pod)?;
        let target = resolve_target(&action.host, &addresses, netns.as_ref(), &hosts)?;
        Ok(Request {
            url: ProbeUrl::of_probe(&action.scheme, &target.host, port, &action.path),
            headers: action.http_headers.clone(),
            target,
        })
    }

    /// Returns the pod's addresses from the runtime. When the pod's first container has just started, the stored status
    /// has no addresses yet.
    fn addresses(&self, pod: &Pod) -> Result<PodStatus, RuntimeError> {
        let runtime = self.runtime.pod_status(pod.uid())?;
        let ips = match runtime.ips() {
            [] if pod.spec.host_network => vec![self.node_ip],
            ips => ips.to_vec(),
        };
        let ips: Vec<PodIp> = ips.iter().map(|ip| PodIp { ip: ip.to_string() }).collect();
        Ok(PodStatus {
            pod_ip: ips.first().map(|ip| ip.ip.clone()).unwrap_or_default(),
            pod_ips: ips,
            ..Default::default()
        })
    }

    fn say_that_it_fell_back(&self, pod: &Pod, authority: &str) {
        let (type_, reason) = (EventType::Warning, "LifecycleHTTPFallback");
        let text = of_fallback(authority);
        (self.recorder).record(&pod.reference(), "", type_, reason, &text);
    }
}

/// Runs a sleep hook. A sleep that is longer than the grace period ends with the grace period and counts as a success.
fn sleep(seconds: i64, limit: Duration, ran: Duration, cancel: &Cancel) -> Result<(), HookError> {
    let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    match cancel.wait(time.saturating_sub(ran).min(limit)) {
        true => Err(HookError::Cancelled),
        false => Ok(()),
    }
}
