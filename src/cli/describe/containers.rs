//! The containers of a pod or a template in the output of `describe`, in kubectl's layout.

use serde_json::Value;

use super::environment;
use super::lines::{put, scalar};
use crate::api::ContainerStatus;
use crate::api::Probe;
use crate::api::status::ContainerState;
use crate::base::clock::Time;
use crate::base::json;
use crate::cli::probe_text::probe_text;
use crate::cli::{human, pull_text};
use crate::engine::images::ImagePull;

/// Writes the section for one list of the pod's containers, unless the list is empty. `indent` stands before the title,
/// and a part of it before the names.
pub(super) fn all(
    w: &mut String,
    (indent, title): (&str, &str),
    (pod, field): (&Value, &str),
    statuses: &[ContainerStatus],
    pulls: Option<(&[ImagePull], Time)>,
) {
    let list = pod["spec"][field]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if list.is_empty() {
        return;
    }
    put!(w, "{indent}{title}:");
    let indent = if indent.is_empty() { "" } else { " " };
    for c in list {
        let name = c["name"].as_str().unwrap_or_default();
        put!(w, "  {indent}{name}:");
        let status = statuses.iter().find(|s| s.name == name);
        basics(w, c, status);
        if let Some(status) = status {
            state(w, "State", &status.state);
        }
        if let Some((pulls, now)) = pulls {
            let of_container = pulls.iter().filter(|p| needs(pod, c, &p.image));
            of_container.for_each(|p| pull(w, p, now));
        }
        if let Some(status) = status {
            since_the_start(w, status);
        }
        amounts(w, "Limits", &c["resources"]["limits"]);
        amounts(w, "Requests", &c["resources"]["requests"]);
        probes(w, c);
        environment::write(w, pod, c);
        mounts(w, &c["volumeMounts"]);
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn basics(w: &mut String, c: &Value, status: Option<&ContainerStatus>) {
    if let Some(s) = status {
        put!(w, "    Container ID:\t{}", s.container_id);
    }
    put!(w, "    Image:\t{}", c["image"].as_str().unwrap_or_default());
    if let Some(s) = status {
        put!(w, "    Image ID:\t{}", s.image_id);
    }
    let ports = c["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    port_line(w, ports, "Port", "containerPort");
    port_line(w, ports, "Host Port", "hostPort");
    for (title, key) in [("Command", "command"), ("Args", "args")] {
        if strings(&c[key]).next().is_some() {
            put!(w, "    {title}:");
        }
        for line in strings(&c[key]).flat_map(|word| word.split('\n')) {
            put!(w, "      {line}");
        }
    }
}

fn port_line(w: &mut String, ports: &[Value], title: &str, key: &str) {
    let one = |p: &Value| {
        let name = p["name"]
            .as_str()
            .filter(|n| !n.is_empty())
            .map(|n| format!(" ({n})"))
            .unwrap_or_default();
        format!(
            "{}/{}{name}",
            p[key].as_i64().unwrap_or(0),
            p["protocol"].as_str().unwrap_or("TCP")
        )
    };
    let text = ports.iter().map(one).collect::<Vec<_>>().join(", ");
    let plural = if ports.len() > 1 { "s" } else { "" };
    put!(
        w,
        "    {title}{plural}:\t{}",
        if text.is_empty() { "<none>" } else { &text }
    );
}

/// Tells whether the container runs the image or mounts it as a volume.
fn needs(pod: &Value, container: &Value, image: &str) -> bool {
    let is_of = |mount: &Value| {
        let named = |v: &&Value| v["name"] == mount["name"];
        let mut volumes = each(&pod["spec"]["volumes"]).filter(named);
        volumes.any(|v| v["image"]["reference"] == image)
    };
    container["image"] == image || each(&container["volumeMounts"]).any(is_of)
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Writes the progress of a pull. kubectl has no such line, because a kubelet reports only the beginning and
/// the end of a pull.
fn pull(w: &mut String, pull: &ImagePull, now: Time) {
    let words = match pull_text::state(pull) {
        Some(state) => pull_text::words(state),
        None => pull_text::stage(pull, now),
    };
    put!(w, "    Pull:\t{words}");
    if let Some(why) = pull_text::cut_off(pull) {
        put!(w, "      Cut Off:\t{why}");
    }
}

fn since_the_start(w: &mut String, s: &ContainerStatus) {
    if s.last_state.terminated.is_some() {
        state(w, "Last State", &s.last_state);
    }
    put!(w, "    Ready:\t{}", if s.ready { "True" } else { "False" });
    put!(w, "    Restart Count:\t{}", s.restart_count);
}

fn state(w: &mut String, title: &str, state: &ContainerState) {
    let text = |w: &mut String, title: &str, value: &str| {
        if !value.is_empty() {
            put!(
                w,
                "      {title}:\t{}",
                value.trim_end().replace('\n', "\n      \t")
            );
        }
    };
    let time = |t: Option<Time>| t.map(human::date).unwrap_or_default();
    if let Some(r) = &state.running {
        put!(w, "    {title}:\tRunning");
        text(w, "Started", &time(r.started_at));
    } else if let Some(t) = &state.terminated {
        put!(w, "    {title}:\tTerminated");
        text(w, "Reason", &t.reason);
        text(w, "Message", &t.message);
        put!(w, "      Exit Code:\t{}", t.exit_code);
        if let Some(signal) = t.signal.filter(|s| *s > 0) {
            put!(w, "      Signal:\t{signal}");
        }
        text(w, "Started", &time(t.started_at));
        text(w, "Finished", &time(t.finished_at));
    } else {
        put!(w, "    {title}:\tWaiting");
        let waiting = state.waiting.as_ref();
        text(w, "Reason", waiting.map_or("", |s| &s.reason));
        // kubectl shows this message only among the events. This output shows the message here, too, because the
        // message says what to do.
        text(w, "Message", waiting.map_or("", |s| &s.message));
    }
}

fn amounts(w: &mut String, title: &str, map: &Value) {
    let mut entries: Vec<_> = map.as_object().into_iter().flatten().collect();
    entries.sort_by_key(|(k, _)| k.as_str());
    if !entries.is_empty() {
        put!(w, "    {title}:");
    }
    for (key, value) in entries {
        put!(w, "      {key}:\t{}", scalar(value).unwrap_or_default());
    }
}

fn probes(w: &mut String, c: &Value) {
    for (title, key) in [
        ("Liveness", "livenessProbe"),
        ("Readiness", "readinessProbe"),
        ("Startup", "startupProbe"),
    ] {
        if let Ok(probe) = json::from_value::<Probe>(&c[key]) {
            put!(w, "    {title}:\t{}", probe_text(&probe));
        }
    }
}

fn mounts(w: &mut String, list: &Value) {
    let mut list: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    list.sort_by_key(|m| m["mountPath"].as_str());
    put!(
        w,
        "    Mounts:{}",
        if list.is_empty() { "\t<none>" } else { "" }
    );
    for m in list {
        let text = |key: &str| m[key].as_str().unwrap_or_default();
        let mode = if m["readOnly"] == true { "ro" } else { "rw" };
        let sub = if text("subPath").is_empty() {
            String::new()
        } else {
            format!(",path=\"{}\"", text("subPath"))
        };
        put!(
            w,
            "      {} from {} ({mode}{sub})",
            text("mountPath"),
            text("name")
        );
    }
}
