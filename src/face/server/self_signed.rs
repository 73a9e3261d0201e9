//! The certificate that the server makes for itself if the configuration names none, as a kubelet does.
//!
//! Invariants: the pair is made once and kept, so that a client that has looked at the certificate knows it again. A pair
//! that cannot be used, for example after a power cut between its two files, or that has other names, is made anew. The certificate does not
//! expire: the clock of a node may be years behind or ahead, and nobody renews it.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use thiserror::Error;

use super::der::{self, encode};
use crate::base::atomic_file;

// Object identifiers: id-ecPublicKey, prime256v1, ecdsa-with-SHA256, id-at-commonName, id-ce-subjectAltName, id-ce-extKeyUsage,
// id-kp-serverAuth.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const EXT_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
/// Version 3 of X.509, counted from 0.
const V3: u8 = 2;
/// Start of the certificate's time.
const EPOCH: &str = "700101000000Z";
/// The time that says "does not expire" (RFC 5280, 4.1.2.5).
const NEVER: &str = "99991231235959Z";

/// The node for which a certificate is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the node.
    pub name: String,
    /// Address of the node.
    pub address: IpAddr,
}

impl Host {
    /// Returns the names and addresses that clients on this node and elsewhere ask for.
    fn names(&self) -> ([&str; 2], [IpAddr; 2]) {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        ([&self.name, "localhost"], [self.address, loopback])
    }
}

/// A certificate cannot be made.
#[derive(Debug, Error)]
pub enum SelfSignedError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    /// The pair cannot be written.
    #[error("cannot write: {0}")]
    Unwritten(#[from] io::Error),
}

/// Makes a certificate for the host with its key, and writes both in PEM, the key first.
///
/// # Errors
/// Returns [`SelfSignedError`] if there are no random bytes, or if a file cannot be written.
pub fn make(host: &Host, certificate: &Path, key: &Path) -> Result<(), SelfSignedError> {
    let random = SystemRandom::new();
    let no_bytes = |_| SelfSignedError::NoRandomBytes;
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(no_bytes)?;
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random)
        .map_err(|_| SelfSignedError::NoRandomBytes)?;
    let mut serial = [0; 16];
    random.fill(&mut serial).map_err(no_bytes)?;
    // A positive number of all its bytes.
    serial[0] = serial[0] & 0x7f | 0x40;
    let unsigned = unsigned(host, &serial, pair.public_key().as_ref());
    let signature = pair.sign(&random, &unsigned).map_err(no_bytes)?;
    let signature = encode(der::BIT_STRING, &[&[0], signature.as_ref()]);
    let made = encode(der::SEQUENCE, &[unsigned, signature_algorithm(), signature]);
    atomic_file::replace(key, pem("PRIVATE KEY", document.as_ref()).as_bytes())?;
    atomic_file::replace(certificate, pem("CERTIFICATE", &made).as_bytes())?;
    Ok(())
}

/// Returns true if a certificate in DER is one for the host.
pub fn is_of(host: &Host, certificate: &[u8]) -> bool {
    let certificate = CertificateDer::from(certificate);
    let Ok(certificate) = ParsedCertificate::try_from(&certificate) else {
        return false;
    };
    let (names, addresses) = host.names();
    let names = names.into_iter().map(ServerName::try_from);
    let addresses = addresses.into_iter().map(|address| Ok(address.into()));
    let has = |name: &ServerName<'_>| verify_server_name(&certificate, name).is_ok();
    names
        .chain(addresses)
        .all(|name| name.is_ok_and(|name| has(&name)))
}

/// Returns the certificate without its signature (RFC 5280, 4.1).
fn unsigned(host: &Host, serial: &[u8], public_key: &[u8]) -> Vec<u8> {
    let name = common_name(&host.name);
    let start = encode(der::UTC_TIME, &[EPOCH]);
    let end = encode(der::GENERALIZED_TIME, &[NEVER]);
    let key_algorithm = [object_id(EC_PUBLIC_KEY), object_id(P256)];
    let key_algorithm = encode(der::SEQUENCE, &key_algorithm);
    let public_key = encode(der::BIT_STRING, &[&[0], public_key]);
    let uses = encode(der::SEQUENCE, &[object_id(SERVER_AUTH)]);
    let extensions = [
        extension(EXT_KEY_USAGE, &uses),
        extension(SUBJECT_ALT_NAME, &alternative_names(host)),
    ];
    let extensions = encode(der::SEQUENCE, &extensions);
    let parts = [
        encode(der::holder(0), &[encode(der::INTEGER, &[[V3]])]),
        encode(der::INTEGER, &[serial]),
        signature_algorithm(),
        name.clone(),
        encode(der::SEQUENCE, &[start, end]),
        name,
        encode(der::SEQUENCE, &[key_algorithm, public_key]),
        encode(der::holder(3), &[extensions]),
    ];
    encode(der::SEQUENCE, &parts)
}

fn object_id(id: &[u8]) -> Vec<u8> {
    encode(der::OBJECT_ID, &[id])
}

fn signature_algorithm() -> Vec<u8> {
    encode(der::SEQUENCE, &[object_id(ECDSA_WITH_SHA256)])
}

/// Returns the name of a subject that has no more than a common name.
fn common_name(name: &str) -> Vec<u8> {
    let attribute = [object_id(COMMON_NAME), encode(der::UTF8_STRING, &[name])];
    let attribute = encode(der::SEQUENCE, &attribute);
    encode(der::SEQUENCE, &[encode(der::SET, &[attribute])])
}

fn extension(id: &[u8], value: &[u8]) -> Vec<u8> {
    let value = encode(der::OCTET_STRING, &[value]);
    encode(der::SEQUENCE, &[object_id(id), value])
}

/// Returns the names by which clients know the host (RFC 5280, 4.2.1.6: 2 is a DNS name, 7 an address).
fn alternative_names(host: &Host) -> Vec<u8> {
    let (names, addresses) = host.names();
    let names = names.map(|name| encode(der::numbered(2), &[name]));
    let addresses = addresses.map(|address| match address {
        IpAddr::V4(v4) => encode(der::numbered(7), &[v4.octets()]),
        IpAddr::V6(v6) => encode(der::numbered(7), &[v6.octets()]),
    });
    encode(der::SEQUENCE, &[names, addresses].concat())
}

/// Returns the text of a PEM file: lines of 64 characters between two that name the kind (RFC 7468).
fn pem(kind: &str, der: &[u8]) -> String {
    let lines = der.chunks(48).map(|line| STANDARD.encode(line) + "\n");
    let lines: String = lines.collect();
    format!("-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n")
}
