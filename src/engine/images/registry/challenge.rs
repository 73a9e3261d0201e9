//! Parses `WWW-Authenticate` (RFC 9110 11.6.1), the header by which a registry asks for a login.

/// Greatest length of a header in bytes. `MAX_CHALLENGES` and `MAX_PARAMETERS` bound the challenges in a header, and the
/// parameters of a challenge.
const MAX_HEADER: usize = 8 << 10;
const MAX_CHALLENGES: usize = 16;
const MAX_PARAMETERS: usize = 32;

/// A challenge of a registry: the kind of login that the registry asks for, with parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// The kind of login in lower case: `bearer` or `basic`.
    pub(super) scheme: String,
    /// Names and values of the parameters; the names are in lower case.
    parameters: Vec<(String, String)>,
}

impl Challenge {
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Returns the challenges of one header. Leaves out the part of the header that cannot be parsed, and everything after
/// this part.
pub(super) fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    let mut rest = match header.len() > MAX_HEADER {
        true => return found,
        false => header,
    };
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            return found;
        }
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        let count = found.len();
        match (value, found.last_mut()) {
            (Some(value), Some(challenge)) if challenge.parameters.len() < MAX_PARAMETERS => {
                let Some((value, after)) = self::value(value.trim_start_matches([' ', '\t']))
                else {
                    return found;
                };
                let name = word.to_ascii_lowercase();
                challenge.parameters.push((name, value));
                rest = after;
            }
            (None, _) if count < MAX_CHALLENGES => {
                let scheme = word.to_ascii_lowercase();
                found.push(Challenge {
                    scheme,
                    ..Challenge::default()
                });
                rest = after;
            }
            _ => return found,
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let is = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is(c)).unwrap_or(text.len()))
}

/// Parses a token or a quoted string at the beginning of `text`. Returns its value and the text after it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (word, rest) = token(text);
        return (!word.is_empty()).then(|| (word.to_owned(), rest));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            c if c.is_control() => return None,
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: &[(&str, &[(&str, &str)])]) {
        let found = parse(header);
        let found = found.iter().map(|c| {
            let parameters = c.parameters.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            (c.scheme.as_str(), parameters.collect::<Vec<_>>())
        });
        let found = found.collect::<Vec<_>>();
        let expected: Vec<_> = expected.iter().map(|(s, p)| (*s, p.to_vec())).collect();
        assert_eq!(found, expected, "{header}");
    }

    #[test]
    fn challenges_of_registries() {
        check(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/a:pull,push""#,
            &[(
                "bearer",
                &[
                    ("realm", "https://auth.docker.io/token"),
                    ("service", "registry.docker.io"),
                    ("scope", "repository:library/a:pull,push"),
                ],
            )],
        );
        check(
            r#"Basic realm="a \"b\" c""#,
            &[("basic", &[("realm", "a \"b\" c")])],
        );
        check(
            r#"BASIC Realm=x , Bearer realm = "y" , error=invalid"#,
            &[
                ("basic", &[("realm", "x")]),
                ("bearer", &[("realm", "y"), ("error", "invalid")]),
            ],
        );
        check(
            "Negotiate, Basic realm=x",
            &[("negotiate", &[]), ("basic", &[("realm", "x")])],
        );
        check("", &[]);
        check("realm=x", &[]);
        check(r#"Basic realm="open"#, &[("basic", &[])]);
        check(&format!("Basic a={}", "x".repeat(9000)), &[]);
    }

    #[test]
    fn random_headers_end() {
        for text in crate::random_texts::texts(20_000, b"Bearl m=\",\\\xc3\xa9\t\x01") {
            let found = parse(&text);
            assert!(found.len() <= MAX_CHALLENGES);
        }
        let many = "a ".repeat(1000);
        assert_eq!(parse(&many).len(), MAX_CHALLENGES);
        let many = format!("a {}", "b=c,".repeat(1000));
        assert_eq!(parse(&many)[0].parameters.len(), MAX_PARAMETERS);
    }
}
