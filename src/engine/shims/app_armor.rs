//! Chooses the AppArmor profile for the processes of a container, as containerd's CRI plugin does.
//!
//! Invariants: the kernel's list of profiles is read at each start of a container, because profiles come and go while
//! the daemon runs. podprobe loads one profile at its start, if the configuration allows it ([`load`]). If the
//! requested profile is not available, the container does not start; it never runs without the profile.

use std::fs;
use std::io;
use std::path::PathBuf;

pub mod load;

use crate::engine::runtime::AppArmorProfile;

/// Name of the profile for `RuntimeDefault`.
pub const RUNTIME_DEFAULT: &str = "podprobe-default";

/// The reason why a container cannot have the requested profile, in containerd's words. The text also says what to do.
#[derive(Debug, thiserror::Error)]
#[error("failed to get container spec opts: failed to generate apparmor spec opts: {0}")]
pub struct AppArmorError(#[from] Unavailable);

/// The reason why a profile is not available.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The kernel's list of profiles cannot be read.
    #[error("cannot read {}: {source}", list.display())]
    List {
        /// Path of the list.
        list: PathBuf,
        /// The error from reading the list.
        source: io::Error,
    },
    /// The kernel enforces no profiles.
    #[error("apparmor is not supported: it is not enabled on the host; use type Unconfined")]
    Disabled,
    /// The profile for `RuntimeDefault` is not loaded.
    #[error(
        "apparmor profile not found {RUNTIME_DEFAULT}; set loadAppArmorProfile, load one of that name with apparmor_parser, or use type Localhost"
    )]
    NoDefault,
    /// The profile with that name is not loaded.
    #[error("apparmor profile not found {0}; load it with apparmor_parser")]
    NotLoaded(String),
}

/// The kernel's files for AppArmor.
#[derive(Clone, Debug)]
pub struct AppArmor {
    /// File that begins with `Y` if AppArmor is enabled.
    enabled: PathBuf,
    /// AppArmor's directory in securityfs, which has the list of the loaded profiles.
    directory: PathBuf,
}

impl AppArmor {
    /// Returns the AppArmor files of the running kernel.
    pub fn of_the_kernel() -> Self {
        Self {
            enabled: "/sys/module/apparmor/parameters/enabled".into(),
            directory: "/sys/kernel/security/apparmor".into(),
        }
    }

    /// True if the kernel enforces profiles, and securityfs is mounted where runtimes look for it.
    pub fn is_enabled(&self) -> bool {
        let switch = fs::read(&self.enabled).unwrap_or_default();
        switch.first() == Some(&b'Y') && self.directory.exists()
    }

    /// Tells whether the profile for `RuntimeDefault` is loaded. Returns `None` if the kernel's list of profiles cannot
    /// be read: only root can read the list.
    pub fn has_default(&self) -> Option<bool> {
        let loaded = self.loaded().ok()?;
        Some(loaded.iter().any(|name| name == RUNTIME_DEFAULT))
    }

    /// Returns the value for `process.apparmorProfile`; None means no profile.
    ///
    /// # Errors
    /// Returns [`AppArmorError`] if the requested profile is not loaded, AppArmor is off, or the list of profiles
    /// cannot be read.
    pub fn choose(
        &self,
        wanted: &AppArmorProfile,
        privileged: bool,
    ) -> Result<Option<String>, AppArmorError> {
        let loaded = self.is_enabled().then(|| self.loaded());
        let loaded = loaded.transpose().map_err(|source| Unavailable::List {
            list: self.directory.join("profiles"),
            source,
        })?;
        Ok(choose(wanted, privileged, loaded.as_deref())?)
    }

    /// Returns the names of the loaded profiles. A line of the kernel's list is `name (mode)`; the name may have
    /// spaces.
    fn loaded(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.directory.join("profiles"))?;
        let name = |line: &str| Some(line.rsplit_once(" (")?.0.to_owned());
        Ok(text.lines().filter_map(name).collect())
    }
}

/// Chooses the profile for a container. `loaded` has the names of the loaded profiles; it is None if AppArmor is off.
fn choose(
    wanted: &AppArmorProfile,
    privileged: bool,
    loaded: Option<&[String]>,
) -> Result<Option<String>, Unavailable> {
    use AppArmorProfile::{Localhost, RuntimeDefault, Unconfined, Unspecified};
    let is_loaded = |name: &str| loaded.is_some_and(|all| all.iter().any(|l| l == name));
    match wanted {
        Unconfined => Ok(None),
        Unspecified if privileged || !is_loaded(RUNTIME_DEFAULT) => Ok(None),
        RuntimeDefault | Localhost(_) if loaded.is_none() => Err(Unavailable::Disabled),
        RuntimeDefault if privileged => Ok(None),
        Unspecified | RuntimeDefault if is_loaded(RUNTIME_DEFAULT) => {
            Ok(Some(RUNTIME_DEFAULT.into()))
        }
        Unspecified | RuntimeDefault => Err(Unavailable::NoDefault),
        Localhost(name) if is_loaded(name) => Ok(Some(name.clone())),
        Localhost(name) => Err(Unavailable::NotLoaded(name.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use AppArmorProfile::{Localhost, RuntimeDefault, Unconfined, Unspecified};

    #[track_caller]
    fn check(
        wanted: AppArmorProfile,
        privileged: bool,
        loaded: Option<&[&str]>,
        expected: Result<Option<&str>, &str>,
    ) {
        let loaded = loaded.map(|all| all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>());
        let got = choose(&wanted, privileged, loaded.as_deref());
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got.as_deref(), expected),
            (Err(e), Err(start)) => assert!(e.to_string().starts_with(start), "{e}"),
            _ => panic!("{wanted:?} {privileged} {loaded:?}: {got:?}"),
        }
    }

    #[test]
    fn a_profile_is_chosen_as_containerd_chooses_it() {
        let all = Some(&["podprobe-default", "mine"][..]);
        let few = Some(&["/usr/sbin/tcpdump"][..]);
        let mine = || Localhost("mine".into());
        check(Unspecified, false, all, Ok(Some("podprobe-default")));
        check(RuntimeDefault, false, all, Ok(Some("podprobe-default")));
        check(mine(), false, all, Ok(Some("mine")));
        check(Unconfined, false, all, Ok(None));
        // A privileged container is confined only by a profile that it names.
        check(Unspecified, true, all, Ok(None));
        check(RuntimeDefault, true, all, Ok(None));
        check(RuntimeDefault, true, few, Ok(None));
        check(mine(), true, all, Ok(Some("mine")));
        // On this node nobody has loaded the requested profiles.
        check(Unspecified, false, few, Ok(None));
        let default =
            Err("apparmor profile not found podprobe-default; set loadAppArmorProfile, load one");
        check(RuntimeDefault, false, few, default);
        check(
            mine(),
            false,
            few,
            Err("apparmor profile not found mine; load it"),
        );
        check(Unconfined, false, few, Ok(None));
        // This node has no AppArmor.
        check(Unspecified, false, None, Ok(None));
        check(Unconfined, true, None, Ok(None));
        check(
            RuntimeDefault,
            false,
            None,
            Err("apparmor is not supported"),
        );
        check(RuntimeDefault, true, None, Err("apparmor is not supported"));
        check(mine(), false, None, Err("apparmor is not supported"));
    }

    /// Makes the files that a kernel with AppArmor has, in a temporary directory.
    pub(super) fn fake(enabled: &str, profiles: Option<&str>) -> (tempfile::TempDir, AppArmor) {
        let dir = tempfile::tempdir().unwrap();
        let files = AppArmor {
            enabled: dir.path().join("enabled"),
            directory: dir.path().join("apparmor"),
        };
        fs::write(&files.enabled, enabled).unwrap();
        if let Some(profiles) = profiles {
            fs::create_dir(&files.directory).unwrap();
            fs::write(files.directory.join("profiles"), profiles).unwrap();
        }
        (dir, files)
    }

    #[test]
    fn the_kernel_s_files_say_what_there_is() {
        let list =
            "podprobe-default (enforce)\nmy profile (complain)\n:ns:sub (enforce)\nhalf a line\n";
        let (_dir, on) = fake("Y\n", Some(list));
        assert!(on.is_enabled());
        assert_eq!(
            on.loaded().unwrap(),
            ["podprobe-default", "my profile", ":ns:sub"]
        );
        assert_eq!(on.has_default(), Some(true));
        let (_other, without) = fake("Y\n", Some("podprobe-default-2 (enforce)\n"));
        assert_eq!(without.has_default(), Some(false));
        let choose = |wanted: AppArmorProfile| {
            let chosen = on.choose(&wanted, false);
            chosen.map_err(|e| e.to_string())
        };
        let chosen = choose(Localhost("my profile".into()));
        assert_eq!(chosen, Ok(Some("my profile".into())));
        assert_eq!(
            choose(Localhost("my".into())),
            Err("failed to get container spec opts: failed to generate apparmor spec opts: apparmor profile not found my; load it with apparmor_parser".into())
        );
        for (_dir, off) in [
            fake("N\n", Some(list)),
            fake("Y\n", None),
            fake("", Some(list)),
        ] {
            assert!(!off.is_enabled());
            assert_eq!(off.choose(&Unspecified, false).unwrap(), None);
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_leaves_no_container_without_its_profile() {
        let (dir, on) = fake("Y\n", Some(""));
        fs::remove_file(dir.path().join("apparmor/profiles")).unwrap();
        assert_eq!(on.has_default(), None);
        let error = on.choose(&RuntimeDefault, false).unwrap_err().to_string();
        assert!(error.contains("apparmor/profiles: No such file"), "{error}");
    }
}
