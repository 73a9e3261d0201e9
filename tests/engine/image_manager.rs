//! The image manager on a real store, with a registry that the test imitates.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use podprobe::base::clock::Moment;
use podprobe::engine::images::manager::{
    EnsureError, ImageEvent, ImageManager, ImageRequest, ImageService, ImageWaitReason, NoRegistry,
    PullError, PullPolicy, PullRequest, Puller,
};
use podprobe::engine::images::registry::PullProgress;
use podprobe::engine::images::{
    Image, ImageConfig, ImageError, ImageStore, ImagesInUse, PullStage, Reference,
};

use crate::support::skip::is_root;

/// The images of a store, of which those that were pulled are known by name.
struct Images {
    store: ImageStore,
    pulled: Arc<Mutex<BTreeSet<String>>>,
}

impl ImageService for Images {
    fn image(&self, reference: &str) -> Result<Image, ImageError> {
        let image = self.store.resolve(reference)?;
        let pulled = self.pulled.lock().unwrap().contains(&image.name);
        Ok(Image { pulled, ..image })
    }
}

/// Serves images of quay.io; each pull takes two seconds of the test's clock and ends as the next of `outcomes` says.
struct FakeRegistry {
    store: ImageStore,
    root: PathBuf,
    now: Arc<Mutex<Moment>>,
    outcomes: Mutex<VecDeque<Result<u64, PullError>>>,
    pulled: Arc<Mutex<BTreeSet<String>>>,
}

impl Puller for FakeRegistry {
    fn serves(&self, image: &Reference) -> bool {
        image.repository.starts_with("quay.io/")
    }

    fn pull(&self, request: &PullRequest<'_>, _: &Arc<PullProgress>) -> Result<u64, PullError> {
        let name = request.image.to_string();
        let mut now = self.now.lock().unwrap();
        *now = *now + Duration::from_secs(2);
        let outcome = self.outcomes.lock().unwrap().pop_front();
        let size = outcome.expect("no pull is expected")?;
        import(&self.store, &self.root, &name);
        self.pulled.lock().unwrap().insert(name);
        Ok(size)
    }
}

fn import(store: &ImageStore, root: &std::path::Path, name: &str) {
    store.import(root, name, ImageConfig::default()).unwrap();
}

/// A manager with a clock of its own.
struct Managed {
    dir: tempfile::TempDir,
    store: ImageStore,
    manager: ImageManager,
    now: Arc<Mutex<Moment>>,
}

impl Managed {
    fn new(outcomes: impl IntoIterator<Item = Result<u64, PullError>>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("f"), "x").unwrap();
        let store = ImageStore::open(dir.path().join("store")).unwrap();
        let now = Arc::new(Mutex::new(Moment::from_boot(Duration::from_secs(1000))));
        let registry = FakeRegistry {
            store: store.clone(),
            root,
            now: now.clone(),
            outcomes: Mutex::new(outcomes.into_iter().collect()),
            pulled: Arc::default(),
        };
        let images = Images {
            store: store.clone(),
            pulled: registry.pulled.clone(),
        };
        let manager = ImageManager::new(Arc::new(images), Box::new(registry));
        Self {
            dir,
            store,
            manager,
            now,
        }
    }

    fn import(&self, name: &str) {
        import(&self.store, &self.dir.path().join("root"), name);
    }

    fn ensure(&self, image: &str, policy: &str) -> (Result<Image, EnsureError>, Vec<ImageEvent>) {
        let mut events = Vec::new();
        let request = ImageRequest {
            pod_uid: "uid",
            image,
            policy: PullPolicy::named(policy),
            credentials: &[],
            cancelled: &|| false,
        };
        let clock = || *self.now.lock().unwrap();
        let result = self
            .manager
            .ensure(request, &clock, &mut |e| events.push(e));
        (result, events)
    }

    /// Reason and beginning of the message of the error, None for an image; `Type Reason: message` of each event, as far
    /// as it is given.
    #[track_caller]
    fn check(&self, image: &str, policy: &str, error: Option<(&str, &str)>, events: &[&str]) {
        let (result, recorded) = self.ensure(image, policy);
        match (&result, error) {
            (Ok(_), None) => {}
            (Err(e), Some((reason, message))) => {
                assert_eq!(e.reason.as_str(), reason);
                assert!(e.message.starts_with(message), "{}", e.message);
                assert_eq!(e.retry_at.is_some(), reason == "ImagePullBackOff");
            }
            _ => panic!("{result:?}"),
        }
        let recorded: Vec<String> = recorded
            .into_iter()
            .map(|e| {
                let kind = if e.warning { "Warning" } else { "Normal" };
                format!("{kind} {}: {}", e.reason, e.message)
            })
            .collect();
        assert_eq!(recorded.len(), events.len(), "{recorded:?}");
        for (have, want) in recorded.iter().zip(events) {
            assert!(have.starts_with(want), "{have}");
        }
    }

    fn wait(&self, seconds: u64) {
        let mut now = self.now.lock().unwrap();
        *now = *now + Duration::from_secs(seconds);
    }
}

const PRESENT: &str = r#"Normal Pulled: Container image "app:1" already present on machine and can be accessed by the pod"#;

#[test]
fn without_a_registry_an_image_is_used_when_it_is_there() {
    if !is_root() {
        return;
    }
    let m = Managed::new([]);
    let missing = r#"cannot find image "app:1" on this node"#;
    let warning = format!("Warning ErrImageNeverPull: {missing}");
    for policy in ["Always", "IfNotPresent"] {
        let error = Some(("ErrImageNeverPull", missing));
        m.check("app:1", policy, error, &[&warning]);
    }
    let never = r#"Container image "app:1" is not present with pull policy of Never"#;
    let warning = format!("Warning ErrImageNeverPull: {never}");
    let error = Some(("ErrImageNeverPull", never));
    m.check("app:1", "Never", error, &[&warning]);
    m.import("app:1");
    for policy in ["Always", "IfNotPresent", "Never"] {
        m.check("app:1", policy, None, &[PRESENT]);
    }
    let nothing = ImageManager::new(Arc::new(m.store.clone()), Box::new(NoRegistry));
    let request = ImageRequest {
        pod_uid: "uid",
        image: "quay.io/a:1",
        policy: PullPolicy::Always,
        credentials: &[],
        cancelled: &|| false,
    };
    let error = nothing.ensure(request, &Moment::now, &mut |_| {});
    assert_eq!(
        error.unwrap_err().reason,
        ImageWaitReason::ErrImageNeverPull
    );
}

#[test]
fn whoever_hears_an_event_finds_the_pull_as_it_is_then() {
    if !is_root() {
        return;
    }
    let m = Managed::new([Err(PullError::Failed("no".into())), Ok(1)]);
    let clock = || *m.now.lock().unwrap();
    let seen = || {
        let mut seen = Vec::new();
        let request = ImageRequest {
            pod_uid: "uid",
            image: "quay.io/a:1",
            policy: PullPolicy::IfNotPresent,
            credentials: &[],
            cancelled: &|| false,
        };
        let _ = m.manager.ensure(request, &clock, &mut |e| {
            let pulls = m.manager.pulls_of("uid", clock());
            assert!(pulls.iter().all(|p| p.image == "quay.io/a:1"));
            let stages = pulls.into_iter().map(|p| match p.stage {
                PullStage::Queued { .. } => "queued",
                PullStage::Pulling { .. } => "pulling",
                PullStage::BackOff { .. } => "back-off",
            });
            seen.push((e.reason, stages.collect::<Vec<_>>()));
        });
        seen
    };
    let failed = [("Pulling", vec!["queued"]), ("Failed", vec!["back-off"])];
    assert_eq!(seen(), failed);
    assert_eq!(seen(), [("BackOff", vec!["back-off"])]);
    assert!(m.manager.pulls_of("another", clock()).is_empty());
    m.wait(10);
    assert_eq!(seen(), [("Pulling", vec!["queued"]), ("Pulled", vec![])]);
    assert!(m.manager.pulls_to_tell(clock()).is_empty());
}

#[test]
fn names_that_are_none_and_images_that_are_damaged_are_told_apart() {
    if !is_root() {
        return;
    }
    let m = Managed::new([]);
    let bad = r#"Failed to apply default image tag "UP": cannot parse image name"#;
    let warning = format!("Warning InspectFailed: {bad}");
    m.check("UP", "Never", Some(("InvalidImageName", bad)), &[&warning]);
    m.import("app:1");
    let layers = m.store.resolve("app:1").unwrap().layers;
    fs::remove_dir_all(&layers[0]).unwrap();
    let bad = r#"Failed to inspect image "app:1": cannot use image sha256:"#;
    let warning = format!("Warning InspectFailed: {bad}");
    let error = Some(("ImageInspectError", bad));
    m.check("app:1", "Never", error, &[&warning]);
}

#[test]
fn pulls_follow_the_policy() {
    if !is_root() {
        return;
    }
    let m = Managed::new([Ok(1234), Ok(5)]);
    let never = "Container image \"quay.io/a:1\" is not present with pull policy of Never";
    let warning = format!("Warning ErrImageNeverPull: {never}");
    let error = Some(("ErrImageNeverPull", never));
    m.check("quay.io/a:1", "Never", error, &[&warning]);
    let pulled = |size| {
        format!(
            "Normal Pulled: Successfully pulled image \"quay.io/a:1\" in 2s (2s including waiting). Image size: {size} bytes."
        )
    };
    let pulling = "Normal Pulling: Pulling image \"quay.io/a:1\"";
    m.check(
        "quay.io/a:1",
        "IfNotPresent",
        None,
        &[pulling, &pulled(1234)],
    );
    let present = PRESENT.replace("app:1", "quay.io/a:1");
    m.check("quay.io/a:1", "IfNotPresent", None, &[&present]);
    m.check("quay.io/a:1", "Never", None, &[&present]);
    m.check("quay.io/a:1", "Always", None, &[pulling, &pulled(5)]);
}

#[test]
fn a_failed_pull_is_tried_again_after_its_back_off() {
    if !is_root() {
        return;
    }
    let failed = Err(PullError::Failed("401 Unauthorized".into()));
    let gone = Err(PullError::RegistryUnavailable("no route".into()));
    let m = Managed::new([failed, gone, Ok(1)]);
    let check = |error, events: &[&str]| m.check("quay.io/a:1", "IfNotPresent", error, events);
    let pulling = "Normal Pulling: ";
    let warning = "Warning Failed: Failed to pull image \"quay.io/a:1\": 401 Unauthorized";
    check(
        Some(("ErrImagePull", "401 Unauthorized")),
        &[pulling, warning],
    );
    let held = "Back-off pulling image \"quay.io/a:1\"";
    let back_off = format!("Normal BackOff: {held}");
    let message = format!("{held}: ErrImagePull: 401 Unauthorized");
    check(Some(("ImagePullBackOff", &message)), &[&back_off]);
    m.wait(9);
    check(Some(("ImagePullBackOff", &message)), &[&back_off]);
    m.wait(1);
    let message = "image pull failed for quay.io/a:1 because the registry is unavailable: no route";
    let warning =
        "Warning Failed: Failed to pull image \"quay.io/a:1\": RegistryUnavailable: no route";
    check(Some(("RegistryUnavailable", message)), &[pulling, warning]);
    m.wait(19);
    let message = format!("{held}: RegistryUnavailable: {message}");
    check(Some(("ImagePullBackOff", &message)), &[&back_off]);
    // Somebody loads it meanwhile: the back-off does not hold back an image that is there.
    m.import("quay.io/a:1");
    check(None, &["Normal Pulled: Container image"]);
    m.store
        .remove("quay.io/a:1", &ImagesInUse::default)
        .unwrap();
    m.wait(1);
    check(None, &[pulling, "Normal Pulled: Successfully pulled"]);
}

#[test]
fn what_was_loaded_by_hand_is_never_pulled_anew() {
    if !is_root() {
        return;
    }
    let m = Managed::new([]);
    m.import("quay.io/a:1");
    let present = PRESENT.replace("app:1", "quay.io/a:1");
    for policy in ["Always", "IfNotPresent", "Never"] {
        m.check("quay.io/a:1", policy, None, &[&present]);
    }
}

#[test]
fn a_pulled_image_is_used_while_its_registry_cannot_be_reached() {
    if !is_root() {
        return;
    }
    let gone = || Err(PullError::RegistryUnavailable("no route".into()));
    let refused = Err(PullError::Failed("401 Unauthorized".into()));
    let m = Managed::new([Ok(1), gone(), refused]);
    let check = |error, events: &[&str]| m.check("quay.io/a:1", "Always", error, events);
    let pulling = "Normal Pulling: ";
    check(None, &[pulling, "Normal Pulled: Successfully pulled"]);
    let failed =
        "Warning Failed: Failed to pull image \"quay.io/a:1\": RegistryUnavailable: no route";
    let used = "Normal Pulled: Container image \"quay.io/a:1\" already present on machine; its registry cannot be reached";
    check(None, &[pulling, failed, used]);
    // during the back-off it is not asked again
    check(None, &[used]);
    m.wait(10);
    let refused = "Warning Failed: Failed to pull image \"quay.io/a:1\": 401 Unauthorized";
    let error = Some(("ErrImagePull", "401 Unauthorized"));
    check(error, &[pulling, refused]);
}

#[test]
fn a_cancelled_pull_is_no_failure() {
    if !is_root() {
        return;
    }
    let m = Managed::new([Err(PullError::Cancelled), Ok(1)]);
    let check = |error, events: &[&str]| m.check("quay.io/a:1", "IfNotPresent", error, events);
    let error = Some(("ErrImagePull", "the pull was cancelled"));
    check(error, &["Normal Pulling: "]);
    check(
        None,
        &["Normal Pulling: ", "Normal Pulled: Successfully pulled"],
    );
}

#[test]
fn pulls_are_counted_by_how_they_end() {
    let unavailable = PullError::RegistryUnavailable("no route".into());
    let m = Managed::new([Err(unavailable), Err(PullError::Failed("no".into())), Ok(7)]);
    for image in ["quay.io/a/b", "quay.io/a/c", "quay.io/a/d"] {
        let _ = m.ensure(image, "IfNotPresent");
    }
    let _ = m.ensure("quay.io/a/d", "IfNotPresent");
    let mut text = String::new();
    m.manager.metrics().write(&mut text);
    for line in [
        "podprobe_image_pulls_total{result=\"success\"} 1",
        "podprobe_image_pulls_total{result=\"failed\"} 1",
        "podprobe_image_pulls_total{result=\"registry_unavailable\"} 1",
        "podprobe_image_pull_duration_seconds_sum 2",
        "podprobe_registry_errors_total{reason=\"unavailable\",registry=\"quay.io\"} 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
}
