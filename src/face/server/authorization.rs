//! Asks the cluster who a client is and what the client may do, as the kubelet's authentication and authorization webhooks
//! do (kubelet-probes 11.1).
//!
//! Invariants: asked only for a client whose certificate or token does not let it do everything by itself. What cannot be
//! asked is refused.

use super::access::{Claim, Refusal};
use super::backend::Reviews;
use super::request::Request;
use crate::api::review::{NoReview, User};

/// Decides whether a client may send a request. If `by_user` is false, every user may do everything.
///
/// # Errors
/// Returns the [`Refusal`] if the client is unknown, if it may not, or if the API server cannot be asked.
pub fn check(
    reviews: &dyn Reviews,
    claim: Claim,
    request: &Request,
    by_user: bool,
) -> Result<(), Refusal> {
    let user = match claim {
        Claim::User(user) => user,
        Claim::Token(token) => {
            let user = reviews.user_of(&token);
            user.map_err(|why| unasked("cannot review the token", &why))?
                .ok_or_else(|| Refusal::new(401, "Unauthorized"))?
        }
    };
    if !by_user {
        return Ok(());
    }
    let (verb, subresources) = (verb(&request.method), subresources(&request.path));
    for subresource in &subresources {
        match reviews.may(&user, verb, subresource) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => {
                let of = attributes(&user, verb, &[*subresource]);
                return Err(unasked(&format!("Authorization error ({of})"), &why));
            }
        }
    }
    let of = attributes(&user, verb, &subresources);
    Err(Refusal::new(403, format!("Forbidden ({of})")))
}

fn unasked(what: &str, why: &NoReview) -> Refusal {
    let status = match why {
        NoReview::Busy => 503,
        NoReview::NoConnection | NoReview::Late | NoReview::Refused { .. } => 500,
    };
    Refusal::new(status, format!("{what}: {why}"))
}

fn attributes(user: &User, verb: &str, subresources: &[&str]) -> String {
    format!(
        "user={}, verb={verb}, resource=nodes, subresource(s)=[{}]",
        user.name,
        subresources.join(" ")
    )
}

/// Returns the verb of the API for an HTTP method.
fn verb(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Returns the subresources of the node of which a user must be allowed one.
fn subresources(path: &str) -> Vec<&'static str> {
    let path = path.trim_start_matches('/');
    let is_below = |parent: &str| {
        let rest = path.strip_prefix(parent);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let of =
        |name: &'static str, parents: &[&str]| parents.iter().any(|p| is_below(p)).then_some(name);
    let alone = of("stats", &["stats"])
        .or_else(|| of("metrics", &["metrics"]))
        .or_else(|| of("log", &["logs"]))
        .or_else(|| of("checkpoint", &["checkpoint"]))
        .or_else(|| of("statusz", &["statusz"]))
        .or_else(|| of("configz", &["flagz"]));
    if let Some(alone) = alone {
        return vec![alone];
    }
    let finer = of("pods", &["pods", "runningpods"])
        .or_else(|| of("healthz", &["healthz"]))
        .or_else(|| of("configz", &["configz"]));
    finer.into_iter().chain(["proxy"]).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::request;
    use super::*;

    /// An API server that knows the token `good` of a reader, who may read metrics and pods.
    #[derive(Default)]
    struct Cluster {
        asked: Mutex<Vec<String>>,
        is_down: bool,
    }

    impl Reviews for Cluster {
        fn user_of(&self, token: &str) -> Result<Option<User>, NoReview> {
            match self.is_down {
                true => Err(NoReview::NoConnection),
                false => Ok((token == "good").then(reader)),
            }
        }

        fn may(&self, user: &User, verb: &str, subresource: &str) -> Result<bool, NoReview> {
            let mut asked = self.asked.lock().unwrap();
            asked.push(format!("{verb} {subresource}"));
            match (self.is_down, user.name.as_str()) {
                (true, _) => Err(NoReview::Busy),
                (_, "root") => Ok(true),
                _ => Ok(verb == "get" && ["metrics", "pods"].contains(&subresource)),
            }
        }
    }

    fn user(name: &str) -> User {
        User {
            name: name.into(),
            ..User::default()
        }
    }

    fn reader() -> User {
        user("reader")
    }

    fn ask(cluster: &Cluster, claim: Claim, line: &str) -> Result<(), (u16, String)> {
        let head = format!("{line} HTTP/1.1\r\n\r\n");
        let (request, _) = request::read(head.as_bytes(), 0).unwrap().unwrap();
        check(cluster, claim, &request, true).map_err(|e| (e.status, e.text.into_owned()))
    }

    fn token(text: &str) -> Claim {
        Claim::Token(text.into())
    }

    #[test]
    fn a_user_may_what_the_cluster_allows() {
        let cluster = Cluster::default();
        let of = |line: &str| ask(&cluster, token("good"), line);
        for line in [
            "GET /metrics",
            "GET /metrics/cadvisor",
            "HEAD /metrics",
            "GET /pods",
            "GET /runningpods/",
        ] {
            assert_eq!(of(line), Ok(()), "{line}");
        }
        let refused = |verb: &str, subresources: &str| {
            let text = format!(
                "Forbidden (user=reader, verb={verb}, resource=nodes, subresource(s)=[{subresources}])"
            );
            Err((403, text))
        };
        for (line, verb, subresources) in [
            ("GET /stats/summary", "get", "stats"),
            ("GET /logs/", "get", "log"),
            ("GET /configz", "get", "configz proxy"),
            ("GET /containerLogs/a/b/c", "get", "proxy"),
            ("POST /metrics", "create", "metrics"),
            ("POST /run/a/b/c", "create", "proxy"),
            ("PUT /podprobe/v1/files/a/b/c", "update", "proxy"),
            ("GET /podprobe/v1/snapshot", "get", "proxy"),
            ("GET /metricsx", "get", "proxy"),
            ("GET /debug/threads", "get", "proxy"),
            ("GET /", "get", "proxy"),
            ("GET //stats", "get", "stats"),
            ("BREW /pods", "", "pods proxy"),
        ] {
            assert_eq!(of(line), refused(verb, subresources), "{line}");
        }
        let root = ask(&cluster, Claim::User(user("root")), "POST /run/a/b/c");
        assert_eq!(root, Ok(()));
    }

    /// Either of two subresources is enough, and the finer one is asked first.
    #[test]
    fn the_finer_subresource_is_enough() {
        let cluster = Cluster::default();
        assert_eq!(ask(&cluster, token("good"), "GET /pods"), Ok(()));
        assert_eq!(*cluster.asked.lock().unwrap(), ["get pods"]);
        let _ = ask(&cluster, token("good"), "GET /configz");
        assert_eq!(
            cluster.asked.lock().unwrap()[1..],
            ["get configz", "get proxy"]
        );
    }

    #[test]
    fn a_token_that_the_cluster_does_not_know_is_no_credential() {
        let cluster = Cluster::default();
        let of = ask(&cluster, token("bad"), "GET /metrics");
        assert_eq!(of, Err((401, "Unauthorized".into())));
        assert_eq!(cluster.asked.lock().unwrap().len(), 0);
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let cluster = Cluster {
            is_down: true,
            ..Cluster::default()
        };
        assert_eq!(
            ask(&cluster, token("good"), "GET /metrics"),
            Err((
                500,
                "cannot review the token: there is no connection to the API server".into()
            ))
        );
        let text = "Authorization error (user=root, verb=get, resource=nodes, subresource(s)=[metrics]): too many other \
                    questions wait for the API server; try again later";
        assert_eq!(
            ask(&cluster, Claim::User(user("root")), "GET /metrics"),
            Err((503, text.into()))
        );
    }

    #[test]
    fn without_authorization_every_user_may_do_everything() {
        let cluster = Cluster::default();
        let head = b"POST /run/a/b/c HTTP/1.1\r\n\r\n";
        let (request, _) = request::read(head, 0).unwrap().unwrap();
        assert_eq!(check(&cluster, token("good"), &request, false), Ok(()));
        let unknown = check(&cluster, token("bad"), &request, false);
        assert_eq!(unknown.unwrap_err().status, 401);
    }
}
