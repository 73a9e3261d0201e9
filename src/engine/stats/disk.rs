//! Size and free space of a file system.

use std::path::Path;

use nix::sys::statvfs::statvfs;

/// Size and free space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Number of bytes that podprobe may still write.
    pub available: u64,
    /// Size of the whole file system in bytes.
    pub capacity: u64,
    /// Number of bytes that are used.
    pub used: u64,
    /// Number of free inodes.
    pub inodes_free: u64,
    /// Number of all inodes.
    pub inodes: u64,
}

impl Disk {
    /// Returns the file system of a directory. Returns None if the directory does not exist.
    pub fn of(dir: &Path) -> Option<Self> {
        let fs = statvfs(dir).ok()?;
        // The integer types of these fields depend on the machine.
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
