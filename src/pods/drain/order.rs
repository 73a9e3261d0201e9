//! The order in which all pods of a node end: by groups of priorities, the lowest first, as in the kubelet's graceful node
//! shutdown. All functions are pure.

use std::time::Duration;

use crate::api::PodUid;
use crate::api::priority::SYSTEM_CRITICAL_PRIORITY;
use crate::base::clock::Moment;

/// The times in which the pods of a node end at its shutdown (the kubelet's keys of these names).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownGrace {
    /// The time for all pods (`shutdownGracePeriod`).
    pub all: Duration,
    /// The part of this time that critical pods have after the others (`shutdownGracePeriodCriticalPods`).
    pub critical: Duration,
}

/// The pods that end together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    /// The lowest priority of the group.
    priority: i32,
    /// The time for the group. `None` means that each pod has its own grace period, and is waited for.
    period: Option<Duration>,
}

/// A pod as the order sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The UID of the pod.
    pub uid: PodUid,
    /// The priority of the pod.
    pub priority: i32,
    /// The grace period of the pod in seconds.
    pub grace: i64,
    /// The stage that the end of the pod has reached.
    pub stage: SubjectStage,
}

/// The stage that the end of a pod has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectStage {
    /// The pod runs, or may start at any moment.
    Runs,
    /// The pod is ending.
    Ends,
    /// The pod has ended.
    Ended,
}

/// The pods that a step ends, and whether it was the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The pods that must end now, each with its grace period in seconds. `None` means the pod's own grace period.
    pub end: Vec<(PodUid, Option<i64>)>,
    /// True if every group has had its turn.
    pub is_done: bool,
}

/// The groups of pods, and the group whose turn it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    groups: [Group; 2],
    /// The grace period in seconds that all pods get instead of their own.
    grace: Option<i64>,
    turn: usize,
    /// The moment at which the turn began.
    since: Option<Moment>,
}

impl Order {
    /// Makes the order of a drain: critical pods end when all others have ended. `grace` is the grace period in seconds that
    /// all pods get instead of their own.
    pub fn drain(grace: Option<i64>) -> Self {
        Self::new([None, None], grace)
    }

    /// Makes the order of a shutdown, in which each group has its time.
    pub fn shutdown(times: ShutdownGrace) -> Self {
        let others = times.all.saturating_sub(times.critical);
        Self::new([Some(others), Some(times.critical)], None)
    }

    fn new([others, critical]: [Option<Duration>; 2], grace: Option<i64>) -> Self {
        let group = |priority, period| Group { priority, period };
        let groups = [group(0, others), group(SYSTEM_CRITICAL_PRIORITY, critical)];
        Self {
            groups,
            grace,
            turn: 0,
            since: None,
        }
    }

    /// Returns the group of a priority. A pod with a priority below all groups belongs to the first one.
    fn group_of(&self, priority: i32) -> usize {
        let above = self.groups.iter().take_while(|g| g.priority <= priority);
        above.count().saturating_sub(1)
    }

    /// True if every group has had its turn.
    pub fn is_done(&self) -> bool {
        self.turn >= self.groups.len()
    }

    /// Decides which pods must end now. A pod that comes late ends with the group whose turn it is, or was the last. A pod that
    /// ends already is told once, when its group has its turn, because the order may give it less time. `knows_all` is false
    /// while pods of the node may still be unknown: the order is not done then.
    pub fn step(&mut self, now: Moment, subjects: &[Subject], knows_all: bool) -> Step {
        let mut end: Vec<(PodUid, Option<i64>)> = Vec::new();
        while let Some(group) = self.groups.get(self.turn) {
            let is_first = self.since.is_none();
            let since = *self.since.get_or_insert(now);
            let is_of_turn = |s: &&Subject| self.group_of(s.priority) <= self.turn;
            let members: Vec<&Subject> = subjects.iter().filter(is_of_turn).collect();
            self.tell(group, &members, is_first, &mut end);
            let have_ended = members.iter().all(|s| s.stage == SubjectStage::Ended);
            let is_over = group
                .period
                .is_some_and(|period| now.since(since) >= period);
            if !(is_over || have_ended && knows_all) {
                break;
            }
            self.turn += 1;
            self.since = None;
        }
        if let (true, [.., last]) = (self.is_done(), &self.groups) {
            let all: Vec<&Subject> = subjects.iter().collect();
            self.tell(last, &all, false, &mut end);
        }
        Step {
            end,
            is_done: self.is_done(),
        }
    }

    /// Adds the members of a group that must be told of their end.
    fn tell(
        &self,
        group: &Group,
        members: &[&Subject],
        is_first: bool,
        end: &mut Vec<(PodUid, Option<i64>)>,
    ) {
        for member in members {
            let is_to_be_told = match member.stage {
                SubjectStage::Runs => true,
                SubjectStage::Ends => is_first && self.group_of(member.priority) == self.turn,
                SubjectStage::Ended => false,
            };
            if is_to_be_told && end.iter().all(|(uid, _)| *uid != member.uid) {
                end.push((member.uid.clone(), self.grace_in(group, member)));
            }
        }
    }

    /// Returns the grace period of a pod in its group: its own, at most the time of the group.
    fn grace_in(&self, group: &Group, subject: &Subject) -> Option<i64> {
        let Some(period) = group.period else {
            return self.grace;
        };
        let period = i64::try_from(period.as_secs()).unwrap_or(i64::MAX);
        Some(subject.grace.min(period))
    }
}

/// True if a pod of this priority ends after the usual ones.
pub fn is_of_last_group(priority: i32) -> bool {
    priority >= SYSTEM_CRITICAL_PRIORITY
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [(&str, Option<i64>); 0] = [];

    fn at(seconds: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(seconds))
    }

    fn subject(uid: &str, priority: i32, stage: SubjectStage) -> Subject {
        Subject {
            uid: uid.into(),
            priority,
            grace: 12,
            stage,
        }
    }

    fn pods(stages: [SubjectStage; 3]) -> Vec<Subject> {
        let [low, usual, critical] = stages;
        vec![
            subject("low", -7, low),
            subject("usual", 1_000_000, usual),
            subject("critical", SYSTEM_CRITICAL_PRIORITY + 1000, critical),
        ]
    }

    #[track_caller]
    fn check<const N: usize>(step: Step, end: [(&str, Option<i64>); N], is_done: bool) {
        let found: Vec<_> = step.end.iter().map(|(uid, g)| (uid.as_str(), *g)).collect();
        assert_eq!((found, step.is_done), (end.to_vec(), is_done));
    }

    use SubjectStage::{Ended, Ends, Runs};

    #[test]
    fn critical_pods_end_when_all_others_have_ended() {
        let mut order = Order::drain(None);
        let first = order.step(at(0), &pods([Runs, Runs, Runs]), true);
        check(first, [("low", None), ("usual", None)], false);
        let waits = order.step(at(9999), &pods([Ended, Ends, Runs]), true);
        check(waits, NONE, false);
        let second = order.step(at(9999), &pods([Ended, Ended, Runs]), true);
        check(second, [("critical", None)], false);
        check(
            order.step(at(10_000), &pods([Ended, Ended, Ends]), true),
            NONE,
            false,
        );
        check(
            order.step(at(10_001), &pods([Ended, Ended, Ended]), true),
            NONE,
            true,
        );
    }

    #[test]
    fn a_person_gives_another_grace_period() {
        let mut order = Order::drain(Some(90));
        let first = order.step(at(0), &pods([Runs, Ended, Runs]), true);
        check(first, [("low", Some(90))], false);
    }

    #[test]
    fn at_a_shutdown_each_group_has_its_time_and_no_pod_more() {
        let mut order = Order::shutdown(ShutdownGrace {
            all: Duration::from_secs(30),
            critical: Duration::from_secs(10),
        });
        let first = order.step(at(100), &pods([Runs, Runs, Runs]), true);
        check(first, [("low", Some(12)), ("usual", Some(12))], false);
        check(
            order.step(at(119), &pods([Ends, Ends, Runs]), true),
            NONE,
            false,
        );
        let second = order.step(at(120), &pods([Ends, Ended, Runs]), true);
        check(second, [("critical", Some(10))], false);
        check(
            order.step(at(129), &pods([Ends, Ended, Ends]), true),
            NONE,
            false,
        );
        check(
            order.step(at(130), &pods([Ends, Ended, Ends]), true),
            NONE,
            true,
        );
    }

    #[test]
    fn a_group_that_has_ended_gives_its_time_to_nobody() {
        let mut order = Order::shutdown(ShutdownGrace {
            all: Duration::from_secs(30),
            critical: Duration::from_secs(10),
        });
        let first = order.step(at(100), &pods([Ended, Ended, Runs]), true);
        check(first, [("critical", Some(10))], false);
        check(
            order.step(at(110), &pods([Ended, Ended, Ends]), true),
            NONE,
            true,
        );
    }

    #[test]
    fn without_a_time_for_them_pods_are_killed_at_once() {
        let mut order = Order::shutdown(ShutdownGrace::default());
        let only = order.step(at(100), &pods([Runs, Runs, Runs]), true);
        let all = [("low", Some(0)), ("usual", Some(0))];
        let end: Vec<_> = only.end.iter().map(|(u, g)| (u.as_str(), *g)).collect();
        assert_eq!(&end[..2], all);
        assert!(only.is_done && end.last() == Some(&("critical", Some(0))));
    }

    #[test]
    fn a_pod_that_comes_late_ends_too() {
        let mut order = Order::drain(None);
        check(order.step(at(0), &[], false), NONE, false);
        let late = [subject("late", 0, Runs)];
        check(order.step(at(1), &late, true), [("late", None)], false);
        let mut order = Order::drain(None);
        let all = pods([Ended, Ended, Ends]);
        let told = order.step(at(0), &all, true);
        check(told, [("critical", None)], false);
        let late = [
            subject("late", 0, Runs),
            subject("critical", i32::MAX, Ends),
        ];
        check(order.step(at(1), &late, true), [("late", None)], false);
    }

    #[test]
    fn a_pod_that_ends_already_is_told_of_its_time_once() {
        let mut order = Order::drain(Some(0));
        let first = order.step(at(0), &pods([Ends, Ended, Ends]), true);
        check(first, [("low", Some(0))], false);
        check(
            order.step(at(1), &pods([Ends, Ended, Ends]), true),
            NONE,
            false,
        );
        let second = order.step(at(2), &pods([Ended, Ended, Ends]), true);
        check(second, [("critical", Some(0))], false);
    }

    #[test]
    fn a_pod_that_comes_after_all_have_ended_ends_at_once() {
        let mut order = Order::drain(None);
        check(order.step(at(0), &[], true), NONE, true);
        let late = [subject("late", 0, Runs)];
        check(order.step(at(1), &late, true), [("late", None)], true);
        let ends = [subject("late", 0, Ends)];
        check(order.step(at(2), &ends, true), NONE, true);
    }

    #[test]
    fn no_pod_is_told_twice_in_one_step() {
        let mut order = Order::shutdown(ShutdownGrace::default());
        let only = order.step(at(100), &pods([Runs, Ended, Ended]), true);
        assert!(only.is_done);
        assert_eq!(only.end.len(), 1, "{:?}", only.end);
    }
}
