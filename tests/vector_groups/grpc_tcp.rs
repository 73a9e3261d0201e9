//! grpc-tcp.json: the tcpSocket and grpc handlers against real servers (kubelet-probes 3.5, 3.6).

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use crossbeam_channel::Receiver;
use podprobe::pods::prober::target::Target;
use podprobe::pods::prober::{grpc, tcp};
use serde::Deserialize;

use super::http::Server;
use super::{
    AS_TOLD, Case, Group, Run, Verdict, duration, ensure, group, overruled, same, unknown,
};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("grpc", Run::Each(grpc_case)),
    group("tcp", Run::Each(tcp_case)),
    group(
        "portExhaustion",
        Run::Told(&[("portExhaustion", port_exhaustion)]),
    ),
];

fn loopback() -> Target {
    Target {
        host: "127.0.0.1".into(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        netns: None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tcp {
    target: String,
    timeout: String,
    result: String,
    output: String,
    err: Option<String>,
}

fn tcp_case(case: &Case) -> Verdict {
    let case: Tcp = case.fields()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let is_open = match case.target.as_str() {
        "listening port" => true,
        "port -1" | "closed port" => false,
        other => return unknown("target", other),
    };
    let listener = is_open.then_some(listener);
    let got = tcp::probe(&loopback(), port, duration(&case.timeout)?);
    drop(listener);
    same("result", case.result, got.result.to_string())?;
    same("err", case.err, got.error)?;
    match case.output.as_str() {
        "<dial error text>" => ensure(
            got.output.starts_with("dial tcp "),
            &format!("a dial error in {:?}", got.output),
        )?,
        output => same("output", output, &got.output)?,
    }
    match case.target.as_str() {
        "listening port" | "closed port" => AS_TOLD,
        _ => Ok(overruled(
            "a port of -1 never comes to this handler: 3.3 refuses it before; a port without a listener fails as told",
        )),
    }
}

/// A few hundred here; the minute of it is `cargo bench` and the soak test.
fn port_exhaustion(case: &Case) -> Verdict {
    case.has_only(&["skippedByDefault", "shape"])?;
    let server = Server::of_connections(|mut stream, _| {
        let mut request = [0; 2048];
        let n = stream.read(&mut request).unwrap_or(0);
        if request[..n].starts_with(b"GET ") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    for i in 0..600 {
        let port = server.address.port();
        let over_tcp = tcp::probe(&loopback(), port, Duration::from_secs(5));
        let url = podprobe::pods::prober::url::ProbeUrl::of_probe("http", "127.0.0.1", port, "/");
        let over_http = podprobe::pods::prober::http::Get::new(url, &[], loopback())
            .run(Duration::from_secs(5));
        for got in [over_tcp, over_http] {
            ensure(
                got.result == podprobe::pods::prober::outcome::HandlerResult::Success,
                &format!("probe {i} succeeds: {got:?}"),
            )?;
        }
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Grpc {
    expect: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    timeout: Option<String>,
    server: Option<String>,
    result: Option<String>,
    output: Option<String>,
    output_prefix: Option<String>,
    err: Option<String>,
}

fn grpc_case(case: &Case) -> Verdict {
    let case: Grpc = case.fields()?;
    if let Some(words) = case.expect {
        // There is no constructor: the function is the prober, and the cases beside this one use it.
        same(
            "expect",
            "constructor returns something usable as a prober",
            &words,
        )?;
        return AS_TOLD;
    }
    let server = case.server.as_deref().map(grpc_server).transpose()?;
    let port = server
        .as_ref()
        .map(|s| s.address.port())
        .or(case.port)
        .ok_or("neither a server nor a port")?;
    let mut target = loopback();
    if let Some(host) = case.host {
        target.host = host;
    }
    let timeout = case
        .timeout
        .as_deref()
        .map_or(Ok(Duration::from_secs(2)), duration)?;
    let got = grpc::probe(&target, port, "", timeout);
    same(
        "result",
        case.result.ok_or("no result")?,
        got.result.to_string(),
    )
    .map_err(|e| format!("{e}: {}", got.output))?;
    same("err", case.err, got.error)?;
    case.output
        .map_or(Ok(()), |output| same("output", output, got.output.clone()))?;
    case.output_prefix.map_or(Ok(()), |p| {
        ensure(
            got.output.starts_with(&p),
            &format!("{p:?} begins the output {:?}", got.output),
        )
    })?;
    AS_TOLD
}

/// What a health server answers to Check.
#[derive(Clone)]
enum Check {
    /// A HealthCheckResponse with that number.
    Status(u8),
    /// The same, after a while.
    Late(Duration),
    /// No response but a grpc-status.
    Code(u8, String),
}

fn grpc_server(words: &str) -> Result<Server, String> {
    let check = match words {
        "plain HTTP/1 server" => {
            return Ok(Server::of_connections(|mut stream, ended| {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                let _ = ended.recv_timeout(Duration::from_millis(100));
            }));
        }
        "SERVING" | "SERVING on an OS chosen port" => Check::Status(1),
        "gRPC server without the health service" => {
            Check::Code(12, "unknown service grpc.health.v1.Health".into())
        }
        other => check_in_words(other.strip_prefix("health ").unwrap_or(other))
            .ok_or_else(|| format!("unknown server \"{other}\""))?,
    };
    Ok(Server::of_connections(move |stream, ended| {
        // A client that went away is no matter.
        let _ = serve(stream, &check, ended);
    }))
}

/// `answers NOT_SERVING`, `Check returns NOT_FOUND (some text)`, `Check sleeps 4s then SERVING`.
fn check_in_words(words: &str) -> Option<Check> {
    const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
    const CODES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let place = |list: &[&str], word: &str| list.iter().position(|w| *w == word).map(|at| at as u8);
    if let Some(time) = words
        .strip_prefix("Check sleeps ")
        .and_then(|w| w.strip_suffix(" then SERVING"))
    {
        return duration(time).ok().map(Check::Late);
    }
    if let Some(status) = words
        .strip_prefix("Check answers ")
        .or(words.strip_prefix("answers "))
    {
        return place(&STATUSES, status).map(Check::Status);
    }
    let (code, text) = words
        .strip_prefix("Check returns ")?
        .split_once(' ')
        .unwrap_or_default();
    Some(Check::Code(
        place(&CODES, code)?,
        text.strip_prefix('(')?.strip_suffix(')')?.into(),
    ))
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// HPACK: a literal that is not remembered.
fn header(name: &str, value: &str) -> Vec<u8> {
    [
        &[0, name.len() as u8],
        name.as_bytes(),
        &[value.len() as u8],
        value.as_bytes(),
    ]
    .concat()
}

/// `:status: 200` of HPACK's static table, and the content type.
fn response_headers() -> Vec<u8> {
    [vec![0x88], header("content-type", "application/grpc")].concat()
}

/// As much of HTTP/2 as a health server needs: every request is a Check.
fn serve(mut stream: TcpStream, check: &Check, ended: &Receiver<()>) -> std::io::Result<()> {
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    stream.read_exact(&mut [0; 24])?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload)?;
        let (kind, flags, id) = (
            head[3],
            head[4],
            u32::from_be_bytes([head[5], head[6], head[7], head[8]]),
        );
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload))?,
            GOAWAY => return Ok(()),
            HEADERS | DATA if flags & END_STREAM != 0 => {
                if let Check::Late(time) = check {
                    let _ = ended.recv_timeout(*time);
                }
                stream.write_all(&answer(check, id))?;
            }
            _ => {}
        }
    }
}

fn answer(check: &Check, id: u32) -> Vec<u8> {
    let trailers = |code: &str, message: &str| {
        [header("grpc-status", code), header("grpc-message", message)].concat()
    };
    let status = match check {
        Check::Status(status) => *status,
        Check::Late(_) => 1,
        Check::Code(code, message) => {
            return frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                id,
                &[response_headers(), trailers(&code.to_string(), message)].concat(),
            );
        }
    };
    // HealthCheckResponse: field 1, a varint; 0 is left out. Before it: not compressed, and the length.
    let message: &[u8] = if status == 0 { &[] } else { &[8, status] };
    let data = [&[0, 0, 0, 0, message.len() as u8], message].concat();
    [
        frame(HEADERS, END_HEADERS, id, &response_headers()),
        frame(DATA, 0, id, &data),
        frame(HEADERS, END_HEADERS | END_STREAM, id, &trailers("0", "")),
    ]
    .concat()
}
