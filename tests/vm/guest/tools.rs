//! What containers run: `/guest WORD…`. Attacks print what they reached; the suite judges.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use crate::sys;

pub fn run(args: &[&str]) -> ExitCode {
    let done = match args {
        ["idle", ..] => park(),
        ["serve", port, body] => serve(port, body),
        ["get", host, port] => get(host, port).map(|body| println!("{body}")),
        ["resolve", name] => resolve(name).map(|found| println!("{found}")),
        ["eat", megabytes] => eat(megabytes),
        ["worker", megabytes] => worker(megabytes),
        ["burn", ..] => burn(),
        ["open", paths @ ..] => open_all(paths),
        ["mknod", major, minor, paths @ ..] => make_and_open(major, minor, paths),
        ["probe", file, rest @ ..] => probe(file, rest),
        ["hunt", file] => hunt(file),
        ["swap", directory, to] => swap(directory, to),
        ["flood", interface, count] => flood(interface, count),
        _ => Err(format!("no tool {args:?}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn park() -> ! {
    loop {
        thread::park();
    }
}

/// Answers every http request with this body.
fn serve(port: &str, body: &str) -> Result<(), String> {
    let port: u16 = port.parse().map_err(|e| format!("{port}: {e}"))?;
    let listener = TcpListener::bind(("::", port))
        .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
        .map_err(|e| format!("port {port}: {e}"))?;
    println!("serving");
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        // A client that hangs up is served no further.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.read(&mut [0; 2048]);
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    Ok(())
}

/// The body that `serve` answers.
pub fn get(host: &str, port: &str) -> Result<String, String> {
    fetch(host, port, "/")
}

pub fn fetch(host: &str, port: &str, path: &str) -> Result<String, String> {
    let tell = |e: std::io::Error| format!("{host}:{port}: {e}");
    let name = format!(
        "{}:{port}",
        if host.contains(':') {
            format!("[{host}]")
        } else {
            host.to_owned()
        }
    );
    let mut found = name.to_socket_addrs().map_err(tell)?;
    let address = found.next().ok_or_else(|| format!("{host}: no address"))?;
    let limit = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&address, limit).map_err(tell)?;
    stream.set_read_timeout(Some(limit)).map_err(tell)?;
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nHost: vm\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .map_err(tell)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(tell)?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(format!("{host}:{port}: answered {text:?}")),
    }
}

fn resolve(name: &str) -> Result<String, String> {
    let found = (name, 0)
        .to_socket_addrs()
        .map_err(|e| format!("{name}: {e}"))?;
    let mut found: Vec<_> = found.map(|a| a.ip().to_string()).collect();
    found.sort();
    found.dedup();
    Ok(found.join(" "))
}

fn eat(megabytes: &str) -> Result<(), String> {
    let megabytes: usize = megabytes.parse().map_err(|e| format!("{megabytes}: {e}"))?;
    let mut all = Vec::new();
    for n in 0..megabytes {
        all.push(vec![n as u8 | 1; 1 << 20]);
    }
    println!("ate {} MB", all.len());
    park()
}

/// A first process that outlives what happens to its worker.
fn worker(megabytes: &str) -> Result<(), String> {
    let ended = Command::new("/guest").args(["eat", megabytes]).status();
    println!("worker: {ended:?}");
    park()
}

fn burn() -> ! {
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

/// Opens each path, reads and writes.
fn open_all(paths: &[&str]) -> Result<(), String> {
    for path in paths {
        println!("{path}: {}", tried(path));
    }
    println!("end");
    park()
}

fn tried(path: &str) -> String {
    let mut bytes = [0; 18];
    let read = File::open(path).and_then(|mut f| f.read_exact(&mut bytes));
    let read = match read {
        Ok(()) => format!("READ {:?}", String::from_utf8_lossy(&bytes)),
        Err(e) => format!("not read ({e})"),
    };
    let wrote = File::options().write(true).open(path).and_then(|mut f| {
        f.seek(SeekFrom::Start(64))?;
        f.write_all(b"broken")?;
        f.sync_all()
    });
    match wrote {
        Ok(()) => format!("{read}, WROTE"),
        Err(e) => format!("{read}, not written ({e})"),
    }
}

/// Makes a block device at each path and opens it.
fn make_and_open(major: &str, minor: &str, paths: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
    let device = number(major)? << 8 | number(minor)?;
    for path in paths {
        // One of an earlier run may lie there.
        let _ = fs::remove_file(path);
        match sys::make_node(path, sys::BLOCK | 0o666, device) {
            Ok(()) => println!("{path}: {}", tried(path)),
            Err(e) => println!("{path}: not made ({e})"),
        }
    }
    println!("end");
    Ok(())
}

/// Runs another tool and writes what it printed into a file.
fn probe(file: &str, args: &[&str]) -> Result<(), String> {
    let done = Command::new("/guest").args(args).output();
    let done = done.map_err(|e| e.to_string())?;
    let draft = format!("{file}.draft");
    fs::write(&draft, done.stdout)
        .and_then(|()| fs::rename(&draft, file))
        .map_err(|e| format!("{file}: {e}"))
}

/// Looks for a file of the node below the root of every process that it sees, for ever.
fn hunt(file: &str) -> Result<(), String> {
    println!("hunting");
    let own = std::process::id();
    loop {
        let all = fs::read_dir("/proc").map_err(|e| e.to_string())?;
        for entry in all.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
                continue;
            };
            if pid != own
                && let Ok(text) = fs::read_to_string(format!("/proc/{pid}/root{file}"))
            {
                println!("FOUND {text:?} of process {pid}");
            }
        }
    }
}

/// Keeps links in a directory that lead every device of a container's into its subdirectory `d`, and exchanges that for a link to
/// elsewhere and back, for ever.
fn swap(directory: &str, to: &str) -> Result<(), String> {
    let path = |name: &str| format!("{directory}/{name}");
    let tell = |e: std::io::Error| format!("{directory}: {e}");
    fs::create_dir(path("d")).map_err(tell)?;
    symlink(to, path("l")).map_err(tell)?;
    println!("swapping");
    for round in 0u64.. {
        sys::exchange(&path("d"), &path("l")).map_err(tell)?;
        if round % 512 == 1 {
            for name in [
                "null", "zero", "full", "tty", "urandom", "random", "console",
            ] {
                // What is not a link is of an earlier start.
                if fs::read_link(path(name)).is_err() {
                    let _ = fs::remove_file(path(name));
                    let _ = symlink(format!("d/{name}"), path(name));
                }
                let _ = fs::remove_file(format!("{directory}/l/{name}"));
            }
        }
    }
    Ok(())
}

/// Asks for the link-layer address of the router's from many link-local addresses, each of which the kernel would remember.
fn flood(interface: &str, count: &str) -> Result<(), String> {
    let count: u16 = count.parse().map_err(|e| format!("{count}: {e}"))?;
    let mac = fs::read_to_string(format!("/sys/class/net/{interface}/address"));
    let mac = mac.map_err(|e| format!("{interface}: {e}"))?;
    let mac: Vec<u8> = mac
        .trim()
        .split(':')
        .filter_map(|b| u8::from_str_radix(b, 16).ok())
        .collect();
    let socket = sys::FrameSocket::open(interface).map_err(|e| format!("{interface}: {e}"))?;
    let target = std::env::var("TARGET").unwrap_or_default();
    let target: std::net::Ipv6Addr = target
        .parse()
        .map_err(|e| format!("TARGET {target:?}: {e}"))?;
    let mut sent = 0;
    for n in 0..count {
        let frame = solicitation(&mac, target, n);
        match socket.send(&frame) {
            Ok(()) => sent += 1,
            Err(e) => println!("not sent: {e}"),
        }
        if n % 50 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
    }
    println!("sent {sent}");
    Ok(())
}

/// A neighbour solicitation from fe80::beef:N, with the sender's link-layer address.
fn solicitation(mac: &[u8], target: std::net::Ipv6Addr, n: u16) -> Vec<u8> {
    let mut source = [0u8; 16];
    source[..2].copy_from_slice(&[0xfe, 0x80]);
    source[12..14].copy_from_slice(&[0xbe, 0xef]);
    source[14..].copy_from_slice(&n.to_be_bytes());
    let node = target.octets();
    let mut to = [0u8; 16];
    to[..2].copy_from_slice(&[0xff, 2]);
    to[11..13].copy_from_slice(&[1, 0xff]);
    to[13..].copy_from_slice(&node[13..]);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(node);
    message.extend([1, 1]);
    message.extend(mac);
    let mut sum: u32 = 58 + message.len() as u32;
    for part in [&source[..], &to[..], &message[..]] {
        for pair in part.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(pair[1]);
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    message[2..4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    let mut frame = vec![0x33, 0x33, to[12], to[13], to[14], to[15]];
    frame.extend(mac);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, message.len() as u8, 58, 255]);
    frame.extend(source);
    frame.extend(to);
    frame.extend(message);
    frame
}
