//! Finds the files of an image archive by name. The archive is a directory, or a tar that is read without unpacking it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::ImageError;
use super::file_kind::{self, FileKind};
use super::files::unique;
use super::space::{Space, WithRoom};
use super::stream::{self, Limited};
use super::tarstream::{Kind, Stream, TarReader};
use super::tree;

/// Largest number of files in an archive.
const MAX_MEMBERS: usize = 100_000;
/// Greatest size in bytes to which a compressed archive may unpack.
const MAX_ARCHIVE: u64 = 64 << 30;
/// Largest index, manifest or configuration in bytes.
pub(super) const MAX_DOCUMENT: u64 = 8 << 20;

/// An image archive: a directory or a tar.
pub(super) enum Source {
    Directory(PathBuf),
    Tar {
        name: String,
        file: File,
        members: BTreeMap<Vec<u8>, Member>,
    },
}

/// A file in a tar. For a symlink or a hard link this value holds the name of the target.
pub(super) enum Member {
    File { offset: u64, size: u64 },
    Link(Vec<u8>),
}

/// A reader of a part of a file. Reading does not move the file's own position.
pub(super) struct Slice<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Slice<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf
            .len()
            .min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let n = self.file.read_at(&mut buf[..most], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Stream for Slice<'_> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        if n > self.end - self.at {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += n;
        Ok(())
    }
}

impl Source {
    /// Opens a directory or a tar. A compressed tar is first unpacked into a nameless file in the directory `scratch`.
    pub(super) fn open(path: &Path, scratch: &Path) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let meta =
            std::fs::metadata(path).map_err(|e| ImageError::io(format!("read {name}"), e))?;
        if meta.is_dir() {
            return Ok(Self::Directory(path.into()));
        }
        let file = plain_file(path, &name, scratch)?;
        let kind = file_kind::of(&file).map_err(|e| ImageError::io(format!("read {name}"), e))?;
        if kind != FileKind::Tar {
            let why = "it is no tar archive; give an OCI layout or a docker archive, and add a root file system or a static program with `podprobe image import`";
            return Err(ImageError::NotAnImage {
                path: name,
                why: why.into(),
            });
        }
        let members = index(&file).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => ImageError::corrupt(&name, e.to_string()),
            _ => ImageError::reading(&name, e),
        })?;
        Ok(Self::Tar {
            name,
            file,
            members,
        })
    }

    /// Returns the path of the archive, for error texts.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Directory(path) => path.display().to_string(),
            Self::Tar { name, .. } => name.clone(),
        }
    }

    /// Returns a reader of a file of the archive. Returns None if the archive has no such file.
    pub(super) fn file(&self, name: &str) -> Result<Option<Box<dyn Read + '_>>, ImageError> {
        let name = tree::clean(name.as_bytes()).map_err(|why| {
            ImageError::corrupt(self.name(), format!("file name {name:?}: {why}"))
        })?;
        match self {
            Self::Directory(dir) => {
                let path = dir.join(String::from_utf8_lossy(&name).as_ref());
                match std::fs::metadata(&path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(e) => Err(ImageError::io(format!("read {}", path.display()), e)),
                    Ok(m) if !m.is_file() => Err(ImageError::corrupt(
                        self.name(),
                        format!("{} is not a file", path.display()),
                    )),
                    Ok(_) => {
                        let file = File::open(&path)
                            .map_err(|e| ImageError::io(format!("read {}", path.display()), e))?;
                        Ok(Some(Box::new(file)))
                    }
                }
            }
            Self::Tar { file, members, .. } => Ok(find(members, name).map(|(offset, size)| {
                Box::new(Slice {
                    file,
                    at: offset,
                    end: offset + size,
                }) as Box<dyn Read>
            })),
        }
    }

    /// Returns the size of a file of the archive in bytes, as the file is stored. Returns 0 if the archive has no such
    /// file.
    pub(super) fn size(&self, name: &str) -> u64 {
        let Ok(name) = tree::clean(name.as_bytes()) else {
            return 0;
        };
        match self {
            Self::Directory(dir) => {
                let path = dir.join(String::from_utf8_lossy(&name).as_ref());
                std::fs::metadata(path).map_or(0, |m| m.size())
            }
            Self::Tar { members, .. } => find(members, name).map_or(0, |(_, size)| size),
        }
    }

    /// Returns the content of a small file of the archive, at most [`MAX_DOCUMENT`] bytes. Returns None if the archive
    /// has no such file.
    pub(super) fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ImageError> {
        let Some(file) = self.file(name)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        Limited::new(file, MAX_DOCUMENT)
            .read_to_end(&mut bytes)
            .map_err(|e| ImageError::reading(&format!("{name} of {}", self.name()), e))?;
        Ok(Some(bytes))
    }
}

/// Returns the offset and the size in bytes of a file in the tar. Follows links, because docker writes a repeated layer
/// as a symlink to its first occurrence.
fn find(members: &BTreeMap<Vec<u8>, Member>, mut name: Vec<u8>) -> Option<(u64, u64)> {
    for _ in 0..8 {
        match members.get(&name)? {
            Member::File { offset, size } => return Some((*offset, *size)),
            Member::Link(target) => name = target.clone(),
        }
    }
    None
}

fn plain_file(path: &Path, name: &str, scratch: &Path) -> Result<File, ImageError> {
    let read = |e| ImageError::io(format!("read {name}"), e);
    let mut file = File::open(path).map_err(read)?;
    let mut start = Vec::new();
    (&mut file).take(4).read_to_end(&mut start).map_err(read)?;
    file.seek(SeekFrom::Start(0)).map_err(read)?;
    if !stream::is_compressed(&start) {
        return Ok(file);
    }
    let write = |e| ImageError::io(format!("unpack {name} into {}", scratch.display()), e);
    let mut plain = nameless_file(scratch).map_err(write)?;
    let space = Space::of(scratch)?;
    space.require(file.metadata().map_err(read)?.size(), name)?;
    let content = stream::decompress(BufReader::with_capacity(1 << 16, file))
        .map_err(|e| ImageError::reading(name, e))?;
    let mut content = Limited::new(WithRoom::new(content, space), MAX_ARCHIVE);
    copy(
        &mut content,
        &mut plain,
        |e| ImageError::reading(name, e),
        write,
    )?;
    Ok(plain)
}

/// Copies all bytes, as `io::copy` does. `read` makes the error if reading fails, and `write` if writing fails, so that
/// the caller can distinguish the two.
fn copy(
    from: &mut impl Read,
    to: &mut impl io::Write,
    read: impl Fn(io::Error) -> ImageError,
    write: impl Fn(io::Error) -> ImageError,
) -> Result<(), ImageError> {
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match from.read(&mut buffer).map_err(&read)? {
            0 => return Ok(()),
            n => to.write_all(&buffer[..n]).map_err(&write)?,
        }
    }
}

/// Makes a file without a name. The file vanishes when its descriptor is closed, even if the process is killed.
fn nameless_file(dir: &Path) -> io::Result<File> {
    let path = dir.join(format!("scratch-{}", unique()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn index(file: &File) -> io::Result<BTreeMap<Vec<u8>, Member>> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let end = file.metadata()?.size();
    let mut tar = TarReader::new(Slice { file, at: 0, end });
    let mut members = BTreeMap::new();
    while let Some(entry) = tar.next()? {
        let Ok(path) = tree::clean(&entry.path) else {
            return Err(bad(format!(
                "file name {:?}",
                String::from_utf8_lossy(&entry.path)
            )));
        };
        let member = match entry.kind {
            Kind::File if entry.segments.is_none() => Member::File {
                offset: tar.position(),
                size: entry.size,
            },
            Kind::HardLink => {
                Member::Link(tree::clean(&entry.link).map_err(|why| bad(format!("link: {why}")))?)
            }
            Kind::Symlink => match relative(&path, &entry.link) {
                Some(target) => Member::Link(target),
                None => continue,
            },
            _ => continue,
        };
        if let Member::File { offset, size } = member
            && offset.checked_add(size).is_none_or(|e| e > end)
        {
            return Err(bad("truncated: it ends in the middle of a file".into()));
        }
        members.insert(path, member);
        if members.len() > MAX_MEMBERS {
            return Err(bad(format!("more than {MAX_MEMBERS} files")));
        }
    }
    if tar.complete {
        Ok(members)
    } else {
        Err(bad("truncated: the end of the archive is missing".into()))
    }
}

/// Returns the path to which a symlink at `path` leads. Returns None if the symlink leads out of the archive.
fn relative(path: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = tree::split(path)?
        .0
        .split(|b| *b == b'/')
        .filter(|c| !c.is_empty())
        .collect();
    for component in target.split(|b| *b == b'/') {
        match component {
            b"" | b"." => {}
            b".." => parts.pop().map(drop)?,
            c => parts.push(c),
        }
    }
    Some(parts.join(&b'/'))
}
