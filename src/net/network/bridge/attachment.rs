//! A sandbox that is attached to the bridge, and the record of this attachment on the disk.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::api::cidr::Cidr;
use crate::api::service::Protocol;
use crate::base::record_file;
use crate::base::sys::task::Process;
use crate::net::network::PortMapping;

/// Name of the file that holds the attachment, in the directory of the sandbox's record.
const RECORD: &str = "bridge.json";

/// A sandbox that is attached to the bridge. A field that is added later needs a default, because an older
/// podprobe may have written the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Attachment {
    /// Name of the node's end of the veth pair.
    pub(super) interface: String,
    /// The process that holds the pod's network namespace, where the pod's end of the veth pair is.
    pub(super) holder: Process,
    /// Hardware address of the pod's end of the veth pair.
    pub(super) mac: [u8; 6],
    /// The addresses of the pod, primary first.
    pub(super) addresses: Vec<IpAddr>,
    /// The node's addresses through which the pod sends, one for each address family.
    pub(super) gateways: Vec<Cidr>,
    /// Ports of the node that lead to the pod (`hostPort`).
    pub(super) ports: Vec<PortMapping>,
}

/// The attachments of all sandboxes, by the sandbox's id.
pub(super) type Attachments = BTreeMap<String, Arc<Attachment>>;

impl Attachment {
    /// Makes an attachment with addresses of both families and with ports, to test what the kernel can do.
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

    /// Returns the pod's primary address as text, for messages; empty if the pod has no address.
    pub(super) fn shown(&self) -> String {
        let primary = self.addresses.first();
        primary.map_or(String::new(), ToString::to_string)
    }

    /// Writes the record. A reader finds either the old record or the complete new record. The record is not
    /// synced to the disk, because it need not outlive the boot.
    pub(super) fn write(&self, record: &Path) -> io::Result<()> {
        record_file::write(record, RECORD, self, false)
    }
}

/// Tells whether at least one sandbox in this directory of records is attached to the bridge.
pub(in crate::network) fn is_used(records: &Path) -> bool {
    !read_records(records).is_empty()
}

/// Reads the attachments from the directories of the sandboxes' records. A record that cannot be read is left out.
/// If the sandbox of such a record still lives, [`crate::net::network::PodNetwork::resume`] writes the record
/// again. A directory that was moved aside is no sandbox any more: its name has an ending.
pub(super) fn read_records(records: &Path) -> Attachments {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    let read = |entry: fs::DirEntry| {
        let id = entry.file_name().into_string().ok()?;
        let is_sandbox = !id.contains('.');
        let attachment = is_sandbox.then(|| record_file::read(&entry.path(), RECORD))??;
        Some((id, attachment))
    };
    entries.filter_map(read).collect()
}
