//! Ports that open and close.
//!
//! Invariant: a door that must close has no listener soon after. A change of a state connects to
//! the door, so that its thread wakes from `accept` and checks the state.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use std::{io, thread};

use super::{OK, Target, accept, answer, grpc};

/// What a door serves.
#[derive(Clone, Copy)]
pub(crate) enum Serves {
    Http,
    Grpc,
    /// Open, and closed at once.
    Nothing,
    /// As Nothing, while that state is `ok`.
    State(&'static str),
}

#[derive(Default)]
pub(crate) struct Doors {
    /// Whether every port is closed, whatever the states are.
    shut: AtomicBool,
    ports: Mutex<Vec<(u16, Serves)>>,
    change: Condvar,
}

impl Doors {
    /// Closes every port, or opens each according to its state.
    pub(crate) fn shut(&self, shut: bool, target: &Target) {
        if self.shut.swap(shut, Ordering::SeqCst) != shut {
            target.say(if shut { "ports: closed" } else { "ports: open" });
            self.changed(target);
        }
    }

    /// Call it after a state has changed.
    pub(crate) fn changed(&self, target: &Target) {
        let ports = self.ports.lock().expect("no panic while the lock is held");
        for (port, _) in ports
            .iter()
            .filter(|(_, serves)| !self.is_open(*serves, target))
        {
            let _ = TcpStream::connect_timeout(
                &SocketAddr::from((Ipv4Addr::LOCALHOST, *port)),
                Duration::from_secs(1),
            );
        }
        self.change.notify_all();
    }

    fn is_open(&self, serves: Serves, target: &Target) -> bool {
        let by_state = match serves {
            Serves::State(which) => target
                .state(which)
                .is_some_and(|s| s.load(Ordering::SeqCst) == OK),
            Serves::Http | Serves::Grpc | Serves::Nothing => true,
        };
        by_state && !self.shut.load(Ordering::SeqCst)
    }

    fn wait_until_open(&self, serves: Serves, target: &Target) {
        let mut ports = self.ports.lock().expect("no panic while the lock is held");
        while !self.is_open(serves, target) {
            ports = self
                .change
                .wait(ports)
                .expect("no panic while the lock is held");
        }
    }
}

/// Listens on `port` for as long as the process lives.
pub(crate) fn open(port: u16, serves: Serves, target: &Arc<Target>) -> io::Result<()> {
    let bind = move || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    let mut listener = bind()?;
    target
        .doors
        .ports
        .lock()
        .expect("no panic while the lock is held")
        .push((port, serves));
    let target = Arc::clone(target);
    thread::spawn(move || {
        loop {
            serve(&listener, serves, &target);
            drop(listener);
            target.doors.wait_until_open(serves, &target);
            listener = loop {
                match bind() {
                    Ok(listener) => break listener,
                    Err(_) => thread::sleep(Duration::from_millis(10)),
                }
            };
        }
    });
    Ok(())
}

/// Serves until the door must close.
fn serve(listener: &TcpListener, serves: Serves, target: &Arc<Target>) {
    while target.doors.is_open(serves, target) {
        let Ok((stream, _)) = listener.accept() else {
            continue;
        };
        if !target.doors.is_open(serves, target) {
            return;
        }
        match serves {
            Serves::Http => accept(stream, target, answer),
            Serves::Grpc => accept(stream, target, grpc::answer),
            Serves::Nothing | Serves::State(_) => {}
        }
    }
}
