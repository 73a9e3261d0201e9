//! `/containerLogs/NAMESPACE/POD/CONTAINER`: the log of a container, with the kubelet's options (11.2).
//!
//! Invariants: the log is read in pieces and sent as it is read. A log that is followed ends with its container.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use thiserror::Error;

use super::Backend;
use super::containers::ContainerName;
use super::exchange::Exchange;
use super::request::Request;
use super::response::TEXT;
use crate::base::clock::Time;
use crate::engine::runtime::logs::{LogError, LogOptions, LogReader, LogStream, Progress};
use crate::face::views::log_instance::attempt;
use crate::face::views::{PodView, columns};

/// Time between two reads of a log that is followed.
const POLL: Duration = Duration::from_millis(100);
/// Number of reads of the log for each check that the container still runs.
const LOOK_EVERY: u32 = 5;

/// The part of a log that a query asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    follow: bool,
    previous: bool,
    options: LogOptions,
}

/// The reasons why a query is refused. As in the kubelet, a value that cannot be read has another status than a value
/// that is not allowed.
#[derive(Debug, PartialEq, Eq, Error)]
enum Refusal {
    #[error("{name} must be a number of {least} or more, not {text:?}")]
    NoNumber {
        name: &'static str,
        least: i64,
        text: String,
    },
    #[error("{name} must be a number of {least} or more, not {text:?}")]
    TooSmall {
        name: &'static str,
        least: i64,
        text: String,
    },
    #[error("at most one of `sinceTime` or `sinceSeconds` may be specified")]
    TwoTimes,
    #[error("sinceTime must be a time such as 2026-11-21T08:00:00Z, not {0:?}")]
    NoTime(String),
    #[error("stream must be All, Stdout or Stderr, not {0:?}")]
    NoStream(String),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Self::NoNumber { .. } | Self::NoTime(_) => 400,
            Self::TooSmall { .. } | Self::TwoTimes | Self::NoStream(_) => 422,
        }
    }
}

/// Reads the options from the query.
fn wanted(request: &Request, now: SystemTime) -> Result<Wanted, Refusal> {
    let number = |name, least| number(request, name, least);
    // The older name `tail` wins over `tailLines`, as in the kubelet, unless it is empty.
    let tail = match request.value("tail") {
        None | Some("") => number("tailLines", 0)?,
        Some("all") => None,
        Some(_) => number("tail", 0)?,
    };
    Ok(Wanted {
        follow: request.flag("follow"),
        previous: request.flag("previous"),
        options: LogOptions {
            tail_lines: tail,
            since: since(request, number("sinceSeconds", 1)?, now)?,
            timestamps: request.flag("timestamps"),
            limit_bytes: number("limitBytes", 1)?,
            stream: stream(request)?,
        },
    })
}

/// Reads the parameter `name`, which must be a number of at least `least`; None if the query does not have it.
fn number(request: &Request, name: &'static str, least: i64) -> Result<Option<u64>, Refusal> {
    let Some(text) = request.value(name) else {
        return Ok(None);
    };
    let written = || text.to_owned();
    match text.parse::<i64>() {
        Err(_) => Err(Refusal::NoNumber {
            name,
            least,
            text: written(),
        }),
        Ok(n) if n < least => Err(Refusal::TooSmall {
            name,
            least,
            text: written(),
        }),
        Ok(n) => Ok(u64::try_from(n).ok()),
    }
}

fn since(
    request: &Request,
    seconds: Option<u64>,
    now: SystemTime,
) -> Result<Option<SystemTime>, Refusal> {
    match (request.value("sinceTime"), seconds) {
        (Some(_), Some(_)) => Err(Refusal::TwoTimes),
        (None, seconds) => Ok(seconds.map(|s| {
            let before = now.checked_sub(Duration::from_secs(s));
            before.unwrap_or(SystemTime::UNIX_EPOCH)
        })),
        (Some(text), None) => {
            let time = Time::instant(text);
            time.map(Some)
                .ok_or_else(|| Refusal::NoTime(text.to_owned()))
        }
    }
}

fn stream(request: &Request) -> Result<LogStream, Refusal> {
    match request.value("stream") {
        None | Some("" | "All") => Ok(LogStream::All),
        Some("Stdout") => Ok(LogStream::Stdout),
        Some("Stderr") => Ok(LogStream::Stderr),
        Some(other) => Err(Refusal::NoStream(other.to_owned())),
    }
}

fn has_container(pod: &PodView, name: &str) -> bool {
    columns::every_container(pod).any(|c| c["name"] == name)
}

/// Answers a request for a container's log.
pub(super) fn serve(
    exchange: &mut Exchange<'_>,
    backend: &dyn Backend,
    name: &ContainerName,
) -> io::Result<()> {
    let (pod_name, container) = (&name.pod, &name.container);
    let wanted = match wanted(&exchange.request, SystemTime::now()) {
        Ok(wanted) => wanted,
        Err(why) => return exchange.error(why.status(), &why.to_string()),
    };
    let Some(pod) = backend.pod(name) else {
        return exchange.error(404, &format!("pod \"{pod_name}\" does not exist"));
    };
    if !has_container(&pod, container) {
        let text = format!("container \"{container}\" not found in pod \"{pod_name}\"");
        return exchange.error(404, &text);
    }
    let attempt = match attempt(pod.status.container(container), wanted.previous) {
        Ok(attempt) => attempt,
        Err(why) => return exchange.error(400, &why.text(container, pod_name)),
    };
    let dir = Path::new(&pod.log_dir).join(container);
    let log = LogReader::open(&dir.join(format!("{attempt}.log")), &wanted.options);
    let mut log = match log {
        Ok(log) => log,
        Err(e) => return exchange.error(500, &format!("cannot read the log: {e}")),
    };
    let runs = || {
        let pod = backend.pod(name);
        let status = pod.as_ref().and_then(|p| p.status.container(container));
        status.is_some_and(|s| s.state.running.is_some() && s.restart_count == attempt)
    };
    exchange.stream(TEXT, true, |out| {
        for look in 0_u32.. {
            // The container is checked before the last read, so that the last read finds everything that the container
            // wrote.
            let goes_on = wanted.follow && (!look.is_multiple_of(LOOK_EVERY) || runs());
            let progress = log.copy(&mut *out).map_err(failed)?;
            out.flush()?;
            if !goes_on || progress == Progress::Full || out.pause(POLL) {
                break;
            }
        }
        log.finish(out)
    })
}

fn failed(e: LogError) -> io::Error {
    match e {
        LogError::Read(e) => io::Error::other(e),
        LogError::Write(e) => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::server::request;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn parsed(query: &str) -> Result<Wanted, Refusal> {
        let head = format!("GET /containerLogs/a/b/c?{query} HTTP/1.1\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        wanted(&request, SystemTime::UNIX_EPOCH + NOW)
    }

    #[test]
    fn options_are_the_kubelet_s() {
        let all = parsed(
            "follow=true&previous=true&timestamps=true&tailLines=7&sinceSeconds=60&limitBytes=9&stream=Stderr",
        );
        let options = LogOptions {
            tail_lines: Some(7),
            since: Some(SystemTime::UNIX_EPOCH + NOW - Duration::from_secs(60)),
            timestamps: true,
            limit_bytes: Some(9),
            stream: LogStream::Stderr,
        };
        let expected = Wanted {
            follow: true,
            previous: true,
            options,
        };
        assert_eq!(all, Ok(expected));
        let none = parsed("follow=false&stream=All").unwrap();
        assert_eq!((none.follow, none.options), (false, LogOptions::default()));
        assert_eq!(parsed("tail=3").unwrap().options.tail_lines, Some(3));
        let tail = |query: &str| parsed(query).unwrap().options.tail_lines;
        assert_eq!(tail("tail=all"), None);
        // The older name `tail` wins over `tailLines`, as in the kubelet.
        assert_eq!(tail("tail=3&tailLines=7"), Some(3));
        assert_eq!(tail("tail=all&tailLines=7"), None);
        assert_eq!(tail("tail=&tailLines=7"), Some(7));
        let since = parsed("sinceTime=1970-01-01T00:00:05Z")
            .unwrap()
            .options
            .since;
        assert_eq!(since, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(5)));
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let check = |status, query: &str, text: &str| {
            let why = parsed(query).unwrap_err();
            assert_eq!((why.status(), why.to_string()), (status, text.to_owned()));
        };
        let refused = |query: &str, text: &str| check(422, query, text);
        let unreadable = |query: &str, text: &str| check(400, query, text);
        unreadable(
            "tailLines=abc",
            "tailLines must be a number of 0 or more, not \"abc\"",
        );
        unreadable(
            "tail=abc",
            "tail must be a number of 0 or more, not \"abc\"",
        );
        unreadable(
            "limitBytes=",
            "limitBytes must be a number of 1 or more, not \"\"",
        );
        refused(
            "tailLines=-1",
            "tailLines must be a number of 0 or more, not \"-1\"",
        );
        refused(
            "sinceSeconds=0",
            "sinceSeconds must be a number of 1 or more, not \"0\"",
        );
        refused(
            "limitBytes=0",
            "limitBytes must be a number of 1 or more, not \"0\"",
        );
        refused(
            "stream=out",
            "stream must be All, Stdout or Stderr, not \"out\"",
        );
        unreadable(
            "sinceTime=now",
            "sinceTime must be a time such as 2026-11-21T08:00:00Z, not \"now\"",
        );
        refused(
            "sinceTime=1970-01-01T00:00:05Z&sinceSeconds=1",
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        );
    }
}
