//! Reads the user from a client certificate, as the kubelet does: the common name is the user's name, and each organization
//! is a group (kubelet-probes 11.1).
//!
//! Invariant: pure. Whether the certificate is valid is decided elsewhere; the reader of certificates is the one that decides it.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::der::{self, Values};
use crate::api::review::User;

/// The key of a user's extra fact by which an audit finds the credential.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The group of every user that has authenticated.
const AUTHENTICATED: &str = "system:authenticated";
// Object identifiers: id-at-commonName, id-at-organizationName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// Returns the user of a certificate in DER; None if the certificate has no common name.
pub fn user(certificate: &[u8]) -> Option<User> {
    let der = CertificateDer::from(certificate);
    let parsed = EndEntityCert::try_from(&der).ok()?;
    let (mut name, mut groups) = (String::new(), Vec::new());
    for (_, set) in Values(parsed.subject()) {
        for (_, attribute) in Values(set) {
            let mut parts = Values(attribute);
            match parts.next()? {
                (der::OBJECT_ID, COMMON_NAME) => name = text(parts.next()?)?,
                (der::OBJECT_ID, ORGANIZATION) => groups.push(text(parts.next()?)?),
                _ => {}
            }
        }
    }
    if name.is_empty() {
        return None;
    }
    groups.push(AUTHENTICATED.to_owned());
    let mut id = "X509SHA256=".to_owned();
    for byte in digest(&SHA256, certificate).as_ref() {
        let _ = write!(id, "{byte:02x}");
    }
    Some(User {
        name,
        uid: String::new(),
        groups,
        extra: [(CREDENTIAL_ID.to_owned(), vec![id])].into(),
    })
}

/// Returns the text of an attribute; None for a text whose encoding is none of the usual.
fn text((tag, content): (u8, &[u8])) -> Option<String> {
    match tag {
        der::UTF8_STRING | der::PRINTABLE_STRING | der::IA5_STRING | der::TELETEX_STRING => {
            String::from_utf8(content.to_vec()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &[u8] = include_bytes!("../../../tests/data/client-admin.crt.der");
    /// A certificate with an organization and no common name.
    const NAMELESS: &[u8] = include_bytes!("../../../tests/data/client-nameless.crt.der");

    #[test]
    fn the_name_is_the_user_and_organizations_are_groups() {
        let id = "X509SHA256=fe1fad505563f026029cc39235355684249da59c6a68b8bee501b998fc337f3c";
        let user = user(ADMIN).unwrap();
        assert_eq!(user.name, "admin");
        assert_eq!(
            user.groups,
            ["system:masters", "example:ops", "system:authenticated"]
        );
        assert_eq!(user.extra[CREDENTIAL_ID], [id]);
        assert_eq!(user.uid, "");
    }

    #[test]
    fn a_certificate_without_a_name_is_of_nobody() {
        assert_eq!(user(NAMELESS), None);
        assert_eq!(user(&ADMIN[..100]), None);
        assert_eq!(user(b""), None);
    }
}
