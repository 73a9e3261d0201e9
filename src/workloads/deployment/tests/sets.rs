//! Names, revisions and history of sets, and the parts of upstream that no vector shows.

use std::collections::BTreeMap;

use super::world::{File, World, check_mode, check_sizes, image};
use crate::api::workload::IntOrPercent;
use crate::workloads::deployment::{
    AVAILABLE, Action, DeploymentInput, DeploymentState, Mode, PROGRESSING, step,
};
use crate::workloads::names::{set_name, template_hash};
use crate::workloads::revisions::CHANGE_CAUSE;

fn file(replicas: i32) -> File {
    File {
        replicas,
        ..File::default()
    }
}

#[test]
fn a_second_step_with_the_same_input_changes_nothing() {
    let mut world = World::rolled_out(file(2));
    let outcome = world.look();
    assert_eq!(outcome.state, world.state);
    assert!(!outcome.is_changed && outcome.events.is_empty());
    assert_eq!(outcome.wake_at, None);
    world.edit(|file| file.template = "b".into());
    let outcome = world.step();
    assert_eq!(outcome.wake_at, Some(world.now));
    let again = world.settle();
    assert_eq!(again.events, []);
}

#[test]
fn the_texts_of_conditions_and_events_are_upstreams() {
    let mut world = World::new(file(1));
    let outcome = world.step();
    let name = world.state.sets[0].name.clone();
    let message = |world: &World, type_| world.status().condition(type_).unwrap().message.clone();
    assert_eq!(
        message(&world, PROGRESSING),
        format!("Created new replica set \"{name}\"")
    );
    assert_eq!(
        message(&world, AVAILABLE),
        "Deployment does not have minimum availability."
    );
    let event = format!("Scaled up replica set {name} from 0 to 1");
    assert_eq!(outcome.events[0].message, event);
    world.step();
    assert_eq!(
        message(&world, PROGRESSING),
        format!("ReplicaSet \"{name}\" is progressing.")
    );
    world.serve("a");
    world.step();
    assert_eq!(
        message(&world, AVAILABLE),
        "Deployment has minimum availability."
    );
    assert_eq!(
        message(&world, PROGRESSING),
        format!("ReplicaSet \"{name}\" has successfully progressed.")
    );
    world.edit(|file| file.template = "b".into());
    world.settle();
    world.pass(601);
    world.settle();
    let name = &world.state.sets[1].name;
    assert_eq!(
        message(&world, PROGRESSING),
        format!("ReplicaSet \"{name}\" has timed out progressing.")
    );
    world.edit(|file| file.replicas = 3);
    let outcome = world.step();
    check_mode(&outcome, Mode::Scale);
    assert!(
        outcome.events[0]
            .message
            .starts_with("Scaled up replica set "),
        "{outcome:?}"
    );
}

#[test]
fn a_name_that_is_taken_is_a_collision() {
    let hash = |count| {
        let mut world = World::new(file(1));
        world.with_input(|input, _| template_hash(input.canonical_template, count))
    };
    let mut world = World::new(file(1));
    world.taken_names = vec![
        set_name("web", &hash(None)),
        set_name("web", &hash(Some(1))),
    ];
    world.settle();
    assert_eq!(world.status().collision_count, Some(2));
    assert_eq!(world.state.sets[0].hash, hash(Some(2)));
    // A set of the Deployment itself that has the name of another template.
    let mut world = World::rolled_out(file(1));
    world.edit(|file| file.template = "b".into());
    let taken = world.with_input(|input, _| template_hash(input.canonical_template, None));
    world.state.sets[0].name = set_name("web", &taken);
    world.step();
    assert_eq!(world.status().collision_count, Some(1));
    assert_ne!(world.state.sets[0].name, world.state.sets[1].name);
}

#[test]
fn a_revision_is_taken_up_again_with_a_new_number() {
    let mut world = World::rolled_out(file(1));
    for template in ["b", "a"] {
        world.pass(10);
        world.edit(|file| file.template = template.into());
        world.roll_out();
    }
    check_sizes(&world, &[("a", 1), ("b", 0)]);
    let set = &world.state.sets[0];
    assert_eq!((set.revision, set.history.as_str()), (3, "1"));
    assert_eq!(world.state.revision, 3);
    assert_eq!(
        (world.state.max_revision(), world.state.last_revision()),
        (3, 2)
    );
}

#[test]
fn the_new_set_has_the_annotations_of_the_deployment() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| {
        file.annotations
            .insert(CHANGE_CAUSE.into(), "a new image".into());
    });
    let outcome = world.step();
    let set = world.state.sets[0].clone();
    assert_eq!(set.annotations[CHANGE_CAUSE], "a new image");
    assert_eq!(outcome.actions, [Action::Annotate { set: set.name }]);
    assert_eq!(set.revision, 1);
    // Old sets keep what they had.
    world.edit(|file| {
        file.template = "b".into();
        file.annotations
            .insert(CHANGE_CAUSE.into(), "another".into());
    });
    world.settle();
    assert_eq!(world.state.sets[0].annotations[CHANGE_CAUSE], "a new image");
    assert_eq!(world.state.sets[1].annotations[CHANGE_CAUSE], "another");
}

#[test]
fn old_sets_keep_their_min_ready_seconds() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| {
        file.template = "b".into();
        file.min_ready = 30;
    });
    world.settle();
    let seconds: Vec<i32> = world
        .state
        .sets
        .iter()
        .map(|set| set.min_ready_seconds)
        .collect();
    assert_eq!(seconds, [0, 30]);
    world.serve("b");
    let outcome = world.settle();
    let available_at = world
        .now
        .checked_add(jiff::SignedDuration::from_secs(30))
        .unwrap();
    assert_eq!(outcome.wake_at, Some(available_at));
    check_sizes(&world, &[("a", 1), ("b", 1)]);
    world.pass(30);
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
}

#[test]
fn a_set_with_pods_that_have_not_gone_stays_in_the_history() {
    let mut world = World::rolled_out(File {
        history: 0,
        ..file(1)
    });
    world.edit(|file| file.template = "b".into());
    world.settle();
    let now = world.now;
    let name = world.state.sets[1].name.clone();
    world
        .pods
        .get_mut(&name)
        .unwrap()
        .iter_mut()
        .for_each(|pod| World::make_ready(pod, now));
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    // It has ended, and is still on the node.
    let old = world.state.sets[0].name.clone();
    world.pods.get_mut(&old).unwrap()[0].phase = crate::api::PodPhase::Succeeded;
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    world.serve("b");
    let outcome = world.step();
    assert_eq!(outcome.actions, [Action::Delete { set: old }]);
    check_sizes(&world, &[("b", 1)]);
    assert!(world.is_complete());
}

#[test]
fn an_empty_selector_does_nothing() {
    let mut world = World::rolled_out(file(1));
    let outcome = world.with_input(|input, state| {
        let mut spec = input.spec.clone();
        spec.selector = Default::default();
        spec.replicas = 5;
        let generation = input.generation + 1;
        step(
            &DeploymentInput {
                spec: &spec,
                generation,
                ..input.clone()
            },
            state,
        )
    });
    check_mode(&outcome, Mode::SelectingAll);
    assert_eq!(outcome.events[0].reason, "SelectingAll");
    assert_eq!(outcome.status().observed_generation, 2);
    assert_eq!(outcome.state.sets, world.state.sets);
}

#[test]
fn a_deployment_that_is_being_deleted_only_has_its_status() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| file.replicas = 3);
    world.pods.values_mut().for_each(Vec::clear);
    let outcome = world.with_input(|input, state| {
        step(
            &DeploymentInput {
                is_deleted: true,
                ..input.clone()
            },
            state,
        )
    });
    check_mode(&outcome, Mode::Deleted);
    assert_eq!(outcome.actions, []);
    assert_eq!(outcome.status().replicas, 0);
}

#[test]
fn the_deadline_wakes_the_step_and_exactly_then_it_is_not_late() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| file.template = "b".into());
    let outcome = world.settle();
    let deadline = world
        .now
        .checked_add(jiff::SignedDuration::from_secs(600))
        .unwrap();
    assert!(outcome.wake_at > Some(deadline));
    world.now = deadline;
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ReplicaSetUpdated");
    world.now = outcome.wake_at.unwrap();
    let outcome = world.settle();
    assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
    assert_eq!(outcome.wake_at, None);
    // The rollout goes on, and is well after all.
    world.serve("b");
    world.roll_out();
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
}

#[test]
fn a_pause_keeps_the_template_and_stops_the_deadline() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| {
        file.template = "b".into();
        file.paused = true;
    });
    let outcome = world.settle();
    check_mode(&outcome, Mode::Paused);
    check_sizes(&world, &[("a", 1)]);
    world.edit(|file| file.replicas = 2);
    world.settle();
    check_sizes(&world, &[("a", 2)]);
    world.pass(10_000);
    assert_eq!(world.settle().wake_at, None);
    world.edit(|file| file.paused = false);
    world.step();
    world.settle();
    check_sizes(&world, &[("a", 2), ("b", 1)]);
    assert_eq!(world.reason(PROGRESSING), "ReplicaSetUpdated");
    world.roll_out();
}

#[test]
fn a_rollout_goes_on_after_a_scaling_event_that_finds_the_right_size() {
    // Two of four old pods have gone and their places are not free yet; then somebody wants two pods.
    let mut world = World::rolled_out(File {
        surge: IntOrPercent::Int(0),
        unavailable: IntOrPercent::Int(2),
        ..file(4)
    });
    world.edit(|file| file.template = "b".into());
    world.step();
    check_sizes(&world, &[("a", 2), ("b", 0)]);
    world.edit(|file| file.replicas = 2);
    world.roll_out();
    check_sizes(&world, &[("a", 0), ("b", 2)]);
}

#[test]
fn a_recreate_goes_on_after_a_scaling_event_with_two_active_sets() {
    let mut world = World::rolled_out(file(2));
    world.edit(|file| file.template = "b".into());
    world.settle();
    check_sizes(&world, &[("a", 2), ("b", 1)]);
    world.edit(|file| {
        file.recreate = true;
        file.replicas = 3;
    });
    world.roll_out();
    check_sizes(&world, &[("a", 0), ("b", 3)]);
}

#[test]
fn a_condition_that_another_set_is_late_does_not_stay() {
    let mut world = World::rolled_out(file(1));
    world.edit(|file| file.template = "b".into());
    world.roll_out();
    world.edit(|file| file.template = "c".into());
    world.settle();
    world.pass(601);
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
    // An old set is taken up again. Its pods have the whole deadline.
    world.edit(|file| file.template = "a".into());
    world.settle();
    assert_ne!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
}

#[test]
fn huge_numbers_do_not_overflow() {
    let mut world = World::rolled_out(file(2));
    world.edit(|file| file.template = "b".into());
    world.settle();
    let sizes = |world: &mut World, replicas| {
        world.edit(|file| {
            file.replicas = replicas;
            file.surge = IntOrPercent::Int(i32::MAX);
        });
        let outcome = world.look();
        let sizes = outcome
            .state
            .sets
            .iter()
            .map(|set| (image(&set.template), set.size));
        sizes.collect::<BTreeMap<_, _>>()
    };
    let grown = sizes(&mut world, i32::MAX);
    assert!(grown.values().all(|size| *size > 1_000_000), "{grown:?}");
}

#[test]
fn only_numbers_of_pods_need_not_be_written_at_once() {
    let world = World::rolled_out(file(1));
    let mut state = world.state.clone();
    state.status.ready_replicas += 1;
    assert!(!state.must_be_written(&world.state));
    state.status.conditions.clear();
    assert!(state.must_be_written(&world.state));
    let mut state = world.state.clone();
    state.sets[0].size = 7;
    assert!(state.must_be_written(&world.state));
}

#[test]
fn a_state_with_ten_revisions_is_small_and_survives_the_disk() {
    let mut world = World::rolled_out(file(1));
    for number in 0..12 {
        world.edit(|file| file.template = format!("image-{number}-{}", "x".repeat(2000)));
        world.roll_out();
        world.restart();
    }
    assert_eq!(world.state.sets.len(), 11);
    let text = serde_json::to_string(&world.state).unwrap();
    assert!(text.len() < 64 << 10, "{}", text.len());
    assert_eq!(
        serde_json::from_str::<DeploymentState>("{}").unwrap(),
        DeploymentState::default()
    );
}
