//! Images on a real file system: archives of every kind, including hostile ones, and real overlay
//! mounts.
//!
//! Each test builds its archives itself. A test that mounts runs again as a child in a new mount
//! namespace, so that no mount can stay behind.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use podprobe::base::sys::xattr;
use podprobe::engine::images::{
    ImageConfig, ImageError, ImageStore, ImagesInUse, Limits, LoadedImage, overlay, save_to,
};
use serde_json::{Value, json};
use tar::{EntryType, Header};
use tempfile::TempDir;

use crate::support::PROGRAM;
use crate::support::own_process::only;
use crate::support::skip::is_root;

// ---- building archives ----

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest
        .as_ref()
        .iter()
        .fold("sha256:".to_owned(), |s, b| s + &format!("{b:02x}"))
}

/// A tar written header by header, so that it may say what no honest tool writes.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn new() -> Self {
        Self::default()
    }

    fn raw(mut self, mut header: Header, data: &[u8]) -> Self {
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn header(kind: EntryType, path: &str, mode: u32, size: usize) -> Header {
        let mut h = Header::new_gnu();
        h.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        h.set_entry_type(kind);
        h.set_mode(mode);
        h.set_uid(1000);
        h.set_gid(1001);
        h.set_mtime(1_000_000);
        h.set_size(size as u64);
        h
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.raw(
            Self::header(EntryType::Regular, path, 0o644, content.len()),
            content.as_bytes(),
        )
    }

    fn mode(self, path: &str, mode: u32) -> Self {
        self.raw(Self::header(EntryType::Regular, path, mode, 0), b"")
    }

    fn dir(self, path: &str) -> Self {
        self.raw(Self::header(EntryType::Directory, path, 0o755, 0), b"")
    }

    fn link(self, kind: EntryType, path: &str, target: &str) -> Self {
        let mut h = Self::header(kind, path, 0o777, 0);
        h.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        self.raw(h, b"")
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Symlink, path, target)
    }

    fn hard(self, path: &str, target: &str) -> Self {
        self.link(EntryType::Link, path, target)
    }

    fn device(self, path: &str, kind: EntryType, major: u32, minor: u32) -> Self {
        let mut h = Self::header(kind, path, 0o600, 0);
        h.set_device_major(major).unwrap();
        h.set_device_minor(minor).unwrap();
        self.raw(h, b"")
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let base = key.len() + value.len() + 3;
            let length = (base..).find(|n| base + n.to_string().len() == *n).unwrap();
            data.extend_from_slice(format!("{length} {key}=").as_bytes());
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.raw(
            Self::header(EntryType::XHeader, "pax", 0o644, data.len()),
            &data,
        )
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

/// One frame of raw blocks, which needs no encoder.
fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = [
        &[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..],
        &(bytes.len() as u32).to_le_bytes(),
    ]
    .concat();
    let mut chunks = bytes.chunks(60_000).peekable();
    while let Some(chunk) = chunks.next() {
        let last = u32::from(chunks.peek().is_none());
        out.extend_from_slice(&((chunk.len() as u32) << 3 | last).to_le_bytes()[..3]);
        out.extend_from_slice(chunk);
    }
    out
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn config_for(arch: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let ids: Vec<String> = layers.iter().map(|l| sha256(l)).collect();
    json!({
        "architecture": arch, "os": "linux", "created": "2024-05-06T07:08:09.123Z",
        "config": {"Entrypoint": ["/bin/app"], "Cmd": ["-v"], "Env": ["A=b"], "User": "7:8", "WorkingDir": "/srv", "StopSignal": "SIGINT"},
        "rootfs": {"type": "layers", "diff_ids": ids},
    })
    .to_string()
    .into_bytes()
}

/// Files of an archive by name.
type Files = BTreeMap<String, Vec<u8>>;

fn put(files: &mut Files, blob: &[u8], media_type: &str) -> Value {
    let digest = sha256(blob);
    files.insert(format!("blobs/sha256/{}", &digest[7..]), blob.to_vec());
    json!({"mediaType": media_type, "digest": digest, "size": blob.len()})
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The descriptor of a manifest; layers are plain tars, stored as `pack` makes them.
fn put_image(
    files: &mut Files,
    arch: &str,
    layers: &[Vec<u8>],
    pack: fn(&[u8]) -> Vec<u8>,
) -> Value {
    let config = put(
        files,
        &config_for(arch, layers),
        "application/vnd.oci.image.config.v1+json",
    );
    let layers: Vec<Value> = layers
        .iter()
        .map(|l| put(files, &pack(l), "application/vnd.oci.image.layer.v1.tar"))
        .collect();
    let manifest =
        json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    put(files, manifest.to_string().as_bytes(), MANIFEST)
}

fn finish_layout(mut files: Files, mut manifests: Vec<Value>, name: &str) -> Files {
    for m in &mut manifests {
        m["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    }
    files.insert(
        "oci-layout".into(),
        br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
    );
    files.insert(
        "index.json".into(),
        json!({"schemaVersion": 2, "manifests": manifests})
            .to_string()
            .into_bytes(),
    );
    files
}

fn oci(name: &str, layers: &[Vec<u8>], pack: fn(&[u8]) -> Vec<u8>) -> Files {
    let mut files = Files::new();
    let manifest = put_image(&mut files, arch(), layers, pack);
    finish_layout(files, vec![manifest], name)
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    bytes.to_vec()
}

fn as_tar(files: &Files) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut h = Tar::header(EntryType::Regular, "", 0o644, content.len());
        builder
            .append_data(&mut h, name, content.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn as_dir(files: &Files, dir: &Path) {
    for (name, content) in files {
        fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        fs::write(dir.join(name), content).unwrap();
    }
}

// ---- a store beside a directory that must not change ----

struct Bench {
    dir: TempDir,
    store: ImageStore,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        fs::write(dir.path().join("outside/precious"), "precious").unwrap();
        let store = ImageStore::open(dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn load(&self, files: &Files) -> Result<Vec<LoadedImage>, ImageError> {
        self.store.load(&self.write("archive.tar", &as_tar(files)))
    }

    /// Loads one layer and gives its directory.
    fn layer(&self, tar: Tar) -> Result<PathBuf, ImageError> {
        let loaded = self.load(&oci("test/one:1", &[tar.end()], plain))?;
        Ok(self.store.resolve(&loaded[0].id).unwrap().layers[0].clone())
    }

    /// Nothing of a failed load is left, and nothing outside was touched.
    #[track_caller]
    fn check_untouched(&self) {
        assert_eq!(
            fs::read_to_string(self.path("outside/precious")).unwrap(),
            "precious"
        );
        assert_eq!(
            fs::read_dir(self.path("outside")).unwrap().count(),
            1,
            "something appeared outside"
        );
        assert_eq!(
            fs::metadata(self.path("outside/precious")).unwrap().nlink(),
            1
        );
        assert_eq!(
            fs::read_dir(self.path("store/tmp")).unwrap().count(),
            0,
            "something is left in tmp"
        );
        assert!(!self.path("escaped").exists());
        let outside = fs::metadata(self.path("outside")).unwrap();
        assert_eq!(
            (outside.uid(), outside.mtime() == 1_000_000),
            (0, false),
            "its metadata was changed"
        );
        assert_eq!(opaque(&self.path("outside")), None);
    }

    #[track_caller]
    fn check_nothing_kept(&self) {
        self.check_untouched();
        assert_eq!(
            fs::read_dir(self.path("store/layers")).unwrap().count(),
            0,
            "a layer is left"
        );
        assert!(self.store.list().unwrap().is_empty());
    }

    /// A layer that must be refused, with these words.
    #[track_caller]
    fn check_refused(tar: Tar, words: &str) {
        if !is_root() {
            return;
        }
        let bench = Self::new();
        let error = bench.layer(tar).expect_err("the layer was accepted");
        assert!(matches!(error, ImageError::Refused { .. }), "{error:?}");
        assert!(
            error.to_string().contains(words),
            "{error} does not say {words:?}"
        );
        bench.check_nothing_kept();
    }
}

// ---- archives ----

#[track_caller]
fn check_loads(prepare: impl FnOnce(&Bench, &Files) -> PathBuf, pack: fn(&[u8]) -> Vec<u8>) {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layers = [
        Tar::new().file("etc/a", "lower").end(),
        Tar::new().file("etc/b", "upper").end(),
    ];
    let files = oci("example.com/app:1.0", &layers, pack);
    let loaded = bench.store.load(&prepare(&bench, &files)).unwrap();
    assert_eq!(loaded[0].names, ["example.com/app:1.0"]);
    assert_eq!(
        (loaded[0].size, loaded[0].id.clone()),
        (10, sha256(&config_for(arch(), &layers)))
    );
    let image = bench.store.resolve("example.com/app:1.0").unwrap();
    assert_eq!(
        fs::read_to_string(image.layers[0].join("etc/b")).unwrap(),
        "upper",
        "topmost first"
    );
    assert_eq!(
        fs::read_to_string(image.layers[1].join("etc/a")).unwrap(),
        "lower"
    );
    let c = image.config;
    assert_eq!(
        (c.entrypoint, c.cmd, c.env),
        (
            vec!["/bin/app".into()],
            vec!["-v".into()],
            vec!["A=b".into()]
        )
    );
    assert_eq!(
        (c.user, c.working_dir, c.stop_signal),
        ("7:8".into(), "/srv".into(), "SIGINT".into())
    );
    assert_eq!(
        bench.store.list().unwrap()[0].created.unwrap().to_string(),
        "2024-05-06T07:08:09Z"
    );
    bench.check_untouched();
}

#[test]
fn loads_a_layout_directory() {
    check_loads(
        |b, files| {
            as_dir(files, &b.path("layout"));
            b.path("layout")
        },
        plain,
    );
}

/// overlayfs refuses a directory that it has already. BuildKit repeats its empty layer.
#[test]
fn a_layer_that_an_image_has_twice_is_its_upper_one() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let [a, b] = ["a", "b"].map(|name| Tar::new().file(name, name).end());
    let files = oci("example.com/app:1.0", &[a.clone(), b, a], plain);
    bench.load(&files).unwrap();
    let layers = bench.store.resolve("example.com/app:1.0").unwrap().layers;
    let files: Vec<_> = layers
        .iter()
        .map(|l| ["a", "b"].map(|name| l.join(name).exists()))
        .collect();
    assert_eq!(files, [[true, false], [false, true]]);
}

#[test]
fn loads_a_layout_tar_with_gzip_layers() {
    check_loads(|b, files| b.write("x.tar", &as_tar(files)), gzip);
}

#[test]
fn loads_a_gzipped_layout_tar_with_zstd_layers() {
    check_loads(|b, files| b.write("x.tar.gz", &gzip(&as_tar(files))), zstd);
}

#[test]
fn loads_a_docker_archive_with_a_linked_layer() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = Tar::new().file("f", "x").end();
    let config = config_for(arch(), &[layer.clone(), layer.clone()]);
    let config_name = format!("{}.json", &sha256(&config)[7..]);
    let manifest = json!([{"Config": config_name, "RepoTags": ["busybox:1.36", "other/name:2"], "Layers": ["a/layer.tar", "b/layer.tar"]}])
        .to_string();
    let archive = Tar::new()
        .raw(
            Tar::header(EntryType::Regular, "a/layer.tar", 0o644, layer.len()),
            &layer,
        )
        .symlink("b/layer.tar", "../a/layer.tar")
        .raw(
            Tar::header(EntryType::Regular, &config_name, 0o644, config.len()),
            &config,
        )
        .file("manifest.json", &manifest)
        .end();
    bench.store.load(&bench.write("d.tar", &archive)).unwrap();
    for name in [
        "busybox:1.36",
        "docker.io/library/busybox:1.36",
        "other/name:2",
        &sha256(&config),
    ] {
        assert_eq!(bench.store.resolve(name).unwrap().layers.len(), 1, "{name}");
    }
    let error = bench.store.resolve("busybox").unwrap_err().to_string();
    assert!(
        error.contains("podprobe image load") && error.contains("docker.io/library/busybox:1.36"),
        "{error}"
    );
}

#[test]
fn names_come_from_the_archive_the_caller_or_the_file() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let mut nameless = oci("x", &[Tar::new().file("f", "x").end()], plain);
    let mut index: Value = serde_json::from_slice(&nameless["index.json"]).unwrap();
    index["manifests"][0]["annotations"] = json!({});
    nameless.insert("index.json".into(), index.to_string().into_bytes());
    let path = bench.write("app.tar", &as_tar(&nameless));
    let error = bench.store.load(&path).unwrap_err();
    assert!(
        matches!(error, ImageError::NoName { .. }) && error.to_string().contains("--name"),
        "{error}"
    );
    assert_eq!(
        bench.store.load_as(&path, Some("my/app")).unwrap()[0].names,
        ["docker.io/my/app:latest"]
    );
    index["manifests"][0]["annotations"] = json!({"org.opencontainers.image.ref.name": "1.0"});
    nameless.insert("index.json".into(), index.to_string().into_bytes());
    let path = bench.write("app.tar", &as_tar(&nameless));
    assert_eq!(
        bench.store.load(&path).unwrap()[0].names,
        ["docker.io/library/app:1.0"]
    );
}

#[test]
fn picks_this_machines_platform_from_an_index() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let mut files = Files::new();
    let layer = |s: &str| vec![Tar::new().file("arch", s).end()];
    let mut own = put_image(&mut files, arch(), &layer("own"), plain);
    own["platform"] = json!({"os": "linux", "architecture": arch()});
    let mut foreign = put_image(&mut files, "sparc", &layer("foreign"), plain);
    foreign["platform"] = json!({"os": "linux", "architecture": "sparc"});
    let attestation = json!({"mediaType": MANIFEST, "digest": sha256(b"absent"), "size": 1, "platform": {"os": "unknown", "architecture": "unknown"}});
    let index = put(
        &mut files,
        json!({"schemaVersion": 2, "manifests": [foreign, attestation, own]})
            .to_string()
            .as_bytes(),
        INDEX,
    );
    let index_digest = index["digest"].as_str().unwrap().to_owned();
    bench
        .load(&finish_layout(files.clone(), vec![index], "a/multi:1"))
        .unwrap();
    // The digest of the index names the image too: that is what a pod spec pins.
    let image = bench
        .store
        .resolve(&format!("a/multi@{index_digest}"))
        .unwrap();
    assert_eq!(
        fs::read_to_string(image.layers[0].join("arch")).unwrap(),
        "own"
    );
    let error = bench
        .load(&finish_layout(files, vec![foreign], "a/foreign:1"))
        .unwrap_err();
    assert!(
        matches!(&error, ImageError::WrongPlatform { found, .. } if found == &["linux/sparc"]),
        "{error}"
    );
}

#[track_caller]
fn check_corrupt(damage: impl FnOnce(&mut Files), words: &str) {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let good = bench
        .load(&oci(
            "a/good:1",
            &[Tar::new().file("good", "good").end()],
            gzip,
        ))
        .unwrap();
    let mut files = oci(
        "a/bad:1",
        &[Tar::new().file("bad", &"bad".repeat(1000)).end()],
        gzip,
    );
    damage(&mut files);
    let error = bench
        .load(&files)
        .expect_err("a damaged archive was loaded");
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error:?}");
    assert!(
        error.to_string().contains(words),
        "{error} does not say {words:?}"
    );
    bench.check_untouched();
    assert_eq!(bench.store.list().unwrap().len(), 1);
    assert_eq!(fs::read_dir(bench.path("store/layers")).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(bench.store.resolve(&good[0].id).unwrap().layers[0].join("good"))
            .unwrap(),
        "good"
    );
}

/// The layer's blob: the only one that is gzip.
fn layer_blob(files: &mut Files) -> &mut Vec<u8> {
    files
        .values_mut()
        .find(|b| b.starts_with(&[0x1f, 0x8b]))
        .unwrap()
}

#[test]
fn a_flipped_bit_in_a_layer() {
    // In the gzip header's time field: only the blob's digest can tell.
    check_corrupt(|f| layer_blob(f)[5] ^= 1, "its content has digest");
}

#[test]
fn a_truncated_layer() {
    check_corrupt(
        |f| {
            let blob = layer_blob(f);
            blob.truncate(blob.len() / 2);
        },
        "layer sha256:",
    );
}

#[test]
fn a_missing_layer() {
    check_corrupt(
        |f| f.retain(|_, b| !b.starts_with(&[0x1f, 0x8b])),
        "it is missing",
    );
}

#[test]
fn a_layer_that_is_not_what_the_configuration_says() {
    let other = gzip(&Tar::new().file("bad", "other").end());
    let digest = sha256(&other);
    check_corrupt(
        |f| {
            let mut index: Value = serde_json::from_slice(&f["index.json"]).unwrap();
            let old = index["manifests"][0]["digest"].as_str().unwrap()[7..].to_owned();
            let mut manifest: Value =
                serde_json::from_slice(&f[&format!("blobs/sha256/{old}")]).unwrap();
            manifest["layers"][0]["digest"] = json!(digest);
            f.insert(format!("blobs/sha256/{}", &digest[7..]), other);
            index["manifests"][0]["digest"] =
                put(f, manifest.to_string().as_bytes(), MANIFEST)["digest"].clone();
            f.insert("index.json".into(), index.to_string().into_bytes());
        },
        "its uncompressed content has digest",
    );
}

#[test]
fn a_changed_manifest() {
    check_corrupt(
        |f| {
            let manifest = f
                .iter_mut()
                .find(|(n, b)| {
                    n.starts_with("blobs") && b.starts_with(br#"{"config":{"digest"#)
                        || b.windows(8).any(|w| w == b"\"layers\"")
                            && b.windows(15).any(|w| w == b"\"schemaVersion\"")
                })
                .unwrap();
            manifest.1.push(b' ');
        },
        "its content has digest",
    );
}

#[test]
fn a_truncated_archive() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let whole = as_tar(&oci(
        "a/b:1",
        &[Tar::new().file("f", &"x".repeat(5000)).end()],
        plain,
    ));
    for cut in [whole.len() / 3, whole.len() / 2, whole.len() - 1024] {
        let error = bench
            .store
            .load(&bench.write("x.tar", &whole[..cut]))
            .unwrap_err();
        assert!(error.to_string().contains("truncated"), "{cut}: {error}");
        bench.check_nothing_kept();
    }
}

#[test]
fn a_root_tar_is_not_an_image() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let error = bench
        .store
        .load(&bench.write("x.tar", &Tar::new().file("etc/x", "").end()))
        .unwrap_err();
    assert!(
        matches!(error, ImageError::NotAnImage { .. })
            && error.to_string().contains("podprobe image import"),
        "{error}"
    );
}

// ---- what a layer may hold ----

#[test]
fn metadata_is_kept() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let long = format!("long/{}", ["n".repeat(120), "m".repeat(120)].join("/"));
    let layer = Tar::new()
        .dir("sub/")
        .mode("sub/setuid", 0o4755)
        .pax(&[
            ("SCHILY.xattr.security.capability", &capability),
            ("SCHILY.xattr.user.note", b"a\nb"),
            ("mtime", b"12.25"),
        ])
        .mode("sub/ping", 0o755)
        .hard("sub/same", "sub/setuid")
        .symlink("sub/link", "/absolute/target")
        .device("sub/fifo", EntryType::Fifo, 0, 0)
        .pax(&[("path", long.as_bytes())])
        .file("short", "long")
        .file("./implied/parent", "");
    let root = bench.layer(layer).unwrap();
    let meta = |p: &str| fs::symlink_metadata(root.join(p)).unwrap();
    assert_eq!(meta("sub/setuid").mode() & 0o7777, 0o4755);
    assert_eq!(
        (
            meta("sub/setuid").uid(),
            meta("sub/setuid").gid(),
            meta("sub/setuid").mtime()
        ),
        (1000, 1001, 1_000_000)
    );
    assert_eq!(
        meta("sub").mtime(),
        1_000_000,
        "a directory's time, though files came into it later"
    );
    assert_eq!(
        (meta("sub/ping").mtime(), meta("sub/ping").mtime_nsec()),
        (12, 250_000_000)
    );
    assert_eq!(
        xattr::get(&root.join("sub/ping"), "security.capability".as_ref())
            .unwrap()
            .unwrap(),
        capability
    );
    assert_eq!(
        xattr::get(&root.join("sub/ping"), "user.note".as_ref())
            .unwrap()
            .unwrap(),
        b"a\nb"
    );
    assert_eq!(
        (meta("sub/same").ino(), meta("sub/same").nlink()),
        (meta("sub/setuid").ino(), 2)
    );
    assert_eq!(
        fs::read_link(root.join("sub/link")).unwrap(),
        Path::new("/absolute/target")
    );
    assert_eq!(
        (meta("sub/link").uid(), meta("sub/link").mtime()),
        (1000, 1_000_000)
    );
    assert!(meta("sub/fifo").file_type().is_fifo());
    assert_eq!(fs::read_to_string(root.join(long)).unwrap(), "long");
    assert_eq!(
        (meta("implied").mode() & 0o7777, meta("implied").uid()),
        (0o755, 0)
    );
}

/// An image's own node would lead to the disk of whatever machine runs it.
#[test]
fn device_nodes_of_layers_are_left_out_and_hide_what_lies_below() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let below = Tar::new().file("disk", "a file of the layer below").end();
    let above = Tar::new()
        .device("disk", EntryType::Block, 7, 9)
        .hard("same", "disk")
        .device("null", EntryType::Char, 1, 3)
        .file("kept", "kept")
        .end();
    let loaded = &bench
        .load(&oci("test/nodes:1", &[below, above], gzip))
        .unwrap()[0];
    let told = |w: &&String| w.contains("a device node, left out");
    assert_eq!(
        loaded.warnings.iter().filter(told).count(),
        2,
        "{:?}",
        loaded.warnings
    );
    // Topmost first.
    let top = &bench.store.resolve("test/nodes:1").unwrap().layers[0];
    for name in ["disk", "same", "null"] {
        assert!(is_whiteout(&top.join(name)), "{name}");
    }
    assert_eq!(fs::read_to_string(top.join("kept")).unwrap(), "kept");
}

#[test]
fn a_sparse_file_keeps_its_holes() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let mut h = Tar::header(EntryType::GNUSparse, "sparse", 0o644, 3);
    let gnu = h.as_gnu_mut().unwrap();
    gnu.set_real_size(10_000_000);
    gnu.sparse[0].set_offset(5_000_000);
    gnu.sparse[0].set_length(3);
    let root = bench
        .layer(Tar::new().raw(h, b"mid").file("after", "ok"))
        .unwrap();
    let content = fs::read(root.join("sparse")).unwrap();
    assert_eq!(
        (content.len(), &content[5_000_000..5_000_003]),
        (10_000_000, &b"mid"[..])
    );
    assert!(fs::metadata(root.join("sparse")).unwrap().blocks() < 100);
    assert_eq!(fs::read_to_string(root.join("after")).unwrap(), "ok");
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_char_device() && m.rdev() == 0)
}

fn opaque(path: &Path) -> Option<Vec<u8>> {
    xattr::get(path, "trusted.overlay.opaque".as_ref()).unwrap()
}

#[test]
fn whiteouts_in_every_order() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = Tar::new()
        .mode("d/.wh.gone", 0o644)
        .mode("all/.wh..wh..opq", 0o644)
        .mode(".wh.before", 0o644)
        .dir("before/")
        .dir("after/")
        .mode(".wh.after", 0o644)
        .mode(".wh.implied", 0o644)
        .file("implied/x", "")
        .file("kept", "kept")
        .mode(".wh.kept", 0o644)
        .mode(".wh..wh.plnk", 0o644);
    let root = bench.layer(layer).unwrap();
    assert!(is_whiteout(&root.join("d/gone")));
    for dir in ["all", "before", "after", "implied"] {
        assert_eq!(opaque(&root.join(dir)).as_deref(), Some(&b"y"[..]), "{dir}");
    }
    assert_eq!(opaque(&root.join("d")), None);
    assert_eq!(fs::read_to_string(root.join("kept")).unwrap(), "kept");
    assert_eq!(
        fs::read_dir(&root)
            .unwrap()
            .filter(|e| e
                .as_ref()
                .unwrap()
                .file_name()
                .as_bytes()
                .starts_with(b".wh."))
            .count(),
        0
    );
}

#[test]
fn a_later_entry_replaces_an_earlier_one() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = Tar::new()
        .file("a/b/c", "1")
        .file("x", "old")
        .file("x", "new")
        .file("a", "file now")
        .dir("x2/")
        .file("x2/k", "k")
        .dir("x2/");
    let root = bench.layer(layer).unwrap();
    assert_eq!(fs::read_to_string(root.join("x")).unwrap(), "new");
    assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "file now");
    assert_eq!(fs::read_to_string(root.join("x2/k")).unwrap(), "k");
}

// ---- attacks ----

#[test]
fn attack_dot_dot() {
    Bench::check_refused(Tar::new().file("../../../escaped", "x"), "'..' in the path");
    Bench::check_refused(
        Tar::new().file("a/../../../../escaped", "x"),
        "'..' in the path",
    );
}

#[test]
fn attack_absolute_name_lands_inside() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let outside = bench.path("outside/new");
    let root = bench
        .layer(Tar::new().file(outside.to_str().unwrap(), "x"))
        .unwrap();
    assert!(root.join(outside.strip_prefix("/").unwrap()).exists());
    bench.check_untouched();
}

/// A symlink of the archive that points out, used as a directory by the next entry.
#[track_caller]
fn check_symlink_out(target: impl Fn(&Bench) -> String, then: impl Fn(Tar) -> Tar) {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = then(Tar::new().symlink("way", &target(&bench)));
    // Resolved inside the layer, or refused: both are safe.
    let _ = bench.layer(layer);
    bench.check_untouched();
}

fn absolute(b: &Bench) -> String {
    b.path("outside").display().to_string()
}

fn relative(_: &Bench) -> String {
    // From store/tmp/<unique>/fs.
    "../../../../outside".into()
}

#[test]
fn attack_write_through_a_symlink() {
    check_symlink_out(absolute, |t| t.file("way/new", "x"));
    check_symlink_out(relative, |t| t.file("way/new", "x"));
    check_symlink_out(absolute, |t| t.symlink("way2", "way").file("way2/new", "x"));
    check_symlink_out(relative, |t| t.dir("way/new/"));
}

#[test]
fn attack_overwrite_through_a_symlink() {
    check_symlink_out(
        |b| absolute(b) + "/precious",
        |t| t.file("way", "overwritten"),
    );
    check_symlink_out(absolute, |t| t.file("way/precious", "overwritten"));
    // Mode and owner go to the entry, never through it.
    check_symlink_out(absolute, |t| t.dir("way/"));
}

#[test]
fn attack_whiteout_through_a_symlink() {
    check_symlink_out(absolute, |t| t.mode("way/.wh.new", 0o644));
    check_symlink_out(relative, |t| t.mode("way/.wh.new", 0o644));
    check_symlink_out(relative, |t| t.mode("way/.wh..wh..opq", 0o644));
}

#[test]
fn attack_replace_a_directory_by_a_symlink() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let out = absolute(&bench);
    // The parent was resolved before it became a symlink; its removal must not follow one either.
    let layer = Tar::new()
        .file("d/first", "1")
        .symlink("d", &out)
        .file("d/second", "2")
        .symlink("e/link", &out)
        .file("e", "e");
    let _ = bench.layer(layer);
    bench.check_untouched();
}

#[test]
fn attack_hard_link_out() {
    Bench::check_refused(
        Tar::new().hard("stolen", "../../../../outside/precious"),
        "'..' in the path",
    );
    Bench::check_refused(
        Tar::new().hard("stolen", "/etc/passwd"),
        "no such file in the layer",
    );
    Bench::check_refused(
        Tar::new()
            .symlink("out", "/etc")
            .hard("stolen", "out/passwd"),
        "no such file in the layer",
    );
    Bench::check_refused(
        Tar::new()
            .symlink("out", "../../../../outside")
            .hard("stolen", "out/precious")
            .file("stolen", "x"),
        "no such file",
    );
}

#[test]
fn attack_hard_link_to_a_symlink_links_the_symlink() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let out = absolute(&bench) + "/precious";
    let root = bench
        .layer(
            Tar::new()
                .symlink("out", &out)
                .hard("again", "out")
                .hard("third", "again")
                .file("third", "x"),
        )
        .unwrap();
    assert_eq!(fs::read_link(root.join("again")).unwrap(), Path::new(&out));
    assert_eq!(fs::read_to_string(root.join("third")).unwrap(), "x");
    bench.check_untouched();
}

#[test]
fn attack_hard_link_to_itself_or_a_directory() {
    Bench::check_refused(
        Tar::new().file("f", "x").hard("f", "f"),
        "it is the entry itself",
    );
    Bench::check_refused(Tar::new().dir("d/").hard("f", "d"), "it is a directory");
    Bench::check_refused(
        Tar::new().file("d/x", "x").hard("d", "d/x"),
        "it links to a file that it replaces",
    );
}

#[test]
fn attack_whiteout_of_the_parent() {
    Bench::check_refused(Tar::new().mode("d/.wh...", 0o644), "hides no file");
    Bench::check_refused(Tar::new().mode(".wh.", 0o644), "hides no file");
}

#[test]
fn attack_the_root_is_not_a_directory() {
    Bench::check_refused(
        Tar::new().symlink("./", "/etc").file("x", "x"),
        "must be a directory",
    );
}

#[test]
fn attack_symlink_loops_and_depth() {
    Bench::check_refused(
        Tar::new()
            .symlink("a", "b")
            .symlink("b", "a")
            .file("a/x", "x"),
        "too many symlinks",
    );
    Bench::check_refused(
        Tar::new()
            .pax(&[("path", "d/".repeat(300).as_bytes())])
            .file("x", "x"),
        "256 deep",
    );
    Bench::check_refused(
        Tar::new().file("f", "x").file("f/x", "x"),
        "parent is not a directory",
    );
}

#[test]
fn attack_overlay_attributes_and_devices_do_not_get_through() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = Tar::new()
        .pax(&[
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
        ])
        .dir("d/")
        .device("fake", EntryType::Char, 0, 0);
    let loaded = bench.load(&oci("a/b:1", &[layer.end()], plain)).unwrap();
    assert!(
        loaded[0]
            .warnings
            .iter()
            .any(|w| w.starts_with("fake: a 0/0 device")),
        "{:?}",
        loaded[0].warnings
    );
    let root = bench.store.resolve("a/b:1").unwrap().layers[0].clone();
    assert!(fs::symlink_metadata(root.join("fake")).is_err());
    assert!(
        xattr::list(&root.join("d"))
            .unwrap()
            .iter()
            .all(|n| !n.to_string_lossy().contains("overlay"))
    );
}

#[test]
fn attack_bombs_meet_their_limits() {
    if !is_root() {
        return;
    }
    let limits = Limits {
        bytes: 1 << 20,
        entries: 100,
        directory_names: 10_000,
    };
    let check = |layer: Vec<u8>, limit: &str| {
        let mut bench = Bench::new();
        bench.store = bench.store.with_limits(limits);
        let error = bench
            .load(&oci("a/b:1", &[layer], gzip))
            .expect_err("a bomb was unpacked");
        assert!(
            matches!(&error, ImageError::TooLarge { limit: l, .. } if l.contains(limit)),
            "{error}"
        );
        bench.check_nothing_kept();
    };
    check(
        Tar::new().file("zeros", &"\0".repeat(2 << 20)).end(),
        "1048576 bytes",
    );
    // Behind the end of the archive, where no entry is counted.
    check(
        [Tar::new().file("f", "x").end(), vec![0; 2 << 20]].concat(),
        "1048576 bytes",
    );
    check(
        (0..101)
            .fold(Tar::new(), |t, i| t.mode(&format!("f{i}"), 0o644))
            .end(),
        "100 entries",
    );
    check(
        (0..90)
            .fold(Tar::new(), |t, i| t.dir(&format!("{i}{}", "d".repeat(90))))
            .end(),
        "directory names",
    );
    let mut huge = Tar::header(EntryType::GNUSparse, "hole", 0o644, 0);
    huge.as_gnu_mut().unwrap().set_real_size(1 << 50);
    check(Tar::new().raw(huge, b"").end(), "1048576 bytes");
}

#[test]
fn attack_archive_directory_link() {
    if !is_root() {
        return;
    }
    // A blob "called" by a digest that is a path.
    let bench = Bench::new();
    let mut files = oci("a/b:1", &[Tar::new().file("f", "x").end()], plain);
    let index =
        json!({"manifests": [{"mediaType": MANIFEST, "digest": "sha256:../../outside/precious"}]});
    files.insert("index.json".into(), index.to_string().into_bytes());
    assert!(matches!(
        bench.load(&files).unwrap_err(),
        ImageError::Corrupt { .. }
    ));
}

// ---- the store ----

/// A container of that image stands on these layers.
fn used(id: &str, layers: &[PathBuf]) -> ImagesInUse {
    let mut in_use = ImagesInUse::default();
    in_use.add(id, layers);
    in_use
}

#[test]
fn removal_keeps_what_others_use() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let shared = Tar::new().file("shared", "s").end();
    let one = bench
        .load(&oci(
            "a/one:1",
            &[shared.clone(), Tar::new().file("one", "1").end()],
            plain,
        ))
        .unwrap()
        .remove(0);
    let two = bench
        .load(&oci(
            "a/two:1",
            &[shared, Tar::new().file("two", "2").end()],
            plain,
        ))
        .unwrap()
        .remove(0);
    let layers = || fs::read_dir(bench.path("store/layers")).unwrap().count();
    assert_eq!(layers(), 3, "a shared layer is there once");

    let busy = bench
        .store
        .remove("a/one:1", &|| used(&one.id, &[]))
        .unwrap();
    assert_eq!(
        (busy.names, busy.images, busy.in_use),
        (
            vec!["docker.io/a/one:1".into()],
            vec![],
            vec![one.id.clone()]
        )
    );
    assert_eq!(layers(), 3);
    assert!(matches!(
        bench.store.resolve("a/one:1"),
        Err(ImageError::NotFound { .. })
    ));
    assert_eq!(
        bench.store.resolve(&one.id).unwrap().layers.len(),
        2,
        "a container may still need it"
    );

    assert_eq!(
        bench.store.prune(&ImagesInUse::default).unwrap().images,
        std::slice::from_ref(&one.id)
    );
    assert_eq!(layers(), 2);
    assert_eq!(
        fs::read_to_string(bench.store.resolve("a/two:1").unwrap().layers[1].join("shared"))
            .unwrap(),
        "s"
    );
    bench.store.remove(&two.id, &ImagesInUse::default).unwrap();
    bench.check_nothing_kept();
    assert!(matches!(
        bench.store.remove("a/two:1", &ImagesInUse::default),
        Err(ImageError::NotFound { .. })
    ));
}

#[test]
fn a_name_moves_to_the_image_loaded_last() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let old = bench
        .load(&oci("a/app:1", &[Tar::new().file("f", "old").end()], plain))
        .unwrap()
        .remove(0);
    let new = bench
        .load(&oci("a/app:1", &[Tar::new().file("f", "new").end()], plain))
        .unwrap()
        .remove(0);
    assert_eq!(bench.store.resolve("a/app:1").unwrap().id, new.id);
    let rows: Vec<_> = bench
        .store
        .list()
        .unwrap()
        .into_iter()
        .map(|r| (r.name, r.id))
        .collect();
    assert_eq!(
        rows,
        [
            (Some("docker.io/a/app:1".to_owned()), new.id),
            (None, old.id)
        ]
    );
}

#[test]
fn leftovers_of_a_crash_go_at_the_next_open() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("store/tmp/123-0-1/fs/etc")).unwrap();
    fs::write(bench.path("store/tmp/scratch"), "x").unwrap();
    ImageStore::open(bench.path("store")).unwrap();
    assert_eq!(fs::read_dir(bench.path("store/tmp")).unwrap().count(), 0);
    // Not while somebody writes.
    let lock = fs::File::open(bench.path("store/lock")).unwrap();
    let _lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    fs::write(bench.path("store/tmp/theirs"), "x").unwrap();
    ImageStore::open(bench.path("store")).unwrap();
    assert!(bench.path("store/tmp/theirs").exists());
}

#[test]
fn the_store_is_closed_to_others_and_what_is_above_is_not() {
    let dir = tempfile::tempdir().unwrap();
    ImageStore::open(dir.path().join("var/lib/images")).unwrap();
    let mode = |p: &str| fs::metadata(dir.path().join(p)).unwrap().mode() & 0o777;
    assert_eq!(
        (mode("var/lib/images"), mode("var/lib/images/layers")),
        (0o700, 0o700)
    );
    assert_ne!(mode("var/lib"), 0o700);
}

#[test]
fn a_missing_layer_is_told() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let layer = bench.layer(Tar::new().file("f", "x")).unwrap();
    fs::remove_dir_all(layer.parent().unwrap()).unwrap();
    let error = bench.store.resolve("test/one:1").unwrap_err();
    assert!(
        matches!(error, ImageError::Corrupt { .. }) && error.to_string().contains("load it again"),
        "{error}"
    );
    bench
        .layer(Tar::new().file("f", "x"))
        .expect("loading again mends it");
}

/// F6: what damages `names.json` costs no image, neither at the next start nor before.
#[test]
fn lost_names_cost_no_image() {
    if !is_root() {
        return;
    }
    for damage in [None, Some("{}"), Some("{\"docker.io"), Some("\0\0\0")] {
        let bench = Bench::new();
        let load = |n: u32| {
            let layer = Tar::new().file("f", &n.to_string()).end();
            bench.load(&oci(&format!("a/x{n}:1"), &[layer], plain))
        };
        load(1).unwrap();
        load(2).unwrap();
        let names = bench.path("store/names.json");
        let break_names = || match damage {
            Some(content) => fs::write(&names, content).unwrap(),
            None => fs::remove_file(&names).unwrap(),
        };
        break_names();
        bench
            .store
            .resolve("a/x1:1")
            .expect("it can be used as it is");
        let store = ImageStore::open(bench.path("store")).unwrap();
        let removed = store.prune(&ImagesInUse::default).unwrap();
        assert!(removed.images.is_empty(), "{damage:?}: {removed:?}");
        break_names();
        load(3).expect("loading an image heals it");
        for n in [1, 2, 3] {
            store.resolve(&format!("a/x{n}:1")).unwrap();
        }
        assert_eq!(store.list().unwrap().len(), 3);
    }
}

/// F6: the record of an image is lost; its container runs on, and the image is there again once it is loaded again.
#[test]
fn a_lost_record_costs_no_layer_in_use() {
    if !is_root() {
        return;
    }
    for damage in [None, Some("{")] {
        let bench = Bench::new();
        let files = oci("a/app:1", &[Tar::new().file("f", "x").end()], plain);
        let id = bench.load(&files).unwrap().remove(0).id;
        let layers = bench.store.resolve(&id).unwrap().layers;
        let record = bench.path(&format!("store/images/{}.json", &id["sha256:".len()..]));
        match damage {
            Some(content) => fs::write(&record, content).unwrap(),
            None => fs::remove_file(&record).unwrap(),
        }
        let error = bench.store.resolve("a/app:1").unwrap_err();
        assert!(error.to_string().contains("load it again"), "{error}");
        bench
            .store
            .prune(&|| used("sha256:other", &layers))
            .unwrap();
        assert!(layers[0].join("f").exists(), "a container stands on it");
        assert_eq!(bench.load(&files).unwrap()[0].id, id);
        assert_eq!(bench.store.resolve("a/app:1").unwrap().layers, layers);
    }
}

#[test]
fn a_damaged_layer_is_mended_by_loading_again() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let files = oci("a/app:1", &[Tar::new().file("f", "12345").end()], plain);
    let size = bench.load(&files).unwrap()[0].size;
    let layer = bench.store.resolve("a/app:1").unwrap().layers.remove(0);
    fs::write(layer.with_file_name("layer.json"), "\0").unwrap();
    assert_eq!(bench.load(&files).unwrap()[0].size, size, "counted again");
    fs::remove_dir_all(&layer).unwrap();
    assert!(bench.store.resolve("a/app:1").is_err());
    bench.load(&files).unwrap();
    assert_eq!(fs::read_to_string(layer.join("f")).unwrap(), "12345");
}

#[test]
fn two_writers_at_once() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let archives: Vec<PathBuf> = (0..4)
        .map(|i| {
            bench.write(
                &format!("{i}.tar"),
                &as_tar(&oci(
                    &format!("a/x{i}:1"),
                    &[
                        Tar::new().file("same", "s").end(),
                        Tar::new().file("own", &i.to_string()).end(),
                    ],
                    gzip,
                )),
            )
        })
        .collect();
    std::thread::scope(|s| {
        for path in &archives {
            let dir = bench.path("store");
            s.spawn(move || ImageStore::open(dir).unwrap().load(path).unwrap());
        }
    });
    assert_eq!(bench.store.list().unwrap().len(), 4);
    assert_eq!(fs::read_dir(bench.path("store/layers")).unwrap().count(), 5);
    bench.check_untouched();
}

// ---- save ----

/// Everything of a tree that an image has, by path.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let m = fs::symlink_metadata(&path).unwrap();
        let content = match () {
            () if m.is_dir() => {
                todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
                Vec::new()
            }
            () if m.is_symlink() => fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes(),
            () if m.is_file() => fs::read(&path).unwrap(),
            () => Vec::new(),
        };
        let mut attributes = xattr::list(&path).unwrap();
        attributes.sort();
        let attributes = attributes
            .into_iter()
            .map(|n| (xattr::get(&path, &n).unwrap(), n));
        let attributes: Vec<_> = attributes.collect();
        let time = if is_whiteout(&path) {
            (0, 0)
        } else {
            (m.mtime(), m.mtime_nsec())
        };
        let links = if m.is_dir() { 0 } else { m.nlink() };
        let text = format!(
            "{:o} {}:{} {time:?} {links} {:x} {} {attributes:?}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.rdev(),
            sha256(&content)
        );
        found.insert(path.strip_prefix(root).unwrap().to_owned(), text);
    }
    found
}

#[test]
fn a_saved_image_is_the_same_where_it_is_loaded() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let below = Tar::new()
        .dir("d/")
        .file("d/gone", "x")
        .dir("all/")
        .file("all/old", "x")
        .mode("setuid", 0o4755)
        .hard("same", "setuid")
        .symlink("link", "/absolute/target")
        .device("null", EntryType::Char, 1, 3)
        .pax(&[("SCHILY.xattr.user.note", b"a\nb"), ("mtime", b"12.25")])
        .mode("noted", 0o755);
    let above = Tar::new()
        .dir("d/")
        .mode("d/.wh.gone", 0o644)
        .dir("all/")
        .mode("all/.wh..wh..opq", 0o644)
        .file("all/new", &"y".repeat(1000));
    let layers = [below.end(), above.end()];
    let two = oci("test/two:1", &layers, gzip);
    bench.load(&two).unwrap();
    let names = ["test/two:1".to_owned()];
    let archive = bench.path("saved.tar");
    save_to(&bench.store, &names, &archive).unwrap();
    let other = Bench::new();
    let loaded = other.store.load(&archive).unwrap();
    assert_eq!(loaded[0].names, ["docker.io/test/two:1"]);
    assert!(loaded[0].warnings.is_empty(), "{:?}", loaded[0].warnings);
    let (here, there) = (
        bench.store.resolve(&names[0]).unwrap(),
        other.store.resolve(&names[0]).unwrap(),
    );
    assert_eq!(here.config, there.config);
    assert_eq!((here.layers.len(), there.layers.len()), (2, 2));
    for (here, there) in here.layers.iter().zip(&there.layers) {
        assert_eq!(tree(here), tree(there));
    }
    assert!(is_whiteout(&there.layers[0].join("d/gone")));
    assert_eq!(
        opaque(&there.layers[0].join("all")).as_deref(),
        Some(&b"y"[..])
    );
    // saved again it is the same archive
    let again = other.path("again.tar");
    save_to(&other.store, &names, &again).unwrap();
    assert!(fs::read(&archive).unwrap() == fs::read(&again).unwrap());
}

#[test]
fn images_are_saved_together_with_their_shared_layers_once() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let shared = Tar::new().file("shared", &"s".repeat(100_000)).end();
    for name in ["test/a:1", "test/b:1"] {
        let own = Tar::new().file("own", name).end();
        bench
            .load(&oci(name, &[shared.clone(), own], plain))
            .unwrap();
    }
    let id = bench.store.resolve("test/b:1").unwrap().id;
    let archive = bench.path("saved.tar");
    save_to(&bench.store, &["test/a:1".into(), id], &archive).unwrap();
    assert!(fs::metadata(&archive).unwrap().len() < 150_000);
    let other = Bench::new();
    let loaded = other.store.load(&archive).unwrap();
    let names: Vec<_> = loaded.iter().map(|l| l.names.clone()).collect();
    assert_eq!(names, [["docker.io/test/a:1"], ["docker.io/test/b:1"]]);
    let own = |image: &str| {
        let layers = other.store.resolve(image).unwrap().layers;
        fs::read_to_string(layers[0].join("own")).unwrap()
    };
    assert_eq!(
        (own("test/a:1"), own(&loaded[1].id)),
        ("test/a:1".into(), "test/b:1".into())
    );
}

#[test]
fn an_imported_image_keeps_its_id_when_it_is_saved() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let root = bench.path("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("bin/app"), "app").unwrap();
    let made = bench
        .store
        .import(&root, "demo", ImageConfig::default())
        .unwrap();
    let archive = bench.path("saved.tar");
    save_to(&bench.store, &["demo".into()], &archive).unwrap();
    let loaded = Bench::new().store.load(&archive).unwrap();
    assert_eq!((&loaded[0].id, &loaded[0].names), (&made.id, &made.names));
}

#[test]
fn a_failed_save_leaves_nothing() {
    in_private_namespace("a_failed_save_leaves_nothing", || {
        let bench = Bench::new();
        let layer = Tar::new().file("big", &"b".repeat(2 << 20)).end();
        bench.load(&oci("test/big:1", &[layer], plain)).unwrap();
        let base = bench.path("small");
        tmpfs(&base, "1m");
        let target = base.join("saved.tar");
        fs::write(&target, "what was there").unwrap();
        let save = |name: &str| {
            let error = save_to(&bench.store, &[name.into()], &target);
            error.unwrap_err().to_string()
        };
        let full = save("test/big:1");
        assert!(
            full.contains("no space") || full.contains("No space"),
            "{full}"
        );
        let unknown = save("test/bgi:1");
        assert!(
            unknown.contains("test/big:1"),
            "it names the likely one: {unknown}"
        );
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&target).unwrap(), "what was there");
        nix::mount::umount(&base).unwrap();
    });
}

// ---- import ----

#[test]
fn imports_a_directory() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let root = bench.path("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/proc/self/exe", root.join("bin/app")).unwrap();
    fs::hard_link(root.join("bin/app"), root.join("bin/app2")).unwrap();
    symlink(absolute(&bench), root.join("out")).unwrap();
    xattr::set(&root.join("bin/app"), "user.note".as_ref(), b"n").unwrap();
    std::os::unix::fs::chown(root.join("bin"), Some(5), Some(6)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let config = ImageConfig {
        entrypoint: vec!["/bin/app".into()],
        ..ImageConfig::default()
    };
    let first = bench.store.import(&root, "demo", config.clone()).unwrap();
    let again = bench.store.import(&root, "demo", config.clone()).unwrap();
    assert_eq!(first.id, again.id, "the same content is the same image");
    let image = bench.store.resolve("demo").unwrap();
    assert_eq!(image.config, config);
    let layer = &image.layers[0];
    assert_eq!(
        fs::read(layer.join("bin/app")).unwrap(),
        fs::read("/proc/self/exe").unwrap()
    );
    let meta = |p: &str| fs::symlink_metadata(layer.join(p)).unwrap();
    assert_eq!(meta("bin/app").ino(), meta("bin/app2").ino());
    assert_eq!((meta("bin").uid(), meta("bin").gid()), (5, 6));
    assert_eq!(
        meta("bin/app").mtime_nsec(),
        fs::metadata(root.join("bin/app")).unwrap().mtime_nsec()
    );
    assert_eq!(
        xattr::get(&layer.join("bin/app"), "user.note".as_ref())
            .unwrap()
            .unwrap(),
        b"n"
    );
    assert_eq!(
        fs::read_link(layer.join("out")).unwrap(),
        bench.path("outside")
    );
    assert!(fs::symlink_metadata(layer.join("socket")).is_err());
    bench.check_untouched();
}

#[test]
fn imports_a_tar_and_sees_a_cut_one() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let tar = Tar::new().file("etc/x", "x").end();
    for (name, bytes) in [
        ("plain", tar.clone()),
        ("gz", gzip(&tar)),
        ("zst", zstd(&tar)),
    ] {
        bench
            .store
            .import(&bench.write("r.tar", &bytes), name, ImageConfig::default())
            .unwrap();
        assert_eq!(
            fs::read_to_string(bench.store.resolve(name).unwrap().layers[0].join("etc/x")).unwrap(),
            "x"
        );
    }
    assert_eq!(
        fs::read_dir(bench.path("store/layers")).unwrap().count(),
        1,
        "one layer, however it was packed"
    );
    let error = bench
        .store
        .import(
            &bench.write("r.tar", &tar[..1024]),
            "cut",
            ImageConfig::default(),
        )
        .unwrap_err();
    assert!(error.to_string().contains("truncated"), "{error}");
}

/// A 64-bit program with one program header of this kind (1: load, 3: interpreter).
fn program(header: u32) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[16] = 2;
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = 1;
    bytes.extend(header.to_le_bytes());
    bytes.resize(64 + 56 + 1000, 7);
    bytes
}

#[test]
fn imports_a_static_program_and_says_what_is_wanted_instead_of_others() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let import = |path: &Path| bench.store.import(path, "app", ImageConfig::default());
    let first = import(&bench.write("app", &program(1))).unwrap();
    let image = bench.store.resolve("app").unwrap();
    assert_eq!(image.config.entrypoint, ["/bin/app"]);
    let file = image.layers[0].join("bin/app");
    assert_eq!(fs::read(&file).unwrap(), program(1));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(import(&bench.path("app")).unwrap().id, first.id);
    let cmd = ImageConfig {
        cmd: vec!["/bin/app".into(), "-x".into()],
        ..ImageConfig::default()
    };
    bench
        .store
        .import(&bench.path("app"), "app", cmd.clone())
        .unwrap();
    assert_eq!(bench.store.resolve("app").unwrap().config, cmd);
    for (content, words) in [
        (program(3), "needs shared libraries"),
        (b"#!/bin/sh\n".to_vec(), "neither a tar nor a program"),
        (Vec::new(), "neither a tar nor a program"),
    ] {
        let error = import(&bench.write("other", &content)).unwrap_err();
        assert!(matches!(error, ImageError::NotAnImage { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(words) && text.contains("a root directory, a tar of one"),
            "{text}"
        );
    }
    let error = bench.store.load(&bench.path("app")).unwrap_err();
    assert!(
        error.to_string().contains("podprobe image import"),
        "{error}"
    );
    bench.check_untouched();
}

// ---- dropped archives ----

#[test]
fn dropped_archives_are_loaded_once() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    let drop = bench.path("drop");
    assert_eq!(
        bench.store.load_dropped(&drop).unwrap(),
        Default::default(),
        "no directory, nothing to do"
    );
    fs::create_dir(&drop).unwrap();
    fs::write(
        drop.join("good.tar"),
        as_tar(&oci("a/good:1", &[Tar::new().file("f", "1").end()], plain)),
    )
    .unwrap();
    fs::write(drop.join("bad.tar.gz"), gzip(b"not a tar")).unwrap();
    fs::write(drop.join(".hidden.tar"), "x").unwrap();
    fs::write(drop.join("README"), "x").unwrap();
    let report = bench.store.load_dropped(&drop).unwrap();
    assert_eq!(
        report
            .loaded
            .iter()
            .map(|(_, i)| i.names.clone())
            .collect::<Vec<_>>(),
        [["docker.io/a/good:1"]]
    );
    assert_eq!(
        report
            .problems
            .iter()
            .map(|(p, _)| p.clone())
            .collect::<Vec<_>>(),
        [drop.join("bad.tar.gz")]
    );

    bench
        .store
        .remove("a/good:1", &ImagesInUse::default)
        .unwrap();
    let again = bench.store.load_dropped(&drop).unwrap();
    assert!(
        again.loaded.is_empty(),
        "a removed image does not come back by itself"
    );
    assert_eq!(again.problems, report.problems, "a bad file is still told");

    fs::write(
        drop.join("good.tar"),
        as_tar(&oci("a/good:2", &[Tar::new().file("f", "22").end()], gzip)),
    )
    .unwrap();
    fs::remove_file(drop.join("bad.tar.gz")).unwrap();
    let changed = bench.store.load_dropped(&drop).unwrap();
    assert_eq!((changed.loaded.len(), changed.problems.len()), (1, 0));
}

/// An archive has control characters, which the verbs escape in what they print.
#[test]
fn an_image_that_is_saved_to_stdout_is_the_one_that_is_saved_to_a_file() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (root, file) = (dir.path().join("root"), dir.path().join("saved.tar"));
    let podprobe = |words: &[&str]| {
        let out = Command::new(PROGRAM)
            .args(words)
            .arg("--root")
            .arg(&root)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{words:?}: {said}");
        out.stdout
    };
    let files = dir.path().join("files");
    fs::create_dir(&files).unwrap();
    fs::write(files.join("bytes"), (0..=255).collect::<Vec<u8>>()).unwrap();
    podprobe(&["image", "import", files.to_str().unwrap(), "bytes:1"]);
    podprobe(&["image", "save", "bytes:1", "-o", file.to_str().unwrap()]);
    let saved = podprobe(&["image", "save", "bytes:1", "-o", "-"]);
    assert!(saved.contains(&0), "a tar has zeros");
    assert!(saved == fs::read(&file).unwrap());
}

// ---- mounts, in a mount namespace of their own ----

/// Runs the test itself again in a private mount namespace, and `body` there.
#[track_caller]
fn in_private_namespace(test: &str, body: fn()) {
    const MARK: &str = "PODPROBE_TEST_NAMESPACE";
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    if !is_root() {
        return;
    }
    let mut child = Command::new("unshare");
    child
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(only(module_path!(), test));
    let out = child
        .arg("--test-threads=1")
        .env(MARK, "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

/// A file system of its own for the store, upper and work: the test's directory may lie on an overlay itself.
fn tmpfs(dir: &Path, size: &str) {
    fs::create_dir_all(dir).unwrap();
    nix::mount::mount(
        Some("tmpfs"),
        dir,
        Some("tmpfs"),
        nix::mount::MsFlags::empty(),
        Some(format!("size={size}").as_str()),
    )
    .unwrap();
}

struct Mounted {
    _dir: TempDir,
    root: PathBuf,
    upper: PathBuf,
}

fn mount_image(layers: &[Vec<u8>]) -> Mounted {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("fs");
    tmpfs(&base, "256m");
    let store = ImageStore::open(base.join("store")).unwrap();
    fs::write(base.join("x.tar"), as_tar(&oci("a/b:1", layers, gzip))).unwrap();
    store.load(&base.join("x.tar")).unwrap();
    let [upper, work, root] = ["upper", "work", "root"].map(|n| base.join(n));
    [&upper, &work, &root]
        .iter()
        .for_each(|d| fs::create_dir(d).unwrap());
    overlay::mount(
        &store.resolve("a/b:1").unwrap().layers,
        &upper,
        &work,
        &root,
        false,
    )
    .unwrap();
    Mounted {
        root,
        upper,
        _dir: dir,
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.root, nix::mount::MntFlags::MNT_DETACH);
        let _ = nix::mount::umount2(
            self.upper.parent().unwrap(),
            nix::mount::MntFlags::MNT_DETACH,
        );
    }
}

#[test]
fn an_overlay_shows_the_layers_as_one() {
    in_private_namespace("an_overlay_shows_the_layers_as_one", || {
        let lower = Tar::new()
            .file("etc/gone", "x")
            .file("etc/stays", "lower")
            .file("dir/old", "x")
            .file("remade/old", "x")
            .file("both", "lower");
        let upper = Tar::new()
            .mode("etc/.wh.gone", 0o644)
            .mode("dir/.wh..wh..opq", 0o644)
            .file("dir/new", "new")
            .mode(".wh.remade", 0o644)
            .file("remade/new", "new")
            .file("both", "upper");
        let m = mount_image(&[lower.end(), upper.end()]);
        let names = |p: &str| {
            let mut all: Vec<_> = fs::read_dir(m.root.join(p))
                .unwrap()
                .map(|e| e.unwrap().file_name().into_string().unwrap())
                .collect();
            all.sort();
            all
        };
        assert_eq!(names("etc"), ["stays"]);
        assert_eq!(names("dir"), ["new"]);
        assert_eq!(names("remade"), ["new"]);
        assert_eq!(names(""), ["both", "dir", "etc", "remade"]);
        assert_eq!(fs::read_to_string(m.root.join("both")).unwrap(), "upper");
        fs::write(m.root.join("both"), "container").unwrap();
        assert_eq!(
            fs::read_to_string(m.upper.join("both")).unwrap(),
            "container",
            "writes go to the upper directory"
        );
    });
}

#[test]
fn images_of_a_read_only_disk_can_be_used() {
    in_private_namespace("images_of_a_read_only_disk_can_be_used", || {
        use nix::mount::{MsFlags, mount, umount};
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("fs");
        tmpfs(&base, "8m");
        let archive = dir.path().join("x.tar");
        let layers = [Tar::new().file("f", "x").end()];
        fs::write(&archive, as_tar(&oci("a/b:1", &layers, plain))).unwrap();
        let store = ImageStore::open(base.join("store")).unwrap();
        store.load(&archive).unwrap();
        fs::remove_file(base.join("store/names.json")).unwrap();
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &base, None::<&str>, flags, None::<&str>).unwrap();
        let store = ImageStore::open(base.join("store")).unwrap();
        assert_eq!(store.resolve("a/b:1").unwrap().layers.len(), 1);
        assert!(store.load(&archive).is_err());
        umount(&base).unwrap();
    });
}

/// /run was emptied: there is no record of the container, but its root is mounted.
#[test]
fn a_mounted_layer_is_in_use() {
    in_private_namespace("a_mounted_layer_is_in_use", || {
        let mounted = mount_image(&[Tar::new().file("f", "x").end()]);
        let store = ImageStore::open(mounted.upper.with_file_name("store")).unwrap();
        let mut in_use = ImagesInUse::default();
        in_use.add_mounted();
        let removed = store.remove("a/b:1", &|| in_use.clone()).unwrap();
        assert_eq!(
            removed.images.len(),
            1,
            "no record says that its image is in use"
        );
        let layers = fs::read_dir(mounted.upper.with_file_name("store/layers"));
        assert_eq!(layers.unwrap().count(), 1, "its layer is");
        assert_eq!(fs::read_to_string(mounted.root.join("f")).unwrap(), "x");
    });
}

#[test]
fn two_hundred_layers_are_mounted() {
    in_private_namespace("two_hundred_layers_are_mounted", || {
        let here = std::env::current_dir().unwrap();
        let layers: Vec<Vec<u8>> = (0..200)
            .map(|i| {
                Tar::new()
                    .file(&format!("f{i}"), "x")
                    .file("top", &i.to_string())
                    .end()
            })
            .collect();
        let m = mount_image(&layers);
        assert_eq!(fs::read_dir(&m.root).unwrap().count(), 201);
        assert_eq!(fs::read_to_string(m.root.join("top")).unwrap(), "199");
        assert_eq!(
            std::env::current_dir().unwrap(),
            here,
            "the working directory is as it was"
        );
    });
}

#[test]
fn an_image_is_mounted_read_only_whatever_the_number_of_its_layers() {
    in_private_namespace(
        "an_image_is_mounted_read_only_whatever_the_number_of_its_layers",
        || {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().join("fs");
            tmpfs(&base, "8m");
            for count in [0, 1, 2, 200] {
                let at = base.join(format!("of-{count}"));
                let layer = |i: usize| {
                    let layer = at.join(format!("layer-{i}"));
                    fs::create_dir_all(&layer).unwrap();
                    fs::write(layer.join("top"), i.to_string()).unwrap();
                    fs::write(layer.join(format!("f{i}")), "x").unwrap();
                    layer
                };
                let layers: Vec<PathBuf> = (0..count).rev().map(layer).collect();
                let (empty, root) = (at.join("empty"), at.join("root"));
                let padded = overlay::padded(layers, &empty);
                for dir in padded.iter().chain([&root]) {
                    fs::create_dir_all(dir).unwrap();
                }
                overlay::mount_read_only(&padded, &root).unwrap();
                let names = fs::read_dir(&root).unwrap().count();
                assert_eq!(names, count + usize::from(count > 0));
                if count > 0 {
                    let top = fs::read_to_string(root.join("top")).unwrap();
                    assert_eq!(top, (count - 1).to_string());
                }
                let error = fs::write(root.join("new"), "").unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
                nix::mount::umount(&root).unwrap();
            }
            nix::mount::umount(&base).unwrap();
        },
    );
}

#[test]
fn an_overlay_of_awkward_paths() {
    in_private_namespace("an_overlay_of_awkward_paths", || {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a:b,c\\d");
        tmpfs(&base, "1m");
        let [layer, upper, work, root] = ["layer", "upper", "work", "root"].map(|n| base.join(n));
        [&layer, &upper, &work, &root]
            .iter()
            .for_each(|d| fs::create_dir(d).unwrap());
        fs::write(layer.join("f"), "x").unwrap();
        overlay::mount(&[layer], &upper, &work, &root, false).unwrap();
        assert_eq!(fs::read_to_string(root.join("f")).unwrap(), "x");
        nix::mount::umount(&root).unwrap();
        nix::mount::umount(&base).unwrap();
    });
}

#[test]
fn a_full_disk_leaves_the_other_images_alone() {
    in_private_namespace("a_full_disk_leaves_the_other_images_alone", || {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("small");
        tmpfs(&base, "2m");
        let store = ImageStore::open(base.join("store")).unwrap();
        let load = |name: &str, content: &str| {
            let path = dir.path().join("x.tar");
            fs::write(
                &path,
                as_tar(&oci(name, &[Tar::new().file("f", content).end()], plain)),
            )
            .unwrap();
            store.load(&path)
        };
        load("a/good:1", "good").unwrap();
        let full = |error: ImageError| {
            let text = error.to_string();
            assert!(
                matches!(error, ImageError::NoSpace { .. })
                    && text.contains("no space left")
                    && text.contains("more are needed")
                    && text.contains("nothing was kept"),
                "{text}"
            );
        };
        // Seen before anything is unpacked; and a bomb, which does not say its size, before it fills the disk.
        full(load("a/big:1", &"x".repeat(3 << 20)).unwrap_err());
        let bomb = dir.path().join("bomb.tar");
        let layers = [Tar::new().file("f", &"x".repeat(6 << 20)).end()];
        fs::write(&bomb, as_tar(&oci("a/bomb:1", &layers, gzip))).unwrap();
        let larger = base.join("larger");
        tmpfs(&larger, "7m");
        let other = ImageStore::open(larger.join("store")).unwrap();
        full(other.load(&bomb).unwrap_err());
        assert_eq!(fs::read_dir(larger.join("store/tmp")).unwrap().count(), 0);
        nix::mount::umount(&larger).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        assert_eq!(fs::read_dir(base.join("store/tmp")).unwrap().count(), 0);
        assert_eq!(fs::read_dir(base.join("store/layers")).unwrap().count(), 1);
        assert_eq!(
            fs::read_to_string(store.resolve("a/good:1").unwrap().layers[0].join("f")).unwrap(),
            "good"
        );
        nix::mount::umount(&base).unwrap();
    });
}
