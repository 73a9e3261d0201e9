//! A TLS client that verifies no certificate and sends none (kubelet-probes 3.4), for HTTP/2 or HTTP/1.1.

use std::io;
use std::sync::{Arc, LazyLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms, ring,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::SigningKey;
use rustls::{AlertDescription, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The name of HTTP/2 in a list of protocols (ALPN).
pub const HTTP2: &[u8] = b"h2";

/// Returns the client configuration that trusts every server. The configuration is made at the first call. The client
/// keeps no sessions, so each connection does a full handshake. With a resumed session, a server with a broken key
/// would not be noticed.
pub fn trusting_config() -> Arc<ClientConfig> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions();
        let builder = builder.expect("the provider's own suites cover the default versions");
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = vec![HTTP2.into(), b"http/1.1".into()];
        Arc::new(config)
    });
    CONFIG.clone()
}

/// Returns a verifier that accepts every certificate.
pub fn any_certificate() -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyCertificate)
}

/// Returns the text of a TLS error as Go's client has it, or None for any other error.
pub fn error_text(e: &io::Error) -> Option<String> {
    let e = e.get_ref()?.downcast_ref::<Error>()?;
    Some(match e {
        Error::AlertReceived(alert) => format!("remote error: tls: {}", alert_text(*alert)),
        e => format!("tls: {e}"),
    })
}

/// Returns the error text for a server that does not speak TLS. `first` are the first bytes from the server.
pub(super) fn not_tls(first: &[u8]) -> &'static str {
    if first.starts_with(b"HTTP/") {
        "http: server gave HTTP response to HTTPS client"
    } else {
        "tls: first record does not look like a TLS handshake"
    }
}

fn alert_text(alert: AlertDescription) -> String {
    use AlertDescription as A;
    let known = match alert {
        A::AccessDenied => "access denied",
        A::BadCertificate => "bad certificate",
        A::CertificateExpired => "expired certificate",
        A::CertificateRequired => "certificate required",
        A::CertificateUnknown => "unknown certificate",
        A::DecodeError => "error decoding message",
        A::DecryptError => "error decrypting message",
        A::HandshakeFailure => "handshake failure",
        A::IllegalParameter => "illegal parameter",
        A::InsufficientSecurity => "insufficient security level",
        A::InternalError => "internal error",
        A::NoApplicationProtocol => "no application protocol",
        A::ProtocolVersion => "protocol version not supported",
        A::UnexpectedMessage => "unexpected message",
        A::UnknownCA => "unknown certificate authority",
        A::UnrecognisedName => "unrecognized name",
        other => return format!("alert({})", u8::from(other)),
    };
    known.to_owned()
}

/// Returns ring's cipher suites and key exchanges, without ring's code for signatures. This client makes and checks no
/// signatures, and the code would add a hundred kilobytes to the static file.
fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: ring::ALL_CIPHER_SUITES.to_vec(),
        kx_groups: ring::ALL_KX_GROUPS.to_vec(),
        signature_verification_algorithms: WebPkiSupportedAlgorithms {
            all: &[],
            mapping: &[],
        },
        secure_random: &Random,
        key_provider: &NoKeys,
    }
}

#[derive(Debug)]
struct Random;

impl SecureRandom for Random {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        let system = ::ring::rand::SystemRandom::new();
        ::ring::rand::SecureRandom::fill(&system, bytes).map_err(|_| GetRandomFailed)
    }
}

/// A source of keys without any key, because this client has no certificate of its own.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("this client sends no certificate".into()))
    }
}

/// Signature schemes that the client offers to servers. The client does not check the signatures.
const SCHEMES: [SignatureScheme; 10] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PKCS1_SHA256,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA512,
];

/// A verifier that accepts every certificate, and every signature of the handshake.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}
