//! Sends requests to one repository of one server, with the credentials for this server.
//!
//! Invariants: credentials go to the server that asked for them. A token server that this server names gets the
//! credentials only if it is in the same domain or in the configuration. Credentials go over http only if the registry
//! itself has no TLS. Only one thread at a time requests a token, and a token does not outlive the pull.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::Uri;

use super::bounds::{Bounds, MAX_TOKEN};
use super::challenge::{self, Challenge};
use super::docker_config::{Credential, base64};
use super::hosts::{Endpoint, Registries};
use crate::base::http_client::{Answer, Ask, Client, FetchError, Kind, host_of, quoted, redirect};
use crate::base::json;
use crate::base::locks::Locked;

/// Time before the end of a token's life from which the token counts as expired.
const MARGIN: Duration = Duration::from_secs(10);
/// Shortest time for which a token is used. It is also used if the server names no time. `LONGEST_LIFE` is the longest
/// time.
const LIFE: Duration = Duration::from_secs(60);
const LONGEST_LIFE: Duration = Duration::from_secs(3600);

/// Sends the requests to one repository of one server, with the credentials for this server.
pub(super) struct Session {
    client: Client,
    bounds: Bounds,
    /// Address below which all requests go; the address ends with a slash.
    base: String,
    /// The scope in a request for a token, unless the server names another scope.
    scope: String,
    credential: Option<Credential>,
    endpoint: Endpoint,
    registries: Registries,
    authorization: Mutex<Authorization>,
}

/// The `authorization` header that requests send at present.
#[derive(Default)]
struct Authorization {
    header: Option<String>,
    expires: Option<Instant>,
    /// Number of headers until now. The number shows whether another thread has already replaced a refused header.
    generation: u64,
}

impl Session {
    pub(super) fn new(
        client: Client,
        bounds: Bounds,
        (endpoint, registries): (&Endpoint, Registries),
        repository: &str,
        credential: Option<Credential>,
    ) -> Self {
        Self {
            client,
            bounds,
            base: endpoint.base(repository),
            scope: format!("repository:{}:pull", endpoint.repository(repository)),
            credential,
            endpoint: endpoint.clone(),
            registries,
            authorization: Mutex::default(),
        }
    }

    /// Gets `manifests/TAG` or `blobs/DIGEST` from the repository. The status of the returned answer is 200 or 206.
    pub(super) fn get(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        limit: Option<Duration>,
    ) -> Result<Answer, FetchError> {
        let uri: Uri = format!("{}{path}", self.base)
            .parse()
            .map_err(|_| FetchError::failed(format!("{} is no address", quoted(&self.base))))?;
        let (header, generation) = self.current();
        let answer = self.ask(&uri, headers, header.as_deref(), limit)?;
        if answer.status != 401 || !redirect::same_origin(&uri, &answer.uri) {
            return checked(answer, path);
        }
        let header = self.authorize(&uri, &answer, generation)?;
        drop(answer);
        let answer = self.ask(&uri, headers, Some(&header), limit)?;
        match answer.status == 401 && header.starts_with("Basic ") {
            true => Err(self.refused(&host_of(&uri))),
            false => checked(answer, path),
        }
    }

    fn ask(
        &self,
        uri: &Uri,
        headers: &[(&'static str, String)],
        authorization: Option<&str>,
        limit: Option<Duration>,
    ) -> Result<Answer, FetchError> {
        self.client.ask(&Ask {
            uri,
            headers,
            for_server: &login(authorization),
            form: None,
            limit,
        })
    }

    fn current(&self) -> (Option<String>, u64) {
        let now = self.lock();
        let expired = now.expires.is_some_and(|at| Instant::now() >= at);
        let header = now.header.clone().filter(|_| !expired);
        (header, now.generation)
    }

    /// Returns a new `authorization` header after the server has refused a request. If another thread has got a new
    /// header meanwhile, returns that header. Other threads wait until this call returns.
    fn authorize(
        &self,
        uri: &Uri,
        refusal: &Answer,
        generation: u64,
    ) -> Result<String, FetchError> {
        let mut now = self.lock();
        if let Some(header) = now.header.clone().filter(|_| now.generation != generation) {
            return Ok(header);
        }
        let values = refusal.headers.get_all("www-authenticate").into_iter();
        let texts = values.filter_map(|v| v.to_str().ok()).take(16);
        let challenges: Vec<Challenge> = texts.flat_map(challenge::parse).collect();
        let of = |scheme: &str| challenges.iter().find(|c| c.scheme == scheme);
        let (header, life) = if let Some(challenge) = of("bearer") {
            let (token, life) = self.token(uri, challenge)?;
            (format!("Bearer {token}"), Some(life))
        } else if of("basic").is_some() {
            // A header that the server has refused is not used again, because the server would refuse it again.
            let header = self.basic().filter(|h| now.header.as_ref() != Some(h));
            (header.ok_or_else(|| self.refused(&host_of(uri)))?, None)
        } else {
            return Err(FetchError::new(
                Kind::Unauthorized,
                format!("{} wants a login and does not say which", host_of(uri)),
            ));
        };
        *now = Authorization {
            header: Some(header.clone()),
            expires: life.map(|life| Instant::now() + life),
            generation: generation + 1,
        };
        Ok(header)
    }

    /// Returns the error that `host` has refused the login.
    fn refused(&self, host: &str) -> FetchError {
        let text = match &self.credential {
            None => format!(
                "{host} wants a user name and a password, and there are none for it: name a Secret of type kubernetes.io/dockerconfigjson in the pod's imagePullSecrets, or a file as 'docker login' writes it in registries.dockerConfig of the configuration"
            ),
            Some(_) => format!("{host} refuses the user name or the password"),
        };
        FetchError::new(Kind::Unauthorized, text)
    }

    fn basic(&self) -> Option<String> {
        match self.credential.as_ref()? {
            Credential::Password { username, password } => Some(format!(
                "Basic {}",
                base64(&format!("{username}:{password}"))
            )),
            Credential::IdentityToken(_) => None,
        }
    }

    /// Requests a token from the token server that a challenge names. Returns the token, and the time for which it is
    /// used.
    fn token(
        &self,
        registry: &Uri,
        challenge: &Challenge,
    ) -> Result<(String, Duration), FetchError> {
        let realm = challenge.parameter("realm").unwrap_or_default();
        let realm = realm_of(registry, realm)?;
        self.check_server(&realm)?;
        let service = challenge.parameter("service").unwrap_or_default();
        let scope = challenge.parameter("scope").unwrap_or(&self.scope);
        let answer = match &self.credential {
            Some(Credential::IdentityToken(token)) => {
                let form = form(&[
                    ("grant_type", "refresh_token"),
                    ("service", service),
                    ("client_id", "podprobe"),
                    ("scope", scope),
                    ("refresh_token", token),
                ]);
                self.ask_token(&realm, None, Some(&form))
            }
            _ => {
                let query = form(&[("service", service), ("scope", scope)]);
                let joint = if realm.query().is_some() { '&' } else { '?' };
                let uri = format!("{realm}{joint}{query}").parse();
                let uri: Uri =
                    uri.map_err(|_| FetchError::failed("the token server has no address"))?;
                self.ask_token(&uri, self.basic().as_deref(), None)
            }
        }?;
        match answer.status {
            200 => read_token(answer),
            401 | 403 => {
                let (server, of) = (host_of(&realm), host_of(registry));
                Err(self.refused(&format!("{server}, the token server of {of},")))
            }
            _ => checked(answer, "token").and_then(read_token),
        }
    }

    /// Returns an error if the login would be sent to a token server that may not belong to the registry's owner.
    fn check_server(&self, realm: &Uri) -> Result<(), FetchError> {
        let host = realm.host().unwrap_or_default();
        if self.credential.is_none() || self.registries.is_token_server(&self.endpoint, host) {
            return Ok(());
        }
        let (name, shown) = (&self.endpoint.name, quoted(host));
        Err(FetchError::new(
            Kind::Unauthorized,
            format!(
                "{name} names the token server {shown}, which is of another domain: the login for {name} is not sent there; \
                 if it is right, add it to registries.hosts[\"{name}\"].tokenServers in the configuration"
            ),
        ))
    }

    fn ask_token(
        &self,
        uri: &Uri,
        authorization: Option<&str>,
        form: Option<&str>,
    ) -> Result<Answer, FetchError> {
        self.client.ask(&Ask {
            uri,
            headers: &[],
            for_server: &login(authorization),
            form,
            limit: Some(self.bounds.document),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Authorization> {
        self.authorization.locked()
    }
}

fn login(authorization: Option<&str>) -> Vec<(&'static str, String)> {
    let header = authorization.map(|text| ("authorization", text.to_owned()));
    header.into_iter().collect()
}

/// Returns the address of the token server. Fails if the token server has no TLS although the registry has TLS.
fn realm_of(registry: &Uri, realm: &str) -> Result<Uri, FetchError> {
    let refuse = |why: &str| {
        let host = host_of(registry);
        FetchError::failed(format!(
            "{host} names the token server {}, {why}",
            quoted(realm)
        ))
    };
    let uri: Uri = realm.parse().map_err(|_| refuse("which is no address"))?;
    redirect::web(&uri).map_err(|why| refuse(&why.to_string()))?;
    match redirect::is_tls(registry) && !redirect::is_tls(&uri) {
        true => Err(refuse("which is without TLS")),
        false => Ok(uri),
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<serde_json::Value>,
}

fn read_token(answer: Answer) -> Result<(String, Duration), FetchError> {
    let host = host_of(&answer.uri);
    let bytes = answer.read_all(MAX_TOKEN, "the answer of the token server")?;
    let wrong = || FetchError::failed(format!("the token server {host} gives no token"));
    let found: TokenAnswer = json::from_slice(&bytes).map_err(|_| wrong())?;
    let given =
        |t: Option<String>| t.filter(|t| !t.is_empty() && t.bytes().all(|b| b.is_ascii_graphic()));
    let token = given(found.token)
        .or(given(found.access_token))
        .ok_or_else(wrong)?;
    let seconds = found.expires_in.and_then(|v| v.as_u64());
    let life = seconds
        .map_or(LIFE, Duration::from_secs)
        .clamp(LIFE, LONGEST_LIFE);
    Ok((token, life - MARGIN))
}

/// Returns the fields as `a=b&c=d`, percent-encoded. Fields with an empty value are left out.
fn form(fields: &[(&str, &str)]) -> String {
    let encoded = |value: &str| {
        value.bytes().fold(String::new(), |mut out, b| {
            match b {
                b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => out.push(char::from(b)),
                b => out.push_str(&format!("%{b:02X}")),
            }
            out
        })
    };
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(n, v)| format!("{n}={}", encoded(v))).collect();
    pairs.join("&")
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<OneError>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct OneError {
    code: String,
    message: String,
}

/// Returns the answer if its status is 200 or 206. Otherwise returns the error for the status, with the registry's own
/// text.
fn checked(answer: Answer, path: &str) -> Result<Answer, FetchError> {
    let status = answer.status;
    if matches!(status, 200 | 206) {
        return Ok(answer);
    }
    let host = host_of(&answer.uri);
    let said = answer.read_all(64 << 10, "").ok();
    let said = said.and_then(|bytes| json::from_slice::<Errors>(&bytes).ok());
    let said = said.and_then(|e| e.errors.into_iter().next());
    let said = said.map_or(String::new(), |e| {
        format!(": {}", quoted(&format!("{} {}", e.code, e.message)))
    });
    let (kind, text) = match status {
        401 | 403 => (
            Kind::Unauthorized,
            format!("{host} does not allow it ({status}{said})"),
        ),
        404 => (
            Kind::Failed,
            format!("{host} has no {path} ({status}{said})"),
        ),
        429 => (
            Kind::Unavailable,
            format!("{host} has had too many requests ({status}{said})"),
        ),
        500.. => (
            Kind::Unavailable,
            format!("{host} cannot answer ({status}{said})"),
        ),
        _ => (
            Kind::Failed,
            format!("{host} answers with status {status}{said}"),
        ),
    };
    Err(FetchError::new(kind, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_server_is_as_safe_as_the_registry() {
        let check = |registry: &str, realm: &str| {
            realm_of(&registry.parse().unwrap(), realm)
                .map(|u| u.to_string())
                .map_err(|e| e.text)
        };
        assert_eq!(check("https://r/", "https://a/t"), Ok("https://a/t".into()));
        assert_eq!(check("http://r/", "http://a/t"), Ok("http://a/t".into()));
        for (realm, why) in [
            ("http://a/t", "without TLS"),
            ("file:///etc/passwd", "which"),
            ("", "no address"),
            ("https://u:p@a/t", "names a user"),
            ("/token", "names no host"),
        ] {
            assert!(
                check("https://r/", realm).unwrap_err().contains(why),
                "{realm}"
            );
        }
    }

    #[test]
    fn forms_are_encoded() {
        let fields = [("scope", "repository:a/b:pull"), ("x", ""), ("t", "é&=+")];
        assert_eq!(
            form(&fields),
            "scope=repository%3Aa%2Fb%3Apull&t=%C3%A9%26%3D%2B"
        );
    }
}
