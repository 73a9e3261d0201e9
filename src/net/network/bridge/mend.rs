//! Repairs the parts of the network that somebody else has removed or changed.

use std::collections::BTreeSet;
use std::io;

use super::attachment::Attachment;
use super::packet_filter::Since;
use super::pair::{self, POD_INTERFACE, is_port, open_namespace};
use super::{Bridge, State, Told};
use crate::net::network::rtnetlink::{Link, Rtnetlink};

/// The results of a round of repairs, as lines for the log.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) mended: Vec<String>,
    /// A line for each thing that could not be repaired.
    pub(super) failed: BTreeSet<String>,
}

impl Bridge {
    /// Repairs the parts of the bridge that were removed or changed by hand. The caller holds the locks of `told`
    /// and `state`.
    pub(super) fn mend_locked(
        &self,
        told: &mut Told,
        state: &mut State,
        round: &mut Round,
    ) -> io::Result<()> {
        let records = &self.settings.records;
        // A sandbox that lives stays attached even if somebody else has removed its record, because the record is
        // written again.
        let is_there = |id: &String, a: &Attachment| records.join(id).exists() || a.holder.alive();
        let known = state.attachments.len();
        state.attachments.retain(|id, a| is_there(id, a));
        state.version += u64::from(state.attachments.len() != known);
        let mut kernel = Rtnetlink::open()?;
        let links = kernel.links()?;
        let find = |name: &str| links.iter().find(|l| l.name == name);
        let bridge = find(&self.settings.name);
        for port in links.iter().filter(|l| is_port(l, bridge)) {
            if !state.attachments.values().any(|a| a.interface == port.name) {
                kernel.remove_link(&port.name)?;
                round.mended.push(format!(
                    "interface {} is of a pod that is gone: removed",
                    port.name
                ));
            }
        }
        if state.attachments.is_empty() {
            return Ok(());
        }
        let was_there = bridge.is_some();
        self.mend_filter(told, state, round)?;
        let bridge = self.ensure_bridge(&mut kernel, state)?;
        if !was_there {
            let name = &self.settings.name;
            let mended = format!("the bridge {name} was gone: made again");
            round.mended.push(mended);
        }
        for (id, attachment) in &state.attachments {
            // Sandboxes that are being connected or have ended are skipped. The end of a sandbox is handled
            // elsewhere.
            if state.connecting.contains(id) || open_namespace(attachment.holder).is_err() {
                continue;
            }
            let port = find(&attachment.interface);
            let is_whole = |p: &Link| was_there && p.master == Some(bridge.index) && p.up;
            if port.is_some_and(is_whole) {
                continue;
            }
            match self.mend_port(&mut kernel, &bridge, port, attachment) {
                Ok(()) => round.mended.push(mended(attachment, port.is_some())),
                Err(e) => _ = round.failed.insert(not_mended(attachment, &e)),
            }
        }
        Ok(())
    }

    fn mend_port(
        &self,
        kernel: &mut Rtnetlink,
        bridge: &Link,
        port: Option<&Link>,
        attachment: &Attachment,
    ) -> io::Result<()> {
        let Some(port) = port else {
            return pair::connect(kernel, bridge, attachment);
        };
        kernel.set_master(port.index, bridge.index)?;
        pair::fix_port(kernel, bridge, port, attachment)
    }

    /// Programs all of podprobe's tables again after any change of the packet filter that somebody else made. The
    /// tables are programmed again even if podprobe's chains look unchanged, because podprobe cannot see whether
    /// the members of a set have changed.
    fn mend_filter(&self, told: &mut Told, state: &State, round: &mut Round) -> io::Result<()> {
        let since = self.settings.filter.look_since(&told.filter);
        let since = since.map_err(io::Error::other)?;
        if since == Since::Same {
            return Ok(());
        }
        let is_first = told.filter.is_new();
        let filter = &self.settings.filter;
        let programmed = filter.program_anew(state.attachments.clone(), &mut told.filter);
        programmed.map_err(io::Error::other)?;
        told.version = state.version;
        if since == Since::Ours && !is_first {
            round.mended.push(
                "the packet filter's tables of podprobe were changed by somebody else: made again"
                    .into(),
            );
        }
        Ok(())
    }
}

fn mended(attachment: &Attachment, was_there: bool) -> String {
    let what = match was_there {
        true => "was cut off: connected again",
        false => "was gone: made again",
    };
    let (interface, pod) = (&attachment.interface, attachment.shown());
    format!("interface {interface} of the pod with the address {pod} {what}")
}

fn not_mended(attachment: &Attachment, e: &io::Error) -> String {
    format!(
        "cannot connect the pod with the address {} again: {e}; if it has changed its own {POD_INTERFACE}, start it anew \
         with a change to its file",
        attachment.shown()
    )
}
