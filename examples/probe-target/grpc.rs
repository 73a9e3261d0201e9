//! grpc.health.v1's Check over HTTP/2 without TLS: only what one call per connection needs.
//!
//! Headers of the request are not read (their compression would need a table): every call counts as
//! a Check. The answer is written as literals that enter no table.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{SLOWNESS, Target, behave};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Length of the client's greeting, which comes before its first frame.
const PREFACE: usize = 24;
/// Longest request that is read.
const MAX_FRAME: usize = 16 << 10;

const SERVING: u8 = 1;
const NOT_SERVING: u8 = 2;

pub(crate) fn answer(mut stream: TcpStream, target: &Target) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SLOWNESS))?;
    stream.read_exact(&mut [0; PREFACE])?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    let (id, message) = read_request(&mut stream)?;
    let service = service(&message);
    let answer = match target.state(if service.is_empty() {
        "health"
    } else {
        &service
    }) {
        Some(state) => {
            let serving = if behave(state, &mut stream) {
                SERVING
            } else {
                NOT_SERVING
            };
            [
                headers(id, 0, &HEAD),
                frame(DATA, 0, id, &[0, 0, 0, 0, 2, 8, serving]),
                headers(id, END_STREAM, &[("grpc-status", "0")]),
            ]
            .concat()
        }
        None => headers(
            id,
            END_STREAM,
            &[
                HEAD[0],
                HEAD[1],
                ("grpc-status", "5"),
                ("grpc-message", "unknown service"),
            ],
        ),
    };
    stream.write_all(&answer)?;
    // The client hangs up; pings and settings until then are answered.
    while read_frame(&mut stream).is_ok() {}
    Ok(())
}

const HEAD: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/grpc")];

/// The stream and the body of the first request that ends.
fn read_request(stream: &mut TcpStream) -> std::io::Result<(u32, Vec<u8>)> {
    let mut body = Vec::new();
    loop {
        let (kind, flags, id, payload) = read_frame(stream)?;
        if kind == DATA {
            body.extend(payload);
        }
        if (kind == DATA || kind == HEADERS) && flags & END_STREAM != 0 {
            return Ok((id, body));
        }
        if body.len() > MAX_FRAME {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
}

/// Kind, flags, stream and payload of the next frame; acknowledges settings and pings.
fn read_frame(stream: &mut TcpStream) -> std::io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if length > MAX_FRAME {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    match kind {
        SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
        PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, 0, &payload))?,
        _ => {}
    }
    Ok((kind, flags, u32::from_be_bytes(id) & 0x7fff_ffff, payload))
}

/// `service` of a HealthCheckRequest: field 1, after the five bytes before each message of gRPC.
fn service(message: &[u8]) -> String {
    match message.get(5..) {
        Some([0x0a, length, rest @ ..]) => {
            String::from_utf8_lossy(&rest[..rest.len().min(usize::from(*length))]).into_owned()
        }
        _ => String::new(),
    }
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &id.to_be_bytes(), payload].concat()
}

fn headers(id: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |t: &str| [&[t.len() as u8], t.as_bytes()].concat();
    let block: Vec<u8> = fields
        .iter()
        .flat_map(|(name, value)| [vec![0], text(name), text(value)].concat())
        .collect();
    frame(HEADERS, END_HEADERS | flags, id, &block)
}
