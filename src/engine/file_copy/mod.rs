//! Files on their way into a container and out of it, as a tar stream (`podprobe cp`). It needs no program in the container.
//!
//! [`pack`] makes the stream on one side, [`unpack()`] writes its files on the other; the daemon and its client use both.
//!
//! Invariants: neither the container nor the stream is trusted, and the container may change its files meanwhile. The path that
//! a person has typed is resolved by the kernel in the container's root directory. Below it each name is looked up alone, in a
//! directory that is held open, and no link is followed. Nothing but regular files and directories is ever opened: what
//! lies at a name is looked at first, by a descriptor that opens nothing. The file systems of the kernel (/proc, /sys, …)
//! are neither read nor written. A file appears as a whole or not at all. Memory does not depend on the files.

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

/// Bytes of a file that are read or written at once.
const BUFFER: usize = 256 << 10;
/// Directories inside one another; each holds descriptors.
const MAX_DEPTH: usize = 64;

/// Notes about files that were left out: one sentence each, at most [`Self::MAX`] of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    texts: Vec<String>,
    more: u64,
}

impl Notes {
    /// Most sentences that are kept.
    const MAX: usize = 20;
    /// Bytes that are kept of each sentence.
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

    /// A sentence each; the last one says how many were dropped.
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
