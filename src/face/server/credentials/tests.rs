use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use nix::poll::{PollFd, PollTimeout, poll};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use x509_cert::der::Decode;

use super::*;

/// A CA, and a certificate for 127.0.0.1 that it has signed. Servers and clients of the tests use both.
const CA: &[u8] = include_bytes!("../../../../tests/data/probe-server.crt.der");
const LEAF: &[u8] = include_bytes!("../../../../tests/data/probe-leaf.crt.der");
const LEAF_KEY: &[u8] = include_bytes!("../../../../tests/data/probe-leaf.key.der");
pub(in crate::server) const TOKEN: &str = "0123456789abcdef-token";

/// A directory with the credential files of a server: certificate, key, client CA and token.
pub(in crate::server) struct Place {
    dir: tempfile::TempDir,
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

impl Place {
    pub(in crate::server) fn new() -> Self {
        let place = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        place.write("ca", &pem("CERTIFICATE", CA), 0o644);
        place.write("certificate", &pem("CERTIFICATE", LEAF), 0o644);
        place.write("key", &pem("PRIVATE KEY", LEAF_KEY), 0o600);
        place.write("token", &format!("{TOKEN}\n"), 0o600);
        place
    }

    /// Replaces a file by a new one with this text and mode.
    pub(in crate::server) fn write(&self, name: &str, text: &str, mode: u32) {
        let path = self.dir.path().join(name);
        let fresh = self.dir.path().join("fresh");
        fs::write(&fresh, text).unwrap();
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode)).unwrap();
        fs::rename(fresh, path).unwrap();
    }

    /// Replaces the client CA by a certificate that has signed nothing.
    pub(in crate::server) fn change_ca(&self) {
        self.write("ca", &pem("CERTIFICATE", LEAF), 0o644);
    }

    fn chmod(&self, name: &str, mode: u32) {
        let path = self.dir.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(in crate::server) fn files(&self) -> CredentialFiles {
        let path = |name| self.dir.path().join(name);
        CredentialFiles {
            certificate: path("certificate"),
            key: path("key"),
            client_ca: Some(path("ca")),
            token: Some(path("token")),
            made_for: None,
        }
    }

    fn read(&self) -> Result<KnownCredentials, String> {
        KnownCredentials::read(self.files()).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn refused(&self, text: &str) {
        let refused = self.read().err().expect("it is refused");
        assert!(refused.contains(text), "{refused}");
    }
}

/// Returns a client over TLS, with or without a client certificate.
pub(in crate::server) fn tls_client(
    socket: TcpStream,
    with_certificate: bool,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CA)).unwrap();
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let key = PrivateKeyDer::try_from(LEAF_KEY).unwrap();
    let config = match with_certificate {
        true => builder.with_client_auth_cert(vec![CertificateDer::from(LEAF)], key),
        false => Ok(builder.with_no_client_auth()),
    };
    let name = "127.0.0.1".try_into().unwrap();
    let client = ClientConnection::new(Arc::new(config.unwrap()), name).unwrap();
    StreamOwned::new(client, socket)
}

/// Returns the server's side of a connection. Its client has completed the handshake and sent a byte.
fn connected(known: &KnownCredentials, with_certificate: bool) -> Transport {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        use std::io::Write;
        let mut client = tls_client(TcpStream::connect(address).unwrap(), with_certificate);
        client.write_all(b"x").unwrap();
        client
    });
    let mut transport = Transport::tls(listener.accept().unwrap().0, known.config()).unwrap();
    while let Err(e) = transport.read(&mut [0]) {
        assert_eq!(e.kind(), io::ErrorKind::WouldBlock);
        let mut fds = [PollFd::new(transport.as_fd(), transport.events())];
        let ceiling = PollTimeout::try_from(Duration::from_secs(20)).unwrap();
        assert_eq!(poll(&mut fds, ceiling), Ok(1));
    }
    client.join().unwrap();
    transport
}

fn holds(known: &KnownCredentials, transport: &Transport, token: Option<&str>) -> bool {
    known.of(transport, token, Webhooks::default()) == Credentials::Valid
}

fn fits(known: &KnownCredentials, given: &str) -> bool {
    known.token.value.as_ref().is_some_and(|t| t.fits(given))
}

/// Reads the changed files again. There must be no news.
#[track_caller]
fn renew(known: &mut KnownCredentials) {
    assert_eq!(known.renew(), []);
}

/// Reads the changed files again. The only news must be a problem whose text contains `words`.
#[track_caller]
fn problem(known: &mut KnownCredentials, words: &[&str]) {
    match known.renew().as_slice() {
        [News::Problem(text)] => {
            assert!(words.iter().all(|words| text.contains(words)), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

/// Reads the changed files again. The only news must be that the file under `key` is in force again.
#[track_caller]
fn solved(known: &mut KnownCredentials, key: &str) {
    match known.renew().as_slice() {
        [News::Solved(text)] => {
            assert!(text.starts_with(key) && text.ends_with(": in force again"));
        }
        other => panic!("{other:?}"),
    }
}

const OTHER_TOKEN: &str = "another-token-0123456789";
const STAYS: &str = "; what was read before stays in force";
const CLOSED: &str = "; it lets nobody in";

#[test]
fn a_token_fits_as_a_whole() {
    let place = Place::new();
    let known = place.read().unwrap();
    assert!(fits(&known, TOKEN), "without the line end of the file");
    let length = TOKEN.len();
    let last = format!("{}N", &TOKEN[..length - 1]);
    let longer = format!("{TOKEN}2");
    let upper = TOKEN.to_uppercase();
    for wrong in ["", "0", &TOKEN[..length - 1], &last, &longer, &upper] {
        assert!(!fits(&known, wrong), "{wrong:?}");
    }
}

#[test]
fn a_certificate_or_the_token_is_enough_and_neither_is_not() {
    let place = Place::new();
    let known = place.read().unwrap();
    let (with, without) = (connected(&known, true), connected(&known, false));
    assert!(holds(&known, &with, None));
    assert!(holds(&known, &without, Some(TOKEN)));
    assert!(!holds(&known, &without, None));
    assert!(!holds(&known, &without, Some("")));
}

/// The node's own token needs no API server, so it is good without a link.
#[test]
fn in_a_cluster_the_api_server_has_the_last_word() {
    let place = Place::new();
    let known = place.read().unwrap();
    let (with, without) = (connected(&known, true), connected(&known, false));
    let both = Webhooks {
        authentication: true,
        authorization: true,
    };
    let user = || Credentials::Claimed(Claim::User(client_certificate::user(LEAF).unwrap()));
    let token = |text: &str| Credentials::Claimed(Claim::Token(text.into()));
    assert_eq!(known.of(&with, None, both), user());
    assert_eq!(known.of(&with, Some("x"), both), user());
    assert_eq!(known.of(&with, Some(TOKEN), both), Credentials::Valid);
    assert_eq!(known.of(&without, Some(TOKEN), both), Credentials::Valid);
    assert_eq!(known.of(&without, Some("x"), both), token("x"));
    assert_eq!(known.of(&without, None, both), Credentials::None);
    let authentication = Webhooks {
        authentication: true,
        authorization: false,
    };
    assert_eq!(known.of(&with, None, authentication), Credentials::Valid);
    assert_eq!(known.of(&without, Some("x"), authentication), token("x"));
    let authorization = Webhooks {
        authentication: false,
        authorization: true,
    };
    assert_eq!(known.of(&with, None, authorization), user());
    let of_token = known.of(&without, Some("x"), authorization);
    assert_eq!(of_token, Credentials::None);
}

/// A pair that the server makes for a node.
fn made(dir: &tempfile::TempDir) -> CredentialFiles {
    let path = |name| dir.path().join(name);
    CredentialFiles {
        certificate: path("server.crt"),
        key: path("server.key"),
        client_ca: None,
        token: None,
        made_for: Some(Host {
            name: "edge-1.example".into(),
            address: [192, 0, 2, 7].into(),
        }),
    }
}

#[test]
fn without_files_the_server_makes_a_certificate_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = made(&dir);
    let pair = || [&files.certificate, &files.key].map(|path| fs::read(path).unwrap());
    KnownCredentials::read(files.clone()).unwrap();
    let first = pair();
    KnownCredentials::read(files.clone()).unwrap();
    assert_eq!(pair(), first, "it is kept");
    let mode = fs::metadata(&files.key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A power cut after the first of two files.
    KnownCredentials::read(made(&tempfile::tempdir().unwrap())).unwrap();
    fs::remove_file(&files.certificate).unwrap();
    KnownCredentials::read(files.clone()).unwrap();
    assert_ne!(pair(), first);
    fs::write(&files.key, "half").unwrap();
    KnownCredentials::read(files.clone()).unwrap();
    let before = pair();
    let mut other = files.clone();
    if let Some(host) = &mut other.made_for {
        host.address = [192, 0, 2, 8].into();
    }
    KnownCredentials::read(other).unwrap();
    assert_ne!(pair(), before, "its names would be wrong");
    KnownCredentials::read(files.clone()).unwrap();
    let before = pair();
    // A pair of a person is never replaced.
    fs::write(&files.key, "half").unwrap();
    let of_person = CredentialFiles {
        made_for: None,
        ..files.clone()
    };
    assert!(KnownCredentials::read(of_person).is_err());
    assert_eq!(fs::read(&files.certificate).unwrap(), before[0]);
    assert_eq!(fs::read(&files.key).unwrap(), b"half");
}

/// A client that trusts the certificate reaches the server by the node's names, whatever the clock says.
#[test]
fn a_client_can_trust_a_made_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let files = made(&dir);
    let known = KnownCredentials::read(files.clone()).unwrap();
    let trusted = certificates("", &files.certificate).unwrap().remove(0);
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let roots = Arc::new(roots);
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots, provider());
    let verifier = verifier.build().unwrap();
    let shown = &known.certificate.value.cert[0];
    let verify = |name: &str, seconds: u64| {
        use rustls::client::danger::ServerCertVerifier;
        let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        verifier.verify_server_cert(shown, &[], &name, &[], now)
    };
    let year = 365 * 24 * 3600;
    for name in ["edge-1.example", "localhost", "192.0.2.7", "127.0.0.1"] {
        for seconds in [1, 56 * year, 500 * year] {
            verify(name, seconds).unwrap_or_else(|e| panic!("{name} {seconds}: {e}"));
        }
    }
    assert!(verify("edge-2.example", year).is_err());
    let made = x509_cert::Certificate::from_der(shown).unwrap();
    let end = made.tbs_certificate().validity().not_after;
    assert_eq!(end, x509_cert::time::Time::INFINITY);
}

#[test]
fn what_is_not_configured_lets_nobody_in() {
    let place = Place::new();
    let files = CredentialFiles {
        client_ca: None,
        token: None,
        ..place.files()
    };
    let known = KnownCredentials::read(files).unwrap();
    let transport = connected(&known, true);
    assert!(!holds(&known, &transport, Some(TOKEN)));
    assert!(!holds(&known, &transport, Some("")));
}

/// A client certificate is refused once the client CA has changed, even on a connection that was opened before the
/// change.
#[test]
fn a_certificate_is_worth_nothing_once_its_authority_is_not_trusted() {
    let place = Place::new();
    let mut known = place.read().unwrap();
    let transport = connected(&known, true);
    place.change_ca();
    assert!(holds(&known, &transport, None));
    renew(&mut known);
    assert!(!holds(&known, &transport, None));
}

#[test]
fn files_are_read_again_when_they_change_and_only_then() {
    let place = Place::new();
    let mut known = place.read().unwrap();
    let config = known.config();
    renew(&mut known);
    assert!(Arc::ptr_eq(&config, &known.config()));
    place.write("certificate", &pem("CERTIFICATE", CA), 0o644);
    problem(&mut known, &["it does not fit tlsCertFile", STAYS]);
    assert!(Arc::ptr_eq(&config, &known.config()), "the last good one");
    renew(&mut known);
    place.write("certificate", &pem("CERTIFICATE", LEAF), 0o644);
    solved(&mut known, "tlsPrivateKeyFile ");
    assert!(!Arc::ptr_eq(&config, &known.config()));
    let config = known.config();
    place.write("key", &pem("PRIVATE KEY", LEAF_KEY), 0o600);
    renew(&mut known);
    assert!(!Arc::ptr_eq(&config, &known.config()));
    place.write("token", OTHER_TOKEN, 0o600);
    renew(&mut known);
    assert!(fits(&known, OTHER_TOKEN) && !fits(&known, TOKEN));
}

/// While the new key has the wrong mode, the token and the client CA are replaced. The old token and the old client CA
/// must let nobody in.
#[test]
fn a_bad_file_keeps_no_other_from_being_withdrawn() {
    let place = Place::new();
    let mut known = place.read().unwrap();
    let transport = connected(&known, true);
    place.chmod("key", 0o640);
    problem(&mut known, &["tlsPrivateKeyFile ", "(mode 0640)", STAYS]);
    place.write("token", OTHER_TOKEN, 0o600);
    renew(&mut known);
    assert!(fits(&known, OTHER_TOKEN) && !fits(&known, TOKEN));
    let config = known.config();
    place.change_ca();
    renew(&mut known);
    assert!(!holds(&known, &transport, None));
    assert!(!Arc::ptr_eq(&config, &known.config()), "of the new CA");
    place.chmod("key", 0o600);
    solved(&mut known, "tlsPrivateKeyFile ");
}

/// The token and the client CA are removed, or replaced by something unusable. Clients that were let in before are
/// refused.
#[test]
fn what_cannot_be_used_any_more_lets_nobody_in() {
    let place = Place::new();
    let files = place.files();
    let mut known = place.read().unwrap();
    let transport = connected(&known, true);
    fs::remove_file(files.token.unwrap()).unwrap();
    problem(
        &mut known,
        &["authentication.bearerTokenFile ", "No such file", CLOSED],
    );
    assert!(!fits(&known, TOKEN) && holds(&known, &transport, None));
    fs::remove_file(files.client_ca.unwrap()).unwrap();
    problem(
        &mut known,
        &["authentication.x509.clientCAFile ", "No such file", CLOSED],
    );
    assert!(!holds(&known, &transport, None));
    let next = connected(&known, true);
    assert!(next.certificates().is_empty(), "none is asked for");
    place.write("ca", &pem("CERTIFICATE", CA), 0o644);
    solved(&mut known, "authentication.x509.clientCAFile ");
    assert!(holds(&known, &transport, None));
    assert!(holds(&known, &connected(&known, true), None));
    place.write("ca", "nothing", 0o644);
    problem(&mut known, &["no certificate in PEM in it", CLOSED]);
    assert!(!holds(&known, &transport, None));
    fs::remove_file(files.certificate).unwrap();
    problem(&mut known, &["tlsCertFile ", "No such file", STAYS]);
}

#[test]
fn a_problem_is_said_once_until_it_is_solved() {
    let place = Place::new();
    let mut known = place.read().unwrap();
    for _ in 0..2 {
        place.chmod("key", 0o640);
        problem(&mut known, &["(mode 0640)"]);
        place.write("key", "the mode is the same", 0o640);
        renew(&mut known);
        place.write("key", &pem("PRIVATE KEY", LEAF_KEY), 0o600);
        solved(&mut known, "tlsPrivateKeyFile ");
        renew(&mut known);
    }
}

/// A file that could not be read for lack of descriptors is read again, although the file has not changed.
#[test]
fn a_file_that_could_not_be_read_is_read_without_a_change() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static FAILS: AtomicBool = AtomicBool::new(false);
    let place = Place::new();
    let read = |paths: &[PathBuf]| match FAILS.load(Ordering::SeqCst) {
        true => super::read("key", &paths[0].join("none"), 1).map(|_| None),
        false => Ok(Some(())),
    };
    let mut watched = Watched::new(vec![place.files().key], read).unwrap();
    let mut news = Vec::new();
    FAILS.store(true, Ordering::SeqCst);
    place.chmod("key", 0o400);
    assert!(watched.renew(Some(None), &mut news));
    watched.renew(Some(None), &mut news);
    assert_eq!((watched.value, news.len()), (None, 1), "{news:?}");
    FAILS.store(false, Ordering::SeqCst);
    assert!(watched.renew(Some(None), &mut news));
    assert_eq!((watched.value, news.len()), (Some(()), 2), "{news:?}");
}

/// Each client must make a full handshake, so that its certificate is verified.
#[test]
fn no_session_is_resumed() {
    let place = Place::new();
    let known = place.read().unwrap();
    assert_eq!(known.config().send_tls13_tickets, 0);
    assert!(!known.config().session_storage.can_cache());
}

/// A secret with too open a mode is refused. After `chmod 600`, with the content unchanged, the secret is read.
#[test]
fn a_secret_that_is_made_private_is_read() {
    let place = Place::new();
    let mut known = place.read().unwrap();
    place.write("token", OTHER_TOKEN, 0o644);
    problem(&mut known, &["(mode 0644): chmod 600 ", CLOSED]);
    assert!(!fits(&known, TOKEN) && !fits(&known, OTHER_TOKEN));
    place.chmod("token", 0o600);
    solved(&mut known, "authentication.bearerTokenFile ");
    assert!(fits(&known, OTHER_TOKEN));
}

#[test]
fn secrets_that_others_can_read_or_write_are_refused() {
    let place = Place::new();
    for name in ["key", "token"] {
        for mode in [0o640, 0o620, 0o610, 0o604, 0o602, 0o601] {
            place.chmod(name, mode);
            place.refused(&format!("(mode {mode:04o}): chmod 600 "));
        }
        place.chmod(name, 0o400);
        assert!(place.read().is_ok());
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let place = Place::new();
    let refused = |name: &str, text: &str, why: &str| {
        let good = fs::read_to_string(place.dir.path().join(name)).unwrap();
        place.write(name, text, 0o600);
        place.refused(why);
        place.write(name, &good, 0o600);
        assert!(place.read().is_ok());
    };
    refused(
        "token",
        "0123456789abcde\n",
        "a token needs 16 characters or more",
    );
    let long = |length: u64| "x".repeat(length as usize);
    refused("token", &long(MAX_TOKEN + 1), "longer than 4096 bytes");
    refused("ca", &long(MAX_PEM + 1), "longer than 1048576 bytes");
    refused("ca", "", "clientCAFile");
    refused("ca", "nothing", "no certificate in PEM in it");
    refused("certificate", "nothing", "tlsCertFile");
    refused("key", "nothing", "no private key in PEM");
    place.write("token", &long(MAX_TOKEN), 0o600);
    assert!(place.read().is_ok());
    place.write("token", &long(MIN_TOKEN as u64), 0o600);
    assert!(place.read().is_ok());
}
