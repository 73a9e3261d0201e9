use serde_json::json;

use super::*;

fn moment(seconds: u64) -> Moment {
    Moment::from_boot(Duration::from_secs(seconds))
}

fn reviews() -> Reviews {
    Reviews::new("node1".into(), Lifetimes::default())
}

fn of_token(token: &str) -> Question<'_> {
    Question::Token(token)
}

/// The service account of the recording.
fn reader() -> User {
    let groups = [
        "system:serviceaccounts",
        "system:serviceaccounts:rec",
        "system:authenticated",
    ];
    let jti = "JTI=20d35b9a-df21-4501-8be1-f014496a51fa".to_owned();
    let key = "authentication.kubernetes.io/credential-id".to_owned();
    User {
        name: "system:serviceaccount:rec:reader".into(),
        uid: "5cb57fea-a503-44de-80ac-7fdf776cd151".into(),
        groups: groups.map(str::to_owned).into(),
        extra: [(key, vec![jti])].into(),
    }
}

fn may<'a>(user: &'a User, subresource: &'a str) -> Question<'a> {
    Question::Access {
        user,
        verb: "get",
        subresource,
    }
}

/// Asks a question that nobody has asked, and returns its one request.
#[track_caller]
fn sent(reviews: &mut Reviews, at: u64, question: Question<'_>) -> (QuestionId, Request) {
    let asked = reviews.ask(moment(at), question);
    assert!(matches!(asked, Asked::Waits(_)), "{asked:?}");
    let mut requests = reviews.next(moment(at));
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

fn answer(status: Value) -> Answer {
    Answer::new(201, json!({"status": status}))
}

fn user_answer(name: &str) -> Answer {
    answer(json!({"authenticated": true, "user": {"username": name}}))
}

#[test]
fn the_requests_are_what_a_kubelet_sends() {
    let mut reviews = reviews();
    let (id, request) = sent(&mut reviews, 0, of_token("bogus"));
    assert_eq!(request.path, "/apis/authentication.k8s.io/v1/tokenreviews");
    let recorded = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {},
        "spec": {"token": "bogus"}, "status": {"user": {}}});
    assert_eq!(request.body, Some(recorded));
    let recorded = json!({"user": {}, "error": "invalid bearer token"});
    let verdict = reviews.answered(moment(0), id, &answer(recorded));
    assert_eq!(verdict, Some(Ok(Verdict::User(None))));

    let user = reader();
    let (id, request) = sent(&mut reviews, 0, may(&user, "healthz"));
    assert_eq!(
        request.path,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    );
    let recorded = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
        "spec": {
            "resourceAttributes": {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "healthz", "name": "node1"},
            "user": "system:serviceaccount:rec:reader",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:rec", "system:authenticated"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=20d35b9a-df21-4501-8be1-f014496a51fa"]},
            "uid": "5cb57fea-a503-44de-80ac-7fdf776cd151"},
        "status": {"allowed": false}});
    assert_eq!(request.body, Some(recorded));
    let verdict = reviews.answered(moment(0), id, &answer(json!({"allowed": true})));
    assert_eq!(verdict, Some(Ok(Verdict::Allowed(true))));
}

/// A user of a certificate has no UID, and may have no groups.
#[test]
fn what_a_user_lacks_is_left_out() {
    let user = User {
        name: "a".into(),
        ..User::default()
    };
    let (_, request) = sent(&mut reviews(), 0, may(&user, "proxy"));
    let body = request.body.unwrap();
    let keys = body["spec"].as_object().unwrap().keys().collect::<Vec<_>>();
    assert_eq!(keys, ["resourceAttributes", "user"]);
}

#[test]
fn an_answer_is_good_for_its_time_and_no_longer() {
    let mut reviews = reviews();
    let (user, lifetimes) = (reader(), Lifetimes::default());
    let allowed = |allowed: bool| answer(json!({"allowed": allowed}));
    for (question, answer, verdict, good) in [
        (
            of_token("good"),
            user_answer("a"),
            Verdict::User(Some(User {
                name: "a".into(),
                ..User::default()
            })),
            lifetimes.token,
        ),
        (
            of_token("bad"),
            answer(json!({"user": {}})),
            Verdict::User(None),
            INVALID,
        ),
        (
            may(&user, "stats"),
            allowed(true),
            Verdict::Allowed(true),
            lifetimes.authorized,
        ),
        (
            may(&user, "proxy"),
            allowed(false),
            Verdict::Allowed(false),
            lifetimes.unauthorized,
        ),
    ] {
        let (id, _) = sent(&mut reviews, 100, question);
        assert_eq!(
            reviews.answered(moment(100), id, &answer),
            Some(Ok(verdict.clone()))
        );
        let end = moment(100) + good;
        let last = reviews.ask(end - Duration::from_millis(1), question);
        assert_eq!(last, Asked::Known(verdict));
        assert_eq!(reviews.ask(end, question), Asked::Waits(id));
        let late = Answer::new(403, Value::Null);
        assert!(reviews.answered(end, id, &late).is_some());
    }
}

#[test]
fn new_times_hold_for_new_answers() {
    let mut reviews = reviews();
    let token = Duration::from_secs(1);
    reviews.set_lifetimes(Lifetimes {
        token,
        ..Lifetimes::default()
    });
    let question = of_token("good");
    let (id, _) = sent(&mut reviews, 100, question);
    let answered = reviews.answered(moment(100), id, &user_answer("a"));
    assert!(matches!(answered, Some(Ok(Verdict::User(Some(_))))));
    assert_eq!(reviews.ask(moment(100) + token, question), Asked::Waits(id));
}

/// Two tokens, or two users of one name, are different questions.
#[test]
fn an_answer_is_for_its_own_question() {
    let mut reviews = reviews();
    let (id, _) = sent(&mut reviews, 0, of_token("one"));
    reviews.answered(moment(0), id, &user_answer("a"));
    assert!(matches!(
        reviews.ask(moment(0), of_token("two")),
        Asked::Waits(_)
    ));
    let user = reader();
    let (id, _) = {
        reviews.give_up();
        sent(&mut reviews, 0, may(&user, "stats"))
    };
    reviews.answered(moment(0), id, &answer(json!({"allowed": true})));
    let mut other = reader();
    other.groups.pop();
    for question in [
        may(&other, "stats"),
        may(&user, "proxy"),
        Question::Access {
            user: &user,
            verb: "create",
            subresource: "stats",
        },
    ] {
        assert!(matches!(reviews.ask(moment(0), question), Asked::Waits(_)));
    }
}

#[test]
fn one_question_is_asked_once_at_a_time() {
    let mut reviews = reviews();
    let (id, _) = sent(&mut reviews, 0, of_token("t"));
    assert_eq!(reviews.ask(moment(1), of_token("t")), Asked::Waits(id));
    assert_eq!(reviews.next(moment(1)), []);
    assert_eq!(reviews.deadline(), None);
}

#[test]
fn a_busy_api_server_is_asked_again_a_few_times() {
    let mut reviews = reviews();
    let (id, _) = sent(&mut reviews, 0, of_token("t"));
    let busy = Answer::Status {
        code: 429,
        body: json!("Too many requests\n"),
        retry_after: Some(Duration::from_secs(1)),
    };
    assert_eq!(reviews.answered(moment(0), id, &busy), None);
    assert_eq!(reviews.deadline(), Some(moment(1)));
    assert_eq!(reviews.next(moment(0)), []);
    for at in 1..4 {
        assert_eq!(reviews.next(moment(at)).len(), 1, "{at}");
        let refused = reviews.answered(moment(at), id, &busy);
        let why = NoReview::Refused {
            code: 429,
            message: "Too many requests".into(),
        };
        assert_eq!(refused, (at == 3).then_some(Err(why)), "{at}");
    }
    assert_eq!(reviews.deadline(), None);
    // What could not be answered is asked anew.
    let (id, _) = sent(&mut reviews, 4, of_token("t"));
    let lost = reviews.answered(moment(4), id, &Answer::NoConnection);
    assert_eq!(lost, Some(Err(NoReview::NoConnection)));
    let (id, _) = sent(&mut reviews, 5, of_token("t"));
    let forbidden = json!({"kind": "Status", "message": "no"});
    let refused = reviews.answered(moment(5), id, &Answer::new(403, forbidden));
    let why = NoReview::Refused {
        code: 403,
        message: "no".into(),
    };
    assert_eq!(refused, Some(Err(why)));
}

/// Whoever reaches the port can send tokens. Users who are known still have places.
#[test]
fn tokens_leave_places_for_users() {
    let mut reviews = reviews();
    let user = reader();
    let names: Vec<String> = (0..100).map(|n| format!("n{n}")).collect();
    let mut waits = |question: Question<'_>| match reviews.ask(moment(0), question) {
        Asked::Waits(_) => true,
        Asked::NotAsked(NoReview::Busy) => false,
        other => panic!("{other:?}"),
    };
    let tokens = names.iter().filter(|name| waits(of_token(name))).count();
    assert_eq!(tokens, MOST_TOKENS);
    let users = names.iter().filter(|name| waits(may(&user, name))).count();
    assert_eq!(tokens + users, MOST_WAITING);
    assert_eq!(reviews.next(moment(0)).len(), MOST_WAITING);
    assert_eq!(reviews.give_up().len(), MOST_WAITING);
}

#[test]
fn what_is_kept_has_bounds_and_what_is_good_for_longest_stays() {
    let mut reviews = reviews();
    let (id, _) = sent(&mut reviews, 0, of_token("good"));
    reviews.answered(moment(0), id, &user_answer("a"));
    for n in 0..MOST_KNOWN * 2 {
        let (id, _) = sent(&mut reviews, 1, of_token(&format!("bogus-{n}")));
        reviews.answered(moment(1), id, &answer(json!({"user": {}})));
    }
    assert_eq!(reviews.known.len(), MOST_KNOWN);
    let good = reviews.ask(moment(1), of_token("good"));
    assert!(matches!(good, Asked::Known(Verdict::User(Some(_)))));
    let (id, _) = sent(&mut reviews, 60, of_token("later"));
    reviews.answered(moment(60), id, &user_answer("b"));
    assert_eq!(reviews.known.len(), 2, "what is over is dropped");
}
