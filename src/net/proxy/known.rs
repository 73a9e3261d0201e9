//! The services with their addresses, for the environment variables of containers. The addresses are known before
//! the data path has programmed the services.
//!
//! Invariants: nobody waits longer than the caller's limit. All variables of a pod come from the services at
//! one moment.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::api::Pod;
use crate::api::objects::ObjectKey;
use crate::base::cancel::Cancel;
use crate::base::locks::Locked;
use crate::net::services::allocate::Assigned;
use crate::net::services::environment::service_environment;
use crate::net::services::inputs::{ServiceObjects, with_inputs};

/// The services that are known now, and a way to wait until services are known.
#[derive(Debug)]
pub struct KnownServices {
    known: Mutex<Arc<Known>>,
    changed: Condvar,
    /// An event that becomes readable when services are known for the first time. A waiting thread polls this
    /// event together with the cancellation of its pod.
    first: Option<EventFd>,
}

/// The services at one moment.
#[derive(Debug, Default, PartialEq)]
struct Known {
    objects: ServiceObjects,
    assigned: BTreeMap<ObjectKey, Assigned>,
}

impl Default for KnownServices {
    fn default() -> Self {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Self {
            known: Mutex::default(),
            changed: Condvar::new(),
            // If no descriptor is left, no thread waits for services.
            first: EventFd::from_flags(flags).ok(),
        }
    }
}

impl KnownServices {
    /// Sets the existing services with their addresses and ports, and wakes the waiting threads.
    pub fn set(&self, objects: &ServiceObjects, assigned: &BTreeMap<ObjectKey, Assigned>) {
        let mut known = self.lock();
        if known.objects != *objects || known.assigned != *assigned {
            *known = Arc::new(Known {
                objects: objects.clone(),
                assigned: assigned.clone(),
            });
            self.changed.notify_all();
        }
        drop(known);
        if let Some(first) = &self.first {
            // The write fails only if the counter of the event is full. An event with a full counter is readable
            // anyway.
            let _ = first.write(1);
        }
    }

    /// Waits until services are known for the first time, for at most `limit`, or until `cancel` is cancelled.
    pub fn wait_first(&self, cancel: &Cancel, limit: Duration) {
        if let Err(e) = self.poll_first(cancel, limit) {
            log::debug!("cannot wait for services: {e}");
        }
    }

    fn poll_first(&self, cancel: &Cancel, limit: Duration) -> io::Result<()> {
        let Some(first) = &self.first else {
            return Ok(());
        };
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut both = [watch(first.as_fd()), watch(cancel.fd()?)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        poll(&mut both, limit)?;
        Ok(())
    }

    /// Returns the environment variables for a pod's containers. Waits until all services that exist now are
    /// known, for at most `limit`. The wait is needed because the same file may have brought the pod and a
    /// service.
    pub fn variables(
        &self,
        pod: &Pod,
        now: impl Fn() -> ServiceObjects,
        limit: Duration,
    ) -> Vec<(String, String)> {
        let is_behind = |known: &mut Arc<Known>| known.objects != now();
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, is_behind);
        let known = waited.unwrap_or_else(PoisonError::into_inner).0.clone();
        let namespace = &pod.metadata.namespace;
        with_inputs(&known.objects, &known.assigned, |services, _| {
            service_environment(services, namespace, pod.spec.enable_service_links)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Known>> {
        self.known.locked()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::api::objects::ObjectKind;
    use crate::api::service::{Protocol, Service, ServicePort, TargetPort};
    use crate::test_pods;

    const LONG: Duration = Duration::from_secs(3600);

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(ObjectKind::Service, "default", name)
    }

    /// Services with these names.
    fn services(names: &[&str]) -> ServiceObjects {
        let service = Arc::new(Service {
            ports: vec![ServicePort {
                name: String::new(),
                protocol: Protocol::Tcp,
                port: 80,
                target_port: TargetPort::Number(80),
                node_port: None,
                app_protocol: None,
            }],
            ..Service::default()
        });
        let keyed = names.iter().map(|name| (key(name), service.clone()));
        ServiceObjects {
            services: keyed.collect(),
            ..ServiceObjects::default()
        }
    }

    fn assigned(names: &[&str]) -> BTreeMap<ObjectKey, Assigned> {
        let has = Assigned {
            cluster_ips: vec![[10, 96, 0, 5].into()],
            ..Assigned::default()
        };
        names.iter().map(|n| (key(n), has.clone())).collect()
    }

    fn hosts(known: &KnownServices, there: &ServiceObjects, limit: Duration) -> Vec<String> {
        let spec = json!({"enableServiceLinks": true, "containers": [{"name": "c", "image": "i"}]});
        let pod = test_pods::pod("a").spec(spec);
        let all = known
            .variables(&pod.build(), || there.clone(), limit)
            .into_iter();
        all.map(|(name, _)| name)
            .filter(|name| name.ends_with("_HOST"))
            .collect()
    }

    #[test]
    fn a_pod_waits_for_the_first_time_only_and_not_when_it_ends() {
        let known = KnownServices::default();
        let began = Instant::now();
        known.wait_first(&Cancel::default(), Duration::from_millis(1));
        let cancel = Cancel::default();
        std::thread::scope(|s| {
            let waits = s.spawn(|| known.wait_first(&cancel, LONG));
            cancel.cancel();
            waits.join().unwrap();
        });
        std::thread::scope(|s| {
            let waits = s.spawn(|| known.wait_first(&Cancel::default(), LONG));
            known.set(&ServiceObjects::default(), &BTreeMap::new());
            waits.join().unwrap();
        });
        known.wait_first(&Cancel::default(), LONG);
        assert!(began.elapsed() < LONG);
    }

    #[test]
    fn a_service_that_came_with_the_pod_is_waited_for() {
        let known = KnownServices::default();
        let mut there = services(&["web"]);
        known.set(&there, &assigned(&["web"]));
        assert_eq!(hosts(&known, &there, LONG), ["WEB_SERVICE_HOST"]);
        there = services(&["db", "web"]);
        std::thread::scope(|s| {
            let waits = s.spawn(|| hosts(&known, &there, LONG));
            // A thread that wrongly does not wait would finish within the time of this loop.
            for _ in 0..20 {
                assert!(!waits.is_finished());
                std::thread::sleep(Duration::from_millis(1));
            }
            known.set(&there, &assigned(&["db", "web"]));
            let both = ["DB_SERVICE_HOST", "WEB_SERVICE_HOST"];
            assert_eq!(waits.join().unwrap(), both);
        });
        let late = hosts(&known, &ServiceObjects::default(), Duration::ZERO);
        assert_eq!(late.len(), 2, "those that are known");
    }
}
