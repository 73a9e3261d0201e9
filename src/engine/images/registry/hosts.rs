//! Decides which servers a pull asks for the images of a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use ureq::http::Uri;

use crate::base::http_client::redirect;

/// The settings under the key `registries` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Registries {
    /// `pull`: true if missing images are pulled at all.
    pub pull: bool,
    /// `dockerConfig`: path of the config.json with passwords. An empty path, or none, means the first file that exists
    /// in the usual places.
    #[serde(deserialize_with = "path")]
    pub docker_config: Option<PathBuf>,
    /// `hosts`: settings for single registries and mirrors. The key is the host name and port, as in the name of an
    /// image.
    pub hosts: BTreeMap<String, RegistryHost>,
}

impl Default for Registries {
    fn default() -> Self {
        Self {
            pull: true,
            docker_config: None,
            hosts: BTreeMap::new(),
        }
    }
}

/// The settings for one registry or mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RegistryHost {
    /// `mirrors`: servers that are asked before the registry, in this order. Each is `https://HOST[:PORT][/PREFIX]` or
    /// `http://HOST[:PORT][/PREFIX]`.
    pub mirrors: Vec<Mirror>,
    /// `plainHTTP`: true means that the server is asked without TLS. None means that only loopback addresses without a
    /// `caFile` are asked without TLS.
    #[serde(rename = "plainHTTP")]
    pub plain_http: Option<bool>,
    /// `caFile`: path of certificates (PEM) to trust besides those of the system.
    #[serde(deserialize_with = "path")]
    pub ca_file: Option<PathBuf>,
    /// `tokenServers`: hosts of other domains that may get the login for this registry, if the registry names them as
    /// its token servers.
    pub token_servers: Vec<String>,
}

/// The address of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror(Endpoint);

/// A server, and the path below which the server has its repositories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) plain_http: bool,
    /// Host and port of the server.
    pub(super) authority: String,
    /// Text before the name of a repository: empty, or `PREFIX/`.
    prefix: String,
    /// The name by which the server's credentials are found. For a registry it is the host and port in the image's
    /// name. For a mirror it is the host and port of the mirror.
    pub(super) name: String,
}

impl Endpoint {
    /// Returns the address below which a repository lies: `https://HOST/v2/REPOSITORY/`.
    pub(super) fn base(&self, repository: &str) -> String {
        let scheme = if self.plain_http { "http" } else { "https" };
        format!(
            "{scheme}://{}/v2/{}{repository}/",
            self.authority, self.prefix
        )
    }

    /// Returns the name that a repository has in the request for a token.
    pub(super) fn repository(&self, repository: &str) -> String {
        format!("{}{repository}", self.prefix)
    }

    /// Returns the key with which docker's config.json is searched for credentials.
    pub(super) fn credential_key(&self, repository: &str) -> String {
        format!("{}/{}{repository}", self.name, self.prefix)
    }
}

fn path<'de, D: Deserializer<'de>>(d: D) -> Result<Option<PathBuf>, D::Error> {
    match Option::<PathBuf>::deserialize(d)? {
        None => Ok(None),
        Some(path) if path.as_os_str().is_empty() => Ok(None),
        Some(path) if path.is_absolute() => Ok(Some(path)),
        Some(path) => Err(D::Error::custom(format!(
            "\"{}\" is not an absolute path",
            path.display()
        ))),
    }
}

impl<'de> Deserialize<'de> for Mirror {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        mirror(&text).map(Self).ok_or_else(|| {
            // The error does not show the text of the address, which may hold a password.
            D::Error::custom("not the address of a mirror, such as \"https://mirror.example:5000\"")
        })
    }
}

fn mirror(text: &str) -> Option<Endpoint> {
    let uri: Uri = text.parse().ok()?;
    redirect::web(&uri).ok()?;
    let prefix = uri.path().trim_matches('/');
    let clean = prefix.is_empty() || prefix.split('/').all(|p| !matches!(p, "" | "." | ".."));
    if uri.query().is_some() || !clean {
        return None;
    }
    let prefix = if prefix.is_empty() {
        String::new()
    } else {
        format!("{prefix}/")
    };
    Some(Endpoint {
        plain_http: !redirect::is_tls(&uri),
        authority: uri.authority()?.to_string(),
        prefix,
        name: uri.authority()?.to_string(),
    })
}

impl Registries {
    /// Returns the servers to ask for images of a registry: first its mirrors, then the registry itself.
    pub(super) fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let host = self.hosts.get(registry).cloned().unwrap_or_default();
        let authority = match registry {
            "docker.io" => "registry-1.docker.io",
            other => other,
        };
        let plain = || is_loopback(registry) && host.ca_file.is_none();
        let own = Endpoint {
            plain_http: host.plain_http.unwrap_or_else(plain),
            authority: authority.to_owned(),
            prefix: String::new(),
            name: registry.to_owned(),
        };
        let mirrors = host.mirrors.iter().map(|m| m.0.clone());
        mirrors.chain([own]).collect()
    }

    /// Tells whether the login of a registry may be sent to the token server `host`. The host may be the registry
    /// itself, another host of the registry's domain, or a host that the configuration names for this registry.
    pub(super) fn is_token_server(&self, registry: &Endpoint, host: &str) -> bool {
        let own = host_name(&registry.authority);
        let host = host.to_ascii_lowercase();
        let listed = self.hosts.get(&registry.name);
        let mut listed = listed.into_iter().flat_map(|of| &of.token_servers);
        host == own
            || domain(&own).is_some_and(|domain| is_within(&host, domain))
            || listed.any(|listed| host == host_name(listed))
    }

    /// Returns the file with further certificate authorities to trust for this server, besides the system's.
    pub(super) fn ca_file(&self, authority: &str) -> Option<&Path> {
        let name = match authority {
            "registry-1.docker.io" => "docker.io",
            other => other,
        };
        self.hosts.get(name)?.ca_file.as_deref()
    }
}

/// Returns the host of an authority, in lower case and without a port.
fn host_name(authority: &str) -> String {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    host.to_ascii_lowercase()
}

/// Returns the domain of a host name, if it probably belongs to a single owner: `docker.io` for `registry-1.docker.io`.
/// Returns None if only a general or a country's ending is left, as for `a.io` and `a.co.uk`.
fn domain(host: &str) -> Option<&str> {
    let is_name = host.chars().any(|c| c.is_ascii_alphabetic()) && !host.starts_with('[');
    let (_, above) = host.split_once('.').filter(|_| is_name)?;
    let labels: Vec<&str> = above.split('.').collect();
    match labels[..] {
        [] | [_] => None,
        // In `co.uk`, `com.au` and `or.jp` the second level belongs to the country, so the ending is not the domain of
        // an owner.
        [second, country] if country.len() == 2 && second.len() <= 3 => None,
        _ => Some(above),
    }
}

fn is_within(host: &str, domain: &str) -> bool {
    let before = host.strip_suffix(domain);
    before.is_some_and(|name| name.is_empty() || name.ends_with('.'))
}

/// Tells whether a registry is on this machine. Such a registry is asked without TLS unless its settings say otherwise,
/// as with containerd.
fn is_loopback(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => registry,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let loopback = |ip: std::net::IpAddr| ip.is_loopback();
    host == "localhost" || address.parse().is_ok_and(loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registries(json: &str) -> Result<Registries, String> {
        serde_json::from_str(json).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn check(json: &str, registry: &str, expected: &[&str]) {
        let endpoints = registries(json).unwrap().endpoints(registry);
        let bases: Vec<String> = endpoints.iter().map(|e| e.base("a/b")).collect();
        assert_eq!(bases, expected);
    }

    #[test]
    fn mirrors_come_first() {
        check("{}", "quay.io", &["https://quay.io/v2/a/b/"]);
        check("{}", "docker.io", &["https://registry-1.docker.io/v2/a/b/"]);
        check("{}", "localhost:5000", &["http://localhost:5000/v2/a/b/"]);
        check("{}", "127.0.0.1:5000", &["http://127.0.0.1:5000/v2/a/b/"]);
        check("{}", "[::1]:5000", &["http://[::1]:5000/v2/a/b/"]);
        check(
            r#"{"hosts": {"localhost": {"caFile": "/c"}}}"#,
            "localhost",
            &["https://localhost/v2/a/b/"],
        );
        check(
            r#"{"hosts": {"r:1": {"plainHTTP": true}}}"#,
            "r:1",
            &["http://r:1/v2/a/b/"],
        );
        check(
            r#"{"hosts": {"docker.io": {"mirrors": ["https://m.lan:5000/", "http://h.lan/hub"]}}}"#,
            "docker.io",
            &[
                "https://m.lan:5000/v2/a/b/",
                "http://h.lan/v2/hub/a/b/",
                "https://registry-1.docker.io/v2/a/b/",
            ],
        );
        let r =
            registries(r#"{"hosts": {"docker.io": {"mirrors": ["http://h.lan/hub"]}}}"#).unwrap();
        let keys = r
            .endpoints("docker.io")
            .into_iter()
            .map(|e| e.credential_key("library/a"));
        assert_eq!(
            keys.collect::<Vec<_>>(),
            ["h.lan/hub/library/a", "docker.io/library/a"]
        );
    }

    #[test]
    fn a_login_stays_in_the_registrys_domain() {
        let r = registries(
            r#"{"hosts": {"registry.connect.redhat.com": {"tokenServers": ["sso.redhat.com"]}}}"#,
        )
        .unwrap();
        let check = |registry: &str, server: &str, expected: bool| {
            let endpoint = r.endpoints(registry).pop().unwrap();
            let may = r.is_token_server(&endpoint, server);
            assert_eq!(may, expected, "{registry} {server}");
        };
        for (registry, server) in [
            ("docker.io", "auth.docker.io"),
            ("index.docker.io", "auth.docker.io"),
            ("registry.gitlab.com", "gitlab.com"),
            ("docker.elastic.co", "docker-auth.elastic.co"),
            ("ghcr.io", "GHCR.io"),
            ("r.example.com:5000", "auth.example.com"),
            ("127.0.0.1:5000", "127.0.0.1"),
            ("registry.connect.redhat.com", "sso.redhat.com"),
        ] {
            check(registry, server, true);
        }
        for (registry, server) in [
            ("docker.io", "auth.docker.com"),
            ("docker.io", "evildocker.io"),
            ("ghcr.io", "quay.io"),
            ("r.co.uk", "a.co.uk"),
            ("r.com.au", "com.au"),
            ("127.0.0.1:5000", "127.0.0.2"),
            ("10.0.0.1", "9.0.0.1"),
            ("registry.lan", "auth.lan"),
            ("localhost:5000", "auth.localhost"),
            ("registry.gitlab.com", "sso.redhat.com"),
        ] {
            check(registry, server, false);
        }
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (json, why) in [
            (
                r#"{"hosts": {"r": {"mirrors": ["m.lan"]}}}"#,
                "not the address of a mirror",
            ),
            (
                r#"{"hosts": {"r": {"mirrors": ["file:///x"]}}}"#,
                "not the address of a mirror",
            ),
            (
                r#"{"hosts": {"r": {"mirrors": ["https://u:p@m"]}}}"#,
                "not the address of a mirror",
            ),
            (
                r#"{"hosts": {"r": {"mirrors": ["https://m/a/../b"]}}}"#,
                "not the address of a mirror",
            ),
            (
                r#"{"hosts": {"r": {"caFile": "ca.pem"}}}"#,
                "not an absolute path",
            ),
            (r#"{"hosts": {"r": {"insecure": true}}}"#, "unknown field"),
            (r#"{"hosts": {"r": {"plainHTTP": "yes"}}}"#, "invalid type"),
        ] {
            let error = registries(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }
}
