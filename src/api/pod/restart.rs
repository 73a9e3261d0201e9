//! When a container that ended is started again: the policies of pods and containers, and the rules by exit code.

use serde::{Deserialize, Deserializer, Serialize};

/// The rule that tells when a container that ended is started again (kubelet-probes 8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// After every exit; an empty text means the same.
    #[default]
    #[serde(alias = "")]
    Always,
    /// After an exit with a code other than 0.
    OnFailure,
    /// Never.
    Never,
}

/// Unlike the pod's policy, a container's own policy may not be empty: read as Always it would make
/// a sidecar.
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

/// A rule of `restartPolicyRules` (kubelet-probes 8.2, 8.6).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartRule {
    /// `Restart`, or `RestartAllContainers` for the whole pod.
    pub action: String,
    /// The exit codes that the rule is for; required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_codes: Option<RestartExitCodes>,
}

/// `exitCodes` of a restart rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RestartExitCodes {
    /// `In` or `NotIn`.
    pub operator: String,
    /// Exit codes to compare with, at most 255 of them.
    pub values: Vec<i32>,
}
