//! Devices in containers. The machine's second disk stands for the node's: no way from a container may lead there but that of
//! a privileged one.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;

use crate::case::{Verdict, equal, until};
use crate::node::Node;
use crate::pods::{Files, claim, container, container_of, image, import};

const DISK: &str = "/dev/vdb";
const SECRET: &str = "secret of the disk";

fn number() -> Result<(u32, u32), String> {
    let device = fs::metadata(DISK)
        .map_err(|e| format!("{DISK}: {e}"))?
        .rdev();
    Ok((device as u32 >> 8 & 0xfff, device as u32 & 0xff))
}

/// Neither what an attack printed nor the disk itself shows that the disk was reached. A disk that was changed is mended.
fn untouched(printed: &str) -> Result<(), String> {
    let mut bytes = [0; 128];
    let mut disk = File::options()
        .read(true)
        .write(true)
        .open(DISK)
        .map_err(|e| format!("{DISK}: {e}"))?;
    disk.read_exact(&mut bytes)
        .map_err(|e| format!("{DISK}: {e}"))?;
    let changed = bytes[64..].iter().any(|b| *b != 0);
    if changed {
        disk.seek(SeekFrom::Start(64))
            .and_then(|_| disk.write_all(&[0; 64]))
            .map_err(|e| format!("{DISK}: {e}"))?;
    }
    if printed.contains(SECRET) || printed.contains("READ") || printed.contains("WROTE") || changed
    {
        return Err(format!("a container reached the disk: {printed}"));
    }
    Ok(())
}

/// What every container has.
pub fn usual(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool("devices", &["idle"], "")?;
    node.wait_ready(&["devices"])?;
    let script = "set -e
        for d in zero urandom random full; do head -c 8 /dev/$d | wc -c; done
        echo lost > /dev/null
        [ -z \"$(cat /dev/null)\" ]
        echo full > /dev/full && echo /dev/full takes bytes
        : > /dev/shm/f && rm /dev/shm/f
        [ -c /dev/tty ] && [ -c /dev/pts/ptmx ] && [ -e /dev/ptmx ]
        exec 3<> /dev/ptmx && ls /dev/pts | grep -x 0
        echo end";
    let script =
        format!("PATH=/t; mkdir -p /tmp/t; /busybox --install -s /tmp/t; PATH=/tmp/t; {script}");
    let script = script.replace("PATH=/t; mkdir", "/busybox mkdir");
    let said = node.exec("devices", &["/bin/sh", "-c", &script]);
    equal("what the devices do", &said.out, "8\n8\n8\n8\n0\nend\n")
        .map_err(|e| format!("{e}: {}", said.err))?;
    Ok(files.end()?)
}

/// The control of this file: these steps reach the disk where that is allowed.
pub fn privileged(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.tool(
        "privileged",
        &["open", DISK],
        "    securityContext: {privileged: true}",
    )?;
    let log = node.logged("privileged", "end")?;
    if untouched(&log).is_ok() {
        return Err(format!("a privileged container has not reached the disk: {log}").into());
    }
    Ok(files.end()?)
}

pub fn node_of_an_image_as_user(node: &Node) -> Verdict {
    node_of_an_image(
        node,
        "    securityContext:\n      runAsNonRoot: true\n      runAsUser: 1000\n      allowPrivilegeEscalation: false\n      readOnlyRootFilesystem: true\n      capabilities: {drop: [ALL]}\n      seccompProfile: {type: RuntimeDefault}",
    )
}

pub fn node_of_an_image_as_root(node: &Node) -> Verdict {
    node_of_an_image(node, "")
}

/// An image brings a node of the disk's along that everybody may open.
fn node_of_an_image(node: &Node, security: &str) -> Verdict {
    let mut tar = image()?;
    tar.block_device("disk", 0o666, number()?);
    import(node, "evil:1", tar)?;
    let mut files = Files::new(node);
    let spec = container_of("evil:1", "c", &["open", "/disk"], security);
    files.pod("evil", &format!("  containers:\n{spec}"))?;
    untouched(&node.logged("evil", "end")?)?;
    files.end()?;
    node.ask(&["image", "rm", "evil:1"])?;
    Ok(())
}

/// Directories of a container that a device could be made in.
const PLACES: [&str; 5] = [
    "/tmp/disk",
    "/dev/disk",
    "/empty/disk",
    "/memory/disk",
    "/claim/disk",
];

fn places(args: &[&str], more: &str) -> String {
    let mounts = "    volumeMounts: [{name: empty, mountPath: /empty}, {name: memory, mountPath: /memory}, {name: claim, mountPath: /claim}]";
    let volumes = "  volumes:\n  - {name: empty, emptyDir: {}}\n  - {name: memory, emptyDir: {medium: Memory}}\n  - {name: claim, persistentVolumeClaim: {claimName: disk}}";
    format!(
        "  containers:\n{}\n{volumes}",
        container("c", args, &format!("{more}{mounts}"))
    )
}

fn mknod_words(number: (u32, u32)) -> Vec<String> {
    let mut words = vec![
        "mknod".to_owned(),
        number.0.to_string(),
        number.1.to_string(),
    ];
    words.extend(PLACES.map(str::to_owned));
    words
}

pub fn mknod_by_first_process(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let words = mknod_words(number()?);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    files.put("disk", &claim("disk"))?;
    files.pod("mknod", &places(&words, ""))?;
    untouched(&node.logged("mknod", "end")?)?;
    Ok(files.end()?)
}

pub fn mknod_by_exec(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    files.put("disk", &claim("disk"))?;
    files.pod("mknod-exec", &places(&["idle"], ""))?;
    node.wait_ready(&["mknod-exec"])?;
    let mut words = vec!["/guest".to_owned()];
    words.extend(mknod_words(number()?));
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let said = node.exec("mknod-exec", &words);
    if !said.out.contains("end") {
        return Err(said.all().into());
    }
    untouched(&said.out)?;
    Ok(files.end()?)
}

pub fn mknod_by_probe(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let words = mknod_words(number()?).join("', '");
    let probe = format!(
        "    readinessProbe: {{exec: {{command: [/guest, probe, /tmp/result, '{words}']}}, periodSeconds: 1, timeoutSeconds: 10}}\n"
    );
    files.put("disk", &claim("disk"))?;
    files.pod("mknod-probe", &places(&["idle"], &probe))?;
    let result = until("the probe's result", || {
        let said = node.exec("mknod-probe", &["/busybox", "cat", "/tmp/result"]);
        if said.out.contains("end") {
            Ok(said.out)
        } else {
            Err(said.all())
        }
    })?;
    untouched(&result)?;
    Ok(files.end()?)
}

/// As with runc the files are there, and only those that every container has can be opened.
pub fn host_path_of_dev(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let mounts = "    volumeMounts: [{name: dev, mountPath: /hostdev}]";
    let spec = container(
        "c",
        &["open", "/hostdev/vdb", "/hostdev/vda", "/hostdev/kmsg"],
        mounts,
    );
    files.pod(
        "host-dev",
        &format!("  containers:\n{spec}\n  volumes: [{{name: dev, hostPath: {{path: /dev}}}}]"),
    )?;
    untouched(&node.logged("host-dev", "end")?)?;
    let said = node.exec(
        "host-dev",
        &[
            "/bin/sh",
            "-c",
            "/busybox head -c 4 /hostdev/zero | /busybox wc -c; echo x > /hostdev/null",
        ],
    );
    equal("what /dev/zero of a hostPath gives", &said.out, "4\n")
        .map_err(|e| format!("{e}: {}", said.err))?;
    Ok(files.end()?)
}

/// The pod may be refused, or its container may not be able to open the disk.
pub fn host_path_of_the_disk(node: &Node) -> Verdict {
    let mut files = Files::new(node);
    let spec = container(
        "c",
        &["open", "/disk"],
        "    volumeMounts: [{name: disk, mountPath: /disk}]",
    );
    files.pod(
        "host-disk",
        &format!("  containers:\n{spec}\n  volumes: [{{name: disk, hostPath: {{path: {DISK}, type: BlockDevice}}}}]"),
    )?;
    untouched(&node.logged("host-disk", "end")?)?;
    Ok(files.end()?)
}
