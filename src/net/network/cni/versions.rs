//! Chooses the version of the specification for a network (cni-plugins 2.3).

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::conf::{NetworkList, Version};
use super::error::{NoCommonVersion, Speaker};
use crate::base::locks::Locked;

/// The versions that each plugin supports, by the path of the plugin's program. A plugin whose program was
/// replaced is asked again.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<PathBuf, (Stamp, Vec<String>)>>);

/// Inode, size and modification time (seconds, nanoseconds) of a program.
type Stamp = (u64, u64, i64, i64);

impl Memory {
    /// Returns the versions that a program supports. Calls `ask` only if the versions are not known yet.
    pub(super) fn of<E>(
        &self,
        program: &Path,
        ask: impl FnOnce() -> Result<Vec<String>, E>,
    ) -> Result<Vec<String>, E> {
        let stamp = stamp(program);
        let known = |memory: &HashMap<PathBuf, (Stamp, Vec<String>)>| {
            let (then, versions) = memory.get(program)?;
            (Some(*then) == stamp).then(|| versions.clone())
        };
        if let Some(versions) = known(&self.0.locked()) {
            return Ok(versions);
        }
        let versions = ask()?;
        if let Some(stamp) = stamp {
            let mut memory = self.0.locked();
            memory.insert(program.to_owned(), (stamp, versions.clone()));
        }
        Ok(versions)
    }
}

fn stamp(program: &Path) -> Option<Stamp> {
    let m = std::fs::metadata(program).ok()?;
    Some((m.ino(), m.size(), m.mtime(), m.mtime_nsec()))
}

/// Returns the newest version that the network and each of its plugins support.
///
/// # Errors
/// Returns [`NoCommonVersion`] if the network and its plugins have no version in common.
pub(super) fn common(
    list: &NetworkList,
    speak: &[Vec<String>],
) -> Result<Version, NoCommonVersion> {
    let all = |v: &&Version| {
        speak
            .iter()
            .all(|s| s.iter().any(|name| name == v.as_str()))
    };
    if let Some(version) = list.versions.iter().rev().find(all) {
        return Ok(*version);
    }
    let written: Vec<&'static str> = list.versions.iter().map(|v| v.as_str()).collect();
    let lacking = list.plugins.iter().zip(speak);
    let lacking = lacking
        .filter(|(_, speaks)| !written.iter().any(|w| speaks.iter().any(|s| s == w)))
        .map(|(plugin, speaks)| Speaker {
            kind: plugin.kind.clone(),
            speaks: speaks.clone(),
        })
        .collect();
    Err(NoCommonVersion { written, lacking })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::network::cni::conf::parse_list;

    fn list(versions: &str) -> NetworkList {
        let text = format!(
            r#"{{"name": "n", {versions}, "plugins": [{{"type": "bridge"}}, {{"type": "portmap"}}]}}"#
        );
        parse_list(text.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check(written: &str, speak: [&[&str]; 2], expected: Result<&str, &str>) {
        let speak = speak.map(|s| s.iter().map(|v| (*v).to_owned()).collect());
        let found = common(&list(written), &speak);
        let found = found.map(Version::as_str).map_err(|e| e.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    const BOTH: &str = r#""cniVersions": ["1.0.0", "1.1.0", "0.4.0"]"#;

    #[test]
    fn the_newest_version_that_all_plugins_speak_counts() {
        let old: &[&str] = &["0.4.0", "1.0.0"];
        let new: &[&str] = &["0.4.0", "1.0.0", "1.1.0"];
        check(BOTH, [new, new], Ok("1.1.0"));
        check(BOTH, [old, new], Ok("1.0.0"));
        check(BOTH, [new, &["0.4.0"]], Ok("0.4.0"));
        check(
            r#""cniVersion": "1.1.0""#,
            [old, new],
            Err(
                "the configuration is written for CNI 1.1.0, but plugin type=\"bridge\" speaks 0.4.0, 1.0.0",
            ),
        );
        check(
            BOTH,
            [&["1.1.0"], &["1.0.0"]],
            Err(
                "the configuration is written for CNI 0.4.0, 1.0.0, 1.1.0, but its plugins have none of them in common",
            ),
        );
    }

    #[test]
    fn a_plugin_is_asked_again_when_it_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("p");
        let memory = Memory::default();
        let ask = |answer: &str| {
            memory
                .of(&program, || Ok::<_, ()>(vec![answer.to_owned()]))
                .unwrap()
        };
        std::fs::write(&program, "1").unwrap();
        assert_eq!(ask("0.4.0"), ["0.4.0"]);
        assert_eq!(ask("1.0.0"), ["0.4.0"]);
        std::fs::write(&program, "longer").unwrap();
        assert_eq!(ask("1.0.0"), ["1.0.0"]);
        assert_eq!(memory.of(&program.join("gone"), || Err(7)), Err(7));
    }
}
