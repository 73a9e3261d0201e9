//! Decides which image a registry offers for this machine. Reads manifests and indexes with the media types of docker
//! and OCI.
//!
//! Invariants: a document is either an index or a manifest, by its media type and by its fields. A document that is
//! both, or that has contradicting media types, is refused (CVE-2021-41190). The size of each document is exactly that
//! of its descriptor.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::http_client::{FetchError, quoted};
use crate::base::json;
use crate::engine::images::config::Platform;
use crate::engine::images::overlay;
use crate::engine::images::reference::is_digest;

/// Largest number of entries that an index may have.
const MAX_ENTRIES: usize = 1024;

pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";

/// A reference to a document or a layer, with its digest and its size in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

/// The manifest of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) config: Descriptor,
    /// The layers, bottom first.
    pub(super) layers: Vec<Descriptor>,
}

/// A document of a registry, found by a digest or a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

/// Reason why the documents of a registry lead to no image for this machine.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestError {
    /// The document is not JSON of the expected form.
    #[error("the manifest is not one: {0}")]
    Syntax(#[from] serde_json::Error),
    /// The document is a manifest of the old schema 1.
    #[error(
        "it is an image of schema 1, which docker gave up in 2019; push it again with a current tool"
    )]
    Schema1,
    /// The document has the fields of an index and of a manifest.
    #[error("the manifest is an index and a manifest at the same time")]
    TwoKinds,
    /// The registry, or the document itself, gives a manifest the media type of an index, or an index that of a
    /// manifest.
    #[error("the registry says {} of a document that is not that", quoted(.0))]
    OtherKind(String),
    /// The document's own media type shows that the document is not an image.
    #[error("the manifest has the media type {}, which is no image", quoted(.0))]
    NoImage(String),
    /// The document is a manifest that names no configuration.
    #[error("the manifest names no configuration")]
    NoConfig,
    /// The index has too many entries.
    #[error("the index has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
    /// The image has more layers than overlayfs can mount.
    #[error("the image has {0} layers; at most {most} can be mounted", most = overlay::MAX_LAYERS)]
    TooManyLayers(usize),
    /// The media type of the configuration shows that the image is not a container image.
    #[error("it is not a container image: its configuration is {}", quoted(.0))]
    NoContainerImage(String),
    /// A digest is not sha256, or does not have the form of a digest.
    #[error("the digest {} is not sha256", quoted(.0))]
    Digest(String),
    /// The media type of a layer says that the registry must not give it out.
    #[error("a layer is {}: a foreign layer, which the registry must not give out", quoted(.0))]
    ForeignLayer(String),
    /// The media type of a layer is not one that podprobe knows.
    #[error("a layer has the media type {}, which podprobe does not know", quoted(.0))]
    UnknownLayer(String),
    /// The index has no entry that runs on this machine.
    #[error("it is not made for {host}, only for {}", platforms(.found))]
    NotForHost {
        host: Platform,
        /// The platforms of the images in the index.
        found: Vec<Platform>,
    },
}

impl From<ManifestError> for FetchError {
    fn from(e: ManifestError) -> Self {
        Self::failed(e.to_string())
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Raw {
    schema_version: u64,
    media_type: String,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Index,
    Manifest,
    Schema1,
    Unknown,
}

fn kind(media_type: &str) -> Kind {
    match media_type {
        "application/vnd.oci.image.index.v1+json"
        | "application/vnd.docker.distribution.manifest.list.v2+json" => Kind::Index,
        "application/vnd.oci.image.manifest.v1+json"
        | "application/vnd.docker.distribution.manifest.v2+json" => Kind::Manifest,
        t if t.starts_with("application/vnd.docker.distribution.manifest.v1+") => Kind::Schema1,
        _ => Kind::Unknown,
    }
}

/// Parses a document. `content_type` is the media type in the header of the registry's answer, or in the descriptor
/// that led to the document.
pub(super) fn parse(content_type: &str, bytes: &[u8]) -> Result<Document, ManifestError> {
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let raw: Raw = json::from_slice(bytes)?;
    let kinds = [kind(content_type), kind(&raw.media_type)];
    if kinds.contains(&Kind::Schema1) || raw.schema_version == 1 || raw.fs_layers.is_some() {
        return Err(ManifestError::Schema1);
    }
    if raw.manifests.is_some() && (raw.layers.is_some() || raw.config.is_some()) {
        return Err(ManifestError::TwoKinds);
    }
    let is = match raw.manifests.is_some() {
        true => Kind::Index,
        false => Kind::Manifest,
    };
    for (given, said) in kinds.iter().zip([content_type, &raw.media_type]) {
        if *given != Kind::Unknown && *given != is {
            return Err(ManifestError::OtherKind((*said).to_owned()));
        }
    }
    if kinds[1] == Kind::Unknown && !raw.media_type.is_empty() {
        return Err(ManifestError::NoImage(raw.media_type));
    }
    match (raw.manifests, raw.config) {
        (Some(entries), _) => index(entries),
        (None, Some(config)) => manifest(config, raw.layers.unwrap_or_default()),
        (None, None) => Err(ManifestError::NoConfig),
    }
}

fn index(entries: Vec<Descriptor>) -> Result<Document, ManifestError> {
    if entries.len() > MAX_ENTRIES {
        return Err(ManifestError::TooManyEntries);
    }
    Ok(Document::Index(entries))
}

fn manifest(config: Descriptor, layers: Vec<Descriptor>) -> Result<Document, ManifestError> {
    if layers.len() > overlay::MAX_LAYERS {
        return Err(ManifestError::TooManyLayers(layers.len()));
    }
    match config.media_type.as_str() {
        "application/vnd.oci.image.config.v1+json"
        | "application/vnd.docker.container.image.v1+json" => {}
        other => return Err(ManifestError::NoContainerImage(other.to_owned())),
    }
    std::iter::once(&config)
        .chain(&layers)
        .try_for_each(checked)?;
    layers
        .iter()
        .try_for_each(|layer| compression(&layer.media_type).map(drop))?;
    Ok(Document::Manifest(Manifest { config, layers }))
}

fn checked(descriptor: &Descriptor) -> Result<(), ManifestError> {
    match is_digest(&descriptor.digest) {
        true => Ok(()),
        false => Err(ManifestError::Digest(descriptor.digest.clone())),
    }
}

/// The compression of a layer, as its media type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// Returns the compression of a layer. Fails if a layer of this media type cannot be pulled.
pub(super) fn compression(media_type: &str) -> Result<Compression, ManifestError> {
    let foreign = media_type.contains(".nondistributable.") || media_type.contains(".foreign.");
    if foreign {
        return Err(ManifestError::ForeignLayer(media_type.to_owned()));
    }
    Ok(match media_type {
        "application/vnd.oci.image.layer.v1.tar"
        | "application/vnd.docker.image.rootfs.diff.tar" => Compression::Plain,
        "application/vnd.oci.image.layer.v1.tar+gzip"
        | "application/vnd.docker.image.rootfs.diff.tar.gzip" => Compression::Gzip,
        "application/vnd.oci.image.layer.v1.tar+zstd"
        | "application/vnd.docker.image.rootfs.diff.tar.zstd" => Compression::Zstd,
        other => return Err(ManifestError::UnknownLayer(other.to_owned())),
    })
}

/// Returns the entry of an index that runs best on this machine. If no entry runs on this machine, the error lists the
/// platforms in the index.
pub(super) fn choose<'a>(
    entries: &'a [Descriptor],
    host: &Platform,
) -> Result<&'a Descriptor, ManifestError> {
    // An attestation of BuildKit is not an image.
    let images = entries.iter().filter(|e| {
        let unknown = |p: &Platform| p.os == "unknown";
        !e.platform.as_ref().is_some_and(unknown)
    });
    let images: Vec<&Descriptor> = images.collect();
    let fits = |e: &Descriptor| match &e.platform {
        Some(platform) => platform.fits(host),
        None => Some(0),
    };
    let fitting = images.iter().filter_map(|e| Some((fits(e)?, *e)));
    let best = fitting.reduce(|a, b| if b.0 > a.0 { b } else { a });
    match best {
        Some((_, entry)) => checked(entry).map(|()| entry),
        None => Err(ManifestError::NotForHost {
            host: host.clone(),
            found: images.iter().filter_map(|e| e.platform.clone()).collect(),
        }),
    }
}

fn platforms(found: &[Platform]) -> String {
    const MOST: usize = 20;
    let mut names: Vec<String> = found
        .iter()
        .map(|p| quoted(&p.to_string()).trim_matches('"').to_owned())
        .collect();
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    match (names.is_empty(), more) {
        (true, _) => "nothing: the index is empty".to_owned(),
        (_, 0) => names.join(", "),
        (_, more) => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";

    fn descriptor(media_type: &str) -> Value {
        let digest = format!("sha256:{}", "0".repeat(64));
        json!({"mediaType": media_type, "digest": digest, "size": 3})
    }

    fn image(config: &str, layer: &str) -> Value {
        json!({"schemaVersion": 2, "config": descriptor(config), "layers": [descriptor(layer)]})
    }

    const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

    #[track_caller]
    fn check(content_type: &str, document: &Value, expected: Result<usize, &str>) {
        let got = parse(content_type, document.to_string().as_bytes());
        match (got, expected) {
            (Ok(Document::Manifest(m)), Ok(n)) => assert_eq!(m.layers.len(), n),
            (Ok(Document::Index(entries)), Ok(n)) => assert_eq!(entries.len(), n),
            (Err(e), Err(why)) => assert!(e.to_string().contains(why), "{e}"),
            (got, expected) => panic!("{got:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn images_of_docker_and_oci_are_read() {
        check(OCI, &image(CONFIG, LAYER), Ok(1));
        check(
            &format!("{OCI}; charset=utf-8"),
            &image(CONFIG, LAYER),
            Ok(1),
        );
        let docker = image(
            "application/vnd.docker.container.image.v1+json",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
        );
        check(
            "application/vnd.docker.distribution.manifest.v2+json",
            &docker,
            Ok(1),
        );
        check("text/plain", &docker, Ok(1));
        check(
            INDEX,
            &json!({"schemaVersion": 2, "manifests": [descriptor(OCI)]}),
            Ok(1),
        );
    }

    #[test]
    fn what_is_no_image_is_named() {
        check(
            OCI,
            &image("application/vnd.cncf.helm.config.v1+json", LAYER),
            Err("not a container image: its configuration is \"application/vnd.cncf.helm"),
        );
        check(
            OCI,
            &image(
                CONFIG,
                "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
            ),
            Err("foreign layer"),
        );
        check(
            OCI,
            &image(
                CONFIG,
                "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
            ),
            Err("foreign layer"),
        );
        check(
            OCI,
            &image(CONFIG, "application/x-7z"),
            Err("\"application/x-7z\", which podprobe does not know"),
        );
        check(
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            &json!({"schemaVersion": 1, "fsLayers": []}),
            Err("schema 1"),
        );
        check("", &json!({"schemaVersion": 1}), Err("schema 1"));
        check(OCI, &json!({"schemaVersion": 2}), Err("no configuration"));
        let many = json!({"config": descriptor(CONFIG), "layers": vec![descriptor(LAYER); 2000]});
        check(OCI, &many, Err("2000 layers"));
        check(
            INDEX,
            &json!({"manifests": vec![descriptor(OCI); 1025]}),
            Err("1024 entries"),
        );
        let mut md5 = image(CONFIG, LAYER);
        md5["layers"][0]["digest"] = json!("md5:0");
        check(OCI, &md5, Err("the digest \"md5:0\" is not sha256"));
    }

    #[test]
    fn a_document_is_one_thing_only() {
        check(
            INDEX,
            &image(CONFIG, LAYER),
            Err("a document that is not that"),
        );
        let mut both = image(CONFIG, LAYER);
        both["manifests"] = json!([descriptor(OCI)]);
        check(OCI, &both, Err("at the same time"));
        let mut lies = image(CONFIG, LAYER);
        lies["mediaType"] = json!(INDEX);
        check(OCI, &lies, Err("a document that is not that"));
        lies["mediaType"] = json!("application/x");
        check(OCI, &lies, Err("which is no image"));
    }

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform {
            os: next(),
            architecture: next(),
            variant: next(),
        }
    }

    #[track_caller]
    fn check_choice(there: &[&str], host: &str, expected: Result<usize, &str>) {
        let entries: Vec<Descriptor> = there
            .iter()
            .map(|text| Descriptor {
                digest: format!("sha256:{}", "0".repeat(64)),
                platform: (!text.is_empty()).then(|| platform(text)),
                ..Descriptor::default()
            })
            .collect();
        let chosen = choose(&entries, &platform(host));
        let at = chosen.map(|c| entries.iter().position(|e| std::ptr::eq(e, c)).unwrap());
        let at = at.map_err(|e| e.to_string());
        assert_eq!(at, expected.map_err(str::to_owned), "{there:?} on {host}");
    }

    #[test]
    fn the_best_platform_is_chosen() {
        let there = [
            "linux/arm/v5",
            "linux/arm/v7",
            "linux/arm/v6",
            "linux/arm64/v8",
            "linux/amd64",
            "unknown/unknown",
        ];
        check_choice(&there, "linux/arm/v7", Ok(1));
        check_choice(&there, "linux/arm/v6", Ok(2));
        check_choice(&there, "linux/amd64", Ok(4));
        check_choice(&there, "linux/arm64", Ok(3));
        let error = "it is not made for linux/riscv64, only for linux/amd64, linux/arm/v5, linux/arm/v6, linux/arm/v7, linux/arm64/v8";
        check_choice(&there, "linux/riscv64", Err(error));
        check_choice(&["", "linux/amd64"], "linux/amd64", Ok(1));
        check_choice(
            &[],
            "linux/amd64",
            Err("it is not made for linux/amd64, only for nothing: the index is empty"),
        );
    }

    #[test]
    fn random_manifests_are_refused() {
        for text in crate::random_texts::texts(5000, b"{}[]\":,configlayers0-1e\\\xff ") {
            let _ = parse("", text.as_bytes());
        }
        assert!(parse("", "[".repeat(1 << 20).as_bytes()).is_err());
        // Every document with one bit changed is parsed or refused.
        let good = image(CONFIG, LAYER).to_string().into_bytes();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let _ = parse(OCI, &bad);
            }
        }
    }
}
