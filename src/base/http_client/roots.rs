//! Certificates of trusted authorities. They come from `SSL_CERT_FILE` and `SSL_CERT_DIR`, or else from the system's
//! bundle, and in addition from a file of the caller. No certificate is compiled in.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::WaysOut;
use super::error::FetchError;
use crate::base::clock::Time;

/// Largest size in bytes of a file of certificates, and largest number of files read from a directory.
const MAX_FILE: u64 = 8 << 20;
const MAX_FILES: usize = 2000;

/// Paths at which distributions keep their bundle of certificates.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
];

/// Places from which the system's certificates are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    file: Option<PathBuf>,
    dir: Option<PathBuf>,
    bundles: Vec<PathBuf>,
}

impl Sources {
    /// Reads the places of certificates from the environment, as OpenSSL does.
    pub fn of_environment() -> Self {
        let variable = |name: &str| {
            let value = std::env::var_os(name).filter(|v| !v.is_empty());
            value.map(PathBuf::from)
        };
        Self {
            file: variable("SSL_CERT_FILE"),
            dir: variable("SSL_CERT_DIR"),
            bundles: BUNDLES.map(PathBuf::from).into(),
        }
    }

    /// Returns the TLS configuration for connections to `authority` (host and port).
    ///
    /// # Errors
    /// Returns an error if there are no trusted certificates, or if they cannot be read.
    pub fn client_config(
        &self,
        authority: &str,
        ca_file: Option<&Path>,
        ways_out: WaysOut,
    ) -> Result<Arc<ClientConfig>, FetchError> {
        let roots = self.roots(authority, ca_file, ways_out)?;
        let provider = CryptoProvider {
            cipher_suites: ring::ALL_CIPHER_SUITES.to_vec(),
            kx_groups: ring::ALL_KX_GROUPS.to_vec(),
            ..ring::default_provider()
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| FetchError::failed(e.to_string()))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".into()];
        Ok(Arc::new(config))
    }

    /// Returns the certificates of trusted authorities: those of `ca_file` and the system's.
    pub fn roots(
        &self,
        authority: &str,
        ca_file: Option<&Path>,
        ways_out: WaysOut,
    ) -> Result<RootCertStore, FetchError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = ca_file {
            let added = read(path).map(|pem| add(&mut roots, &pem));
            let wrong = |why: String| {
                let path = path.display();
                FetchError::failed(format!("cannot use caFile {path} of {authority}: {why}"))
            };
            match added {
                Err(e) => return Err(wrong(e.to_string())),
                Ok(0) => return Err(wrong("it has no certificate in PEM".into())),
                Ok(_) => {}
            }
        }
        self.add_systems(&mut roots)?;
        match roots.is_empty() {
            true => Err(FetchError::failed(format!(
                "cannot verify {authority}: this node has no certificates of authorities (SSL_CERT_FILE, SSL_CERT_DIR, {}); \
                 install ca-certificates, or {}",
                BUNDLES[0],
                (ways_out.own_authority)(authority)
            ))),
            false => Ok(roots),
        }
    }

    fn add_systems(&self, roots: &mut RootCertStore) -> Result<(), FetchError> {
        let named = |variable: &str, path: &Path, e: io::Error| {
            FetchError::failed(format!("cannot read {} of {variable}: {e}", path.display()))
        };
        if let Some(path) = &self.file {
            let pem = read(path).map_err(|e| named("SSL_CERT_FILE", path, e))?;
            add(roots, &pem);
        }
        if let Some(dir) = &self.dir {
            let entries = fs::read_dir(dir).map_err(|e| named("SSL_CERT_DIR", dir, e))?;
            for entry in entries.flatten().take(MAX_FILES) {
                if let Ok(pem) = read(&entry.path()) {
                    add(roots, &pem);
                }
            }
        }
        if self.file.is_none() && self.dir.is_none() {
            let first = self.bundles.iter().find_map(|path| read(path).ok());
            first.map(|pem| add(roots, &pem));
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(io::Error::other("it has more than 8 MiB")),
        false => Ok(bytes),
    }
}

/// Adds the certificates that can be parsed, and returns their number. A certificate that webpki cannot parse is
/// skipped, and the certificates after it are still added.
fn add(roots: &mut RootCertStore, pem: &[u8]) -> usize {
    let certificates = CertificateDer::pem_slice_iter(pem).flatten();
    roots.add_parsable_certificates(certificates).0
}

/// Returns the text for a person about a failed TLS handshake with a server.
pub fn error_text(authority: &str, e: &rustls::Error, ways_out: WaysOut) -> String {
    use CertificateError as C;
    let rustls::Error::InvalidCertificate(why) = e else {
        return format!("TLS with {authority} failed: {e}");
    };
    let certificate = format!("the certificate of {authority}");
    match why {
        C::ExpiredContext { time, not_after } => format!(
            "{certificate} expired at {}; the clock of this node says {}",
            date(*not_after),
            date(*time)
        ),
        C::NotValidYetContext { time, not_before } => format!(
            "{certificate} is valid from {}; the clock of this node says {}",
            date(*not_before),
            date(*time)
        ),
        // A signature is bad if the authority has been made anew under its old name.
        C::UnknownIssuer | C::BadSignature => format!(
            "{certificate} is signed by nobody whom this node trusts; {}",
            (ways_out.own_authority)(authority)
        ),
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            format!("{certificate} is made for another name")
        }
        other => format!("{certificate} cannot be verified: {other}"),
    }
}

fn date(time: UnixTime) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time.as_secs());
    Time::from(at).to_string()
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const WAYS_OUT: WaysOut = WaysOut {
        without_tls: |_| String::new(),
        own_authority: |host| format!("trust {host} by hand"),
    };

    /// Returns the certificate of the tests' server in PEM.
    fn pem() -> String {
        let der = include_bytes!("../../../tests/data/probe-server.crt.der");
        let text = STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    }

    #[test]
    fn the_environment_comes_before_the_bundles_and_no_roots_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (good, bad) = (dir.path().join("good.pem"), dir.path().join("bad.pem"));
        fs::write(&good, pem()).unwrap();
        fs::write(&bad, "nothing").unwrap();
        let count = |s: &Sources, ca: Option<&Path>| {
            s.roots("r.example", ca, WAYS_OUT)
                .map(|r| r.len())
                .map_err(|e| e.text)
        };
        let none = Sources::default();
        assert!(
            count(&none, None)
                .unwrap_err()
                .contains("trust r.example by hand")
        );
        assert_eq!(count(&none, Some(&good)), Ok(1));
        assert!(
            count(&none, Some(&bad))
                .unwrap_err()
                .contains("has no certificate in PEM")
        );
        let bundle = Sources {
            bundles: vec![dir.path().join("missing"), good.clone()],
            ..none.clone()
        };
        assert_eq!(count(&bundle, None), Ok(1));
        let empty = Sources {
            file: Some(bad.clone()),
            ..bundle.clone()
        };
        assert!(
            count(&empty, None).is_err(),
            "the environment replaces the bundles"
        );
        let by_dir = Sources {
            dir: Some(dir.path().into()),
            ..Sources::default()
        };
        assert_eq!(count(&by_dir, None), Ok(1));
        let missing = Sources {
            file: Some(dir.path().join("x")),
            ..bundle
        };
        assert!(
            count(&missing, None)
                .unwrap_err()
                .contains("of SSL_CERT_FILE: No such file")
        );
    }

    #[test]
    fn a_certificate_outside_its_dates_shows_our_clock() {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let text = |e| error_text("r.example", &rustls::Error::InvalidCertificate(e), WAYS_OUT);
        assert_eq!(
            text(CertificateError::NotValidYetContext {
                time: at(0),
                not_before: at(86_400)
            }),
            "the certificate of r.example is valid from 1970-01-02T00:00:00Z; the clock of this node says 1970-01-01T00:00:00Z"
        );
        assert_eq!(
            text(CertificateError::ExpiredContext {
                time: at(86_400),
                not_after: at(0)
            }),
            "the certificate of r.example expired at 1970-01-01T00:00:00Z; the clock of this node says 1970-01-02T00:00:00Z"
        );
    }
}
