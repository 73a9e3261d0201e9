//! Names of sources and destinations, as `cp -r` understands them.
//!
//! Invariants: pure.

/// The name that a copy of the path has; None for `/`, and for a path that ends with `.` or `..`: then the content of the
/// directory is meant.
pub fn base_name(path: &[u8]) -> Option<&[u8]> {
    let path = trimmed(path);
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// The path of the directory that [`base_name`] lies in: `.` for a name alone.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// Tells whether a path can mean a directory only: it ends with a slash or has no name of its own.
pub(super) fn names_a_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || base_name(path).is_none()
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, name: Option<&str>, above: &str, is_dir: bool) {
        let bytes = path.as_bytes();
        assert_eq!(base_name(bytes), name.map(str::as_bytes), "{path}");
        assert_eq!(parent(bytes), above.as_bytes(), "{path}");
        assert_eq!(names_a_directory(bytes), is_dir, "{path}");
    }

    #[test]
    fn the_last_name_of_a_path_is_the_name_of_the_copy() {
        check("a", Some("a"), ".", false);
        check("/a", Some("a"), "/", false);
        check("/a/b", Some("b"), "/a", false);
        check("a/b//", Some("b"), "a", true);
        check("a/...", Some("..."), "a", false);
        for path in ["/", "//", ".", "..", "a/.", "a/..", "./"] {
            assert_eq!(base_name(path.as_bytes()), None, "{path}");
            assert!(names_a_directory(path.as_bytes()), "{path}");
        }
    }
}
