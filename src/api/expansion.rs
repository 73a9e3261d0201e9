//! `$(VAR)` in command, args and env (kubelet-probes 1: third_party/forked/golang/expansion).

/// Replaces each `$(NAME)` that `lookup` knows; an unknown one stays as written. `$$` is one `$` and starts no reference.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            out.push_str(&lookup(name).unwrap_or_else(|| format!("$({name})")));
            rest = after;
        } else {
            out.push('$');
        }
    }
    out + rest
}
