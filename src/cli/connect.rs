//! The one place where the command line meets the rest of the program: the daemon, the image store, the decoder of pod
//! files, and the inner roles. Everything else in this directory knows these types only, so it is tested without them.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::layout::Layout;
use crate::server::Backend;
use crate::settings::Settings;

/// A daemon in this process.
pub trait Daemon {
    /// What the live table reads.
    fn backend(&self) -> Arc<dyn Backend>;
    /// Waits for TERM, INT or HUP and returns its number.
    fn wait_for_signal(&self) -> i32;
    /// Ends every thread within `limit`; containers go on. The error names the threads that are late.
    fn shutdown(&self, limit: Duration) -> Result<(), String>;
    /// Stops and removes every pod within `limit`. The error names what is left.
    fn remove_all_pods(&self, limit: Duration) -> Result<(), String>;
}

/// Starts the daemon. The error is a sentence that says what to do.
pub fn start_daemon(_settings: Settings, _layout: Layout) -> Result<Box<dyn Daemon>, String> {
    Err("this build of podprobe has no daemon".into())
}

/// The configuration file (the root's own when none is given, which may be missing) with its defaults.
pub fn load_settings(_config: Option<&Path>, layout: &Layout) -> Result<Settings, String> {
    let host = nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok()).unwrap_or_else(|| "localhost".into());
    Ok(Settings { node_name: host, static_pod_path: layout.pods_dir(), ..Settings::default() })
}

/// An image in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRow {
    /// Names it is known by.
    pub names: Vec<String>,
    /// `sha256:…`.
    pub id: String,
    /// Bytes on disk.
    pub size: u64,
}

/// The image store, as the `image` verbs use it. Errors are sentences.
pub trait Images {
    /// Loads an OCI layout or docker archive; gives the names of its images.
    fn load(&self, path: &Path) -> Result<Vec<String>, String>;
    /// Makes an image of a root directory or tar; gives its full name.
    fn import(&self, path: &Path, name: &str) -> Result<String, String>;
    /// Every image, by name.
    fn list(&self) -> Result<Vec<ImageRow>, String>;
    /// Forgets an image.
    fn remove(&self, name: &str) -> Result<(), String>;
}

/// Opens the store below the root.
pub fn open_images(_layout: &Layout) -> Result<Box<dyn Images>, String> {
    Err("this build of podprobe has no image store".into())
}

/// What a pod file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Name and warnings of each pod.
    pub pods: Vec<(String, Vec<String>)>,
    /// Why it is refused; empty when it is good.
    pub errors: Vec<String>,
}

/// Decodes and validates a pod file as the file source does.
pub fn decode(_bytes: &[u8], _node_name: &str, _path: &Path) -> Decoded {
    Decoded { pods: vec![], errors: vec!["this build of podprobe has no decoder".into()] }
}

/// Runs an inner role, or gives None when the word is none. These processes are many and small: nothing is set up for
/// them before this.
pub fn inner_role(word: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let _ = args;
    match word {
        "shim" | "pause" | "oci" | "nsexec" => {
            eprintln!("podprobe {word}: this build has no such role");
            Some(ExitCode::from(2))
        }
        _ => None,
    }
}
