//! Kubernetes quantities (`100m`, `64Mi`, `1.5`, `2e3`), exact to a nano unit.

use serde::{Deserialize, Serialize};

/// A quantity as written, with its value. Serialises as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(pub String);
