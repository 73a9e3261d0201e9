//! The rules for starting an ended container again: the policies of pods and containers, and the rules by exit code.

use serde::{Deserialize, Deserializer, Serialize};

/// The rule that tells when a container that ended is started again (kubelet-probes 8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// The container is restarted after every exit. An empty text has the same meaning.
    #[default]
    #[serde(alias = "")]
    Always,
    /// The container is restarted after an exit with a code other than 0.
    OnFailure,
    /// The container is never restarted.
    Never,
}

/// Reads the restart policy of a container. Unlike the pod's policy, the text may not be empty. An empty text would be
/// read as Always, and Always makes an init container a sidecar.
pub(super) fn own_restart_policy<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<RestartPolicy>, D::Error> {
    #[derive(Deserialize)]
    enum Own {
        Always,
        OnFailure,
        Never,
    }
    let own = Option::<Own>::deserialize(from)?;
    Ok(own.map(|own| match own {
        Own::Always => RestartPolicy::Always,
        Own::OnFailure => RestartPolicy::OnFailure,
        Own::Never => RestartPolicy::Never,
    }))
}

/// A rule of `restartPolicyRules`: what to do after some exit codes (kubelet-probes 8.2, 8.6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    /// Action of the rule: `Restart`, or `RestartAllContainers` for the whole pod.
    pub action: String,
    /// Exit codes that the rule applies to; required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<RestartExitCodes>,
}

/// `exitCodes` of a restart rule: the exit codes that the rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartExitCodes {
    /// Comparison with `values`: `In` or `NotIn`.
    pub operator: String,
    /// Exit codes to compare with; at most 255.
    pub values: Vec<i32>,
}
