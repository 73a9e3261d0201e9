//! The subjects of the log: what a line is about, in the words of people who have never seen the code.
//!
//! Invariants: each part of the code has one subject. The name of a module is in no line of the log.

/// The parts of the code with their subjects, each a crate or a module of one. The first part that a module is in counts.
const PARTS: [(&str, &str); 18] = [
    ("podprobe_pods::prober", "probes"),
    ("podprobe_pods::events", "events"),
    ("podprobe_pods::volumes", "volumes"),
    ("podprobe_pods::controllers", "workloads"),
    ("podprobe_pods", "pods"),
    ("podprobe_workloads", "workloads"),
    ("podprobe_engine::images", "images"),
    ("podprobe_engine::nsexec", "commands"),
    ("podprobe_engine::file_copy", "commands"),
    ("podprobe_engine", "containers"),
    ("podprobe_net::network", "network"),
    ("podprobe_net", "services"),
    ("podprobe_cluster", "cluster"),
    ("podprobe_face", "server"),
    ("podprobe_api", "daemon"),
    ("podprobe_base", "daemon"),
    ("podprobe", "daemon"),
    ("", "libraries"),
];

/// Returns the subject of the lines of a module.
pub(super) fn subject(module: &str) -> &'static str {
    let is_in = |part: &str| match module.strip_prefix(part) {
        Some(rest) => part.is_empty() || rest.is_empty() || rest.starts_with("::"),
        None => false,
    };
    let part = PARTS.iter().find(|(part, _)| is_in(part));
    part.map_or("daemon", |(_, subject)| subject)
}

/// Returns the subject with this name.
pub(super) fn named(name: &str) -> Option<&'static str> {
    subjects().find(|subject| *subject == name)
}

/// Returns the names of all subjects, some of them more than once.
pub(super) fn subjects() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(_, subject)| *subject)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_module_has_the_subject_of_the_narrowest_part() {
        for (module, expected) in [
            ("podprobe_pods::prober::manager", "probes"),
            ("podprobe_pods::prober", "probes"),
            ("podprobe_pods::probers", "pods"),
            ("podprobe_engine::shims::exits", "containers"),
            ("podprobe_net::proxy::watch", "services"),
            ("podprobe_base::threads", "daemon"),
            ("podprobe::cli", "daemon"),
            ("podprobed", "libraries"),
            ("ureq::run", "libraries"),
        ] {
            assert_eq!(subject(module), expected, "{module}");
        }
    }

    #[test]
    fn the_manual_names_every_subject() {
        let manual = include_str!("../../../docs/manual/log.md");
        for subject in subjects() {
            let row = format!("\n| `{subject}` | ");
            assert!(manual.contains(&row), "{subject}");
        }
    }

    #[test]
    fn each_part_is_a_directory_or_a_file_of_the_sources() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for (part, _) in PARTS.iter().filter(|(part, _)| !part.is_empty()) {
            let below = part.trim_start_matches("podprobe").replace("::", "/");
            let path = sources.join(below.trim_start_matches(['/', '_']));
            let is_there = path.is_dir() || path.with_extension("rs").is_file();
            assert!(is_there, "{part} is not in {}", sources.display());
        }
    }
}
