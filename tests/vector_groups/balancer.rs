//! balancer.json: the userspace proxy's round robin and its ports (services 5).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use podprobe::base::clock::Moment;
use podprobe::net::proxyd::userspace::balancer::{LoadBalancerRR, is_valid};
use podprobe::net::proxyd::userspace::ports::{PortAllocator, PortRange};
use podprobe::net::services::table::Backend;
use serde::Deserialize;

use super::{AS_TOLD, Case, Group, Run, Verdict, duration, ensure, group, same};

pub const GROUPS: &[Group] = &[
    group("version", Run::Text),
    group("doc", Run::Text),
    group("validity", Run::Each(validity)),
    group("steps", Run::Each(steps)),
    group("ports", Run::Each(ports)),
];

/// The same numbers in each run, at least 0 and below 1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Validity {
    r#in: Vec<HostPort>,
    valid: Vec<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPort {
    host: String,
    port: i32,
}

impl HostPort {
    /// None: no endpoint can have such a port.
    fn backend(&self) -> Option<Backend> {
        let none = IpAddr::from([0, 0, 0, 0]);
        let address = self.host.parse().unwrap_or(none);
        let port = u16::try_from(self.port).ok()?;
        Some(backend((address, port).into()))
    }
}

fn backend(address: SocketAddr) -> Backend {
    Backend {
        address,
        namespace: None,
    }
}

/// What is valid, and that a balancer keeps that and no more.
fn validity(case: &Case) -> Verdict {
    let case: Validity = case.fields()?;
    let given: Vec<Option<Backend>> = case.r#in.iter().map(HostPort::backend).collect();
    let valid = given.iter().map(|b| b.as_ref().is_some_and(is_valid));
    same("valid", case.valid.clone(), valid.collect())?;
    let all: Vec<Backend> = given.iter().flatten().cloned().collect();
    let wanted: Vec<Backend> = given
        .into_iter()
        .zip(&case.valid)
        .filter_map(|(b, valid)| b.filter(|_| *valid))
        .collect();
    let mut balancer = LoadBalancerRR::default();
    // 0.999… exchanges each with itself: the order stays.
    balancer.set_endpoints(&"foo", &all, || 0.999_999);
    same("kept", &*wanted, balancer.endpoints(&"foo"))?;
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steps {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Step {
    Next(Next),
    Service(Service),
    Endpoints(Endpoints),
    Delete(Delete),
    After(After),
    CleanUp(CleanUp),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Next {
    next: String,
    #[serde(default = "localhost")]
    client: IpAddr,
    #[serde(default)]
    reset: bool,
    is: Option<String>,
    error: Option<String>,
    r#as: Option<String>,
}

fn localhost() -> IpAddr {
    [127, 0, 0, 1].into()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    service: String,
    affinity: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Endpoints {
    endpoints: String,
    are: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delete {
    delete: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    after: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CleanUp {
    clean_up: String,
    left: usize,
}

/// A balancer, the clock, and what steps got as a name.
struct World {
    balancer: LoadBalancerRR<String>,
    now: Moment,
    random: Random,
    named: BTreeMap<String, Backend>,
}

impl World {
    fn endpoint(&self, service: &str, word: &str) -> Result<Backend, String> {
        let unknown = || format!("unknown endpoint \"{word}\"");
        if let Some(name) = word.strip_prefix('$') {
            return self.named.get(name).cloned().ok_or_else(unknown);
        }
        if let Some(place) = word.strip_prefix('s') {
            let place: usize = place.parse().map_err(|_| unknown())?;
            let endpoints = self.balancer.endpoints(&service.to_owned());
            return endpoints.get(place).cloned().ok_or_else(unknown);
        }
        word.parse().map(backend).map_err(|_| unknown())
    }

    fn run(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Next(step) => return self.next(&step),
            Step::Service(step) => {
                let affinity = step.affinity.as_deref().map(duration).transpose()?;
                self.balancer.new_service(&step.service, affinity);
            }
            Step::Endpoints(step) => {
                let one = |word: &String| self.endpoint(&step.endpoints, word);
                let list = step.are.iter().map(one).collect::<Result<Vec<_>, _>>()?;
                let random = &mut self.random;
                self.balancer
                    .set_endpoints(&step.endpoints, &list, || random.next());
            }
            Step::Delete(step) => self.balancer.delete_service(&step.delete),
            Step::After(step) => self.now = self.now + duration(&step.after)?,
            Step::CleanUp(step) => {
                self.balancer
                    .clean_up_stale_sticky_sessions(&step.clean_up, self.now);
                same("left", step.left, self.balancer.clients(&step.clean_up))?;
            }
        }
        Ok(())
    }

    fn next(&mut self, step: &Next) -> Result<(), String> {
        let got = self
            .balancer
            .next_endpoint(&step.next, step.client, step.reset, self.now);
        let expected = match (&step.is, &step.error) {
            (Some(is), None) => Ok(self.endpoint(&step.next, is)?),
            (None, Some(error)) => Err(error.clone()),
            _ => return Err("a step has either \"is\" or \"error\"".into()),
        };
        if let (Ok(endpoint), Some(name)) = (&got, &step.r#as) {
            self.named.insert(name.clone(), endpoint.clone());
        }
        same("endpoint", expected, got.map_err(|e| e.to_string()))
    }
}

/// With several shuffles: the case must hold for each.
fn steps(case: &Case) -> Verdict {
    for seed in 1..=20 {
        let mut world = World {
            balancer: LoadBalancerRR::default(),
            now: Moment::from_boot(Duration::from_secs(1000)),
            random: Random(seed),
            named: BTreeMap::new(),
        };
        let steps = case.fields::<Steps>()?.steps;
        for (n, step) in steps.into_iter().enumerate() {
            let place = |e| format!("step {n} with seed {seed}: {e}");
            world.run(step).map_err(place)?;
        }
    }
    AS_TOLD
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ports {
    range: String,
    steps: Vec<PortStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
enum PortStep {
    /// This one is given.
    Take(u16),
    /// So many different ones are given.
    TakeAll(usize),
    Release(u16),
    /// All that are given.
    ReleaseAll,
    /// None is given; the error begins with it or has it as its reason.
    Error(String),
    /// The last two times that all were taken they came in different orders.
    OtherOrder(bool),
}

/// An allocator, what it gave, and the orders in which all were taken.
struct PortWorld {
    allocator: PortAllocator,
    random: Random,
    given: Vec<u16>,
    orders: Vec<Vec<u16>>,
}

impl PortWorld {
    fn take(&mut self) -> Result<u16, String> {
        let random = self.random.next();
        let port = self.allocator.allocate_next(random);
        let port = port.map_err(|e| e.to_string())?;
        self.given.push(port);
        Ok(port)
    }

    fn take_all(&mut self, count: usize) -> Result<(), String> {
        let order = (0..count)
            .map(|_| self.take())
            .collect::<Result<Vec<_>, _>>()?;
        let mut different = order.clone();
        different.sort_unstable();
        different.dedup();
        self.orders.push(order);
        same("different ports", count, different.len())
    }

    fn run(&mut self, step: &PortStep) -> Result<(), String> {
        match step {
            PortStep::Take(port) => return same("port", *port, self.take()?),
            PortStep::TakeAll(count) => return self.take_all(*count),
            PortStep::Release(port) => self.allocator.release(*port),
            PortStep::ReleaseAll => {
                let given = std::mem::take(&mut self.given);
                given.into_iter().for_each(|p| self.allocator.release(p));
            }
            PortStep::Error(text) => {
                let got = self.take().err().unwrap_or_default();
                return ensure(got.contains(text), &format!("{text:?} in {got:?}"));
            }
            PortStep::OtherOrder(other) => {
                let differ = self.orders.windows(2).all(|pair| pair[0] != pair[1]);
                return same("another order", *other, differ);
            }
        }
        Ok(())
    }
}

fn ports(case: &Case) -> Verdict {
    let case: Ports = case.fields()?;
    let range = match PortRange::parse(&case.range) {
        Ok(range) => range,
        Err(e) => return refused(&e.to_string(), &case.steps),
    };
    let mut world = PortWorld {
        allocator: PortAllocator::new(range),
        random: Random(1),
        given: Vec::new(),
        orders: Vec::new(),
    };
    for (n, step) in case.steps.iter().enumerate() {
        world.run(step).map_err(|e| format!("step {n}: {e}"))?;
    }
    AS_TOLD
}

/// The range itself is the error.
fn refused(got: &str, steps: &[PortStep]) -> Verdict {
    let [PortStep::Error(text)] = steps else {
        return Err(format!("the range is refused: {got}"));
    };
    ensure(got.contains(text), &format!("{text:?} in {got:?}"))?;
    AS_TOLD
}
