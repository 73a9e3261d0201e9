//! The bridge, services in both data paths, and names.

use std::fs;
use std::net::Ipv6Addr;

use crate::case::{Verdict, equal, until};
use crate::node::{ADDRESS, Node, read};
use crate::pods::Files;
use crate::tools::{fetch, get};

const PROBE: &str = "    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}";

fn two(files: &mut Files<'_>, node: &Node) -> Result<(), String> {
    for name in ["one", "two"] {
        files.tool(name, &["serve", "8080", name], PROBE)?;
    }
    node.wait_ready(&["one", "two"])
}

fn from_pod(node: &Node, pod: &str, host: &str, port: &str, wanted: &str) -> Result<(), String> {
    let said = node.exec(pod, &["/guest", "get", host, port]);
    equal(
        &format!("what {host} answers in pod {pod}"),
        said.out.trim(),
        wanted,
    )
    .map_err(|e| format!("{e}: {}", said.err))
}

pub fn pod_to_pod(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    two(&mut files, node)?;
    for (from, to) in [("one", "two"), ("two", "one")] {
        let addresses = node.field(to, ".status.podIPs[*].ip")?;
        equal(
            "how many addresses a pod has",
            &addresses.split_whitespace().count().to_string(),
            "2",
        )?;
        for address in addresses.split_whitespace() {
            from_pod(node, from, address, "8080", to)?;
            equal("an answer to the node", &get(address, "8080")?, to)?;
        }
    }
    Ok(files.end()?)
}

pub fn host_port(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let ports = "    ports: [{containerPort: 8080, hostPort: 8081}]\n";
    files.tool(
        "served",
        &["serve", "8080", "served"],
        &format!("{ports}{PROBE}"),
    )?;
    files.tool("client", &["idle"], "")?;
    node.wait_ready(&["served", "client"])?;
    for address in [ADDRESS, "127.0.0.1"] {
        until(&format!("hostPort at {address}"), || get(address, "8081"))?;
    }
    from_pod(node, "client", ADDRESS, "8081", "served")?;
    Ok(files.end()?)
}

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.80
  selector: {app: one}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
";

/// Through the packet filter, or through the proxy where the kernel has none: the clients see no difference.
pub fn services(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.put("web", SERVICE)?;
    two(&mut files, node)?;
    until("the service", || get("10.96.0.80", "80"))?;
    for (address, port) in [("10.96.0.80", "80"), (ADDRESS, "30080")] {
        equal(
            &format!("what {address} answers the node"),
            &get(address, port)?,
            "one",
        )?;
        from_pod(node, "two", address, port, "one")?;
    }
    let mode = fetch("127.0.0.1", "10256", "/proxyMode")?;
    let kernel = fs::read_to_string("/proc/modules")
        .unwrap_or_default()
        .contains("nf_tables ");
    let wanted = if kernel { "nftables" } else { "userspace" };
    equal("proxyMode", mode.trim(), wanted)?;
    // Without an endpoint clients are refused.
    files.put("web", &SERVICE.replace("app: one", "app: nobody"))?;
    until("a refusal", || match get("10.96.0.80", "80") {
        Ok(body) => Err(format!("answered {body}")),
        Err(_) => Ok(()),
    })?;
    Ok(files.end()?)
}

pub fn names(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.put("web", SERVICE)?;
    two(&mut files, node)?;
    for name in ["web", "web.default", "web.default.svc.cluster.local"] {
        until(name, || {
            let said = node.exec("two", &["/guest", "resolve", name]);
            equal("the address", said.out.trim(), "10.96.0.80")
                .map_err(|e| format!("{e}: {}", said.err))
        })?;
    }
    until("the service by its name", || {
        from_pod(node, "two", "web", "80", "one")
    })?;
    let said = node.exec(
        "two",
        &["/guest", "resolve", "nobody.default.svc.cluster.local"],
    );
    if said.code == 0 {
        return Err(format!("a name that nobody has: {}", said.out).into());
    }
    Ok(files.end()?)
}

/// The kernel has one table of neighbours for all interfaces, of 1024 entries; a pod fills none of it with addresses that it invents.
pub fn flood_of_neighbours(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("flood", &["idle"], "")?;
    node.wait_ready(&["flood"])?;
    let bridge = until("a link-local address of the bridge", || {
        link_local("podprobe0").ok_or_else(|| read("/proc/net/if_inet6").unwrap_or_default())
    })?;
    let before = neighbours()?;
    let target = format!("TARGET={bridge}");
    let said = node.exec(
        "flood",
        &["/busybox", "env", &target, "/guest", "flood", "eth0", "400"],
    );
    equal("the flood", said.out.trim(), "sent 400").map_err(|e| format!("{e}: {}", said.err))?;
    let after = neighbours()?;
    if after > before + 20 {
        return Err(format!("the node's neighbours grew from {before} to {after}").into());
    }
    Ok(files.end()?)
}

/// An address that the kernel answers for: one that it has not tried yet is `IFA_F_TENTATIVE`.
fn link_local(interface: &str) -> Option<Ipv6Addr> {
    const TENTATIVE: u32 = 0x40;
    let table = fs::read_to_string("/proc/net/if_inet6").ok()?;
    table.lines().find_map(|line| {
        // Address, index, prefix, scope, flags, name.
        let words: Vec<_> = line.split_whitespace().collect();
        let [address, _, _, _, flags, name] = words[..] else {
            return None;
        };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_it = name == interface && address.starts_with("fe80") && flags & TENTATIVE == 0;
        let bits = u128::from_str_radix(address, 16).ok()?;
        is_it.then(|| Ipv6Addr::from(bits))
    })
}

/// How many neighbours of IPv6 the kernel remembers.
fn neighbours() -> Result<usize, String> {
    let text = read("/proc/net/stat/ndisc_cache")?;
    let count = text.lines().nth(1).and_then(|l| l.split(' ').next());
    let count = count.and_then(|c| usize::from_str_radix(c, 16).ok());
    count.ok_or(text)
}
