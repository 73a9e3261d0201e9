//! Where a redirect leads, and whether it may.

use ureq::http::Uri;

/// Longest address that a server may name.
const MAX_ADDRESS: usize = 16 << 10;

/// The address of a `Location` in an answer of `from`. http and https only, never from https to http, never with a user.
pub(crate) fn next(from: &Uri, location: &str) -> Result<Uri, String> {
    let refuse = |why: &str| format!("it redirects to {}, {why}", super::quoted(location));
    if location.len() > MAX_ADDRESS {
        return Err("it redirects to an address of more than 16 KiB".into());
    }
    let whole = absolute(from, location).ok_or_else(|| refuse("which is no address"))?;
    let uri: Uri = whole.parse().map_err(|_| refuse("which is no address"))?;
    web(&uri).map_err(|why| refuse(&why))?;
    match is_tls(from) && !is_tls(&uri) {
        true => Err(refuse("which is without TLS")),
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

/// Checks that an address may be asked at all: it is http or https, and names a host and no user.
pub(crate) fn web(uri: &Uri) -> Result<(), String> {
    let Some(authority) = uri.authority().filter(|a| !a.host().is_empty()) else {
        return Err("which names no host".into());
    };
    match uri.scheme_str() {
        _ if authority.as_str().contains('@') => Err("which names a user".into()),
        Some("http" | "https") => Ok(()),
        Some(other) => Err(format!("which is {other} instead of http or https")),
        None => Err("which names no scheme".into()),
    }
}

pub(crate) fn is_tls(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// Tells whether both addresses lead to the same server: only then do credentials go with the request.
pub(crate) fn same_origin(a: &Uri, b: &Uri) -> bool {
    let host = |u: &Uri| u.host().map(str::to_ascii_lowercase);
    a.scheme_str() == b.scheme_str() && host(a) == host(b) && port(a) == port(b)
}

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
            Err(why) => assert!(got.as_ref().is_err_and(|e| e.contains(why)), "{got:?}"),
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
        for text in crate::base::http_client::random::texts(5000, b"htps:/@.%[]?#a1 \x7f\xff") {
            if let Ok(uri) = next(&from, &text) {
                assert!(web(&uri).is_ok() && is_tls(&uri), "{text:?}");
            }
        }
    }
}
