//! Runs one pull. The pull tries the mirrors and the registry in their order, and at each server the logins in their
//! order.
//!
//! Invariant: the next login is tried only if the server refuses the login before it. After any other error the next
//! server is tried.

use std::sync::{Arc, Mutex};

use super::docker_config::{Credential, DockerConfig, DockerConfigError, read_first};
use super::hosts::{Endpoint, Registries};
use super::layers::{Layers, Shared, Wanted};
use super::resolve::Resolved;
use super::session::Session;
use crate::base::http_client::{Client, Dialer, FetchError, Kind, WaysOut};
use crate::base::locks::Locked;
use crate::engine::images::store::LoadedImage;

/// Advice in the error text for a registry that does not work with TLS.
const WAYS_OUT: WaysOut = WaysOut {
    without_tls: |host| {
        format!("a registry without TLS needs \"plainHTTP\": true in registries.hosts[{host:?}]")
    },
    own_authority: |host| {
        format!("name the registry's own authority with caFile in registries.hosts[{host:?}]")
    },
};

/// Largest number of logins that are tried at one server.
const MAX_CREDENTIALS: usize = 8;

/// Pulls an image and commits it to the store. Blocks until the image is committed, or until the pull fails or is
/// stopped.
pub(super) fn pull(shared: &Arc<Shared>, wanted: &Wanted) -> Result<LoadedImage, FetchError> {
    let (registry, repository) = wanted
        .image
        .repository
        .split_once('/')
        .ok_or_else(|| FetchError::failed("the name has no registry"))?;
    let registries = shared.registries.get();
    let own = match &registries.docker_config {
        Some(path) => read_first(std::slice::from_ref(path)),
        None => read_first(&shared.docker_configs),
    };
    if let Some(Err(e)) = &own {
        log::warn!("{e}; images are pulled without it");
    }
    let mut failed: Vec<String> = Vec::new();
    let endpoints = registries.endpoints(registry);
    let count = endpoints.len();
    for (n, endpoint) in endpoints.iter().enumerate() {
        let server = Server {
            shared,
            wanted,
            registries: &registries,
            endpoint,
            repository,
        };
        match server.pull(own.as_ref()) {
            Ok(loaded) => return Ok(loaded),
            Err(e) if e.kind == Kind::Cancelled => return Err(e),
            Err(e) if n + 1 < count => failed.push(format!("mirror {}: {e}", endpoint.name)),
            Err(e) => {
                failed.push(e.text);
                return Err(FetchError::new(e.kind, failed.join("; ")));
            }
        }
    }
    Err(FetchError::failed("there is no server for it"))
}

/// A server that a pull asks for the image.
struct Server<'a> {
    shared: &'a Arc<Shared>,
    wanted: &'a Wanted,
    registries: &'a Registries,
    endpoint: &'a Endpoint,
    repository: &'a str,
}

impl Server<'_> {
    /// Pulls the image from this server. Tries one login after the other until the server accepts a login.
    fn pull(
        &self,
        own: Option<&Result<DockerConfig, DockerConfigError>>,
    ) -> Result<LoadedImage, FetchError> {
        let key = self.endpoint.credential_key(self.repository);
        let configs = self.wanted.credentials.iter();
        let configs: Vec<&DockerConfig> =
            configs.chain(own.and_then(|o| o.as_ref().ok())).collect();
        let found = configs.iter().flat_map(|c| c.lookup(&key));
        let mut logins: Vec<Option<Credential>> = found.take(MAX_CREDENTIALS).map(Some).collect();
        if logins.is_empty() {
            logins.push(None);
        }
        let mut last = None;
        for login in logins {
            match self.pull_as(login) {
                Err(e) if e.kind == Kind::Unauthorized => last = Some(e),
                other => return other,
            }
        }
        let mut e = last.unwrap_or_else(|| FetchError::failed("no login was tried"));
        let broken = own.and_then(|o| Some(o.as_ref().err()?.to_string()));
        let helper = configs.iter().find_map(|c| c.helper(&key));
        for why in [helper, broken].into_iter().flatten() {
            e.text = format!("{}; {why}", e.text);
        }
        Err(e)
    }

    fn pull_as(&self, login: Option<Credential>) -> Result<LoadedImage, FetchError> {
        // This stop belongs to the try alone: when one layer has failed, the stop ends the other layers.
        let stop = self.wanted.stop.child();
        let Shared {
            sources, bounds, ..
        } = &**self.shared;
        let (sources, registries) = (sources.clone(), self.registries.clone());
        let known: Mutex<Option<(String, Arc<rustls::ClientConfig>)>> = Mutex::default();
        let client = Client::new(Dialer {
            stop: stop.clone(),
            pacing: bounds.pacing(),
            // The certificates are read for each pull. So a long-lived process does not keep the certificates in
            // memory, and notices when they change.
            trust: Arc::new(move |authority| {
                let mut known = known.locked();
                if let Some((_, config)) = known.as_ref().filter(|(a, _)| a == authority) {
                    return Ok(config.clone());
                }
                let config =
                    sources.client_config(authority, registries.ca_file(authority), WAYS_OUT)?;
                *known = Some((authority.to_owned(), config.clone()));
                Ok(config)
            }),
            ways_out: WAYS_OUT,
        });
        let session = Session::new(
            client,
            *bounds,
            (self.endpoint, self.registries.clone()),
            self.repository,
            login,
        );
        let image = Resolved::of(&session, &self.wanted.image, *bounds)?;
        let layers = Layers {
            shared: self.shared,
            wanted: self.wanted,
            session: &session,
            image: &image,
            stop: &stop,
        };
        layers.pull()
    }
}
