//! Views of workloads that a test has changed.

use serde_json::Value;

use crate::workloads::view::WorkloadView;

/// Changes the object of a view.
pub(super) fn edit(view: &mut WorkloadView, change: impl FnOnce(&mut Value)) {
    let mut object = Value::clone(&view.object);
    change(&mut object);
    view.object = object.into();
}
