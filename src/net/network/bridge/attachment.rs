//! A sandbox at the bridge, and its record.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::api::cidr::Cidr;
use crate::api::service::Protocol;
use crate::base::sys::task::Process;
use crate::net::network::PortMapping;

/// The file beside a sandbox's record.
const RECORD: &str = "bridge.json";

/// A sandbox at the bridge. A field that comes later needs a default: the record may be of an older podprobe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attachment {
    /// Name of the node's end.
    pub(super) interface: String,
    /// The process whose network namespace the other end is in.
    pub(super) holder: Process,
    /// Hardware address of the other end.
    pub(super) mac: [u8; 6],
    /// The addresses of the pod, primary first.
    pub(super) addresses: Vec<IpAddr>,
    /// The node's addresses that the pod sends through, one of each family.
    pub(super) gateways: Vec<Cidr>,
    /// Ports of the node that lead to the pod.
    pub(super) ports: Vec<PortMapping>,
}

/// The attachments of all sandboxes, by the id of the sandbox.
pub(super) type Attachments = BTreeMap<String, Arc<Attachment>>;

impl Attachment {
    /// Makes an attachment that has everything, to try what the kernel can do.
    pub(super) fn sample() -> Self {
        let port = |host_ip| PortMapping {
            host_ip,
            host_port: 80,
            container_port: 80,
            protocol: Protocol::Tcp,
        };
        Self {
            interface: "check0".into(),
            holder: Process {
                pid: 0,
                start_time: 0,
            },
            mac: [2, 0, 0, 0, 0, 1],
            addresses: vec![[192, 0, 2, 1].into(), [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()],
            gateways: Vec::new(),
            ports: vec![port(None), port(Some([192, 0, 2, 2].into()))],
        }
    }

    /// The address by which people know the pod.
    pub(super) fn shown(&self) -> String {
        let primary = self.addresses.first();
        primary.map_or(String::new(), ToString::to_string)
    }

    /// A reader finds the old record or all of the new one. It does not outlive the boot, so nobody waits for the disk.
    pub(super) fn write(&self, record: &Path) -> io::Result<()> {
        let temporary = record.join(format!("{RECORD}.tmp"));
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(temporary, record.join(RECORD))
    }
}

/// Tells whether at least one sandbox in this directory of records is attached.
pub(in crate::net::network) fn is_used(records: &Path) -> bool {
    !read_records(records).is_empty()
}

/// The attachments beside the sandboxes' records. One that cannot be read is missing here; if its sandbox lives,
/// [`crate::net::network::PodNetwork::resume`] makes it again.
pub(super) fn read_records(records: &Path) -> Attachments {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let json = fs::read(entry.path().join(RECORD)).ok()?;
        let id = entry.file_name().into_string().ok()?;
        Some((id, serde_json::from_slice(&json).ok()?))
    };
    entries.filter_map(read).collect()
}
