//! Pulls from registries: one that the test imitates, honest or not, and Debian's `docker-registry`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use nix::mount::MsFlags;
use podprobe::engine::images::housekeeping::{ImageKeeper, ImageKeeperConfig};
use podprobe::engine::images::manager::{PullError, PullRequest, Puller};
use podprobe::engine::images::registry::{
    Bounds, DockerConfig, PullProgress, Registries, RegistryPuller,
};
use podprobe::engine::images::{
    ImageConfig, ImageGcPolicy, ImageStore, ImagesInUse, Limits, LoadedImage, Reference,
};
use serde_json::{Value, json};

use crate::support::fake_registry;
use crate::support::fake_registry::{
    Content, Layer, OCI_INDEX, OCI_LAYER, OCI_MANIFEST, Reply, Request, Server, gzip, sha256, tar,
    zstd,
};
use crate::support::skip::is_root;

/// Bounds that let a test see what happens after minutes.
fn bounds() -> Bounds {
    Bounds {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(500),
        least: 1024,
        document: Duration::from_secs(20),
        retries: 2,
        progress: 64 << 10,
        first_delay: Duration::from_millis(1),
    }
}

/// Never waited out by a test that passes.
const CEILING: Duration = Duration::from_secs(30);

/// A node's store and what it pulls with.
struct Node {
    dir: tempfile::TempDir,
    store: ImageStore,
    registries: Registries,
}

impl Node {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = ImageStore::open(dir.path().join("store")).unwrap();
        Self {
            dir,
            store,
            registries: Registries::default(),
        }
    }

    fn puller(&self) -> RegistryPuller {
        let configs = vec![self.dir.path().join("config.json")];
        RegistryPuller::with_bounds(
            self.store.clone(),
            self.registries.clone(),
            configs,
            bounds(),
        )
    }

    fn pull(&self, image: &str) -> Result<LoadedImage, PullError> {
        pull(&self.puller(), image, &[])
    }

    /// The text of the error, after which nothing is left.
    #[track_caller]
    fn refused(&self, image: &str) -> String {
        let error = self
            .pull(image)
            .expect_err("it must not be pulled")
            .to_string();
        self.is_empty();
        error
    }

    #[track_caller]
    fn is_empty(&self) {
        for sub in ["images", "layers", "tmp", "pulls"] {
            let left = fs::read_dir(self.store.dir().join(sub)).unwrap();
            let left: Vec<_> = left.map(|e| e.unwrap().path()).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    fn read(&self, image: &str, file: &str) -> Vec<u8> {
        let layers = self.store.resolve(image).unwrap().layers;
        let found = layers.iter().find_map(|l| fs::read(l.join(file)).ok());
        found.unwrap_or_else(|| panic!("{image} has no {file}"))
    }
}

fn pull(
    puller: &RegistryPuller,
    image: &str,
    credentials: &[DockerConfig],
) -> Result<LoadedImage, PullError> {
    let request = PullRequest {
        image: &Reference::parse(image).unwrap(),
        credentials,
        cancelled: &|| false,
    };
    puller.pull_watched(&request, Arc::default())
}

/// An image of one layer with one file `f`.
fn one_layer(content: &[u8]) -> (Content, Layer) {
    let layer = Layer::gzip(&tar("f", content));
    let mut there = Content::default();
    there.image("1", std::slice::from_ref(&layer));
    (there, layer)
}

fn honest(content: Content) -> Server {
    Server::new(move |request| content.answer(request))
}

/// Bytes that do not compress.
fn noise(n: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn an_image_is_pulled_verified_and_unpacked_and_a_layer_only_once() {
    if !is_root() {
        return;
    }
    let plain = tar("b", b"plain");
    let layers = [
        Layer::gzip(&tar("a", b"from gzip")),
        Layer {
            media_type: "application/vnd.oci.image.layer.v1.tar".into(),
            diff_id: sha256(&plain),
            stored: plain,
        },
        Layer {
            media_type: "application/vnd.oci.image.layer.v1.tar+zstd".into(),
            diff_id: sha256(&tar("c", &noise(300_000))),
            stored: zstd(&tar("c", &noise(300_000))),
        },
    ];
    let mut content = Content::default();
    content.image("1", &layers);
    content.image("2", &[layers[0].clone(), Layer::gzip(&tar("d", b"new"))]);
    let digest = sha256(&content.manifests["1"].1);
    let server = honest(content);
    let node = Node::new();
    let image = format!("{}/a/b:1", server.address);
    let loaded = node.pull(&image).unwrap();
    assert_eq!(loaded.names, [image.as_str()]);
    assert_eq!(loaded.size, 9 + 5 + 300_000);
    assert_eq!(node.read(&image, "a"), b"from gzip");
    assert_eq!(node.read(&image, "b"), b"plain");
    assert_eq!(node.read(&image, "c"), noise(300_000));
    assert_eq!(node.store.resolve(&image).unwrap().config.cmd, ["/x"]);
    assert!(node.store.resolve(&image).unwrap().pulled);
    assert!(server.requests()[0].header("accept").contains(OCI_INDEX));
    // another image with the same layer, and the same image again, by its digest
    node.pull(&format!("{}/a/b:2", server.address)).unwrap();
    let by_digest = format!("{}/a/b@{digest}", server.address);
    node.pull(&by_digest).unwrap();
    assert!(node.store.resolve(&by_digest).unwrap().pulled);
    assert_eq!(server.count(&layers[0].digest()), 1);
    assert!(
        fs::read_dir(node.store.dir().join("pulls"))
            .unwrap()
            .next()
            .is_none()
    );
    // a name given by hand is one no more that was pulled
    let root = node.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    node.store
        .import(&root, &image, ImageConfig::default())
        .unwrap();
    assert!(!node.store.resolve(&image).unwrap().pulled);
    let nobody = ImagesInUse::default;
    assert_eq!(
        node.store.remove(&by_digest, &nobody).unwrap().images.len(),
        1
    );
}

#[test]
fn an_index_leads_to_the_image_of_this_machine() {
    if !is_root() {
        return;
    }
    let (mut content, _) = one_layer(b"mine");
    let own = content.manifests["1"].1.clone();
    let entry = |architecture: &str, bytes: &[u8]| {
        json!({"mediaType": OCI_MANIFEST, "digest": sha256(bytes), "size": bytes.len(),
               "platform": {"os": "linux", "architecture": architecture}})
    };
    let host = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let others = [entry("s390x", b"not there"), entry("mips", b"nor this")];
    let with_own =
        json!({"schemaVersion": 2, "manifests": [others[0], entry(host, &own), others[1]]});
    let index = content.document("multi", OCI_INDEX, &with_own);
    content.document(
        "others",
        OCI_INDEX,
        &json!({"schemaVersion": 2, "manifests": others}),
    );
    let mut nested = content.document("n0", OCI_INDEX, &with_own);
    for n in 1..6 {
        let bytes = content.manifests[&nested].1.clone();
        let deeper =
            json!({"manifests": [{"mediaType": OCI_INDEX, "digest": nested, "size": bytes.len()}]});
        nested = content.document(&format!("n{n}"), OCI_INDEX, &deeper);
    }
    let server = honest(content);
    let node = Node::new();
    let name = |tag: &str| format!("{}/a:{tag}", server.address);
    let error = node.refused(&name("others"));
    let wanted = format!("it is not made for linux/{host}, only for linux/mips, linux/s390x");
    assert!(error.contains(&wanted), "{error}");
    let error = node.refused(&name("n5"));
    assert!(error.contains("nested more than 4 deep"), "{error}");
    node.pull(&name("multi")).unwrap();
    assert_eq!(node.read(&name("multi"), "f"), b"mine");
    // the index's digest is known, too
    let by_index = format!("{}/a@{index}", server.address);
    assert!(node.store.resolve(&by_index).is_ok());
}

/// Each lie of a registry, and what is said of it.
#[test]
fn a_registry_that_lies_leaves_nothing() {
    if !is_root() {
        return;
    }
    let (good, layer) = one_layer(b"x");
    let manifest: Value = serde_json::from_slice(&good.manifests["1"].1).unwrap();
    let mut content = good.clone();
    let add = |content: &mut Content, tag: &str, change: &dyn Fn(&mut Value)| {
        let mut changed = manifest.clone();
        change(&mut changed);
        content.document(tag, OCI_MANIFEST, &changed);
    };
    add(&mut content, "size-more", &|m| {
        m["layers"][0]["size"] = json!(layer.stored.len() + 1)
    });
    add(&mut content, "size-less", &|m| {
        m["layers"][0]["size"] = json!(layer.stored.len() - 1)
    });
    add(&mut content, "huge", &|m| {
        m["layers"][0]["size"] = json!(1_u64 << 60)
    });
    add(&mut content, "config-size", &|m| {
        m["config"]["size"] = json!(3)
    });
    add(&mut content, "config-huge", &|m| {
        m["config"]["size"] = json!(1_u64 << 40)
    });
    add(&mut content, "config-other", &|m| {
        m["config"]["digest"] = json!(layer.digest())
    });
    add(&mut content, "no-layer", &|m| m["layers"] = json!([]));
    add(&mut content, "missing", &|m| {
        m["layers"][0]["digest"] = json!(sha256(b"nothing"))
    });
    // a blob under the digest of another
    content.blobs.insert(sha256(b"other"), layer.stored.clone());
    add(&mut content, "digest", &|m| {
        m["layers"][0]["digest"] = json!(sha256(b"other"))
    });
    // a layer that is not what the configuration says
    let other = gzip(&tar("g", b"y"));
    content.blobs.insert(sha256(&other), other.clone());
    add(&mut content, "diff-id", &|m| {
        m["layers"][0] = fake_registry::descriptor(OCI_LAYER, &other)
    });
    // zstd under the name of gzip, and rubbish
    let hidden = zstd(&tar("f", b"x"));
    content.blobs.insert(sha256(&hidden), hidden.clone());
    add(&mut content, "zstd", &|m| {
        m["layers"][0] = fake_registry::descriptor(OCI_LAYER, &hidden)
    });
    let rubbish = noise(5000);
    content.blobs.insert(sha256(&rubbish), rubbish.clone());
    add(&mut content, "rubbish", &|m| {
        m["layers"][0] = fake_registry::descriptor(OCI_LAYER, &rubbish)
    });
    // a window of 128 MiB
    let wide = [0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3, 1, 0, 0];
    content.blobs.insert(sha256(&wide), wide.to_vec());
    let kind = "application/vnd.oci.image.layer.v1.tar+zstd";
    add(&mut content, "window", &|m| {
        m["layers"][0] = fake_registry::descriptor(kind, &wide)
    });
    let wrong_digest = content.manifests["1"].1.clone();
    let by_digest = sha256(b"another manifest");
    content
        .manifests
        .insert(by_digest.clone(), (OCI_MANIFEST.into(), wrong_digest));
    content.manifests.insert(
        "index".into(),
        (OCI_INDEX.into(), content.manifests["1"].1.clone()),
    );
    content.manifests.insert(
        "large".into(),
        (OCI_MANIFEST.into(), vec![b' '; (4 << 20) + 1]),
    );
    content
        .manifests
        .insert("text".into(), (OCI_MANIFEST.into(), b"<html>".to_vec()));

    let server = Server::new(move |request| match request.path.ends_with("/said") {
        true => content
            .answer(&Request {
                path: "/manifests/1".into(),
                ..request.clone()
            })
            .with("docker-content-digest", sha256(b"z")),
        false => content.answer(request),
    });
    let node = Node::new();
    for (tag, says) in [
        (":size-more", "the registry gives"),
        (":size-less", "the registry gives"),
        (":huge", "no space left on the file system"),
        (
            ":config-size",
            "the image configuration has more than 3 bytes",
        ),
        (":config-huge", "at most 4194304 are read"),
        (":config-other", "the image configuration"),
        (":no-layer", "has 0 layers, its configuration 1"),
        (":missing", "has no blobs/sha256:"),
        (
            ":digest",
            "is not what the registry says: its content has digest",
        ),
        (":diff-id", "and the configuration says"),
        (":zstd", "and it is zstd"),
        (":rubbish", "cannot use sha256:"),
        (":window", "its zstd window is 128 MiB"),
        (":index", "of a document that is not that"),
        (":large", "has more than 4194304 bytes"),
        (":text", "the manifest is not one"),
        (":none", "404: \"MANIFEST_UNKNOWN manifest unknown\""),
        (&format!("@{by_digest}"), "is not what the registry says"),
    ] {
        let error = node.refused(&format!("{}/a{tag}", server.address));
        assert!(error.contains(says), "{tag}: {error}");
    }
    node.pull(&format!("{}/a:1", server.address)).unwrap();
}

#[test]
fn a_layer_that_is_cut_goes_on_where_it_ended() {
    if !is_root() {
        return;
    }
    let file = noise(400_000);
    let (content, layer) = one_layer(&file);
    for knows_ranges in [true, false] {
        let content = content.clone();
        let (blob, tries) = (layer.digest(), AtomicUsize::new(0));
        let server = Server::new(move |request| {
            if !request.path.contains(&blob) {
                return content.answer(request);
            }
            let mut request = request.clone();
            if !knows_ranges {
                request.headers.remove("range");
            }
            let reply = content.answer(&request);
            match tries.fetch_add(1, Ordering::SeqCst) {
                n @ 0..4 => reply.cut(if knows_ranges {
                    70_000
                } else {
                    (n + 1) * 70_000
                }),
                _ => reply,
            }
        });
        let node = Node::new();
        let image = format!("{}/a:1", server.address);
        let progress = Arc::new(PullProgress::default());
        let request = PullRequest {
            image: &Reference::parse(&image).unwrap(),
            credentials: &[],
            cancelled: &|| false,
        };
        node.puller()
            .pull_watched(&request, progress.clone())
            .unwrap();
        assert_eq!(node.read(&image, "f"), file);
        let state = progress.state();
        assert_eq!((state.bytes, state.layers), (state.of_bytes, 1));
        assert_eq!((state.cuts, progress.cut_off()), (4, None));
        let ranges = server
            .requests()
            .into_iter()
            .filter(|r| r.path.contains(&layer.digest()));
        let ranges: Vec<String> = ranges.map(|r| r.header("range").to_owned()).collect();
        assert_eq!(ranges[..3], ["", "bytes=70000-", "bytes=140000-"]);
    }
}

type Change = Box<dyn Fn(Reply) -> Reply + Send + Sync>;

#[test]
fn a_layer_that_never_comes_is_given_up() {
    if !is_root() {
        return;
    }
    let (content, layer) = one_layer(&noise(100_000));
    let cases: [(&str, Change); 5] = [
        ("Peer disconnected (after", Box::new(|reply| reply.cut(10))),
        (
            "bytes in 500ms",
            Box::new(|reply| Reply {
                hangs: true,
                ..reply.cut(10)
            }),
        ),
        (
            "bytes in 500ms",
            Box::new(|reply| Reply {
                hangs: true,
                length: None,
                ..reply.cut(0)
            }),
        ),
        ("cannot answer (503", Box::new(|_| Reply::new(503, ""))),
        (
            "the part \"bytes 0-1/2\"",
            Box::new(|_| Reply::new(206, "ab").with("content-range", "bytes 0-1/2")),
        ),
    ];
    for (says, change) in cases {
        let (content, blob) = (content.clone(), layer.digest());
        let server = Server::new(move |request| {
            let reply = content.answer(request);
            match request.path.contains(&blob) {
                true => change(reply),
                false => reply,
            }
        });
        let node = Node::new();
        let error = node.refused(&format!("{}/a:1", server.address));
        assert!(error.contains(says), "{error}");
        let tries = server.count(&layer.digest());
        assert!(
            tries == 3 || tries == 1 && says.contains("part"),
            "{tries}: {error}"
        );
    }
}

#[test]
fn more_than_the_size_and_bombs_are_cut_short() {
    if !is_root() {
        return;
    }
    // without a length, so that only counting helps
    let (content, layer) = one_layer(b"x");
    let blob = layer.digest();
    let server = Server::new(move |request| {
        let mut reply = content.answer(request);
        if request.path.contains(&blob) {
            reply.body.extend([0; 100]);
            reply.length = None;
        }
        reply
    });
    let node = Node::new();
    let error = node.refused(&format!("{}/a:1", server.address));
    assert!(error.contains("gives more than the"), "{error}");

    let (content, _) = one_layer(&vec![0; 8 << 20]);
    let server = honest(content);
    let limits = Limits {
        bytes: 1 << 20,
        ..Limits::default()
    };
    let node = Node::new();
    let node = Node {
        store: node.store.clone().with_limits(limits),
        ..node
    };
    let error = node.refused(&format!("{}/a:1", server.address));
    assert!(error.contains("more than 1048576 bytes"), "{error}");
}

#[test]
fn redirects_never_take_the_credentials_along() {
    if !is_root() {
        return;
    }
    let (content, layer) = one_layer(b"x");
    let elsewhere = honest(content.clone());
    let (blob, away) = (layer.digest(), elsewhere.address);
    let server = Server::new(move |request| {
        if request.header("authorization").is_empty() {
            return Reply::new(401, "").with("www-authenticate", "Basic realm=\"x\"");
        }
        let tag = request.path.rsplit('/').next().unwrap_or_default();
        let to = |location: String| Reply::new(307, "").with("location", location);
        match tag {
            _ if request.path.contains(&blob) => to(format!("http://{away}/blobs/{blob}")),
            "file" => to("file:///etc/shadow".into()),
            "user" => to(format!("http://u:p@{away}/manifests/1")),
            "loop" => to(request.path.clone()),
            "relative" => to("1".into()),
            _ => content.answer(request),
        }
    });
    let node = Node::new();
    let login =
        json!({"auths": {server.address.to_string(): {"username": "u", "password": "secret"}}});
    fs::write(node.dir.path().join("config.json"), login.to_string()).unwrap();
    for (tag, says) in [
        ("file", "it redirects to \"file:///etc/shadow\", which"),
        ("user", "which names a user"),
        ("loop", "redirects more than 5 times"),
    ] {
        let error = node.refused(&format!("{}/a:{tag}", server.address));
        assert!(error.contains(says) && !error.contains("secret"), "{error}");
    }
    node.pull(&format!("{}/a:relative", server.address))
        .unwrap();
    assert_eq!(elsewhere.requests().len(), 1);
    assert_eq!(elsewhere.requests()[0].headers.get("authorization"), None);
}

/// A token server and a registry that takes its tokens only.
fn with_tokens(content: Content, uses: usize) -> (Server, Server) {
    let issued = Arc::new(AtomicUsize::new(0));
    let given = issued.clone();
    let tokens = Server::new(move |request| {
        // "u:p" in base64
        let by_password = request.header("authorization") == "Basic dTpw";
        let by_token = request.body.contains("refresh_token=xyz")
            && request.body.contains("grant_type=refresh_token");
        match by_password || by_token {
            true => {
                let n = given.fetch_add(1, Ordering::SeqCst) + 1;
                Reply::new(200, format!(r#"{{"token": "t{n}", "expires_in": 300}}"#))
            }
            false => Reply::new(401, ""),
        }
    });
    let realm = format!("http://{}/token?a=b", tokens.address);
    let used: Mutex<BTreeMap<String, usize>> = Mutex::default();
    let server = Server::new(move |request| {
        let token = request.header("authorization").to_owned();
        let valid = token == format!("Bearer t{}", issued.load(Ordering::SeqCst));
        let mut used = used.lock().unwrap();
        let times = used.entry(token).or_default();
        *times += 1;
        match valid && *times <= uses {
            true => content.answer(request),
            false => Reply::new(401, "").with(
                "www-authenticate",
                format!(r#"Bearer realm="{realm}",service="reg",scope="repository:a:pull""#),
            ),
        }
    });
    (tokens, server)
}

#[test]
fn tokens_are_asked_for_kept_and_renewed_once() {
    if !is_root() {
        return;
    }
    let (content, _) = one_layer(b"x");
    let login = |entry: Value| {
        DockerConfig::parse(json!({"auths": entry}).to_string().as_bytes(), "a secret").unwrap()
    };
    // manifest, configuration and layer with one token; then a token that is good for one request only
    for (uses, tokens_asked) in [(3, 1), (1, 3)] {
        let (tokens, server) = with_tokens(content.clone(), uses);
        let node = Node::new();
        let image = format!("{}/a:1", server.address);
        let ours = login(json!({server.address.to_string(): {"auth": "dTpw"}}));
        pull(&node.puller(), &image, &[ours]).unwrap();
        assert_eq!(tokens.requests().len(), tokens_asked);
        assert_eq!(
            tokens.requests()[0].path,
            "/token?a=b&service=reg&scope=repository%3Aa%3Apull"
        );
    }
    // an identity token; and a wrong login before a good one
    let (tokens, server) = with_tokens(content.clone(), 9);
    let node = Node::new();
    let image = format!("{}/a:1", server.address);
    let wrong = login(json!({server.address.to_string(): {"username": "u", "password": "secret"}}));
    let error = pull(&node.puller(), &image, std::slice::from_ref(&wrong))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(", the token server of ")
            && error.contains(", refuses the user name")
            && !error.contains("secret"),
        "{error}"
    );
    let right = login(json!({server.address.to_string(): {"identitytoken": "xyz"}}));
    pull(&node.puller(), &image, &[wrong, right]).unwrap();
    assert_eq!(tokens.requests().last().unwrap().method, "POST");
    // a token that is never good is asked for once
    let (tokens, server) = with_tokens(content, 0);
    let node = Node::new();
    let ours = login(json!({server.address.to_string(): {"auth": "dTpw"}}));
    let error = pull(&node.puller(), &format!("{}/a:1", server.address), &[ours]).unwrap_err();
    assert!(
        error.to_string().contains("does not allow it (401"),
        "{error}"
    );
    assert_eq!(tokens.requests().len(), 1);
}

/// The registry is asked for as `localhost`, so that its token server on 127.0.0.1 is another host.
#[test]
fn a_login_goes_to_no_token_server_of_another_domain() {
    if !is_root() {
        return;
    }
    let (content, _) = one_layer(b"x");
    let (tokens, server) = with_tokens(content, 9);
    let name = format!("localhost:{}", server.address.port());
    let image = format!("{name}/a:1");
    let login = json!({"auths": {&name: {"auth": "dTpw"}}}).to_string();
    let ours = [DockerConfig::parse(login.as_bytes(), "a secret").unwrap()];
    let mut node = Node::new();
    let error = pull(&node.puller(), &image, &ours).unwrap_err().to_string();
    assert!(
        error.contains("names the token server \"127.0.0.1\"")
            && error.contains(&format!("registries.hosts[\"{name}\"].tokenServers")),
        "{error}"
    );
    assert_eq!(tokens.requests().len(), 0, "it has seen no login");
    let hosts = json!({"hosts": {&name: {"tokenServers": ["127.0.0.1"]}}});
    node.registries = serde_json::from_value(hosts).unwrap();
    pull(&node.puller(), &image, &ours).unwrap();
    assert_eq!(tokens.requests().len(), 1);
}

#[test]
fn a_login_that_cannot_be_used_is_explained() {
    if !is_root() {
        return;
    }
    let ask = |challenge: &'static str| {
        Server::new(move |_| Reply::new(401, "").with("www-authenticate", challenge))
    };
    let error_with = |server: &Server, config: &str| {
        let node = Node::new();
        fs::write(node.dir.path().join("config.json"), config).unwrap();
        node.refused(&format!("{}/a:1", server.address))
    };
    let basic = ask("Basic realm=x");
    let error = error_with(&basic, "{}");
    assert!(
        error.contains("wants a user name and a password, and there are none for it"),
        "{error}"
    );
    let error = error_with(&basic, r#"{"credsStore": "desktop"}"#);
    assert!(
        error.contains("credential helper \"desktop\", which podprobe does not run"),
        "{error}"
    );
    let error = error_with(&basic, "{");
    assert!(
        error.contains("config.json: line 1, column 1: not a config.json of docker"),
        "{error}"
    );
    let error = error_with(&ask("Bearer realm=\"file:///etc/passwd\""), "{}");
    assert!(
        error.contains("names the token server \"file:///etc/passwd\", which"),
        "{error}"
    );
    let error = error_with(&ask("Negotiate"), "{}");
    assert!(
        error.contains("wants a login and does not say which"),
        "{error}"
    );
}

#[test]
fn a_pull_that_nobody_wants_any_more_ends_at_once() {
    if !is_root() {
        return;
    }
    let (content, layer) = one_layer(&noise(100_000));
    let blob = layer.digest();
    let server = Server::new(move |request| {
        let reply = content.answer(request);
        match request.path.contains(&blob) {
            true => Reply {
                hangs: true,
                ..reply.cut(20_000)
            },
            false => reply,
        }
    });
    for by_puller in [false, true] {
        let node = Node::new();
        let long = Bounds {
            idle: Duration::from_secs(60),
            ..bounds()
        };
        let puller =
            RegistryPuller::with_bounds(node.store.clone(), Registries::default(), vec![], long);
        let before = server.count(&layer.digest());
        let image = Reference::parse(&format!("{}/a:1", server.address)).unwrap();
        let began = Instant::now();
        let hangs = || server.count(&layer.digest()) > before;
        let request = PullRequest {
            image: &image,
            credentials: &[],
            cancelled: &|| {
                if by_puller && hangs() {
                    puller.stopper().stop();
                }
                !by_puller && hangs()
            },
        };
        assert_eq!(
            puller.pull(&request, &Arc::default()),
            Err(PullError::Cancelled)
        );
        assert!(began.elapsed() < Duration::from_secs(20));
        node.is_empty();
    }
}

#[test]
fn two_pulls_share_a_download() {
    if !is_root() {
        return;
    }
    let (mut content, layer) = one_layer(&noise(50_000));
    content.image("2", std::slice::from_ref(&layer));
    let (blob, both) = (layer.digest(), Barrier::new(3));
    let both = Arc::new(both);
    let at_the_blob = both.clone();
    let server = Server::new(move |request| {
        if request.path.contains(&blob) {
            // the test lets it go on
            at_the_blob.wait();
        }
        content.answer(request)
    });
    let node = Node::new();
    let puller = node.puller();
    std::thread::scope(|scope| {
        for tag in ["1", "2"] {
            let (puller, address) = (puller.clone(), server.address);
            scope.spawn(move || pull(&puller, &format!("{address}/a:{tag}"), &[]).unwrap());
        }
        // The second has its configuration, so it asks for the layer next, or has seen that another does.
        while server.count("/manifests/") < 2 || server.count("/blobs/") < 3 {
            std::thread::yield_now();
        }
        scope.spawn({
            let both = both.clone();
            move || both.wait()
        });
        both.wait();
    });
    assert_eq!(server.count(&layer.digest()), 1);
    assert!(
        node.store
            .resolve(&format!("{}/a:1", server.address))
            .is_ok()
    );
    assert!(
        node.store
            .resolve(&format!("{}/a:2", server.address))
            .is_ok()
    );
}

#[test]
fn mirrors_are_asked_first_and_the_registry_after_them() {
    if !is_root() {
        return;
    }
    let (content, _) = one_layer(b"x");
    let empty = honest(Content::default());
    let (mirror, registry) = (honest(content.clone()), honest(content));
    let mut node = Node::new();
    let hosts = json!({"hosts": {registry.address.to_string(): {
        "mirrors": [format!("http://{}", empty.address), format!("http://{}/hub", mirror.address)],
    }}});
    node.registries = serde_json::from_value(hosts).unwrap();
    let image = format!("{}/a:1", registry.address);
    node.pull(&image).unwrap();
    assert_eq!((empty.requests().len(), registry.requests().len()), (1, 0));
    assert_eq!(mirror.requests()[0].path, "/v2/hub/a/manifests/1");
    let hosts = json!({"hosts": {registry.address.to_string(): {"mirrors": [format!("http://{}", empty.address)]}}});
    node.registries = serde_json::from_value(hosts).unwrap();
    node.pull(&image).unwrap();
    assert_eq!(registry.requests().len(), 2, "the layer is there");
    let error = node
        .pull(&format!("{}/a:2", registry.address))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("mirror {}: ", empty.address)),
        "{error}"
    );
}

#[test]
fn a_registry_that_is_not_there_is_said_at_once_with_the_other_way() {
    let node = Node::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = node.pull(&format!("{closed}/a:1")).unwrap_err();
    let PullError::RegistryUnavailable(text) = &error else {
        panic!("{error}");
    };
    assert!(text.contains("cannot connect to"), "{text}");
    assert!(
        text.ends_with("without a registry `podprobe image load FILE` puts an image on this node"),
        "{text}"
    );
    let error = node.pull("no-such-host.invalid/a:1").unwrap_err();
    assert!(
        matches!(&error, PullError::RegistryUnavailable(t) if t.contains("cannot look up no-such-host.invalid")),
        "{error}"
    );
}

/// Every document and blob replaced by noise, or changed in one place.
#[test]
fn random_bytes_of_a_registry_are_refused() {
    if !is_root() {
        return;
    }
    let (content, _) = one_layer(&noise(3000));
    let rounds = 60;
    let rubbish = noise(rounds * 400);
    let round = Arc::new(AtomicUsize::new(0));
    let now = round.clone();
    let server = Server::new(move |request| {
        let n = now.load(Ordering::SeqCst);
        let mut reply = content.answer(request);
        let part = ["/manifests/", "/blobs/"][n % 2];
        if request.path.contains(part) {
            let noise = &rubbish[n * 400..][..400];
            match n % 4 {
                0 | 1 => reply = Reply::new(200, noise),
                _ => {
                    let at = usize::from(noise[0]) * 256 + usize::from(noise[1]);
                    let at = at % reply.body.len();
                    reply.body[at] ^= 1 + noise[2] % 255;
                }
            }
        }
        reply
    });
    let node = Node::new();
    for n in 0..rounds {
        round.store(n, Ordering::SeqCst);
        // A changed tag's manifest may still be a right one: then there is an image, and it is whole.
        if let Ok(loaded) = node.pull(&format!("{}/a:1", server.address)) {
            node.store.resolve(&loaded.names[0]).unwrap();
            node.store
                .remove(&loaded.names[0], &ImagesInUse::default)
                .unwrap();
        }
        node.is_empty();
    }
}

#[test]
fn inspect_says_what_was_pulled() {
    if !is_root() {
        return;
    }
    let (content, _) = one_layer(b"x");
    let server = honest(content);
    let node = Node::new();
    node.pull(&format!("{}/a:1", server.address)).unwrap();
    let details = node
        .store
        .inspect(&format!("{}/a:1", server.address))
        .unwrap();
    assert_eq!(details.pulled, details.names);
    assert_eq!((details.layers.len(), details.size), (1, 1));
}

/// Removes the pulled images on a full disk; those in use and those loaded by hand stay.
#[test]
fn a_full_disk_costs_pulled_images_that_nobody_uses() {
    if !is_root() {
        return;
    }
    // Of this thread and those that it starts, and gone with them.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let mount = |source: Option<&str>, at: &Path, flags, data: Option<&str>| {
        nix::mount::mount(source, at, source, flags, data).unwrap();
    };
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None, Path::new("/"), private, None);
    let mut node = Node::new();
    let small = node.dir.path().join("small");
    fs::create_dir(&small).unwrap();
    mount(Some("tmpfs"), &small, MsFlags::empty(), Some("size=8m"));
    node.store = ImageStore::open(small.join("store")).unwrap();

    let mut content = Content::default();
    for tag in ["a", "b", "used"] {
        let file = [tag.as_bytes(), &noise(1 << 20)].concat();
        content.image(tag, &[Layer::gzip(&tar("f", &file))]);
    }
    let server = honest(content);
    let name = |tag: &str| format!("{}/app:{tag}", server.address);
    for tag in ["a", "b", "used"] {
        node.pull(&name(tag)).unwrap();
    }
    let root = node.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("f"), noise(1 << 20)).unwrap();
    let config = ImageConfig::default();
    node.store.import(&root, "by-hand", config).unwrap();
    let names = || -> Vec<String> {
        let rows = node.store.list().unwrap().into_iter();
        rows.filter_map(|row| row.name).collect()
    };
    assert_eq!(names().len(), 4);

    let used = node.store.resolve(&name("used")).unwrap();
    let keeper = |high_percent, low_percent| {
        let used = used.clone();
        let (changed, told) = crossbeam_channel::bounded(100);
        let keeper = ImageKeeper::spawn(
            ImageKeeperConfig {
                store: node.store.clone(),
                drop_dir: node.dir.path().join("drop"),
                in_use: Box::new(move || {
                    let mut in_use = ImagesInUse::default();
                    in_use.add(&used.id, &used.layers);
                    in_use
                }),
                gc: ImageGcPolicy {
                    high_percent,
                    low_percent,
                    min_age: Duration::ZERO,
                }
                .into(),
                on_change: Box::new(move || _ = changed.try_send(())),
            },
            &podprobe::base::threads::Roster::default(),
        );
        (keeper.unwrap(), told)
    };
    // Four images take half of the disk. Down to 40 % one goes.
    let (first, told) = keeper(45, 40);
    told.recv_timeout(CEILING).unwrap();
    first.stop();
    assert!(first.join(CEILING));
    assert_eq!(names().len(), 3, "{:?}", names());
    // As far as it goes.
    let (second, told) = keeper(1, 0);
    told.recv_timeout(CEILING).unwrap();
    second.stop();
    assert!(second.join(CEILING));
    let by_hand = "docker.io/library/by-hand:latest".to_owned();
    let mut left = vec![by_hand, name("used")];
    left.sort();
    assert_eq!(names(), left);
    assert_eq!(node.read(&name("used"), "f").len(), (1 << 20) + 4);
    nix::mount::umount(&small).unwrap();
}
