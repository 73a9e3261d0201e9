//! The verbs about probes: `get events`, `probe`, `pause`, `resume`.

use std::time::Duration;

use super::{Command, Raw, is_pod_word, pod_name};
use crate::cli::events::Events;
use crate::cli::pause::Pause;
use crate::cli::probe::ProbeNow;
use crate::cli::probe_names::{Wanted, parse_type};
use crate::prober::pauses::{MAX_PAUSE, MIN_PAUSE};
use crate::settings::parse_go_duration;

impl Raw {
    pub(super) fn events(&self) -> Result<Command, String> {
        let words = self.words()?;
        let pod = match &words[1..] {
            [] => None,
            [pod] => Some(if pod.contains('/') { pod_name(pod, true)? } else { pod.clone() }),
            _ => return Err("'get events' takes one pod at most: podprobe get events [POD] [-w] [-n NAMESPACE | -A]".into()),
        };
        if let Some(form) = self.text("output")? {
            return Err(format!(
                "'get events' has no output form '{form}'; it prints a table"
            ));
        }
        let (namespace, all_namespaces) = (self.text("namespace")?, self.has("all-namespaces"));
        if namespace.is_some() && all_namespaces {
            return Err("-n and -A exclude each other".into());
        }
        Ok(Command::Events(Events {
            root: self.root()?,
            pod,
            namespace,
            all_namespaces,
            watch: self.has("watch"),
        }))
    }

    pub(super) fn probe(&self) -> Result<Command, String> {
        let words = self.words()?;
        let [pod, probe_type] = words.as_slice() else {
            return Err("'probe' needs a pod and a type: podprobe probe POD[/CONTAINER] startup|readiness|liveness".into());
        };
        Ok(Command::Probe(ProbeNow {
            root: self.root()?,
            wanted: self.wanted(pod, Some(probe_type))?,
        }))
    }

    pub(super) fn pause(&self) -> Result<Command, String> {
        let words = self.words()?;
        let (pod, probe_type) = match words.as_slice() {
            [pod] => (pod, None),
            [pod, probe_type] => (pod, Some(probe_type)),
            _ => {
                let length = if self.verb == "pause" {
                    " --for 30m"
                } else {
                    ""
                };
                return Err(format!(
                    "'{0}' needs a pod: podprobe {0} POD[/CONTAINER] [startup|readiness|liveness]{length}",
                    self.verb
                ));
            }
        };
        let length = match (self.verb, self.text("for")?) {
            ("resume", _) => None,
            (_, Some(length)) => Some(pause_length(&length)?),
            (_, None) => return Err("'pause' needs a time after which the probes go on by themselves, such as --for 30m".into()),
        };
        Ok(Command::Pause(Pause {
            root: self.root()?,
            wanted: self.wanted(pod, probe_type)?,
            length,
        }))
    }

    /// `POD`, `POD/CONTAINER`, and the same after `pod/`.
    fn wanted(&self, word: &str, probe_type: Option<&String>) -> Result<Wanted, String> {
        let rest = word
            .split_once('/')
            .filter(|(kind, _)| is_pod_word(kind))
            .map_or(word, |(_, rest)| rest);
        let (pod, container) = rest
            .split_once('/')
            .map_or((rest, None), |(pod, container)| (pod, Some(container)));
        if pod.is_empty() || container.is_some_and(|c| c.is_empty() || c.contains('/')) {
            return Err(format!("'{word}' is not POD or POD/CONTAINER"));
        }
        let probe_type = probe_type.map(|t| parse_type(t)).transpose()?;
        Ok(Wanted {
            pod: pod.into(),
            namespace: self.text("namespace")?,
            container: container.map(Into::into),
            probe_type,
        })
    }
}

/// A Go duration of whole seconds, a week at most.
fn pause_length(text: &str) -> Result<Duration, String> {
    let length = parse_go_duration(text).map_err(|e| format!("cannot use --for: {e}"))?;
    if length < MIN_PAUSE || length > MAX_PAUSE || length.subsec_nanos() != 0 {
        return Err(format!(
            "--for takes 1s to 168h in whole seconds, not '{text}'"
        ));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::api::ProbeType;
    use crate::cli::args::parse;

    fn parse_line(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[track_caller]
    fn check(line: &str, expected: Command) {
        assert_eq!(parse_line(line), Ok(expected), "{line}");
    }

    #[track_caller]
    fn check_error(line: &str, expected: &str) {
        assert_eq!(parse_line(line), Err(expected.into()), "{line}");
    }

    #[test]
    fn events_take_a_pod_or_none() {
        let events = Events {
            root: "/".into(),
            pod: None,
            namespace: None,
            all_namespaces: false,
            watch: false,
        };
        check("get events", Command::Events(events.clone()));
        check(
            "get events -w -A",
            Command::Events(Events {
                watch: true,
                all_namespaces: true,
                ..events.clone()
            }),
        );
        check(
            "get events pod/a -n x",
            Command::Events(Events {
                pod: Some("a".into()),
                namespace: Some("x".into()),
                ..events
            }),
        );
        check_error(
            "get events a b",
            "'get events' takes one pod at most: podprobe get events [POD] [-w] [-n NAMESPACE | -A]",
        );
        check_error(
            "get events -o json",
            "'get events' has no output form 'json'; it prints a table",
        );
        check_error("get events -A -n x", "-n and -A exclude each other");
    }

    fn wanted(pod: &str, container: Option<&str>, probe_type: Option<ProbeType>) -> Wanted {
        Wanted {
            pod: pod.into(),
            namespace: None,
            container: container.map(Into::into),
            probe_type,
        }
    }

    #[test]
    fn probe_takes_a_pod_and_a_type() {
        let probe = |wanted| {
            Command::Probe(ProbeNow {
                root: "/".into(),
                wanted,
            })
        };
        check(
            "probe web liveness",
            probe(wanted("web", None, Some(ProbeType::Liveness))),
        );
        check(
            "probe web/main Startup",
            probe(wanted("web", Some("main"), Some(ProbeType::Startup))),
        );
        check(
            "probe pod/web/main readiness",
            probe(wanted("web", Some("main"), Some(ProbeType::Readiness))),
        );
        let usage = "'probe' needs a pod and a type: podprobe probe POD[/CONTAINER] startup|readiness|liveness";
        check_error("probe web", usage);
        check_error("probe", usage);
        check_error("probe web/ liveness", "'web/' is not POD or POD/CONTAINER");
        check_error(
            "probe web rediness",
            "unknown probe type 'rediness', did you mean 'readiness'?; there are startup, readiness and liveness",
        );
    }

    #[test]
    fn pause_needs_its_end() {
        let pause = |wanted, seconds: Option<u64>| {
            Command::Pause(Pause {
                root: "/".into(),
                wanted,
                length: seconds.map(Duration::from_secs),
            })
        };
        check(
            "pause web --for 30m",
            pause(wanted("web", None, None), Some(1800)),
        );
        check(
            "pause web/main liveness --for 1h30m",
            pause(
                wanted("web", Some("main"), Some(ProbeType::Liveness)),
                Some(5400),
            ),
        );
        check("resume web", pause(wanted("web", None, None), None));
        check_error(
            "pause web",
            "'pause' needs a time after which the probes go on by themselves, such as --for 30m",
        );
        check_error(
            "pause",
            "'pause' needs a pod: podprobe pause POD[/CONTAINER] [startup|readiness|liveness] --for 30m",
        );
        check_error(
            "resume",
            "'resume' needs a pod: podprobe resume POD[/CONTAINER] [startup|readiness|liveness]",
        );
        check_error(
            "resume web --for 1m",
            "'resume' has no option '--for'; see 'podprobe help resume'",
        );
        for text in ["0", "500ms", "169h", "1500ms"] {
            check_error(
                &format!("pause web --for {text}"),
                &format!("--for takes 1s to 168h in whole seconds, not '{text}'"),
            );
        }
        assert!(
            parse_line("pause web --for soon")
                .unwrap_err()
                .starts_with("cannot use --for: \"soon\" is not a duration")
        );
    }
}
