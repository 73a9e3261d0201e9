//! Decides which capabilities a container gets: containerd's default set, with `add` and `drop` applied as in
//! containerd's CRI plugin.
//!
//! The node itself may lack capabilities: it may be a VM, or a nested container without CAP_SYS_RESOURCE. The default
//! set and `ALL` leave out the capabilities that the node lacks. A capability that the pod names and that cannot be
//! given is an error.

use super::error::SpecError;
use crate::api::capabilities::CAPABILITIES;
use crate::engine::runtime::Security;

/// The 14 default capabilities of containerd (`defaultUnixCaps`).
const DEFAULT: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// Bit of the capability CAP_SYS_RESOURCE.
pub(super) const SYS_RESOURCE: u64 = 1 << 24;

/// Returns the container's capabilities as bits. `bounding` is the set of the node. A privileged container gets the
/// whole set of the node, whatever is added or dropped. The order is containerd's: add ALL, drop ALL, add each, drop
/// each.
pub(super) fn resolve(wanted: &Security, bounding: u64) -> Result<u64, SpecError> {
    if wanted.privileged {
        return Ok(bounding & known());
    }
    let mut set = DEFAULT
        .iter()
        .filter_map(|n| bit(n))
        .fold(0, |set, b| set | b)
        & bounding;
    if has_all(&wanted.add_capabilities) {
        set = bounding & known();
    }
    if has_all(&wanted.drop_capabilities) {
        set = 0;
    }
    for name in wanted.add_capabilities.iter().filter(|n| !is_all(n)) {
        let b = parse(name, "add")?;
        if b & bounding == 0 {
            return Err(SpecError::CapabilityNotOurs(name.clone()));
        }
        set |= b;
    }
    for name in wanted.drop_capabilities.iter().filter(|n| !is_all(n)) {
        set &= !parse(name, "drop")?;
    }
    Ok(set)
}

/// Returns the names `CAP_…` of a set, in the order of the bits.
pub(super) fn names(set: u64) -> Vec<String> {
    CAPABILITIES
        .iter()
        .enumerate()
        .filter(|(i, _)| set >> i & 1 == 1)
        .map(|(_, n)| format!("CAP_{n}"))
        .collect()
}

fn parse(name: &str, verb: &'static str) -> Result<u64, SpecError> {
    bit(name).ok_or_else(|| SpecError::NoCapability {
        verb,
        name: name.to_owned(),
    })
}

fn bit(name: &str) -> Option<u64> {
    CAPABILITIES.iter().position(|n| *n == name).map(|i| 1 << i)
}

fn known() -> u64 {
    (1 << CAPABILITIES.len()) - 1
}

fn is_all(name: &str) -> bool {
    name == "ALL"
}

fn has_all(names: &[String]) -> bool {
    names.iter().any(|n| is_all(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: u64 = 0x1ff_ffff_ffff;

    fn wanted(add: &[&str], drop: &[&str]) -> Security {
        let own = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
        Security {
            add_capabilities: own(add),
            drop_capabilities: own(drop),
            ..Default::default()
        }
    }

    #[track_caller]
    fn check(add: &[&str], drop: &[&str], expected: Result<&[&str], &str>) {
        let got = resolve(&wanted(add, drop), NODE & !SYS_RESOURCE);
        let got = got.map_err(|e| e.to_string());
        match expected {
            Ok(set) => assert_eq!(
                got.map(names),
                Ok(set.iter().map(|n| format!("CAP_{n}")).collect())
            ),
            Err(text) => assert!(got.as_ref().is_err_and(|e| e.contains(text)), "{got:?}"),
        }
    }

    #[test]
    fn add_and_drop_as_containerd_does() {
        check(&[], &["ALL"], Ok(&[]));
        check(&["NET_ADMIN"], &["ALL"], Ok(&["NET_ADMIN"]));
        check(&["KILL", "CHOWN"], &["ALL", "KILL"], Ok(&["CHOWN"]));
        check(&["ALL"], &["ALL"], Ok(&[]));
        check(&["FLYING"], &[], Err("none of that name"));
        check(&["SYS_RESOURCE"], &[], Err("does not have it itself"));
        check(&[], &["SYS_RESOURCE", "ALL"], Ok(&[]));
    }

    #[test]
    fn default_set_is_containerds_mask() {
        // CapEff of every container under containerd that sets no capabilities. Many people know this number by heart.
        let plain = Security::default();
        assert_eq!(resolve(&plain, NODE).unwrap(), 0xa80425fb);
        assert_eq!(resolve(&plain, NODE & !1).unwrap(), 0xa80425fa);
    }

    #[test]
    fn all_and_privileged_are_what_the_node_has() {
        let all = wanted(&["ALL"], &["CHOWN"]);
        assert_eq!(
            resolve(&all, NODE & !SYS_RESOURCE).unwrap(),
            NODE & !SYS_RESOURCE & !1
        );
        let privileged = Security {
            privileged: true,
            ..all
        };
        assert_eq!(
            resolve(&privileged, NODE & !SYS_RESOURCE).unwrap(),
            NODE & !SYS_RESOURCE
        );
        assert_eq!(resolve(&privileged, u64::MAX).unwrap(), NODE);
    }
}
