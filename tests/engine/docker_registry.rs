//! Pulls from a real registry, Debian's `docker-registry`: TLS by an authority that the test makes, logins by htpasswd and by
//! tokens, two architectures, a full disk, and a registry that is killed in the middle of a layer.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use nix::mount::MsFlags;
use podprobe::engine::images::manager::{PullError, PullRequest};
use podprobe::engine::images::registry::{
    Bounds, DockerConfig, PullProgress, Registries, RegistryPuller,
};
use podprobe::engine::images::{ImageStore, PullStage, Reference};
use podprobe::engine::shims::RuntimeChoice;
use podprobe::face::views::Snapshot;
use serde_json::{Value, json};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

use crate::support;
use crate::support::daemon::{Day, FOREVER, find};
use crate::support::fake_registry::{
    Content, Layer, OCI_INDEX, OCI_MANIFEST, Reply, Request, Server, noise, sha256, tar,
};
use crate::support::real_registry::Registry;
use crate::support::skip::{is_root, skip};

/// `user:password`, made by `htpasswd -nbB -C 4 user password`.
const HTPASSWD: &str = "user:$2y$04$3R5s6v1M62dfkudXXiXUMO/J7OskSLqoZQ4OI4VzbrlzDmvnLyt46";

fn is_installed() -> bool {
    let there = |program: &str| {
        let found = Command::new(program)
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        found.is_ok()
    };
    let all = there("docker-registry") && there("openssl");
    if !all {
        skip("needs docker-registry and openssl");
    }
    all && is_root()
}

fn openssl(dir: &Path, line: &str) {
    let out = Command::new("openssl")
        .args(line.split(' '))
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "openssl {line}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// An authority `ca.pem`, and a certificate of `localhost` by it.
fn certificates(dir: &Path) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        dir,
        &format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca"),
    );
    openssl(
        dir,
        &format!("req {key} -keyout server.key -out server.csr -subj /CN=localhost"),
    );
    fs::write(dir.join("ext"), "subjectAltName=DNS:localhost").unwrap();
    openssl(
        dir,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile ext",
    );
    // `x509` makes no certificate of the past
    let ca = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=old.srl\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n\
              x509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=DNS:localhost\n";
    for (name, text) in [("ca.cnf", ca), ("index.txt", ""), ("old.srl", "77\n")] {
        fs::write(dir.join(name), text).unwrap();
    }
    openssl(
        dir,
        "ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key -in server.csr -out old.pem -notext -startdate 20200101000000Z -enddate 20210101000000Z",
    );
}

fn tls(dir: &Path, certificate: &str) -> String {
    let (certificate, key) = (dir.join(certificate), dir.join("server.key"));
    format!(
        "  tls: {{certificate: {}, key: {}}}\n",
        certificate.display(),
        key.display()
    )
}

fn puller(store: &ImageStore, hosts: Value) -> RegistryPuller {
    let registries: Registries = serde_json::from_value(json!({"hosts": hosts})).unwrap();
    let bounds = Bounds {
        first_delay: Duration::from_millis(100),
        retries: 30,
        ..Bounds::default()
    };
    RegistryPuller::with_bounds(store.clone(), registries, vec![], bounds)
}

fn pull(
    puller: &RegistryPuller,
    image: &str,
    login: Option<(&str, &str)>,
) -> Result<(), PullError> {
    let host = image.split('/').next().unwrap();
    let config = login.map(|(username, password)| {
        let json = json!({"auths": {host: {"username": username, "password": password}}});
        DockerConfig::parse(json.to_string().as_bytes(), "a secret").unwrap()
    });
    let request = PullRequest {
        image: &Reference::parse(image).unwrap(),
        credentials: config.as_slice(),
        cancelled: &|| false,
    };
    puller.pull_watched(&request, Arc::default()).map(drop)
}

#[test]
fn tls_is_verified_and_logins_are_checked() {
    if !is_installed() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    certificates(dir);
    let mut content = Content::default();
    content.image("1", &[Layer::gzip(&tar("f", b"real"))]);
    let open = Registry::start(dir, "open", "", "");
    open.push(&content);
    fs::write(dir.join("htpasswd"), HTPASSWD).unwrap();
    let auth = format!(
        "auth: {{htpasswd: {{realm: test, path: {}}}}}\n",
        dir.join("htpasswd").display()
    );
    let guarded = Registry::start(dir, "guarded", &tls(dir, "server.pem"), &auth);
    let old = Registry::start(dir, "old", &tls(dir, "old.pem"), "");

    let store = ImageStore::open(dir.join("store")).unwrap();
    let trusted =
        |r: &Registry| json!({format!("localhost:{}", r.port): {"caFile": dir.join("ca.pem")}});
    let error = |r: &Registry, hosts: Value, login: Option<(&str, &str)>| {
        pull(&puller(&store, hosts), &r.image(), login)
            .unwrap_err()
            .to_string()
    };
    let untrusted = json!({format!("localhost:{}", guarded.port): {"plainHTTP": false}});
    let text = error(&guarded, untrusted, None);
    assert!(text.contains("is signed by nobody whom this node trusts; name the registry's own authority with caFile"), "{text}");
    let text = error(&guarded, trusted(&guarded), None);
    assert!(text.contains("wants a user name and a password"), "{text}");
    let text = error(&guarded, trusted(&guarded), Some(("user", "wrong")));
    assert!(
        text.contains("refuses the user name or the password"),
        "{text}"
    );
    let text = error(&old, trusted(&old), None);
    assert!(
        text.contains(" expired at 2021-01-01T00:00:00Z")
            && text.contains("; the clock of this node says 20"),
        "{text}"
    );
    let no_tls = json!({format!("localhost:{}", open.port): {"plainHTTP": false}});
    let text = error(&open, no_tls, None);
    assert!(text.contains("does not speak TLS"), "{text}");

    pull(
        &puller(&store, trusted(&guarded)),
        &guarded.image(),
        Some(("user", "password")),
    )
    .unwrap();
    let layers = store.resolve(&guarded.image()).unwrap().layers;
    assert_eq!(fs::read(layers[0].join("f")).unwrap(), b"real");
    pull(&puller(&store, json!({})), &open.image(), None).unwrap();
}

/// Signs tokens that a registry believes which trusts `ca.pem`.
struct Signer {
    key: EcdsaKeyPair,
    certificate: String,
}

impl Signer {
    fn new(dir: &Path) -> Self {
        openssl(
            dir,
            "pkcs8 -topk8 -nocrypt -in ca.key -outform DER -out ca.key.der",
        );
        openssl(dir, "x509 -in ca.pem -outform DER -out ca.der");
        let key = fs::read(dir.join("ca.key.der")).unwrap();
        let random = ring::rand::SystemRandom::new();
        Self {
            key: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &key, &random).unwrap(),
            certificate: STANDARD.encode(fs::read(dir.join("ca.der")).unwrap()),
        }
    }

    /// A token by which everybody may pull team/app.
    fn token(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let head = json!({"typ": "JWT", "alg": "ES256", "x5c": [self.certificate]});
        let access = json!([{"type": "repository", "name": "team/app", "actions": ["pull"]}]);
        let claims = json!({"iss": "tester", "sub": "user", "aud": "the-registry", "jti": "1",
            "iat": now - 60, "nbf": now - 60, "exp": now + 600, "access": access});
        let part = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", part(&head), part(&claims));
        let random = ring::rand::SystemRandom::new();
        let signature = self.key.sign(&random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    /// The answer of a token server with one user.
    fn answer(&self, request: &Request) -> Reply {
        let login = format!("Basic {}", STANDARD.encode("user:password"));
        match request.header("authorization") == login {
            true => Reply::new(200, json!({"token": self.token()}).to_string()),
            false => Reply::new(401, ""),
        }
    }
}

#[test]
fn tokens_of_a_token_server_are_taken() {
    if !is_installed() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    certificates(dir);
    let mut content = Content::default();
    content.image("1", &[Layer::gzip(&tar("f", b"by token"))]);
    Registry::start(dir, "open", "", "").push(&content);
    let signer = Signer::new(dir);
    let tokens = Server::new(move |request| signer.answer(request));
    let auth = format!(
        "auth: {{token: {{realm: 'http://{}/token', service: the-registry, issuer: tester, rootcertbundle: {}}}}}\n",
        tokens.address,
        dir.join("ca.pem").display()
    );
    let guarded = Registry::start(dir, "guarded", "", &auth);
    let store = ImageStore::open(dir.join("store")).unwrap();
    // The token server has another name than the registry.
    let name = guarded.image();
    let name = name.split('/').next().unwrap();
    let puller = puller(&store, json!({name: {"tokenServers": ["127.0.0.1"]}}));
    let refused = |login| {
        pull(&puller, &guarded.image(), login)
            .unwrap_err()
            .to_string()
    };
    let text = refused(None);
    assert!(text.contains("wants a user name and a password"), "{text}");
    assert!(
        text.contains(&format!("{}, the token server of", tokens.address)),
        "{text}"
    );
    let text = refused(Some(("user", "wrong")));
    assert!(
        text.contains("refuses the user name or the password"),
        "{text}"
    );
    let before = tokens.requests().len();
    pull(&puller, &guarded.image(), Some(("user", "password"))).unwrap();
    let layers = store.resolve(&guarded.image()).unwrap().layers;
    assert_eq!(fs::read(layers[0].join("f")).unwrap(), b"by token");
    let asked: Vec<String> = tokens.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(asked.len(), before + 1, "one token for all: {asked:?}");
    let last = asked.last().unwrap();
    assert!(last.contains("service=the-registry"), "{last}");
    assert!(
        last.contains("scope=repository%3Ateam%2Fapp%3Apull"),
        "{last}"
    );
}

#[test]
fn of_two_architectures_this_machines_is_pulled() {
    if !is_installed() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let host = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut content = Content::default();
    let mut entries = Vec::new();
    for architecture in ["s390x", host] {
        let file = tar("f", architecture.as_bytes());
        content.image(architecture, &[Layer::gzip(&file)]);
        let bytes = &content.manifests[architecture].1;
        entries.push(
            json!({"mediaType": OCI_MANIFEST, "digest": sha256(bytes), "size": bytes.len(),
            "platform": {"os": "linux", "architecture": architecture}}),
        );
    }
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
    content.document("1", OCI_INDEX, &index);
    let registry = Registry::start(dir, "open", "", "");
    registry.push(&content);
    let store = ImageStore::open(dir.join("store")).unwrap();
    pull(&puller(&store, json!({})), &registry.image(), None).unwrap();
    let layers = store.resolve(&registry.image()).unwrap().layers;
    assert_eq!(fs::read(layers[0].join("f")).unwrap(), host.as_bytes());
    assert_eq!(fs::read_dir(dir.join("store/layers")).unwrap().count(), 1);
}

#[test]
fn a_pull_that_cannot_fit_is_refused_before_it_fills_the_disk() {
    if !is_installed() {
        return;
    }
    // Of this thread and those that it starts, and gone with them.
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let none = None::<&str>;
    nix::mount::mount(none, "/", none, private, none).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let small = dir.join("small");
    fs::create_dir(&small).unwrap();
    let size = Some("size=8m");
    nix::mount::mount(Some("tmpfs"), &small, Some("tmpfs"), MsFlags::empty(), size).unwrap();
    let mut content = Content::default();
    // One that says at once that it does not fit, and one that grows while it is unpacked.
    content.image("1", &[Layer::gzip(&tar("f", &noise(20 << 20)))]);
    content.image("grows", &[Layer::gzip(&tar("f", &vec![b'z'; 20 << 20]))]);
    content.image("fits", &[Layer::gzip(&tar("f", b"small"))]);
    let registry = Registry::start(dir, "open", "", "");
    registry.push(&content);
    let store = ImageStore::open(small.join("store")).unwrap();
    let puller = puller(&store, json!({}));
    let image = |tag: &str| format!("localhost:{}/team/app:{tag}", registry.port);
    let free = || {
        nix::sys::statvfs::statvfs(&small)
            .unwrap()
            .blocks_available()
    };
    let before = free();
    for tag in ["1", "grows"] {
        let text = pull(&puller, &image(tag), None).unwrap_err().to_string();
        assert!(
            text.contains("no space left on the file system of"),
            "{text}"
        );
        assert_eq!(free(), before, "{tag} has left something");
    }
    pull(&puller, &image("fits"), None).unwrap();
    assert!(store.resolve(&image("fits")).is_ok());
    nix::mount::umount(&small).unwrap();
}

#[test]
fn a_registry_that_is_killed_in_the_middle_of_a_layer_and_comes_back() {
    if !is_installed() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let file = noise(48 << 20);
    let layer = Layer::plain(tar("f", &file));
    let mut content = Content::default();
    content.image("1", &[layer]);
    let mut registry = Registry::start(dir, "open", "", "");
    registry.push(&content);
    let store = ImageStore::open(dir.join("store")).unwrap();
    let (puller, image) = (puller(&store, json!({})), registry.image());
    let progress = Arc::new(PullProgress::default());
    std::thread::scope(|scope| {
        let pulled = scope.spawn(|| {
            let request = PullRequest {
                image: &Reference::parse(&image).unwrap(),
                credentials: &[],
                cancelled: &|| false,
            };
            puller.pull_watched(&request, progress.clone())
        });
        while progress.state().bytes == 0 && !pulled.is_finished() {
            std::thread::yield_now();
        }
        registry.kill();
        let at = progress.state();
        registry.start_again();
        pulled.join().unwrap().unwrap();
        println!("killed after {} of {} bytes", at.bytes, at.of_bytes);
    });
    let layers = store.resolve(&image).unwrap().layers;
    assert!(fs::read(layers[0].join("f")).unwrap() == file);
}

/// Stands before a registry: passes on so many bytes of its answers, and then no more. Dropped, it refuses connections.
struct Valve {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Valve {
    /// On that port, or on any with 0.
    fn before(registry: &Registry, port: u16, bytes: usize) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, clients) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let left = Arc::new(AtomicUsize::new(bytes));
        let (ended, all, registry) = (stop.clone(), clients.clone(), registry.port);
        let thread = std::thread::spawn(move || {
            let mut threads = Vec::new();
            for client in listener.incoming().map(Result::unwrap) {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", registry)) else {
                    continue;
                };
                let pair = || [&client, &server].map(|s| s.try_clone().unwrap());
                all.lock().unwrap().extend(pair());
                // Its end does not see what comes after this.
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let [mut asks, mut hears] = pair();
                threads.push(std::thread::spawn(move || {
                    let _ = std::io::copy(&mut asks, &mut hears);
                    let _ = hears.shutdown(Shutdown::Write);
                }));
                let (left, ended) = (left.clone(), ended.clone());
                threads.push(std::thread::spawn(move || {
                    pass(server, client, &left, &ended)
                }));
            }
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
        Self {
            address,
            stop,
            clients,
            thread: Some(thread),
        }
    }
}

/// Passes on as much as is left of all answers.
fn pass(mut from: TcpStream, mut to: TcpStream, left: &AtomicUsize, ended: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let take = |left: usize| left.checked_sub(n);
        let passes = || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        while passes().is_err() {
            if ended.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if to.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Drop for Valve {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes who waits for clients.
        let _ = TcpStream::connect(self.address);
        for stream in self.clients.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || ended.is_none_or(|r| r.is_ok()));
    }
}

/// How much lies in these directories of a node's images.
fn lies_in<const N: usize>(node: &support::Node, dirs: [&str; N]) -> [usize; N] {
    let images = node.layout.images();
    dirs.map(|dir| fs::read_dir(images.join(dir)).map_or(0, Iterator::count))
}

#[test]
fn registry_and_daemon_are_killed_in_the_middle_of_a_layer_and_come_back() {
    if !is_installed() {
        return;
    }
    support::on(RuntimeChoice::Embedded, |node| {
        let temp = tempfile::tempdir().unwrap();
        let large = Layer::plain(tar("noise", &noise(8 << 20)));
        let mut content = Content::default();
        content.image("1", &[Layer::shell(), large]);
        let mut registry = Registry::start(temp.path(), "open", "", "");
        registry.push(&content);
        let valve = Valve::before(&registry, 0, 3 << 20);
        let address = valve.address;
        let image = format!("{address}/team/app:1");
        let before = lies_in(node, ["layers", "images"]);
        let mut day = Day::begin(node);
        let script = format!("echo up >/starts/app; {FOREVER}");
        let more = json!({
            "image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script],
        });
        let mut pod = day.pod("app", "", more);
        pod["metadata"]["uid"] = "app".into();
        day.put("app", &pod);
        let pull = |s: &Snapshot| match find(s, "app")?.pulls.first()?.stage.clone() {
            PullStage::Pulling { state, cut_off } => Some((state, cut_off)),
            _ => None,
        };
        day.wait("layers to be under way", |s| {
            let (state, _) = pull(s)?;
            (state.bytes > 2 << 20 && state.bytes < state.of_bytes).then_some(())
        });
        registry.kill();
        drop(valve);
        day.wait("the cut to be seen", |s| pull(s)?.1);
        day.kill9();
        assert_eq!(
            lies_in(node, ["pulls"]),
            [1],
            "nobody was left to remove it"
        );

        day.start();
        let nothing_partial = || lies_in(node, ["pulls", "tmp"]) == [0, 0];
        let failed = day.wait_event("app", "Failed");
        let begins = format!("Failed to pull image \"{image}\": RegistryUnavailable: cannot pull");
        assert!(failed.starts_with(&begins), "{failed}");
        let cause = format!("cannot connect to {address}");
        assert!(
            failed.contains(&cause) && failed.contains("Connection refused"),
            "{failed}"
        );
        // The same pod, which is looked at now and not only when its pull is due again.
        pod["metadata"]["labels"] = json!({"looked-at": "again"});
        day.put("app", &pod);
        let message = day.wait("the back-off", |s| {
            let status = &find(s, "app")?.status.container_statuses[0];
            let waiting = status.state.waiting.clone()?;
            (waiting.reason == "ImagePullBackOff").then_some(waiting.message)
        });
        let begins = format!("Back-off pulling image \"{image}\": RegistryUnavailable: ");
        assert!(
            message.starts_with(&begins) && message.contains(&cause),
            "{message}"
        );
        assert!(nothing_partial(), "the first daemon has left something");
        assert_eq!(lies_in(node, ["layers", "images"]), before);
        assert!(!day.client(&["image", "inspect", &image]).status.success());

        registry.start_again();
        let _valve = Valve::before(&registry, address.port(), usize::MAX);
        support::wait_until("the pulled pod to run", || day.starts("app") == ["up"]);
        assert!(nothing_partial(), "the pull has left something");
        assert_eq!(
            lies_in(node, ["layers", "images"]),
            [before[0] + 2, before[1] + 1]
        );
        day.end();
    });
}
