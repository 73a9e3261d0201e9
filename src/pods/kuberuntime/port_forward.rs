//! Connections to ports of a pod, made in the pod's network namespace (CRI `PortForward`).
//!
//! Invariants: a separate thread makes each connection, so that no other thread is ever in the pod's network namespace.
//! The thread ends with the attempt, which has a time limit.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use crate::base::wire::dial::{Address, DialError, Dialer, End, Namespace};
use crate::base::wire::socket::Socket;
use crate::engine::runtime::{NetworkNamespace, Runtime};

/// The time limit of an attempt for both addresses together. A connection over loopback that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(5);
/// The stack size in bytes that a dial needs.
const STACK: usize = 128 << 10;

/// Connects to a port at localhost of the pod with this UID: first to 127.0.0.1, and if that fails to ::1, as
/// containerd does. For a pod in the node's network this is the node's localhost. The socket does not block. Dropping
/// the socket closes the connection.
///
/// # Errors
/// Returns [`DialError`] with containerd's sentence and both causes in Go's words, or with the reason why the pod's
/// network cannot be entered.
pub fn port_forward(runtime: &dyn Runtime, pod: &str, port: u16) -> Result<Socket, DialError> {
    let network = runtime.pod_network(pod);
    let network = network.map_err(|e| DialError::Ours(e.message))?;
    let thread = std::thread::Builder::new()
        .name("port-forward".into())
        .stack_size(STACK);
    let thread = thread.spawn(move || connect(network.as_ref(), port, LIMIT));
    let lost = |cause: &dyn std::fmt::Display| {
        DialError::Ours(format!("cannot connect to port {port} of the pod: {cause}"))
    };
    let thread = thread.map_err(|e| lost(&e))?;
    let connected = thread.join();
    connected.unwrap_or_else(|_| Err(lost(&"its thread has panicked")))
}

fn connect(
    network: Option<&NetworkNamespace>,
    port: u16,
    limit: Duration,
) -> Result<Socket, DialError> {
    let open = |network: &'_ NetworkNamespace| match network.open() {
        Ok(file) => Ok(file),
        Err(e) => Err(Namespace::refused(&network.path, e)),
    };
    let file = network.map(open).transpose()?;
    let namespace = file.zip(network).map(|(file, network)| Namespace {
        file,
        path: &network.path,
    });
    let dialer = Dialer {
        namespace,
        deadline: Instant::now() + limit,
        observer: &(),
    };
    let localhost = [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ];
    let mut causes = Vec::new();
    for address in localhost {
        match dialer.dial(Address::Tcp(address), End::Close) {
            Ok(socket) => return ready(socket),
            Err(e @ DialError::Ours(_)) => return Err(e),
            Err(e) => causes.push(in_words_of_go(address, &e)),
        }
    }
    Err(DialError::Failed(format!(
        "failed to connect to localhost:{port} inside the pod's network namespace, IPv4: {} IPv6: {}",
        causes[0], causes[1]
    )))
}

/// Returns the error in Go's words, which name the requested address family.
fn in_words_of_go(address: SocketAddr, e: &DialError) -> String {
    let family = if address.is_ipv4() { "tcp4" } else { "tcp6" };
    e.to_string()
        .replacen("dial tcp ", &format!("dial {family} "), 1)
}

fn ready(socket: Socket) -> Result<Socket, DialError> {
    let prepared = socket.set_nonblocking().and_then(|()| socket.set_nodelay());
    match prepared {
        Ok(()) => Ok(socket),
        Err(e) => Err(DialError::Ours(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::fake_runtime::FakeRuntime;

    /// Connects to a port of a pod of the fake runtime. All pods of the fake runtime are in the node's network.
    fn forward(port: u16) -> Result<Socket, DialError> {
        port_forward(&FakeRuntime::default(), "uid", port)
    }

    #[track_caller]
    fn check_echo(listener: &TcpListener) {
        let mut socket = forward(listener.local_addr().unwrap().port()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"hello").unwrap();
        drop(server);
        let mut text = String::new();
        loop {
            match socket.read_to_string(&mut text) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                done => {
                    done.unwrap();
                    break;
                }
            }
        }
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_port_is_looked_for_at_both_addresses_of_localhost() {
        check_echo(&TcpListener::bind("127.0.0.1:0").unwrap());
        check_echo(&TcpListener::bind("[::1]:0").unwrap());
    }

    #[test]
    fn a_port_at_which_nobody_listens_says_so_for_both() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let e = forward(port).unwrap_err();
        let expected = format!(
            "failed to connect to localhost:{port} inside the pod's network namespace, \
             IPv4: dial tcp4 127.0.0.1:{port}: connect: connection refused \
             IPv6: dial tcp6 [::1]:{port}: connect: connection refused"
        );
        assert_eq!(e, DialError::Failed(expected));
    }
}
