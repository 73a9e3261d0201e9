//! `podprobe cp` with the real daemon and real containers, on the embedded runtime and again on runc.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use podprobe::engine::images::{ImageConfig, ImageStore};
use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Day, FOREVER, NODE};
use crate::support::{Node, PROGRAM, on_both};

on_both![
    a_tree_goes_in_and_out_as_it_is,
    what_cannot_be_written_is_said,
    an_image_without_a_program_is_enough,
    links_of_a_container_lead_nowhere,
];

/// What does not depend on the OCI runtime.
macro_rules! on_one {
    ($($name:ident),* $(,)?) => { mod one { $(#[test] fn $name() { crate::support::on(podprobe::engine::shims::RuntimeChoice::Embedded, super::$name) })* } };
}

on_one![
    a_hundred_megabytes_come_back,
    a_tar_is_read_and_written,
    a_copy_that_breaks_off_is_said,
    it_can_be_switched_off,
];

/// A pod that runs, with a volume of the node at /data.
fn begin<'a>(node: &'a Node, more: Value) -> Day<'a> {
    let day = Day::begin(node);
    let mut pod = day.pod("web", FOREVER, more);
    fs::create_dir_all(volume(&day)).unwrap();
    fs::set_permissions(volume(&day), Permissions::from_mode(0o777)).unwrap();
    let data = json!({"name": "data", "hostPath": {"path": volume(&day)}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(data);
    let small = json!({"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}});
    pod["spec"]["volumes"].as_array_mut().unwrap().push(small);
    let mounts = &mut pod["spec"]["containers"][0]["volumeMounts"];
    for name in ["data", "small"] {
        let mount = json!({"name": name, "mountPath": format!("/{name}")});
        mounts.as_array_mut().unwrap().push(mount);
    }
    day.put("web", pod);
    day.wait_ready("web");
    day
}

fn volume(day: &Day) -> PathBuf {
    day.node.dir.path().join("data")
}

/// A directory of the node for the test's own files.
fn desk(day: &Day) -> PathBuf {
    let dir = day.node.dir.path().join("desk");
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A path as the container sees it.
fn inside(day: &Day, path: &str) -> PathBuf {
    format!("/proc/{}/root/{path}", day.process("web").pid).into()
}

#[track_caller]
fn cp(day: &Day, from: &str, to: &str) -> String {
    let output = day.client(&["cp", from, to]);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(
        output.status.success(),
        "cp {from} {to}: {said}{}",
        day.log()
    );
    said
}

#[track_caller]
fn refused(day: &Day, from: &str, to: &str) -> String {
    let output = day.client(&["cp", from, to]);
    assert_eq!(output.status.code(), Some(1), "cp {from} {to}");
    String::from_utf8(output.stderr).unwrap()
}

fn at(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().into()
}

/// Name, kind and mode, time, content.
type Listed = (Vec<u8>, u32, (i64, i64), Vec<u8>);

/// All of a directory.
fn listing(dir: &Path) -> Vec<Listed> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        let meta = fs::symlink_metadata(&next).unwrap();
        let content = match () {
            () if meta.is_dir() => Vec::new(),
            () if meta.is_symlink() => fs::read_link(&next)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec(),
            () => fs::read(&next).unwrap(),
        };
        let name = next
            .strip_prefix(dir)
            .unwrap()
            .as_os_str()
            .as_bytes()
            .to_vec();
        found.push((
            name,
            meta.mode(),
            (meta.mtime(), meta.mtime_nsec()),
            content,
        ));
        if meta.is_dir() {
            todo.extend(fs::read_dir(next).unwrap().map(|e| e.unwrap().path()));
        }
    }
    found.sort();
    found
}

fn a_tree_goes_in_and_out_as_it_is(node: &Node) {
    let day = begin(
        node,
        json!({"securityContext": {"runAsUser": 1234, "runAsGroup": 77}}),
    );
    let desk = desk(&day);
    let tree = desk.join("tree");
    fs::create_dir_all(tree.join("sub/deeper")).unwrap();
    fs::create_dir(tree.join("empty")).unwrap();
    for name in ["new\nline", "ü日本🐧", &"n".repeat(255), "-rf"] {
        fs::write(tree.join("sub/deeper").join(name), name).unwrap();
    }
    fs::write(tree.join("program"), "#!").unwrap();
    fs::set_permissions(tree.join("program"), Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(tree.join("empty"), Permissions::from_mode(0o700)).unwrap();
    symlink("../gone", tree.join("link")).unwrap();
    let expected = listing(&tree);

    cp(&day, &at(&desk, "tree"), "web:/data");
    cp(&day, &at(&desk, "tree"), "default/web:/tmp/other");
    cp(&day, "web:tmp/other", &at(&desk, "back"));
    assert_eq!(listing(&volume(&day).join("tree")), expected);
    assert_eq!(listing(&desk.join("back")), expected);
    let owner = |path: PathBuf| {
        let meta = fs::symlink_metadata(path).unwrap();
        (meta.uid(), meta.gid())
    };
    for name in ["", "/program", "/link", "/sub/deeper"] {
        let path = inside(&day, &format!("tmp/other{name}"));
        assert_eq!(owner(path), (1234, 77), "{name}");
    }
    assert_eq!(owner(desk.join("back/program")), (0, 0));

    // With the node's name too, in a named container; devices and FIFOs are left out.
    let pod = format!("web-{NODE}:/data/tree/.");
    nix::unistd::mkfifo(&volume(&day).join("tree/p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(desk.join("into")).unwrap();
    let said = cp(&day, &pod, &at(&desk, "into"));
    assert_eq!(said, "podprobe: \"./p\" is left out: a FIFO\n");
    assert!(desk.join("into/sub/deeper/-rf").exists());
    day.log_with(&[
        "audit: cp to default/web-edge/c [\"/data\"] by uid 0",
        "audit: cp from default/web-edge/c",
    ]);
    day.end();
}

fn what_cannot_be_written_is_said(node: &Node) {
    let day = begin(
        node,
        json!({"securityContext": {"readOnlyRootFilesystem": true}, "command": ["/bin/sleep", "100000"]}),
    );
    let desk = desk(&day);
    fs::write(desk.join("f"), "1").unwrap();
    fs::create_dir_all(desk.join("d/f")).unwrap();
    fs::create_dir(volume(&day).join("f")).unwrap();
    let file = at(&desk, "f");
    for (from, to, expected) in [
        (
            &*file,
            "web:/tmp/f",
            "cannot write \"f\": the file system is read-only; a volume of the pod may be written to; nothing was written",
        ),
        (
            &file,
            "web:/data/no/such",
            "cannot write \"/data/no/such\": the directory \"/data/no\" does not exist; make it first",
        ),
        (
            &file,
            "web:/data/new/",
            "cannot write \"/data/new/\": it does not exist",
        ),
        (&file, "web:/data", "cannot write \"f\": it is a directory"),
        (
            &at(&desk, "d"),
            "web:/bin/busybox",
            "cannot write \"/bin/busybox\": it is not a directory",
        ),
        (
            &file,
            "web:/proc/1/comm",
            "it belongs to a file system of the kernel",
        ),
        (
            "web:/none",
            &at(&desk, "x"),
            "cannot read \"/none\": it does not exist",
        ),
        (
            "web:/proc",
            &at(&desk, "x"),
            "it belongs to a file system of the kernel",
        ),
        (
            "web:/dev/null",
            &at(&desk, "x"),
            "cannot read \"/dev/null\": it is a device",
        ),
        (&at(&desk, "none"), "web:/data/x", "cannot read"),
        ("weg:/tmp", &at(&desk, "x"), "did you mean"),
    ] {
        let said = refused(&day, from, to);
        assert!(said.contains(expected), "cp {from} {to}: {said}");
        assert!(!desk.join("x").exists());
    }
    let said = day.says(&["cp", "-c", "d", &file, "web:/data/x"]);
    assert!(
        said.starts_with("container d is not valid for pod web-edge: its containers are [c]"),
        "{said}"
    );
    cp(&day, &file, "web:/data/x");
    assert_eq!(fs::read(volume(&day).join("x")).unwrap(), b"1");

    // A full volume keeps what was there.
    fs::write(desk.join("f"), noise(2 << 20)).unwrap();
    fs::write(inside(&day, "small/f"), "old").unwrap();
    let said = refused(&day, &file, "web:/small");
    assert!(
        said.contains("cannot write \"f\": no space is left on the file system"),
        "{said}"
    );
    assert_eq!(listing(&inside(&day, "small")).len(), 2);
    assert_eq!(fs::read(inside(&day, "small/f")).unwrap(), b"old");
    day.end();
}

fn an_image_without_a_program_is_enough(node: &Node) {
    let root = node.dir.path().join("bare");
    fs::create_dir_all(root.join("etc")).unwrap();
    // One program that waits; nothing else, no shell and no tar.
    fs::copy("/usr/bin/busybox", root.join("sleep")).unwrap();
    let store = ImageStore::open(node.layout.images()).unwrap();
    let config = ImageConfig {
        entrypoint: vec!["/sleep".into(), "100000".into()],
        ..Default::default()
    };
    store.import(&root, "bare:test", config).unwrap();
    let day = Day::begin(node);
    let container = json!({"name": "c", "image": "bare:test", "imagePullPolicy": "Never"});
    let spec = json!({"containers": [container], "terminationGracePeriodSeconds": 1});
    day.put(
        "web",
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}),
    );
    day.wait_ready("web");
    let desk = desk(&day);
    fs::write(desk.join("conf"), "a=1").unwrap();
    cp(&day, &at(&desk, "conf"), "web:/etc/");
    cp(&day, "web:/etc", &at(&desk, "etc"));
    assert_eq!(fs::read(desk.join("etc/conf")).unwrap(), b"a=1");
    day.end();
}

/// A container may put a link wherever it can write.
fn links_of_a_container_lead_nowhere(node: &Node) {
    let day = begin(node, json!({}));
    let (desk, data) = (desk(&day), volume(&day));
    let secret = desk.join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("f"), "s").unwrap();
    let before = listing(&secret);
    // The path leads there on the node only.
    for name in ["dir", "tree/sub", "out/l"] {
        fs::create_dir_all(data.join(name).parent().unwrap()).unwrap();
        symlink(&secret, data.join(name)).unwrap();
    }
    fs::create_dir_all(desk.join("tree/sub")).unwrap();
    fs::write(desk.join("tree/sub/f"), "x").unwrap();
    fs::write(desk.join("f"), "x").unwrap();
    // In: a link to a place that the container does not have, and one below the destination.
    assert!(refused(&day, &at(&desk, "f"), "web:/data/dir/f").contains("does not exist"));
    let said = refused(&day, &at(&desk, "tree"), "web:/data");
    assert!(said.contains("a link is not followed"), "{said}");
    // The magic link of a process leads to no place either: the daemon is not in the container's /proc.
    let said = refused(&day, &at(&desk, "f"), "web:/proc/1/root/data/y");
    assert!(
        said.contains("too many links") || said.contains("not"),
        "{said}"
    );
    assert!(!data.join("y").exists());
    assert_eq!(listing(&secret), before);
    // Out: the link is a link, and a second copy does not write through the first one's.
    assert!(refused(&day, "web:/data/dir/f", &at(&desk, "x")).contains("does not exist"));
    cp(&day, "web:/data/out", &at(&desk, "copy"));
    assert_eq!(fs::read_link(desk.join("copy/l")).unwrap(), secret);
    fs::remove_file(data.join("out/l")).unwrap();
    fs::create_dir(data.join("out/l")).unwrap();
    fs::write(data.join("out/l/f"), "x").unwrap();
    let said = refused(&day, "web:/data/out/.", &at(&desk, "copy"));
    assert!(said.contains("a link is not followed"), "{said}");
    assert_eq!(listing(&secret), before);
    day.end();
}

/// Bytes that repeat nowhere near a buffer's end.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

fn sha256(path: &Path) -> Vec<u8> {
    let digest = ring::digest::digest(&ring::digest::SHA256, &fs::read(path).unwrap());
    digest.as_ref().to_vec()
}

fn a_hundred_megabytes_come_back(node: &Node) {
    let day = begin(node, json!({}));
    let desk = desk(&day);
    let large = desk.join("large");
    fs::write(&large, noise(100_000_001)).unwrap();
    cp(&day, &at(&desk, "large"), "web:/data/");
    cp(&day, "web:/data/large", &at(&desk, "back"));
    assert!(sha256(&large) == sha256(&volume(&day).join("large")));
    assert!(sha256(&large) == sha256(&desk.join("back")));
    day.end();
}

fn a_tar_is_read_and_written(node: &Node) {
    let day = begin(node, json!({}));
    let desk = desk(&day);
    fs::create_dir_all(desk.join("a/b")).unwrap();
    fs::write(desk.join("a/b/f"), "1").unwrap();
    fs::write(desk.join("g"), "2").unwrap();
    let podprobe = |from: &str, to: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["cp", from, to, "--root"]);
        command.arg(node.layout.root());
        command
    };
    let tar = desk.join("x.tar");
    let packed = Command::new("tar")
        .arg("cf")
        .arg(&tar)
        .arg("-C")
        .arg(&desk)
        .args(["a", "g"])
        .status();
    assert!(packed.unwrap().success());
    let mut read = podprobe("-", "web:/data");
    assert!(
        read.stdin(File::open(&tar).unwrap())
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(fs::read(volume(&day).join("a/b/f")).unwrap(), b"1");
    assert_eq!(fs::read(volume(&day).join("g")).unwrap(), b"2");
    let mut cut = podprobe("-", "web:/data");
    let mut cut = cut
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    cut.stdin
        .take()
        .unwrap()
        .write_all(&fs::read(&tar).unwrap()[..700])
        .unwrap();
    let cut = cut.wait_with_output().unwrap();
    assert_eq!(
        cut.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&cut.stderr)
    );
    let written = podprobe("web:/data/a", "-").output().unwrap();
    fs::write(desk.join("y.tar"), written.stdout).unwrap();
    let listed = Command::new("tar")
        .arg("tf")
        .arg(desk.join("y.tar"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "a/\na/b/\na/b/f\n");
    day.end();
}

/// The daemon dies, the client dies, the container ends: nobody takes a part for the whole.
fn a_copy_that_breaks_off_is_said(node: &Node) {
    let mut day = begin(node, json!({}));
    let desk = desk(&day);
    // Holes are read as zeros, so it takes as long as the test needs.
    File::create(volume(&day).join("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let start = |from: &str, to: &str| {
        let mut command = Command::new(PROGRAM);
        command
            .args(["cp", from, to, "--root"])
            .arg(node.layout.root());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // To a pipe, so that nothing fills the disk.
    let mut out = start("web:/data/huge", "-");
    out.stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut [0; 4096])
        .unwrap();
    day.kill9();
    std::io::copy(&mut out.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    let out = out.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("broken off"), "{said}");
    day.start();
    day.wait_ready("web");

    // A client that is killed in the middle of a file leaves nothing of it.
    fs::write(volume(&day).join("f"), "old").unwrap();
    let mut head = tar::Header::new_gnu();
    head.set_path("f").unwrap();
    head.set_mode(0o644);
    head.set_size(1 << 30);
    head.set_cksum();
    let mut into = start("-", "web:/data");
    into.stdin
        .as_mut()
        .unwrap()
        .write_all(head.as_bytes())
        .unwrap();
    into.stdin
        .as_mut()
        .unwrap()
        .write_all(&vec![b'x'; 1 << 20])
        .unwrap();
    into.kill().unwrap();
    into.wait().unwrap();
    support::wait_until("the end of the copy in the log", || {
        day.log().contains("\"f\" was being written")
    });
    let mut left: Vec<_> = fs::read_dir(volume(&day))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["f", "huge"]);
    assert_eq!(fs::read(volume(&day).join("f")).unwrap(), b"old");
    drop(desk);
    day.end();
}

fn it_can_be_switched_off(node: &Node) {
    let config =
        json!({"healthzBindAddress": "", "healthzPort": 0, "enableDebuggingHandlers": false});
    fs::write(node.layout.config_file(), config.to_string()).unwrap();
    let day = begin(node, json!({}));
    let desk = desk(&day);
    let said = refused(&day, "web:/data", &at(&desk, "x"));
    assert_eq!(said, "Debug endpoints are disabled.\n");
    let mut socket = UnixStream::connect(node.layout.socket()).unwrap();
    socket.write_all(b"PUT /podprobe/v1/files/default/web-edge/c?path=/data HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    day.end();
}
