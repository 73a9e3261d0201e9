//! Workloads: a rollout and a StatefulSet over kills of the daemon, and schedules over jumps of the machine's clock.

use std::fs;
use std::time::Duration;

use crate::case::{Verdict, equal, until, within};
use crate::clock::{self, Clock};
use crate::node::{ADDRESS, Node, read};
use crate::pods::{Files, TOOLS};
use crate::tools::get;

const RUNS: &str = "/tmp/runs";
/// Longest time until a clock is trusted that is behind what was written, and one minute.
const CEILING: Duration = Duration::from_secs(360);

/// A new version takes over behind a service, although the daemon is killed on the way. A bad version is rolled back.
pub fn rollout(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let put = |files: &mut Files<'_>, version: &str, probed: &str| {
        let text = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  annotations: {{podprobe.io/on-progress-deadline: rollback}}\n\
             spec:\n  progressDeadlineSeconds: 20\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n\
             \x20   spec:\n      terminationGracePeriodSeconds: 1\n      containers:\n      - name: c\n        image: {TOOLS}\n        imagePullPolicy: Never\n\
             \x20       command: [/guest, serve, '8080', version-{version}]\n        readinessProbe: {{httpGet: {{port: {probed}}}, periodSeconds: 1}}\n\
             ---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
             spec: {{type: NodePort, selector: {{app: web}}, ports: [{{port: 8080, nodePort: 30088}}]}}\n"
        );
        files.put("web", &text)
    };
    let serves = |version: &str| {
        until(&format!("version {version} to serve"), || {
            let answer = get(ADDRESS, "30088")?;
            equal("the answer", &answer, &format!("version-{version}"))
        })
    };
    put(&mut files, "1", "8080")?;
    serves("1")?;
    put(&mut files, "2", "8080")?;
    restart(node)?;
    serves("2")?;
    let timeout = "--timeout=60s";
    node.ask(&["rollout", "status", "deployment/web", timeout])?;
    put(&mut files, "3", "8099")?;
    until("the way back", || {
        let described = node.ask(&["describe", "deployment", "web"])?;
        match described.contains("was rolled back to revision 2") {
            true => Ok(()),
            false => Err(described),
        }
    })?;
    restart(node)?;
    serves("2")?;
    Ok(files.end()?)
}

/// The daemon is killed, and the next one starts.
fn restart(node: &Node) -> Result<(), String> {
    node.kill()?;
    node.start(&read("/etc/podprobe/config.json")?)
}

/// Each scheduled time has one Job, and a jump of a year makes up one at most. A Job that should not have run would be
/// counted when the next one has run.
pub fn schedule_over_jumps_of_the_clock(node: &Node) -> Verdict {
    let clock = Clock::now();
    let said = over_jumps(node);
    clock.restore()?;
    said
}

fn over_jumps(node: &Node) -> Verdict {
    let _ = fs::remove_file(RUNS);
    let mut files = Files::new(node);
    clock::set("2027-03-10 10:00:30")?;
    let job = format!(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {{name: half-hourly}}\nspec:\n  schedule: '*/30 * * * *'\n  timeZone: Etc/UTC\n\
         \x20 jobTemplate:\n    spec:\n      template:\n        spec:\n          restartPolicy: Never\n          containers:\n          - name: c\n\
         \x20           image: {TOOLS}\n            imagePullPolicy: Never\n            command: [/bin/sh, -c, 'echo run >> /node/runs']\n\
         \x20           volumeMounts: [{{name: node, mountPath: /node}}]\n          volumes: [{{name: node, hostPath: {{path: /tmp}}}}]\n"
    );
    files.put("half-hourly", &job)?;
    until("the CronJob to be known", || {
        node.ask(&["get", "cronjob", "half-hourly"])
    })?;
    let mut runs = 0;
    // Each time with the number of runs that it brings. Two seconds later there is a scheduled time, or there was one while the
    // clock was jumped over.
    let times = [
        ("2027-03-10 10:29:58", 1, "the first time"),
        ("2028-03-10 10:40:00", 1, "a year ahead"),
        ("2028-03-10 10:59:58", 1, "after a year ahead"),
        ("2027-03-10 11:29:58", 1, "a year back"),
        ("2027-03-10 11:59:58", 1, "after a year back"),
    ];
    for (time, more, what) in times {
        clock::set(time)?;
        runs += more;
        wait_runs(what, runs)?;
    }
    // The daemon is not there at four scheduled times. It makes the last of them up, as soon as it trusts the clock: times that the last
    // daemon wrote are a year ahead of it, so that is five minutes after the boot.
    node.kill()?;
    clock::set("2027-03-10 14:10:00")?;
    node.start(&read("/etc/podprobe/config.json")?)?;
    wait_runs("after a time without the daemon", runs + 1)?;
    clock::set("2027-03-10 14:29:58")?;
    wait_runs("at the next time", runs + 2)?;
    Ok(files.end()?)
}

fn wait_runs(what: &str, wanted: usize) -> Result<(), String> {
    within(CEILING, &format!("{wanted} runs {what}"), || {
        let runs = fs::read_to_string(RUNS).unwrap_or_default();
        match runs.lines().count() {
            runs if runs == wanted => Ok(()),
            runs => Err(format!("there are {runs}")),
        }
    })
}
