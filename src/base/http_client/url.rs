//! The URLs that a person may name.

use std::fmt;

use ureq::http::Uri;

use super::redirect;

/// An http or https URL with a host and without a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUrl(Uri);

impl WebUrl {
    /// Parses an http or https URL with a host and without a user.
    ///
    /// # Errors
    /// Returns the reason why the text is no such URL. It does not repeat the text, which may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let not = "not a URL such as \"http://HOST[:PORT]/PATH\", or with https";
        let uri: Uri = text.parse().map_err(|_| not.to_owned())?;
        match redirect::web(&uri) {
            Ok(()) => Ok(Self(uri)),
            Err(why) => Err(format!("{not}: it is one {why}")),
        }
    }

    /// Returns the URL as the client takes it.
    pub(crate) fn uri(&self) -> Uri {
        self.0.clone()
    }
}

impl fmt::Display for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_web_only_and_no_password_in_an_error() {
        for good in [
            "http://h",
            "https://h.example:8443/pods?node=1",
            "http://[::1]:80/",
            "http://127.0.0.1/a",
        ] {
            assert!(WebUrl::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("file:///etc/passwd", "not a URL"),
            ("h/pods", "not a URL"),
            ("/pods", "names no host"),
            ("http:///pods", "not a URL"),
            ("ftp://h/", "is ftp instead of http"),
            ("http://user:secret@h/", "names a user"),
            ("http://h/ x", "not a URL"),
        ] {
            let error = WebUrl::parse(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
