//! Decides which images are removed when the disk is full. The rule is the kubelet's: thresholds for the disk, and the
//! time of an image's last use.
//!
//! An image that somebody loaded or imported by hand is never removed, because it could not be pulled again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::base::clock::Moment;

/// Settings that say when images are removed, and which images may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: images are removed if at least this percentage of the disk is used. 100 means
    /// never. The default is 85.
    pub high_percent: u8,
    /// `imageGCLowThresholdPercent`: images are removed until at most this percentage of the disk is used. The default is
    /// 80.
    pub low_percent: u8,
    /// `imageMinimumGCAge`: an image stays if podprobe first saw it less than this time ago. The default is 2 minutes.
    pub min_age: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            min_age: Duration::from_secs(120),
        }
    }
}

/// Size and free space of the file system that holds the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    /// Size of the whole file system in bytes.
    pub capacity: u64,
    /// Number of bytes that podprobe can still use.
    pub available: u64,
}

impl DiskUsage {
    /// Returns the used part of the disk in percent, rounded down. Space that is reserved for root counts as used.
    pub fn percent(&self) -> u8 {
        let used = u128::from(self.capacity.saturating_sub(self.available));
        let percent = used * 100 / u128::from(self.capacity.max(1));
        u8::try_from(percent).unwrap_or(100)
    }
}

impl ImageGcPolicy {
    /// Returns the number of bytes that must be available after images were removed. Returns None if no image needs to
    /// be removed.
    pub fn wanted(&self, disk: DiskUsage) -> Option<u64> {
        if self.high_percent >= 100 || disk.percent() < self.high_percent {
            return None;
        }
        let free = u128::from(100 - self.low_percent.min(100));
        let wanted = u128::from(disk.capacity) * free / 100;
        u64::try_from(wanted).ok()
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: Moment,
    used: Option<Moment>,
}

/// The time at which this daemon first saw each image, and the time at which it last saw a container use the image.
#[derive(Debug, Default)]
pub struct ImageUses(BTreeMap<String, Seen>);

impl ImageUses {
    /// Notes the images on the node. `images` has the id of each image, and true if a container uses the image now.
    pub fn look(&mut self, now: Moment, images: impl Iterator<Item = (String, bool)>) {
        let mut old = std::mem::take(&mut self.0);
        self.0 = images
            .map(|(id, used)| {
                let mut seen = old.remove(&id).unwrap_or(Seen {
                    first: now,
                    used: None,
                });
                if used {
                    seen.used = Some(now);
                }
                (id, seen)
            })
            .collect();
    }

    /// Returns the ids of the images that may be removed, in the order of removal. Images that were never used come
    /// first, in the order in which they were first seen. The images that were used follow, the image with the oldest
    /// last use first.
    pub fn removable(&self, now: Moment, policy: &ImageGcPolicy) -> Vec<String> {
        let old_enough = |seen: &Seen| {
            now.since(seen.first) >= policy.min_age && seen.used.is_none_or(|used| used < now)
        };
        let mut order: Vec<(Option<Moment>, Moment, &String)> = self
            .0
            .iter()
            .filter(|(_, seen)| old_enough(seen))
            .map(|(id, seen)| (seen.used, seen.first, id))
            .collect();
        order.sort();
        order.into_iter().map(|(_, _, id)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn thresholds_are_the_kubelets() {
        let policy = ImageGcPolicy::default();
        let disk = |available| DiskUsage {
            capacity: 1000,
            available,
        };
        assert_eq!(disk(151).percent(), 84);
        assert_eq!(policy.wanted(disk(151)), None);
        assert_eq!(policy.wanted(disk(150)), Some(200));
        assert_eq!(policy.wanted(disk(0)), Some(200));
        let never = ImageGcPolicy {
            high_percent: 100,
            ..policy
        };
        assert_eq!(never.wanted(disk(0)), None);
        let nothing = DiskUsage {
            capacity: 0,
            available: 0,
        };
        assert_eq!(policy.wanted(nothing), None);
        let huge = DiskUsage {
            capacity: u64::MAX,
            available: 0,
        };
        assert_eq!(
            (huge.percent(), policy.wanted(huge)),
            (100, Some(u64::MAX / 5))
        );
    }

    #[test]
    fn the_longest_unused_goes_first_and_what_is_used_or_new_stays() {
        let mut uses = ImageUses::default();
        let policy = ImageGcPolicy::default();
        let look = |uses: &mut ImageUses, now, images: &[(&str, bool)]| {
            let images = images.iter().map(|(id, used)| ((*id).to_owned(), *used));
            uses.look(now, images);
        };
        look(
            &mut uses,
            at(0),
            &[("a", true), ("b", true), ("never", false)],
        );
        look(
            &mut uses,
            at(60),
            &[("a", true), ("b", false), ("never", false), ("late", false)],
        );
        look(
            &mut uses,
            at(130),
            &[
                ("a", false),
                ("b", false),
                ("never", false),
                ("late", false),
                ("used", true),
            ],
        );
        assert_eq!(uses.removable(at(130), &policy), ["never", "b", "a"]);
        look(&mut uses, at(200), &[("b", true), ("late", false)]);
        assert_eq!(
            uses.removable(at(200), &policy),
            ["late"],
            "a has gone, b is used"
        );
    }
}
