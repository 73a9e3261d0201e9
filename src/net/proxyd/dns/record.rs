//! Resource records of the responder's own answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::iana::Rtype;
use domain::base::name::{Label, Name, ToName};
use domain::base::rdata::{ComposeRecordData, RecordData};
use domain::base::wire::{Compose, Composer};

/// A name that owns its bytes, in the case in which it was written.
pub type OwnedName = Name<Vec<u8>>;

/// Time in seconds for which clients may keep answers about the cluster: CoreDNS's default.
pub const TTL: u32 = 5;
/// Time in seconds for which clients may keep the version of the DNS schema, which does not change.
pub const VERSION_TTL: u32 = 28_800;

/// The data of a record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// An IPv4 address.
    A(Ipv4Addr),
    /// An IPv6 address.
    Aaaa(Ipv6Addr),
    /// The target of an alias.
    Cname(OwnedName),
    /// The name that belongs to an address.
    Ptr(OwnedName),
    /// The server that answers for the zone.
    Ns(OwnedName),
    /// A port, and the name of the host that listens on it.
    Srv(u16, OwnedName),
    /// A text of one string.
    Txt(&'static str),
    /// The start of a zone.
    Soa {
        /// The server that answers for the zone.
        server: OwnedName,
        /// The mailbox of the person who is responsible for the zone.
        mailbox: OwnedName,
        /// The version of the zone, which grows with each change.
        serial: u32,
    },
    /// Data of another type, as received.
    Raw(Rtype, Vec<u8>),
}

impl Data {
    /// Makes the data of an A or an AAAA record.
    pub fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(a) => Self::A(a),
            IpAddr::V6(a) => Self::Aaaa(a),
        }
    }
}

/// Records of one name, which may differ in type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records {
    /// The records' name.
    pub owner: OwnedName,
    /// Time in seconds for which clients may keep the records, see [`TTL`].
    pub ttl: u32,
    /// The data of the records, at least one.
    pub data: Vec<Data>,
}

/// Returns the name that has these labels before `tail`; `None` if the name would be too long, or if a label is empty
/// or too long.
pub fn name_of<'a>(
    labels: impl IntoIterator<Item = &'a [u8]>,
    tail: &OwnedName,
) -> Option<OwnedName> {
    let mut bytes = Vec::with_capacity(64);
    for label in labels {
        let label = Label::from_slice(label).ok().filter(|l| !l.is_root())?;
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_slice());
    }
    bytes.extend_from_slice(tail.as_slice());
    Name::from_octets(bytes).ok()
}

/// Reads a name from text, as in `spec.externalName`: labels joined by dots, with or without a dot at the end.
pub fn name_of_text(text: &str) -> Option<OwnedName> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let labels = text.split('.').map(str::as_bytes);
    name_of(labels, &Name::root_vec())
}

/// Returns the labels of a name from left to right, without the root.
pub fn labels(name: &OwnedName) -> Vec<&[u8]> {
    let labels = name.iter().filter(|l| !l.is_root());
    labels.map(Label::as_slice).collect()
}

impl RecordData for Data {
    fn rtype(&self) -> Rtype {
        match self {
            Self::A(_) => Rtype::A,
            Self::Aaaa(_) => Rtype::AAAA,
            Self::Cname(_) => Rtype::CNAME,
            Self::Ptr(_) => Rtype::PTR,
            Self::Ns(_) => Rtype::NS,
            Self::Srv(..) => Rtype::SRV,
            Self::Txt(_) => Rtype::TXT,
            Self::Soa { .. } => Rtype::SOA,
            Self::Raw(rtype, _) => *rtype,
        }
    }
}

impl ComposeRecordData for Data {
    fn rdlen(&self, _compress: bool) -> Option<u16> {
        None
    }

    fn compose_rdata<T: Composer + ?Sized>(&self, target: &mut T) -> Result<(), T::AppendError> {
        match self {
            Self::A(address) => target.append_slice(&address.octets()),
            Self::Aaaa(address) => target.append_slice(&address.octets()),
            // Only the types of RFC 1035 may have compressed names in their data (RFC 3597 4).
            Self::Cname(name) | Self::Ptr(name) | Self::Ns(name) => {
                target.append_compressed_name(name)
            }
            Self::Srv(port, name) => {
                for number in [0, 100, *port] {
                    number.compose(target)?;
                }
                name.compose(target)
            }
            Self::Txt(text) => {
                target.append_slice(&[text.len() as u8])?;
                target.append_slice(text.as_bytes())
            }
            Self::Soa {
                server,
                mailbox,
                serial,
            } => {
                target.append_compressed_name(server)?;
                target.append_compressed_name(mailbox)?;
                // The SOA's refresh, retry, expire and negative TTL are CoreDNS's.
                for number in [*serial, 7_200, 1_800, 86_400, TTL] {
                    number.compose(target)?;
                }
                Ok(())
            }
            Self::Raw(_, bytes) => target.append_slice(bytes),
        }
    }

    fn compose_canonical_rdata<T: Composer + ?Sized>(
        &self,
        target: &mut T,
    ) -> Result<(), T::AppendError> {
        self.compose_rdata(target)
    }
}
