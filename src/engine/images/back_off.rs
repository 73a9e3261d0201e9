//! Decides how long an image is not pulled again for a pod after a failed pull: the back-off of client-go
//! (flowcontrol.Backoff, 10 s to 5 min).
//!
//! Invariant: each pod has a back-off of its own for each image.

use std::collections::HashMap;
use std::time::Duration;

use crate::base::clock::Moment;

/// Delay after the first failed pull of an image for a pod. Each further failure doubles this delay, up to
/// [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_secs(10);
/// The longest delay after a failed pull. A failed pull is forgotten after twice this time.
const MAX_DELAY: Duration = Duration::from_secs(300);

/// Key of a back-off: UID of the pod, and name of the image.
pub(super) type Key = (String, String);

/// The failed pulls that hold later pulls back (client-go's flowcontrol.Backoff, 10 s to 5 min).
#[derive(Debug, Default)]
pub(super) struct BackOff(HashMap<Key, FailedPull>);

#[derive(Debug)]
struct FailedPull {
    delay: Duration,
    at: Moment,
    /// The error text, which begins with `ErrImagePull: `.
    error: String,
    unavailable: bool,
}

/// A pull that is not allowed yet because an earlier pull has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) retry_at: Moment,
    /// The error of the last failed pull.
    pub(super) error: String,
    /// True if the last pull failed because the registry could not be reached.
    pub(super) unavailable: bool,
}

impl FailedPull {
    fn is_forgotten(&self, now: Moment) -> bool {
        now.since(self.at) > 2 * MAX_DELAY
    }
}

impl BackOff {
    /// Returns the back-off that holds the image. Returns None if the image may be pulled now.
    pub(super) fn held(&self, key: &Key, now: Moment) -> Option<Held> {
        let failed = self.0.get(key).filter(|f| !f.is_forgotten(now))?;
        let retry_at = failed.at + failed.delay;
        (now < retry_at).then(|| Held {
            retry_at,
            error: failed.error.clone(),
            unavailable: failed.unavailable,
        })
    }

    /// Returns the images that may not be pulled for a pod now, each image with the time at which it may be pulled
    /// again.
    pub(super) fn all_held(&self, pod_uid: &str, now: Moment) -> Vec<(String, Moment)> {
        let of_pod = self.0.keys().filter(|(uid, _)| uid == pod_uid);
        of_pod
            .filter_map(|key| Some((key.1.clone(), self.held(key, now)?.retry_at)))
            .collect()
    }

    pub(super) fn advance(&mut self, key: Key, now: Moment, error: String, unavailable: bool) {
        self.forget_old(now);
        let before = self.0.get(&key);
        let delay = before.map_or(FIRST_DELAY, |f| (f.delay * 2).min(MAX_DELAY));
        let failed = FailedPull {
            delay,
            at: now,
            error,
            unavailable,
        };
        self.0.insert(key, failed);
    }

    pub(super) fn forget_old(&mut self, now: Moment) {
        self.0.retain(|_, f| !f.is_forgotten(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_from_10_s_to_5_min_and_is_forgotten_after_10_min() {
        let key = || ("u".to_owned(), "i".to_owned());
        let mut back_off = BackOff::default();
        let mut now = Moment::from_boot(Duration::from_secs(1000));
        for delay in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(back_off.held(&key(), now), None);
            back_off.advance(key(), now, format!("after {delay}"), false);
            let retry_at = now + Duration::from_secs(delay);
            let held = Some(Held {
                retry_at,
                error: format!("after {delay}"),
                unavailable: false,
            });
            assert_eq!(back_off.held(&key(), now), held);
            assert_eq!(back_off.held(&("other".into(), "i".into()), now), None);
            now = retry_at;
        }
        now = now + 2 * MAX_DELAY;
        back_off.advance(key(), now, String::new(), false);
        assert_eq!(back_off.held(&key(), now + FIRST_DELAY), None);
    }
}
