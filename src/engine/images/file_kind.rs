//! Finds out by the first bytes of a file which kind of file it is. The file is to be loaded or imported.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Length of a tar header in bytes.
const BLOCK: usize = 512;

/// A kind of uncompressed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A tar archive: the file begins with a tar header, or is an empty archive.
    Tar,
    /// An ELF program that needs no other file.
    StaticProgram,
    /// An ELF program that needs an interpreter and libraries.
    DynamicProgram,
    /// Any other file.
    Other,
}

/// Returns the kind of a file. The file's position does not change.
pub(super) fn of(file: &File) -> io::Result<FileKind> {
    let mut start = Vec::new();
    At { file, at: 0 }
        .take(BLOCK as u64)
        .read_to_end(&mut start)?;
    if start.starts_with(b"\x7fELF") {
        return Ok(match needs_interpreter(file, &start) {
            Some(false) => FileKind::StaticProgram,
            Some(true) => FileKind::DynamicProgram,
            None => FileKind::Other,
        });
    }
    Ok(match is_tar_header(&start) {
        true => FileKind::Tar,
        false => FileKind::Other,
    })
}

/// Tells whether a block is a tar header, by the checksum, which all kinds of tar have in common. A block of zeros
/// counts too: an empty tar begins with such blocks, its end mark.
fn is_tar_header(block: &[u8]) -> bool {
    if block.len() < BLOCK {
        return false;
    }
    let sum: u32 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| {
            u32::from(if (148..156).contains(&at) {
                b' '
            } else {
                *byte
            })
        })
        .sum();
    let stored = tar::Header::from_byte_slice(block).cksum().ok();
    stored == Some(sum) || block.iter().all(|b| *b == 0)
}

/// Tells whether a program has the program header `PT_INTERP`, and so needs an interpreter. Returns None if the file is
/// not a program.
fn needs_interpreter(file: &File, start: &[u8]) -> Option<bool> {
    const PT_INTERP: u64 = 3;
    let wide = start.get(4)? == &2;
    let big_endian = start.get(5)? == &2;
    let number = |bytes: &[u8]| {
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        match big_endian {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        }
    };
    let field = |at: usize, length: usize| Some(number(start.get(at..at + length)?));
    // The ELF type must be an executable (2) or a shared object (3). A position-independent program is a shared object.
    if !matches!(field(16, 2)?, 2 | 3) {
        return None;
    }
    let (table, size, count) = match wide {
        true => (field(32, 8)?, field(54, 2)?, field(56, 2)?),
        false => (field(28, 4)?, field(42, 2)?, field(44, 2)?),
    };
    for n in 0..count {
        let mut kind = [0; 4];
        let at = table.checked_add(n * size)?;
        file.read_exact_at(&mut kind, at).ok()?;
        if number(&kind) == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

/// A reader of a file by offset. It starts at the file's beginning.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[track_caller]
    fn check(content: &[u8], expected: FileKind) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        assert_eq!(of(&file).unwrap(), expected);
    }

    /// Returns a 64-bit little-endian ELF file with one program header. `kind` is its ELF type, `header` the type of the
    /// program header.
    fn elf(kind: u16, header: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes.extend(header.to_le_bytes());
        bytes.resize(64 + 56, 0);
        bytes
    }

    #[test]
    fn files_are_told_by_their_first_bytes() {
        check(&elf(2, 1), FileKind::StaticProgram);
        check(&elf(3, 1), FileKind::StaticProgram);
        check(&elf(3, 3), FileKind::DynamicProgram);
        check(&elf(1, 1), FileKind::Other);
        check(&elf(2, 1)[..64], FileKind::Other);
        check(b"\x7fELF", FileKind::Other);
        check(b"#!/bin/sh\n", FileKind::Other);
        check(b"", FileKind::Other);
        check(&[0; 1024], FileKind::Tar);
        let mut header = tar::Header::new_gnu();
        header.set_path("a").unwrap();
        header.set_cksum();
        check(header.as_bytes(), FileKind::Tar);
        let mut flipped = header.as_bytes().to_vec();
        flipped[0] ^= 1;
        check(&flipped, FileKind::Other);
    }
}
