//! HTTP/2 as bytes, for servers that do what no library lets them do. Part of several tests, none of which needs all.
#![allow(dead_code)]

use std::io::{Read, Write};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(crate) fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

pub(crate) fn ping() -> Vec<u8> {
    frame(PING, 0, 0, &[7; 8])
}

pub(crate) fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(
        GOAWAY,
        0,
        0,
        &[last.to_be_bytes(), code.to_be_bytes()].concat(),
    )
}

pub(crate) fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

/// Every field as a literal that enters no table.
pub(crate) fn headers(flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |t: &str| [&[u8::try_from(t.len()).unwrap()], t.as_bytes()].concat();
    let block: Vec<u8> = fields
        .iter()
        .flat_map(|(name, value)| [vec![0], text(name), text(value)].concat())
        .collect();
    frame(HEADERS, END_HEADERS | flags, 1, &block)
}

pub(crate) fn head() -> Vec<u8> {
    headers(
        0,
        &[(":status", "200"), ("content-type", "application/grpc")],
    )
}

pub(crate) fn message(flag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    frame(DATA, 0, 1, &[&[flag], &length[..], body].concat())
}

pub(crate) fn trailers(status: &str, text: &str) -> Vec<u8> {
    headers(
        END_STREAM,
        &[("grpc-status", status), ("grpc-message", text)],
    )
}

/// A whole answer with that serving status.
pub(crate) fn answer(serving: u8) -> Vec<u8> {
    [head(), message(0, &[8, serving]), trailers("0", "")].concat()
}

/// Kind, flags and payload of the next frame.
pub(crate) fn read_frame(s: &mut impl Read) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    s.read_exact(&mut head).ok()?;
    let mut payload =
        vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
    s.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], payload))
}

/// Reads the client's greeting, sends settings, and reads up to the end of the request: its body.
pub(crate) fn read_request(s: &mut (impl Read + Write)) -> Option<Vec<u8>> {
    s.read_exact(&mut [0; 24]).ok()?;
    s.write_all(&settings()).ok()?;
    loop {
        let (kind, flags, payload) = read_frame(s)?;
        if (kind == DATA || kind == HEADERS) && flags & END_STREAM != 0 {
            return Some(payload);
        }
    }
}

/// Answers one request with these bytes and waits for the client to end the connection.
pub(crate) fn serve(mut s: impl Read + Write, answer: &[u8]) {
    if read_request(&mut s).is_some() && s.write_all(answer).is_ok() {
        while read_frame(&mut s).is_some() {}
    }
}
