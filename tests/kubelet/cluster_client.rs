//! The client of the API server against a real one of HTTP/2 and TLS: sign-in, watches, faults, lost connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use podprobe::base::bell::Bell;
use podprobe::base::clock::Moment;
use podprobe::cluster::client::{Client, Heard, LinkChange, RequestId, Urgency};
use podprobe::cluster::exchange::{Answer, Method, Request};
use serde_json::json;

use crate::support::CEILING;
use crate::support::api_server::{ApiServer, Fault};

/// A client that a test drives.
struct Driven {
    client: Client,
    heard: Vec<(RequestId, Heard)>,
    changes: Vec<LinkChange>,
}

impl Driven {
    fn new(kubeconfig: PathBuf) -> Self {
        let bell = Arc::new(Bell::new().unwrap());
        Self {
            client: Client::new(kubeconfig, bell, Moment::now()),
            heard: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Drives the client until `is_over`.
    #[track_caller]
    fn until(&mut self, what: &str, is_over: impl Fn(&Self) -> bool) {
        let deadline = Moment::now() + CEILING;
        while !is_over(self) {
            let now = Moment::now();
            assert!(
                now < deadline,
                "{what}: {:?}, {:?}",
                self.heard,
                self.changes
            );
            let heard = self.client.turn(now);
            self.heard.extend(heard);
            self.changes.extend(self.client.take_changes());
            if !is_over(self) {
                self.client.wait(now, now + Duration::from_millis(100));
            }
        }
    }

    fn connect(&mut self) {
        self.until("connected", |d| d.client.is_connected());
    }

    fn call(&mut self, method: Method, path: &str) -> Answer {
        let request = Request {
            method,
            path: path.to_owned(),
            body: (method == Method::Post).then(|| json!({"metadata": {"name": "edge"}})),
        };
        let id = self.client.call(Moment::now(), &request, Urgency::Usual);
        self.answer(id)
    }

    fn answer(&mut self, id: RequestId) -> Answer {
        self.until("answered", |d| d.heard.iter().any(|(of, _)| *of == id));
        let at = self.heard.iter().position(|(of, _)| *of == id).unwrap();
        match self.heard.remove(at).1 {
            Heard::Answer(answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_node_signs_in_with_a_certificate_or_with_a_token_and_nobody_else_does() {
    let Some(server) = ApiServer::start() else {
        return;
    };
    for kubeconfig in [
        server.kubeconfig_with_certificate(),
        server.kubeconfig_with_token(),
    ] {
        let mut driven = Driven::new(kubeconfig);
        driven.connect();
        assert_eq!(driven.call(Method::Get, "/api/v1/nodes/edge").code(), 404);
    }
    server.change_token("another");
    let mut driven = Driven::new(server.kubeconfig_with_token());
    driven.connect();
    assert_eq!(driven.call(Method::Get, "/api/v1/nodes/edge").code(), 401);
    let asked = server.asked();
    assert!(asked.iter().all(|a| a.user_agent.starts_with("podprobe/")));
}

#[test]
fn an_api_server_that_nobody_vouches_for_is_not_spoken_to() {
    let (Some(server), Some(other)) = (ApiServer::start(), ApiServer::start()) else {
        return;
    };
    let kubeconfig = server.kubeconfig_with_token();
    let stranger = other.authority.path("ca.pem");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let text = text.replace(&server.authority.path("ca.pem"), &stranger);
    std::fs::write(&kubeconfig, text).unwrap();
    let mut driven = Driven::new(kubeconfig);
    driven.until("refused", |d| !d.changes.is_empty());
    let LinkChange::Down(cause) = &driven.changes[0] else {
        panic!("{:?}", driven.changes);
    };
    assert!(
        cause.contains(
            "is signed by nobody whom this node trusts; check certificate-authority-data"
        ),
        "{cause}"
    );
    assert_eq!(server.asked().len(), 0);
}

#[test]
fn requests_go_beside_one_another_on_one_connection() {
    let Some(server) = ApiServer::start() else {
        return;
    };
    server.fail("GET", "/slow", 1, Fault::Silent);
    let mut driven = Driven::new(server.kubeconfig_with_certificate());
    driven.connect();
    let slow = Request {
        method: Method::Get,
        path: "/api/v1/nodes/slow".to_owned(),
        body: None,
    };
    let slow = driven.client.call(Moment::now(), &slow, Urgency::Usual);
    assert_eq!(driven.call(Method::Post, "/api/v1/nodes").code(), 201);
    assert_eq!(driven.call(Method::Get, "/api/v1/nodes/edge").code(), 200);
    server.cut();
    assert_eq!(driven.answer(slow), Answer::NoConnection);
    driven.until("told", |d| d.changes.len() > 1);
    assert_eq!(driven.changes[0], LinkChange::Up);
    assert!(matches!(driven.changes[1], LinkChange::Down(_)));
    driven.connect();
    assert_eq!(driven.call(Method::Get, "/api/v1/nodes/edge").code(), 200);
}

#[test]
fn faults_of_the_server_are_answers_and_no_more() {
    let Some(server) = ApiServer::start() else {
        return;
    };
    let mut driven = Driven::new(server.kubeconfig_with_certificate());
    driven.connect();
    server.fail(
        "GET",
        "nodes",
        1,
        Fault::Status(429, "Too many requests\n", Some(1)),
    );
    let answer = driven.call(Method::Get, "/api/v1/nodes/edge");
    assert_eq!(
        (answer.code(), answer.message()),
        (429, "Too many requests")
    );
    assert_eq!(answer.retry_after(), Some(Duration::from_secs(1)));
    server.fail("GET", "nodes", 1, Fault::Garbage);
    let answer = driven.call(Method::Get, "/api/v1/nodes/edge");
    assert_eq!((answer.code(), answer.object()), (200, None));
    server.fail("GET", "nodes", 1, Fault::Reset);
    assert_eq!(
        driven.call(Method::Get, "/api/v1/nodes/edge"),
        Answer::NoConnection
    );
    assert_eq!(driven.call(Method::Get, "/api/v1/nodes/edge").code(), 404);
    assert_eq!(driven.changes, [LinkChange::Up], "one connection for all");
}

#[test]
fn a_server_that_is_away_is_tried_until_it_is_back() {
    let Some(server) = ApiServer::start() else {
        return;
    };
    server.down();
    let mut driven = Driven::new(server.kubeconfig_with_certificate());
    driven.until("refused", |d| d.changes.len() >= 2);
    assert!(
        driven
            .changes
            .iter()
            .all(|c| matches!(c, LinkChange::Down(_)))
    );
    server.up();
    driven.connect();
}
