//! Splits the paths of sources and destinations into names, as `cp -r` does.
//!
//! Invariants: pure.

/// Returns the name that a copy of `path` gets: the last name in the path. Returns None for `/`, and for a path that
/// ends with `.` or `..`: such a path means the content of the directory.
pub fn base_name(path: &[u8]) -> Option<&[u8]> {
    let path = trimmed(path);
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(name)
}

/// Returns the path of the directory that holds the file at `path`. Returns `.` if `path` is a single name.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    let path = trimmed(path);
    match path.iter().rposition(|b| *b == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// Tells whether a path can mean only a directory: it ends with a slash, or [`base_name`] finds no name in it.
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
