//! Copies files into a container and out of it, as a tar stream (`podprobe cp`). The container needs no program for
//! copying.
//!
//! [`pack`] makes the stream on one side, and [`unpack()`] writes its files on the other side. The daemon and its
//! client use both.
//!
//! Invariants: no code trusts the container or the stream, and the container may change its files during a copy. The
//! kernel resolves the path that a person has typed, and starts in the container's root directory. Below this path each
//! name is looked up alone, in a directory that is held open, and no link is followed. Only regular files and
//! directories are opened: the kind of a file is checked first, by a descriptor that opens nothing (`O_PATH`). File
//! systems of the kernel (/proc, /sys, …) are not read and not written. A file appears as a whole or not at all. The
//! memory that a copy needs does not depend on the files.

mod destination;
mod draft;
mod error;
pub mod names;
mod pack;
mod place;
mod tar_writer;
mod unpack;

pub use destination::{Placement, Target};
pub use error::CopyError;
pub use pack::{Packed, Source};
pub use place::Root;
pub use unpack::{Failed, Unpacked, unpack};

/// Size in bytes of the piece of a file that is read or written at once.
const BUFFER: usize = 256 << 10;
/// Largest number of directories inside one another. Each of these directories holds descriptors open.
const MAX_DEPTH: usize = 64;

/// Notes about files that were left out: a sentence for each file, at most [`Self::MAX`] sentences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    /// Largest number of sentences that are kept.
    const MAX: usize = 20;
    /// Length in bytes to which each sentence is cut if it is longer.
    const LENGTH: usize = 1000;

    fn add(&mut self, mut text: String) {
        if self.texts.len() == Self::MAX {
            self.more += 1;
            return;
        }
        if text.len() > Self::LENGTH {
            text.truncate(text.floor_char_boundary(Self::LENGTH));
            text.push('…');
        }
        self.texts.push(text);
    }

    /// Returns the sentences. If sentences were dropped, an additional last sentence says how many.
    pub fn into_texts(self) -> Vec<String> {
        let mut texts = self.texts;
        if self.more > 0 {
            texts.push(format!("and {} more", self.more));
        }
        texts
    }
}

#[cfg(test)]
mod tests;
