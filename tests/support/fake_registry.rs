//! A registry made of a listening socket and a few maps, which answers as a test wants it: also as no honest one does.
#![allow(dead_code, reason = "each test program takes what it needs")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

/// A ceiling for everything that a server waits for.
const CEILING: Duration = Duration::from_secs(30);

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex = digest.as_ref().iter().map(|b| format!("{b:02x}"));
    format!("sha256:{}", hex.collect::<String>())
}

/// One request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let mut words = line.split_whitespace().map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok().filter(|n| *n > 0)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_lowercase(), value.to_owned());
        }
        let length = headers.get("content-length").and_then(|l| l.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        lines.read_exact(&mut body).ok()?;
        let body = String::from_utf8_lossy(&body).into_owned();
        Some(Self {
            method,
            path,
            headers,
            body,
        })
    }
}

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The length to say instead of the body's; None says no length at all.
    pub(crate) length: Option<usize>,
    /// After the body the connection stays open and silent until the server ends.
    pub(crate) hangs: bool,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            status,
            headers: Vec::new(),
            length: Some(body.len()),
            body,
            hangs: false,
        }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Only the first `n` bytes of what it says to have.
    pub(crate) fn cut(mut self, n: usize) -> Self {
        self.body.truncate(n);
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server; dropping it ends its threads.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stop) = (
            Arc::<Mutex<Vec<Request>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (seen, ended) = (requests.clone(), stop.clone());
        let handler: Arc<Handler> = Arc::new(handler);
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let (handler, seen, ended) = (handler.clone(), seen.clone(), ended.clone());
                let stream = stream.unwrap();
                threads.push(std::thread::spawn(move || {
                    serve(&stream, &*handler, &seen, &ended)
                }));
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        Self {
            address,
            requests,
            stop,
            thread: Some(thread),
        }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// How many requests had this in their path.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.requests()
            .iter()
            .filter(|r| r.path.contains(part))
            .count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|r| r.is_ok()));
    }
}

fn serve(stream: &TcpStream, handler: &Handler, seen: &Mutex<Vec<Request>>, ended: &AtomicBool) {
    stream.set_read_timeout(Some(CEILING)).unwrap();
    stream.set_write_timeout(Some(CEILING)).unwrap();
    let Some(request) = Request::read(stream) else {
        return;
    };
    seen.lock().unwrap().push(request.clone());
    let reply = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if let Some(length) = reply.length {
        head += &format!("content-length: {length}\r\n");
    }
    head += "\r\n";
    let mut out = stream;
    // The client may have gone.
    let _ = out
        .write_all(head.as_bytes())
        .and_then(|()| out.write_all(&reply.body));
    let mut left = CEILING;
    let step = Duration::from_millis(20);
    stream.set_read_timeout(Some(step)).unwrap();
    // until the client or the test ends
    while reply.hangs && !ended.load(Ordering::SeqCst) && !left.is_zero() {
        if matches!(out.read(&mut [0]), Ok(0)) {
            break;
        }
        left = left.saturating_sub(step);
    }
    let _ = stream.shutdown(Shutdown::Both);
}

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A tar of one file.
pub(crate) fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let mut all = header.as_bytes().to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    all
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A zstd frame of raw blocks, as no compressor is linked.
pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    // window descriptor: 1 MiB
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3];
    let blocks: Vec<&[u8]> = bytes.chunks(100_000).collect();
    for (n, block) in blocks.iter().enumerate() {
        let last = u32::from(n + 1 == blocks.len());
        let header = (u32::try_from(block.len()).unwrap() << 3) | last;
        out.extend_from_slice(&header.to_le_bytes()[..3]);
        out.extend_from_slice(block);
    }
    out
}

/// A layer: how it is stored, and what it unpacks to.
#[derive(Clone)]
pub(crate) struct Layer {
    pub(crate) media_type: String,
    pub(crate) stored: Vec<u8>,
    pub(crate) diff_id: String,
}

impl Layer {
    pub(crate) fn gzip(plain: &[u8]) -> Self {
        Self {
            media_type: OCI_LAYER.into(),
            stored: gzip(plain),
            diff_id: sha256(plain),
        }
    }

    pub(crate) fn digest(&self) -> String {
        sha256(&self.stored)
    }
}

pub(crate) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": sha256(bytes), "size": bytes.len()})
}

/// What a registry has: documents by tag and digest, blobs by digest.
#[derive(Clone, Default)]
pub(crate) struct Content {
    pub(crate) manifests: BTreeMap<String, (String, Vec<u8>)>,
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
}

impl Content {
    /// Adds an image for this machine, and returns its manifest.
    pub(crate) fn image(&mut self, tag: &str, layers: &[Layer]) -> Value {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let diff_ids: Vec<&str> = layers.iter().map(|l| l.diff_id.as_str()).collect();
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {"Cmd": ["/x"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = config.to_string().into_bytes();
        let of_layers = layers.iter().map(|l| descriptor(&l.media_type, &l.stored));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": descriptor(OCI_CONFIG, &config), "layers": of_layers.collect::<Vec<_>>(),
        });
        self.blobs.insert(sha256(&config), config);
        for layer in layers {
            self.blobs.insert(layer.digest(), layer.stored.clone());
        }
        self.document(tag, OCI_MANIFEST, &manifest);
        manifest
    }

    /// Adds a document under its tag and its digest, which is returned.
    pub(crate) fn document(&mut self, tag: &str, media_type: &str, document: &Value) -> String {
        let bytes = document.to_string().into_bytes();
        let digest = sha256(&bytes);
        for name in [tag, &digest] {
            self.manifests
                .insert(name.to_owned(), (media_type.to_owned(), bytes.clone()));
        }
        digest
    }

    /// The answer of an honest registry, which knows ranges.
    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let last = request.path.rsplit('/').next().unwrap_or_default();
        if request.path.contains("/manifests/") {
            return match self.manifests.get(last) {
                Some((kind, bytes)) => Reply::new(200, bytes.clone())
                    .with("content-type", kind)
                    .with("docker-content-digest", sha256(bytes)),
                None => Reply::new(
                    404,
                    r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
                ),
            };
        }
        let Some(blob) = self.blobs.get(last) else {
            return Reply::new(404, "");
        };
        let from = request.header("range").strip_prefix("bytes=");
        let from: Option<usize> = from.and_then(|r| r.strip_suffix('-')?.parse().ok());
        match from {
            Some(from) => Reply::new(206, &blob[from..]).with(
                "content-range",
                format!("bytes {from}-{}/{}", blob.len() - 1, blob.len()),
            ),
            None => Reply::new(200, blob.clone()),
        }
    }
}
