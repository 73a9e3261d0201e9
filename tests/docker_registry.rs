//! Pulls from a real registry, Debian's `docker-registry`: TLS by an authority that the test makes, logins by htpasswd and by
//! tokens, two architectures, a full disk, and a registry that is killed in the middle of a layer.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use nix::mount::MsFlags;
use podprobe::images::manager::{PullError, PullRequest};
use podprobe::images::registry::{Bounds, DockerConfig, PullProgress, Registries, RegistryPuller};
use podprobe::images::{ImageStore, Reference};
use serde_json::{Value, json};

#[path = "support/fake_registry.rs"]
mod fake_registry;
#[path = "support/skip.rs"]
mod skip;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use fake_registry::{Content, Layer, OCI_INDEX, OCI_MANIFEST, Reply, Request, Server, sha256, tar};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use skip::{is_root, skip};

const CEILING: Duration = Duration::from_secs(60);

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

/// A running registry; dropping it ends it.
struct Registry {
    child: Child,
    port: u16,
    config: PathBuf,
}

impl Registry {
    /// `more` goes into its configuration: `http.tls` and `auth`.
    fn start(dir: &Path, name: &str, tls: &str, auth: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let config = dir.join(format!("{name}.yml"));
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp:\n  addr: 127.0.0.1:{port}\n{tls}{auth}",
            dir.join("data").display()
        );
        fs::write(&config, text).unwrap();
        Self {
            child: Self::spawn(&config, port),
            port,
            config,
        }
    }

    fn spawn(config: &Path, port: u16) -> Child {
        let mut serve = Command::new("docker-registry");
        let serve = serve.arg("serve").arg(config);
        let mut child = serve
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < CEILING, "docker-registry does not listen");
            assert_eq!(child.try_wait().unwrap(), None, "docker-registry has ended");
            std::thread::yield_now();
        }
        child
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self) {
        self.child = Self::spawn(&self.config, self.port);
    }

    fn image(&self) -> String {
        format!("localhost:{}/team/app:1", self.port)
    }

    /// A request without TLS; the head of the answer.
    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(CEILING)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body))
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn push(&self, content: &Content) {
        for (digest, blob) in &content.blobs {
            let begun = self.ask("POST", "/v2/team/app/blobs/uploads/", "", b"");
            let location = begun
                .lines()
                .find_map(|l| l.strip_prefix("Location: "))
                .unwrap()
                .trim();
            let path = location.trim_start_matches("http://x");
            let put = format!("{path}&digest={digest}");
            let done = self.ask("PUT", &put, "application/octet-stream", blob);
            assert!(done.starts_with("HTTP/1.1 201"), "{done}");
        }
        // An index after the images that it lists.
        for of_kind in [OCI_MANIFEST, OCI_INDEX] {
            let of_kind = |(_, (kind, _)): &(_, &(String, Vec<u8>))| kind == of_kind;
            for (reference, (kind, bytes)) in content.manifests.iter().filter(of_kind) {
                let path = format!("/v2/team/app/manifests/{reference}");
                let done = self.ask("PUT", &path, kind, bytes);
                assert!(done.starts_with("HTTP/1.1 201"), "{done}");
            }
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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

fn noise(n: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(n);
    out
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
    let puller = puller(&store, json!({}));
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
    let plain = tar("f", &file);
    let layer = Layer {
        media_type: "application/vnd.oci.image.layer.v1.tar".into(),
        diff_id: sha256(&plain),
        stored: plain,
    };
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
