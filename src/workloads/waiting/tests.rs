use super::*;
use crate::workloads::deployment::OnDeadline;
use crate::workloads::deployment::SurgeReason;
use crate::workloads::deployment::tests::world::{File, World, image};

/// A Deployment of two pods whose template is new, 40 s after the beginning of its rollout.
fn rollout(change: impl FnOnce(&mut World)) -> World {
    let mut world = World::rolled_out(File {
        replicas: 2,
        ..File::default()
    });
    world.edit(|file| file.template = "b".into());
    change(&mut world);
    world.settle();
    world.pass(40);
    world
}

fn sentence(world: &mut World) -> Option<String> {
    let current = image(&world.spec().template.written);
    let sets = world.state.sets.clone();
    let old = sets.iter().filter(|set| image(&set.template) != current);
    // Names of sets are hashes: tests need not know them.
    let pods = old.flat_map(|set| world.pods_of(&set.name)).enumerate();
    let (ending, kept): (Vec<_>, Vec<_>) = pods
        .map(|(number, pod)| (format!("web-{number}"), pod.is_deleted))
        .partition(|(_, is_deleted)| *is_deleted);
    let kept: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
    let ending: Vec<&str> = ending.iter().map(|(name, _)| name.as_str()).collect();
    let old = OldPods {
        kept: &kept,
        ending: &ending,
    };
    world.with_input(|input, state| waiting(input, state, old))
}

#[track_caller]
fn check(mut world: World, expected: &str) {
    assert_eq!(sentence(&mut world).as_deref(), Some(expected));
}

#[test]
fn a_complete_deployment_waits_for_nothing() {
    let mut world = World::rolled_out(File::default());
    assert_eq!(sentence(&mut world), None);
}

#[test]
fn a_rollout_waits_for_new_pods_and_keeps_old_ones() {
    let world = rollout(|_| {});
    check(
        world,
        "0 of 2 new pods ready for 40 s of 600 s; old pods web-0, web-1 kept",
    );
    let mut world = rollout(|_| {});
    world.serve("b");
    world.settle();
    world.pass(40);
    let expected =
        "1 of 2 new pods ready for 40 s of 600 s; old pod web-1 kept; old pod web-0 is ending";
    check(world, expected);
    let world = rollout(|world| world.edit(|file| file.min_ready = 5));
    check(
        world,
        "0 of 2 new pods available for 40 s of 600 s; old pods web-0, web-1 kept",
    );
    let world = rollout(|world| world.edit(|file| file.deadline = i32::MAX));
    check(world, "0 of 2 new pods ready; old pods web-0, web-1 kept");
}

#[test]
fn many_old_pods_are_counted() {
    let mut world = World::rolled_out(File {
        replicas: 5,
        unavailable: crate::api::workload::IntOrPercent::Int(0),
        ..File::default()
    });
    world.edit(|file| file.template = "b".into());
    world.settle();
    let expected =
        "0 of 5 new pods ready for 0 s of 600 s; old pods web-0, web-1, web-2 and 2 more kept";
    check(world, expected);
}

#[test]
fn the_node_says_what_it_has_against_a_new_pod() {
    let rest = "0 of 2 new pods ready for 40 s of 600 s; old pods web-0, web-1 kept";
    let with = |change: fn(&mut World), words: &str| {
        check(rollout(change), &format!("{words}; {rest}"));
    };
    with(
        |world| world.node.surge = SurgeAllowance::DoesNotFit("Insufficient memory".into()),
        "a new pod does not fit: Insufficient memory",
    );
    with(
        |world| {
            world.node.images = ImagesState::Failed {
                message: "no such image".into(),
                progressed_at: None,
            };
        },
        "images of the new pods cannot be pulled: no such image",
    );
    with(
        |world| {
            world.node.images = ImagesState::Pulling {
                progressed_at: None,
            }
        },
        "images of the new pods are being pulled",
    );
    with(
        |world| {
            let progressed_at = world
                .now
                .checked_add(jiff::SignedDuration::from_secs(37))
                .ok();
            world.node.images = ImagesState::Pulling { progressed_at };
        },
        "images of the new pods are being pulled, last progress 3 s ago",
    );
}

#[test]
fn a_lowered_surge_is_told_with_its_reason() {
    let world = rollout(|world| {
        world.node.surge = SurgeAllowance::None {
            reason: SurgeReason::HostPort,
            message: "hostPort 80 is held by the old pod".into(),
        };
    });
    check(
        world,
        "surge 1 lowered to 0: hostPort 80 is held by the old pod; 0 of 2 new pods ready for 40 s of 600 s; old pod web-1 kept; old pod web-0 is ending",
    );
}

#[test]
fn recreate_says_that_it_waits_for_old_pods() {
    let world = rollout(|world| world.edit(|file| file.recreate = true));
    check(
        world,
        "new pods wait until old ones have ended; 0 of 2 new pods ready for 40 s of 600 s; old pods web-0, web-1 are ending",
    );
}

#[test]
fn a_pause_is_told_with_its_time() {
    let world = rollout(|world| world.edit(|file| file.paused = true));
    check(
        world,
        "paused for 40 s: a new template waits for rollout resume",
    );
}

#[test]
fn a_rollback_is_told_even_when_it_is_complete() {
    let mut world = rollout(|world| world.on_deadline = OnDeadline::Rollback);
    world.pass(600);
    world.roll_out();
    check(
        world,
        "revision 2 made no progress and was rolled back to revision 1: change the template in the file, or use rollout retry",
    );
}

fn status(world: &mut World, revision: i64) -> Result<RolloutStatus, RolloutError> {
    let replicas = world.spec().replicas;
    rollout_status("web", replicas, world.generation, &world.state, revision)
}

#[track_caller]
fn check_status(world: &mut World, text: &str, is_done: bool) {
    let expected = RolloutStatus {
        text: text.into(),
        is_done,
    };
    assert_eq!(status(world, 0), Ok(expected));
}

#[test]
fn rollout_status_has_kubectls_texts() {
    let mut world = World::rolled_out(File {
        replicas: 2,
        ..File::default()
    });
    check_status(
        &mut world,
        "deployment \"web\" successfully rolled out",
        true,
    );
    world.edit(|file| file.template = "b".into());
    check_status(
        &mut world,
        "Waiting for deployment spec update to be observed...",
        false,
    );
    world.settle();
    let to_finish = "Waiting for deployment \"web\" rollout to finish: ";
    let one = format!("{to_finish}1 out of 2 new replicas have been updated...");
    check_status(&mut world, &one, false);
    world.serve("b");
    world.settle();
    let old = format!("{to_finish}1 old replicas are pending termination...");
    check_status(&mut world, &old, false);
    world.roll_out();
    world
        .pods
        .values_mut()
        .flatten()
        .for_each(|pod| pod.is_ready = false);
    world.settle();
    let available = format!("{to_finish}0 of 2 updated replicas are available...");
    check_status(&mut world, &available, false);
}

#[test]
fn rollout_status_fails_after_the_deadline_and_after_a_rollback() {
    let mut world = rollout(|_| {});
    world.pass(600);
    world.settle();
    let error = status(&mut world, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "deployment \"web\" exceeded its progress deadline"
    );
    world.on_deadline = OnDeadline::Rollback;
    world.roll_out();
    let error = status(&mut world, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "deployment \"web\" exceeded its progress deadline with revision 2 and was rolled back to revision 1"
    );
}

#[test]
fn rollout_status_of_another_revision_is_an_error() {
    let mut world = World::rolled_out(File::default());
    assert!(status(&mut world, 1).is_ok());
    let error = status(&mut world, 2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "desired revision (2) is different from the running revision (1)"
    );
}

#[test]
fn a_first_revision_that_is_late_has_nothing_to_go_back_to() {
    let mut world = World::new(File::default());
    world.on_deadline = OnDeadline::Rollback;
    world.settle();
    world.pass(601);
    world.settle();
    let said = sentence(&mut world).unwrap();
    let expected = "the deadline is over, and no earlier revision was complete that it could be rolled back to; 0 of ";
    assert!(said.starts_with(expected), "{said}");
    world.on_deadline = OnDeadline::Report;
    let said = sentence(&mut world).unwrap();
    assert!(said.starts_with("0 of "), "{said}");
}
