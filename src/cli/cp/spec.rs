//! Parses the two arguments of `cp`, the source and the target. Each argument is a path in a container, a path on
//! the node, or `-`.
//!
//! Invariants: pure. The forms of the arguments are kubectl's forms, except that a word that begins with `/` or
//! `.` is always a path on the node.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::cli::workload_names::Named;

/// A side of a copy: its source or its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// A path on the node.
    Node(OsString),
    /// A tar on standard input or output, written `-`.
    Stream,
    /// A path in a container, written `[NAMESPACE/]POD:PATH`.
    Container(Place),
}

/// A path in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Namespace of the pod, if the argument names it.
    pub namespace: Option<String>,
    /// Name of the pod, or a workload that has pods, such as `deployment/web`.
    pub pod: String,
    /// Path in the container, not empty. A relative path starts at `/`.
    pub path: String,
}

/// Parses an argument as a side of a copy.
///
/// # Errors
/// Returns a sentence that says what is wrong with the argument.
pub fn parse(word: &OsStr) -> Result<Side, String> {
    let bytes = word.as_bytes();
    if bytes.is_empty() {
        return Err("a path must not be empty".into());
    }
    if bytes == b"-" {
        return Ok(Side::Stream);
    }
    if matches!(bytes[0], b'/' | b'.') || !bytes.contains(&b':') {
        return Ok(Side::Node(word.to_owned()));
    }
    let shown = word.to_string_lossy();
    let wrong = || {
        format!(
            "'{shown}' is not of the form [NAMESPACE/]POD:PATH; a path on the node with a colon in it begins with ./"
        )
    };
    let text = word
        .to_str()
        .ok_or_else(|| format!("a path in a container must be valid UTF-8, not '{shown}'"))?;
    let (pod, path) = text.split_once(':').ok_or_else(wrong)?;
    let is_workload = |word: &str| Named::of_kind(word).is_some_and(|of| !of.name.contains('/'));
    // A namespace with the name of a kind is given by -n.
    let (namespace, pod) = match pod.split_once('/') {
        Some((namespace, rest)) if !is_workload(pod) => (Some(namespace), rest),
        _ => (None, pod),
    };
    let is_name = !pod.contains('/') || is_workload(pod);
    if pod.is_empty() || !is_name || namespace == Some("") {
        return Err(wrong());
    }
    if path.is_empty() {
        return Err(format!(
            "'{shown}' names no path; for all files write '{shown}/'"
        ));
    }
    Ok(Side::Container(Place {
        namespace: namespace.map(str::to_owned),
        pod: pod.into(),
        path: path.into(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(namespace: Option<&str>, pod: &str, path: &str) -> Side {
        Side::Container(Place {
            namespace: namespace.map(str::to_owned),
            pod: pod.into(),
            path: path.into(),
        })
    }

    #[track_caller]
    fn check(word: &str, expected: Side) {
        assert_eq!(parse(OsStr::new(word)), Ok(expected), "{word}");
    }

    #[test]
    fn a_colon_makes_it_the_container_s() {
        check("web:/etc/hosts", place(None, "web", "/etc/hosts"));
        check("n/web:a:b", place(Some("n"), "web", "a:b"));
        check("web:a/b", place(None, "web", "a/b"));
        check("deploy/web:/a", place(None, "deploy/web", "/a"));
        check("n/sts/db:/a", place(Some("n"), "sts/db", "/a"));
        check("n/deploy:/a", place(Some("n"), "deploy", "/a"));
        for word in ["file", "dir/file", "/a:b", "./a:b", "../web:x", "."] {
            check(word, Side::Node(word.into()));
        }
        check("-", Side::Stream);
        let odd = OsStr::from_bytes(b"\xff");
        assert_eq!(parse(odd), Ok(Side::Node(odd.into())));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for word in [":/a", "/:a:", "a/b/c:/d", "/a/b", "n/:/a"] {
            let is_path = word.starts_with('/');
            assert_eq!(parse(OsStr::new(word)).is_err(), !is_path, "{word}");
        }
        let no_path = "'web:' names no path; for all files write 'web:/'";
        assert_eq!(parse(OsStr::new("web:")), Err(no_path.into()));
        assert!(parse(OsStr::from_bytes(b"web:\xff")).is_err());
        assert!(parse(OsStr::new("")).is_err());
    }
}
