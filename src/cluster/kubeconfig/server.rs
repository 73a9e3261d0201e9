//! The URL of an API server.

use std::net::Ipv6Addr;

/// The reasons for which a text is not the URL of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The URL is not https.
    #[error(
        "must begin with https://, because credentials go over the connection: write https://HOST:PORT"
    )]
    NoHttps,
    /// The URL has a user.
    #[error("must not contain a user or a password: remove what stands before the @")]
    User,
    /// The URL has a query or a fragment.
    #[error("must not contain ? or #: write https://HOST:PORT, or https://HOST:PORT/PATH")]
    Query,
    /// The host is not one.
    #[error("has no host name or IP address: write https://HOST:PORT, an IPv6 address in brackets")]
    Host,
    /// The port is not one.
    #[error("has a port that is not a number from 1 to 65535: write https://HOST:PORT")]
    Port,
}

/// An API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path that stands before the paths of the API, without a slash at its end; mostly empty.
    pub prefix: String,
}

impl Server {
    /// Parses the URL of an API server.
    ///
    /// # Errors
    /// Returns a [`ServerError`] if the text is not such a URL.
    pub fn parse(text: &str) -> Result<Self, ServerError> {
        let scheme = text.get(..8).filter(|s| s.eq_ignore_ascii_case("https://"));
        let rest = scheme.map(|s| &text[s.len()..]);
        let rest = rest.ok_or(ServerError::NoHttps)?;
        if rest.contains(['?', '#']) {
            return Err(ServerError::Query);
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if authority.contains('@') {
            return Err(ServerError::User);
        }
        let (host, port) = host_and_port(authority)?;
        Ok(Self {
            host: host.to_owned(),
            port,
            prefix: path.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns host and port as the header `Host` has them.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

fn host_and_port(authority: &str) -> Result<(&str, u16), ServerError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']').ok_or(ServerError::Host)?;
            let is_address = address.parse::<Ipv6Addr>().is_ok();
            let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
            (
                Some(address).filter(|_| is_address),
                port.ok_or(ServerError::Port)?,
            )
        }
        None => {
            let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
            let is_part = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            let is_host = !host.is_empty() && host.bytes().all(is_part);
            (Some(host).filter(|_| is_host), port)
        }
    };
    let port = match port {
        "" => 443,
        digits if !digits.bytes().all(|b| b.is_ascii_digit()) => return Err(ServerError::Port),
        digits => digits
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or(ServerError::Port)?,
    };
    Ok((host.ok_or(ServerError::Host)?, port))
}
