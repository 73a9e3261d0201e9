//! Sets kernel parameters of the bridge and of the pods' interfaces.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Sets the kernel parameters of the node and of the bridge. The node forwards packets between pods and its other
/// interfaces. Messages from pods, such as redirects, do not change the routes of the node. The bridge does not
/// redirect pods to one another, because the packet filter does not let pods send to one another directly.
pub(super) fn of_the_bridge(bridge: &str, has_v6: bool) {
    set("ipv4/ip_forward", "1");
    let v4 = [
        ("rp_filter", "1"),
        ("accept_redirects", "0"),
        ("send_redirects", "0"),
    ];
    for (name, value) in v4 {
        set(&format!("ipv4/conf/{bridge}/{name}"), value);
    }
    set(&format!("ipv6/conf/{bridge}/accept_ra"), "0");
    set(&format!("ipv6/conf/{bridge}/accept_redirects"), "0");
    let disabled = if has_v6 { "0" } else { "1" };
    set(&format!("ipv6/conf/{bridge}/disable_ipv6"), disabled);
    if has_v6 {
        forward_v6();
    }
}

/// Sets the kernel parameters of the node's end of a veth pair. This interface only passes frames on to the
/// bridge. But frames to the group addresses of bridges arrive at this interface and not at the bridge. Nothing in
/// these frames may reach the node: no router advertisement, and no packet from a sender that the bridge would
/// have refused.
pub(super) fn of_a_port(port: &str) {
    set(&format!("ipv6/conf/{port}/disable_ipv6"), "1");
    set(&format!("ipv6/conf/{port}/accept_ra"), "0");
    set(&format!("ipv4/conf/{port}/rp_filter"), "1");
    set(&format!("ipv4/conf/{port}/arp_ignore"), "8");
}

/// Sets the kernel parameters in the network namespace of a pod. The calling thread is in that namespace.
pub(super) fn of_a_pod(interface: &str, has_v6: bool) {
    for at in ["all", interface] {
        set(&format!("ipv4/conf/{at}/accept_redirects"), "0");
        set(&format!("ipv6/conf/{at}/accept_redirects"), "0");
    }
    set(&format!("ipv6/conf/{interface}/accept_ra"), "0");
    // The packet filter lets only one link-local address pass: the address made from the hardware address.
    set(&format!("ipv6/conf/{interface}/addr_gen_mode"), "0");
    let disabled = if has_v6 { "0" } else { "1" };
    set(&format!("ipv6/conf/{interface}/disable_ipv6"), disabled);
}

/// Makes the node forward IPv6, unless the node does so already. A node that forwards ignores router
/// advertisements unless `accept_ra` is 2. So this function sets `accept_ra` to 2 on each interface that accepted
/// router advertisements.
fn forward_v6() {
    let all = "ipv6/conf/all/forwarding";
    if get(all).as_deref() == Some("1") {
        return;
    }
    let interfaces = fs::read_dir("/proc/sys/net/ipv6/conf")
        .into_iter()
        .flatten()
        .flatten();
    let interfaces = interfaces.filter_map(|e| e.file_name().into_string().ok());
    for interface in interfaces.filter(|name| !name.starts_with("pp")) {
        let name = format!("ipv6/conf/{interface}/accept_ra");
        if get(&name).as_deref() == Some("1") {
            set(&name, "2");
        }
    }
    set(all, "1");
}

fn get(name: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok()?;
    Some(text.trim().to_owned())
}

/// Sets a kernel parameter unless the parameter has this value already. If the parameter cannot be set, podprobe
/// logs a warning and the pod starts anyway.
fn set(name: &str, value: &str) {
    let path = Path::new("/proc/sys/net").join(name);
    match change(&path, value) {
        Ok(false) => {}
        Ok(true) => log::debug!("{} is {value} now", path.display()),
        // The kernel has no IPv6.
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        // /proc/sys is read-only, but the parameter has the right value already.
        Err(_) if get(name).is_some_and(|now| now == value) => {}
        Err(e) => log::warn!("cannot set {} to {value}: {e}", path.display()),
    }
}

/// Writes the value and returns true. Returns false if the parameter has this value already. The parameter's file
/// is opened only once, for both reading and writing, because each opening is slow: the kernel keeps the
/// parameters of all network namespaces in one list, and searches this list.
fn change(path: &Path, value: &str) -> io::Result<bool> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut now = String::new();
    file.read_to_string(&mut now)?;
    if now.trim() == value {
        return Ok(false);
    }
    file.write_all_at(value.as_bytes(), 0)?;
    Ok(true)
}
