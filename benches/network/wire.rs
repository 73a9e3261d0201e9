//! What is said on the wire: the requests of the bare loops and the answers of the server.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::raw_h2;

/// The handlers that are measured, in the order of the table.
pub(crate) const HANDLERS: [&str; 3] = ["http", "tcp", "grpc"];

/// What an httpGet probe sends.
pub(crate) fn http_request(port: u16) -> Vec<u8> {
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\n"
    );
    format!("{head}Connection: close\r\n\r\n").into_bytes()
}

pub(crate) const HTTP_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// Everything a grpc probe sends, in one piece: greeting, settings, the call.
pub(crate) fn grpc_request(port: u16) -> Vec<u8> {
    let address = format!("127.0.0.1:{port}");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", address.as_str()),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let call = raw_h2::frame(raw_h2::DATA, raw_h2::END_STREAM, 1, &[0; 5]);
    [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        &raw_h2::settings(),
        &raw_h2::headers(0, &fields),
        &call,
    ]
    .concat()
}

pub(crate) fn serve(handler: &str, mut s: TcpStream) {
    match handler {
        "http" => {
            if read_head(&mut s) {
                let _ = s.write_all(HTTP_ANSWER);
            }
        }
        "tcp" => drop(s.read(&mut [0; 1])),
        _ => raw_h2::serve(s, &raw_h2::answer(1)),
    }
}

fn read_head(s: &mut TcpStream) -> bool {
    let (mut buffer, mut filled) = ([0; 1024], 0);
    loop {
        match s.read(&mut buffer[filled..]) {
            Ok(n) if n > 0 => filled += n,
            _ => return false,
        }
        if buffer[..filled].ends_with(b"\r\n\r\n") {
            return true;
        }
    }
}
