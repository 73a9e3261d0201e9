//! Reads the images of an archive: an OCI layout if it has `index.json`, otherwise a docker archive with
//! `manifest.json`.
//!
//! Invariant: a document that is named by a digest is checked against this digest before it is used.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::config::{OciConfig, Platform};
use super::error::ImageError;
use super::overlay;
use super::reference::{Reference, is_digest, is_hex64};
use super::source::Source;
use super::stream::sha256;

use crate::base::json;

/// An image that was found in an archive.
pub(super) struct Found {
    /// Normalised names; never empty after [`read`].
    pub(super) names: Vec<String>,
    /// Id of the image: the digest of its configuration.
    pub(super) id: String,
    pub(super) config: OciConfig,
    /// Digests of the image's manifest and of the indexes that led to the manifest.
    pub(super) digests: Vec<String>,
    /// The files of the layers, bottom first. There are as many files as diff ids in the configuration.
    pub(super) layers: Vec<Blob>,
}

/// The file of a layer in the archive.
pub(super) struct Blob {
    pub(super) path: String,
    /// Digest of the file as it is stored; None if the archive does not name it. The diff id of the layer is checked in
    /// any case.
    pub(super) digest: Option<String>,
}

/// Largest number of documents in a chain of indexes that ends with a manifest. `index.json` itself does not count.
const MAX_NESTING: usize = 4;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Descriptor {
    #[serde(rename = "mediaType")]
    media_type: String,
    digest: String,
    annotations: std::collections::BTreeMap<String, String>,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    #[serde(default)]
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Rules by which the images of an archive get their names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming<'a> {
    /// The image name to which a bare tag belongs: `org.opencontainers.image.ref.name: "1.0"` in a layout called `app` is
    /// `app:1.0`.
    pub(super) stem: &'a str,
    /// A further name for the image. It is used only if the archive has a single image.
    pub(super) name: Option<&'a str>,
    /// True if the archive's only image is called `stem` when it has no other name.
    pub(super) fall_back: bool,
}

/// Returns the images of an archive, each with at least one name.
pub(super) fn read(source: &Source, naming: Naming<'_>) -> Result<Vec<Found>, ImageError> {
    let stem = naming.stem;
    let given = naming
        .name
        .map(|n| Reference::parse(n).map(|r| r.to_string()))
        .transpose()?;
    let mut found = if let Some(index) = source.document("index.json")? {
        read_oci(source, &index, stem)?
    } else if let Some(manifest) = source.document("manifest.json")? {
        read_docker(source, &manifest)?
    } else {
        let why = "it has neither index.json (OCI layout) nor manifest.json (docker save); a root file system goes in with `podprobe image import`";
        return Err(ImageError::NotAnImage {
            path: source.name(),
            why: why.into(),
        });
    };
    if found.is_empty() {
        return Err(ImageError::NotAnImage {
            path: source.name(),
            why: "it lists no image".into(),
        });
    }
    if let [only] = found.as_mut_slice() {
        only.names.extend(given);
        if only.names.is_empty() && naming.fall_back {
            only.names.push(Reference::parse(stem)?.to_string());
        }
    }
    match found.iter().any(|f| f.names.is_empty()) {
        true => Err(ImageError::NoName {
            archive: source.name(),
        }),
        false => Ok(found),
    }
}

fn parse<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, ImageError> {
    json::from_slice(bytes).map_err(|e| ImageError::corrupt(what, e.to_string()))
}

fn blob_path(digest: &str) -> Result<String, ImageError> {
    if is_digest(digest) {
        Ok(format!("blobs/sha256/{}", &digest["sha256:".len()..]))
    } else {
        Err(ImageError::corrupt(
            format!("digest {digest:?}"),
            "only sha256 digests are known",
        ))
    }
}

fn blob(source: &Source, digest: &str) -> Result<Vec<u8>, ImageError> {
    let what = || format!("blob {digest} of {}", source.name());
    let bytes = source
        .document(&blob_path(digest)?)?
        .ok_or_else(|| ImageError::corrupt(what(), "it is missing"))?;
    let is = sha256(&bytes);
    if is == digest {
        Ok(bytes)
    } else {
        Err(ImageError::corrupt(
            what(),
            format!("its content has digest {is}"),
        ))
    }
}

/// A manifest that is reached from an entry of index.json, directly or through further indexes.
struct Leaf {
    manifest: Manifest,
    platform: Platform,
    /// Digests by which the manifest can be named: first its own digest, then the digests of the indexes above the
    /// manifest.
    digests: Vec<String>,
    /// The bytes of the configuration, if they were read to find the platform.
    config: Option<Vec<u8>>,
}

fn read_oci(source: &Source, index: &[u8], stem: &str) -> Result<Vec<Found>, ImageError> {
    let index: Index = parse("index.json", index)?;
    let mut groups: Vec<(Vec<String>, Vec<Leaf>)> = Vec::new();
    for descriptor in &index.manifests {
        let names = names(descriptor, stem)?;
        let mut leaves = Vec::new();
        collect(source, descriptor, &[], &mut leaves)?;
        match groups.iter_mut().find(|g| g.0 == names) {
            Some(group) => group.1.extend(leaves),
            None => groups.push((names, leaves)),
        }
    }
    groups
        .into_iter()
        .filter(|(_, leaves)| !leaves.is_empty())
        .map(|(names, leaves)| choose(source, names, leaves))
        .collect()
}

fn names(descriptor: &Descriptor, stem: &str) -> Result<Vec<String>, ImageError> {
    let annotation = |key: &str| descriptor.annotations.get(key).filter(|v| !v.is_empty());
    let full = match (
        annotation("io.containerd.image.name"),
        annotation("org.opencontainers.image.ref.name"),
    ) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) if name.contains(['/', ':']) => name.clone(),
        (None, Some(tag)) => format!("{stem}:{tag}"),
        (None, None) => return Ok(Vec::new()),
    };
    Ok(vec![Reference::parse(&full)?.to_string()])
}

fn collect(
    source: &Source,
    descriptor: &Descriptor,
    above: &[String],
    leaves: &mut Vec<Leaf>,
) -> Result<(), ImageError> {
    // An attestation of BuildKit is not an image.
    if descriptor
        .platform
        .as_ref()
        .is_some_and(|p| p.os == "unknown")
    {
        return Ok(());
    }
    let index = descriptor.media_type.contains("image.index")
        || descriptor.media_type.contains("manifest.list");
    let runs = descriptor
        .platform
        .as_ref()
        .is_none_or(|p| p.fits(&Platform::host()).is_some());
    let digests: Vec<String> = std::iter::once(descriptor.digest.clone())
        .chain(above.iter().cloned())
        .collect();
    if digests.len() > MAX_NESTING {
        return Err(ImageError::corrupt(
            source.name(),
            format!("indexes nested more than {MAX_NESTING} deep"),
        ));
    }
    // A manifest for another platform is not read: a layout may hold only some of the platforms that its index lists.
    if !runs && !index {
        let manifest = Manifest {
            config: Descriptor::default(),
            layers: Vec::new(),
        };
        leaves.push(Leaf {
            manifest,
            platform: descriptor.platform.clone().unwrap_or_default(),
            digests,
            config: None,
        });
        return Ok(());
    }
    let bytes = blob(source, &descriptor.digest)?;
    if index {
        let index: Index = parse(&descriptor.digest, &bytes)?;
        return index
            .manifests
            .iter()
            .try_for_each(|d| collect(source, d, &digests, leaves));
    }
    let manifest: Manifest = parse(&descriptor.digest, &bytes)?;
    let (platform, config) = match &descriptor.platform {
        Some(platform) => (platform.clone(), None),
        None => {
            let bytes = blob(source, &manifest.config.digest)?;
            (OciConfig::parse(&bytes)?.platform(), Some(bytes))
        }
    };
    leaves.push(Leaf {
        manifest,
        platform,
        digests,
        config,
    });
    Ok(())
}

fn choose(source: &Source, names: Vec<String>, leaves: Vec<Leaf>) -> Result<Found, ImageError> {
    let host = Platform::host();
    let found = leaves.iter().map(|l| l.platform.to_string()).collect();
    let fitting = leaves
        .into_iter()
        .filter_map(|l| Some((l.platform.fits(&host)?, l)));
    // Takes the image that fits best. If two images fit equally well, takes the first of them.
    let best = fitting.reduce(|a, b| if b.0 > a.0 { b } else { a });
    let (_, leaf) = best.ok_or_else(|| ImageError::WrongPlatform {
        wanted: host.to_string(),
        found,
    })?;
    let bytes = match leaf.config {
        Some(bytes) => bytes,
        None => blob(source, &leaf.manifest.config.digest)?,
    };
    let layers = leaf.manifest.layers.into_iter().map(|d| {
        Ok(Blob {
            path: blob_path(&d.digest)?,
            digest: Some(d.digest),
        })
    });
    checked(
        source,
        names,
        &bytes,
        leaf.digests,
        layers.collect::<Result<_, ImageError>>()?,
    )
}

fn read_docker(source: &Source, manifest: &[u8]) -> Result<Vec<Found>, ImageError> {
    let images: Vec<DockerImage> = parse("manifest.json", manifest)?;
    images
        .into_iter()
        .map(|image| docker_image(source, image))
        .collect()
}

fn docker_image(source: &Source, image: DockerImage) -> Result<Found, ImageError> {
    let what = format!("{} of {}", image.config, source.name());
    let bytes = source
        .document(&image.config)?
        .ok_or_else(|| ImageError::corrupt(&what, "it is missing"))?;
    // The name of the configuration's file is its digest: `<hex>.json`, or `blobs/sha256/<hex>`.
    let called = image
        .config
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".json");
    let is = sha256(&bytes);
    if is_hex64(called) && is != format!("sha256:{called}") {
        return Err(ImageError::corrupt(
            what,
            format!("its content has digest {is}"),
        ));
    }
    let names = image
        .repo_tags
        .unwrap_or_default()
        .into_iter()
        .map(|n| Ok(Reference::parse(&n)?.to_string()));
    let names = names.collect::<Result<_, ImageError>>()?;
    let layers = image
        .layers
        .into_iter()
        .map(|path| Blob { path, digest: None })
        .collect();
    checked(source, names, &bytes, Vec::new(), layers)
}

fn checked(
    source: &Source,
    names: Vec<String>,
    config: &[u8],
    digests: Vec<String>,
    layers: Vec<Blob>,
) -> Result<Found, ImageError> {
    let (id, config) = runnable(config, layers.len(), &source.name())?;
    Ok(Found {
        names,
        id,
        config,
        digests,
        layers,
    })
}

/// Returns the id and the parsed configuration of an image. Fails if the image is for another platform. Fails also if
/// `layers`, the number of the image's layers, is too large or is not that of the configuration.
pub(super) fn runnable(
    config: &[u8],
    layers: usize,
    what: &str,
) -> Result<(String, OciConfig), ImageError> {
    let id = sha256(config);
    let config = OciConfig::parse(config)?;
    let host = Platform::host();
    if config.platform().fits(&host).is_none() {
        return Err(ImageError::WrongPlatform {
            wanted: host.to_string(),
            found: vec![config.platform().to_string()],
        });
    }
    let (has, wants) = (layers, config.rootfs.diff_ids.len());
    if has != wants {
        return Err(ImageError::corrupt(
            what,
            format!("image {id} has {has} layers, its configuration {wants}"),
        ));
    }
    if wants > overlay::MAX_LAYERS {
        return Err(ImageError::TooLarge {
            what: format!("image {id}"),
            limit: format!("{} layers", overlay::MAX_LAYERS),
        });
    }
    Ok((id, config))
}

/// Returns the name of the file at `path` in lower case, without the ending of an archive. An image without a name can
/// be called by this name.
pub(super) fn stem(path: &Path) -> String {
    let absolute = fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let name = absolute
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    let endings = [".tar.gz", ".tar.zst", ".tgz", ".tar"];
    endings
        .iter()
        .find_map(|e| name.strip_suffix(e))
        .unwrap_or(&name)
        .to_owned()
}
