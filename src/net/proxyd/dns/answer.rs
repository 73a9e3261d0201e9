//! What a query is answered with: from the zone, or by others.

use domain::base::iana::{Rcode, Rtype};

use super::message::{Query, Reply};
use super::record::{Data, OwnedName, Records, TTL};
use super::zone::{Choice, Found, Zone};

/// How many names may stand for one another before an answer.
const MOST_ALIASES: usize = 10;

/// What follows of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This is the answer.
    Reply(Reply),
    /// Others know.
    Ask {
        /// What they are asked: the query's name, or the last of `aliases`.
        name: OwnedName,
        /// CNAME records that go before their answer.
        aliases: Vec<Records>,
    },
}

/// The smallest record: a pointer to its name, type, class, time, length, and an IPv4 address.
const SMALLEST: usize = 16;

/// Answers a query from the zone as far as it knows, for a client that takes `limit` bytes. `turn` rotates the order of
/// records.
pub fn answer(query: &Query, zone: &Zone, limit: usize, turn: usize) -> Verdict {
    let mut name = query.name.clone();
    let mut aliases = Vec::new();
    // One more than can fit, so that the answer says that it was cut.
    let most = limit / SMALLEST + 1;
    let choice = Choice { turn, most };
    loop {
        let found = zone.find(&name, query.rtype, choice);
        let mut reply = Reply {
            authoritative: true,
            answer: aliases,
            ..Reply::error(Rcode::NOERROR)
        };
        match found {
            Found::Elsewhere => {
                let aliases = reply.answer;
                return Verdict::Ask { name, aliases };
            }
            Found::NoName(start) => {
                reply.rcode = Rcode::NXDOMAIN;
                reply.authority = Some(start);
            }
            Found::NoData(start) => reply.authority = Some(start),
            Found::Data { records, extra } => {
                reply.answer.push(records);
                reply.extra = extra;
            }
            Found::Alias(target) => {
                reply.answer.push(Records {
                    owner: name,
                    ttl: TTL,
                    data: vec![Data::Cname(target.clone())],
                });
                if query.rtype != Rtype::CNAME {
                    if reply.answer.len() > MOST_ALIASES {
                        return Verdict::Reply(Reply::error(Rcode::SERVFAIL));
                    }
                    (name, aliases) = (target, reply.answer);
                    continue;
                }
            }
        }
        return Verdict::Reply(reply);
    }
}
