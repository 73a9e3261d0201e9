//! Reads the node's resolv.conf and writes the resolv.conf of a pod. Pure.

/// The entries of a resolv.conf that the kubelet copies from the node's file to a pod's file. The kubelet does not
/// copy other entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// Addresses of resolvers, in the order in which they are queried.
    pub nameservers: Vec<String>,
    /// Search domains. A resolver appends each of these domains to a name.
    pub searches: Vec<String>,
    /// Options of the resolver, each `name` or `name:value`.
    pub options: Vec<String>,
}

impl ResolvConf {
    /// Reads the text of a resolv.conf as the kubelet does. All `nameserver` lines count. The last `search` line
    /// and the last `options` line count. A search domain loses the dot at its end. Any other line is ignored.
    pub fn parse(text: &str) -> Self {
        let mut read = Self::default();
        for line in text.lines().map(str::trim) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => read.nameservers.extend(words.next().map(str::to_owned)),
                Some("search") => read.searches = words.map(without_root_dot).collect(),
                Some("options") => read.options = words.map(str::to_owned).collect(),
                _ => {}
            }
        }
        read
    }

    /// Returns the text of a resolv.conf with these entries, in the form in which containerd writes it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text += &format!("search {}\n", self.searches.join(" "));
        }
        for address in &self.nameservers {
            text += &format!("nameserver {address}\n");
        }
        if !self.options.is_empty() {
            text += &format!("options {}\n", self.options.join(" "));
        }
        text
    }
}

/// Removes the dot at the end of a search domain. The root domain `.` keeps its dot.
fn without_root_dot(search: &str) -> String {
    match search.strip_suffix('.') {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => search.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(ResolvConf::parse(text).text(), expected);
    }

    #[test]
    fn nameservers_add_up_and_the_last_line_of_the_others_counts() {
        check(
            "# by hand\nnameserver 10.0.0.1\n  nameserver\t10.0.0.2 more\nsearch a b\nsearch c.example. .\n\
             options ndots:2\noptions rotate timeout:1\ndomain d\nnameserver\n",
            "search c.example .\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions rotate timeout:1\n",
        );
        check("search a\nsearch\n", "");
        check("", "");
    }
}
