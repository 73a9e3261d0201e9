//! Resolves redirects: which address a redirect leads to, and whether podprobe may follow it.

use ureq::http::Uri;

use super::error::quoted;

/// Largest size in bytes of an address in a redirect.
const MAX_ADDRESS: usize = 16 << 10;

/// The reason why podprobe must not send a request to an address. The text is the end of a sentence about the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The address names no host.
    #[error("which names no host")]
    NoHost,
    /// The address contains a user, and perhaps a password.
    #[error("which names a user")]
    User,
    /// The scheme is not http or https.
    #[error("which is {0} instead of http or https")]
    Scheme(String),
    /// The address has no scheme.
    #[error("which names no scheme")]
    NoScheme,
}

/// The reason why a redirect is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RedirectError {
    #[error("it redirects to an address of more than 16 KiB")]
    TooLong,
    #[error("it redirects to {}, which is no address", quoted(.0))]
    NoAddress(String),
    #[error("it redirects to {}, {why}", quoted(location))]
    Refused { location: String, why: AddressError },
    #[error("it redirects to {}, which is without TLS", quoted(.0))]
    WithoutTls(String),
}

/// Returns the address that the `Location` header of an answer from `from` leads to. Only http and https are allowed,
/// never a step from https to http, and never an address with a user.
pub(crate) fn next(from: &Uri, location: &str) -> Result<Uri, RedirectError> {
    if location.len() > MAX_ADDRESS {
        return Err(RedirectError::TooLong);
    }
    let no_address = || RedirectError::NoAddress(location.to_owned());
    let whole = absolute(from, location).ok_or_else(no_address)?;
    let uri: Uri = whole.parse().map_err(|_| no_address())?;
    web(&uri).map_err(|why| RedirectError::Refused {
        location: location.to_owned(),
        why,
    })?;
    match is_tls(from) && !is_tls(&uri) {
        true => Err(RedirectError::WithoutTls(location.to_owned())),
        false => Ok(uri),
    }
}

fn absolute(from: &Uri, location: &str) -> Option<String> {
    let scheme = from.scheme_str()?;
    let authority = from.authority()?;
    let has_scheme = location.split_once(':').is_some_and(|(s, _)| {
        !s.is_empty()
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
    });
    Some(if has_scheme {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let (dir, _) = from.path().rsplit_once('/')?;
        format!("{scheme}://{authority}{dir}/{location}")
    })
}

/// Checks that podprobe may send a request to an address: the scheme is http or https, and the address has a host and
/// no user.
///
/// # Errors
/// Returns what is wrong with the address.
pub fn web(uri: &Uri) -> Result<(), AddressError> {
    let Some(authority) = uri.authority().filter(|a| !a.host().is_empty()) else {
        return Err(AddressError::NoHost);
    };
    match uri.scheme_str() {
        _ if authority.as_str().contains('@') => Err(AddressError::User),
        Some("http" | "https") => Ok(()),
        Some(other) => Err(AddressError::Scheme(other.to_owned())),
        None => Err(AddressError::NoScheme),
    }
}

/// Tells whether the scheme of an address is https.
pub fn is_tls(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// Tells whether both addresses lead to the same server. A redirected request carries credentials only to the same
/// server.
pub fn same_origin(a: &Uri, b: &Uri) -> bool {
    let host = |u: &Uri| u.host().map(str::to_ascii_lowercase);
    a.scheme_str() == b.scheme_str() && host(a) == host(b) && port(a) == port(b)
}

/// Returns the port of an address, or that of its scheme.
pub(crate) fn port(uri: &Uri) -> u16 {
    let default = if is_tls(uri) { 443 } else { 80 };
    uri.port_u16().unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, location: &str, expected: Result<&str, &str>) {
        let got = next(&from.parse().unwrap(), location).map(|u| u.to_string());
        match expected {
            Ok(address) => assert_eq!(got.as_deref(), Ok(address)),
            Err(why) => assert!(got.unwrap_err().to_string().contains(why)),
        }
    }

    #[test]
    fn redirects_lead_to_http_and_https_only() {
        let from = "https://r.example:5000/v2/a/blobs/x?q=1";
        check(
            from,
            "https://cdn.example/y?z",
            Ok("https://cdn.example/y?z"),
        );
        check(from, "/y", Ok("https://r.example:5000/y"));
        check(from, "//cdn/y", Ok("https://cdn/y"));
        check(
            from,
            "y?a=b:c",
            Ok("https://r.example:5000/v2/a/blobs/y?a=b:c"),
        );
        check(from, "http://r.example:5000/y", Err("without TLS"));
        check(from, "file:///etc/shadow", Err("which"));
        check(from, "file://localhost/etc/shadow", Err("is file instead"));
        check(from, "unix:/run/x", Err("which"));
        check(from, "https://u:p@cdn/y", Err("names a user"));
        check(from, "https://", Err("no address"));
        check(from, "https://a b/", Err("no address"));
        check(from, "", Ok("https://r.example:5000/v2/a/blobs/"));
        check("http://r/a", "https://r/b", Ok("https://r/b"));
        check(from, &"a".repeat(20 << 10), Err("16 KiB"));
    }

    #[test]
    fn another_port_or_scheme_is_another_server() {
        let same = |a: &str, b: &str| same_origin(&a.parse().unwrap(), &b.parse().unwrap());
        assert!(same("https://R.example/a", "https://r.example:443/b"));
        assert!(!same("https://r.example/a", "https://r.example:444/a"));
        assert!(!same("https://r.example/a", "http://r.example:443/a"));
        assert!(!same("https://r.example/a", "https://r.example.evil/a"));
    }

    #[test]
    fn random_addresses_never_panic() {
        let from: Uri = "https://r.example/v2/a".parse().unwrap();
        for text in crate::random_texts::texts(5000, b"htps:/@.%[]?#a1 \x7f\xff") {
            if let Ok(uri) = next(&from, &text) {
                assert!(web(&uri).is_ok() && is_tls(&uri), "{text:?}");
            }
        }
    }
}
