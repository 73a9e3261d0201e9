//! The machine, as metrics and the Node object tell of it.

use std::fs;
use std::path::Path;

use crate::face::views::kube_node;

/// The kernel's release, as `uname -r` prints it.
pub(super) fn kernel_release() -> String {
    let release = nix::sys::utsname::uname().map(|name| name.release().to_owned());
    release.unwrap_or_default().to_string_lossy().into_owned()
}

/// The name of the distribution.
pub(super) fn os_name() -> String {
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    kube_node::os_name(&os_release).to_owned()
}

/// The id of this installation, or an empty text.
pub(super) fn machine_id() -> String {
    first_line("/etc/machine-id")
}

/// The id that the firmware or a hypervisor has given the machine. A board without firmware tables has no other id than
/// that of the installation.
pub(super) fn system_uuid() -> String {
    match first_line("/sys/class/dmi/id/product_uuid") {
        uuid if uuid.is_empty() => machine_id(),
        uuid => uuid,
    }
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(Path::new(path)).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}
