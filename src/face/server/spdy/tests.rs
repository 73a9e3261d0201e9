use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::*;

/// Bytes that a client of an API server sent to a kubelet for one connection to port 8080: an error stream that it ends
/// at once, and a data stream with a request of which the first byte is here.
const RECORDED: &str = "80030001000000430000000100000000000078f9e3c6a7c2626060608694bf452520dac2c0c280818181b308125f\
99290c0c0c8c06e0945852949a980b2d6c58538b8af28b00000000ffff0000000101000000800300010000001b00000003000000000000826a46\
956249492c49246c24000000ffff000000030000000147";

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(pair).collect()
}

fn opened(stream: u32, kind: &str) -> Frame {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Frame::Open {
        stream,
        headers: vec![
            header("port", "8080"),
            header("requestid", "0"),
            header("streamtype", kind),
        ],
        ends: false,
    }
}

fn data(stream: u32, bytes: &[u8], ends: bool) -> Frame {
    Frame::Data {
        stream,
        bytes: bytes.to_vec(),
        ends,
    }
}

/// Returns the SYN_STREAM of a connection's first stream, with these bytes as its headers.
pub fn first_stream(headers: &[u8]) -> Vec<u8> {
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::best());
    deflate.write_all(headers).unwrap();
    deflate.flush().unwrap();
    let head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x78, 0xf9];
    let block = deflate.get_ref();
    control(SYN_STREAM, &[&head[..], &DICTIONARY_ID, block].concat())
}

#[test]
fn the_recorded_frames_of_a_client_are_read_however_they_are_cut() {
    let expected = [
        opened(1, "error"),
        data(1, b"", true),
        opened(3, "data"),
        data(3, b"G", false),
    ];
    let bytes = bytes_of(RECORDED);
    for size in [1, 2, 7, 64, bytes.len()] {
        let mut reader = Reader::default();
        let pieces = bytes.chunks(size);
        let mut frames: Vec<Frame> = pieces.flat_map(|p| reader.read(p).unwrap()).collect();
        for frame in &mut frames {
            // The client writes its headers in any order.
            if let Frame::Open { headers, .. } = frame {
                headers.sort();
            }
        }
        assert_eq!(frames, expected, "pieces of {size} bytes");
    }
}

#[test]
fn the_recorded_frames_of_a_kubelet_are_written() {
    let mut writer = Writer::default();
    let first = "80030002000000140000000178f9e3c6a7c26260606000000000ffff";
    assert_eq!(writer.reply(1), bytes_of(first));
    assert_eq!(
        writer.reply(3),
        bytes_of("800300020000000c00000003026100000000ffff")
    );
    assert_eq!(writer.data(3, b"", true), bytes_of("0000000301000000"));
    assert_eq!(
        writer.data(3, b"hello\n", false),
        bytes_of("000000030000000668656c6c6f0a")
    );
}

#[test]
fn every_reply_has_no_headers() {
    let (mut writer, mut reader) = (Writer::default(), Reader::default());
    for stream in 0..50 {
        let reply = writer.reply(2 * stream + 1);
        assert_eq!(reader.headers.read(&reply[HEAD + 4..]), Ok(Vec::new()));
    }
}

#[test]
fn pings_resets_and_the_end_are_read_and_the_rest_is_skipped() {
    let mut reader = Reader::default();
    let writer = Writer::default();
    let all = [
        writer.ping(7),
        control(4, &[0; 12]),
        writer.reset(3, CANCEL),
        control(9, &[0; 8]),
        control(GOAWAY, &[0; 8]),
        control(99, b"?"),
    ];
    let expected = [Frame::Ping(7), Frame::Reset { stream: 3 }, Frame::GoAway];
    assert_eq!(reader.read(&all.concat()).unwrap(), expected);
}

#[track_caller]
fn check_refused(bytes: &[u8], why: SpdyError) {
    assert_eq!(Reader::default().read(bytes), Err(why));
}

#[test]
fn frames_that_break_the_protocol_end_the_connection() {
    check_refused(b"\x80\x02\0\x01\0\0\0\0", SpdyError::Version(2));
    check_refused(b"\x80\x03\0\x04\0\xff\0\0", SpdyError::TooLong(0xff_0000));
    check_refused(&control(PING, b"abc"), SpdyError::TooShort(PING));
    check_refused(
        &control(SYN_STREAM, b"abc"),
        SpdyError::TooShort(SYN_STREAM),
    );
    let no_dictionary = [&[0; 10][..], b"\x78\x9c\0\0\0\0\0"].concat();
    check_refused(
        &control(SYN_STREAM, &no_dictionary),
        SpdyError::Headers("the dictionary is not the one of SPDY/3"),
    );
    let cut = SpdyError::Headers("they are cut off");
    check_refused(&first_stream(b""), cut.clone());
    check_refused(&first_stream(b"\0\0\0\x01\0\0\0\x05port"), cut.clone());
    check_refused(&first_stream(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]), cut);
    let many = SpdyError::Headers("they are too many");
    check_refused(&first_stream(&[0, 0, 0, 33]), many);
}

#[test]
fn a_decompression_bomb_ends_the_connection() {
    let bomb = first_stream(&vec![0; 8 << 20]);
    assert!(bomb.len() < MAX_CONTROL, "{}", bomb.len());
    check_refused(&bomb, SpdyError::Headers("they are too long"));
}

#[test]
fn data_is_passed_on_and_not_held() {
    let mut reader = Reader::default();
    reader.read(b"\0\0\0\x03\x01\xff\xff\xff").unwrap();
    for _ in 0..255 {
        let frames = reader.read(&[b'x'; 1 << 16]).unwrap();
        assert_eq!(frames, [data(3, &[b'x'; 1 << 16], false)]);
        assert_eq!(reader.held.capacity(), 0);
    }
    let frames = reader.read(&[b'y'; 1 << 16]).unwrap();
    assert_eq!(frames[0], data(3, &[b'y'; 0xffff], true));
}

#[test]
fn no_bytes_make_a_reader_panic_or_grow() {
    let recorded = bytes_of(RECORDED);
    let mut seed = 1_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed as usize
    };
    for _ in 0..2_000 {
        let mut bytes = recorded.repeat(2);
        for _ in 0..random() % 8 {
            let at = random() % bytes.len();
            bytes[at] = random() as u8;
        }
        let mut reader = Reader::default();
        for piece in bytes.chunks(1 + random() % 40) {
            let Ok(frames) = reader.read(piece) else {
                break;
            };
            assert!(frames.len() <= piece.len());
            assert!(reader.held.len() <= HEAD + MAX_CONTROL);
        }
    }
}
