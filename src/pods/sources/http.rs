//! The http source: fetches pods from a URL (kubelet-probes 6.4).
//!
//! Invariants: a pod ends only when a complete and valid answer does not have it. Nothing else that a server does ends
//! a pod. Until the first answer the last good answer of an earlier daemon counts. The thread never waits for a server
//! longer than [`LIMIT`], and ends at once when it is stopped. A request that hangs in a name lookup is left behind.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};
use ureq::http::Uri;

use super::files::{Files, Listing, Step};
use super::outlet::{Ended, Outlet};
use super::read::MAX_FILE_SIZE;
use super::reading::{ContentError, Decode, Reading};
use super::versions::Versions;
use crate::api::PodSource;
use crate::base::clock::Moment;
use crate::base::http_client::{
    Ask, Client, Dialer, FetchError, Pacing, Sources, Stop, WaysOut, WebUrl, host_of,
};
use crate::base::threads::Roster;

/// The stack size of the source's thread in bytes.
const OWN_STACK: usize = 2 << 20;
/// The time limit of a whole request (6.4).
const LIMIT: Duration = Duration::from_secs(10);
/// The extra time for a request with a thread that starts late.
const SLACK: Duration = Duration::from_millis(500);
/// The time that the pods of an earlier daemon wait for the first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(2);
/// The stack size in bytes of a request's thread, which runs TLS.
const STACK: usize = 1 << 20;
/// The number of failures in a row that are logged. One more failure is logged with a note (6.4).
const LOGGED_FAILURES: u32 = 3;

const WAYS_OUT: WaysOut = WaysOut {
    without_tls: |_| "a server without TLS needs http:// in staticPodURL".into(),
    own_authority: |_| "start podprobe with SSL_CERT_FILE=/path/to/the/authority.pem".into(),
};

/// The settings and connections of an http source.
pub struct HttpSourceConfig {
    /// The URL of the pods (`staticPodURL`).
    pub url: WebUrl,
    /// The headers (`staticPodURLHeader`), which are sent only to the server of the URL.
    pub headers: Vec<(String, String)>,
    /// The time from the end of a request to the next one (`httpCheckFrequency`).
    pub check_frequency: Duration,
    /// The directory of the last good answer, for this source alone. A missing directory is created.
    pub last_good: PathBuf,
    /// Turns the bytes of an answer into pods.
    pub decode: Decode,
    /// The outlet to which the source sends pods, objects and problems.
    pub outlet: Outlet,
}

/// A running http source.
pub struct HttpSource {
    /// The stop signal. Dropping this sender ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl HttpSource {
    /// Starts the thread `pod-url`, which makes its first request at once.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn spawn(config: HttpSourceConfig, roster: &Roster) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        let path = PathBuf::from(config.url.to_string());
        let mut worker = Worker {
            versions: Versions::new(
                Files::new(path.clone(), Default::default()),
                std::path::absolute(&config.last_good)?,
                config.decode,
            ),
            path,
            request: Arc::new(Request {
                uri: config.url.uri(),
                headers: config.headers,
            }),
            check_frequency: config.check_frequency,
            outlet: config.outlet,
            stopped,
            under_way: None,
            published: false,
            failures: Failures::default(),
        };
        let thread = roster.spawn("pod-url", OWN_STACK, move |_, _| {
            // The worker survives a panic with its whole state, so that no last good version is lost.
            worker.rounds();
            ControlFlow::Break(())
        })?;
        Ok(Self { stop, thread })
    }

    /// Requests the end of the thread. Never blocks, and may be called again.
    pub fn stop(&self) {
        let _ = self.stop.try_send(());
    }

    /// True if the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread, which ends soon after [`HttpSource::stop`].
    pub fn join(self) {
        // The thread catches all panics itself.
        let _ = self.thread.join();
    }
}

type Answer = Result<Vec<u8>, AnswerError>;

/// The reason why a request has no answer with pods.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    /// The server could not be reached, or its answer does not have the pods.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// No thread could be started for the request.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The request hangs in the lookup of this name.
    #[error("no answer from {0} within {LIMIT:?}: its name is still being looked up")]
    LookingUp(String),
    /// The thread of the request panicked.
    #[error("internal error; please report this")]
    Panicked,
}

struct Worker {
    /// The URL as a path. The last good versions are kept under the name of this path.
    path: PathBuf,
    request: Arc<Request>,
    check_frequency: Duration,
    versions: Versions,
    outlet: Outlet,
    stopped: Receiver<()>,
    under_way: Option<UnderWay>,
    /// True if something was sent to the outlet.
    published: bool,
    failures: Failures,
}

/// A request on its own thread. Dropping this value ends the request, unless the request hangs in a name lookup.
struct UnderWay {
    answer: Receiver<Answer>,
    stop: Stop,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.stop.set();
    }
}

impl Worker {
    fn rounds(&mut self) {
        while self.round().is_ok() {}
    }

    fn round(&mut self) -> Result<(), Ended> {
        let answer = self.ask()?;
        let reading = match answer {
            Ok(bytes) => {
                let path = self.path.clone();
                (self.versions).read(&path, None, &bytes, ContentError::EmptyAnswer)
            }
            Err(e) => Reading::Failed(format!("cannot fetch pods: {e}")),
        };
        self.versions.restore(&[(&self.path, &reading)]);
        self.take(reading)?;
        self.versions.keep();
        match self.stopped.recv_timeout(self.check_frequency) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            _ => Err(Ended),
        }
    }

    fn take(&mut self, reading: Reading) -> Result<(), Ended> {
        let step = self
            .versions
            .files
            .step(Moment::now(), Listing::File(reading));
        self.log(&step);
        self.published = true;
        self.outlet.publish(PodSource::Http, step, &self.stopped)
    }

    fn log(&mut self, step: &Step) {
        step.mended.iter().for_each(|line| log::info!("{line}"));
        let refused = || step.problems.iter().filter(|p| !p.is_in_use);
        let (level, note) = self.failures.next(refused().next().is_some());
        let stays = match step.pods.is_empty() {
            true => "",
            false => "; the pods of its last good answer stay",
        };
        for problem in refused() {
            log::log!(level, "{}{stays}{note}", problem.line());
        }
    }

    /// Makes a request, or continues to wait for the request that is under way. Waits at most for [`LIMIT`].
    fn ask(&mut self) -> Result<Answer, Ended> {
        let under_way = match self.under_way.take() {
            Some(under_way) => under_way,
            None => match UnderWay::start(self.request.clone()) {
                Ok(under_way) => under_way,
                Err(e) => return Ok(Err(AnswerError::Thread(e))),
            },
        };
        let mut left = LIMIT + SLACK;
        if !self.published {
            let first = self.wait(&under_way, FIRST_ANSWER)?;
            if let Some(answer) = first {
                return Ok(answer);
            }
            left -= FIRST_ANSWER;
            // The pods of an earlier daemon do not wait for a slow server.
            if self.versions.restore_unread(&self.path) {
                self.take(Reading::Unchanged)?;
            }
        }
        match self.wait(&under_way, left)? {
            Some(answer) => Ok(answer),
            None => {
                self.under_way = Some(under_way);
                let host = host_of(&self.request.uri);
                Ok(Err(AnswerError::LookingUp(host)))
            }
        }
    }

    /// Waits for the answer, at most for `time`. Returns `None` if no answer has come by then.
    fn wait(&self, under_way: &UnderWay, time: Duration) -> Result<Option<Answer>, Ended> {
        select! {
            recv(under_way.answer) -> answer => {
                Ok(Some(answer.unwrap_or(Err(AnswerError::Panicked))))
            }
            recv(self.stopped) -> _ => Err(Ended),
            default(time) => Ok(None),
        }
    }
}

impl UnderWay {
    fn start(request: Arc<Request>) -> io::Result<Self> {
        let (send, answer) = bounded(1);
        let stop = Stop::default();
        let of_request = stop.clone();
        std::thread::Builder::new()
            .name("pod-url-request".into())
            .stack_size(STACK)
            .spawn(move || {
                let answer = request.send(of_request);
                let _ = send.send(answer.map_err(AnswerError::from));
            })?;
        Ok(Self { answer, stop })
    }
}

/// The request that the source sends in each round.
struct Request {
    uri: Uri,
    headers: Vec<(String, String)>,
}

impl Request {
    fn send(&self, stop: Stop) -> Result<Vec<u8>, FetchError> {
        // The certificate authorities are read for each request, so they use no memory in between, and new authorities
        // are noticed.
        let trust = |authority: &str| {
            let sources = Sources::of_environment();
            sources.client_config(authority, None, WAYS_OUT)
        };
        let client = Client::new(Dialer {
            stop,
            pacing: Pacing {
                connect: LIMIT,
                idle: LIMIT,
                least: 1,
            },
            trust: Arc::new(trust),
            ways_out: WAYS_OUT,
        });
        let headers = self.headers.iter();
        let headers: Vec<(&str, String)> = headers
            .map(|(name, value)| (name.as_str(), value.clone()))
            .collect();
        let answer = client.ask(&Ask {
            uri: &self.uri,
            headers: &[],
            for_server: &headers,
            form: None,
            limit: Some(LIMIT),
        })?;
        match answer.status {
            200 => answer.read_all(MAX_FILE_SIZE - 1, "the answer"),
            status => Err(FetchError::failed(format!(
                "{} answers with status {status} instead of 200",
                host_of(&answer.uri)
            ))),
        }
    }
}

/// The number of failures in a row, which decides the log level of a failure (6.4).
#[derive(Default)]
struct Failures(u32);

impl Failures {
    /// Counts an answer. Returns the log level of a failure, and the note that is added to its log line.
    fn next(&mut self, failed: bool) -> (log::Level, &'static str) {
        self.0 = if failed { self.0.saturating_add(1) } else { 0 };
        match self.0 {
            n if n <= LOGGED_FAILURES => (log::Level::Warn, ""),
            n if n == LOGGED_FAILURES + 1 => (
                log::Level::Warn,
                "; further failures are logged at level debug until it works again",
            ),
            _ => (log::Level::Debug, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_are_told_a_fourth_with_a_note_and_the_rest_quietly() {
        use log::Level::{Debug, Warn};
        let mut failures = Failures::default();
        let mut levels = |n: usize| -> Vec<(log::Level, bool)> {
            let told = (0..n).map(|_| failures.next(true));
            told.map(|(level, note)| (level, note.is_empty())).collect()
        };
        assert_eq!(
            levels(6),
            [
                (Warn, true),
                (Warn, true),
                (Warn, true),
                (Warn, false),
                (Debug, true),
                (Debug, true)
            ]
        );
        assert_eq!(failures.next(false), (Warn, ""));
        assert_eq!(failures.next(true), (Warn, ""), "counted anew");
    }
}
