//! The certificate that the server makes for itself if the configuration names none, as a kubelet does.
//!
//! Invariants: the pair is made once and kept, so that a client that has looked at the certificate knows it again. A pair
//! that cannot be used, for example after a power cut between its two files, or that has other names, is made anew. The certificate does not
//! expire: the clock of a node may be years behind or ahead, and nobody renews it.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use thiserror::Error;
use x509_cert::builder::profile::BuilderProfile;
use x509_cert::builder::{self, Builder, CertificateBuilder};
use x509_cert::certificate::Rfc5280;
use x509_cert::der::asn1::{Any, BitString, Ia5String, ObjectIdentifier, UtcTime};
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{self, Decode, Document, Encode, EncodePem};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{ExtendedKeyUsage, SubjectAltName};
use x509_cert::ext::{Extension, ToExtension};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{
    self, AlgorithmIdentifierOwned, DynSignatureAlgorithmIdentifier, EncodePublicKey,
    SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef,
};
use x509_cert::time::{Time, Validity};
use x509_cert::{Certificate, TbsCertificate};

use crate::base::atomic_file;

const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ECDSA_WITH_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");

/// The node for which a certificate is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name of the node.
    pub name: String,
    /// Address of the node.
    pub address: IpAddr,
}

/// A certificate cannot be made.
#[derive(Debug, Error)]
pub enum SelfSignedError {
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    /// The certificate cannot be encoded.
    #[error("cannot make a certificate: {0}")]
    Encoding(#[from] builder::Error),
    /// The pair cannot be written.
    #[error("cannot write: {0}")]
    Unwritten(#[from] io::Error),
}

impl From<der::Error> for SelfSignedError {
    fn from(e: der::Error) -> Self {
        Self::Encoding(e.into())
    }
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
    // A positive number.
    serial[0] = serial[0] & 0x7f | 0x40;
    let public = PublicKey(pair.public_key().as_ref().to_vec());
    let signer = Signer(public.clone());
    let start = UtcTime::from_date_time(der::DateTime::new(1970, 1, 1, 0, 0, 0)?)?;
    let validity = Validity::<Rfc5280>::new(Time::UtcTime(start), Time::INFINITY);
    let serial = SerialNumber::new(&serial)?;
    let mut builder =
        CertificateBuilder::new(Profile::new(host)?, serial, validity, public.info()?)?;
    let unsigned = builder.finalize(&signer)?;
    let signature = pair.sign(&random, &unsigned).map_err(no_bytes)?;
    let made = builder.assemble(BitString::from_bytes(signature.as_ref())?, &signer)?;
    let pkcs8 = Document::try_from(document.as_ref())?;
    atomic_file::replace(key, pkcs8.to_pem("PRIVATE KEY", LineEnding::LF)?.as_bytes())?;
    atomic_file::replace(certificate, made.to_pem(LineEnding::LF)?.as_bytes())?;
    Ok(())
}

/// Returns true if a certificate in DER is one for the host.
pub fn is_of(host: &Host, certificate: &[u8]) -> bool {
    let names = Certificate::from_der(certificate)
        .and_then(|made| made.tbs_certificate().get_extension::<SubjectAltName>());
    let wanted = Profile::new(host).map(|profile| profile.names);
    let has = names.ok().flatten().map(|(_, names)| names.0);
    has.is_some() && has == wanted.ok()
}

/// The content of the certificate.
struct Profile {
    subject: Name,
    names: Vec<GeneralName>,
}

impl Profile {
    fn new(host: &Host) -> Result<Self, der::Error> {
        let dns = |name: &str| Ia5String::new(name).map(GeneralName::DnsName);
        Ok(Self {
            // A node's name has letters, digits, dashes and dots, which need no quotes.
            subject: format!("CN={}", host.name).parse()?,
            names: vec![
                dns(&host.name)?,
                dns("localhost")?,
                GeneralName::from(host.address),
                GeneralName::from(IpAddr::from([127, 0, 0, 1])),
            ],
        })
    }
}

impl BuilderProfile for Profile {
    fn get_issuer(&self, subject: &Name) -> Name {
        subject.clone()
    }

    fn get_subject(&self) -> Name {
        self.subject.clone()
    }

    fn build_extensions(
        &self,
        _: SubjectPublicKeyInfoRef<'_>,
        _: SubjectPublicKeyInfoRef<'_>,
        certificate: &TbsCertificate,
    ) -> builder::Result<Vec<Extension>> {
        let subject = certificate.subject();
        Ok(vec![
            ExtendedKeyUsage(vec![SERVER_AUTH]).to_extension(subject, &[])?,
            SubjectAltName(self.names.clone()).to_extension(subject, &[])?,
        ])
    }
}

/// A point of the curve P-256.
#[derive(Clone)]
struct PublicKey(Vec<u8>);

impl PublicKey {
    fn info(&self) -> Result<SubjectPublicKeyInfoOwned, der::Error> {
        Ok(SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned {
                oid: EC_PUBLIC_KEY,
                parameters: Some(Any::from(P256)),
            },
            subject_public_key: BitString::from_bytes(&self.0)?,
        })
    }
}

impl EncodePublicKey for PublicKey {
    fn to_public_key_der(&self) -> spki::Result<Document> {
        let info = self.info().and_then(|info| info.to_der());
        Ok(Document::try_from(info?)?)
    }
}

/// The names of the key and of its algorithm, for the builder. The signature is made beside it.
struct Signer(PublicKey);

impl signature::Keypair for Signer {
    type VerifyingKey = PublicKey;

    fn verifying_key(&self) -> PublicKey {
        self.0.clone()
    }
}

impl DynSignatureAlgorithmIdentifier for Signer {
    fn signature_algorithm_identifier(&self) -> spki::Result<AlgorithmIdentifierOwned> {
        Ok(AlgorithmIdentifierOwned {
            oid: ECDSA_WITH_SHA256,
            parameters: None,
        })
    }
}
