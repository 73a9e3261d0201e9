use super::*;
use crate::workloads::deployment::tests::world::File;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn file() -> File {
    File {
        replicas: 2,
        ..File::default()
    }
}

/// Overrides that have seen the file.
fn overrides() -> Overrides {
    let mut overrides = Overrides::default();
    assert_eq!(overrides.follow(&file().workload()), []);
    overrides
}

fn old_revision() -> Undo {
    let template = File {
        template: "old".into(),
        ..file()
    };
    Undo {
        revision: 1,
        template: Arc::clone(&template.workload().template().written),
        annotations: None,
        since: at(0),
        bad: None,
    }
}

fn all() -> Overrides {
    let mut all = overrides();
    all.scale(5, at(1)).unwrap();
    all.pause(true, false, at(2)).unwrap();
    all.undo(old_revision());
    all.restart(false, at(3)).unwrap();
    all
}

fn field(overrides: &Overrides, path: &str) -> Option<Value> {
    effective(&file().workload(), overrides).and_then(|it| it.at(path))
}

#[test]
fn without_overrides_the_file_is_in_force() {
    assert_eq!(effective(&file().workload(), &overrides()), None);
}

#[test]
fn each_override_is_laid_over_its_field() {
    let all = all();
    assert_eq!(field(&all, "/spec/replicas"), Some(5.into()));
    assert_eq!(field(&all, "/spec/paused"), Some(true.into()));
    assert_eq!(field(&all, "/spec/template/spec/image"), Some("old".into()));
    let annotations = field(&all, "/spec/template/metadata/annotations");
    assert_eq!(
        annotations,
        Some(json!({RESTARTED_AT: "1970-01-01T00:00:03Z"}))
    );
    assert_eq!(
        field(&all, "/spec/template/metadata/labels/app"),
        Some("web".into())
    );
    assert_eq!(field(&all, "/metadata/name"), Some("web".into()));
}

#[track_caller]
fn check_dropped(change: impl FnOnce(&mut File), expected: &[OverrideKind]) {
    let mut overrides = all();
    let mut edited = file();
    change(&mut edited);
    assert_eq!(overrides.follow(&edited.workload()), expected);
    assert_eq!(overrides.follow(&edited.workload()), []);
    assert_eq!(overrides.lines().len(), 4 - expected.len());
}

#[test]
fn a_file_that_changes_a_field_drops_its_override() {
    check_dropped(|_| {}, &[]);
    check_dropped(|file| file.replicas = 3, &[OverrideKind::Scale]);
    check_dropped(|file| file.paused = true, &[OverrideKind::Pause]);
    let template = [OverrideKind::Restart, OverrideKind::Undo];
    check_dropped(|file| file.template = "new".into(), &template);
    let annotation = ("a".to_owned(), "b".to_owned());
    check_dropped(|file| file.annotations = [annotation].into(), &[]);
    assert_eq!(OverrideKind::Undo.field(), "spec.template");
}

#[test]
fn defaults_that_an_upgrade_adds_change_no_template() {
    let mut overrides = all();
    let mut upgraded = file().workload();
    upgraded
        .raw
        .edit(|object| object["spec"]["template"]["spec"]["new"] = true.into());
    assert_eq!(overrides.follow(&upgraded), []);
}

#[test]
fn what_the_file_says_anyway_needs_no_override() {
    let mut overrides = overrides();
    overrides.scale(5, at(1)).unwrap();
    overrides.scale(2, at(2)).unwrap();
    overrides.pause(true, false, at(3)).unwrap();
    overrides.pause(false, true, at(4)).unwrap();
    overrides.undo(old_revision());
    let template = Arc::clone(&file().workload().template().written);
    overrides.undo(Undo {
        template,
        ..old_revision()
    });
    assert_eq!(overrides.lines(), [""; 0]);
    assert_eq!(effective(&file().workload(), &overrides), None);
}

#[test]
fn a_file_that_is_paused_can_be_resumed() {
    let paused = File {
        paused: true,
        ..file()
    };
    let mut overrides = Overrides::default();
    overrides.follow(&paused.workload());
    overrides.pause(false, true, at(1)).unwrap();
    assert_eq!(overrides.paused(), Some(false));
}

#[test]
fn an_undo_takes_the_place_of_a_restart_and_a_restart_is_of_the_undo() {
    let mut overrides = overrides();
    overrides.restart(false, at(1)).unwrap();
    let annotations = "/spec/template/metadata/annotations";
    assert!(field(&overrides, annotations).is_some());
    overrides.undo(old_revision());
    assert_eq!(field(&overrides, annotations), None);
    overrides.restart(false, at(2)).unwrap();
    assert!(field(&overrides, annotations).is_some());
    assert_eq!(
        field(&overrides, "/spec/template/spec/image"),
        Some("old".into())
    );
}

#[test]
fn what_makes_no_sense_has_kubectls_words() {
    let mut overrides = overrides();
    let text = |result: Result<(), VerbError>| result.unwrap_err().to_string();
    assert_eq!(
        text(overrides.pause(true, true, at(1))),
        "is already paused"
    );
    assert_eq!(text(overrides.pause(false, false, at(1))), "is not paused");
    assert_eq!(
        text(overrides.restart(true, at(1))),
        "can't restart paused deployment (run rollout resume first)"
    );
    assert_eq!(
        text(overrides.scale(-1, at(1))),
        "replicas must not be negative: -1"
    );
    assert_eq!(overrides, self::overrides());
}

#[test]
fn lines_say_what_is_in_force_and_since_when() {
    let mut all = all();
    let expected = [
        "replicas 5, the file has 2 (scale, 1970-01-01T00:00:01Z)",
        "paused true (rollout pause, 1970-01-01T00:00:02Z)",
        "template of revision 1 (rollout undo, 1970-01-01T00:00:00Z)",
        "restarted (rollout restart, 1970-01-01T00:00:03Z)",
    ];
    assert_eq!(all.lines(), expected);
    let bad = BadRevision {
        revision: 2,
        ..BadRevision::default()
    };
    all.undo(Undo {
        bad: Some(bad),
        ..old_revision()
    });
    let line = "template of revision 1 (revision 2 made no progress, 1970-01-01T00:00:00Z)";
    assert!(all.lines().iter().any(|it| it == line));
}

#[test]
fn the_disk_keeps_overrides() {
    let text = serde_json::to_string(&all()).unwrap();
    assert_eq!(serde_json::from_str::<Overrides>(&text).unwrap(), all());
    assert_eq!(
        serde_json::from_str::<Overrides>("{}").unwrap(),
        Overrides::default()
    );
}

#[test]
fn the_order_of_members_makes_no_other_template() {
    let raw = |text: &str| RawObject::new(&serde_json::from_str(text).unwrap());
    let same = |a, b| fingerprint(&raw(a)) == fingerprint(&raw(b));
    assert!(same(
        r#"{"a": 1, "b": {"c": [1, 2]}}"#,
        r#"{"b": {"c": [1, 2]}, "a": 1}"#
    ));
    assert!(!same(r#"{"a": [1, 2]}"#, r#"{"a": [2, 1]}"#));
    assert!(!same(r#"{"a": [1, [2]]}"#, r#"{"a": [[1, 2]]}"#));
    assert!(!same(r#"{"a": "1"}"#, r#"{"a": 1}"#));
}
