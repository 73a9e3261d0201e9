//! http.json: the httpGet handler against real servers (kubelet-probes 3.4).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use podprobe::api::pod::HttpHeader;
use podprobe::pods::prober::outcome::{HandlerResult, Outcome};
use podprobe::pods::prober::target::Target;
use podprobe::pods::prober::url::ProbeUrl;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    AS_TOLD, Case, Group, Run, Verdict, duration, ensure, fields, group, overruled, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("cases", Run::Each(case)),
    group("redirects", Run::Each(redirect)),
    group("redirectLimits", Run::Each(redirect_limit)),
    group("hostHeaderAfterRedirect", Run::Each(host_header)),
    group("body", Run::Each(body)),
    group("proxy", Run::Each(proxy)),
    group("statusTable", Run::Each(status)),
    group("failureMessage", Run::Each(failure_message)),
];

/// A request as the server saw it.
pub struct Request {
    path: String,
    host: String,
    /// All but `Host`, as they were sent.
    headers: Vec<(String, String)>,
}

/// What the server does then.
pub enum Answer {
    Send {
        status: u16,
        location: Option<String>,
        body: String,
    },
    /// Closes the connection without a word.
    Drop,
    /// Says nothing for this long.
    Sleep(Duration),
}

impl Answer {
    fn status(status: u16) -> Self {
        Self::Send {
            status,
            location: None,
            body: String::new(),
        }
    }

    fn redirect(status: u16, to: &str) -> Self {
        Self::Send {
            status,
            location: Some(to.into()),
            body: String::new(),
        }
    }
}

/// Each connection has a thread, so that a stranger who meant the port's owner of before holds up no case. Ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    ending: Arc<AtomicBool>,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Hands each connection to `serve`, with a channel that closes when the server is to end.
    pub fn of_connections(
        serve: impl Fn(TcpStream, &Receiver<()>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let (ending, connections) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (end, ended) = bounded(0);
        let (is_ending, count) = (ending.clone(), connections.clone());
        let serve = Arc::new(serve);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_ending.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let (serve, ended) = (serve.clone(), ended.clone());
                std::thread::spawn(move || serve(stream, &ended));
            }
        });
        Self {
            address,
            connections,
            ending,
            end: Some(end),
            thread: Some(thread),
        }
    }

    fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::of_connections(move |stream, ended| {
            // A client that went away is no matter.
            let _ = serve(stream, &answer, ended);
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::SeqCst);
        self.end.take();
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &impl Fn(&Request) -> Answer,
    ended: &Receiver<()>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let path = lines
        .next()
        .transpose()?
        .unwrap_or_default()
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let mut request = Request {
        path,
        host: String::new(),
        headers: Vec::new(),
    };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        match name.eq_ignore_ascii_case("host") {
            true => request.host = value.trim().into(),
            false => request.headers.push((name.into(), value.trim().into())),
        }
    }
    match answer(&request) {
        Answer::Drop => {}
        Answer::Sleep(time) => drop(ended.recv_timeout(time)),
        Answer::Send {
            status,
            location,
            body,
        } => {
            let location = location.map_or_else(String::new, |l| format!("Location: {l}\r\n"));
            let length = if status == 204 {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            write!(
                stream,
                "HTTP/1.1 {status} Told\r\n{location}{length}\r\n{body}"
            )?;
        }
    }
    Ok(())
}

fn get(server: SocketAddr, path: &str, headers: &[HttpHeader], timeout: Duration) -> Outcome {
    let host = server.ip().to_string();
    let url = ProbeUrl::of_probe("http", &host, server.port(), path);
    let target = Target {
        host,
        addresses: vec![server.ip()],
        netns: None,
    };
    podprobe::pods::prober::http::Get::new(url, headers, target).run(timeout)
}

/// For cases whose subject is not time.
const TIMEOUT: Duration = Duration::from_secs(30);

fn result(expected: &str, got: &Outcome) -> Result<(), String> {
    same(
        "result",
        (expected, None),
        (&got.result.to_string(), got.error.as_deref()),
    )
    .map_err(|e| format!("{e}, output {:?}", got.output))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HttpCase {
    timeout: String,
    follow_non_local: bool,
    server: Value,
    headers: Option<BTreeMap<String, Vec<String>>>,
    result: String,
    output_contains: Option<String>,
    output_lacks: Option<String>,
}

fn case(case: &Case) -> Verdict {
    let case: HttpCase = case.fields()?;
    let server = Server::start(server(&case.server)?);
    let headers = case.headers.unwrap_or_default().into_iter();
    let headers: Vec<_> = headers
        .flat_map(|(name, values)| {
            values.into_iter().map(move |value| HttpHeader {
                name: name.clone(),
                value,
            })
        })
        .collect();
    let (timeout, start) = (duration(&case.timeout)?, Instant::now());
    let got = get(server.address, "/", &headers, timeout);
    result(&case.result, &got)?;
    if let Some(silence) = case
        .server
        .get("sleep")
        .and_then(Value::as_str)
        .map(duration)
        .transpose()?
        .filter(|s| *s > timeout)
    {
        ensure(start.elapsed() < silence, "it is the client that gives up")?;
    }
    if let Some(part) = case.output_contains {
        ensure(
            got.output.contains(&part),
            &format!("{part:?} in the output {:?}", got.output),
        )?;
    }
    if let Some(part) = case.output_lacks {
        ensure(
            !got.output.contains(&part),
            &format!("no {part:?} in the output {:?}", got.output),
        )?;
    }
    // Following to other hosts is a mode that the kubelet does not run, and that does not exist here; these servers
    // only redirect within one host, where the modes do the same.
    let _ = case.follow_non_local;
    AS_TOLD
}

type Answers = Box<dyn Fn(&Request) -> Answer + Send + Sync>;

fn server(told: &Value) -> Result<Answers, String> {
    match told {
        Value::String(words) => in_words(words),
        Value::Object(of_paths) if of_paths.keys().all(|k| k.starts_with("GET /")) => {
            by_path(of_paths)
        }
        _ => {
            let told: One = fields(told)?;
            told.check()?;
            Ok(Box::new(move |_| told.answer()))
        }
    }
}

fn in_words(words: &str) -> Result<Answers, String> {
    let names = |r: &Request| {
        r.headers
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let lines = |r: &Request| {
        r.headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\n"))
            .collect::<String>()
    };
    let text = |text: fn(&Request) -> String| -> Answers {
        Box::new(move |r| Answer::Send {
            status: 200,
            location: None,
            body: text(r),
        })
    };
    match words {
        "counts request header names" => Ok(Box::new(move |r| Answer::Send {
            status: 200,
            location: None,
            body: names(r).len().to_string(),
        })),
        "lists request header names sorted, newline separated" => {
            Ok(Box::new(move |r| Answer::Send {
                status: 200,
                location: None,
                body: names(r).into_iter().collect::<Vec<_>>().join("\n"),
            }))
        }
        "echo" | "echo headers as \"Name: value\" lines" => Ok(Box::new(move |r| Answer::Send {
            status: 200,
            location: None,
            body: lines(r),
        })),
        "echo request Host" => Ok(text(|r| r.host.clone())),
        other => unknown("server", other),
    }
}

/// One answer to everything.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    status: Option<i32>,
    #[serde(default)]
    body: String,
    location: Option<String>,
    sleep: Option<String>,
    #[serde(rename = "note")]
    _note: Option<String>,
}

impl One {
    fn check(&self) -> Result<(), String> {
        self.sleep.as_deref().map(duration).transpose()?;
        ensure(
            self.status.is_some() != self.sleep.is_some(),
            "a server with either a status or a sleep",
        )
    }

    fn answer(&self) -> Answer {
        if let Some(sleep) = &self.sleep {
            return Answer::Sleep(duration(sleep).unwrap_or_default());
        }
        // A status that no status line can hold is a connection that ends.
        match self
            .status
            .and_then(|s| u16::try_from(s).ok())
            .filter(|s| (100..1000).contains(s))
        {
            Some(status) => Answer::Send {
                status,
                location: self.location.clone(),
                body: self.body.clone(),
            },
            None => Answer::Drop,
        }
    }
}

fn by_path(told: &Map<String, Value>) -> Result<Answers, String> {
    let mut answers: BTreeMap<String, One> = BTreeMap::new();
    let plain = |status: i64, location: Option<&str>| One {
        status: Some(status as i32),
        body: String::new(),
        location: location.map(Into::into),
        sleep: None,
        _note: None,
    };
    for (path, answer) in told {
        let answer = match answer {
            Value::Number(status) => {
                plain(status.as_i64().ok_or("a status is a whole number")?, None)
            }
            Value::String(words) => match words
                .strip_prefix("redirect ")
                .and_then(|w| w.split_once(" to "))
            {
                Some((status, to)) => plain(
                    status
                        .parse()
                        .map_err(|_| format!("unknown status in \"{words}\""))?,
                    Some(to),
                ),
                None => return unknown("answer", words),
            },
            other => fields(other)?,
        };
        answer.check()?;
        answers.insert(path.trim_start_matches("GET ").into(), answer);
    }
    Ok(Box::new(move |r| {
        answers
            .get(&r.path)
            .map_or(Answer::status(404), One::answer)
    }))
}

const REDIRECT_SERVER: &str =
    "/redirect (302 to target); /loop answers 302 to itself; /success 200; anything else 500";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Redirect {
    path: String,
    target: String,
    local_only: String,
    follow_non_local: String,
}

fn redirect_server(target: String) -> Server {
    Server::start(move |r| match r.path.as_str() {
        "/redirect" => Answer::redirect(302, &target),
        "/loop" => Answer::redirect(302, "/loop"),
        "/success" => Answer::status(200),
        _ => Answer::status(500),
    })
}

fn redirect(case: &Case) -> Verdict {
    let case: Redirect = case.fields()?;
    same("path", REDIRECT_SERVER, &case.path)?;
    let other = redirect_server("/none".into());
    let is_path = case.target.starts_with('/') && !case.target.starts_with("//");
    let is_local = is_path || case.target.starts_with("same host, another port, /");
    let target = match case.target.strip_prefix("same host, another port, ") {
        Some(path) => format!("http://{}{path}", other.address),
        None if ["/", "http://", "https://"]
            .iter()
            .any(|start| case.target.starts_with(start)) =>
        {
            case.target
        }
        None => return unknown("target", &case.target),
    };
    let server = redirect_server(target);
    result(
        &case.local_only,
        &get(server.address, "/redirect", &[], TIMEOUT),
    )?;
    if is_local {
        same(
            "followNonLocal, where the modes do the same",
            case.local_only,
            case.follow_non_local,
        )?;
        return AS_TOLD;
    }
    ensure(
        ["success", "warning", "failure"].contains(&case.follow_non_local.as_str()),
        "a result",
    )?;
    Ok(overruled(format!(
        "localOnly is as told; following to another host (told: {}) does not exist, the kubelet does not run that mode either (kubelet-probes 3.4)",
        case.follow_non_local
    )))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limits {
    max_followed: usize,
}

fn redirect_limit(case: &Case) -> Verdict {
    let case: Limits = case.fields()?;
    let hops = |n: usize| {
        Server::start(
            move |r| match r.path.trim_start_matches('/').parse::<usize>() {
                Ok(at) if at < n => Answer::redirect(302, &format!("/{}", at + 1)),
                Ok(_) => Answer::status(200),
                Err(_) => Answer::status(500),
            },
        )
    };
    result(
        "success",
        &get(hops(case.max_followed).address, "/0", &[], TIMEOUT),
    )?;
    let refused = get(hops(case.max_followed + 1).address, "/0", &[], TIMEOUT);
    result("failure", &refused)?;
    ensure(
        refused.output.ends_with("stopped after 10 redirects"),
        &format!("the limit's text in {:?}", refused.output),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HostHeader {
    host_header: String,
    server: Option<String>,
    result: String,
    modes: Vec<String>,
}

fn host_header(case: &Case) -> Verdict {
    let case: HostHeader = case.fields()?;
    let wanted = "www.success.com";
    if let Some(words) = case.server {
        same(
            "server",
            format!(
                "/redirect -> 302 /success; /success is 200 only when Host is {wanted}, else 400"
            ),
            words,
        )?;
    }
    for mode in &case.modes {
        // Within one host the modes do the same.
        ensure(
            ["localOnly", "followNonLocal"].contains(&mode.as_str()),
            "a known mode",
        )?;
    }
    let server = Server::start(move |r| match r.path.as_str() {
        "/redirect" => Answer::redirect(302, "/success"),
        "/success" if r.host == wanted => Answer::status(200),
        _ => Answer::status(400),
    });
    let headers = [HttpHeader {
        name: "Host".into(),
        value: case.host_header,
    }];
    result(
        &case.result,
        &get(server.address, "/redirect", &headers, TIMEOUT),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Body {
    server_body_bytes: usize,
    result: String,
    output_bytes: usize,
}

fn body(case: &Case) -> Verdict {
    let case: Body = case.fields()?;
    let body = "x".repeat(case.server_body_bytes);
    let server = Server::start(move |_| Answer::Send {
        status: 200,
        location: None,
        body: body.clone(),
    });
    let got = get(server.address, "/", &[], TIMEOUT);
    result(&case.result, &got)?;
    same("outputBytes", case.output_bytes, got.output.len())?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proxy {
    env: BTreeMap<String, String>,
    target: String,
    expect: String,
}

/// Set for the child that probes; the URL to probe.
pub const PROXY_CHILD: &str = "PODPROBE_VECTORS_PROXY_CHILD";

/// Probes the URL in the environment. Its address is of this machine: what counts is who else is asked.
pub fn proxy_child() {
    let url = std::env::var(PROXY_CHILD).expect("the URL");
    let host = url.trim_start_matches("http://");
    let target = Target {
        host: host.into(),
        addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
        netns: None,
    };
    let outcome = podprobe::pods::prober::http::Get::new(
        ProbeUrl::of_probe("http", host, 1, "/"),
        &[],
        target,
    )
    .run(Duration::from_secs(2));
    println!("{}", outcome.output);
}

fn proxy(case: &Case) -> Verdict {
    let case: Proxy = case.fields()?;
    same("expect", "the local proxy is never contacted", &case.expect)?;
    let server = Server::start(|_| Answer::status(200));
    let mut child = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    child.env(PROXY_CHILD, case.target);
    for (name, value) in case.env {
        same("value of a variable", "<local server>", &value)?;
        child.env(name, format!("http://{}", server.address));
    }
    let output = child
        .output()
        .map_err(|e| format!("cannot start the child: {e}"))?;
    ensure(output.status.success(), "the child probes")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure(
        said.contains("connection refused"),
        &format!("the host itself is asked, which refuses: {said}"),
    )?;
    same(
        "connections to the proxy",
        0,
        server.connections.load(Ordering::SeqCst),
    )?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Status {
    status: u16,
    result: String,
}

fn status(case: &Case) -> Verdict {
    let case: Status = case.fields()?;
    let server = Server::start(move |_| Answer::status(case.status));
    result(&case.result, &get(server.address, "/", &[], TIMEOUT))?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailureMessage {
    #[serde(rename = "status>=400 or <200")]
    status: String,
    #[serde(rename = "transport error")]
    transport: String,
}

fn failure_message(case: &Case) -> Verdict {
    let case: FailureMessage = case.fields()?;
    for code in [400, 404, 503] {
        let server = Server::start(move |_| Answer::Send {
            status: code,
            location: None,
            body: "never shown".into(),
        });
        let got = get(server.address, "/", &[], TIMEOUT);
        same(
            "output",
            case.status.replace("<code>", &code.to_string()),
            got.output,
        )?;
    }
    same(
        "text of a transport error",
        "<client error text>",
        &case.transport,
    )?;
    let address = Server::start(|_| Answer::Drop).address;
    let refused = get(address, "/", &[], TIMEOUT);
    let expected =
        format!("Get \"http://{address}/\": dial tcp {address}: connect: connection refused");
    same(
        "transport error",
        (HandlerResult::Failure, expected),
        (refused.result, refused.output),
    )?;
    AS_TOLD
}
