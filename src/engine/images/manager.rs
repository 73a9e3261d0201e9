//! Makes sure that an image is on the node before its container is made. Pull policy, back-off and events are those of
//! the kubelet's image manager (pkg/kubelet/images/image_manager.go, `EnsureImageExists`).
//!
//! Invariants: only [`should_pull`] decides whether to pull. No lock is held while an image is pulled. If no registry
//! serves an image, the image on the node is used with every policy. If such an image is not on the node, the container
//! waits until somebody loads it. An image that somebody loaded by hand is never replaced by an image from a registry.
//! An image that was pulled is used while its registry cannot be reached (deviations: pull-always).

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use super::back_off::{BackOff, Held, Key};
use super::error::ImageError;
use super::pull_metrics::{PullMetrics, Pulled};
use super::pulls::{ImagePull, PullStage, Pulls};
use super::reference::Reference;
use super::registry::slots::{Slot, Slots};
use super::registry::{DockerConfig, PullProgress};
use super::store::{Image, ImageStore};
use crate::base::clock::{Moment, Time, go_duration};
use crate::base::live::Live;
use crate::base::locks::Locked;

/// The pull policy of a container (`imagePullPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    /// The image is pulled for each start.
    Always,
    /// The image is pulled if it is missing.
    IfNotPresent,
    /// The image is never pulled.
    Never,
}

impl PullPolicy {
    /// Returns the policy called `name`. The name comes from a defaulted and validated pod.
    pub fn named(name: &str) -> Self {
        match name {
            "Always" => Self::Always,
            "Never" => Self::Never,
            _ => Self::IfNotPresent,
        }
    }
}

/// Finds the images on the node (CRI `ImageService`).
pub trait ImageService: Send + Sync {
    /// Returns the image that a reference names.
    ///
    /// # Errors
    /// Returns [`ImageError::NotFound`] if the image is not on the node.
    fn image(&self, reference: &str) -> Result<Image, ImageError>;
}

impl ImageService for ImageStore {
    fn image(&self, reference: &str) -> Result<Image, ImageError> {
        self.resolve(reference)
    }
}

/// A request to pull one image.
#[derive(Clone, Copy)]
pub struct PullRequest<'a> {
    /// The image to pull.
    pub image: &'a Reference,
    /// Logins of the pod's pull secrets, which are tried before the node's own logins.
    pub credentials: &'a [DockerConfig],
    /// Returns true if no container needs the image any more.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// Pulls images from a registry to the node.
pub trait Puller: Send + Sync {
    /// Tells whether there is a registry for this image.
    fn serves(&self, image: &Reference) -> bool;

    /// Pulls an image and stores it under its name. Returns the size of the image in bytes. Writes the progress of the
    /// pull into `progress`. Blocks until the image is stored. The function may be called for several images at once.
    ///
    /// # Errors
    /// Returns a [`PullError`] if the pull failed. In this case no part of the image is kept.
    fn pull(
        &self,
        request: &PullRequest<'_>,
        progress: &Arc<PullProgress>,
    ) -> Result<u64, PullError>;
}

/// A puller that pulls nothing, for a node with `"pull": false` in `registries`. People load the images of such a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRegistry;

impl Puller for NoRegistry {
    fn serves(&self, _: &Reference) -> bool {
        false
    }

    fn pull(&self, request: &PullRequest<'_>, _: &Arc<PullProgress>) -> Result<u64, PullError> {
        Err(PullError::Failed(format!(
            "cannot pull {}: nothing is pulled on this node",
            request.image
        )))
    }
}

/// Reason why an image was not pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullError {
    /// The registry does not answer.
    RegistryUnavailable(String),
    /// The caller does not need the image any more, and has cancelled the pull.
    Cancelled,
    /// The pull failed for any other reason.
    Failed(String),
}

impl fmt::Display for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RegistryUnavailable(why) => write!(f, "RegistryUnavailable: {why}"),
            Self::Cancelled => f.write_str("the pull was cancelled"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for PullError {}

/// A container's request for its image.
#[derive(Clone, Copy)]
pub struct ImageRequest<'a> {
    /// UID of the pod. Each pod has its own back-off for an image.
    pub pod_uid: &'a str,
    /// Name of the image, as in the container's spec.
    pub image: &'a str,
    /// Pull policy of the container.
    pub policy: PullPolicy,
    /// Pull secrets of the pod.
    pub credentials: &'a [DockerConfig],
    /// Returns true if the container is not to be started any more.
    pub cancelled: &'a dyn Fn() -> bool,
}

/// An event about the image of a container, with the reasons and texts of the kubelet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageEvent {
    /// True for an event of type `Warning`, false for `Normal`.
    pub warning: bool,
    /// Reason of the event: `Pulled`, `Pulling`, `Failed`, `BackOff`, `InspectFailed`, `ErrImageNeverPull` or
    /// `FailedToRetrieveImagePullSecret`.
    pub reason: &'static str,
    /// The text of the event.
    pub message: String,
}

/// Reason, shown in the status of a container, why the container waits for its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageWaitReason {
    /// The image is missing, and podprobe does not pull it.
    ErrImageNeverPull,
    /// The container's image is not a valid image name.
    InvalidImageName,
    /// The image is present, but cannot be used.
    ImageInspectError,
    /// The last pull failed.
    ErrImagePull,
    /// The last pull failed because the registry did not answer.
    RegistryUnavailable,
    /// A pull failed, and the next try comes later.
    ImagePullBackOff,
}

impl ImageWaitReason {
    /// All reasons. A container that waits for an image is recognised by one of them.
    pub const ALL: [Self; 6] = [
        Self::ErrImageNeverPull,
        Self::InvalidImageName,
        Self::ImageInspectError,
        Self::ErrImagePull,
        Self::RegistryUnavailable,
        Self::ImagePullBackOff,
    ];

    /// Returns the reason as it appears in `state.waiting.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ErrImageNeverPull => "ErrImageNeverPull",
            Self::InvalidImageName => "InvalidImageName",
            Self::ImageInspectError => "ImageInspectError",
            Self::ErrImagePull => "ErrImagePull",
            Self::RegistryUnavailable => "RegistryUnavailable",
            Self::ImagePullBackOff => "ImagePullBackOff",
        }
    }
}

/// Reason why a container has no image to start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsureError {
    /// Value of `state.waiting.reason` in the container's status.
    pub reason: ImageWaitReason,
    /// Text of `state.waiting.message` in the container's status.
    pub message: String,
    /// The time at which the back-off ends; None if no back-off holds the image.
    pub retry_at: Option<Moment>,
}

impl fmt::Display for EnsureError {
    /// Writes only the reason, without the message, as in the kubelet's event `Error: ErrImagePull`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.as_str())
    }
}

impl std::error::Error for EnsureError {}

/// Says whether an image is on the node, and how it came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Present {
    Missing,
    /// Somebody loaded the image by hand.
    Loaded,
    Pulled,
}

/// Decides whether to pull an image for which there is a registry.
fn should_pull(policy: PullPolicy, present: Present) -> bool {
    match policy {
        PullPolicy::Always => present != Present::Loaded,
        PullPolicy::IfNotPresent => present == Present::Missing,
        PullPolicy::Never => false,
    }
}

/// Number of images that are pulled at once (`serializeImagePulls`, `maxParallelImagePulls`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallel {
    /// Images are pulled one after the other.
    Serial,
    /// All images that containers need are pulled at once.
    Unlimited,
    /// At most this number of images are pulled at once.
    AtMost(usize),
}

impl Parallel {
    fn slots(self) -> Option<Slots> {
        match self {
            Self::Serial => Some(Slots::new(1)),
            Self::Unlimited => None,
            Self::AtMost(n) => Some(Slots::new(n)),
        }
    }
}

/// The image manager of a node.
pub struct ImageManager {
    images: Arc<dyn ImageService>,
    puller: Box<dyn Puller>,
    back_off: Mutex<BackOff>,
    /// The number of pulls at once, and the slots for them; None if the number is not limited.
    slots: Live<(Parallel, Option<Slots>)>,
    pulls: Pulls,
    metrics: PullMetrics,
}

impl ImageManager {
    /// Returns a manager with this store and this registry. The manager pulls one image at a time.
    pub fn new(images: Arc<dyn ImageService>, puller: Box<dyn Puller>) -> Self {
        Self {
            images,
            puller,
            back_off: Mutex::default(),
            slots: Live::new((Parallel::Serial, Parallel::Serial.slots())),
            pulls: Pulls::default(),
            metrics: PullMetrics::default(),
        }
    }

    /// Sets the number of images that this manager pulls at once.
    pub fn parallel(self, parallel: Parallel) -> Self {
        self.set_parallel(parallel);
        self
    }

    /// Sets the number of images that are pulled at once from now on. Where it is another one, pulls that run or wait already
    /// do not count.
    pub fn set_parallel(&self, parallel: Parallel) {
        if self.slots.get().0 != parallel {
            self.slots.set((parallel, parallel.slots()));
        }
    }

    /// Returns the image of a container. Pulls the image first if the policy demands a pull. Blocks during a pull.
    /// Calls `record` with each event as soon as it happens. `clock` returns the time.
    pub fn ensure(
        &self,
        request: ImageRequest<'_>,
        clock: &dyn Fn() -> Moment,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<Image, EnsureError> {
        let image = request.image;
        let found = self.images.image(image);
        let present = match &found {
            Ok(found) if found.pulled => Present::Pulled,
            Ok(_) => Present::Loaded,
            Err(ImageError::NotFound { .. }) => Present::Missing,
            Err(e @ ImageError::InvalidName { .. }) => {
                let message = format!("Failed to apply default image tag {image:?}: {e}");
                record(warning("InspectFailed", &message));
                return Err(error(ImageWaitReason::InvalidImageName, message));
            }
            Err(e) => {
                let message = format!("Failed to inspect image {image:?}: {e}");
                record(warning("InspectFailed", &message));
                return Err(error(ImageWaitReason::ImageInspectError, message));
            }
        };
        // An image that is named by its id has no registry.
        let reference = Reference::parse(image).ok();
        let served = reference.filter(|r| self.puller.serves(r));
        match (served, found) {
            (Some(reference), found) if should_pull(request.policy, present) => {
                self.pull_or(found.ok(), request, &reference, clock, record)
            }
            (_, Ok(found)) => {
                record(normal("Pulled", present_on_machine(image)));
                Ok(found)
            }
            (_, Err(e)) => {
                let message = match request.policy {
                    PullPolicy::Never => format!(
                        "Container image {image:?} is not present with pull policy of Never: {e}"
                    ),
                    _ => e.to_string(),
                };
                record(warning("ErrImageNeverPull", &message));
                Err(error(ImageWaitReason::ErrImageNeverPull, message))
            }
        }
    }

    /// Pulls an image. If the registry cannot be reached and `present` has an image of the node, returns this image.
    fn pull_or(
        &self,
        present: Option<Image>,
        request: ImageRequest<'_>,
        reference: &Reference,
        clock: &dyn Fn() -> Moment,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<Image, EnsureError> {
        let key = (request.pod_uid.to_owned(), request.image.to_owned());
        let held = self.lock().held(&key, clock());
        let unreachable = match held {
            Some(held) if held.unavailable && present.is_some() => true,
            Some(held) => return Err(hold_back(request.image, held, record)),
            None => false,
        };
        let failed = match unreachable {
            true => None,
            false => match self.pull(key, request, reference, clock, record) {
                Ok(image) => return Ok(image),
                Err(e) => Some(e),
            },
        };
        let is = |e: &EnsureError| e.reason == ImageWaitReason::RegistryUnavailable;
        match (present, failed) {
            (Some(image), failed) if failed.as_ref().is_none_or(is) => {
                let text = format!(
                    "Container image {:?} already present on machine; its registry cannot be reached",
                    request.image
                );
                record(normal("Pulled", text));
                Ok(image)
            }
            (_, Some(e)) => Err(e),
            // This case does not occur: if no pull was tried, `present` holds an image.
            (_, None) => Err(error(ImageWaitReason::ErrImagePull, String::new())),
        }
    }

    fn pull(
        &self,
        key: Key,
        request: ImageRequest<'_>,
        reference: &Reference,
        clock: &dyn Fn() -> Moment,
        record: &mut dyn FnMut(ImageEvent),
    ) -> Result<Image, EnsureError> {
        let image = request.image;
        let asked = clock();
        let pull = self.pulls.begin(request.pod_uid, image, asked);
        // An event wakes the watchers of the pod. So each change in the list of the pod's pulls comes before the event.
        record(normal("Pulling", format!("Pulling image {image:?}")));
        let slot = self.slot(request.cancelled)?;
        let started = clock();
        let wanted = PullRequest {
            image: reference,
            credentials: request.credentials,
            cancelled: request.cancelled,
        };
        let pulled = self.puller.pull(&wanted, &pull.starts());
        drop((slot, pull));
        let now = clock();
        let how = match &pulled {
            Ok(_) => Pulled::Success,
            Err(PullError::Cancelled) => Pulled::Cancelled,
            Err(PullError::Failed(_)) => Pulled::Failed,
            Err(PullError::RegistryUnavailable(_)) => Pulled::RegistryUnavailable,
        };
        self.metrics.pulled(reference, how, now.since(started));
        let size = pulled.map_err(|e| self.failed(key, image, &e, now, record))?;
        record(normal(
            "Pulled",
            format!(
                "Successfully pulled image {image:?} in {} ({} including waiting). Image size: {size} bytes.",
                took(started, now),
                took(asked, now)
            ),
        ));
        self.lock().forget_old(now);
        self.images.image(image).map_err(|e| {
            let message = format!("Failed to inspect image {image:?}: {e}");
            record(warning("InspectFailed", &message));
            error(ImageWaitReason::ImageInspectError, message)
        })
    }

    /// Returns the counters of pulls.
    pub fn metrics(&self) -> &PullMetrics {
        &self.metrics
    }

    /// Returns the pulls for a pod: those that run or wait for a slot, with their progress, and those that wait for
    /// their next try after a failure.
    pub fn pulls_of(&self, pod_uid: &str, now: Moment) -> Vec<ImagePull> {
        let mut pulls = self.pulls.of(pod_uid, now);
        let at = |moment: Moment| Time::from(SystemTime::now() + moment.since(now));
        let held = self.lock().all_held(pod_uid, now);
        pulls.extend(held.into_iter().map(|(image, retry_at)| ImagePull {
            image,
            stage: PullStage::BackOff {
                until: at(retry_at),
            },
        }));
        pulls
    }

    /// Returns the UIDs of the pods of which a pull must be reported to the watchers: the pull runs or waits for a
    /// slot, and its last report is at least half a second old. The call itself counts as the next report.
    pub fn pulls_to_tell(&self, now: Moment) -> Vec<String> {
        self.pulls.due(now)
    }

    /// Waits for a free slot for a pull. Returns None if the number of pulls is not limited. Fails if the pull is
    /// cancelled during the wait.
    fn slot(&self, cancelled: &dyn Fn() -> bool) -> Result<Option<Slot>, EnsureError> {
        match self.slots.get().1 {
            None => Ok(None),
            Some(slots) => match slots.take(cancelled) {
                Some(slot) => Ok(Some(slot)),
                None => Err(pull_error("", &PullError::Cancelled)),
            },
        }
    }

    /// Records a failed pull, and starts the back-off for the next try. A cancelled pull does not count as failed.
    fn failed(
        &self,
        key: Key,
        image: &str,
        e: &PullError,
        now: Moment,
        record: &mut dyn FnMut(ImageEvent),
    ) -> EnsureError {
        let failed = pull_error(image, e);
        if *e != PullError::Cancelled {
            let unavailable = failed.reason == ImageWaitReason::RegistryUnavailable;
            let text = format!("{failed}: {}", failed.message);
            self.lock().advance(key, now, text, unavailable);
            let text = format!("Failed to pull image {image:?}: {e}");
            record(warning("Failed", &text));
        }
        failed
    }

    fn lock(&self) -> MutexGuard<'_, BackOff> {
        self.back_off.locked()
    }
}

fn hold_back(image: &str, held: Held, record: &mut dyn FnMut(ImageEvent)) -> EnsureError {
    let text = format!("Back-off pulling image {image:?}");
    let message = format!("{text}: {}", held.error);
    record(normal("BackOff", text));
    EnsureError {
        retry_at: Some(held.retry_at),
        ..error(ImageWaitReason::ImagePullBackOff, message)
    }
}

/// Formats the time between two moments as Go writes a duration, in whole milliseconds.
fn took(from: Moment, to: Moment) -> String {
    let milliseconds = u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX);
    go_duration(Duration::from_millis(milliseconds))
}

/// Returns the event text for an image that is present. The text is that of present kubelets, which also check whether
/// the pod may use the image.
fn present_on_machine(image: &str) -> String {
    format!("Container image {image:?} already present on machine and can be accessed by the pod")
}

fn pull_error(image: &str, e: &PullError) -> EnsureError {
    match e {
        PullError::RegistryUnavailable(why) => error(
            ImageWaitReason::RegistryUnavailable,
            format!("image pull failed for {image} because the registry is unavailable: {why}"),
        ),
        PullError::Failed(why) => error(ImageWaitReason::ErrImagePull, why.clone()),
        PullError::Cancelled => error(ImageWaitReason::ErrImagePull, e.to_string()),
    }
}

fn error(reason: ImageWaitReason, message: String) -> EnsureError {
    EnsureError {
        reason,
        message,
        retry_at: None,
    }
}

fn normal(reason: &'static str, message: String) -> ImageEvent {
    ImageEvent {
        warning: false,
        reason,
        message,
    }
}

fn warning(reason: &'static str, message: &str) -> ImageEvent {
    ImageEvent {
        warning: true,
        reason,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides() {
        for (policy, decided) in [
            ("Always", [true, false, true]),
            ("IfNotPresent", [false, false, true]),
            ("Never", [false, false, false]),
        ] {
            let policy = PullPolicy::named(policy);
            let states = [Present::Pulled, Present::Loaded, Present::Missing];
            assert_eq!(
                states.map(|p| should_pull(policy, p)),
                decided,
                "{policy:?}"
            );
        }
    }

    #[test]
    fn pulls_that_run_count_unless_their_number_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = crate::engine::images::ImageStore::open(directory.path().into()).unwrap();
        let manager = ImageManager::new(Arc::new(store), Box::new(NoRegistry));
        // The second question ends the wait.
        let is_free = || {
            let asked = std::cell::Cell::new(false);
            manager.slot(&|| asked.replace(true)).is_ok()
        };
        let running = manager.slot(&|| false).unwrap();
        manager.set_parallel(Parallel::Serial);
        assert!(!is_free(), "a second pull would run beside the first");
        manager.set_parallel(Parallel::Unlimited);
        assert!(is_free());
        drop(running);
    }
}
