//! Which path is answered by what.
//!
//! Invariants: whether the request may be answered at all was decided before ([`super::access`]). Nothing here sends to the
//! sync loop or holds a lock across a write.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::containers::{self, ContainerName};
use super::exchange::Exchange;
use super::protocol::{
    Condition, DeleteTarget, MAX_BODY, Pause, PauseTarget, ProbeTarget, RestartTarget, Version,
    WATCH_CEILING,
};
use super::response::{HTML, JSON, METRICS, TEXT};
use super::transport::Transport;
use super::{Backend, Registry, files, logs, node_logs, page, threads};
use crate::api::PodUid;
use crate::api::objects::ObjectKind;
use crate::clock::Time;
use crate::events::EventList;

/// How often a thread that waits for a change looks whether its client has gone or the server stops.
const SLICE: Duration = Duration::from_millis(500);

/// What of a request is compared with the paths.
type Route<'a> = (&'a str, &'a [&'a str]);

/// Answers a request; the connection comes back when it can carry another.
pub(super) fn serve(
    mut exchange: Exchange<'_>,
    backend: &dyn Backend,
) -> Option<(Transport, Vec<u8>)> {
    let path = exchange.request.path.clone();
    let trimmed = path.strip_prefix('/').unwrap_or(&path);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    let parts: Vec<&str> = match trimmed {
        "" => Vec::new(),
        some => some.split('/').collect(),
    };
    // A client that hangs up or is too slow is no error of the daemon.
    if let Some(name) = container_of(&parts) {
        let _ = match parts[0] {
            "exec" => containers::exec(exchange, backend, &name),
            "attach" => containers::attach(exchange, backend, &name),
            _ => containers::forward(exchange, backend, &name),
        };
        return None;
    }
    answer(&mut exchange, backend, &parts).ok()?;
    exchange.finish()
}

/// Of the paths that take the connection over.
fn container_of(parts: &[&str]) -> Option<ContainerName> {
    match parts {
        ["exec" | "attach", rest @ ..] => ContainerName::of_container(rest),
        ["portForward", rest @ ..] => ContainerName::of_pod(rest),
        _ => None,
    }
}

fn answer(exchange: &mut Exchange<'_>, backend: &dyn Backend, parts: &[&str]) -> io::Result<()> {
    let method = match exchange.request.method.as_str() {
        "HEAD" => "GET".to_owned(),
        other => other.to_owned(),
    };
    match parts {
        ["podprobe", "v1", rest @ ..] => own(exchange, backend, (&method, rest)),
        parts => kubelet(exchange, backend, (&method, parts)),
    }
}

/// The kubelet's paths, and those that are like them (11.2).
fn kubelet(exchange: &mut Exchange<'_>, backend: &dyn Backend, route: Route<'_>) -> io::Result<()> {
    match route {
        ("GET", []) => status_page(exchange, backend),
        ("GET", ["pods"]) => pods(exchange, backend),
        ("GET", ["version"]) => {
            let version = backend.version();
            json(exchange, &Version { version })
        }
        ("GET", ["events"]) => events(exchange, backend),
        ("GET", ["metrics"]) => exchange.reply(200, METRICS, backend.metrics().as_bytes()),
        ("GET", ["metrics", registry]) => match registry_of(registry) {
            Some(registry) => exchange.reply(200, METRICS, backend.metrics_of(registry).as_bytes()),
            None => exchange.error(404, "404 page not found"),
        },
        ("GET" | "POST", ["stats", "summary"]) => {
            match backend.stats_summary(exchange.request.flag("only_cpu_and_memory")) {
                Ok(summary) => exchange.reply(200, JSON, summary.as_bytes()),
                Err(why) => exchange.error(500, &why),
            }
        }
        ("GET", ["runningpods"]) => {
            let pods = backend.running_pods();
            list(exchange, "PodList", pods.into_iter())
        }
        ("GET", ["configz"]) => json(
            exchange,
            &serde_json::json!({"kubeletconfig": backend.config()}),
        ),
        ("GET", ["containerLogs", rest @ ..]) => match ContainerName::of_container(rest) {
            Some(name) => logs::serve(exchange, backend, &name),
            None => exchange.error(404, "404 page not found"),
        },
        ("GET", ["logs", rest @ ..]) => node_logs::serve(exchange, &backend.log_dir(), rest),
        ("GET", ["debug", "threads"]) => {
            let threads = threads::text();
            exchange.reply(200, TEXT, threads.as_bytes())
        }
        ("POST", ["run", rest @ ..]) => match ContainerName::of_container(rest) {
            Some(name) => containers::run(exchange, backend, &name),
            None => exchange.error(404, "404 page not found"),
        },
        (_, ["run", ..]) => exchange.error(405, "Method Not Allowed"),
        (method, parts) => unknown(exchange, method, parts),
    }
}

/// What the verbs ask besides.
fn own(exchange: &mut Exchange<'_>, backend: &dyn Backend, route: Route<'_>) -> io::Result<()> {
    match route {
        ("GET", ["snapshot"]) => json(exchange, &*backend.snapshot()),
        ("GET", ["watch"]) => watch(exchange, backend),
        ("GET", ["services"]) => json(exchange, &backend.services()),
        ("GET", ["history", uid]) => json(exchange, &backend.history(&PodUid::from(*uid))),
        ("GET", ["objects", kind]) => objects(exchange, backend, kind),
        ("POST", ["probe"]) => change(exchange, |target: ProbeTarget| backend.probe(&target)),
        ("POST", ["pause"]) => change(exchange, |pause: Pause| {
            backend.pause(&pause.target, Duration::from_secs(pause.seconds))
        }),
        ("POST", ["resume"]) => change(exchange, |target: PauseTarget| backend.resume(&target)),
        ("POST", ["restart"]) => {
            let client = exchange.client();
            change(exchange, |target: RestartTarget| {
                let restarted = backend.restart(&target)?;
                let (uid, names) = (&target.uid, restarted.join(" "));
                log::info!("audit: restart {uid} [{names}] by {client}");
                Ok(restarted)
            })
        }
        ("POST", ["delete"]) => {
            let client = exchange.client();
            change(exchange, |target: DeleteTarget| {
                let deleted = backend.delete(&target)?;
                log::info!("audit: delete {} by {client}", target.uid);
                Ok(deleted)
            })
        }
        ("POST", ["condition"]) => change(exchange, |condition: Condition| {
            backend.set_condition(&condition.uid, &condition.change)
        }),
        (method @ ("GET" | "PUT"), ["files", rest @ ..]) => {
            match (ContainerName::of_container(rest), method) {
                (Some(name), "GET") => files::send(exchange, backend, &name),
                (Some(name), _) => files::receive(exchange, backend, &name),
                (None, _) => exchange.error(404, "404 page not found"),
            }
        }
        (method, parts) => unknown(exchange, method, parts),
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
        services: &backend.services(),
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

/// Paths that are asked with one method only.
const POSTED: [&str; 6] = ["probe", "pause", "resume", "condition", "restart", "delete"];

fn unknown(exchange: &mut Exchange<'_>, method: &str, parts: &[&str]) -> io::Result<()> {
    let is_known = parts.first().is_some_and(|first| {
        let shown = ["pods", "version", "events", "metrics", "snapshot", "watch"];
        shown.contains(first) || POSTED.contains(first)
    });
    match (is_known && parts.len() == 1 || parts.is_empty(), method) {
        (true, _) => exchange.error(405, "Method Not Allowed"),
        (false, _) => exchange.error(404, "404 page not found"),
    }
}

fn json(exchange: &mut Exchange<'_>, answer: &impl Serialize) -> io::Result<()> {
    // Piece by piece, so that a list of all pods never lies in memory as a whole.
    exchange.stream(JSON, false, |out| {
        serde_json::to_writer(&mut *out, answer)?;
        out.write_all(b"\n")
    })
}

/// A request that changes something, or does: its body, then the answer or why not.
fn change<T: DeserializeOwned, A: Serialize>(
    exchange: &mut Exchange<'_>,
    act: impl FnOnce(T) -> Result<A, String>,
) -> io::Result<()> {
    let Some(body) = exchange.read_body(MAX_BODY)? else {
        return Ok(());
    };
    let wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(e) => return exchange.error(400, &format!("cannot read the body of the request: {e}")),
    };
    match act(wanted) {
        Ok(answer) => json(exchange, &answer),
        Err(why) => exchange.error(422, &why),
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

/// A v1 list, an item at a time.
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

/// `?after=N`, the version that the client has.
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

/// Waits in slices, so that a client that has gone gives its place back and a stop is heeded.
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
