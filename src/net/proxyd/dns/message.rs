//! DNS messages: the questions of clients, and the bytes of answers.
//!
//! Invariants: any bytes are read without a panic. An answer is never larger than its limit. Records that do not fit
//! are left out, and the answer is marked as truncated (TC). The question in an answer has the case in which the
//! client wrote it.

use domain::base::header::Header;
use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message::Message;
use domain::base::message_builder::{
    AdditionalBuilder, MessageBuilder, PushError, RecordSectionBuilder, StaticCompressor,
};
use domain::base::name::ToName;

use super::record::{OwnedName, Records};

/// Size in bytes of the largest answer over UDP. The OPT records of podprobe announce this size. A packet of this size
/// is not fragmented on the way.
pub const UDP_LIMIT: usize = 1232;
/// Largest answer over UDP in bytes for a client without EDNS (RFC 1035 2.3.4).
const PLAIN_LIMIT: usize = 512;
/// Largest message over TCP in bytes.
pub const TCP_LIMIT: usize = 65_535;
/// Size in bytes of an OPT record without options.
const OPT_SIZE: usize = 11;

/// The content of a client's OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest answer over UDP that the client takes, in bytes.
    pub payload: u16,
    /// True if the client asks for DNSSEC records.
    pub dnssec_ok: bool,
}

/// A question that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The client's ID for the question.
    pub id: u16,
    /// The flag RD. Answers and forwarded questions repeat it.
    pub recursion_desired: bool,
    /// The flag AD. Forwarded questions repeat it.
    pub authentic_data: bool,
    /// The flag CD. Answers and forwarded questions repeat it.
    pub checking_disabled: bool,
    /// The name, in the case in which the client wrote it.
    pub name: OwnedName,
    /// The type of the records that the client asks for.
    pub rtype: Rtype,
    /// The class. It is IN for every question that gets more than an error.
    pub class: Class,
    /// The client's OPT record; `None` if the client does not use EDNS.
    pub edns: Option<Edns>,
}

/// The result of reading a client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A question that can be answered.
    Query(Query),
    /// A message that gets this answer with an error.
    Error(Vec<u8>),
    /// A message that gets no answer, because it is too short to have an ID, or is an answer itself. If answers were
    /// answered, two responders could talk forever.
    Nothing,
}

/// The content of the answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The response code.
    pub rcode: Rcode,
    /// True if this responder is the authority for the name.
    pub authoritative: bool,
    /// True if the answer lacks records that are known.
    pub truncated: bool,
    /// The records that the client asked for. The CNAME records that lead to them come first.
    pub answer: Vec<Records>,
    /// The SOA record of the zone if the name or the record does not exist; otherwise `None`.
    pub authority: Option<Records>,
    /// Additional records, which may be left out.
    pub extra: Vec<Records>,
}

impl Reply {
    /// Makes a reply with a response code and nothing else.
    pub fn error(rcode: Rcode) -> Self {
        Self {
            rcode,
            authoritative: false,
            truncated: false,
            answer: Vec::new(),
            authority: None,
            extra: Vec::new(),
        }
    }
}

/// Reads a message of a client.
pub fn read(bytes: &[u8]) -> Received {
    let Ok(message) = Message::from_slice(bytes) else {
        return Received::Nothing;
    };
    let header = message.header();
    if header.qr() {
        return Received::Nothing;
    }
    if header.opcode() != Opcode::QUERY {
        return bare(header, Rcode::NOTIMP);
    }
    // A query has one question, followed by at most an OPT record and a signature. So a crafted query costs little to
    // read.
    let counts = message.header_counts();
    let behind = (counts.ancount(), counts.nscount(), counts.arcount());
    if counts.qdcount() != 1 || !matches!(behind, (0, 0, 0..=2)) {
        return bare(header, Rcode::FORMERR);
    }
    match query(message) {
        Some((query, version)) => judge(query, version),
        None => bare(header, Rcode::FORMERR),
    }
}

/// Returns the query and its EDNS version; `None` if the query cannot be read.
fn query(message: &Message<[u8]>) -> Option<(Query, u8)> {
    let header = message.header();
    let (mut question, _, _, additional) = message.sections().ok()?;
    let question = question.next()?.ok()?;
    let mut edns = None;
    let mut version = 0;
    for record in additional {
        let record = record.ok()?;
        if record.rtype() != Rtype::OPT {
            continue;
        }
        // RFC 6891 6.1.1 allows only one OPT record, and its owner is the root.
        if edns.is_some() || !record.owner().is_root() {
            return None;
        }
        let ttl = record.ttl().as_secs();
        version = (ttl >> 16) as u8;
        edns = Some(Edns {
            payload: record.class().to_int(),
            dnssec_ok: ttl & 0x8000 != 0,
        });
    }
    let query = Query {
        id: header.id(),
        recursion_desired: header.rd(),
        authentic_data: header.ad(),
        checking_disabled: header.cd(),
        name: question.qname().to_vec(),
        rtype: question.qtype(),
        class: question.qclass(),
        edns,
    };
    Some((query, version))
}

fn judge(query: Query, version: u8) -> Received {
    let transfers = [Rtype::AXFR, Rtype::IXFR];
    let rcode = match version {
        1.. => return bad_version(&query),
        _ if query.class != Class::IN => Rcode::REFUSED,
        _ if transfers.contains(&query.rtype) => Rcode::REFUSED,
        _ if query.rtype == Rtype::OPT => Rcode::FORMERR,
        _ => return Received::Query(query),
    };
    let reply = Reply::error(rcode);
    Received::Error(query.answer(&reply, PLAIN_LIMIT))
}

/// Returns an error with nothing but a header, because the question could not be read.
fn bare(asked: Header, rcode: Rcode) -> Received {
    let mut bytes = vec![0; 12];
    let header = Header::for_message_slice_mut(&mut bytes);
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_opcode(asked.opcode());
    header.set_rd(asked.rd());
    header.set_rcode(rcode);
    Received::Error(bytes)
}

/// Returns the answer to a query with an unknown EDNS version. The answer has the EDNS version that podprobe supports,
/// and the code BADVERS. The lower bits of this code are 0 (RFC 6891 6.1.3).
fn bad_version(query: &Query) -> Received {
    let mut bytes = query.answer(&Reply::error(Rcode::NOERROR), PLAIN_LIMIT);
    // The upper bits of the code are the first byte of the OPT record's TTL. The TTL is the first four of the last six
    // bytes.
    if let Some(at) = bytes.len().checked_sub(6) {
        bytes[at] = (OptRcode::BADVERS.to_int() >> 4) as u8;
    }
    Received::Error(bytes)
}

type Target = StaticCompressor<Vec<u8>>;

impl Query {
    /// Returns the largest answer that the client takes over UDP, in bytes.
    pub fn udp_limit(&self) -> usize {
        let payload = self.edns.map_or(PLAIN_LIMIT, |e| e.payload.into());
        payload.clamp(PLAIN_LIMIT, UDP_LIMIT)
    }

    /// Returns the bytes of an answer, at most `limit` of them.
    pub fn answer(&self, reply: &Reply, limit: usize) -> Vec<u8> {
        let mut builder = builder();
        let header = builder.header_mut();
        header.set_id(self.id);
        header.set_qr(true);
        header.set_aa(reply.authoritative);
        header.set_tc(reply.truncated);
        header.set_rd(self.recursion_desired);
        header.set_ra(true);
        header.set_cd(self.checking_disabled);
        header.set_rcode(reply.rcode);
        // The builder's limit is the smallest size that is too large.
        builder.set_push_limit(limit.saturating_sub(self.opt_size()) + 1);
        let written = self.sections(builder, reply);
        written.unwrap_or_default()
    }

    fn sections(
        &self,
        builder: MessageBuilder<Target>,
        reply: &Reply,
    ) -> Result<Vec<u8>, PushError> {
        let mut question = builder.question();
        question.push((&self.name, self.rtype, self.class))?;
        let mut answer = question.answer();
        let mut fits = push(&mut answer, &reply.answer);
        let mut authority = answer.authority();
        // A client can cache "no such name" only together with the zone's SOA record.
        fits &= push(&mut authority, reply.authority.as_slice());
        let mut additional = authority.additional();
        if fits {
            push(&mut additional, &reply.extra);
        } else {
            additional.header_mut().set_tc(true);
        }
        additional.clear_push_limit();
        self.push_opt(&mut additional)?;
        Ok(additional.finish().into_target())
    }

    /// Returns the bytes of a question to another resolver, with the ID 0. The question asks for `name`, with the type
    /// and flags of the client's question.
    pub fn request(&self, name: &OwnedName) -> Vec<u8> {
        let mut builder = builder();
        let header = builder.header_mut();
        header.set_rd(self.recursion_desired);
        header.set_ad(self.authentic_data);
        header.set_cd(self.checking_disabled);
        let mut question = builder.question();
        let mut pushed = question.push((name, self.rtype));
        let mut additional = question.additional();
        pushed = pushed.and_then(|()| self.push_opt(&mut additional));
        match pushed {
            Ok(()) => additional.finish().into_target(),
            Err(_) => Vec::new(),
        }
    }

    fn opt_size(&self) -> usize {
        self.edns.map_or(0, |_| OPT_SIZE)
    }

    fn push_opt(&self, section: &mut AdditionalBuilder<Target>) -> Result<(), PushError> {
        let Some(edns) = self.edns else {
            return Ok(());
        };
        section.opt(|opt| {
            opt.set_udp_payload_size(UDP_LIMIT as u16);
            opt.set_dnssec_ok(edns.dnssec_ok);
            Ok(())
        })
    }
}

fn builder() -> MessageBuilder<Target> {
    let target = StaticCompressor::new(Vec::with_capacity(PLAIN_LIMIT));
    // Writing to a vector cannot fail.
    MessageBuilder::from_target(target).unwrap_or_else(|never| match never {})
}

/// Writes the records up to the first that does not fit. Returns false if a record did not fit.
fn push(section: &mut impl RecordSectionBuilder<Target>, sets: &[Records]) -> bool {
    let each = sets.iter().flat_map(|r| r.data.iter().map(move |d| (r, d)));
    each.map(|(r, data)| section.push((&r.owner, Class::IN, r.ttl, data)))
        .all(|pushed| pushed.is_ok())
}
