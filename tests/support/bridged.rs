//! A daemon whose pods are at the embedded bridge, on a machine of the test's own.

use std::fs;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use podprobe::api::PodUid;
use podprobe::daemon::settings::Settings;
use podprobe::engine::shims::RuntimeChoice;
use podprobe::net::network::NetworkChoice;
use serde_json::{Value, json};

use super::daemon::{Day, find};
use super::netns::{Netns, on_a_machine, try_ip};
use super::{CEILING, Node, on};

/// Runs `test` with a daemon whose configuration is `config`, and no CNI; with the bridge where `config` names no network.
/// Afterwards no interface is left.
pub(crate) fn on_the_bridge(config: Value, test: impl FnOnce(&mut Day<'_>, &Netns) + Send) {
    on_a_machine(|outside| {
        on(RuntimeChoice::Embedded, |node| {
            let node = Node {
                dir: node.dir.clone(),
                layout: node.layout.clone(),
                settings: Settings {
                    network: match config["network"].as_str() {
                        Some(network) => network.parse().unwrap(),
                        None => NetworkChoice::Auto,
                    },
                    ..node.settings.clone()
                },
            };
            configure(&node, &config);
            let mut day = Day::begin(&node);
            test(&mut day, outside);
            day.end();
            assert_eq!(interfaces("pp"), [""; 0]);
        });
    });
}

pub(crate) fn configure(node: &Node, config: &Value) {
    let file = node.layout.config_file();
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, config.to_string()).unwrap();
}

/// The interfaces of the machine whose names begin so.
pub(crate) fn interfaces(prefix: &str) -> Vec<String> {
    let (_, text) = try_ip("-o link");
    let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
    let all = text.lines().filter_map(name);
    all.filter(|name| name.starts_with(prefix)).collect()
}

/// What the program `nft` says, the rulesets' own reader.
pub(crate) fn nft(line: &str) -> String {
    let output = Command::new("nft").args(line.split(' ')).output();
    let output = output.expect("nft, of the package nftables");
    assert!(output.status.success(), "nft {line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn bridge() -> String {
    let all = interfaces("pp-");
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// A pod that answers each connection on port 80 with its name.
pub(crate) fn server(day: &Day<'_>, name: &str) -> Value {
    let script = "exec nc -ll -p 80 -e /bin/hostname";
    let probe =
        json!({"tcpSocket": {"port": 80}, "periodMilliseconds": 100, "timeoutMilliseconds": 1000});
    day.pod(name, script, json!({"readinessProbe": probe}))
}

pub(crate) fn address(day: &Day<'_>, name: &str) -> IpAddr {
    addresses(day, name)[0]
}

pub(crate) fn addresses(day: &Day<'_>, name: &str) -> Vec<IpAddr> {
    day.wait(&format!("an address of {name}"), |s| {
        let status = &find(s, name)?.status;
        let all = status.pod_ips.iter().map(|ip| ip.ip.parse().unwrap());
        Some(all.collect::<Vec<IpAddr>>()).filter(|all| !all.is_empty())
    })
}

pub(crate) fn namespace(day: &Day<'_>, name: &str) -> Netns {
    Netns::of(day.process(name).pid)
}

/// What a server answers.
pub(crate) fn ask(at: impl Into<SocketAddr>) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at.into(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(CEILING))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// Whom a listener in `server` sees when somebody in the caller's place connects to `at`.
pub(crate) fn seen_from(listener: &TcpListener, from: &Netns, at: SocketAddr) -> IpAddr {
    let client = from.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)));
    let client = client.unwrap_or_else(|e| panic!("{at}: {e}"));
    let (_, peer) = listener.accept().unwrap();
    drop(client);
    peer.ip()
}

pub(crate) fn listen(at: &str) -> TcpListener {
    TcpListener::bind((at, 0)).unwrap()
}

pub(crate) fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

pub(crate) fn uid(day: &Day<'_>, name: &str) -> PodUid {
    day.wait("the pod", |s| {
        let uid = find(s, name)?.object["metadata"]["uid"]
            .as_str()?
            .to_owned();
        Some(PodUid::from(uid.as_str()))
    })
}
