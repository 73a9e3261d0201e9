use serde_json::{Value, json};

use super::*;
use crate::test_pods;

const HOUR: Duration = Duration::from_secs(3607);

fn moment(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

/// A pod with the volume that API servers give to every pod.
fn pod(name: &str, is_deleted: bool) -> Pod {
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}});
    let volume = json!({"name": "kube-api-access", "projected": {"sources": [token]}});
    let pod = test_pods::pod(name)
        .namespace("rec")
        .uid(&format!("uid-{name}"));
    let mut pod = pod.spec(json!({"volumes": [volume]})).build();
    pod.metadata.deletion_timestamp = is_deleted.then(|| "2026-11-22T00:00:00Z".to_owned());
    pod
}

fn key(pod: &Pod) -> TokenKey {
    TokenKey::all_of(pod).pop_first().unwrap()
}

fn answer(token: &str, seconds: u64) -> Answer {
    Answer::new(
        201,
        json!({"spec": {"expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": "2026-11-22T00:37:19Z"}}),
    )
}

fn refusal(code: u16, message: &str) -> Answer {
    Answer::new(code, json!({"kind": "Status", "message": message}))
}

fn token(text: &str, life: Duration) -> Fetched {
    Fetched::Token(IssuedToken {
        token: text.into(),
        life,
        expires: Time::instant("2026-11-22T00:37:19Z").unwrap(),
    })
}

/// Tokens of one pod that were asked for at the moment 0.
fn asked(pod: &Pod) -> Tokens {
    let mut tokens = Tokens::default();
    tokens.use_by(moment(0), [pod].into_iter());
    assert_eq!(tokens.next(moment(0)).len(), 1);
    tokens
}

#[test]
fn a_request_is_what_a_kubelet_sends() {
    let recorded = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
        "spec": {"audiences": null, "expirationSeconds": 3607, "boundObjectRef": {
            "kind": "Pod", "apiVersion": "v1", "name": "web", "uid": "uid-web"}},
        "status": {"token": "", "expirationTimestamp": null}});
    let pod = pod("web", false);
    let mut tokens = Tokens::default();
    let (old, new) = tokens.use_by(moment(0), [&pod].into_iter());
    assert_eq!((old, new), (vec![], vec![key(&pod)]));
    let asked = tokens.next(moment(0));
    let [(asked_key, request)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(*asked_key, key(&pod));
    assert_eq!(
        request.path,
        "/api/v1/namespaces/rec/serviceaccounts/default/token"
    );
    assert_eq!(request.method, Method::Post);
    assert_eq!(
        request.body.as_ref().map(Value::to_string),
        Some(recorded.to_string())
    );
    assert_eq!(tokens.next(moment(100)), [], "one request at a time");
}

#[test]
fn an_audience_of_its_own_is_asked_for_by_its_name() {
    let mut pod = pod("web", false);
    let volume = pod.spec_mut().volumes[0].projected.as_mut().unwrap();
    volume.sources[0]
        .service_account_token
        .as_mut()
        .unwrap()
        .audience = "vault".to_owned();
    let mut tokens = Tokens::default();
    tokens.use_by(moment(0), [&pod].into_iter());
    let body = tokens.next(moment(0)).remove(0).1.body.unwrap();
    assert_eq!(body["spec"]["audiences"], json!(["vault"]));
}

#[test]
fn a_token_is_renewed_when_most_of_its_life_is_over() {
    let pod = pod("web", false);
    let mut tokens = asked(&pod);
    let fetched = tokens.answered(moment(0), &key(&pod), &answer("one", 3607), 0.0);
    assert_eq!(fetched, token("one", HOUR));
    let at = moment(0) + HOUR * 4 / 5;
    assert_eq!(tokens.deadline(), Some(at));
    assert_eq!(tokens.next(at - Duration::from_secs(1)), []);
    assert_eq!(tokens.next(at).len(), 1);
    let fetched = tokens.answered(at, &key(&pod), &answer("two", 3607), 1.0);
    assert_eq!(fetched, token("two", HOUR));
    assert_eq!(tokens.deadline(), Some(at + HOUR * 4 / 5 - JITTER));
}

#[test]
fn a_token_of_a_year_is_renewed_each_day() {
    let pod = pod("web", false);
    let mut tokens = asked(&pod);
    tokens.answered(moment(0), &key(&pod), &answer("one", 31_536_000), 0.0);
    assert_eq!(tokens.deadline(), Some(moment(0) + MAX_AGE));
}

#[test]
fn an_authorizer_that_is_late_is_asked_again_at_once_and_then_believed() {
    let pod = pod("web", false);
    let mut tokens = asked(&pod);
    let forbidden = refusal(403, "no relationship found between node and this object");
    let mut now = moment(0);
    for _ in 0..LATE_AUTHORIZER {
        let fetched = tokens.answered(now, &key(&pod), &forbidden, 0.5);
        assert_eq!(fetched, Fetched::Again);
        let at = tokens.deadline().unwrap();
        assert_eq!(at.since(now), Duration::from_millis(60));
        now = at;
        assert_eq!(tokens.next(now).len(), 1);
    }
    let fetched = tokens.answered(now, &key(&pod), &forbidden, 0.5);
    let why = NoToken::Refused("no relationship found between node and this object".to_owned());
    assert_eq!(fetched, Fetched::None(why));
    assert_eq!(tokens.deadline(), Some(now + BackOff::FIRST));
}

#[test]
fn a_refusal_is_said_and_asked_about_again() {
    let pod = pod("web", false);
    let mut tokens = asked(&pod);
    let missing = refusal(404, "serviceaccounts \"default\" not found");
    let fetched = tokens.answered(moment(0), &key(&pod), &missing, 0.0);
    let Fetched::None(why) = fetched else {
        panic!("{fetched:?}");
    };
    let text = "failed to fetch token: serviceaccounts \"default\" not found";
    assert_eq!(why.to_string(), text);
    let at = tokens.deadline().unwrap();
    assert_eq!(tokens.next(at).len(), 1);
    let fetched = tokens.answered(at, &key(&pod), &Answer::new(200, json!({})), 0.0);
    let text = Fetched::None(NoToken::Refused("the API server answers 200".to_owned()));
    assert_eq!(fetched, text, "an answer without a token");
    assert_eq!(tokens.next(tokens.deadline().unwrap()).len(), 1);
    let fetched = tokens.answered(at, &key(&pod), &Answer::NoConnection, 0.0);
    assert_eq!(fetched, Fetched::Again);
}

#[test]
fn an_old_token_stays_in_use_and_its_end_is_told_once() {
    let pod = pod("web", false);
    let mut tokens = asked(&pod);
    tokens.answered(moment(0), &key(&pod), &answer("one", 600), 0.0);
    tokens.next(moment(480));
    let kept = |why: &str, has_expired| Fetched::Kept {
        why: why.to_owned(),
        has_expired,
    };
    let fetched = tokens.answered(moment(480), &key(&pod), &Answer::NoConnection, 0.0);
    assert_eq!(fetched, kept("", false));
    let mut answered = |at: u64, answer: &Answer| {
        tokens.next(moment(at));
        tokens.answered(moment(at), &key(&pod), answer, 0.0)
    };
    assert_eq!(answered(700, &Answer::NoConnection), kept("", true));
    let refused = refusal(403, "no");
    assert_eq!(
        answered(800, &refused),
        kept("no", false),
        "it is told once"
    );
    answered(900, &answer("two", 600));
    assert_eq!(answered(1600, &refused), kept("no", true));
}

#[test]
fn a_kept_token_is_renewed_when_it_would_have_been_whatever_the_clock_says() {
    let pod = pod("web", false);
    let issued = |life, expires| IssuedToken {
        token: "kept".into(),
        life: Duration::from_secs(life),
        expires: SystemTime::UNIX_EPOCH + Duration::from_secs(expires),
    };
    let restored = |expires: u64, wall: u64| {
        let mut tokens = Tokens::default();
        tokens.use_by(moment(0), [&pod].into_iter());
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(wall);
        let has_expired = tokens.restore(moment(0), wall, &key(&pod), &issued(600, expires));
        (has_expired, tokens.deadline())
    };
    assert_eq!(restored(5000, 4700), (false, Some(moment(180))));
    assert_eq!(restored(5000, 4999), (false, Some(moment(0))));
    assert_eq!(restored(5000, 9000), (true, Some(moment(0))));
    assert_eq!(
        restored(5000, 10),
        (false, Some(moment(480))),
        "a clock of 1970"
    );
}

#[test]
fn a_pod_that_ends_asks_no_more_and_one_that_is_gone_is_forgotten() {
    let (web, other) = (pod("web", false), pod("other", false));
    let mut tokens = Tokens::default();
    tokens.use_by(moment(0), [&web, &other].into_iter());
    tokens.use_by(moment(0), [&pod("web", true), &other].into_iter());
    let asked: Vec<TokenKey> = tokens
        .next(moment(0))
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    assert_eq!(asked, [key(&other)]);
    let (old, new) = tokens.use_by(moment(0), [&other].into_iter());
    assert_eq!((old, new), (vec![key(&web)], vec![]));
    let fetched = tokens.answered(moment(0), &key(&web), &answer("late", 600), 0.0);
    assert_eq!(fetched, Fetched::Again);
}
