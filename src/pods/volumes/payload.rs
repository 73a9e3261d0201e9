//! The files of a volume with content from objects or from fields of its pod.
//!
//! Invariants: this module is pure. Every path is clean, relative and below the volume, and no path begins with `..`.
//! No text shows the bytes of a file, because the bytes may come from a Secret.

use std::collections::BTreeMap;
use std::fmt;

use super::Context;
use super::error::{ContentError, PathRule};
use crate::api::Pod;
use crate::api::field_ref::{PodFacts, field_value, resource_value};
use crate::api::objects::{ConfigMap, NoObject, Secret};
use crate::api::pod::{DownwardApiFile, KeyToPath, ServiceAccountTokenProjection};
use crate::api::service_account::TokenKey;

/// The permission bits of files in a volume without `defaultMode`.
const DEFAULT_MODE: i32 = 0o644;
/// The permission bits of a token that one user or one group reads. The group gets its bits with its ownership.
const TOKEN_MODE: i32 = 0o600;
/// The length in bytes of the longest file name.
const NAME_MAX: usize = 255;
/// The length in bytes of the longest path.
const PATH_MAX: usize = 4096;

/// The largest number of parts in a path. The removal of a directory needs a descriptor for each part.
const PARTS_MAX: usize = 100;

/// A file of a volume.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PayloadFile {
    /// The content of the file.
    pub(super) data: Vec<u8>,
    /// The permission bits of the file.
    pub(super) mode: u32,
    /// The owner of the file, if it is not root.
    pub(super) user: Option<u32>,
}

/// The files of a volume by path.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload(BTreeMap<String, PayloadFile>);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Payload {
    /// Returns each path with its file, sorted by path.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &PayloadFile)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// Returns the file at this path.
    pub(super) fn file(&self, path: &str) -> Option<&PayloadFile> {
        self.0.get(path)
    }

    /// Returns the number of files in the payload.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether the payload has a file below the directory `dir`.
    pub(super) fn has_below(&self, dir: &str) -> bool {
        let from = format!("{dir}/");
        let mut after = self.0.range(from.clone()..);
        after
            .next()
            .is_some_and(|(path, _)| path.starts_with(&from))
    }

    /// Adds the files of another source. The added files replace files with the same path.
    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns the payload if no path is both a file and a directory.
    ///
    /// # Errors
    /// Returns [`ContentError::FileAndDirectory`] with the first path that is both a file and a directory.
    pub(super) fn checked(self) -> Result<Self, ContentError> {
        match self.0.keys().find(|path| self.has_below(path)) {
            Some(path) => Err(ContentError::FileAndDirectory(path.clone())),
            None => Ok(self),
        }
    }

    fn add(&mut self, path: &str, data: Vec<u8>, mode: i32) -> Result<(), ContentError> {
        self.add_of(None, path, data, mode)
    }

    fn add_of(
        &mut self,
        user: Option<u32>,
        path: &str,
        data: Vec<u8>,
        mode: i32,
    ) -> Result<(), ContentError> {
        let mode = u32::try_from(mode).unwrap_or_default() & 0o777;
        let file = PayloadFile { data, mode, user };
        self.0.insert(clean(path)?, file);
        Ok(())
    }
}

/// Returns the path without empty parts and dots, like Go's `filepath.Clean`.
fn clean(path: &str) -> Result<String, ContentError> {
    let parts: Vec<&str> = path.split('/').filter(|p| !["", "."].contains(p)).collect();
    let rule = match parts.first() {
        None => PathRule::NotEmpty,
        _ if path.starts_with('/') => PathRule::Relative,
        _ if path.len() > PATH_MAX => PathRule::Length,
        _ if parts.len() > PARTS_MAX => PathRule::Parts,
        _ if path.contains('\0') => PathRule::NoNul,
        _ if parts.contains(&"..") => PathRule::NoParent,
        _ if parts.iter().any(|part| part.len() > NAME_MAX) => PathRule::NameLength,
        Some(first) if first.starts_with("..") => PathRule::NotReserved,
        Some(_) => return Ok(parts.join("/")),
    };
    let path = path.to_owned();
    Err(ContentError::Path { rule, path })
}

/// The keys of an object that become files.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// The keys with their paths. An empty list means all keys.
    pub(super) items: &'a [KeyToPath],
    /// The mode of files whose item has no mode.
    pub(super) mode: Option<i32>,
    /// `Some(true)` if the object or a key of `items` may be missing.
    pub(super) optional: Option<bool>,
}

impl Keys<'_> {
    fn may_be_missing(&self) -> bool {
        self.optional == Some(true)
    }

    fn may_do_without(&self, why: &NoObject) -> bool {
        self.may_be_missing() && why.is_missing()
    }

    fn of<'d>(
        &self,
        all: impl Iterator<Item = (&'d str, &'d [u8])>,
        missing: fn(String) -> ContentError,
    ) -> Result<Payload, ContentError> {
        let all: BTreeMap<&str, &[u8]> = all.collect();
        let default = self.mode.unwrap_or(DEFAULT_MODE);
        let mut payload = Payload::default();
        if self.items.is_empty() {
            for (key, data) in &all {
                payload.add(key, data.to_vec(), default)?;
            }
        }
        for item in self.items {
            match all.get(item.key.as_str()) {
                Some(data) => {
                    payload.add(&item.path, data.to_vec(), item.mode.unwrap_or(default))?;
                }
                None if self.may_be_missing() => {}
                None => return Err(missing(item.key.clone())),
            }
        }
        Ok(payload)
    }
}

/// Makes the files of a ConfigMap in the pod's namespace.
///
/// # Errors
/// Returns [`ContentError`] if the object or a key is missing, or a path is not valid.
pub(super) fn of_config_map(
    of: &Context<'_>,
    name: &str,
    keys: Keys<'_>,
) -> Result<Payload, ContentError> {
    let empty = ConfigMap::default();
    let map = match of.objects.config_map(&of.pod.metadata.namespace, name) {
        Ok(map) => map,
        Err(e) if keys.may_do_without(&e) => &empty,
        Err(e) => return Err(e.into()),
    };
    keys.of(map.entries(), ContentError::NoConfigMapKey)
}

/// Makes the files of a Secret in the pod's namespace.
///
/// # Errors
/// Returns [`ContentError`] if the object or a key is missing, or a path is not valid.
pub(super) fn of_secret(
    of: &Context<'_>,
    name: &str,
    keys: Keys<'_>,
) -> Result<Payload, ContentError> {
    let empty = Secret::default();
    let secret = match of.objects.secret(&of.pod.metadata.namespace, name) {
        Ok(secret) => secret,
        Err(e) if keys.may_do_without(&e) => &empty,
        Err(e) => return Err(e.into()),
    };
    let all = secret.data.iter().map(|(k, v)| (k.as_str(), v.as_slice()));
    keys.of(all, ContentError::NoSecretKey)
}

/// Makes files from fields of the pod.
///
/// # Errors
/// Returns [`ContentError`] if a field or resource has no value, or a path is not valid.
pub(super) fn of_fields(
    of: &Context<'_>,
    items: &[DownwardApiFile],
    mode: Option<i32>,
) -> Result<Payload, ContentError> {
    let default = mode.unwrap_or(DEFAULT_MODE);
    // Addresses are not available as fields of a volume.
    let facts = PodFacts {
        allocatable: of.allocatable,
        ..PodFacts::default()
    };
    let mut payload = Payload::default();
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_value(of.pod, &facts, &field.field_path),
            (None, Some(resource)) => resource_value(of.pod, None, &facts, resource),
            (None, None) => continue,
        };
        payload.add(
            &item.path,
            value?.into_bytes(),
            item.mode.unwrap_or(default),
        )?;
    }
    Ok(payload)
}

/// Makes the file of a token. If the pod has an `fsGroup`, or if all its containers run as one user, nobody else can read
/// the file, whatever its mode says.
///
/// # Errors
/// Returns [`ContentError`] if there is no token, or if the path is not valid.
pub(super) fn of_token(
    of: &Context<'_>,
    source: &ServiceAccountTokenProjection,
    mode: Option<i32>,
) -> Result<Payload, ContentError> {
    let token = of.objects.token(&TokenKey::of(of.pod, source))?;
    let user = only_user(of.pod);
    let is_of_one = user.is_some() || of.pod.spec.security_context.fs_group.is_some();
    let mode = match is_of_one {
        true => TOKEN_MODE,
        false => mode.unwrap_or(DEFAULT_MODE),
    };
    let mut payload = Payload::default();
    payload.add_of(user, &source.path, token.expose().into(), mode)?;
    Ok(payload)
}

/// Returns the user that all containers of the pod run as, if the spec says so and it is the same one.
fn only_user(pod: &Pod) -> Option<u32> {
    let of_pod = pod.spec.security_context.run_as_user;
    let mut users = pod
        .spec
        .lasting_containers()
        .map(|c| c.security_context.run_as_user.or(of_pod));
    let first = users.next()??;
    let is_same = users.all(|user| user == Some(first));
    is_same
        .then_some(first)
        .and_then(|uid| u32::try_from(uid).ok())
}

#[cfg(test)]
impl Payload {
    /// Makes a payload of text files from path, mode and content.
    pub(super) fn of_texts(files: &[(&str, u32, &str)]) -> Self {
        let file = |mode: u32, data: &str| PayloadFile {
            data: data.as_bytes().to_vec(),
            mode,
            user: None,
        };
        let files = files.iter();
        Self(
            files
                .map(|(path, mode, data)| ((*path).to_owned(), file(*mode, data)))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: Result<&str, &str>) {
        let cleaned = clean(path).map_err(|e| e.to_string());
        assert_eq!(cleaned.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn a_path_stays_below_its_volume() {
        check("a", Ok("a"));
        check("a//b/./c/", Ok("a/b/c"));
        check("a/..b", Ok("a/..b"));
        check("", Err("invalid path: must not be empty: \"\""));
        check("/a", Err("invalid path: must be relative path: \"/a\""));
        check(
            "a/../b",
            Err("invalid path: must not contain '..': \"a/../b\""),
        );
        check(
            "..data/x",
            Err("invalid path: must not start with '..': \"..data/x\""),
        );
        check(
            "./..data",
            Err("invalid path: must not start with '..': \"./..data\""),
        );
        assert!(clean(&"n".repeat(256)).is_err() && clean(&"n".repeat(255)).is_ok());
        assert!(clean(&"name/".repeat(820)).is_err());
        assert!(clean(&"n/".repeat(101)).is_err() && clean(&"n/".repeat(100)).is_ok());
    }

    #[test]
    fn a_path_is_a_file_or_a_directory() {
        let files = |paths: &[&str]| {
            let files: Vec<_> = paths.iter().map(|path| (*path, 0o644, "")).collect();
            Payload::of_texts(&files).checked()
        };
        assert!(files(&["a-b", "a/b", "a/c"]).is_ok());
        let clash = files(&["a", "a-b", "a/b"]).unwrap_err();
        assert_eq!(clash.to_string(), "path \"a\" is a file and a directory");
    }

    #[test]
    fn a_debug_text_shows_no_content() {
        let payload = Payload::of_texts(&[("token", 0o400, "hunter2")]);
        assert_eq!(format!("{payload:?}"), "{\"token\"}");
    }
}
