//! The steps of an installation.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::error::CliError;
use super::record::{Installed, digest_of};
use crate::base::atomic_file;
use crate::base::paths::Layout;

/// A step. Paths are as the node sees them, so they lie below the root of the installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes a directory of podprobe.
    Directory(PathBuf),
    /// Copies this program.
    Program(PathBuf),
    /// Writes a file with this mode. An edited one stays.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
        /// Content of the file.
        text: String,
    },
    /// Writes a file that belongs to the user once it is there.
    UsersFile(PathBuf, &'static str),
    /// Makes a symbolic link to a path.
    Link(PathBuf, PathBuf),
    /// Runs a command.
    Run(Vec<String>),
}

impl Step {
    /// Returns the line about a step that is not carried out.
    pub fn foretell(&self, root: &Path) -> String {
        match self {
            Self::Directory(path) => format!("would make {}", below(root, path).display()),
            Self::Program(path) | Self::File { path, .. } => {
                format!("would write {}", below(root, path).display())
            }
            Self::UsersFile(path, _) => match below(root, path).exists() {
                true => format!("would leave {} as it is", below(root, path).display()),
                false => format!("would write {}", below(root, path).display()),
            },
            Self::Link(path, to) => {
                format!(
                    "would link {} to {}",
                    below(root, path).display(),
                    to.display()
                )
            }
            Self::Run(words) => format!("would run {}", words.join(" ")),
        }
    }

    /// Carries the step out, and notes it in the record. Returns the line about it.
    ///
    /// # Errors
    /// Returns a sentence with the path.
    pub fn carry_out(&self, root: &Path, installed: &mut Installed) -> Result<String, CliError> {
        let done = match self {
            Self::Directory(path) => directory(root, &below(root, path)),
            Self::Program(path) => {
                let own = fs::read("/proc/self/exe");
                own.and_then(|content| file(root, path, 0o755, &content, installed, true))
            }
            Self::File { path, mode, text } => {
                file(root, path, *mode, text.as_bytes(), installed, false)
            }
            Self::UsersFile(path, text) => users_file(&below(root, path), text),
            Self::Link(path, to) => {
                installed.links.insert(path.clone());
                link(&below(root, path), to)
            }
            Self::Run(words) => return ran(words),
        };
        done.map_err(|e| CliError::Failed(format!("cannot {}: {e}", self.words(root))))
    }

    /// Returns the words after "cannot".
    fn words(&self, root: &Path) -> String {
        match self {
            Self::Directory(path) => format!("make {}", below(root, path).display()),
            Self::Program(path) | Self::File { path, .. } | Self::UsersFile(path, _) => {
                format!("write {}", below(root, path).display())
            }
            Self::Link(path, _) => format!("link {}", below(root, path).display()),
            Self::Run(words) => format!("run {}", words.join(" ")),
        }
    }
}

/// Returns the path of the new file beside one that somebody has edited.
pub fn beside(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

/// Returns the path in this process for a path as the node sees it.
pub fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn directory(root: &Path, path: &Path) -> io::Result<String> {
    if path.is_dir() {
        return Ok(format!("{} is there", path.display()));
    }
    Layout::new(root).make(path)?;
    Ok(format!("made {}", path.display()))
}

fn file(
    root: &Path,
    path: &Path,
    mode: u32,
    content: &[u8],
    installed: &mut Installed,
    is_always_replaced: bool,
) -> io::Result<String> {
    let here = below(root, path);
    let there = match fs::read(&here) {
        Ok(there) => Some(there),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    let is_ours = |there: &[u8]| installed.files.get(path) == Some(&digest_of(there));
    let said = match &there {
        Some(there) if there == content => {
            installed.files.insert(path.to_owned(), digest_of(content));
            return Ok(format!("{} is there", here.display()));
        }
        Some(there) if !is_always_replaced && !is_ours(there) => {
            let new = beside(&here);
            write(&new, mode, content)?;
            return Ok(format!(
                "left {} as it is, because it was edited; the new one is {}",
                here.display(),
                new.display()
            ));
        }
        Some(_) => "replaced",
        None => "wrote",
    };
    if let Some(dir) = here.parent() {
        fs::create_dir_all(dir)?;
    }
    write(&here, mode, content)?;
    installed.files.insert(path.to_owned(), digest_of(content));
    Ok(format!("{said} {}", here.display()))
}

/// Replaces a file as a whole, also a program that runs.
fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    atomic_file::replace_with(path, |file| {
        io::Write::write_all(file, content)?;
        file.set_permissions(Permissions::from_mode(mode))
    })
}

fn users_file(path: &Path, text: &str) -> io::Result<String> {
    if path.exists() {
        return Ok(format!("left {} as it is", path.display()));
    }
    write(path, 0o644, text.as_bytes())?;
    Ok(format!("wrote {}", path.display()))
}

fn link(path: &Path, to: &Path) -> io::Result<String> {
    if fs::read_link(path).is_ok_and(|there| there == to) {
        return Ok(format!("{} is there", path.display()));
    }
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => symlink(to, path)?,
    }
    Ok(format!("linked {} to {}", path.display(), to.display()))
}

fn ran(words: &[String]) -> Result<String, CliError> {
    let shown = words.join(" ");
    let failed = |why: String| CliError::Failed(format!("cannot run {shown}: {why}"));
    let (program, rest) = words
        .split_first()
        .ok_or_else(|| failed("no words".into()))?;
    let output = Command::new(program).args(rest).output();
    let output = output.map_err(|e| failed(e.to_string()))?;
    match output.status.success() {
        true => Ok(format!("ran {shown}")),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(failed(format!("{}: {}", output.status, said.trim())))
        }
    }
}
