//! The routes of the server: each path, and the function that answers it.
//!
//! Invariants: [`super::access`] has already decided that the request may be answered. Nothing here sends to the sync
//! loop or holds a lock across a write.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::containers::{self, ContainerName};
use super::error::RequestError;
use super::exchange::Exchange;
use super::protocol::{
    Condition, DeleteTarget, DrainRequest, MAX_BODY, Pause, PauseTarget, ProbeTarget,
    RestartTarget, UncordonRequest, Version, WATCH_CEILING,
};
use super::response::{HTML, JSON, METRICS, TEXT};
use super::transport::Transport;
use super::{Backend, Registry, files, logs, node_logs, page, threads};
use crate::api::PodUid;
use crate::api::objects::ObjectKind;
use crate::base::clock::Time;
use crate::base::json;
use crate::pods::events::EventList;
use crate::workloads::view::{ChangeRequest, WorkloadList};

/// Time between two checks whether the client has gone or the server stops, on a thread that waits for a change.
const SLICE: Duration = Duration::from_millis(500);
/// The answer about services before the first table. That there are none would be a lie.
const NO_TABLE: &str =
    "the daemon has just started and does not know its services yet; try again in a moment";

/// The answer about workloads before controllers have looked at them for the first time.
const NO_LOOK: &str =
    "the daemon has just started and does not know its workloads yet; try again in a moment";

/// The kind of answer that a path leads to.
enum Route<'a> {
    Shown(Shown<'a>),
    Done(Done),
    /// Streams that take the connection over from HTTP.
    Joined(Joined, ContainerName),
}

/// The requests that read something. Files can also be written.
enum Shown<'a> {
    // The kubelet's paths, and paths that are like them (11.2).
    StatusPage,
    Pods,
    RunningPods,
    Version,
    Events,
    Configz,
    Metrics(Option<Registry>),
    StatsSummary,
    ContainerLogs(ContainerName),
    NodeLogs(&'a [&'a str]),
    Threads,
    // podprobe's own paths, for its verbs.
    Snapshot,
    Watch,
    Services,
    Workloads,
    NodeOrders,
    History(&'a str),
    Objects(&'a str),
    Files(ContainerName),
}

/// The actions that a client can ask for. The body of the request has the details.
enum Done {
    Run(ContainerName),
    Probe,
    Pause,
    Resume,
    Restart,
    Delete,
    Condition,
    ChangeWorkload,
    Reload,
    Cordon,
    Uncordon,
    Drain,
}

enum Joined {
    Exec,
    Attach,
    PortForward,
}

impl<'a> Route<'a> {
    fn find(parts: &'a [&'a str]) -> Option<Self> {
        let container = ContainerName::of_container;
        Some(match parts {
            ["podprobe", "v1", own @ ..] => return Self::find_own(own),
            ["run", name @ ..] => Self::Done(Done::Run(container(name)?)),
            ["exec", name @ ..] => Self::Joined(Joined::Exec, container(name)?),
            ["attach", name @ ..] => Self::Joined(Joined::Attach, container(name)?),
            ["portForward", name @ ..] => {
                Self::Joined(Joined::PortForward, ContainerName::of_pod(name)?)
            }
            parts => Self::Shown(match parts {
                [] => Shown::StatusPage,
                ["pods"] => Shown::Pods,
                ["runningpods"] => Shown::RunningPods,
                ["version"] => Shown::Version,
                ["events"] => Shown::Events,
                ["configz"] => Shown::Configz,
                ["metrics"] => Shown::Metrics(None),
                ["metrics", registry] => Shown::Metrics(Some(registry_of(registry)?)),
                ["stats", "summary"] => Shown::StatsSummary,
                ["containerLogs", name @ ..] => Shown::ContainerLogs(container(name)?),
                ["logs", path @ ..] => Shown::NodeLogs(path),
                ["debug", "threads"] => Shown::Threads,
                _ => return None,
            }),
        })
    }

    fn find_own(parts: &'a [&'a str]) -> Option<Self> {
        Some(match parts {
            ["snapshot"] => Self::Shown(Shown::Snapshot),
            ["watch"] => Self::Shown(Shown::Watch),
            ["services"] => Self::Shown(Shown::Services),
            ["workloads"] => Self::Shown(Shown::Workloads),
            ["history", uid] => Self::Shown(Shown::History(uid)),
            ["objects", kind] => Self::Shown(Shown::Objects(kind)),
            ["files", name @ ..] => Self::Shown(Shown::Files(ContainerName::of_container(name)?)),
            ["probe"] => Self::Done(Done::Probe),
            ["pause"] => Self::Done(Done::Pause),
            ["resume"] => Self::Done(Done::Resume),
            ["restart"] => Self::Done(Done::Restart),
            ["delete"] => Self::Done(Done::Delete),
            ["condition"] => Self::Done(Done::Condition),
            ["workload"] => Self::Done(Done::ChangeWorkload),
            ["reload"] => Self::Done(Done::Reload),
            ["node"] => Self::Shown(Shown::NodeOrders),
            ["cordon"] => Self::Done(Done::Cordon),
            ["uncordon"] => Self::Done(Done::Uncordon),
            ["drain"] => Self::Done(Done::Drain),
            _ => return None,
        })
    }

    /// Returns the HTTP methods that the route allows. HEAD counts as GET.
    fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::Shown(Shown::StatsSummary) | Self::Joined(..) => &["GET", "POST"],
            Self::Shown(Shown::Files(_)) => &["GET", "PUT"],
            Self::Shown(_) => &["GET"],
            Self::Done(_) => &["POST"],
        }
    }
}

/// Answers a request. Returns the connection if it can carry another request.
pub(super) fn serve(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
) -> Option<(Transport, Vec<u8>)> {
    let request = exchange.request.clone();
    let parts = request.parts();
    let method = match request.is_head() {
        true => "GET",
        false => &request.method,
    };
    // A client that hangs up or is too slow is no error of the daemon, so the error of the stream is dropped.
    let answered = match Route::find(&parts) {
        None => exchange.error(404, "404 page not found"),
        Some(route) if !route.methods().contains(&method) => {
            exchange.error(405, "Method Not Allowed")
        }
        Some(Route::Shown(shown)) => show(&mut exchange, backend, &shown),
        Some(Route::Done(done)) => act(&mut exchange, backend, &done),
        Some(Route::Joined(joined, name)) => {
            let _ = match joined {
                Joined::Exec => containers::exec(exchange, backend, &name),
                Joined::Attach => containers::attach(exchange, backend, &name),
                Joined::PortForward => containers::forward(exchange, backend, &name),
            };
            return None;
        }
    };
    answered.ok()?;
    exchange.finish()
}

fn show(exchange: &mut Exchange<'_>, backend: &dyn Backend, shown: &Shown<'_>) -> io::Result<()> {
    match shown {
        Shown::StatusPage => status_page(exchange, backend),
        Shown::Pods => pods(exchange, backend),
        Shown::RunningPods => list(exchange, "PodList", backend.running_pods().into_iter()),
        Shown::Version => {
            let version = backend.version();
            json(exchange, &Version { version })
        }
        Shown::Events => events(exchange, backend),
        Shown::Configz => {
            let config = serde_json::json!({"kubeletconfig": backend.config()});
            json(exchange, &config)
        }
        Shown::Metrics(registry) => {
            let text = match registry {
                None => backend.metrics(),
                Some(registry) => backend.metrics_of(*registry),
            };
            exchange.reply(200, METRICS, text.as_bytes())
        }
        Shown::StatsSummary => {
            match backend.stats_summary(exchange.request.flag("only_cpu_and_memory")) {
                Ok(summary) => exchange.reply(200, JSON, summary.as_bytes()),
                Err(why) => exchange.error(why.status(), &why.to_string()),
            }
        }
        Shown::ContainerLogs(name) => logs::serve(exchange, backend, name),
        Shown::NodeLogs(path) => node_logs::serve(exchange, &backend.log_dir(), path),
        Shown::Threads => exchange.reply(200, TEXT, threads::text().as_bytes()),
        Shown::Snapshot => json(exchange, &*backend.snapshot()),
        Shown::Watch => watch(exchange, backend),
        Shown::Services => match backend.services() {
            Some(services) => json(exchange, &services),
            None => exchange.error(503, NO_TABLE),
        },
        Shown::Workloads => workloads(exchange, backend),
        Shown::NodeOrders => json(exchange, &backend.node_orders()),
        Shown::History(uid) => json(exchange, &backend.history(&PodUid::from(*uid))),
        Shown::Objects(kind) => objects(exchange, backend, kind),
        Shown::Files(name) if exchange.request.method == "PUT" => {
            files::receive(exchange, backend, name)
        }
        Shown::Files(name) => files::send(exchange, backend, name),
    }
}

fn act(exchange: &mut Exchange<'_>, backend: &dyn Backend, done: &Done) -> io::Result<()> {
    let client = exchange.client();
    match done {
        Done::Run(name) => containers::run(exchange, backend, name),
        Done::Probe => change(exchange, |target: ProbeTarget| backend.probe(&target)),
        Done::Pause => change(exchange, |pause: Pause| {
            let (uid, seconds) = (&pause.target.uid, pause.seconds);
            let paused = backend.pause(&pause.target, Duration::from_secs(seconds))?;
            let names = paused.join(" ");
            log::info!("audit: pause {uid} [{names}] for {seconds} s by {client}");
            Ok(paused)
        }),
        Done::Resume => change(exchange, |target: PauseTarget| {
            let resumed = backend.resume(&target)?;
            let (uid, names) = (&target.uid, resumed.join(" "));
            log::info!("audit: resume {uid} [{names}] by {client}");
            Ok(resumed)
        }),
        Done::Restart => change(exchange, |target: RestartTarget| {
            let restarted = backend.restart(&target)?;
            let (uid, names) = (&target.uid, restarted.join(" "));
            log::info!("audit: restart {uid} [{names}] by {client}");
            Ok(restarted)
        }),
        Done::Delete => change(exchange, |target: DeleteTarget| {
            let deleted = backend.delete(&target)?;
            log::info!("audit: delete {} by {client}", target.uid);
            Ok(deleted)
        }),
        Done::Condition => change(exchange, |condition: Condition| {
            let set = backend.set_condition(&condition.uid, &condition.change)?;
            log::info!("audit: condition {} by {client}", condition.uid);
            Ok(set)
        }),
        Done::ChangeWorkload => change(exchange, |request: ChangeRequest| {
            let changed = backend.change_workload(&request)?;
            let ChangeRequest { workload, change } = &request;
            log::info!("audit: {workload}: {change:?} by {client}");
            Ok(changed)
        }),
        Done::Cordon => change(exchange, |_: Value| {
            log::info!("audit: cordon by {client}");
            backend.cordon()
        }),
        Done::Uncordon => change(exchange, |request: UncordonRequest| {
            log::info!("audit: uncordon by {client}");
            backend.uncordon(&request)
        }),
        Done::Drain => change(exchange, |request: DrainRequest| {
            log::info!("audit: drain by {client}");
            backend.drain(&request)
        }),
        Done::Reload => change(exchange, |_: Value| {
            log::info!("audit: reload by {client}");
            backend.reload()
        }),
    }
}

fn status_page(exchange: &mut Exchange<'_>, backend: &dyn Backend) -> io::Result<()> {
    let snapshot = backend.snapshot();
    let shown = snapshot.pods.iter().take(page::MAX_PODS);
    let histories: Vec<_> = shown
        .map(|pod| backend.history(&PodUid::from(pod.uid())))
        .collect();
    let page = page::render(&page::Facts {
        snapshot: &snapshot,
        services: &backend.services().unwrap_or_default(),
        workloads: &backend.workloads(None, Duration::ZERO).to_read(),
        histories: &histories,
        events: &backend.events(None, Duration::ZERO).events,
        checks: &backend.checks(),
        version: &backend.version(),
        now: Time::now(),
    });
    exchange.reply(200, HTML, page.as_bytes())
}

fn objects(exchange: &mut Exchange<'_>, backend: &dyn Backend, kind: &str) -> io::Result<()> {
    match ObjectKind::OF_PODS.iter().find(|k| k.as_str() == kind) {
        Some(kind) => json(exchange, &backend.objects(*kind)),
        None => {
            let names = ObjectKind::OF_PODS.map(ObjectKind::as_str).join(", ");
            exchange.error(404, &format!("the kinds are {names}"))
        }
    }
}

fn json(exchange: &mut Exchange<'_>, answer: &impl Serialize) -> io::Result<()> {
    // The JSON is written piece by piece, so that a list of all pods is never in memory as a whole.
    exchange.stream(JSON, false, |out| {
        serde_json::to_writer(&mut *out, answer)?;
        out.write_all(b"\n")
    })
}

/// Answers a request for an action: reads the body, runs `act`, and sends the answer or the error.
fn change<T: DeserializeOwned, A: Serialize>(
    exchange: &mut Exchange<'_>,
    act: impl FnOnce(T) -> Result<A, RequestError>,
) -> io::Result<()> {
    let Some(body) = exchange.read_body(MAX_BODY)? else {
        return Ok(());
    };
    let wanted = match json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(e) => return exchange.error(400, &format!("cannot read the body of the request: {e}")),
    };
    match act(wanted) {
        Ok(answer) => json(exchange, &answer),
        Err(why) => exchange.error(why.status(), &why.to_string()),
    }
}

fn pods(exchange: &mut Exchange<'_>, backend: &dyn Backend) -> io::Result<()> {
    let snapshot = backend.snapshot();
    list(
        exchange,
        "PodList",
        snapshot.pods.iter().map(|pod| pod.v1()),
    )
}

/// Answers with a v1 list. The items are written one at a time.
fn list(
    exchange: &mut Exchange<'_>,
    kind: &str,
    items: impl Iterator<Item = Value>,
) -> io::Result<()> {
    exchange.stream(JSON, false, |out| {
        write!(
            out,
            r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{}},"items":["#
        )?;
        for (n, item) in items.enumerate() {
            if n > 0 {
                out.write_all(b",")?;
            }
            serde_json::to_writer(&mut *out, &item)?;
        }
        out.write_all(b"]}\n")
    })
}

fn registry_of(name: &str) -> Option<Registry> {
    match name {
        "probes" => Some(Registry::Probes),
        "resource" => Some(Registry::Resource),
        "cadvisor" => Some(Registry::Cadvisor),
        _ => None,
    }
}

/// Reads the parameter `after`, the version that the client has. The outer None means that the request was refused. The
/// inner None means that the query has no such parameter.
fn after(exchange: &mut Exchange<'_>) -> io::Result<Option<Option<u64>>> {
    let after = exchange.request.value("after").map(str::parse);
    match after.transpose() {
        Ok(after) => Ok(Some(after)),
        Err(_) => {
            exchange.error(
                400,
                "after must be the version of an earlier answer, a number",
            )?;
            Ok(None)
        }
    }
}

fn watch(exchange: &mut Exchange<'_>, backend: &dyn Backend) -> io::Result<()> {
    let Some(after) = after(exchange)? else {
        return Ok(());
    };
    let after = after.unwrap_or(0);
    let update = in_slices(
        exchange,
        |slice| backend.watch(after, slice),
        |update| update.version != after,
    );
    json(exchange, &update)
}

fn events(exchange: &mut Exchange<'_>, backend: &dyn Backend) -> io::Result<()> {
    let Some(after) = after(exchange)? else {
        return Ok(());
    };
    let newer = |list: &EventList| after.is_none_or(|after| list.version > after);
    let list = in_slices(exchange, |slice| backend.events(after, slice), newer);
    json(exchange, &list)
}

fn workloads(exchange: &mut Exchange<'_>, backend: &dyn Backend) -> io::Result<()> {
    let Some(after) = after(exchange)? else {
        return Ok(());
    };
    // A daemon that has just started has no version yet, and a version from an earlier daemon may be higher.
    let newer =
        |list: &WorkloadList| after.is_none_or(|after| list.version != 0 && list.version != after);
    let list = in_slices(exchange, |slice| backend.workloads(after, slice), newer);
    match (after, list.version) {
        (None, 0) => exchange.error(503, NO_LOOK),
        _ => json(exchange, &list),
    }
}

/// Waits for news in slices of [`SLICE`], so that the wait ends soon after the client has gone or the server stops.
fn in_slices<T>(
    exchange: &Exchange<'_>,
    wait: impl Fn(Duration) -> T,
    is_news: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let state = wait(SLICE);
        if is_news(&state) || begun.elapsed() >= WATCH_CEILING || exchange.is_gone() {
            return state;
        }
    }
}
