//! A registry made of a few maps, which answers as a test wants it: also as no honest one does.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program takes what it needs"
)]

use std::collections::BTreeMap;
use std::io::Write;

pub(crate) use super::http_server::{Reply, Request, Server};
use serde_json::{Value, json};

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex = digest.as_ref().iter().map(|b| format!("{b:02x}"));
    format!("sha256:{}", hex.collect::<String>())
}

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Bytes that do not compress.
pub(crate) fn noise(n: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(n);
    out
}

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

/// A zstd frame of raw blocks, as no compressor is linked, with a window of 1 MiB.
pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd_in_window(bytes, 20)
}

/// The same with a window of two to the power of `log` bytes.
pub(crate) fn zstd_in_window(bytes: &[u8], log: u8) -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (log - 10) << 3];
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

    /// Of zstd's media type; `stored` is `plain` compressed.
    pub(crate) fn zstd(plain: &[u8], stored: Vec<u8>) -> Self {
        Self {
            media_type: OCI_LAYER.replace("gzip", "zstd"),
            stored,
            diff_id: sha256(plain),
        }
    }

    /// Not compressed.
    pub(crate) fn plain(plain: Vec<u8>) -> Self {
        Self {
            media_type: OCI_LAYER.replace("+gzip", ""),
            diff_id: sha256(&plain),
            stored: plain,
        }
    }

    /// With busybox as its shell.
    pub(crate) fn shell() -> Self {
        let program = std::fs::read("/bin/busybox").unwrap();
        let mut all = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_size(program.len() as u64);
        header.set_mode(0o755);
        all.append_data(&mut header, "bin/sh", program.as_slice())
            .unwrap();
        Self::gzip(&all.into_inner().unwrap())
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

    /// A registry that gives half of that layer, and then nothing for as long as the client waits.
    pub(crate) fn stuck_in(self, layer: &Layer) -> Server {
        let digest = layer.digest();
        Server::new(move |request| {
            let reply = self.answer(request);
            if !request.path.ends_with(&digest) {
                return reply;
            }
            let half = reply.body.len() / 2;
            Reply {
                hangs: true,
                ..reply.cut(half)
            }
        })
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
