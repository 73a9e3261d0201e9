//! Answers of other resolvers. Checks that a message is the answer to the responder's question, and makes the client's
//! answer from the message.

use domain::base::header::Header;
use domain::base::iana::{Class, Opcode, Rcode, Rtype};
use domain::base::message::Message;
use domain::base::name::{ParsedName, ToName};
use domain::base::rdata::UnknownRecordData;
use domain::base::record::ParsedRecord;
use domain::rdata::rfc1035::Cname;

use super::message::{Query, Reply};
use super::record::{Data, OwnedName, Records};

/// Length of a message's header in bytes. The question follows the header.
const HEADER: usize = 12;
/// Largest number of a resolver's records that are copied behind an alias.
const MOST_RECORDS: usize = 500;
/// Types whose data has no compressed names (RFC 3597 4). The bytes of such data mean the same in another message.
const WITHOUT_NAMES: [Rtype; 6] = [
    Rtype::A,
    Rtype::AAAA,
    Rtype::TXT,
    Rtype::SRV,
    Rtype::SVCB,
    Rtype::HTTPS,
];

/// An answer of a resolver to a question of this responder.
pub struct Answered<'m> {
    message: &'m Message<[u8]>,
    /// True if the message can be read to its end.
    is_whole: bool,
}

impl<'m> Answered<'m> {
    /// Reads a message of the resolver that was asked. Returns `None` if the message is not the answer to the question
    /// with this ID, name and type.
    pub fn read(bytes: &'m [u8], id: u16, name: &OwnedName, rtype: Rtype) -> Option<Self> {
        let message = Message::from_slice(bytes).ok()?;
        let header = message.header();
        let is_answer = header.qr() && header.id() == id && header.opcode() == Opcode::QUERY;
        let mut asked = name.as_slice().to_vec();
        for number in [rtype.to_int(), Class::IN.to_int()] {
            asked.extend(number.to_be_bytes());
        }
        // No byte of a label's length is a letter, so the name can be compared as text.
        let repeated = bytes.get(HEADER..HEADER + asked.len())?;
        let same = message.header_counts().qdcount() == 1 && asked.eq_ignore_ascii_case(repeated);
        (is_answer && same).then(|| Self {
            message,
            is_whole: is_whole(message),
        })
    }

    /// Returns the answer's response code.
    pub fn rcode(&self) -> Rcode {
        self.message.header().rcode()
    }

    /// Returns true if the answer cannot be read to its end. No client may get such an answer. A truncated answer does
    /// not count as broken, because none of its records are used.
    pub fn is_broken(&self) -> bool {
        !self.is_truncated() && !self.is_whole
    }

    /// Returns true if the answer is marked as truncated.
    pub fn is_truncated(&self) -> bool {
        self.message.header().tc()
    }

    /// Returns true if the resolver refused or failed. Another resolver may know the answer.
    pub fn is_failure(&self) -> bool {
        [Rcode::SERVFAIL, Rcode::NOTIMP, Rcode::REFUSED].contains(&self.rcode())
    }

    /// Returns the answer for the client, at most `limit` bytes.
    pub fn relay(&self, query: &Query, aliases: &[Records], limit: usize) -> Vec<u8> {
        if !aliases.is_empty() {
            let reply = self.behind(query, aliases);
            return query.answer(&reply.unwrap_or(Reply::error(Rcode::SERVFAIL)), limit);
        }
        if self.message.as_slice().len() > limit || !self.is_whole {
            let reply = Reply {
                truncated: true,
                ..Reply::error(self.rcode())
            };
            return query.answer(&reply, limit);
        }
        self.as_the_client_asked(query)
    }

    /// Returns the resolver's bytes with the client's ID, and with the question in the case in which the client wrote
    /// it.
    fn as_the_client_asked(&self, query: &Query) -> Vec<u8> {
        let mut bytes = self.message.as_slice().to_vec();
        let name = query.name.as_slice();
        bytes[HEADER..HEADER + name.len()].copy_from_slice(name);
        let header = Header::for_message_slice_mut(&mut bytes);
        header.set_id(query.id);
        header.set_ra(true);
        bytes
    }

    /// Returns the aliases, followed by the answer for the name that they lead to; `None` if that answer cannot be
    /// read.
    fn behind(&self, query: &Query, aliases: &[Records]) -> Option<Reply> {
        let mut reply = Reply {
            truncated: self.is_truncated(),
            answer: aliases.to_vec(),
            ..Reply::error(self.rcode())
        };
        for record in self.message.answer().ok()?.take(MOST_RECORDS) {
            reply.answer.extend(copy(record.ok()?, query.rtype)?);
        }
        Some(reply)
    }
}

/// Returns true if each record has a readable owner and length, and each alias has a target.
fn is_whole(message: &Message<[u8]>) -> bool {
    message.iter().all(|record| {
        let Ok((record, _)) = record else {
            return false;
        };
        record.rtype() != Rtype::CNAME || record.to_record::<Cname<ParsedName<&[u8]>>>().is_ok()
    })
}

/// Copies a record if it is an alias, or if it has the type `rtype` and no names in its data. Otherwise the inner
/// `None` is returned. The outer `None` means that the record cannot be read.
fn copy(record: ParsedRecord<'_, [u8]>, rtype: Rtype) -> Option<Option<Records>> {
    let data = match record.rtype() {
        Rtype::CNAME => {
            let alias = record.to_record::<Cname<ParsedName<&[u8]>>>().ok()??;
            Data::Cname(alias.data().cname().to_vec())
        }
        own if own == rtype && WITHOUT_NAMES.contains(&own) => {
            let raw = record.to_record::<UnknownRecordData<&[u8]>>().ok()??;
            Data::Raw(own, raw.data().data().to_vec())
        }
        _ => return Some(None),
    };
    Some(Some(Records {
        owner: record.owner().to_vec(),
        ttl: record.ttl().as_secs(),
        data: vec![data],
    }))
}
