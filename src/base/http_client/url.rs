//! URLs that a person may write in the configuration.

use std::fmt;

use ureq::http::Uri;

use super::redirect::{self, AddressError};

/// A text is not a URL that podprobe may fetch. The error does not contain the text, because the text may hold a
/// password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebUrlError {
    /// The text is not a URL.
    #[error("not a URL such as \"http://HOST[:PORT]/PATH\", or with https")]
    Form,
    /// podprobe must not send a request to this URL.
    #[error("{form}: it is one {0}", form = Self::Form)]
    Refused(#[from] AddressError),
}

/// An http or https URL with a host and without a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUrl(Uri);

impl WebUrl {
    /// Parses an http or https URL with a host and without a user.
    ///
    /// # Errors
    /// Returns a [`WebUrlError`] if the text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, WebUrlError> {
        let uri: Uri = text.parse().map_err(|_| WebUrlError::Form)?;
        redirect::web(&uri)?;
        Ok(Self(uri))
    }

    /// Returns the URL in the type that the client takes.
    pub fn uri(&self) -> Uri {
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
            let error = WebUrl::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
