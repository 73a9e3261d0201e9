use super::*;

const LIMIT: usize = 20;

/// Reads an answer in pieces of `size` bytes. Returns its head, its body, and whether the body is complete.
fn read(answer: &[u8], size: usize) -> Result<Option<(Head, Vec<u8>, bool)>, String> {
    let (mut reader, mut body) = (HeadReader::default(), Vec::new());
    let mut pieces = answer.chunks(size);
    let (mut head, rest) = loop {
        let Some(piece) = pieces.next() else {
            return Ok(None);
        };
        if let Some(done) = reader.push(piece).map_err(|e| e.to_string())? {
            break done;
        }
    };
    let mut push = |piece| {
        let pushed = head.framing.push(piece, &mut body, LIMIT);
        pushed.map_err(|e| e.to_string())
    };
    let mut complete = push(rest)?;
    for piece in pieces {
        if complete {
            break;
        }
        complete = push(piece)?;
    }
    Ok(Some((head, body, complete)))
}

/// Checks an answer in pieces of every possible size.
#[track_caller]
fn each_size(answer: &str, check: impl Fn(Result<Option<(Head, Vec<u8>, bool)>, String>, usize)) {
    for size in (1..=answer.len()).rev() {
        check(read(answer.as_bytes(), size), size);
    }
}

#[track_caller]
fn check(answer: &str, status: u16, location: Option<&str>, body: &str, complete: bool) {
    each_size(answer, |got, size| {
        let (head, got, done) = got
            .unwrap_or_else(|e| panic!("{answer:?} by {size}: {e}"))
            .unwrap_or_else(|| panic!("no head"));
        let got = (
            head.status,
            head.location.as_deref(),
            String::from_utf8(got).unwrap(),
            done,
        );
        assert_eq!(
            got,
            (status, location, body.to_owned(), complete),
            "{answer:?} in pieces of {size}"
        );
    });
}

#[track_caller]
fn refused(answer: &str, expected: &str) {
    each_size(answer, |got, size| {
        let e = got
            .err()
            .unwrap_or_else(|| panic!("{answer:?} in pieces of {size} is taken"));
        assert!(e.contains(expected), "{answer:?} in pieces of {size}: {e}");
    });
}

#[test]
fn bodies_end_where_the_head_says() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        200,
        None,
        "ok",
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokay",
        200,
        None,
        "ok",
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\ncontent-length:3\r\nContent-Length: 3\r\n\r\nok",
        200,
        None,
        "ok",
        false,
    );
    check("HTTP/1.0 503 Oh no\r\n\r\nsome", 503, None, "some", false);
    check(
        "HTTP/1.1 200\nServer: x\n\nbare line feeds",
        200,
        None,
        "bare line feeds",
        false,
    );
    check(
        "HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n",
        204,
        None,
        "",
        true,
    );
    check(
        "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
        304,
        None,
        "",
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nmore than the limit takes",
        200,
        None,
        "more than the limit ",
        true,
    );
}

#[test]
fn chunks_are_put_together() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nContent-Length: 3\r\n\r\n";
    for (chunks, body, complete) in [
        ("0\r\n\r\n", "", true),
        ("3\r\nabc\r\n0\r\n\r\n", "abc", true),
        (
            "3\r\nabc\r\nA;name=\"v\"\r\n0123456789\r\n00\r\nTrailer: x\r\n\r\n",
            "abc0123456789",
            true,
        ),
        ("3 \r\nabc\r\n", "abc", false),
        ("5\nabcde\n0\n\n", "abcde", true),
        ("5\r\nab", "ab", false),
        (
            "ff\r\n0123456789012345678901234567890",
            "01234567890123456789",
            true,
        ),
    ] {
        check(&format!("{head}{chunks}"), 200, None, body, complete);
    }
    for (chunks, e) in [
        ("\r\n", "malformed chunked encoding"),
        (";x\r\n", "malformed chunked encoding"),
        ("g\r\n", "invalid byte in chunk length"),
        ("-1\r\n", "invalid byte in chunk length"),
        ("11111111111111111\r\n", "http chunk length too large"),
        ("1\r\nabc", "malformed chunked encoding"),
        ("1\r\na\r\r\n", "malformed chunked encoding"),
    ] {
        refused(&format!("{head}{chunks}"), e);
    }
    let endless = format!("{head}1;{}", "x".repeat(MAX_CHUNK_LINE));
    assert_eq!(
        read(endless.as_bytes(), 1024),
        Err("header line too long".into())
    );
}

#[test]
fn the_first_location_counts() {
    check(
        "HTTP/1.1 302 Found\r\nLOCATION: /a b \r\nLocation: /c\r\nContent-Length: 0\r\n\r\n",
        302,
        Some("/a b"),
        "",
        true,
    );
    check(
        "HTTP/1.1 302 Found\r\nLocation:\r\nContent-Length: 0\r\n\r\n",
        302,
        None,
        "",
        true,
    );
    check(
        "HTTP/1.1 200 OK\r\nX-A: b\r\n Location: /not\r\n\tthis\r\n\r\n",
        200,
        None,
        "",
        false,
    );
}

#[test]
fn informational_answers_are_passed_over() {
    let early =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\nLocation: /no\r\n\r\n";
    check(
        &format!("{early}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        200,
        None,
        "ok",
        true,
    );
    check("HTTP/1.1 101 Switching\r\n\r\n", 101, None, "", true);
    assert_eq!(read(early.as_bytes(), 7), Ok(None), "more is to come");
    let endless = early.repeat(MAX_HEAD / early.len() + 1);
    let e = read(format!("{endless}H").as_bytes(), 4096).unwrap_err();
    assert_eq!(
        e,
        "net/http: server response headers exceeded 131072 bytes; aborted"
    );
}

/// Kubelet-probes 3.4: bytes that are not an HTTP answer are refused with Go's error. Go reads the whole first line,
/// and checks the status code before the version.
#[test]
fn what_is_no_answer_is_refused() {
    refused(
        "SSH-2.0-OpenSSH_9.2\r\n",
        "malformed HTTP response \"SSH-2.0-OpenSSH_9.2\"",
    );
    refused("hello there\r\n", "malformed HTTP status code \"there\"");
    refused("\r\n\r\n", "malformed HTTP response \"\"");
    refused(
        "http/1.1 200 OK\r\n\r\n",
        "malformed HTTP version \"http/1.1\"",
    );
    refused("HTTP/1.1\r\n\r\n", "malformed HTTP response \"HTTP/1.1\"");
    refused(
        "HTTP/1.11 200 OK\r\n\r\n",
        "malformed HTTP version \"HTTP/1.11\"",
    );
    for code in ["20", "2000", "+20", "abc", ""] {
        refused(
            &format!("HTTP/1.1 {code}\r\n\r\n"),
            &format!("malformed HTTP status code \"{code}\""),
        );
    }
    refused(
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "malformed MIME header: missing colon: \"no colon\"",
    );
    refused(
        "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        "malformed MIME header line: : no name",
    );
    refused(
        "HTTP/1.1 200 OK\r\na(b): c\r\n\r\n",
        "malformed MIME header line: a(b): c",
    );
    refused(
        "HTTP/1.1 200 OK\r\n goes on\r\n\r\n",
        "malformed MIME header initial line:  goes on",
    );
    for length in ["-1", "+1", "x", "1 2", "99999999999999999999"] {
        refused(
            &format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
            &format!("bad Content-Length \"{length}\""),
        );
    }
    refused(
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
        "invalid empty Content-Length \"\"",
    );
    refused(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "http: message cannot contain multiple Content-Length headers; got [\"1\" \"2\"]",
    );
    refused(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "unsupported transfer encoding: \"gzip\"",
    );
    refused(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "unsupported transfer encoding: \"gzip, chunked\"",
    );
    refused(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "too many transfer encodings: [\"chunked\" \"chunked\"]",
    );
}

/// A header line with a space before the colon is accepted, and its field is ignored, as in Go. A small embedded server
/// writes `Name : value`.
#[test]
fn a_space_before_the_colon_is_taken() {
    check(
        "HTTP/1.1 200 OK\r\nContent-Type : text/plain\r\nContent-Length: 2\r\n\r\nok",
        200,
        None,
        "ok",
        true,
    );
    check(
        "HTTP/1.1 302 Found\r\nLocation : /a\r\nContent-Length : 1\r\n\r\nok",
        302,
        None,
        "ok",
        false,
    );
}

#[test]
fn a_status_line_may_have_any_version() {
    for version in ["0.9", "1.0", "1.1", "2.0", "9.9"] {
        let answer = format!("HTTP/{version} 200 OK\r\nContent-Length: 2\r\n\r\nok");
        check(&answer, 200, None, "ok", true);
    }
    // A transfer encoding has an effect only from HTTP/1.1 on.
    let chunks = "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    check(&format!("HTTP/2.0 200\r\n{chunks}"), 200, None, "a", true);
    check(
        &format!("HTTP/1.0 200\r\n{chunks}"),
        200,
        None,
        "1\r\na\r\n0\r\n\r\n",
        false,
    );
}

#[test]
fn a_control_character_in_a_value_is_refused() {
    for bad in ["\0", "\x01", "\x1f", "\x7f", "a\rb"] {
        refused(
            &format!("HTTP/1.1 200 OK\r\nX-A: a{bad}b\r\n\r\n"),
            "malformed MIME header line: X-A: a",
        );
        refused(
            &format!("HTTP/1.1 200 OK\r\nX-A: a\r\n on{bad}e\r\n\r\n"),
            "malformed MIME header line",
        );
    }
    check(
        "HTTP/1.1 204 OK\r\nX-A: tab\tand é\r\n\r\n",
        204,
        None,
        "",
        true,
    );
}

/// The error for an answer that is cut off names its first line if that line is wrong. As in Go, the line counts
/// without a line end.
#[test]
fn an_answer_that_is_cut_off_says_what_is_wrong() {
    let cut_off = |bytes: &[u8]| {
        let mut reader = HeadReader::default();
        assert_eq!(reader.push(bytes), Ok(None), "more may come");
        reader.cut_off().to_string()
    };
    // The alert of a TLS server.
    assert_eq!(
        cut_off(b"\x15\x03\x01\0\x02\x02\x16"),
        r#"malformed HTTP response "\x15\x03\x01\x00\x02\x02\x16""#
    );
    assert_eq!(cut_off(b"HTTP/1.1 200 OK"), "unexpected EOF");
    assert_eq!(cut_off(b"HTTP/1.1 200 OK\r\nA: b\r\n"), "unexpected EOF");
    assert_eq!(
        cut_off(b"HTTP/1.1 100 Go on\r\n\r\n"),
        "unexpected EOF",
        "between two answers"
    );
}

#[test]
fn a_head_is_bounded_and_takes_time_that_grows_with_its_length() {
    let head = |n: usize| format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "y".repeat(n));
    assert!(
        read(head(MAX_HEAD - 200).as_bytes(), 1024)
            .unwrap()
            .is_some()
    );
    let e = read(head(MAX_HEAD + 1024).as_bytes(), 1024).unwrap_err();
    assert_eq!(
        e,
        "net/http: server response headers exceeded 131072 bytes; aborted"
    );
    // The head comes in pieces of one byte. If the reader looked at all kept bytes for each piece, this test would take
    // ten billion steps.
    assert!(read(head(MAX_HEAD - 200).as_bytes(), 1).unwrap().is_some());
}

#[test]
fn a_request_is_written_in_one_piece() {
    let mut head = RequestHead::new("/a", Some("b=c"));
    head.header("Host", "h:1").unwrap();
    head.header("X-Empty", "").unwrap();
    head.header("X-Odd", "tab\tand é").unwrap();
    assert_eq!(
        head.finish(),
        "GET /a?b=c HTTP/1.1\r\nHost: h:1\r\nX-Empty: \r\nX-Odd: tab\tand é\r\n\r\n"
    );
    assert_eq!(
        RequestHead::new("", None).finish(),
        "GET / HTTP/1.1\r\n\r\n"
    );
}

#[test]
fn no_header_can_bring_another() {
    let mut head = RequestHead::new("/", None);
    for value in ["a\r\nHost: evil", "a\nb", "a\rb", "\0", "\x7f"] {
        assert_eq!(head.header("X-A", value), Err("value for"), "{value:?}");
    }
    for name in ["", "a b", "a:", "a\r\nb", "é"] {
        assert_eq!(head.header(name, "v"), Err("name"), "{name:?}");
    }
    assert_eq!(head.finish(), "GET / HTTP/1.1\r\n\r\n");
}
