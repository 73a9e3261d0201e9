//! Tests of correlator and queue, against recorded exchanges where there are some.

use std::time::Duration;

use super::correlator::Correlator;
use super::queue::{CAPACITY, Delivery, Queue};
use super::*;
use crate::base::clock::Moment;
use crate::cluster::exchange::{Answer, Method, Request, Step};
use crate::cluster::node::recorded::{answer, assert_request, exchanges, wall};

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

/// The occurrence that a recorded Event tells of, and its time.
fn occurrence(event: &Value) -> (Occurrence, SystemTime) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["involvedObject"];
    let name = word(&event["metadata"]["name"]);
    let nanos = name.rsplit_once('.').expect("a time").1;
    let nanos = u64::from_str_radix(nanos, 16).expect("hexadecimal");
    let what = Occurrence {
        kind: word(&object["kind"]),
        namespace: word(&object["namespace"]),
        name: word(&object["name"]),
        uid: word(&object["uid"]),
        resource_version: word(&object["resourceVersion"]),
        field_path: word(&object["fieldPath"]),
        type_: match event["type"] == "Normal" {
            true => EventType::Normal,
            false => EventType::Warning,
        },
        reason: word(&event["reason"]),
        message: word(&event["message"]),
    };
    (what, SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos))
}

#[track_caller]
fn request(queue: &Queue, now: Moment) -> Request {
    match queue.next(now) {
        Some(Step::Send(request)) => request,
        other => panic!("{other:?}"),
    }
}

/// All recorded events, in their order, with the recorded answers.
#[test]
fn events_are_posted_and_counted_as_the_kubelet_does() {
    let all = exchanges("events");
    let mut correlator = Correlator::new("node1");
    let mut queue = Queue::default();
    let mut known = Vec::new();
    for exchange in &all {
        let now = Moment::from_boot(Duration::from_millis(exchange["t_ms"].as_u64().unwrap()));
        let body = &exchange["req_body"];
        let (what, time) = match exchange["method"] == "POST" {
            true => {
                known.push(body.clone());
                occurrence(body)
            }
            false => {
                let name = exchange["path"]
                    .as_str()
                    .unwrap()
                    .rsplit_once('/')
                    .unwrap()
                    .1;
                let posted = known
                    .iter()
                    .find(|e| e["metadata"]["name"] == name)
                    .unwrap();
                let last = body["lastTimestamp"].as_str().unwrap();
                (occurrence(posted).0, wall(last))
            }
        };
        queue.push(
            correlator
                .record(now, time, what)
                .expect("it is not left out"),
        );
        assert_request(&request(&queue, now), exchange);
        let delivery = queue.answered(now, &answer(exchange), 0.0);
        let expected = match exchange["status"].as_u64().unwrap() {
            200 | 201 => Delivery::Sent,
            403 | 404 => Delivery::Gone,
            _ => Delivery::Again,
        };
        assert_eq!(delivery, expected);
    }
    assert_eq!(queue.len(), 1, "the one that was answered by 429");
}

fn unhealthy(message: &str) -> Occurrence {
    Occurrence {
        kind: "Pod".into(),
        namespace: "default".into(),
        name: "web".into(),
        uid: "u".into(),
        resource_version: String::new(),
        field_path: "spec.containers{c}".into(),
        type_: EventType::Warning,
        reason: "Unhealthy".into(),
        message: message.into(),
    }
}

/// The text and the count of an event.
fn text(event: &Outgoing) -> (String, u64) {
    let message = event.event["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    (message, event.event["count"].as_u64().unwrap_or_default())
}

/// A correlator, and the next whole second of a clock that both clocks follow.
struct Source {
    correlator: Correlator,
    seconds: u64,
}

impl Source {
    fn new() -> Self {
        Self {
            correlator: Correlator::new("n"),
            seconds: 1_000,
        }
    }

    fn record(&mut self, what: Occurrence) -> Option<Outgoing> {
        self.seconds += 1;
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(self.seconds);
        self.correlator.record(at(self.seconds), wall, what)
    }
}

#[test]
fn the_tenth_similar_event_is_combined_and_the_first_nine_stay() {
    let mut source = Source::new();
    for n in 1..=9 {
        let event = source.record(unhealthy(&n.to_string())).unwrap();
        assert_eq!(text(&event), (n.to_string(), 1));
    }
    let combined = |n| format!("(combined from similar events): {n}");
    let tenth = source.record(unhealthy("10")).unwrap();
    assert_eq!(text(&tenth), (combined(10), 1));
    let other_container = Occurrence {
        field_path: "spec.containers{d}".into(),
        ..unhealthy("11")
    };
    let eleventh = source.record(other_container).unwrap();
    assert_eq!(text(&eleventh), (combined(11), 2));
    assert_eq!(eleventh.name, tenth.name);
    let tenth_again = source.record(unhealthy("10")).unwrap();
    assert_eq!(text(&tenth_again), (combined(10), 3));
    let again = source.record(unhealthy("3")).unwrap();
    assert_eq!(text(&again), ("3".to_owned(), 2));
    let other_reason = Occurrence {
        reason: "BackOff".into(),
        ..unhealthy("12")
    };
    assert_eq!(
        text(&source.record(other_reason).unwrap()),
        ("12".to_owned(), 1)
    );
    source.seconds += 601;
    let later = source.record(unhealthy("13")).unwrap();
    assert_eq!(text(&later), ("13".to_owned(), 1));
}

#[test]
fn an_object_has_25_events_at_once_and_then_one_each_300_s() {
    let mut source = Source::new();
    let sent = |source: &mut Source, n| {
        (0..n)
            .filter(|_| source.record(unhealthy("x")).is_some())
            .count()
    };
    assert_eq!(sent(&mut source, 30), 25);
    let other = Occurrence {
        uid: "v".into(),
        ..unhealthy("x")
    };
    assert!(source.record(other).is_some());
    source.seconds += 270;
    let next = source.record(unhealthy("x")).unwrap();
    assert_eq!(
        text(&next),
        ("x".to_owned(), 31),
        "what was left out counts"
    );
    assert_eq!(sent(&mut source, 10), 0);
    source.seconds += 1_000_000;
    assert_eq!(sent(&mut source, 30), 25);
}

#[test]
fn a_text_is_cut() {
    let long = "ä".repeat(1000);
    let event = Source::new().record(unhealthy(&long)).unwrap();
    assert_eq!(text(&event).0, "ä".repeat(512));
}

#[test]
fn two_events_of_one_instant_have_different_names() {
    let mut correlator = Correlator::new("n");
    let now = SystemTime::UNIX_EPOCH + SECOND;
    let names = ["x", "y", "z"].map(|t| correlator.record(at(1), now, unhealthy(t)).unwrap().name);
    assert_eq!(names, ["web.3b9aca00", "web.3b9aca01", "web.3b9aca02"]);
    let later = correlator
        .record(at(1), now + SECOND, unhealthy("w"))
        .unwrap();
    assert_eq!(later.name, "web.77359400");
}

#[test]
fn containers_have_events_of_their_own() {
    let mut source = Source::new();
    source.record(unhealthy("x"));
    let other = Occurrence {
        field_path: "spec.containers{d}".into(),
        ..unhealthy("x")
    };
    assert_eq!(text(&source.record(other).unwrap()).1, 1);
}

/// A queue with an event that has happened so many times: a POST, or a PATCH.
fn queue(times: usize) -> Queue {
    let mut source = Source::new();
    let mut queue = Queue::default();
    let events = (0..times).map(|_| source.record(unhealthy("x")).unwrap());
    if let Some(last) = events.last() {
        queue.push(last);
    }
    queue
}

fn status(code: u16) -> Answer {
    Answer::new(code, json!({"message": "no"}))
}

#[test]
fn what_the_api_server_has_already_is_counted_and_what_it_lacks_is_created() {
    let mut new = queue(1);
    assert_eq!(new.answered(at(1), &status(409), 0.0), Delivery::Again);
    assert_eq!(request(&new, at(1)).method, Method::Patch);
    let mut repeated = queue(3);
    let patch = request(&repeated, at(1));
    assert_eq!(patch.method, Method::Patch);
    assert_eq!(patch.body.unwrap()["count"], 3);
    assert_eq!(repeated.answered(at(1), &status(404), 0.0), Delivery::Again);
    let post = request(&repeated, at(1));
    assert_eq!(
        (post.method, &post.body.unwrap()["count"]),
        (Method::Post, &json!(3))
    );
    assert_eq!(repeated.answered(at(1), &status(404), 0.0), Delivery::Gone);
    assert!(repeated.is_empty());
}

#[test]
fn an_event_that_is_there_and_is_not_is_given_up() {
    let mut queue = queue(1);
    let mut answers = [409, 404].into_iter().cycle().take(20);
    let end = answers.find_map(|code| match queue.answered(at(1), &status(code), 0.0) {
        Delivery::Again => None,
        end => Some(end),
    });
    assert!(matches!(end, Some(Delivery::Refused { .. })), "{end:?}");
}

#[track_caller]
fn check_wait(queue: &mut Queue, answer: &Answer, random: f64, expected: Duration) {
    assert_eq!(queue.answered(at(9), answer, random), Delivery::Again);
    let until = Some(Step::Wait(at(9) + expected));
    assert_eq!(queue.next(at(9)), until);
    assert_eq!(request(queue, at(9) + expected).method, Method::Post);
}

#[test]
fn without_a_connection_an_event_stays() {
    let mut queue = queue(1);
    check_wait(&mut queue, &Answer::NoConnection, 0.3, 3 * SECOND);
    for _ in 0..50 {
        check_wait(&mut queue, &Answer::NoConnection, 0.3, 10 * SECOND);
    }
    check_wait(&mut queue, &status(429), 0.3, SECOND);
    let busy = Answer::Status {
        code: 429,
        body: Value::Null,
        retry_after: Some(7 * SECOND),
    };
    check_wait(&mut queue, &busy, 0.3, 7 * SECOND);
    check_wait(&mut queue, &Answer::NoConnection, 0.3, 3 * SECOND);
}

#[test]
fn an_error_of_the_api_server_is_tried_twelve_times_and_a_bad_event_once() {
    let mut failing = queue(1);
    for _ in 0..12 {
        check_wait(&mut failing, &status(500), 0.0, 10 * SECOND);
    }
    let refused = |code| Delivery::Refused {
        code,
        message: "no".into(),
    };
    let other = Occurrence {
        reason: "Other".into(),
        ..unhealthy("y")
    };
    failing.push(Source::new().record(other).unwrap());
    assert_eq!(failing.answered(at(9), &status(500), 0.0), refused(500));
    check_wait(&mut failing, &status(500), 0.0, 10 * SECOND);
    let mut bad = queue(1);
    assert_eq!(bad.answered(at(9), &status(422), 0.0), refused(422));
    assert_eq!((bad.len(), bad.refused()), (0, 1));
}

#[test]
fn a_forbidden_count_is_dropped() {
    assert_eq!(queue(2).answered(at(1), &status(403), 0.0), Delivery::Gone);
}

#[test]
fn the_oldest_is_dropped_but_not_the_one_under_way() {
    let mut source = Source::new();
    let mut queue = Queue::default();
    for n in 0..CAPACITY + 2 {
        let what = Occurrence {
            uid: n.to_string(),
            name: format!("p{n}"),
            ..unhealthy("x")
        };
        queue.push(source.record(what).unwrap());
    }
    assert_eq!((queue.len(), queue.overflowed()), (CAPACITY, 2));
    let name =
        |queue: &Queue| request(queue, at(1)).body.unwrap()["involvedObject"]["name"].clone();
    assert_eq!(name(&queue), "p0");
    queue.answered(at(1), &status(201), 0.0);
    assert_eq!(name(&queue), "p3");
}

#[test]
fn an_event_that_happens_again_while_it_waits_is_sent_once() {
    let mut source = Source::new();
    let mut queue = Queue::default();
    let other = Occurrence {
        reason: "Other".into(),
        ..unhealthy("y")
    };
    queue.push(source.record(other.clone()).unwrap());
    queue.push(source.record(unhealthy("x")).unwrap());
    queue.push(source.record(unhealthy("x")).unwrap());
    queue.push(source.record(other).unwrap());
    assert_eq!(queue.len(), 3, "the first may be under way");
    queue.answered(at(1), &status(201), 0.0);
    let post = request(&queue, at(1));
    assert_eq!(
        (post.method, &post.body.unwrap()["count"]),
        (Method::Post, &json!(2))
    );
    queue.answered(at(1), &status(201), 0.0);
    assert_eq!(request(&queue, at(1)).method, Method::Patch);
}
