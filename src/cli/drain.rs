//! The verbs `cordon`, `drain` and `uncordon`: no pod starts on the node, all pods end in order, and pods start again.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::args::{self, Opt, ROOT, Raw};
use super::client::{Client, ClientError};
use super::delete::grace;
use super::error::CliError;
use super::wait;
use crate::face::server::protocol::{ClosedBy, DrainRequest, NodeOrders, UncordonRequest};

/// Time between two questions for the pods that are left.
const STEP: Duration = Duration::from_millis(200);
/// Time that a shutdown gets beyond that of the configuration, before the client gives up.
const BEYOND: Duration = Duration::from_secs(5);

/// The verb `cordon`.
pub const CORDON: args::Verb = args::Verb {
    name: "cordon",
    summary: &[("cordon", "let no new pod start on the node")],
    help: "\
usage: podprobe cordon [--root DIR]

Lets no new pod start until 'podprobe uncordon', also after a reboot. Pods that run go on, restart, and are changed by
their files. New ones are Pending. Nothing else is different: files are read, and images may be pulled.
",
    options: &[ROOT],
    run: |raw, out, _| {
        no_words(raw).map_err(CliError::Usage)?;
        let mut client = Client::connect(&raw.root().map_err(CliError::Usage)?)?;
        let orders = client.cordon()?;
        let done = if orders.changed { "cordoned" } else { "already cordoned" };
        writeln!(out, "node/{} {done}", orders.node_name)?;
        Ok(ExitCode::SUCCESS)
    },
};

/// The verb `uncordon`.
pub const UNCORDON: args::Verb = args::Verb {
    name: "uncordon",
    summary: &[("uncordon", "let pods start again after 'cordon' or 'drain'")],
    help: "\
usage: podprobe uncordon [--for-shutdown] [--root DIR]

Lets pods start again, the drained ones first.

  --for-shutdown           take 'drain --for-shutdown' back instead; a cordon and a drain stay
",
    options: &[ROOT, FOR_SHUTDOWN],
    run: |raw, out, _| {
        no_words(raw).map_err(CliError::Usage)?;
        let mut client = Client::connect(&raw.root().map_err(CliError::Usage)?)?;
        let for_shutdown = raw.has(FOR_SHUTDOWN.name);
        let orders = client.uncordon(&UncordonRequest { for_shutdown })?;
        let done = match (for_shutdown, orders.changed) {
            (true, true) => "does not shut down",
            (true, false) => "did not shut down",
            (false, true) => "uncordoned",
            (false, false) => "already uncordoned",
        };
        writeln!(out, "node/{} {done}", orders.node_name)?;
        Ok(ExitCode::SUCCESS)
    },
};

/// The verb `drain`.
pub const DRAIN: args::Verb = args::Verb {
    name: "drain",
    summary: &[("drain", "end all pods of the node in order, until 'uncordon'")],
    help: "\
usage: podprobe drain [--grace-period SECONDS] [--timeout TIME] [--for-shutdown] [--root DIR]

Ends all pods, each with its hooks and its grace period: first the usual ones, and when these have ended the critical
ones (system-cluster-critical and system-node-critical). They stay away until 'podprobe uncordon', also after a reboot,
and start from their beginning then; they keep their volumes and logs. Waits until all have ended; an interruption or a
timeout does not take the drain back.

  --grace-period SECONDS   instead of the pods' own; 0 kills at once
  --timeout TIME           the longest wait, such as 5m; default: none
  --for-shutdown           the node shuts down: pods end within shutdownGracePeriod, and start at the next boot. This is
                           what the services of 'podprobe install' call
",
    options: &[
        ROOT,
        Opt::value("grace-period", None),
        Opt::value("timeout", None),
        FOR_SHUTDOWN,
    ],
    run: |raw, out, err| {
        let args = parse(raw).map_err(CliError::Usage)?;
        match Client::connect(&raw.root().map_err(CliError::Usage)?) {
            Ok(mut client) => run(&args, &mut client, out, err),
            // The shutdown goes on all the same: shims end their containers at TERM.
            Err(ClientError::NotRunning { socket, .. }) if args.for_shutdown => {
                let socket = socket.display();
                writeln!(err, "no daemon runs at {socket}: the pods are left to the end of the node")?;
                Ok(ExitCode::SUCCESS)
            }
            Err(e) => Err(e.into()),
        }
    },
};

const FOR_SHUTDOWN: Opt = Opt::flag("for-shutdown", None);

/// The arguments of `drain`.
#[derive(Clone, Debug, PartialEq)]
struct Drain {
    grace: Option<i64>,
    /// The longest wait for the pods; None means that there is no limit.
    timeout: Option<Duration>,
    for_shutdown: bool,
}

fn parse(raw: &Raw) -> Result<Drain, String> {
    no_words(raw)?;
    let timeout = raw
        .text("timeout")?
        .map(|t| wait::timeout(&t))
        .transpose()?;
    let args = Drain {
        grace: grace(raw)?,
        // As with kubectl, 0 means that there is no limit.
        timeout: timeout.filter(|timeout| !timeout.is_zero()),
        for_shutdown: raw.has(FOR_SHUTDOWN.name),
    };
    if args.for_shutdown && (args.grace.is_some() || args.timeout.is_some()) {
        return Err("--for-shutdown takes its times from the configuration (shutdownGracePeriod): leave --grace-period and --timeout out".into());
    }
    Ok(args)
}

/// Refuses words: there is one node.
fn no_words(raw: &Raw) -> Result<(), String> {
    let verb = raw.verb();
    match raw.text_words()?.first() {
        None => Ok(()),
        Some(word) => Err(format!(
            "'{verb}' takes no name, and not '{word}': it is about this node"
        )),
    }
}

fn run(
    args: &Drain,
    client: &mut Client,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<ExitCode, CliError> {
    let mut orders = client.drain(&DrainRequest {
        grace_period_seconds: args.grace,
        for_shutdown: args.for_shutdown,
    })?;
    let node = orders.node_name.clone();
    if args.for_shutdown && !orders.changed {
        writeln!(
            out,
            "shutdownGracePeriod is 0s: the pods are left to the end of the node"
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let within = match args.for_shutdown {
        true => Some(Duration::from_secs(orders.shutdown_seconds) + BEYOND),
        false => args.timeout,
    };
    let began = Instant::now();
    let mut known = orders.left.clone();
    if !args.for_shutdown {
        writeln!(out, "node/{node} cordoned")?;
    }
    loop {
        let end = ended(args, &orders);
        if let Some(Err(e)) = end {
            return Err(e);
        }
        for pod in known.iter().filter(|pod| !orders.left.contains(pod)) {
            writeln!(out, "{} drained", pod_name(pod))?;
        }
        out.flush()?;
        known.clone_from(&orders.left);
        if end.is_some() && known.is_empty() {
            writeln!(out, "node/{node} drained")?;
            return Ok(ExitCode::SUCCESS);
        }
        if end.is_some() {
            return late(&known, "the time of the shutdown is over", err);
        }
        if within.is_some_and(|within| began.elapsed() >= within) {
            return late(&known, "the drain goes on", err);
        }
        std::thread::sleep(STEP);
        orders = client.node_orders()?;
    }
}

/// Reports the pods that have not ended in time.
fn late(pods: &[String], and: &str, err: &mut dyn Write) -> Result<ExitCode, CliError> {
    let names: Vec<_> = pods.iter().map(|pod| pod_name(pod)).collect();
    let names = names.join(", ");
    match pods {
        [_] => writeln!(
            err,
            "error: 1 pod has not ended in time, and {and}: {names}"
        )?,
        all => {
            let n = all.len();
            writeln!(
                err,
                "error: {n} pods have not ended in time, and {and}: {names}"
            )?;
        }
    }
    Err(CliError::Reported)
}

/// Returns how the drain has ended; None while it is under way.
fn ended(args: &Drain, orders: &NodeOrders) -> Option<Result<(), CliError>> {
    let closed_by = match args.for_shutdown {
        true => ClosedBy::Shutdown,
        false => ClosedBy::Drain,
    };
    let is_in_force = match orders.closed {
        // A shutdown ends pods too.
        Some(ClosedBy::Shutdown) => true,
        other => other == Some(closed_by),
    };
    if !is_in_force {
        let why = "somebody has taken the drain back";
        return Some(Err(CliError::Failed(why.into())));
    }
    let is_done = !orders.is_under_way && (orders.left.is_empty() || args.for_shutdown);
    is_done.then_some(Ok(()))
}

/// Returns kubectl's name of a pod that the daemon calls `name in namespace`.
fn pod_name(pod: &str) -> String {
    match pod.split_once(" in ") {
        Some((name, "default")) => format!("pod/{name}"),
        Some((name, namespace)) => format!("pod/{name} -n {namespace}"),
        None => format!("pod/{pod}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<Drain, &str>) {
        let parsed = testing::parse(&DRAIN, parse, line);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_drain_has_a_grace_and_a_timeout_unless_it_is_for_a_shutdown() {
        let plain = Drain {
            grace: None,
            timeout: None,
            for_shutdown: false,
        };
        check("drain", Ok(plain.clone()));
        let bounded = Drain {
            grace: Some(5),
            timeout: Some(Duration::from_secs(90)),
            ..plain
        };
        check("drain --grace-period 5 --timeout=90s", Ok(bounded));
        check("drain --timeout 0s", Ok(plain.clone()));
        let shutdown = Drain {
            for_shutdown: true,
            ..plain
        };
        check("drain --for-shutdown", Ok(shutdown));
        check(
            "drain edge",
            Err("'drain' takes no name, and not 'edge': it is about this node"),
        );
        check(
            "drain --for-shutdown --timeout 5s",
            Err(
                "--for-shutdown takes its times from the configuration (shutdownGracePeriod): leave --grace-period and --timeout out",
            ),
        );
        check(
            "drain --grace-period -1",
            Err("--grace-period takes 0 to 2147483647 seconds, not '-1'"),
        );
    }

    #[test]
    fn a_drain_ends_when_no_pod_is_left_or_it_is_taken_back() {
        let plain = Drain {
            grace: None,
            timeout: None,
            for_shutdown: false,
        };
        let orders = |closed, is_under_way, left: &[&str]| NodeOrders {
            node_name: "edge".into(),
            changed: true,
            closed,
            is_under_way,
            left: left.iter().map(ToString::to_string).collect(),
            shutdown_seconds: 30,
        };
        let by_drain = Some(ClosedBy::Drain);
        assert!(ended(&plain, &orders(by_drain, true, &["a in b"])).is_none());
        assert!(
            ended(&plain, &orders(by_drain, true, &[])).is_none(),
            "more may come"
        );
        assert!(matches!(
            ended(&plain, &orders(by_drain, false, &[])),
            Some(Ok(()))
        ));
        for other in [None, Some(ClosedBy::Cordon)] {
            assert!(matches!(
                ended(&plain, &orders(other, false, &[])),
                Some(Err(_))
            ));
        }
        let shutdown = Drain {
            for_shutdown: true,
            ..plain
        };
        let by_shutdown = Some(ClosedBy::Shutdown);
        assert!(ended(&shutdown, &orders(by_shutdown, true, &["a in b"])).is_none());
        let late = orders(by_shutdown, false, &["a in b"]);
        assert!(
            matches!(ended(&shutdown, &late), Some(Ok(()))),
            "its time is over"
        );
    }
}
