//! Finds sockets of the node that wait for clients, and the processes that own them, in `/proc`.
//!
//! Invariants: the search binds no port, because that would take the port from a process that is just starting. A value that
//! the kernel does not show is left out.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

/// A socket that waits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Address of the socket. An IPv4 address of an IPv6 socket (`::ffff:…`) is given as an IPv4 address.
    pub at: SocketAddr,
    /// Inode number of the socket; 0 if the kernel does not show it.
    pub inode: u64,
}

/// A process that has a socket open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Process id of the owner.
    pub pid: i32,
    /// The name of the owner's program, at most 15 bytes.
    pub program: String,
    /// Command line of the owner, the program first.
    pub arguments: Vec<Vec<u8>>,
}

/// Returns the listening TCP sockets in the network namespace of the calling thread.
pub fn tcp() -> Vec<Waiting> {
    of_tables(["tcp", "tcp6"])
}

/// Returns the UDP sockets without a peer in the network namespace of the calling thread.
pub fn udp() -> Vec<Waiting> {
    of_tables(["udp", "udp6"])
}

fn of_tables(names: [&str; 2]) -> Vec<Waiting> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let texts = names.into_iter().filter_map(|name| read(name).ok());
    texts.flat_map(|text| listeners(&text)).collect()
}

/// States of sockets that wait for clients, in hexadecimal: TCP_LISTEN, and the state of a UDP socket without a peer.
const STATES: [&str; 2] = ["0A", "07"];

/// Number of fields between the state and the inode: queues, timer, retransmissions, uid, timeout.
const BEFORE_THE_INODE: usize = 5;

/// Parses the sockets that wait for clients from a table of the kernel. Each line has the form
/// `sl local_address rem_address st … inode …`.
fn listeners(text: &str) -> Vec<Waiting> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _, state) = (words.next()?, words.next()?, words.next()?);
        let inode = words.nth(BEFORE_THE_INODE).and_then(|n| n.parse().ok());
        let at = STATES.contains(&state).then(|| address(local)).flatten()?;
        Some(Waiting {
            at,
            inode: inode.unwrap_or(0),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Parses an address such as `0100007F:1F90`: the IP address as 32-bit words in the byte order of the machine, and the
/// port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let (words, []) = ip.as_bytes().as_chunks::<8>() else {
        return None;
    };
    let words = words.iter().map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        u32::from_str_radix(word, 16).ok().map(u32::to_ne_bytes)
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((ip.to_canonical(), port).into())
}

/// Returns the first process that has the socket open. Returns None if the socket was just closed, if it belongs to the
/// kernel itself, or if this process may not see the owner.
pub fn owner(inode: u64) -> Option<Owner> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let pid = pids.find(|pid| has_open(*pid, wanted.as_bytes()))?;
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let command_line = read("cmdline");
    let arguments = command_line.split(|b| *b == 0).map(<[u8]>::to_vec);
    Some(Owner {
        pid,
        program: String::from_utf8_lossy(read("comm").trim_ascii_end()).into_owned(),
        arguments: arguments.collect(),
    })
}

fn has_open(pid: i32, wanted: &[u8]) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut targets = open.flatten().filter_map(|e| fs::read_link(e.path()).ok());
    targets.any(|target| target.as_os_str().as_bytes() == wanted)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    /// The lines are those that the kernel of a little-endian machine writes.
    #[test]
    #[cfg(target_endian = "little")]
    fn sockets_that_wait_for_clients_are_found() {
        let tcp = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            \x20  0: 00000000:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n\
            \x20  1: 0100007F:7531 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n\
            \x20  2: 010200C0:7532 0200A8C0:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0\n\
            cut off\n 3: zz:1 0 0A\n 4: 00:1 0 0A\n";
        let text =
            |found: &[Waiting]| -> Vec<String> { found.iter().map(|w| w.at.to_string()).collect() };
        let found = listeners(tcp);
        assert_eq!(text(&found), ["0.0.0.0:30000", "127.0.0.1:30001"]);
        assert_eq!((found[0].inode, found[1].inode), (4711, 1));
        let v6 = "0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 07 0\n\
            1: 0000000000000000FFFF0000010200C0:7531 00000000000000000000000000000000:0000 0A 0\n\
            2: B80D0120000000000000000001000000:7532 00000000000000000000000000000000:0000 0A 0\n";
        assert_eq!(
            text(&listeners(v6)),
            ["[::]:30000", "192.0.2.1:30001", "[2001:db8::1]:30002"]
        );
    }

    #[test]
    fn the_process_of_a_socket_is_found() {
        let (tcp_socket, udp_socket) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        for (sockets, at) in [
            (tcp(), tcp_socket.local_addr().unwrap()),
            (udp(), udp_socket.local_addr().unwrap()),
        ] {
            let found = sockets.iter().find(|w| w.at == at).unwrap();
            let owner = owner(found.inode).unwrap();
            assert_eq!(owner.pid, std::process::id().cast_signed());
            let own: Vec<_> = std::env::args().collect();
            assert_eq!(owner.arguments[0], own[0].as_bytes());
            assert!(!owner.program.is_empty());
        }
        assert_eq!(owner(u64::MAX), None);
    }
}
