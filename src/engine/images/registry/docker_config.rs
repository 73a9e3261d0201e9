//! Reads docker's config.json: the user names and passwords for registries.
//!
//! Invariants: no error text and no debug output contains a password. Nothing is executed: if a credential helper has
//! the password, the error names the helper.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;

use crate::base::json;

/// Largest config.json in bytes that is read.
pub(super) const MAX_BYTES: u64 = 1 << 20;

/// A login at a registry.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credential {
    Password {
        username: String,
        password: String,
    },
    /// An OAuth2 refresh token, with which access tokens are requested.
    IdentityToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// The content of docker's config.json, or of a Secret of type `kubernetes.io/dockerconfigjson`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DockerConfig {
    source: String,
    /// Registries without their scheme, each with the login for the registry. They are in reverse alphabetical order,
    /// so that a longer key comes before its prefix, as in the kubelet's keyring.
    auths: Vec<(String, Credential)>,
    helpers: BTreeMap<String, String>,
    store: Option<String>,
}

/// Reason why a config.json of docker cannot be used. The error's text repeats no values of the content, only names.
#[derive(Debug, thiserror::Error)]
pub enum DockerConfigError {
    /// The content is longer than 1 MiB.
    #[error("cannot use {config}: it has more than 1 MiB")]
    TooLong {
        /// Name of the file or Secret in error texts.
        config: String,
    },
    /// The content is not JSON of the expected form.
    #[error(
        "cannot use {config}: line {line}, column {column}: not a config.json of docker, which has an object \"auths\""
    )]
    Syntax {
        /// Name of the file or Secret in error texts.
        config: String,
        /// Line of the error in the content, counted from 1.
        line: usize,
        /// Column of the error in the content.
        column: usize,
    },
    /// The `auth` of a registry does not contain a user name and password.
    #[error(
        "cannot use {config}: auths[{registry:?}]: \"auth\" is not the base64 of USER:PASSWORD"
    )]
    Auth {
        /// Name of the file or Secret in error texts.
        config: String,
        /// The key of the registry in `auths`.
        registry: String,
    },
    /// The file exists but cannot be read.
    #[error("cannot read {config}: {cause}")]
    Unreadable {
        /// Path of the file.
        config: String,
        /// The error of the system call.
        #[source]
        cause: io::Error,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl DockerConfig {
    /// Parses the content of a config.json. `source` is its name in error texts.
    ///
    /// # Errors
    /// Returns [`DockerConfigError`] if the content cannot be used.
    pub fn parse(bytes: &[u8], source: &str) -> Result<Self, DockerConfigError> {
        let wrong = |e: serde_json::Error| DockerConfigError::Syntax {
            config: source.to_owned(),
            line: e.line(),
            column: e.column(),
        };
        if bytes.len() as u64 > MAX_BYTES {
            let config = source.to_owned();
            return Err(DockerConfigError::TooLong { config });
        }
        let file: File = json::from_slice(bytes).map_err(wrong)?;
        Self::of(source, file)
    }

    /// Parses the older form: a file `.dockercfg`, or the content of a Secret of type `kubernetes.io/dockercfg`.
    ///
    /// # Errors
    /// Returns the error of [`Self::parse`].
    pub fn parse_dockercfg(bytes: &[u8], source: &str) -> Result<Self, DockerConfigError> {
        let whole = [b"{\"auths\":", bytes, b"}"].concat();
        Self::parse(&whole, source)
    }

    fn of(source: &str, file: File) -> Result<Self, DockerConfigError> {
        let mut auths = Vec::new();
        for (registry, entry) in file.auths {
            let key = schemeless(&registry);
            let config = source.to_owned();
            let credential = entry
                .credential()
                .map_err(|NoLogin| DockerConfigError::Auth { config, registry })?;
            auths.extend(credential.map(|c| (key, c)));
        }
        auths.sort_by(|a, b| b.0.cmp(&a.0));
        Ok(Self {
            source: source.to_owned(),
            auths,
            helpers: file.cred_helpers,
            store: file.creds_store.filter(|s| !s.is_empty()),
        })
    }

    /// Returns the credentials for an image, given as `registry/repository`. The credentials with the longest key come
    /// first.
    pub(super) fn lookup(&self, image: &str) -> Vec<Credential> {
        let matching = |image: &str| {
            let found = self.auths.iter().filter(|(key, _)| matches(key, image));
            found.map(|(_, c)| c.clone()).collect::<Vec<_>>()
        };
        let found = matching(image);
        match image.strip_prefix("docker.io/") {
            // In docker's config.json the key of Docker Hub is `https://index.docker.io/v1/`.
            Some(_) if found.is_empty() => {
                let hub = self.auths.iter().filter(|(key, _)| is_hub(key));
                hub.map(|(_, c)| c.clone()).collect()
            }
            _ => found,
        }
    }

    /// Returns a text that says why credentials for an image may be missing: they are in a credential helper. Returns
    /// None if no credential helper is configured for the image.
    pub(super) fn helper(&self, image: &str) -> Option<String> {
        let own = self.helpers.iter();
        let mut own = own.filter(|(key, _)| {
            let key = schemeless(key);
            matches(&key, image) || is_hub(&key) && image.starts_with("docker.io/")
        });
        let name = own.next().map(|(_, name)| name).or(self.store.as_ref())?;
        Some(format!(
            "{} leaves the password to the credential helper {name:?}, which podprobe does not run: write it into \"auths\"",
            self.source
        ))
    }
}

/// An `auth` is not the base64 of `USER:PASSWORD`.
struct NoLogin;

impl Entry {
    fn credential(self) -> Result<Option<Credential>, NoLogin> {
        let given = |s: Option<String>| s.filter(|s| !s.is_empty());
        if let Some(token) = given(self.identitytoken) {
            return Ok(Some(Credential::IdentityToken(token)));
        }
        if let Some(auth) = given(self.auth) {
            let bytes = BASE64.decode(auth.trim().as_bytes());
            let text = String::from_utf8(bytes.map_err(|_| NoLogin)?).map_err(|_| NoLogin)?;
            let (username, password) = text.split_once(':').ok_or(NoLogin)?;
            return Ok(Some(Credential::Password {
                username: username.to_owned(),
                password: password.trim_end_matches('\0').to_owned(),
            }));
        }
        Ok(given(self.username).map(|username| Credential::Password {
            username,
            password: self.password.unwrap_or_default(),
        }))
    }
}

/// A decoder of base64 with or without padding, as the kubelet accepts it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn base64(text: &str) -> String {
    BASE64.encode(text)
}

/// Returns a registry's key in the form of the kubelet: without a scheme, and without the old paths `/v1/` and `/v2/`.
fn schemeless(key: &str) -> String {
    let key = key
        .strip_prefix("https://")
        .or(key.strip_prefix("http://"))
        .unwrap_or(key);
    let (host, path) = key.split_once('/').unwrap_or((key, ""));
    match path.trim_end_matches('/') {
        "" | "v1" | "v2" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

fn is_hub(key: &str) -> bool {
    ["index.docker.io", "docker.io", "registry-1.docker.io"].contains(&key)
}

/// Tells whether a key is for an image (the kubelet's `URLsMatch`). Each part of the host in the key may contain `*` and
/// `?`.
fn matches(key: &str, image: &str) -> bool {
    let split = |s: &'_ str| -> (String, String, String) {
        let (authority, path) = s.split_once('/').unwrap_or((s, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (authority, ""),
        };
        (host.to_ascii_lowercase(), port.to_owned(), path.to_owned())
    };
    let ((host, port, path), (image_host, image_port, image_path)) = (split(key), split(image));
    let (parts, image_parts): (Vec<&str>, Vec<&str>) =
        (host.split('.').collect(), image_host.split('.').collect());
    port == image_port
        && parts.len() == image_parts.len()
        && image_path.starts_with(&path)
        && parts
            .iter()
            .zip(image_parts)
            .all(|(p, t)| glob(p.as_bytes(), t.as_bytes()))
}

/// Tells whether a text matches a pattern with `*` and `?`. The time that the match takes is at most proportional to
/// the product of the two lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// Reads the first of the files that exists. Returns None if none of the files exists.
///
/// # Errors
/// Returns [`DockerConfigError`] if the file cannot be used.
pub(super) fn read_first(paths: &[PathBuf]) -> Option<Result<DockerConfig, DockerConfigError>> {
    use std::io::Read;
    let found = paths
        .iter()
        .find_map(|path| match std::fs::File::open(path) {
            Ok(file) => Some((path, Ok(file))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => Some((path, Err(e))),
        });
    let (path, file) = found?;
    let source = path.display().to_string();
    let mut bytes = Vec::new();
    let read = file.and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    Some(match read {
        Err(cause) => Err(DockerConfigError::Unreadable {
            config: source,
            cause,
        }),
        Ok(_) if path.extension().is_none_or(|e| e != "json") => {
            DockerConfig::parse_dockercfg(&bytes, &source)
        }
        Ok(_) => DockerConfig::parse(&bytes, &source),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> DockerConfig {
        DockerConfig::parse(json.as_bytes(), "c.json").unwrap()
    }

    fn users(config: &DockerConfig, image: &str) -> Vec<String> {
        let found = config.lookup(image).into_iter();
        found
            .map(|c| match c {
                Credential::Password { username, password } => format!("{username}:{password}"),
                Credential::IdentityToken(token) => format!("token {token}"),
            })
            .collect()
    }

    #[test]
    fn credentials_are_found_by_registry_and_path() {
        let auth = base64("u:p:q");
        let json = format!(
            r#"{{"auths": {{
              "https://index.docker.io/v1/": {{"auth": "{auth}"}},
              "r.example:5000": {{"username": "a", "password": "b"}},
              "r.example:5000/team": {{"username": "t", "password": ""}},
              "http://*.quay.example/v2/": {{"auth": "{}"}},
              "gcr.example": {{"identitytoken": "xyz", "auth": "{auth}"}},
              "empty.example": {{}}
            }}}}"#,
            auth.trim_end_matches('=')
        );
        let c = config(&json);
        let check =
            |image: &str, expected: &[&str]| assert_eq!(users(&c, image), expected, "{image}");
        check("docker.io/library/a", &["u:p:q"]);
        check("r.example:5000/x", &["a:b"]);
        check("r.example:5000/team/x", &["t:", "a:b"]);
        check("r.example/x", &[]);
        check("eu.quay.example/x", &["u:p:q"]);
        check("quay.example/x", &[]);
        check("a.b.quay.example/x", &[]);
        check("gcr.example/x", &["token xyz"]);
        check("empty.example/x", &[]);
        assert_eq!(c.helper("docker.io/library/a"), None);
    }

    #[test]
    fn a_helper_is_named_and_not_run() {
        let c = config(r#"{"credHelpers": {"r.example": "ecr-login"}, "credsStore": "desktop"}"#);
        let said = |image: &str| c.helper(image).unwrap();
        assert!(said("r.example/x").starts_with(
            "c.json leaves the password to the credential helper \"ecr-login\", which"
        ));
        assert!(said("docker.io/x").contains("\"desktop\""));
    }

    #[test]
    fn errors_have_no_secret() {
        for json in [
            r#"{"auths": {"r": {"auth": 12345678}}}"#,
            r#"{"auths": {"r": {"auth": "c2VjcmV0"}}}"#,
            r#"{"auths": {"r": "secret"}}"#,
            r#"{"auths": "secret"}"#,
            r#""secret"#,
        ] {
            let error = DockerConfig::parse(json.as_bytes(), "c.json").unwrap_err();
            let error = error.to_string();
            assert!(error.starts_with("cannot use c.json: "), "{error}");
            assert!(
                !error.contains("secret") && !error.contains("c2Vj") && !error.contains("1234"),
                "{error}"
            );
        }
        let c = config(r#"{"auths": {"r": {"username": "u", "password": "secret"}}}"#);
        assert!(!format!("{c:?}").contains("secret"));
        assert!(
            DockerConfig::parse(&vec![b' '; 2 << 20], "c")
                .unwrap_err()
                .to_string()
                .contains("1 MiB")
        );
    }

    #[test]
    fn the_older_form_is_the_inner_object() {
        let c = DockerConfig::parse_dockercfg(
            br#"{"r.example": {"username": "a", "password": "b"}}"#,
            "x",
        );
        assert_eq!(users(&c.unwrap(), "r.example/y"), ["a:b"]);
    }

    #[test]
    fn random_bytes_are_refused_or_read() {
        for text in crate::random_texts::texts(5000, b"{}[]\":,auths*0\\e\x00\xff ") {
            if let Ok(c) = DockerConfig::parse(text.as_bytes(), "x") {
                let _ = (c.lookup("a.b/c"), c.helper("a.b/c"));
            }
        }
        assert!(glob(b"*a*b?", b"xxaxxbb") && !glob(b"*a*b?", b"xxaxxb"));
        let deep = "[".repeat(100_000);
        assert!(DockerConfig::parse(deep.as_bytes(), "x").is_err());
    }

    #[test]
    fn the_first_file_that_exists_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a.json"), dir.path().join(".dockercfg"));
        assert!(read_first(&[a.clone(), b.clone()]).is_none());
        std::fs::write(&b, r#"{"r": {"username": "u"}}"#).unwrap();
        assert_eq!(
            users(
                &read_first(&[a.clone(), b.clone()]).unwrap().unwrap(),
                "r/x"
            ),
            ["u:"]
        );
        std::fs::write(&a, "nothing").unwrap();
        assert!(
            read_first(&[a, b])
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("a.json: line 1")
        );
    }
}
