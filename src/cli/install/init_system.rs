//! The init systems that can start podprobe, and how the one of a node is found.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::suggest::did_you_mean;

/// An init system for which podprobe has a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InitSystem {
    /// systemd, with a unit.
    Systemd,
    /// OpenRC, with a service under its supervisor.
    Openrc,
    /// A SysV or BusyBox init, with a script that supervises the daemon itself.
    Sysv,
    /// None that podprobe knows. Something else starts it.
    #[default]
    None,
}

impl InitSystem {
    /// Every init system, in the order in which they are looked for.
    const ALL: [Self; 4] = [Self::Systemd, Self::Openrc, Self::Sysv, Self::None];

    /// Returns the word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Openrc => "openrc",
            Self::Sysv => "sysv",
            Self::None => "none",
        }
    }

    /// Returns the init system with this name.
    ///
    /// # Errors
    /// Returns a sentence that lists the names.
    pub fn named(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|init| init.word() == word);
        found.ok_or_else(|| {
            let words = Self::ALL.map(Self::word);
            format!(
                "no init system is called '{word}'{}; there is {}",
                did_you_mean(word, words, ""),
                words.join(", ")
            )
        })
    }

    /// Finds the init system of the node whose files lie below `root`.
    ///
    /// # Errors
    /// Returns a sentence if none is found.
    pub fn found_below(root: &Path) -> Result<Self, String> {
        let has = |path: &str| root.join(path).exists();
        let any = |paths: &[&str]| paths.iter().any(|path| has(path));
        // The file of another root's systemd is there before it has ever run.
        let systemd = match root == Path::new("/") {
            true => has("run/systemd/system"),
            false => any(&["usr/lib/systemd/systemd", "lib/systemd/systemd"]),
        };
        if systemd {
            Ok(Self::Systemd)
        } else if any(&["sbin/openrc-run", "usr/sbin/openrc-run"]) {
            Ok(Self::Openrc)
        } else if has("etc/init.d") {
            Ok(Self::Sysv)
        } else {
            Err("this node has none of the init systems systemd, openrc and sysv: give --init none, and let something start 'podprobe run' at boot".into())
        }
    }
}

/// True if the run levels of a SysV init are kept by Debian's update-rc.d. Its init starts nothing that only has a link.
pub fn has_update_rc(root: &Path) -> bool {
    root.join("usr/sbin/update-rc.d").exists()
}

/// Finds the directories of run levels of a SysV init, such as `etc/rc2.d`, and the directory `etc/init.d` if a BusyBox init
/// starts what begins with S there.
pub fn run_levels(root: &Path) -> Vec<PathBuf> {
    let levels = ["0", "1", "2", "3", "4", "5", "6"].map(|level| format!("etc/rc{level}.d"));
    let levels = levels.into_iter().map(PathBuf::from);
    let mut levels: Vec<PathBuf> = levels.filter(|dir| root.join(dir).is_dir()).collect();
    if levels.is_empty() && root.join("etc/init.d/rcS").exists() {
        levels.push("etc/init.d".into());
    }
    levels
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn node(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn the_init_system_is_found_by_its_files() {
        for (paths, found) in [
            (
                &["usr/lib/systemd/systemd", "etc/init.d/x"][..],
                InitSystem::Systemd,
            ),
            (&["sbin/openrc-run", "etc/init.d/x"], InitSystem::Openrc),
            (&["etc/init.d/rcS"], InitSystem::Sysv),
        ] {
            let root = node(paths);
            assert_eq!(InitSystem::found_below(root.path()), Ok(found), "{paths:?}");
        }
        let none = InitSystem::found_below(node(&[]).path()).unwrap_err();
        assert!(none.contains("--init none"), "{none}");
    }

    #[test]
    fn a_name_is_a_word_of_the_list() {
        for init in InitSystem::ALL {
            assert_eq!(InitSystem::named(init.word()), Ok(init));
        }
        let wrong = InitSystem::named("systmd").unwrap_err();
        assert_eq!(
            wrong,
            "no init system is called 'systmd', did you mean 'systemd'?; there is systemd, openrc, sysv, none"
        );
    }

    #[test]
    fn run_levels_are_those_that_there_are() {
        let levels = |paths: &[&str]| run_levels(node(paths).path());
        assert_eq!(
            levels(&["etc/rc2.d/x", "etc/rc6.d/x"]),
            ["etc/rc2.d", "etc/rc6.d"].map(PathBuf::from)
        );
        assert_eq!(levels(&["etc/init.d/rcS"]), [PathBuf::from("etc/init.d")]);
        assert_eq!(levels(&["etc/init.d/x"]), [""; 0].map(PathBuf::from));
    }
}
