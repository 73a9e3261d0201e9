//! Kubeconfigs as kubeadm, k3s and people write them, and what is refused in them.

use super::*;

/// A kubeconfig as kubeadm writes it for a kubelet, with these fields of its cluster and its user.
fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster: {{{cluster}}}\ncontexts:\n- name: node@kubernetes\n  context: {{cluster: kubernetes, user: node, namespace: default}}\ncurrent-context: node@kubernetes\npreferences: {{}}\nusers:\n- name: other\n  user: {{token: x}}\n- name: node\n  user: {{{user}}}\n"
    )
}

const CLUSTER: &str = "server: \"https://10.0.0.1:6443\", certificate-authority: pki/ca.crt";
const USER: &str = "client-certificate: /var/lib/kubelet/pki/current.pem, client-key: /var/lib/kubelet/pki/current.pem";

fn read(text: &str) -> Result<Kubeconfig, KubeconfigError> {
    Kubeconfig::read(text.as_bytes(), Path::new("/etc/kubernetes/kubelet.conf"))
}

#[track_caller]
fn good(cluster: &str, user: &str) -> Kubeconfig {
    read(&config(cluster, user)).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(read(text).unwrap_err().to_string(), expected);
}

fn file(path: &str) -> Content {
    Content::File(path.into())
}

#[test]
fn the_kubeconfig_of_a_kubelet_is_read() {
    let read = good(CLUSTER, USER);
    let pem = "/var/lib/kubelet/pki/current.pem";
    let expected = Kubeconfig {
        server: Server {
            host: "10.0.0.1".to_owned(),
            port: 6443,
            prefix: String::new(),
        },
        check: ServerCheck::Authorities(file("/etc/kubernetes/pki/ca.crt")),
        server_name: "10.0.0.1".to_owned(),
        certificate: Some(ClientCertificate {
            certificate: file(pem),
            key: file(pem),
        }),
        token: None,
        warnings: Vec::new(),
    };
    assert_eq!(read, expected);
}

#[test]
fn json_is_read_too() {
    let text = r#"{"clusters":[{"name":"c","cluster":{"server":"https://h"}}],"users":[{"name":"u","user":{"tokenFile":"token"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}"#;
    let read = read(text).unwrap();
    assert_eq!(
        (read.server.port, read.check),
        (443, ServerCheck::SystemAuthorities)
    );
    assert_eq!(read.token, Some(file("/etc/kubernetes/token")));
}

#[test]
fn data_in_the_file_counts_before_a_file_and_is_in_no_debug_output() {
    let cluster =
        "server: \"https://h\", certificate-authority-data: \"Q0E=\", tls-server-name: kubernetes";
    let user = "client-certificate: a, client-certificate-data: Q1JU, client-key-data: \"S0VZ\\n\", token: secret";
    let read = good(cluster, user);
    let inline = |text: &str| Content::Inline(text.as_bytes().to_vec());
    let pair = read.certificate.as_ref().unwrap();
    assert_eq!(
        (&pair.certificate, &pair.key),
        (&inline("CRT"), &inline("KEY"))
    );
    assert_eq!(read.check, ServerCheck::Authorities(inline("CA")));
    assert_eq!(read.token, Some(inline("secret")));
    assert_eq!(read.server_name, "kubernetes");
    assert_eq!(
        read.warnings,
        [
            "users[1].user.client-certificate: not acted on: users[1].user.client-certificate-data is given too, and counts instead"
        ]
    );
    let shown = format!("{read:?}");
    assert!(
        !shown.contains("secret") && shown.contains("Inline(6 bytes)"),
        "{shown}"
    );
}

#[test]
fn a_token_file_counts_before_a_token() {
    let read = good(CLUSTER, "token: abc, tokenFile: /run/token");
    assert_eq!(read.token, Some(file("/run/token")));
    assert_eq!(
        read.warnings,
        [
            "users[1].user.token: not acted on: users[1].user.tokenFile is given too, and counts instead"
        ]
    );
}

#[test]
fn an_unchecked_api_server_is_a_warning_and_unknown_fields_are_too() {
    let read = good(
        "server: \"https://h\", insecure-skip-tls-verify: true, certificate-autority: x, disable-compression: true",
        "token: abc, color: red",
    );
    assert_eq!(read.check, ServerCheck::Nothing);
    assert_eq!(
        read.warnings,
        [
            "clusters[0].cluster.certificate-autority: not acted on: unknown field: did you mean \"certificate-authority\"?",
            "users[1].user.color: not acted on: unknown field",
            "clusters[0].cluster.insecure-skip-tls-verify: the API server's certificate is not checked, so whoever is on the way can take the credentials and give this node pods to run: set certificate-authority-data instead",
        ]
    );
}

#[test]
fn what_would_change_identity_or_way_is_refused_with_a_way_out() {
    for (cluster, user, expected) in [
        (
            CLUSTER,
            "exec: {command: aws}",
            "users[1].user.exec: not supported: podprobe runs no credential plugin: write a token into tokenFile from outside, or use a client certificate",
        ),
        (
            CLUSTER,
            "auth-provider: {name: gcp}, token: x",
            "users[1].user.auth-provider: not supported: authentication providers were removed from Kubernetes: use a client certificate or tokenFile",
        ),
        (
            CLUSTER,
            "username: admin, password: s3cret",
            "users[1].user.username: not supported: API servers take no passwords since Kubernetes 1.19: use a client certificate or tokenFile",
        ),
        (
            CLUSTER,
            "token: x, as: system:masters",
            "users[1].user.as: not supported: a node acts as itself: remove the field, and use the credentials of system:node:NAME",
        ),
        (
            CLUSTER,
            "token: 07401b.f395accd246ae52d",
            "users[1].user.token: a bootstrap token is for asking for a certificate, which podprobe does not do: have a client certificate for system:node:NAME signed (kubeadm kubeconfig user --client-name system:node:NAME --org system:nodes), and use it",
        ),
        (
            "server: \"https://h\", proxy-url: \"http://p:3128\"",
            USER,
            "clusters[0].cluster.proxy-url: not supported: podprobe connects to the API server itself: remove the field, and let a tunnel or a route lead to the server",
        ),
        (
            "server: \"https://h\", certificate-authority: a, insecure-skip-tls-verify: true",
            USER,
            "clusters[0].cluster.insecure-skip-tls-verify: must not be true beside certificate-authority: remove one of the two, best this one",
        ),
    ] {
        check_error(&config(cluster, user), expected);
    }
    good(
        CLUSTER,
        "token: abc, exec: null, username: \"\", as-groups: []",
    );
    good(CLUSTER, "token: 07401B.f395accd246ae52d");
    let token = good(CLUSTER, "token: \"abc\\n\"").token;
    assert_eq!(token, Some(Content::Inline(b"abc".to_vec())));
}

#[test]
fn what_is_missing_is_named() {
    for (cluster, user, expected) in [
        (
            "tls-server-name: h",
            USER,
            "clusters[0].cluster.server: Required value: add the field",
        ),
        (
            CLUSTER,
            "client-certificate: a",
            "users[1].user.client-key: Required value: add the field",
        ),
        (
            CLUSTER,
            "client-key-data: S0VZ",
            "users[1].user.client-certificate: Required value: add the field",
        ),
        (
            CLUSTER,
            "",
            "users[1].user: has neither client-certificate nor token: add what the node signs in with",
        ),
        (
            CLUSTER,
            "client-certificate: 1, client-key: k",
            "users[1].user.client-certificate: must be a text (\"...\")",
        ),
        (
            CLUSTER,
            "client-certificate-data: \"***\", client-key: k",
            "users[1].user.client-certificate-data: must be base64: encode the PEM file with base64 -w0, or name the file in the field without -data",
        ),
        (
            "server: \"https://h\", insecure-skip-tls-verify: maybe",
            USER,
            "clusters[0].cluster.insecure-skip-tls-verify: must be true or false",
        ),
    ] {
        check_error(&config(cluster, user), expected);
    }
}

#[test]
fn names_lead_to_their_entries() {
    let text = config(CLUSTER, USER);
    let no_context =
        "current-context: Required value: run kubectl config use-context NAME with this file";
    check_error(
        &text.replace("current-context: node@kubernetes", ""),
        no_context,
    );
    check_error(
        &text.replace("current-context: node@kubernetes", "current-context: prod"),
        "current-context: \"prod\" is not in contexts, which has node@kubernetes: name one of them",
    );
    check_error(
        &text.replace("user: node,", "user: nod,"),
        "contexts[0].context.user: \"nod\" is not in users, which has other, node: name one of them",
    );
    check_error(
        &text.replace("cluster: kubernetes, ", ""),
        "contexts[0].context.cluster: Required value: add the field",
    );
    check_error(
        "current-context: a",
        "current-context: \"a\" is not in contexts, which is empty: add it there",
    );
    let null = text.replace(&format!("{{{USER}}}"), "null");
    check_error(&null, "users[1].user: Required value: add the field");
}

#[test]
fn other_files_are_refused() {
    check_error(
        "",
        "the file is empty: write a kubeconfig with a cluster, a user and a context into it",
    );
    check_error(
        "- a",
        "the file is no kubeconfig: it must be an object with clusters, users and contexts",
    );
    check_error(
        "a: 1\n---\nb: 2",
        "the file has several documents: leave one kubeconfig in it",
    );
    check_error(
        "kind: Pod",
        "kind: must be Config, not \"Pod\": give the path of a kubeconfig",
    );
    let broken = read("clusters: [").unwrap_err().to_string();
    assert!(
        broken.starts_with("/etc/kubernetes/kubelet.conf:"),
        "{broken}"
    );
    let big = " ".repeat(SIZE_LIMIT);
    check_error(
        &big,
        "1048576 bytes are too many: a kubeconfig must be smaller than 1 MiB",
    );
}

#[test]
fn servers_are_https_urls() {
    #[track_caller]
    fn check(text: &str, expected: Result<(&str, u16, &str), ServerError>) {
        let server = Server::parse(text);
        let server = server
            .as_ref()
            .map(|s| (s.host.as_str(), s.port, s.prefix.as_str()));
        assert_eq!(server, expected.as_ref().map(|s| *s), "{text}");
    }
    check("https://h", Ok(("h", 443, "")));
    check("HTTPS://api.example:6443/", Ok(("api.example", 6443, "")));
    check("https://[fd00::1]:6443", Ok(("fd00::1", 6443, "")));
    check("https://[fd00::1]", Ok(("fd00::1", 443, "")));
    check(
        "https://r.example/k8s/clusters/c-1/",
        Ok(("r.example", 443, "/k8s/clusters/c-1")),
    );
    check("http://h", Err(ServerError::NoHttps));
    check("h:6443", Err(ServerError::NoHttps));
    check("https://u:p@h", Err(ServerError::User));
    check("https://h/?a=b", Err(ServerError::Query));
    check("https://", Err(ServerError::Host));
    check("https://a b", Err(ServerError::Host));
    check("https://[h]", Err(ServerError::Host));
    check("https://fd00::1", Err(ServerError::Port));
    check("https://h:0", Err(ServerError::Port));
    check("https://h:65536", Err(ServerError::Port));
    check("https://h:+1", Err(ServerError::Port));
    let authority = |text: &str| Server::parse(text).unwrap().authority();
    assert_eq!(authority("https://[fd00::1]"), "[fd00::1]:443");
    assert_eq!(authority("https://h:1"), "h:1");
}
