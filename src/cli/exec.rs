//! The verbs `exec` and `attach`: connect this terminal to a new command in a container, or to the
//! container's own process.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::args::{self, NAMESPACE, Opt, ROOT, Raw};
use super::client::Client;
use super::columns;
use super::error::CliError;
use super::logs::choose;
use super::stream::{self, SUBPROTOCOL, Streams};
use super::workload_pods::{self, Choice, RUNNING_TIMEOUT, Target, running_timeout};
use crate::face::server::request::encoded;
use crate::face::views::PodView;

/// The longest wait for a pod of a workload if there is no `--pod-running-timeout`.
pub(super) const RUNNING: Duration = Duration::from_secs(60);
const CONTAINER: Opt = Opt::value("container", Some('c'));
const STDIN: Opt = Opt::flag("stdin", Some('i'));
const TTY: Opt = Opt::flag("tty", Some('t'));

/// The verb `exec`.
pub const EXEC: args::Verb = args::Verb {
    name: "exec",
    summary: &[("exec POD -- COMMAND", "run a command in a container")],
    help: "\
usage: podprobe exec POD [-c CONTAINER] [-i] [-t] [-n NAMESPACE] [--root DIR] -- COMMAND [ARGUMENT]…

Runs a command in a running container, as the container's own user and under its limits, and ends with its exit code.
Everything before -- is podprobe's, everything after it the command's. Without -c it is the first container, or the one
that the annotation kubectl.kubernetes.io/default-container names. When this verb ends, so does the command. POD may be
a workload, such as deployment/web: then it is a pod of it that is ready.

  -c, --container NAME     which container
  -i, --stdin              pass standard input on to it
  -t, --tty                give it a terminal; with -i for a shell: podprobe exec -it POD -- sh
      --pod-running-timeout TIME
                           the longest wait for a pod of a workload to start; default 1m
",
    options: &[ROOT, NAMESPACE, CONTAINER, STDIN, TTY, RUNNING_TIMEOUT],
    run: |raw, _, err| {
        let args = parse_exec(raw).map_err(CliError::Usage)?;
        run(&args, err)
    },
};

/// The verb `attach`.
pub const ATTACH: args::Verb = args::Verb {
    name: "attach",
    summary: &[("attach POD", "join the streams of a container")],
    help: "\
usage: podprobe attach POD [-c CONTAINER] [-i] [-t] [-n NAMESPACE] [--root DIR]

Shows what a running container writes from now on; what it wrote before is in its log (podprobe logs). With -i standard
input goes to a container that has stdin, with -t also its terminal to one that has tty. Ctrl-C leaves the container
running, unless -it is given: then it goes to the container, as every key does. POD may be a workload, such as
deployment/web: then it is a pod of it that is ready.

  -c, --container NAME     which container
  -i, --stdin              pass standard input on to it
  -t, --tty                this terminal is the container's
      --pod-running-timeout TIME
                           the longest wait for a pod of a workload to start; default 1m
",
    options: &[ROOT, NAMESPACE, CONTAINER, STDIN, TTY, RUNNING_TIMEOUT],
    run: |raw, _, err| {
        let args = parse_attach(raw).map_err(CliError::Usage)?;
        run(&args, err)
    },
};

/// The arguments of `exec` and `attach`.
#[derive(Clone, Debug, PartialEq)]
pub struct Exec {
    /// Root directory of the daemon.
    pub root: PathBuf,
    /// The pod, or a workload that has pods.
    pub pod: Target,
    /// Namespace of the pod; None means all namespaces.
    pub namespace: Option<String>,
    /// Name of the container; None means the default container.
    pub container: Option<String>,
    /// The streams that `-i` and `-t` ask for.
    pub streams: Streams,
    /// The longest wait for a pod of a workload.
    pub running_timeout: Duration,
    /// Command to run; None attaches to the container.
    pub command: Option<Vec<String>>,
}

fn parse_exec(raw: &Raw) -> Result<Exec, String> {
    let words = raw.text_words()?;
    let Some((pod, command)) = words
        .split_first()
        .filter(|(_, command)| !command.is_empty())
    else {
        return Err("'exec' needs a pod and a command: podprobe exec POD -- COMMAND".into());
    };
    Ok(Exec {
        command: Some(command.to_vec()),
        ..common(raw, pod)?
    })
}

fn parse_attach(raw: &Raw) -> Result<Exec, String> {
    match raw.text_words()?.as_slice() {
        [pod] => common(raw, pod),
        _ => Err("'attach' needs one pod: podprobe attach POD [-c CONTAINER] [-i] [-t]".into()),
    }
}

fn common(raw: &Raw, pod: &str) -> Result<Exec, String> {
    Ok(Exec {
        root: raw.root()?,
        pod: Target::parse(pod)?,
        namespace: raw.namespace()?,
        container: raw.text("container")?,
        streams: Streams {
            stdin: raw.has("stdin"),
            tty: raw.has("tty"),
        },
        running_timeout: running_timeout(raw, RUNNING)?,
        command: None,
    })
}

fn run(exec: &Exec, err: &mut dyn Write) -> Result<ExitCode, CliError> {
    let mut client = Client::connect(&exec.root)?;
    let namespace = exec.namespace.as_deref();
    let place = (exec.root.as_path(), namespace);
    let snapshot = workload_pods::begun(&exec.pod, exec.running_timeout, &mut client, place)?;
    let place = (&*snapshot, namespace);
    let pod = workload_pods::resolve(&exec.pod, Choice::Attach, &mut client, place, err)?;
    let (container, note) =
        choose::container(pod, exec.container.as_deref()).map_err(CliError::Failed)?;
    if let Some(note) = note {
        writeln!(err, "{note}")?;
    }
    let mut streams = exec.streams;
    if let Some(why) = no_terminal(exec, pod, &container) {
        writeln!(err, "{why}")?;
        streams.tty = false;
    }
    if streams.tty && exec.command.is_none() {
        writeln!(
            err,
            "If you don't see a command prompt, try pressing enter."
        )?;
    }
    let target = target(exec, pod, &container, streams);
    stream::join(client.web_socket(&target, SUBPROTOCOL)?, streams)
}

/// Returns the reason, in kubectl's words, why `-t` gets no terminal. Returns None if `-t` gets a terminal.
fn no_terminal(exec: &Exec, pod: &PodView, container: &str) -> Option<String> {
    if !exec.streams.tty {
        return None;
    }
    if exec.command.is_none() && !has_terminal(pod, container) {
        return Some(format!(
            "error: Unable to use a TTY - container {container} did not allocate one"
        ));
    }
    (exec.streams.stdin && !stream::is_terminal())
        .then(|| "Unable to use a TTY - input is not a terminal or the right kind of file".into())
}

fn has_terminal(pod: &PodView, container: &str) -> bool {
    let mut all = columns::every_container(pod);
    all.any(|c| c["name"] == container && c["tty"] == true)
}

/// Returns the path of a container in a request, to append to `/exec`, `/attach` and similar. If `container` is
/// empty, returns the path of the pod.
pub fn path(pod: &PodView, container: &str) -> String {
    let parts = [columns::namespace(pod), columns::name(pod), pod.uid()];
    let parts = parts.into_iter().chain(Some(container));
    let parts = parts.filter(|part| !part.is_empty());
    parts.map(|part| format!("/{}", encoded(part))).collect()
}

fn target(exec: &Exec, pod: &PodView, container: &str, streams: Streams) -> String {
    let (path, streams) = (path(pod, container), streams.query());
    match &exec.command {
        None => format!("/attach{path}?{streams}"),
        Some(command) => {
            let words = command
                .iter()
                .map(|word| format!("&command={}", encoded(word)));
            format!("/exec{path}?{streams}{}", words.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::testing;

    fn pod() -> PodView {
        let containers = json!([{"name": "web", "tty": true}, {"name": "side"}]);
        let metadata = json!({"name": "web-edge", "namespace": "a", "uid": "u/1"});
        serde_json::from_value(json!({
            "object": {"metadata": metadata, "spec": {"containers": containers}}, "status": {},
            "file": "", "warnings": [], "terminating": false, "logDir": "/logs", "events": [],
        }))
        .unwrap()
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        let exec = testing::parse(
            &EXEC,
            parse_exec,
            "exec -it pod/web -c side -- ls -l --root x",
        )
        .unwrap();
        assert_eq!(exec.command.unwrap(), ["ls", "-l", "--root", "x"]);
        assert_eq!(
            (exec.pod, exec.container.as_deref()),
            (Target::Pod("web".into()), Some("side"))
        );
        let streams = Streams {
            stdin: true,
            tty: true,
        };
        assert_eq!(exec.streams, streams);
        for line in ["exec", "exec web", "exec web --"] {
            assert_eq!(
                testing::parse(&EXEC, parse_exec, line),
                Err("'exec' needs a pod and a command: podprobe exec POD -- COMMAND".into())
            );
        }
        assert_eq!(
            testing::parse(&ATTACH, parse_attach, "attach a b"),
            Err("'attach' needs one pod: podprobe attach POD [-c CONTAINER] [-i] [-t]".into())
        );
    }

    #[test]
    fn a_target_names_the_pod_and_the_words() {
        let exec = testing::parse(&EXEC, parse_exec, "exec web -- a&b =").unwrap();
        assert_eq!(
            target(&exec, &pod(), "web", exec.streams),
            "/exec/a/web-edge/u%2F1/web?output=1&error=1&command=a%26b&command=%3D"
        );
        let attach = testing::parse(&ATTACH, parse_attach, "attach web").unwrap();
        assert_eq!(
            target(&attach, &pod(), "web", attach.streams),
            "/attach/a/web-edge/u%2F1/web?output=1&error=1"
        );
    }

    #[test]
    fn a_container_without_a_terminal_gets_none() {
        let attach = testing::parse(&ATTACH, parse_attach, "attach web -t").unwrap();
        let pod = pod();
        assert_eq!(no_terminal(&attach, &pod, "web"), None);
        assert_eq!(
            no_terminal(&attach, &pod, "side").unwrap(),
            "error: Unable to use a TTY - container side did not allocate one"
        );
    }
}
