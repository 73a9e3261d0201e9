//! Debian's `docker-registry`, with its storage in a directory.
#![allow(dead_code, reason = "each program takes what it needs")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::fake_registry::{Content, OCI_INDEX, OCI_MANIFEST};

/// Never waited out when all is well.
const CEILING: Duration = Duration::from_secs(60);

/// A running registry; dropping it ends it.
pub(crate) struct Registry {
    child: Child,
    pub(crate) port: u16,
    config: PathBuf,
}

impl Registry {
    /// `more` goes into its configuration: `http.tls` and `auth`.
    pub(crate) fn start(dir: &Path, name: &str, tls: &str, auth: &str) -> Self {
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

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.child = Self::spawn(&self.config, self.port);
    }

    pub(crate) fn image(&self) -> String {
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

    pub(crate) fn push(&self, content: &Content) {
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
