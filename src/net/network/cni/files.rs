//! Finds and reads the files of the node's network configuration (cni-plugins 1).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use super::conf::{self, NetworkList, Plugin};
use super::error::{ConfError, ConfProblem};

/// The greatest size in bytes of a configuration file. A larger file is not read.
const LONGEST: u64 = 1 << 20;

/// A network, and the file from which it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The file from which the network was read.
    pub file: PathBuf,
    /// The network that the file describes.
    pub list: NetworkList,
}

/// Reads the network configured in a directory, from the first file in the order of names, as containerd
/// does. Returns None if there is no such file, or no directory.
///
/// # Errors
/// Returns [`ConfError`] if the first file cannot be used. The next file is not tried, because with that file pods
/// would get another network.
pub fn load(dir: &Path) -> Result<Option<Loaded>, ConfError> {
    let Some(file) = names(dir, &["conf", "conflist", "json"])?
        .into_iter()
        .next()
    else {
        return Ok(None);
    };
    let error = |problem| ConfError {
        file: file.clone(),
        problem,
    };
    let text = read(&file).map_err(error)?;
    if !file.as_os_str().as_encoded_bytes().ends_with(b".conflist") {
        let list = conf::parse_single(&text).map_err(error)?;
        return Ok(Some(Loaded { file, list }));
    }
    let mut list = conf::parse_list(&text).map_err(error)?;
    let siblings = dir.join(&list.name);
    if !list.only_inlined {
        list.plugins.extend(plugins(&siblings)?);
    }
    if list.plugins.is_empty() {
        return Err(error(ConfProblem::NoPlugins(siblings)));
    }
    Ok(Some(Loaded { file, list }))
}

/// Reads the plugins from the files in the directory with the network's name.
fn plugins(dir: &Path) -> Result<Vec<Plugin>, ConfError> {
    let read_one = |file: PathBuf| {
        let plugin = read(&file).and_then(|text| conf::parse_plugin(&text));
        plugin.map_err(|problem| ConfError { file, problem })
    };
    names(dir, &["conf"])?.into_iter().map(read_one).collect()
}

/// Returns the files of a directory that have one of these endings, in the order of their names.
fn names(dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, ConfError> {
    let listed = match fs::read_dir(dir) {
        Ok(entries) => entries.collect::<io::Result<Vec<_>>>(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => Err(e),
    };
    let entries = listed.map_err(|error| ConfError {
        file: dir.to_owned(),
        problem: ConfProblem::Unreadable(error),
    })?;
    let file = |e: &fs::DirEntry| !e.file_type().is_ok_and(|t| t.is_dir());
    let names = entries.iter().filter(|e| file(e)).map(|e| e.file_name());
    Ok(chosen(names.collect(), endings)
        .into_iter()
        .map(|name| dir.join(name))
        .collect())
}

fn chosen(mut names: Vec<OsString>, endings: &[&str]) -> Vec<OsString> {
    names.retain(|name| {
        // The ending is searched as in Go. `Path::extension` would find no ending in the name `.conf`.
        let name = name.as_encoded_bytes();
        let ending = name
            .iter()
            .rposition(|b| *b == b'.')
            .map(|at| &name[at + 1..]);
        ending.is_some_and(|ending| endings.iter().any(|e| e.as_bytes() == ending))
    });
    names.sort();
    names
}

fn read(file: &Path) -> Result<Vec<u8>, ConfProblem> {
    // The file is opened without blocking, because a FIFO without a writer would block a pod.
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let opened = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(file);
    let opened = opened.map_err(ConfProblem::Unreadable)?;
    if !opened
        .metadata()
        .map_err(ConfProblem::Unreadable)?
        .is_file()
    {
        return Err(ConfProblem::NoFile);
    }
    let mut text = Vec::new();
    let mut limited = opened.take(LONGEST + 1);
    limited
        .read_to_end(&mut text)
        .map_err(ConfProblem::Unreadable)?;
    if text.len() as u64 > LONGEST {
        return Err(ConfProblem::TooLong(LONGEST));
    }
    Ok(text)
}
