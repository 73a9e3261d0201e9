//! Finds the manifest and the configuration of the image for this machine, from a tag or a digest.
//!
//! Invariant: every document is checked against the digest and the size in the descriptor that led to it.

use super::bounds::{Bounds, MAX_CONFIG, MAX_MANIFEST};
use super::manifest::{self, ACCEPT, Descriptor, Document, Manifest};
use super::session::Session;
use crate::base::http_client::FetchError;
use crate::engine::images::archive::runnable;
use crate::engine::images::config::Platform;
use crate::engine::images::error::ImageError;
use crate::engine::images::reference::{Reference, is_digest};
use crate::engine::images::stream;

/// Largest number of documents in a chain of indexes that ends with a manifest.
const MAX_NESTING: usize = 4;

/// Turns an error of the store, or of a parser of the store, into a [`FetchError`].
pub(super) fn of_store(e: ImageError) -> FetchError {
    FetchError::failed(e.to_string())
}

/// An image with all its documents. The documents are complete and checked.
pub(super) struct Resolved {
    pub(super) manifest: Manifest,
    pub(super) id: String,
    pub(super) config: Vec<u8>,
    /// Digests of the uncompressed layers, bottom first.
    pub(super) diff_ids: Vec<String>,
    /// Digests of the manifest, which comes first, and of the indexes that led to the manifest.
    pub(super) digests: Vec<String>,
}

impl Resolved {
    /// Fetches the documents of an image from a registry, for the platform of this machine.
    pub(super) fn of(
        session: &Session,
        image: &Reference,
        bounds: Bounds,
    ) -> Result<Self, FetchError> {
        let mut expected = image.digest.clone().map(|digest| (digest, None));
        let mut digests = Vec::new();
        for _ in 0..MAX_NESTING {
            let tag = image.tag.as_deref().unwrap_or("latest");
            let by = expected.as_ref().map_or(tag, |(digest, _)| digest);
            let (content_type, bytes) = document(session, by, bounds)?;
            let digest = stream::sha256(&bytes);
            if let Some((wanted, size)) = &expected {
                check_document("manifest", wanted, *size, &digest, bytes.len() as u64)?;
            }
            digests.insert(0, digest);
            match manifest::parse(&content_type, &bytes)? {
                Document::Index(entries) => {
                    let entry = manifest::choose(&entries, &Platform::host())?;
                    expected = Some((entry.digest.clone(), Some(entry.size)));
                }
                Document::Manifest(manifest) => {
                    return Self::with_config(session, manifest, digests, bounds);
                }
            }
        }
        let text = format!("indexes are nested more than {MAX_NESTING} deep");
        Err(FetchError::failed(text))
    }

    fn with_config(
        session: &Session,
        manifest: Manifest,
        digests: Vec<String>,
        bounds: Bounds,
    ) -> Result<Self, FetchError> {
        let Descriptor { digest, size, .. } = &manifest.config;
        if *size > MAX_CONFIG {
            let text =
                format!("the image configuration has {size} bytes, at most {MAX_CONFIG} are read");
            return Err(FetchError::failed(text));
        }
        let answer = session.get(&format!("blobs/{digest}"), &[], Some(bounds.document))?;
        let config = answer.read_all(*size, "the image configuration")?;
        let is = stream::sha256(&config);
        check_document(
            "image configuration",
            digest,
            Some(*size),
            &is,
            config.len() as u64,
        )?;
        let (id, parsed) =
            runnable(&config, manifest.layers.len(), "the image").map_err(of_store)?;
        Ok(Self {
            id,
            diff_ids: parsed.rootfs.diff_ids,
            config,
            manifest,
            digests,
        })
    }
}

/// Fetches a manifest or an index. Returns its content type and its bytes.
fn document(session: &Session, by: &str, bounds: Bounds) -> Result<(String, Vec<u8>), FetchError> {
    let accept = [("accept", ACCEPT.to_owned())];
    let answer = session.get(&format!("manifests/{by}"), &accept, Some(bounds.document))?;
    let content_type = answer.header("content-type").to_owned();
    let said = answer.header("docker-content-digest").to_owned();
    let bytes = answer.read_all(MAX_MANIFEST, "the manifest")?;
    let is = stream::sha256(&bytes);
    if is_digest(&said) && said != is {
        let text =
            format!("the registry says that the manifest has digest {said}, and it has {is}");
        return Err(FetchError::failed(text));
    }
    Ok((content_type, bytes))
}

/// Checks the digest `is` and the size `bytes` of a document against `digest` and `size` of its descriptor. A size of
/// None is not checked.
pub(super) fn check_document(
    what: &str,
    digest: &str,
    size: Option<u64>,
    is: &str,
    bytes: u64,
) -> Result<(), FetchError> {
    let why = match size {
        Some(size) if size != bytes => format!("it has {bytes} bytes instead of {size}"),
        _ if digest != is => format!("its content has digest {is}"),
        _ => return Ok(()),
    };
    Err(FetchError::failed(format!(
        "the {what} {digest} is not what the registry says: {why}"
    )))
}
