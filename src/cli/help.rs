//! The texts of `help`.

/// The text for a verb, or the overview.
pub fn text(verb: Option<&str>) -> &'static str {
    match verb {
        Some("run") => RUN,
        Some("try") => TRY,
        Some("get") => GET,
        Some("describe") => DESCRIBE,
        Some("logs") => LOGS,
        Some("probe") => PROBE,
        Some("pause") => PAUSE,
        Some("resume") => RESUME,
        Some("metrics") => METRICS,
        Some("validate") => VALIDATE,
        Some("image") => IMAGE,
        Some("version") => VERSION,
        _ => OVERVIEW,
    }
}

const OVERVIEW: &str = "\
podprobe runs the pods in a directory, probes them and restarts them as a kubelet does.

usage: podprobe VERB [ARGUMENT]… [OPTION]…

  run                      run the daemon on a directory of pod files
  try --pods DIR           run a daemon under a root of its own, show the pods live, remove all at Ctrl-C
  get pods                 list pods
  get events               list what happened to pods
  describe pod NAME        show all that is known of a pod
  logs POD                 print the output of a container
  probe POD TYPE           run a probe now and show what it does
  pause POD --for TIME     let the probes of a pod rest
  resume POD               let them go on
  metrics                  print the metrics in the Prometheus text format
  validate FILE|DIR        check pod files without running them
  image load|import|list|rm
                           put images on the node; nothing is pulled from a registry
  version                  print the versions of client and daemon
  help [VERB]              explain a verb

Every verb takes --root DIR: every path of the daemon lies below DIR (default /), and clients find it there.
Exit codes: 0 done, 1 not done (stderr says why), 2 wrong command line.
";

const RUN: &str = "\
usage: podprobe run [--config FILE] [--root DIR] [--pods DIR] [--runtime embedded|PATH] [--node-name NAME]

Runs the pods whose files lie in DIR until a signal ends the daemon. Containers go on running without it; the next
daemon of the same root finds them again. Needs root.

  --config FILE            default ROOT/etc/podprobe/config.json, which may be missing
  --root DIR               every path lies below it; default /
  --pods DIR               default ROOT/etc/podprobe/pods
  --runtime embedded|PATH  this binary's own OCI runtime, or that of runc, crun or youki
  --node-name NAME         end of every pod's name; default the host name

PODPROBE_LOG sets the log level: error, warn, info (default), debug, trace.
";

const TRY: &str = "\
usage: podprobe try --pods DIR [--image FILE[=NAME]]… [--root DIR] [--runtime embedded|PATH]

Runs a daemon on the pods in DIR and shows them: a table that refreshes in place on a terminal, one line per change
elsewhere. Ctrl-C stops and removes everything. Needs root.

  --image FILE             load an OCI layout or docker archive first; may be repeated
  --image PATH=NAME        make an image NAME of a root directory or tar first; may be repeated
  --root DIR               default a fresh directory, removed at the end; one that is given stays
";

const GET: &str = "\
usage: podprobe get pods [NAME]… [-n NAMESPACE | -A] [-o wide|json|name] [-w] [--root DIR]
       podprobe get events [POD] [-n NAMESPACE | -A] [-w] [--root DIR]

Lists pods, or what happened to them. A name may leave out the node's name at its end. Files that are not what runs are
named on stderr. Equal events are counted; those of a pod that is gone stay for an hour.

  -n, --namespace NS       pods of one namespace; default all
  -A, --all-namespaces     show the namespace also when all pods are in 'default'
  -o, --output FORM        wide: with IP, node, paused probes, file; json: a v1.PodList, or a v1.Pod by name; name
  -w, --watch              go on with each change
";

const DESCRIBE: &str = "\
usage: podprobe describe pod [NAME]… [-n NAMESPACE] [--root DIR]

Shows all that is known of pods: state, conditions, the last 32 results of each probe, why containers were restarted,
events, the file, and what of it is not acted on.
";

const LOGS: &str = "\
usage: podprobe logs POD [-c CONTAINER] [-f] [-p] [-n NAMESPACE] [--root DIR]

Prints what a container wrote, stdout and stderr together.

  -c, --container NAME     needed when the pod has several
  -f, --follow             go on until the container ends
  -p, --previous           the instance before the last restart
";

const PROBE: &str = "\
usage: podprobe probe POD[/CONTAINER] startup|readiness|liveness [-n NAMESPACE] [--root DIR]

Runs the probe now, as the daemon would, and shows each step with its time. No state is touched: the result counts for
nothing, no event is written, a paused probe stays paused. The container is needed when several have that probe.

Exit codes: 0 success (or a warning), 1 failure, 2 it could not be run.
";

const PAUSE: &str = "\
usage: podprobe pause POD[/CONTAINER] [startup|readiness|liveness] --for TIME [-n NAMESPACE] [--root DIR]

The probes are not run for TIME: what they last said stays, and their counts stand still. They go on by themselves, or
with 'podprobe resume'. A pause outlives the daemon and a reboot; it goes with the pod, also when its file is edited. A
container that restarts meanwhile begins as every new one does: not ready, if it has a readiness probe.

  --for TIME               1s to 168h, such as 30m or 1h30m
";

const RESUME: &str = "\
usage: podprobe resume POD[/CONTAINER] [startup|readiness|liveness] [-n NAMESPACE] [--root DIR]

Ends pauses; each probe goes on at its next tick.
";

const METRICS: &str = "\
usage: podprobe metrics [--root DIR]

Prints every metric of the daemon in the Prometheus text format, under the kubelet's names where it has one.
";

const VALIDATE: &str = "\
usage: podprobe validate FILE|DIR… [--node-name NAME]

Checks pod files as the daemon does and names every error and every field that is not acted on. Exit code 1 when any
file is refused.
";

const IMAGE: &str = "\
usage: podprobe image load FILE… | import PATH NAME | list | rm NAME…   [--root DIR]

  load FILE                an OCI layout (directory or tar) or a docker archive
  import PATH NAME         a plain root directory or tar becomes the image NAME
  list                     images on the node
  rm NAME                  forget an image

Works with or without a daemon.
";

const VERSION: &str = "\
usage: podprobe version [--root DIR]

Prints the version of this program, and of the daemon if one runs.
";

#[cfg(test)]
mod tests {
    use super::super::args::VERBS;
    use super::*;

    #[test]
    fn every_verb_is_explained_in_lines_that_fit() {
        for verb in VERBS {
            assert!(OVERVIEW.contains(&format!("\n  {verb}")), "{verb}");
            let usage = format!("usage: podprobe {verb}");
            assert!(
                verb == "help" || text(Some(verb)).starts_with(&usage),
                "{verb}"
            );
            assert!(
                text(Some(verb)).lines().all(|l| l.chars().count() <= 120),
                "{verb}"
            );
        }
    }
}
