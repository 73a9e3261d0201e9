//! A configuration that is read again while the daemon runs: which keys have changed, and which of them change at once.
//!
//! Invariants: a key that is not in [`AT_ONCE`] keeps its value until the daemon is started again, so the configuration in
//! force is always one that a part of the daemon really uses.

use std::sync::Arc;

use serde_json::Value;

use super::{Origin, SHIPPED, Settings, SettingsError};

/// The keys that change while the daemon runs. All other keys need a restart of the daemon.
pub const AT_ONCE: [&str; 23] = [
    "registerWithTaints",
    "syncFrequency",
    "crashLoopBackOff.maxContainerRestartPeriod",
    "containerLogMaxSize",
    "containerLogMaxFiles",
    "authentication.webhook.cacheTTL",
    "authorization.webhook.cacheAuthorizedTTL",
    "authorization.webhook.cacheUnauthorizedTTL",
    "enableDebuggingHandlers",
    "maxPods",
    "podPidsLimit",
    "singleProcessOOMKill",
    "memorySwap.swapBehavior",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMinimumGCAge",
    "onProgressDeadline",
    "serializeImagePulls",
    "maxParallelImagePulls",
    "registries",
    "shutdownGracePeriod",
    "shutdownGracePeriodCriticalPods",
    "logging.level",
];

impl Origin {
    /// Reads the configuration again.
    ///
    /// # Errors
    /// Returns [`SettingsError`] as [`Settings::load`] does.
    pub fn load(&self) -> Result<Settings, SettingsError> {
        Settings::load(&self.layout, self.named.as_deref(), &self.overrides)
    }

    /// Returns the path of the configuration file, which may be missing.
    pub fn file(&self) -> String {
        let file = self.named.clone();
        let file = file.unwrap_or_else(|| self.layout.config_file());
        file.display().to_string()
    }
}

impl Settings {
    /// Returns the settings that are in force after `new` was read: those of `new` for keys that change at once, and the old
    /// ones for all others. The second value has a line for each key whose value differs in `new`.
    pub fn reloaded(&self, new: &Self) -> (Self, Vec<String>) {
        let (mut values, wanted) = (self.values(), new.values());
        let mut changes = Vec::new();
        for key in keys() {
            let at = format!("/{}", key.replace('.', "/"));
            let before = values.pointer(&at).cloned().unwrap_or_default();
            let after = wanted.pointer(&at).cloned().unwrap_or_default();
            if before == after {
                continue;
            }
            let at_once = AT_ONCE.contains(&key.as_str());
            if at_once && let Some(value) = values.pointer_mut(&at) {
                *value = after.clone();
            }
            let when = if at_once {
                "in force"
            } else {
                "after a restart"
            };
            changes.push(match key == "staticPodURLHeader" {
                true => format!("{key}: \"*****\" -> \"*****\", {when}"),
                false => format!("{key}: {before} -> {after}, {when}"),
            });
        }
        let mut settings = self.clone();
        settings.register_with_taints = new.register_with_taints.clone();
        settings.sync_frequency = new.sync_frequency;
        settings.max_container_restart_period = new.max_container_restart_period;
        settings.container_log_max_size = new.container_log_max_size;
        settings.container_log_max_files = new.container_log_max_files;
        settings.token_ttl = new.token_ttl;
        settings.authorized_ttl = new.authorized_ttl;
        settings.unauthorized_ttl = new.unauthorized_ttl;
        settings.enable_debugging_handlers = new.enable_debugging_handlers;
        settings.max_pods = new.max_pods;
        settings.pod_pids_limit = new.pod_pids_limit;
        settings.single_process_oom_kill = new.single_process_oom_kill;
        settings.swap_behavior = new.swap_behavior;
        settings.image_gc_high_threshold_percent = new.image_gc_high_threshold_percent;
        settings.image_gc_low_threshold_percent = new.image_gc_low_threshold_percent;
        settings.image_minimum_gc_age = new.image_minimum_gc_age;
        settings.on_progress_deadline = new.on_progress_deadline;
        settings.serialize_image_pulls = new.serialize_image_pulls;
        settings.max_parallel_image_pulls = new.max_parallel_image_pulls;
        settings.registries = new.registries.clone();
        settings.shutdown_grace_period = new.shutdown_grace_period;
        settings.shutdown_grace_period_critical_pods = new.shutdown_grace_period_critical_pods;
        settings.log_levels = new.log_levels.clone();
        settings.written = Some(Arc::new(values));
        (settings, changes)
    }
}

/// Returns every key of the configuration, with a dot between the key of an object and a key in that object.
fn keys() -> Vec<String> {
    let mut found = Vec::new();
    let shipped = serde_json::from_str(SHIPPED).unwrap_or_default();
    add_keys(&shipped, "", &mut found);
    found
}

fn add_keys(value: &Value, prefix: &str, found: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let key = format!("{prefix}{key}");
        match value.as_object().is_some_and(|inner| !inner.is_empty()) {
            true => add_keys(value, &format!("{key}."), found),
            false => found.push(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::base::paths::Layout;
    use crate::daemon::settings::Overrides;

    fn with(value: &Value) -> Settings {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.json");
        fs::write(&file, value.to_string()).unwrap();
        let overrides = Overrides {
            node_name: Some("edge".into()),
            ..Overrides::default()
        };
        let settings = Settings::load(&Layout::new("/r"), Some(&file), &overrides).unwrap();
        Settings {
            written: None,
            origin: None,
            ..settings
        }
    }

    /// Returns the object that has one value at a key.
    fn object(key: &str, value: Value) -> Value {
        let parts = key.rsplit('.');
        parts.fold(value, |value, part| json!({ part: value }))
    }

    /// A value that differs from the default, for each key that changes at once.
    fn other(key: &str) -> Value {
        match key {
            "registerWithTaints" => json!([{"key": "k", "effect": "NoSchedule"}]),
            "containerLogMaxSize" => json!("1Mi"),
            "containerLogMaxFiles" | "maxPods" | "podPidsLimit" => json!(7),
            "enableDebuggingHandlers" | "serializeImagePulls" => json!(false),
            "singleProcessOOMKill" => json!(true),
            "memorySwap.swapBehavior" => json!("LimitedSwap"),
            "imageGCHighThresholdPercent" => json!(90),
            "imageGCLowThresholdPercent" => json!(50),
            "shutdownGracePeriodCriticalPods" => json!("3s"),
            "onProgressDeadline" => json!("rollback"),
            "maxParallelImagePulls" => json!(1),
            "logging.level" => json!("warn,probes=debug"),
            "registries" => json!({"pull": false}),
            _ => json!("33s"),
        }
    }

    #[test]
    fn a_key_that_changes_at_once_is_in_force_as_after_a_start() {
        let keys = keys();
        for key in AT_ONCE {
            assert!(keys.iter().any(|known| known == key), "{key} is no key");
            let new = with(&object(key, other(key)));
            let (settings, _) = with(&json!({})).reloaded(&new);
            let settings = Settings {
                written: None,
                ..settings
            };
            assert_eq!(settings, new, "{key}");
        }
    }

    fn load(dir: &std::path::Path, text: &str) -> Settings {
        fs::write(dir.join("c.json"), text).unwrap();
        let overrides = Overrides {
            node_name: Some("edge".into()),
            ..Overrides::default()
        };
        let layout = Layout::new("/r");
        Settings::load(&layout, Some(&dir.join("c.json")), &overrides).unwrap()
    }

    #[test]
    fn every_change_is_told_and_what_needs_a_restart_stays() {
        let dir = tempfile::tempdir().unwrap();
        let old = load(
            dir.path(),
            r#"{"staticPodURLHeader": {"A": ["secret"]}, "nodeName": "x"}"#,
        );
        let new = load(
            dir.path(),
            r#"{"maxPods": 7, "podCIDR": "10.9.0.0/24", "staticPodURLHeader": {"A": ["other"]}}"#,
        );
        let (settings, changes) = old.reloaded(&new);
        assert_eq!(
            changes,
            [
                "staticPodURLHeader: \"*****\" -> \"*****\", after a restart",
                "podCIDR: \"10.244.0.0/24\" -> \"10.9.0.0/24\", after a restart",
                "maxPods: 110 -> 7, in force",
            ]
        );
        assert_eq!(
            (settings.max_pods, &settings.pod_cidrs),
            (7, &old.pod_cidrs)
        );
        let in_force = settings.in_force();
        assert_eq!(in_force["maxPods"], 7);
        assert_eq!(in_force["podCIDR"], "10.244.0.0/24");
        // What needs a restart is told again, and what is in force is not.
        let (_, again) = settings.reloaded(&new);
        assert_eq!(again, changes[..2]);
        let (_, back) = settings.reloaded(&load(
            dir.path(),
            r#"{"maxPods": 7, "staticPodURLHeader": {"A": ["secret"]}}"#,
        ));
        assert!(back.is_empty(), "the command line names the node: {back:?}");
    }
}
