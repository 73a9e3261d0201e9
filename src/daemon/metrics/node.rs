//! The metrics of the node: disks, images, and this process.

use std::collections::BTreeMap;
use std::fs;

use nix::unistd::{SysconfVar, sysconf};

use crate::base::metrics::{Family, Kind};
use crate::base::paths::Layout;
use crate::engine::images::ImageStore;
use crate::engine::stats::{Disk, parse};

/// Appends the metrics of the file systems of podprobe's directories. Two directories may be on the same file system.
pub(super) fn write_disks(layout: &Layout, out: &mut String) {
    let dirs = [
        ("lib", layout.lib_dir()),
        ("log", layout.logs_dir()),
        ("run", layout.run_dir()),
    ];
    let read = dirs.map(|(name, dir)| Some((name, Disk::of(&dir)?)));
    let disks: Vec<_> = read.into_iter().flatten().collect();
    type Value = fn(&Disk) -> u64;
    let families: [(&str, &str, Value); 4] = [
        (
            "podprobe_disk_free_bytes",
            "Free bytes of the file system of a directory of podprobe.",
            |disk| disk.available,
        ),
        (
            "podprobe_disk_size_bytes",
            "Bytes of the file system of a directory of podprobe.",
            |disk| disk.capacity,
        ),
        (
            "podprobe_disk_free_inodes",
            "Free inodes of the file system of a directory of podprobe.",
            |disk| disk.inodes_free,
        ),
        (
            "podprobe_disk_inodes",
            "Inodes of the file system of a directory of podprobe; 0 where it has no fixed number.",
            |disk| disk.inodes,
        ),
    ];
    for (name, help, value) in families {
        let mut family = Family::new(out, name, Kind::Gauge, help);
        for (directory, disk) in &disks {
            family.value(&[("directory", directory)], value(disk));
        }
    }
}

/// Appends the metrics of images. An image with several names counts once. A layer counts for each image that has it.
pub(super) fn write_images(store: &ImageStore, out: &mut String) {
    let Some(sizes) = image_sizes(store) else {
        return;
    };
    let help = "Images on the node.";
    Family::new(out, "podprobe_images", Kind::Gauge, help).value(&[], sizes.len() as u64);
    let help = "Bytes of the files of all images; a layer counts for each image that has it.";
    Family::new(out, "podprobe_image_bytes", Kind::Gauge, help).value(&[], sizes.values().sum());
}

/// Returns the sizes of images in bytes, by image id; None if the image store cannot be read.
pub(in crate::daemon) fn image_sizes(store: &ImageStore) -> Option<BTreeMap<String, u64>> {
    let rows = store.list().ok()?;
    Some(rows.into_iter().map(|r| (r.id, r.size)).collect())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Appends the process metrics that every Prometheus client library has.
pub(super) fn write_process(out: &mut String) {
    write_start_time(out);
    let Some(stat) = parse::process_stat(&read("/proc/self/stat")) else {
        return;
    };
    let cpu = parse::ticks(stat.cpu_ticks, ticks_per_second()).as_secs_f64();
    let help = "Total user and system CPU time spent in seconds.";
    Family::new(out, "process_cpu_seconds_total", Kind::Counter, help).real(&[], cpu);
    let page = sysconf(SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .unwrap_or(4096);
    let resident = stat.resident_pages * u64::try_from(page).unwrap_or(4096);
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            resident,
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            stat.virtual_bytes,
        ),
        ("process_threads", "Threads of the process.", stat.threads),
        // The count includes the descriptor that lists the directory.
        (
            "process_open_fds",
            "Number of open file descriptors.",
            (open as u64).saturating_sub(1),
        ),
    ];
    for (name, help, value) in gauges {
        Family::new(out, name, Kind::Gauge, help).value(&[], value);
    }
    if let Some(most) = parse::max_open_files(&read("/proc/self/limits")) {
        let help = "Maximum number of open file descriptors.";
        Family::new(out, "process_max_fds", Kind::Gauge, help).value(&[], most);
    }
}

/// Appends the time at which this process started.
pub(in crate::daemon) fn write_start_time(out: &mut String) {
    let stat = parse::process_stat(&read("/proc/self/stat"));
    let booted = parse::boot_time(&read("/proc/stat"));
    if let Some((stat, booted)) = stat.zip(booted) {
        let started = parse::ticks(stat.start_ticks, ticks_per_second()).as_secs_f64();
        let help = "Start time of the process since unix epoch in seconds.";
        Family::new(out, "process_start_time_seconds", Kind::Gauge, help)
            .real(&[], booted as f64 + started);
    }
}

/// Returns the number of ticks in a second, the unit of processor times in /proc.
fn ticks_per_second() -> u64 {
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks.and_then(|t| u64::try_from(t).ok()).unwrap_or(100)
}
