//! The choice of the answer to a query: from the zone, or from other resolvers.

use domain::base::iana::{Rcode, Rtype};

use super::message::{Query, Reply};
use super::record::{Data, OwnedName, Records, TTL};
use super::zone::{Choice, Found, Zone};

/// Largest number of aliases that are followed for one answer.
const MOST_ALIASES: usize = 10;

/// The decision about a query: a reply, or a question to other resolvers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send this answer.
    Reply(Reply),
    /// Ask other resolvers, which may know the answer.
    Ask {
        /// The name to ask for: the query's name, or the target of the last alias in `aliases`.
        name: OwnedName,
        /// CNAME records that stand before the other resolver's answer.
        aliases: Vec<Records>,
    },
}

/// Size in bytes of the smallest record: a pointer to its name, type, class, time, length, and an IPv4 address.
const SMALLEST: usize = 16;

/// Answers a query from the zone, or decides that other resolvers must be asked. The client takes at most `limit`
/// bytes. `turn` rotates the order of records.
pub fn answer(query: &Query, zone: &Zone, limit: usize, turn: usize) -> Verdict {
    let mut name = query.name.clone();
    let mut aliases = Vec::new();
    // One more record than can fit is asked for, so that a longer answer is marked as truncated.
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
