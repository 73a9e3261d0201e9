//! Ways back: by a person, by annotation, and by the Deployment itself.

use super::world::{File, World, check_mode, check_sizes, image};
use crate::workloads::deployment::{Mode, OnDeadline, PROGRESSING, ROLLED_BACK, undo_target};
use crate::workloads::overrides::{ON_PROGRESS_DEADLINE, OverrideKind, VerbError};
use crate::workloads::revisions::{CHANGE_CAUSE, ROLLBACK_TO};

/// A Deployment with the revisions a (1) and b (2), of which b is in force.
fn two_revisions() -> World {
    let mut world = World::rolled_out(File::default());
    world.edit(|file| file.template = "b".into());
    world.roll_out();
    world
}

/// A Deployment that goes back by itself, with a new template that never gets ready.
fn broken() -> World {
    let mut world = World::rolled_out(File::default());
    world.on_deadline = OnDeadline::Rollback;
    world.edit(|file| file.template = "b".into());
    world.settle();
    world
}

fn undo(world: &mut World, revision: i64) -> Result<String, VerbError> {
    let spec = world.spec();
    let sets = world.observe(&spec);
    let current = sets
        .iter()
        .find(|set| set.is_current)
        .map(|set| set.name.as_str());
    let target = undo_target(
        "web",
        &world.state,
        spec.paused,
        current,
        revision,
        world.now,
    )?;
    world.state.overrides.undo(target.undo);
    let set = world.state.set(&target.set).unwrap();
    Ok(image(&set.template))
}

#[test]
fn undo_goes_to_and_fro() {
    let mut world = two_revisions();
    assert_eq!(undo(&mut world, 0).as_deref(), Ok("a"));
    world.roll_out();
    check_sizes(&world, &[("a", 1), ("b", 0)]);
    assert_eq!(world.state.revision, 3);
    assert_eq!(undo(&mut world, 0).as_deref(), Ok("b"));
    // The file's own template needs no override.
    assert_eq!(world.state.overrides.undone(), None);
    world.roll_out();
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    assert_eq!(world.state.revision, 4);
}

#[test]
fn undo_has_kubectls_errors() {
    let mut world = World::rolled_out(File::default());
    assert_eq!(undo(&mut world, 0), Err(VerbError::NoHistory("web".into())));
    let mut world = two_revisions();
    assert_eq!(undo(&mut world, 7), Err(VerbError::UnknownRevision(7)));
    assert_eq!(undo(&mut world, -1), Err(VerbError::UnknownRevision(-1)));
    assert_eq!(undo(&mut world, 2), Err(VerbError::SameTemplate(2)));
    world.edit(|file| file.paused = true);
    assert_eq!(undo(&mut world, 1), Err(VerbError::UndoPaused));
    let text = VerbError::SameTemplate(2).to_string();
    assert_eq!(
        text,
        "skipped rollback (current template already matches revision 2)"
    );
}

#[test]
fn undo_brings_the_annotations_of_the_revision_back() {
    let mut world = World::rolled_out(File::default());
    world.edit(|file| {
        file.template = "b".into();
        file.annotations.insert(CHANGE_CAUSE.into(), "b".into());
        file.annotations
            .insert(ON_PROGRESS_DEADLINE.into(), "rollback".into());
    });
    world.roll_out();
    undo(&mut world, 0).unwrap();
    let annotations = world.effective().metadata.annotations;
    assert!(!annotations.contains_key(CHANGE_CAUSE));
    assert_eq!(annotations[ON_PROGRESS_DEADLINE], "rollback");
    world.roll_out();
    assert!(!world.state.sets[0].annotations.contains_key(CHANGE_CAUSE));
}

#[test]
fn a_new_template_in_the_file_ends_an_undo() {
    let mut world = two_revisions();
    undo(&mut world, 0).unwrap();
    world.roll_out();
    world.edit(|file| file.replicas = 2);
    world.roll_out();
    check_sizes(&world, &[("a", 2), ("b", 0)]);
    world.edit(|file| file.template = "c".into());
    let file = world.file.workload();
    assert_eq!(world.state.overrides.follow(&file), [OverrideKind::Undo]);
    world.roll_out();
    check_sizes(&world, &[("a", 0), ("b", 0), ("c", 2)]);
}

#[test]
fn the_rollback_annotation_is_obeyed_once() {
    let mut world = two_revisions();
    world.edit(|file| {
        file.annotations.insert(ROLLBACK_TO.into(), "1".into());
    });
    let outcome = world.step();
    check_mode(&outcome, Mode::Rollback);
    assert_eq!(
        outcome.rolled_back_to,
        Some(world.state.sets[0].name.clone())
    );
    world.roll_out();
    check_sizes(&world, &[("a", 1), ("b", 0)]);
    world.restart();
    check_mode(&world.look(), Mode::Rolling);
    // Another number is another request, and so is the same one after it was gone.
    world.edit(|file| {
        file.annotations.insert(ROLLBACK_TO.into(), "9".into());
    });
    let outcome = world.step();
    assert_eq!(
        outcome.events[0].reason,
        "DeploymentRollbackRevisionNotFound"
    );
    world.edit(|file| file.annotations.clear());
    world.settle();
    world.edit(|file| {
        file.annotations.insert(ROLLBACK_TO.into(), "9".into());
    });
    check_mode(&world.look(), Mode::Rollback);
    world.edit(|file| {
        file.annotations.insert(ROLLBACK_TO.into(), "soon".into());
    });
    check_mode(&world.look(), Mode::Rolling);
}

#[test]
fn a_paused_deployment_does_not_obey_the_rollback_annotation_and_keeps_its_history() {
    let mut world = two_revisions();
    world.edit(|file| {
        file.paused = true;
        file.history = 0;
        file.annotations.insert(ROLLBACK_TO.into(), "1".into());
    });
    check_mode(&world.settle(), Mode::Paused);
    check_sizes(&world, &[("a", 0), ("b", 1)]);
    world.edit(|file| file.annotations.clear());
    world.settle();
    check_sizes(&world, &[("b", 1)]);
}

#[test]
fn a_late_rollout_goes_back_by_itself_and_is_marked() {
    let mut world = broken();
    world.pass(600);
    world.settle();
    assert_eq!(world.state.overrides.bad(), None);
    world.pass(1);
    let outcome = world.step();
    assert_eq!(
        outcome.rolled_back_to,
        Some(world.state.sets[0].name.clone())
    );
    assert_eq!(outcome.events.last().unwrap().reason, "DeploymentRollback");
    world.roll_out();
    check_sizes(&world, &[("a", 1), ("b", 0)]);
    let bad = world.state.overrides.bad().unwrap().clone();
    assert_eq!(bad.hash, world.state.sets[1].hash);
    assert_eq!(bad.revision, 2);
    let condition = world.status().condition(ROLLED_BACK).unwrap();
    assert_eq!(
        (&*condition.status, &*condition.reason),
        ("True", "ProgressDeadlineExceeded")
    );
    let names = [&world.state.sets[0].name, &world.state.sets[1].name];
    assert!(
        names.iter().all(|name| condition.message.contains(*name)),
        "{}",
        condition.message
    );
    assert_eq!(world.reason(PROGRESSING), "NewReplicaSetAvailable");
    assert_eq!(world.file.template, "b");
}

#[test]
fn the_mark_survives_restarts_and_edits_of_other_fields() {
    let mut world = broken();
    world.pass(601);
    world.roll_out();
    for _ in 0..3 {
        world.restart();
        world.pass(700);
        world.edit(|file| file.replicas += 1);
        world.roll_out();
        assert_eq!(world.sizes()["b"], 0);
        assert!(world.status().condition(ROLLED_BACK).is_some());
    }
}

#[test]
fn a_new_template_is_tried_and_clears_the_mark() {
    let mut world = broken();
    world.pass(601);
    world.roll_out();
    world.edit(|file| file.template = "c".into());
    world.settle();
    assert_eq!(world.state.overrides.bad(), None);
    assert_eq!(world.status().condition(ROLLED_BACK), None);
    check_sizes(&world, &[("a", 1), ("b", 0), ("c", 1)]);
    // It is bad as well, and the same revision is taken back to.
    world.pass(601);
    world.roll_out();
    assert_eq!(world.state.overrides.bad().unwrap().revision, 4);
    check_sizes(&world, &[("a", 1), ("b", 0), ("c", 0)]);
}

#[test]
fn retry_tries_the_template_again() {
    let mut world = broken();
    assert_eq!(world.state.retry(), Err(VerbError::NothingToRetry));
    world.pass(601);
    world.settle();
    assert_eq!(world.state.retry(), Ok(()));
    world.settle();
    check_sizes(&world, &[("a", 1), ("b", 1)]);
    assert_eq!(world.state.overrides.bad(), None);
    assert_eq!(world.status().condition(ROLLED_BACK), None);
    // With the whole deadline, and with another way back.
    world.pass(600);
    world.settle();
    assert_eq!(world.state.overrides.bad(), None);
    world.pass(1);
    world.settle();
    assert!(world.state.overrides.bad().is_some());
}

#[test]
fn never_more_than_one_step_back() {
    let mut world = broken();
    world.pass(601);
    world.settle();
    // The old revision does not get ready any more either.
    for pods in world.pods.values_mut() {
        pods.retain(|pod| !pod.is_deleted);
        pods.iter_mut().for_each(|pod| pod.is_ready = false);
    }
    world.edit(|file| file.replicas = 2);
    world.settle();
    for _ in 0..5 {
        world.pass(700);
        world.restart();
        let outcome = world.settle();
        assert_eq!(outcome.rolled_back_to, None);
        assert_eq!(
            world.spec().template.written.at("/spec/image"),
            Some("a".into())
        );
    }
}

#[test]
fn without_a_complete_revision_there_is_no_way_back() {
    let mut world = World::new(File::default());
    world.on_deadline = OnDeadline::Rollback;
    world.settle();
    world.pass(601);
    world.settle();
    assert_eq!(world.reason(PROGRESSING), "ProgressDeadlineExceeded");
    assert_eq!(world.state.overrides.bad(), None);
}

#[track_caller]
fn check_goes_back(annotation: Option<&str>, default: OnDeadline, expected: bool) {
    let mut world = broken();
    world.on_deadline = default;
    let word = annotation.map(|word| (ON_PROGRESS_DEADLINE.to_owned(), word.to_owned()));
    world.edit(|file| file.annotations = word.into_iter().collect());
    world.settle();
    world.pass(601);
    world.settle();
    assert_eq!(world.state.overrides.bad().is_some(), expected);
}

#[test]
fn the_annotation_decides_and_else_the_configuration() {
    check_goes_back(None, OnDeadline::Report, false);
    check_goes_back(None, OnDeadline::Rollback, true);
    check_goes_back(Some("rollback"), OnDeadline::Report, true);
    check_goes_back(Some("report"), OnDeadline::Rollback, false);
    check_goes_back(Some("sometimes"), OnDeadline::Rollback, true);
}

#[test]
fn a_deployment_that_is_late_goes_back_when_somebody_asks_for_it() {
    let mut world = broken();
    world.on_deadline = OnDeadline::Report;
    world.pass(601);
    world.settle();
    assert_eq!(world.state.overrides.bad(), None);
    world.edit(|file| {
        file.annotations
            .insert(ON_PROGRESS_DEADLINE.into(), "rollback".into());
    });
    world.settle();
    assert!(world.state.overrides.bad().is_some());
}

#[test]
fn an_undo_by_a_person_ends_the_way_back() {
    let mut world = broken();
    world.pass(601);
    world.roll_out();
    // Back to the bad revision, on purpose.
    assert_eq!(undo(&mut world, 2).as_deref(), Ok("b"));
    world.settle();
    check_sizes(&world, &[("a", 1), ("b", 1)]);
    assert_eq!(world.status().condition(ROLLED_BACK), None);
}

#[test]
fn recreate_goes_back_too() {
    let mut world = World::rolled_out(File {
        recreate: true,
        replicas: 2,
        ..File::default()
    });
    world.on_deadline = OnDeadline::Rollback;
    world.edit(|file| file.template = "b".into());
    world.settle();
    world.serve("none");
    world.settle();
    check_sizes(&world, &[("a", 0), ("b", 2)]);
    world.pass(601);
    world.roll_out();
    check_sizes(&world, &[("a", 2), ("b", 0)]);
}
