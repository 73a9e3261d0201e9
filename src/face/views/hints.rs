//! Ways out of problems, for texts of Kubernetes that name no way out themselves.
//!
//! Invariants: pure. A text of Kubernetes stays as it is, and the way out stands beside it.

/// Parts of a sentence of `status`, and the way out. A row applies if all its parts are in the sentence. The first
/// such row counts.
const HINTS: [(&[&str], &str); 19] = [
    (
        &["probe", "executable file not found"],
        "the program of an exec probe must be in the image; httpGet, tcpSocket and grpc need none",
    ),
    (&["StartError", "executable file not found"], NO_PROGRAM),
    (&["StartError", "no such file or directory"], NO_PROGRAM),
    (
        &["ended by itself: exit code 0"],
        "a program that has done its work is started again, unless restartPolicy is OnFailure or Never",
    ),
    (
        &["OOMKilled"],
        "raise resources.limits.memory, or let the program use less",
    ),
    (
        &["liveness probe", "connection refused"],
        "nothing listens on that port: give a program that starts slowly a startupProbe, or correct the port",
    ),
    (
        &["probe", "connection refused"],
        "nothing listens on that port: correct it, or let the program listen on 0.0.0.0 and not on 127.0.0.1 alone",
    ),
    (
        &["probe", "statuscode: 404"],
        "the program knows no such path: correct httpGet.path",
    ),
    (
        &["probe", "HTTP response to HTTPS client"],
        "the program speaks HTTP on that port: set httpGet.scheme to HTTP, or leave it out",
    ),
    (
        &["probe", "malformed HTTP response \"\\x15\\x03"],
        "the program speaks HTTPS on that port: set httpGet.scheme to HTTPS",
    ),
    (&["probe", "timed out after"], SLOW),
    (&["probe", "Client.Timeout exceeded"], SLOW),
    (&["CreateContainerConfigError", "not found"], NO_OBJECT),
    (&["FailedMount", "not found"], NO_OBJECT),
    (&["FailedMount", "non-existent"], NO_KEY),
    (
        &["FailedMount", "hostPath", "doesn't exist"],
        "make that path on the node, or set hostPath.type to DirectoryOrCreate",
    ),
    (&["CreateContainerConfigError", "couldn't find key"], NO_KEY),
    (
        &["PostStartHook"],
        "the container is killed whenever its postStart hook fails: correct the hook, or let it end with 0",
    ),
    (
        &["CreateContainerConfigError", "image will run as root"],
        "set runAsUser in its securityContext to the number of another user than 0",
    ),
];
const NO_OBJECT: &str = "put that object into the pod's file, or into a file of its own beside it";
const NO_KEY: &str =
    "add the key to the data of that object, or correct it in the pod; upper and lower case differ";
const NO_PROGRAM: &str =
    "correct command, a list with an item for each word, or take an image that has the program";
const SLOW: &str = "raise timeoutSeconds, which is 1 by default, or let the answer come faster";

/// Returns the way out of a problem; None if none is known.
pub fn hint(problem: &str) -> Option<&'static str> {
    let fits = |parts: &[&str]| parts.iter().all(|part| problem.contains(part));
    let row = HINTS.iter().find(|(parts, _)| fits(parts));
    row.map(|(_, way_out)| *way_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(problem: &str, expected: &str) {
        let hint = hint(problem).unwrap_or_default();
        assert!(hint.contains(expected), "{problem}: {hint}");
        assert_eq!(hint.is_empty(), expected.is_empty(), "{problem}: {hint}");
    }

    #[test]
    fn texts_of_kubernetes_have_their_way_out_beside_them() {
        let loops = "container web ends again and again, restarted 2 times";
        let missing = "exec: \"curl\": executable file not found in $PATH";
        check(
            &format!("not ready, the readiness probe of web fails: {missing}"),
            "httpGet",
        );
        check(
            &format!("{loops}: StartError, exit code 128: cannot create the container: {missing}"),
            "command",
        );
        check(
            &format!("{loops}: StartError, exit code 128: exec: \"/x\": no such file or directory"),
            "command",
        );
        check(
            &format!("{loops}: ended by itself: exit code 0"),
            "restartPolicy",
        );
        check(&format!("{loops}: ended by itself: exit code 1"), "");
        check(
            &format!("{loops}: failed liveness probe: x (exit code 0)"),
            "",
        );
        check(
            &format!("{loops}: OOMKilled (exit code 137)"),
            "limits.memory",
        );
        let refused = "dial tcp 10.0.0.1:80: connect: connection refused";
        check(
            &format!("{loops}: failed liveness probe: {refused}"),
            "startupProbe",
        );
        check(
            &format!("the readiness probe of web fails: {refused}"),
            "0.0.0.0",
        );
        let failed = "the liveness probe of web fails: HTTP probe failed with statuscode";
        check(&format!("{failed}: 404"), "httpGet.path");
        check(&format!("{failed}: 500"), "");
        check(
            "the readiness probe of web fails: command timed out: \"x\" timed out after 1s",
            "timeoutSeconds",
        );
        check(
            "the readiness probe of web fails: Get \"x\": context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
            "timeoutSeconds",
        );
        let config = "container web cannot start: CreateContainerConfigError";
        check(&format!("{config}: configmap \"x\" not found"), "beside it");
        check(
            &format!("{config}: couldn't find key x in ConfigMap default/y"),
            "case",
        );
        check(
            &format!("{config}: container has runAsNonRoot and image will run as root (pod: x)"),
            "runAsUser",
        );
        check(&format!("{config}: no such user"), "");
        let mount = "it has not started: FailedMount: MountVolume.SetUp failed for volume \"v\" :";
        check(&format!("{mount} configmap \"x\" not found"), "beside it");
        let key = "references non-existent config key: k";
        check(&format!("{mount} configmap {key}"), "case");
        check(
            &format!("{mount} hostPath /x doesn't exist"),
            "hostPath.type",
        );
        check(&format!("{mount} permission denied"), "");
        let probe = "the readiness probe of web fails: Get \"https://10.0.0.1:80/\": ";
        let https = "http: server gave HTTP response to HTTPS client";
        check(&format!("{probe}{https}"), "scheme to HTTP,");
        let http = "net/http: HTTP/1.x transport connection broken: malformed HTTP response \"\\x15\\x03\\x01\"";
        check(&format!("{probe}{http}"), "scheme to HTTPS");
    }
}
