use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use super::*;

/// A kubeconfig whose token and authorities are in files beside it.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        let der = include_bytes!("../../../tests/data/probe-server.crt.der");
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(der)
        );
        files.write("ca.pem", &pem);
        files.write("token", "first\n");
        files.write(
            "kubeconfig",
            "current-context: c\n\
             clusters: [{name: c, cluster: {server: 'https://h:6443', certificate-authority: ca.pem}}]\n\
             users: [{name: c, user: {tokenFile: token}}]\n\
             contexts: [{name: c, context: {cluster: c, user: c}}]\n",
        );
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.0.path().join(name)).unwrap();
    }

    fn credentials(&self) -> Credentials {
        Credentials::new(self.0.path().join("kubeconfig"))
    }
}

fn authorization(credentials: &Credentials) -> &[u8] {
    let identity = credentials.identity().unwrap();
    identity.authorization.as_ref().unwrap().as_bytes()
}

const NOW: Moment = Moment::from_boot(Duration::from_secs(100));

#[test]
fn a_new_token_is_taken_without_a_new_connection_and_anything_else_with_one() {
    let files = Files::new();
    let mut credentials = files.credentials();
    assert_eq!(credentials.look(NOW).unwrap(), Renewal::Connection);
    assert_eq!(authorization(&credentials), b"Bearer first");
    assert_eq!(credentials.look_at(), NOW + LOOK);
    assert_eq!(credentials.look(NOW).unwrap(), Renewal::Same);
    files.write("token", "second");
    assert_eq!(credentials.look(NOW).unwrap(), Renewal::Token);
    assert_eq!(authorization(&credentials), b"Bearer second");
    let ca = fs::read_to_string(files.0.path().join("ca.pem")).unwrap();
    files.write("ca.pem", &format!("{ca}{ca}"));
    assert_eq!(credentials.look(NOW).unwrap(), Renewal::Connection);
}

#[test]
fn files_in_the_middle_of_a_rotation_leave_the_old_credentials_in_use() {
    let files = Files::new();
    let mut credentials = files.credentials();
    credentials.look(NOW).unwrap();
    for (name, text, said) in [
        (
            "token",
            "two\nlines",
            "cannot use the token of the kubeconfig: a token has printable characters only, in one line",
        ),
        (
            "ca.pem",
            "",
            "cannot use the authorities of the cluster of the kubeconfig: it has no certificate in PEM",
        ),
        ("kubeconfig", "", "the file is empty: write a kubeconfig"),
    ] {
        let path = files.0.path().join(name);
        let good = fs::read_to_string(&path).unwrap();
        files.write(name, text);
        let error = credentials.look(NOW).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        assert!(
            !error.contains("lines"),
            "a token is no text of an error: {error}"
        );
        files.write(name, &good);
    }
    files.remove("token");
    let error = credentials.look(NOW).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot read ") && error.contains("token: No such file"),
        "{error}"
    );
    assert_eq!(authorization(&credentials), b"Bearer first");
}

#[test]
fn the_token_is_in_no_debug_output() {
    let files = Files::new();
    let mut credentials = files.credentials();
    credentials.look(NOW).unwrap();
    let shown = format!("{:?}", credentials.identity().unwrap());
    assert!(!shown.contains("first"), "{shown}");
}
