//! A TCP address on which the server listens. If the server cannot listen on the address, it tries again at intervals.
//!
//! Invariants: nothing here waits. A port that would let nobody in is not opened. Each problem is logged once.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use thiserror::Error;

use super::access::Door;
use super::credentials::{CredentialError, CredentialFiles, KnownCredentials, News};
use super::transport::Transport;
use crate::base::clock::Moment;
use crate::base::wire::listen::listener;

/// The time between two attempts to listen on an address.
const INTERVAL: Duration = Duration::from_secs(10);

/// The reasons why the server cannot listen on an address.
#[derive(Debug, Error)]
enum OpenError {
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Address(#[from] io::Error),
}

/// A TCP address on which the server listens or tries to listen.
pub(super) struct TcpDoor {
    pub(super) door: Door,
    at: SocketAddr,
    listener: Option<TcpListener>,
    files: Option<CredentialFiles>,
    credentials: Option<KnownCredentials>,
    retry: Moment,
    /// The reason why the server cannot listen, as last logged; empty while the server listens.
    problem: String,
}

impl TcpDoor {
    pub(super) fn new((door, at, files): (Door, SocketAddr, Option<CredentialFiles>)) -> Self {
        Self {
            door,
            at,
            listener: None,
            files,
            credentials: None,
            retry: Moment::now(),
            problem: String::new(),
        }
    }

    /// Returns the key of the configuration that has this listener's port.
    fn key(&self) -> &'static str {
        match self.door {
            Door::Health => "healthzPort",
            Door::ReadOnly => "readOnlyPort",
            Door::Main | Door::Unix => "port",
        }
    }

    /// Begins to listen, if the server does not listen on this address yet and it is time to try.
    pub(super) fn open(&mut self, now: Moment) {
        if self.listener.is_some() || self.retry > now {
            return;
        }
        self.retry = now + INTERVAL;
        match self.try_open() {
            Ok(()) => {
                if !self.problem.is_empty() {
                    log::info!("{} {}: it listens now", self.key(), self.at);
                }
                self.problem.clear();
            }
            Err(e) => self.say(format!(
                "{} {}: cannot listen: {e}; tried again every {} s",
                self.key(),
                self.at,
                INTERVAL.as_secs()
            )),
        }
    }

    /// Reads the credentials, and then begins to listen. A port that would let nobody in is not opened.
    fn try_open(&mut self) -> Result<(), OpenError> {
        if let Some(files) = &self.files {
            self.credentials = Some(KnownCredentials::read(files.clone())?);
        }
        self.listener = Some(listener(self.at)?);
        Ok(())
    }

    fn say(&mut self, problem: String) {
        if self.problem != problem {
            log::warn!("{problem}");
            self.problem = problem;
        }
    }

    /// Accepts the next client.
    pub(super) fn accept(&mut self) -> io::Result<Transport> {
        let (socket, _) = match &self.listener {
            Some(listener) => listener.accept()?,
            None => return Err(ErrorKind::WouldBlock.into()),
        };
        match self.credentials() {
            Some(known) => Transport::tls(socket, known.config()),
            None => Transport::tcp(socket),
        }
    }

    /// Returns the credentials in force; None if this listener needs none. Changed files are read again for each
    /// request, so that a withdrawn credential is refused on an open connection too.
    pub(super) fn credentials(&mut self) -> Option<&KnownCredentials> {
        for news in self.credentials.as_mut()?.renew() {
            match news {
                News::Problem(text) => log::warn!("{text}"),
                News::Solved(text) => log::info!("{text}"),
            }
        }
        self.credentials.as_ref()
    }

    /// Returns the moment of the next attempt to listen; None while the server listens.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        self.listener.is_none().then_some(self.retry)
    }

    /// Returns the descriptor that becomes readable when a client connects; None while the server does not listen.
    pub(super) fn listening_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests;
