//! The answers of `/healthz`, `/livez` and `/readyz`: named checks, in the kubelet's words (11.2).
//!
//! Invariants: pure. The list of checks says which check fails, but not why. The reason is in the answer to the
//! check's own path, as in a kubelet.

use std::collections::BTreeSet;

use super::request::Request;

/// A named health check of the daemon, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name, for example `syncloop`.
    pub name: &'static str,
    /// The reason why the check fails; None if it passes.
    pub failure: Option<String>,
    /// True if the check belongs to `/livez` too, because a restart of the daemon can mend the failure.
    pub is_liveness: bool,
}

/// Returns true if the path is one of the health paths.
pub fn is_health(path: &str) -> bool {
    matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz"))
}

/// Returns the status and the body for a health path, see [`is_health`].
pub fn answer(request: &Request, checks: &[Check]) -> (u16, String) {
    let parts = request.parts();
    let group = parts.first().copied().unwrap_or_default();
    let of_group = |check: &&Check| group != "livez" || check.is_liveness;
    match parts.as_slice() {
        [_] => {
            let excluded: Vec<&str> = request.values("exclude").collect();
            let counted: Vec<&Check> = checks.iter().filter(of_group).collect();
            all(group, &counted, &excluded, request.flag("verbose"))
        }
        [_, name] => {
            let found = checks.iter().filter(of_group).find(|c| c.name == *name);
            one(found)
        }
        _ => one(None),
    }
}

fn one(check: Option<&Check>) -> (u16, String) {
    match check.map(|c| &c.failure) {
        None => (404, "404 page not found\n".into()),
        Some(None) => (200, "ok".into()),
        Some(Some(why)) => (500, format!("internal server error: {why}\n")),
    }
}

fn all(group: &str, checks: &[&Check], excluded: &[&str], verbose: bool) -> (u16, String) {
    let is_excluded = |check: &Check| excluded.contains(&check.name);
    let fails = |check: &&&Check| check.failure.is_some() && !is_excluded(check);
    let failed = checks.iter().filter(fails).count() > 0;
    if !failed && !verbose {
        return (200, "ok".into());
    }
    let mut text = String::new();
    for check in checks {
        let name = check.name;
        text += &match (&check.failure, is_excluded(check)) {
            (_, true) => format!("[+]{name} excluded: ok\n"),
            (None, false) => format!("[+]{name} ok\n"),
            (Some(_), false) => format!("[-]{name} failed: reason withheld\n"),
        };
    }
    let is_unknown = |name: &&&str| !checks.iter().any(|c| c.name == **name);
    let unknown: BTreeSet<String> = excluded
        .iter()
        .filter(is_unknown)
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let names = Vec::from_iter(unknown).join(", ");
        text += &format!("warn: some health checks cannot be excluded: no matches for {names}\n");
    }
    match failed {
        true => (500, text + &format!("{group} check failed\n")),
        false => (200, text + &format!("{group} check passed\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::server::request;

    fn checks() -> Vec<Check> {
        let check = |name, failure, is_liveness| Check {
            name,
            failure,
            is_liveness,
        };
        vec![
            check("ping", None, true),
            check("syncloop", None, true),
            check("disk", Some("it is full".into()), false),
        ]
    }

    #[track_caller]
    fn check(target: &str, expected: (u16, &str)) {
        let head = format!("GET {target} HTTP/1.1\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        assert!(is_health(&request.path), "{target}");
        let (status, text) = answer(&request, &checks());
        assert_eq!((status, text.as_str()), expected, "{target}");
    }

    #[test]
    fn a_check_that_fails_is_named_and_its_reason_asked_for_by_name() {
        check(
            "/healthz",
            (
                500,
                "[+]ping ok\n[+]syncloop ok\n[-]disk failed: reason withheld\nhealthz check failed\n",
            ),
        );
        check(
            "/healthz/disk",
            (500, "internal server error: it is full\n"),
        );
        check("/healthz/syncloop", (200, "ok"));
        check("/healthz/nonsense", (404, "404 page not found\n"));
        check("/healthz/ping/x", (404, "404 page not found\n"));
    }

    #[test]
    fn livez_has_what_a_restart_can_mend() {
        check("/livez", (200, "ok"));
        check(
            "/livez?verbose",
            (200, "[+]ping ok\n[+]syncloop ok\nlivez check passed\n"),
        );
        check("/livez/disk", (404, "404 page not found\n"));
        check("/readyz/disk", (500, "internal server error: it is full\n"));
    }

    #[test]
    fn checks_can_be_excluded() {
        check("/readyz?exclude=disk", (200, "ok"));
        check(
            "/healthz?exclude=x&exclude=disk&exclude=b%22&exclude=x&verbose",
            (
                200,
                "[+]ping ok\n[+]syncloop ok\n[+]disk excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"b\\\"\", \"x\"\nhealthz check passed\n",
            ),
        );
    }

    #[test]
    fn only_three_paths_are_health() {
        for path in ["/", "/health", "/pods/healthz", "/healthzz"] {
            assert!(!is_health(path), "{path}");
        }
    }
}
