//! Keys and certificates of a test, made by openssl.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

/// Keys and certificates, made by openssl.
pub(crate) struct Authority {
    dir: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        authority.root("ca");
        authority
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub(crate) fn openssl(&self, arguments: &[&str]) {
        let output = Command::new("openssl")
            .args(arguments)
            .current_dir(self.dir.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub(crate) fn root(&self, name: &str) {
        let (key, file, subject) = (
            format!("{name}.key"),
            format!("{name}.pem"),
            format!("/CN={name}"),
        );
        self.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-keyout",
            &key,
            "-out",
            &file,
            "-subj",
            &subject,
        ]);
    }

    /// A certificate for 127.0.0.1, signed by `ca`.
    pub(crate) fn leaf(&self, ca: &str, name: &str) {
        self.certificate(ca, name, &format!("/CN={name}"));
    }

    /// A certificate for 127.0.0.1 with this subject, signed by `ca`.
    pub(crate) fn certificate(&self, ca: &str, name: &str, subject: &str) {
        let (key, request, file) = (
            format!("{name}.key"),
            format!("{name}.csr"),
            format!("{name}.pem"),
        );
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            subject,
        ]);
        fs::write(self.dir.path().join("san"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        let (ca_file, ca_key) = (format!("{ca}.pem"), format!("{ca}.key"));
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            &ca_file,
            "-CAkey",
            &ca_key,
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "san",
            "-out",
            &file,
        ]);
        fs::set_permissions(self.path(&key), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn secret(&self, name: &str, text: &str, mode: u32) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Configuration of a daemon that serves on `port` with TLS.
    pub(crate) fn config(&self, port: u16, token: &str) -> Value {
        json!({"address": "127.0.0.1", "port": port, "tlsCertFile": self.path("server.pem"),
            "tlsPrivateKeyFile": self.path("server.key"),
            "authentication": {"x509": {"clientCAFile": self.path("ca.pem")}, "bearerTokenFile": token}})
    }
}
