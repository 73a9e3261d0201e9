//! The thread `cluster-services`: the services and endpoint slices of a cluster for the thread `proxy`, read with an identity
//! of their own, because a node may not read endpoint slices (kube-services 4).
//!
//! Invariants: nothing that is in force depends on the connection. Until the API server has said both collections, the table
//! of an earlier daemon stays in force; after [`PATIENCE`] without its word what an earlier daemon has kept is served. What
//! is read is the cluster's, not the node's: memory grows with the cluster's services, which is why this is off by default.

mod collected;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, TryRecvError, bounded};

use self::collected::{Collected, Collection};
use super::client::{Client, Heard, LinkChange, RequestId};
use super::reflector::{Change, Selection};
use super::watches::Watches;
use crate::base::bell::Bell;
use crate::base::clock::Moment;
use crate::base::record_file;
use crate::base::threads::{Pulse, Roster};
use crate::net::services::inputs::Authority;
use crate::pods::objects::Objects;

/// Stack of the thread. Objects of the API are trees of values.
const STACK: usize = 1 << 20;
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

/// The watch of a cluster's services: a handle on its thread.
pub struct ClusterServices {
    thread: JoinHandle<()>,
    stop: Sender<()>,
    bell: Arc<Bell>,
}

impl ClusterServices {
    /// Starts the thread `cluster-services`.
    ///
    /// # Errors
    /// Returns an error if there are no descriptors, or if the thread cannot be started.
    pub fn spawn(deps: Deps, roster: &Roster) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        let bell = Arc::new(Bell::new()?);
        let mut state = State::new(deps, bell.clone(), Moment::now());
        let thread = roster.spawn("cluster-services", STACK, move |pulse, panicked| {
            if panicked {
                state.doubt(Moment::now());
            }
            if !matches!(stopped.try_recv(), Err(TryRecvError::Empty)) {
                state.end();
                return ControlFlow::Break(());
            }
            state.round(Moment::now());
            state.wait(pulse);
            ControlFlow::Continue(())
        })?;
        Ok(Self { thread, stop, bell })
    }

    /// Orders the thread to end, and does not wait for it.
    pub fn stop(&self) {
        // The channel has room for one order, and one is enough.
        let _ = self.stop.try_send(());
        self.bell.ring();
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
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
    /// The last reason for which there is no connection. It is said once.
    trouble: Option<String>,
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
            trouble: None,
            deps,
            bell,
        }
    }

    /// After a panic nothing is known of what is under way, so everything is asked for anew with another connection. What
    /// was handed on stays in force.
    fn doubt(&mut self, now: Moment) {
        self.client = Client::new(self.deps.kubeconfig.clone(), self.bell.clone(), now);
        self.watches = watches();
    }

    /// Takes what has come, and then asks for what is to be asked.
    fn round(&mut self, now: Moment) {
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
        self.tell_of_the_connection();
        if self.client.is_connected() {
            changes.extend(self.watches.tick(now, &mut self.client));
        }
        for (what, change) in changes {
            self.has_changed |= self.collected.observe(what, change);
        }
        self.hand_on(now);
        self.keep(now);
    }

    /// Gives up the ranges of service addresses where there are none to be read. Nothing depends on them but refusals and the
    /// node's own way to services.
    fn gives_up_ranges(&mut self, id: RequestId, heard: &Heard) -> bool {
        let Heard::Refused {
            code: code @ (403 | 404),
            ..
        } = heard
        else {
            return false;
        };
        let is_of_ranges = self.watches.of(id) == Some(&Collection::ServiceCidrs);
        if is_of_ranges {
            log::info!(
                "the API server says no ranges of service addresses (status {code}): addresses that no service has are not refused"
            );
            let (what, nothing) = (Collection::ServiceCidrs, Change::Replaced(Vec::new()));
            self.watches.remove(&what, &mut self.client);
            self.has_changed |= self.collected.observe(what, nothing);
        }
        is_of_ranges
    }

    fn wait(&self, pulse: &Pulse) {
        let now = Moment::now();
        let watches = self.client.is_connected().then(|| self.watches.deadline());
        let patience = self.handed_on.is_none().then(|| self.began + PATIENCE);
        let times = watches.flatten().into_iter().chain(patience);
        let until = times.chain(self.write_at).fold(now + LONGEST, Moment::min);
        pulse.rest(|| self.client.wait(Moment::now(), until));
    }

    fn tell_of_the_connection(&mut self) {
        for change in self.client.take_changes() {
            match change {
                LinkChange::Up => {
                    self.trouble = None;
                    log::info!("connected to the API server for services");
                }
                LinkChange::Down(cause) if self.trouble.as_ref() == Some(&cause) => {
                    log::debug!("services: {cause}");
                }
                LinkChange::Down(cause) => {
                    log::warn!(
                        "services: {cause}; they stay as they are, except for pods of this node"
                    );
                    self.trouble = Some(cause);
                }
            }
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

    /// Writes what has changed since it was last written.
    fn end(&mut self) {
        if self.write_at.is_some() {
            self.write();
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
    watches.add(Collection::ServiceCidrs, Selection::service_cidrs());
    watches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_written_soon_and_seldom() {
        let at = |seconds: u64| Moment::from_boot(Duration::from_secs(10_000 + seconds));
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
