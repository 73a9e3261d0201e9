//! Image references: `[domain/]path[:tag][@digest]`, normalised as container engines do it.
//!
//! Invariant: a [`Reference`] is always complete and valid: it has a domain, and a tag or a digest.

use std::fmt;

use super::error::ImageError;

/// A normalised reference: `busybox` becomes `docker.io/library/busybox:latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Domain and path: `docker.io/library/busybox`.
    pub repository: String,
    /// The tag; `latest` if the text had no tag and no digest.
    pub tag: Option<String>,
    /// The digest, `sha256:<64 hex digits>`. If there is a digest, it alone decides which image is meant.
    pub digest: Option<String>,
}

/// Greatest length in bytes of domain and path together.
const MAX_NAME: usize = 255;

impl Reference {
    /// Parses and normalises a reference. If the text is not a reference, returns [`ImageError::InvalidName`] with the
    /// rule that the text breaks.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        parse(text).map_err(|why| ImageError::InvalidName {
            name: text.into(),
            why: why.into(),
        })
    }
}

fn parse(text: &str) -> Result<Reference, &'static str> {
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    if digest.is_some_and(|d| !is_digest(d)) {
        return Err("the digest must be sha256: and 64 lower-case hex digits");
    }
    let (name, tag) = match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    };
    if tag.is_some_and(|t| !is_tag(t)) {
        return Err(
            "the tag must be 1 to 128 letters, digits, '_', '.' or '-', not beginning with '.' or '-'",
        );
    }
    let repository = repository(name)?;
    if repository.len() > MAX_NAME {
        return Err("the name is longer than 255 characters");
    }
    let tag = tag.or(if digest.is_none() {
        Some("latest")
    } else {
        None
    });
    Ok(Reference {
        repository,
        tag: tag.map(Into::into),
        digest: digest.map(Into::into),
    })
}

fn repository(name: &str) -> Result<String, &'static str> {
    let (domain, path) = match name.split_once('/') {
        Some((first, rest)) if is_domain_like(first) => (first, rest),
        _ => ("docker.io", name),
    };
    let domain = if domain == "index.docker.io" {
        "docker.io"
    } else {
        domain
    };
    if !is_domain(domain) {
        return Err("the part before the first '/' is not a host name");
    }
    if path.is_empty() {
        return Err("the name is empty");
    }
    if path.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err("the name must be lower case");
    }
    if !path.split('/').all(is_path_component) {
        return Err(
            "each part of the name must be lower-case letters and digits, joined by '.', '_', '__' or dashes",
        );
    }
    let library = if domain == "docker.io" && !path.contains('/') {
        "library/"
    } else {
        ""
    };
    Ok(format!("{domain}/{library}{path}"))
}

fn is_domain_like(s: &str) -> bool {
    s == "localhost" || s.contains(['.', ':']) || s.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_domain(s: &str) -> bool {
    let (host, port) = s.rsplit_once(':').map_or((s, None), |(h, p)| (h, Some(p)));
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let in_brackets = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_ok = match in_brackets {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(label),
    };
    host_ok && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

/// Tells whether a part of a path is valid: words of `[a-z0-9]+`, joined by `.`, `_`, `__`, or any number of dashes.
fn is_path_component(s: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = s.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let separators_ok = bytes
        .split(|b| word(*b))
        .filter(|s| !s.is_empty())
        .all(|s| matches!(s, b"." | b"_" | b"__") || s.iter().all(|b| *b == b'-'));
    word(*first) && word(*last) && separators_ok
}

fn is_tag(s: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    (1..=128).contains(&s.len()) && !s.starts_with(['.', '-']) && s.bytes().all(rest)
}

/// Tells whether `s` is `sha256:` and 64 lower-case hex digits.
pub(super) fn is_digest(s: &str) -> bool {
    s.strip_prefix("sha256:").is_some_and(is_hex64)
}

/// Tells whether `s` is 64 lower-case hex digits.
pub(super) fn is_hex64(s: &str) -> bool {
    s.len() == 64
        && s.bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        self.digest.as_ref().map_or(Ok(()), |d| write!(f, "@{d}"))
    }
}

/// Returns up to three names of `known` that may have been meant by `wanted`. Such a name differs from `wanted` in the
/// tag, has the same last part of the path, or differs by one or two letters in this part.
pub(super) fn similar<'a>(wanted: &Reference, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let last = |r: &str| r.rsplit('/').next().unwrap_or_default().to_owned();
    let mut ranked: Vec<(usize, &str)> = known
        .filter_map(|name| {
            let other = parse(name).ok()?;
            let (a, b) = (last(&wanted.repository), last(&other.repository));
            let rank = match crate::base::spelling::distance(&a, &b) {
                0 if wanted.repository == other.repository => 0,
                n if n <= 2 && n < a.len() => n + 1,
                _ => return None,
            };
            Some((rank, name))
        })
        .collect();
    ranked.sort();
    ranked
        .into_iter()
        .take(3)
        .map(|(_, name)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        assert_eq!(
            Reference::parse(input)
                .map(|r| r.to_string())
                .unwrap_or_else(|e| e.to_string()),
            expected
        );
    }

    #[test]
    fn normalises() {
        let digest = format!("sha256:{}", "a".repeat(64));
        check("busybox", "docker.io/library/busybox:latest");
        check("docker.io/busybox:1.36", "docker.io/library/busybox:1.36");
        check(
            "index.docker.io/library/busybox",
            "docker.io/library/busybox:latest",
        );
        check("user/app", "docker.io/user/app:latest");
        check("localhost/app", "localhost/app:latest");
        check("localhost:5000/app:v1", "localhost:5000/app:v1");
        check("[::1]:5000/app", "[::1]:5000/app:latest");
        check(
            "quay.io/a/b-c__d.e/f:T.a_g-1",
            "quay.io/a/b-c__d.e/f:T.a_g-1",
        );
        check(
            &format!("busybox@{digest}"),
            &format!("docker.io/library/busybox@{digest}"),
        );
        check(
            &format!("busybox:1@{digest}"),
            &format!("docker.io/library/busybox:1@{digest}"),
        );
    }

    #[test]
    fn refuses() {
        for bad in [
            "",
            "Busy box",
            "busybox:",
            "busybox@sha256:abc",
            "a//b",
            "/a",
            "a/",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "../etc",
            "a:.b",
            "UP",
        ] {
            assert!(
                matches!(Reference::parse(bad), Err(ImageError::InvalidName { .. })),
                "{bad:?} was accepted"
            );
        }
        assert!(Reference::parse(&"a".repeat(300)).is_err());
        assert!(Reference::parse(&format!("a:{}", "t".repeat(129))).is_err());
        check(
            "a/B",
            "cannot parse image name \"a/B\": the name must be lower case",
        );
    }

    #[test]
    fn similar_names_are_ranked() {
        let known = [
            "docker.io/library/busybox:1.36",
            "quay.io/x/busybox:latest",
            "docker.io/library/bosybox:latest",
            "docker.io/library/nginx:latest",
        ];
        let wanted = Reference::parse("busybox").unwrap();
        assert_eq!(
            similar(&wanted, known.iter().copied()),
            [known[0], known[1], known[2]]
        );
        assert!(similar(&Reference::parse("redis").unwrap(), known.iter().copied()).is_empty());
    }
}
