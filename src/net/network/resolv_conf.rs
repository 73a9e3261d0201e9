//! resolv.conf: what is read of the node's, and how a pod's is written. Pure.

/// The entries that the kubelet hands from a node's file to a pod's; everything else in the node's is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvConf {
    /// Addresses of resolvers, in the order in which they are asked.
    pub nameservers: Vec<String>,
    /// Domains that are tried behind a name.
    pub searches: Vec<String>,
    /// `name` or `name:value`.
    pub options: Vec<String>,
}

impl ResolvConf {
    /// Reads a file as the kubelet does: nameservers add up, of searches and options the last line counts, and a search
    /// loses its root dot. A line that says nothing is left out.
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

    /// The text of the file, as containerd writes it.
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

/// The root itself keeps its dot.
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
