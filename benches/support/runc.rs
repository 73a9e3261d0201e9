//! Containers made by an OCI runtime alone, to compare with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use super::Guard;

/// The runtime of that name, where it is installed.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let dirs = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"];
    dirs.iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists())
}

/// A container from its bundle to its end.
pub(crate) struct Container {
    pub(crate) runtime: PathBuf,
    pub(crate) id: String,
    pub(crate) bundle: PathBuf,
    pub(crate) config: Value,
    _guard: Guard,
}

impl Container {
    /// Writes a bundle with that configuration and a root directory that `fill` fills; nothing runs yet.
    pub(crate) fn new(
        runtime: &Path,
        id: &str,
        mut config: Value,
        fill: impl FnOnce(&Path),
    ) -> Self {
        let id = format!("bench-{}-{id}", std::process::id());
        let bundle = super::out_dir().join(&id);
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        config["root"]["path"] = json!("rootfs");
        config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        fs::write(
            bundle.join("config.json"),
            serde_json::to_vec(&config).unwrap(),
        )
        .unwrap();
        let guard = Guard::new({
            let (runtime, id, bundle) = (runtime.to_owned(), id.clone(), bundle.clone());
            move || {
                let _ = Command::new(runtime)
                    .args(["delete", "--force", &id])
                    .output();
                let _ = fs::remove_dir_all(bundle);
            }
        });
        fill(&bundle.join("rootfs"));
        Self {
            runtime: runtime.into(),
            id,
            bundle,
            config,
            _guard: guard,
        }
    }

    /// Runs a verb that takes the id, without output of its own kept open by the container; the error is what it said.
    fn verb(&self, verb: &[&str]) -> Result<(), String> {
        let log = fs::File::create(self.bundle.join("log")).unwrap();
        let mut command = Command::new(&self.runtime);
        command
            .args(verb)
            .arg(&self.id)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let said = || {
            format!(
                "{}: {}",
                self.runtime.display(),
                fs::read_to_string(self.bundle.join("log")).unwrap().trim()
            )
        };
        if command.status().unwrap().success() {
            Ok(())
        } else {
            Err(said())
        }
    }

    /// `create` and `start`.
    pub(crate) fn start(&self) -> Result<(), String> {
        self.verb(&["create", "--bundle", self.bundle.to_str().unwrap()])?;
        self.verb(&["start"])
    }

    /// The first process.
    pub(crate) fn pid(&self) -> i32 {
        let state: Value =
            serde_json::from_slice(&self.output(&["state", &self.id]).stdout).unwrap();
        state["pid"].as_i64().unwrap() as i32
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        Command::new(&self.runtime)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}
