//! What the node adds to upstream's rules: no surge, a pod that does not fit, images that must be pulled first.

use std::time::Duration;

use jiff::Timestamp;

use super::world::{File, World, check_sizes};
use crate::api::workload::IntOrPercent;
use crate::workloads::deployment::{
    AVAILABLE, ImagesState, PROGRESSING, SURGE_LOWERED, SurgeAllowance, SurgeReason,
};
use crate::workloads::observed::later;

fn no_surge() -> SurgeAllowance {
    SurgeAllowance::None {
        reason: SurgeReason::HostPort,
        message: "hostPort 80 is held by the old pod".into(),
    }
}

fn pulling(progressed_at: Option<Timestamp>) -> ImagesState {
    ImagesState::Pulling { progressed_at }
}

fn failed(message: &str) -> ImagesState {
    ImagesState::Failed {
        message: message.into(),
        progressed_at: None,
    }
}

/// A Deployment whose template is new.
fn edited(file: File) -> World {
    let mut world = World::rolled_out(file);
    world.edit(|file| file.template = "b".into());
    world
}

#[test]
fn without_surge_the_old_pod_goes_first_and_its_place_must_be_free() {
    let mut world = edited(File::default());
    world.node.surge = no_surge();
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 0)]);
    // The new pod waits until the old one has gone (workloads 3.24), and the gap is told.
    assert_eq!(world.reason(AVAILABLE), "MinimumReplicasUnavailable");
    world.serve("b");
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    world.roll_out();
    let condition = world.status().condition(SURGE_LOWERED).unwrap();
    assert_eq!(condition.reason, "HostPort");
    assert_eq!(
        condition.message,
        "maxSurge 1 is lowered to 0: hostPort 80 is held by the old pod"
    );
    world.node.surge = SurgeAllowance::AsWritten;
    world.settle();
    assert_eq!(world.status().condition(SURGE_LOWERED), None);
}

#[test]
fn without_surge_one_pod_after_the_other_is_replaced() {
    let mut world = edited(File {
        replicas: 3,
        ..File::default()
    });
    world.node.surge = SurgeAllowance::None {
        reason: SurgeReason::NoRoom,
        message: "no memory for both".into(),
    };
    world.settle();
    check_sizes(&world, &[("a", 2), ("b", 0)]);
    assert_eq!(world.reason(SURGE_LOWERED), "NoRoomForSurge");
    world.serve("none");
    world.settle();
    check_sizes(&world, &[("a", 2), ("b", 1)]);
    world.serve("b");
    world.settle();
    check_sizes(&world, &[("a", 1), ("b", 1)]);
    world.roll_out();
}

#[test]
fn a_surge_of_0_in_the_file_is_not_lowered() {
    let mut world = edited(File {
        surge: IntOrPercent::Int(0),
        unavailable: IntOrPercent::Int(1),
        ..File::default()
    });
    world.node.surge = no_surge();
    world.settle();
    assert_eq!(world.status().condition(SURGE_LOWERED), None);
}

#[test]
fn a_pod_that_does_not_fit_costs_no_old_pod() {
    for recreate in [false, true] {
        let mut world = edited(File {
            replicas: 4,
            unavailable: IntOrPercent::Int(1),
            recreate,
            ..File::default()
        });
        world.node.surge = SurgeAllowance::DoesNotFit("Insufficient memory".into());
        world.settle();
        check_sizes(&world, &[("a", 4), ("b", 0)]);
        let condition = world.status().condition(PROGRESSING).unwrap().clone();
        assert_eq!(
            (&*condition.status, &*condition.reason),
            ("False", "DoesNotFit")
        );
        assert_eq!(condition.message, "Insufficient memory");
        // The deadline goes on.
        world.pass(601);
        world.settle();
        assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
        check_sizes(&world, &[("a", 4), ("b", 0)]);
        world.node.surge = SurgeAllowance::AsWritten;
        world.roll_out();
        check_sizes(&world, &[("a", 0), ("b", 4)]);
    }
}

#[test]
fn a_pod_that_fits_again_has_the_whole_deadline() {
    let mut world = edited(File::default());
    world.node.surge = SurgeAllowance::DoesNotFit("Insufficient memory".into());
    world.settle();
    world.pass(599);
    world.node.surge = SurgeAllowance::AsWritten;
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ReplicaSetUpdated");
    world.pass(599);
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ReplicaSetUpdated");
}

#[test]
fn the_first_pods_are_made_even_if_they_do_not_fit() {
    let mut world = World::new(File::default());
    world.node.surge = SurgeAllowance::DoesNotFit("Insufficient memory".into());
    world.settle();
    check_sizes(&world, &[("a", 1)]);
    assert_eq!(world.reason(PROGRESSING), "DoesNotFit");
}

#[test]
fn no_old_pod_ends_before_the_images_are_there() {
    let mut world = edited(File {
        replicas: 4,
        surge: IntOrPercent::Int(1),
        unavailable: IntOrPercent::Int(1),
        ..File::default()
    });
    world.node.images = pulling(None);
    world.settle();
    check_sizes(&world, &[("a", 4), ("b", 1)]);
    // Not even a broken one.
    let old = world.state.sets[0].name.clone();
    world.pods.get_mut(&old).unwrap()[0].is_ready = false;
    world.settle();
    check_sizes(&world, &[("a", 4), ("b", 1)]);
    world.node.images = ImagesState::Ready;
    world.settle();
    assert_eq!(world.sizes()["a"], 3);
}

#[test]
fn recreate_and_no_surge_wait_for_images_too() {
    for recreate in [false, true] {
        let mut world = edited(File {
            replicas: 2,
            recreate,
            ..File::default()
        });
        world.node.surge = no_surge();
        world.node.images = pulling(None);
        world.settle();
        check_sizes(&world, &[("a", 2), ("b", 0)]);
        assert_eq!(world.reason(PROGRESSING), "NewReplicaSetCreated");
        world.node.images = ImagesState::Ready;
        world.roll_out();
        check_sizes(&world, &[("a", 0), ("b", 2)]);
    }
}

#[test]
fn images_do_not_matter_once_all_new_pods_are_available() {
    let mut world = edited(File::default());
    world.settle();
    world.serve("b");
    world.node.images = pulling(None);
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
}

#[test]
fn a_failed_pull_is_told_and_the_deadline_goes_on() {
    let mut world = edited(File::default());
    world.node.images = failed("no such image");
    world.settle();
    let condition = world.status().condition(PROGRESSING).unwrap().clone();
    assert_eq!(
        (&*condition.status, &*condition.reason),
        ("False", "ImagePull")
    );
    assert_eq!(condition.message, "no such image");
    world.node.images = failed("no network");
    world.settle();
    assert_eq!(
        world.status().condition(PROGRESSING).unwrap().message,
        "no network"
    );
    world.pass(601);
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
    check_sizes(&world, &[("a", 1), ("b", 1)]);
}

#[test]
fn a_node_that_takes_no_pods_makes_no_rollout_late() {
    let mut world = edited(File::default());
    world.settle();
    world.pass(500);
    world.node.is_closed = true;
    world.settle();
    for _ in 0..3 {
        world.pass(601);
        world.settle();
        check_late(&world, false);
    }
    // The pods have the whole deadline afterwards.
    world.node.is_closed = false;
    world.settle();
    world.pass(600);
    world.settle();
    check_late(&world, false);
    world.pass(1);
    world.settle();
    check_late(&world, true);
}

/// The first look at a closed node may come after the deadline.
#[test]
fn a_node_that_was_closed_before_the_deadline_is_looked_at_later() {
    let mut world = edited(File::default());
    world.settle();
    world.node.is_closed = true;
    world.pass(1000);
    world.settle();
    check_late(&world, false);
    world.node.is_closed = false;
    world.pass(600);
    world.settle();
    check_late(&world, false);
}

#[test]
fn without_a_deadline_a_failed_pull_is_told_all_the_same() {
    let mut world = edited(File {
        deadline: i32::MAX,
        ..File::default()
    });
    world.node.images = failed("no such image");
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ImagePull");
    world.pass(10_000);
    assert!(!world.look().is_changed);
    world.node.images = ImagesState::Ready;
    world.settle();
    assert_eq!(world.status().condition(PROGRESSING), None);
}

/// Sees the images at a time after the beginning of the rollout.
fn see(world: &mut World, begin: Timestamp, second: u64, images: ImagesState) {
    world.now = later(begin, Duration::from_secs(second));
    world.node.images = images;
    world.settle();
}

#[track_caller]
fn check_late(world: &World, expected: bool) {
    let is_late = world.reason(PROGRESSING) == "ProgressDeadlineExceeded";
    assert_eq!(
        is_late,
        expected,
        "{:?}",
        world.status().condition(PROGRESSING)
    );
}

#[test]
fn a_pull_that_gets_on_does_not_count_against_the_deadline() {
    let mut world = edited(File::default());
    let begin = world.now;
    let at = |second| Some(later(begin, Duration::from_secs(second)));
    see(&mut world, begin, 0, pulling(None));
    see(&mut world, begin, 601, pulling(at(500)));
    check_late(&world, false);
    // 500 s are left out, so the deadline is at 1,100.
    let wake_at = world.look().wake_at.unwrap();
    assert_eq!(wake_at.as_second(), at(1_100).unwrap().as_second());
    see(&mut world, begin, 1_100, pulling(at(500)));
    check_late(&world, false);
    see(&mut world, begin, 1_101, pulling(at(500)));
    check_late(&world, true);
}

#[test]
fn the_time_between_two_pulls_counts() {
    let mut world = edited(File::default());
    let begin = world.now;
    let at = |second| Some(later(begin, Duration::from_secs(second)));
    see(&mut world, begin, 0, pulling(None));
    see(&mut world, begin, 100, pulling(at(100)));
    see(
        &mut world,
        begin,
        150,
        ImagesState::Failed {
            message: "broken layer".into(),
            progressed_at: at(140),
        },
    );
    // 140 s are left out. The next pull begins at 450 and gets on until 460.
    see(&mut world, begin, 450, pulling(at(140)));
    see(&mut world, begin, 470, pulling(at(460)));
    see(&mut world, begin, 750, pulling(at(460)));
    check_late(&world, false);
    see(&mut world, begin, 751, pulling(at(460)));
    check_late(&world, true);
}

#[test]
fn pods_have_the_whole_deadline_when_their_images_have_come() {
    let mut world = edited(File::default());
    let begin = world.now;
    see(&mut world, begin, 0, pulling(None));
    see(&mut world, begin, 599, ImagesState::Ready);
    see(&mut world, begin, 1_199, ImagesState::Ready);
    check_late(&world, false);
    see(&mut world, begin, 1_200, ImagesState::Ready);
    check_late(&world, true);
}
