//! The verb `restart`: kills containers at a user's request, and starts them again.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use super::args::{self, NAMESPACE, ROOT, Raw};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::names::{self, NameError};
use super::probe_names;
use super::workload_names;
use crate::face::server::protocol::RestartTarget;

/// The verb `restart`.
pub const VERB: args::Verb = args::Verb {
    name: "restart",
    summary: &[(
        "restart POD[/CONTAINER]",
        "kill containers and start them again",
    )],
    help: "\
usage: podprobe restart POD[/CONTAINER] [-n NAMESPACE] [--root DIR]

Kills a container with its grace period and preStop hook and starts it again, or all containers and sidecars of the pod
at the same time. The pod stays the same: its address, its volumes and its file. A container that waits for its back-off
starts at once. The restart shows in RESTARTS and its cause in 'describe pod', and does not lengthen the back-off. What
would not start again is left alone and named: a container with restartPolicy Never, one that has ended for good, an
init container.

All pods of a workload are replaced by 'podprobe rollout restart deployment/NAME'.

It returns at once. A pod stays Ready until its old containers have ended; then RESTARTS in 'podprobe get pods' grows.
",
    options: &[ROOT, NAMESPACE],
    run: |raw, out, _| {
        let args = parse(raw).map_err(CliError::Usage)?;
        run(&args, out).map(|()| ExitCode::SUCCESS)
    },
};

/// The arguments of `restart`.
#[derive(Clone, Debug, PartialEq)]
pub struct Restart {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// Name of the pod. The node's name at the end of the pod's name may be left out.
    pub pod: String,
    /// Namespace of the pod; None means all namespaces.
    pub namespace: Option<String>,
    /// Name of the container to restart; None means all containers of the pod.
    pub container: Option<String>,
}

fn parse(raw: &Raw) -> Result<Restart, String> {
    let words = raw.text_words()?;
    let [word] = words.as_slice() else {
        return Err("'restart' needs a pod: podprobe restart POD[/CONTAINER]".into());
    };
    let wanted = probe_names::parse(word, None, raw.namespace()?)?;
    Ok(Restart {
        root: raw.root()?,
        pod: wanted.pod,
        namespace: wanted.namespace,
        container: wanted.container,
    })
}

/// Restarts the containers, and prints their names on `out`.
///
/// # Errors
/// Returns a [`CliError`] if the daemon cannot be asked, or if the daemon refuses because no container would start
/// again.
pub fn run(args: &Restart, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = Client::connect(&args.root)?;
    let snapshot = client.snapshot()?;
    let pod = names::resolve(&snapshot, args.namespace.as_deref(), &args.pod);
    let pod = pod.map_err(|e| CliError::Failed(not_found(args, &e)))?;
    let target = RestartTarget {
        uid: pod.uid().into(),
        container: args.container.clone(),
    };
    let name = columns::name(pod);
    for container in client.restart(target)? {
        writeln!(out, "{name}/{container} restarts")?;
    }
    Ok(out.flush()?)
}

/// Returns the sentence for a pod that is not found. If a workload was meant, the sentence has the verb for workloads.
fn not_found(args: &Restart, why: &NameError) -> String {
    let word = format!(
        "{}/{}",
        args.pod,
        args.container.as_deref().unwrap_or("NAME")
    );
    match workload_names::is_word(&args.pod) {
        true => format!("{why}; for the pods of a workload: podprobe rollout restart {word}"),
        false => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::testing;

    #[track_caller]
    fn check(line: &str, expected: Result<(&str, Option<&str>, Option<&str>), &str>) {
        let expected = expected.map(|(pod, container, namespace)| Restart {
            root: "/".into(),
            pod: pod.into(),
            namespace: namespace.map(Into::into),
            container: container.map(Into::into),
        });
        let parsed = testing::parse(&VERB, parse, line);
        assert_eq!(parsed, expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn a_pod_or_one_of_its_containers() {
        check("restart web", Ok(("web", None, None)));
        check("restart pod/web", Ok(("web", None, None)));
        let all = ("web", Some("main"), Some("shop"));
        check("restart web/main -n shop", Ok(all));
        let needs = "'restart' needs a pod: podprobe restart POD[/CONTAINER]";
        check("restart", Err(needs));
        check("restart a b", Err(needs));
        check("restart web/", Err("'web/' is not POD or POD/CONTAINER"));
    }
}
