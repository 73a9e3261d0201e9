//! An address of TCP where the server listens, tried again while it cannot be.
//!
//! Invariants: nothing here waits. A port that would let nobody in is not opened. What is wrong is logged once.

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

/// The time between two tries of an address that is in use.
const INTERVAL: Duration = Duration::from_secs(10);

/// A door that does not open.
#[derive(Debug, Error)]
enum OpenError {
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    #[error(transparent)]
    Address(#[from] io::Error),
}

/// An address where the server listens, or wants to.
pub(super) struct TcpDoor {
    pub(super) door: Door,
    at: SocketAddr,
    listener: Option<TcpListener>,
    files: Option<CredentialFiles>,
    credentials: Option<KnownCredentials>,
    retry: Moment,
    /// The reason why the door does not work, as last logged.
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

    /// The key of the configuration that has its port.
    fn key(&self) -> &'static str {
        match self.door {
            Door::Health => "healthzPort",
            Door::ReadOnly => "readOnlyPort",
            Door::Main | Door::Unix => "port",
        }
    }

    /// Listens, when it does not yet and it is time to try.
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

    /// The credentials first: a port that would let nobody in is not opened.
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

    /// The next client.
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

    /// Returns the credentials in force, or None if this door needs none. The files are looked at for each request, so that
    /// a credential that was withdrawn is worth nothing on an open connection either.
    pub(super) fn credentials(&mut self) -> Option<&KnownCredentials> {
        for news in self.credentials.as_mut()?.renew() {
            match news {
                News::Problem(text) => log::warn!("{text}"),
                News::Solved(text) => log::info!("{text}"),
            }
        }
        self.credentials.as_ref()
    }

    /// Returns when to try again; None while the door listens.
    pub(super) fn retry_at(&self) -> Option<Moment> {
        self.listener.is_none().then_some(self.retry)
    }

    /// Returns the descriptor that becomes readable when a client calls.
    pub(super) fn listening_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests;
