//! The thread `cluster-services`: the services and endpoint slices of a cluster for the thread `proxy`, read with an identity
//! of their own, because a node may not read endpoint slices (kube-services 4).
//!
//! Invariants: nothing that is in force depends on the connection. Until the API server has said both collections, the table
//! of an earlier daemon stays in force; after [`PATIENCE`] without its word what an earlier daemon has kept is served. What
//! is read is the cluster's, not the node's: memory grows with the cluster's services, which is why this is off by default.

mod collected;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use self::collected::{Collected, Collection};
use super::client::{Client, Heard, RequestId};
use super::reflector::{Change, Selection};
use super::rounds::{Rounds, RoundsThread, Trouble};
use super::watches::Watches;
use crate::base::bell::Bell;
use crate::base::clock::Moment;
use crate::base::record_file;
use crate::base::threads::{Pulse, Roster};
use crate::net::services::inputs::Authority;
use crate::pods::objects::Objects;

/// Longest wait, so that the pulse of the thread is seen.
const LONGEST: Duration = Duration::from_secs(60);
/// Time after the start for which the API server's word is waited for, before kept services are served. The thread `proxy`
/// waits longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between a change and its writing. Changes come in bursts.
const SETTLING: Duration = Duration::from_secs(1);
/// Largest number of writings within [`HOUR`]. Some clusters change all the time, and a flash card wears out.
const MOST_WRITINGS: usize = 10;
const HOUR: Duration = Duration::from_secs(3600);
/// Name of the record with what is kept.
const RECORD: &str = "services.json";

/// The parts that the thread works with.
pub struct Deps {
    /// Path of the kubeconfig with the identity of a service proxy.
    pub kubeconfig: PathBuf,
    /// Directory of what is kept for a start without the API server.
    pub kept: PathBuf,
    /// The store for the services.
    pub objects: Arc<Objects>,
}

/// Starts the thread `cluster-services`.
///
/// # Errors
/// Returns an error if there are no descriptors, or if the thread cannot be started.
pub fn spawn(deps: Deps, roster: &Roster) -> io::Result<RoundsThread> {
    RoundsThread::spawn("cluster-services", roster, |bell, _| {
        State::new(deps, bell, Moment::now())
    })
}

/// The state of the thread.
struct State {
    deps: Deps,
    bell: Arc<Bell>,
    client: Client,
    watches: Watches<Collection>,
    collected: Collected,
    began: Moment,
    /// True if what is collected is not what was handed on.
    has_changed: bool,
    /// Whose word was handed on last; None before anything was.
    handed_on: Option<Authority>,
    /// The moment at which changes are to be written; None if there are none.
    write_at: Option<Moment>,
    /// The moments of the last writings, at most [`MOST_WRITINGS`].
    written: Vec<Moment>,
    trouble: Trouble,
}

impl Rounds for State {
    /// After a panic nothing is known of what is under way, so everything is asked for anew with another connection. What
    /// was handed on stays in force.
    fn doubt(&mut self, now: Moment) {
        self.client = Client::new(self.deps.kubeconfig.clone(), self.bell.clone(), now);
        self.watches = watches();
    }

    /// Takes what has come, and then asks for what is to be asked.
    fn round(&mut self, now: Moment) -> bool {
        // Stilled first: a ring from here on belongs to something that this round may not see.
        self.bell.still();
        let mut changes = Vec::new();
        for (id, heard) in self.client.turn(now) {
            if self.gives_up_ranges(id, &heard) {
                continue;
            }
            let mut each = |what, change| changes.push((what, change));
            self.watches
                .hear(now, id, &heard, &mut self.client, &mut each);
        }
        let meanwhile = "they stay as they are, except for pods of this node";
        if self.trouble.tell(&mut self.client, "services: ", meanwhile) {
            self.ask_for_ranges();
        }
        if self.client.is_connected() {
            changes.extend(self.watches.tick(now, &mut self.client));
        }
        for (what, change) in changes {
            self.has_changed |= self.collected.observe(what, change);
        }
        self.hand_on(now);
        self.keep(now);
        false
    }

    fn wait(&self, pulse: &Pulse) {
        let now = Moment::now();
        let watches = self.client.is_connected().then(|| self.watches.deadline());
        let patience = self.handed_on.is_none().then(|| self.began + PATIENCE);
        let times = watches.flatten().into_iter().chain(patience);
        let until = times.chain(self.write_at).fold(now + LONGEST, Moment::min);
        pulse.rest(|| self.client.wait(Moment::now(), until));
    }

    /// Writes what has changed since it was last written.
    fn end(&mut self) {
        if self.write_at.is_some() {
            self.write();
        }
    }
}

impl State {
    fn new(deps: Deps, bell: Arc<Bell>, now: Moment) -> Self {
        let texts = record_file::read(&deps.kept, RECORD).unwrap_or_default();
        Self {
            client: Client::new(deps.kubeconfig.clone(), bell.clone(), now),
            watches: watches(),
            collected: Collected::restored(&texts),
            began: now,
            has_changed: false,
            handed_on: None,
            write_at: None,
            written: Vec::new(),
            trouble: Trouble::default(),
            deps,
            bell,
        }
    }

    /// Gives up the ranges of service addresses of an API server that does not know such objects. Nothing depends on them but
    /// refusals and the node's own way to services. Another connection may lead to a newer API server.
    fn gives_up_ranges(&mut self, id: RequestId, heard: &Heard) -> bool {
        let what = Collection::ServiceCidrs;
        let is_unknown = matches!(heard, Heard::Refused { code: 404, .. });
        if !is_unknown || self.watches.of(id) != Some(&what) {
            return false;
        }
        log::info!(
            "the API server knows no ranges of service addresses: addresses that no service has are not refused"
        );
        self.watches.remove(&what, &mut self.client);
        let nothing = Change::Replaced(Vec::new());
        self.has_changed |= self.collected.observe(what, nothing);
        true
    }

    /// Asks for the ranges of service addresses again where they were given up.
    fn ask_for_ranges(&mut self) {
        if !self.watches.has(&Collection::ServiceCidrs) {
            let ranges = Selection::service_cidrs();
            self.watches.add(Collection::ServiceCidrs, ranges);
        }
    }

    /// Hands the services on if they have changed, or if the API server has fallen silent or spoken again.
    fn hand_on(&mut self, now: Moment) {
        let mut all = Collection::NEEDED.iter();
        let are_said = all.all(|what| self.watches.is_synced(what));
        let authority = match are_said && self.client.is_connected() {
            true => Authority::ControlPlane,
            false => Authority::SilentControlPlane,
        };
        let is_first = self.handed_on.is_none();
        if is_first && !are_said && now < self.began + PATIENCE {
            return;
        }
        if is_first && !are_said {
            log::warn!(
                "services are those that an earlier daemon has kept: the API server has not said them yet"
            );
        }
        let is_due = std::mem::take(&mut self.has_changed);
        if is_due && are_said {
            let at = next_writing(now, &self.written);
            self.write_at.get_or_insert(at);
        }
        if is_due || self.handed_on != Some(authority) {
            let objects = self.collected.objects(authority);
            self.deps.objects.put_cluster_services(objects);
            self.handed_on = Some(authority);
        }
    }

    /// Writes what is to be kept, if it is time.
    fn keep(&mut self, now: Moment) {
        if self.write_at.is_some_and(|at| now >= at) {
            self.write();
            self.written.push(now);
            if self.written.len() > MOST_WRITINGS {
                self.written.remove(0);
            }
        }
    }

    fn write(&mut self) {
        self.write_at = None;
        let texts = self.collected.texts();
        if let Err(e) = record_file::write(&self.deps.kept, RECORD, &texts, true) {
            log::warn!("cannot keep services for a start without the API server: {e}");
        }
    }
}

/// Returns the moment at which a change of now is written, after these last writings.
fn next_writing(now: Moment, written: &[Moment]) -> Moment {
    let is_full = written.len() >= MOST_WRITINGS;
    let room = written
        .first()
        .filter(|_| is_full)
        .map(|first| *first + HOUR);
    room.unwrap_or_default().max(now + SETTLING)
}

fn watches() -> Watches<Collection> {
    let mut watches = Watches::default();
    watches.add(Collection::Services, Selection::proxied_services());
    watches.add(Collection::Slices, Selection::proxied_slices());
    watches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(10_000 + seconds))
    }

    #[test]
    fn kept_services_are_handed_on_when_the_api_server_has_had_its_time() {
        let directory = tempfile::tempdir().unwrap();
        let text = r#"{"kind": "Service", "metadata": {"name": "web", "namespace": "n"}, "spec": {"clusterIPs": ["10.43.0.1"]}}"#;
        let kept = serde_json::json!({"objects": [text]});
        record_file::write(directory.path(), RECORD, &kept, false).unwrap();
        let objects = Arc::<Objects>::default();
        let deps = Deps {
            kubeconfig: directory.path().join("none"),
            kept: directory.path().to_owned(),
            objects: objects.clone(),
        };
        let mut state = State::new(deps, Arc::new(Bell::new().unwrap()), at(0));
        state.hand_on(at(0));
        state.hand_on(at(4));
        // What an earlier daemon has programmed is newer than what it has kept.
        assert_eq!(objects.cluster_services(), None);
        state.hand_on(at(0) + PATIENCE);
        let known = objects.cluster_services().unwrap();
        assert_eq!(known.authority, Authority::SilentControlPlane);
        assert_eq!(known.services[0].0.name, "web");
        assert_eq!(state.write_at, None, "nothing is new");
    }

    #[test]
    fn changes_are_written_soon_and_seldom() {
        let mut written = Vec::new();
        for number in 0..10 {
            let now = at(number * 60);
            assert_eq!(next_writing(now, &written), now + SETTLING);
            written.push(now);
        }
        assert_eq!(next_writing(at(600), &written), at(0) + HOUR);
        assert_eq!(next_writing(at(4000), &written), at(4000) + SETTLING);
    }
}
