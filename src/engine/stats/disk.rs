//! How full a file system is.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// A file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Bytes that podprobe may still write.
    pub available: u64,
    /// Bytes of the whole file system.
    pub capacity: u64,
    /// Bytes that are used.
    pub used: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// All inodes.
    pub inodes: u64,
}

impl Disk {
    /// The file system of a directory; None when it is not there.
    pub fn of(dir: &Path) -> Option<Self> {
        let fs = statvfs(dir).ok()?;
        // The width of all these depends on the machine.
        let unit = u128::from(fs.fragment_size());
        let bytes = |blocks: u128| u64::try_from(blocks * unit).unwrap_or(u64::MAX);
        let number = |n: u128| u64::try_from(n).unwrap_or(u64::MAX);
        let capacity = bytes(fs.blocks().into());
        Some(Self {
            available: bytes(fs.blocks_available().into()),
            capacity,
            used: capacity.saturating_sub(bytes(fs.blocks_free().into())),
            inodes_free: number(fs.files_available().into()),
            inodes: number(fs.files().into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_file_system_has_less_than_it_holds() {
        let disk = Disk::of(Path::new("/")).unwrap();
        assert!(disk.capacity > 1 << 20 && disk.available <= disk.capacity);
        assert!(disk.used + disk.available <= disk.capacity);
        assert!(disk.inodes_free <= disk.inodes);
        assert_eq!(Disk::of(Path::new("/nowhere/at/all")), None);
    }
}
