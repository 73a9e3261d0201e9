//! Datagrams of clients that wait for their turn.
//!
//! Invariants: pure. At most [`MOST`] questions wait. The clients take turns, however many questions each of them
//! sends. If there is no room, the newest question of the client with the most questions is dropped, so a client that
//! floods harms itself.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Largest number of waiting questions. A socket with the kernel's default buffer holds fewer questions.
pub const MOST: usize = 512;

/// A datagram of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The index of the listener that received the datagram.
    pub listener: usize,
    /// The client's address and port.
    pub from: SocketAddr,
    /// The content of the datagram.
    pub bytes: Vec<u8>,
}

/// The waiting datagrams of all clients, and the order of turns.
#[derive(Debug, Default)]
pub struct Inbox {
    /// The questions of each client, the oldest first. No queue is empty.
    by_client: HashMap<IpAddr, VecDeque<Datagram>>,
    /// The clients with waiting questions, each once. The client at the front is next.
    turns: VecDeque<IpAddr>,
    len: usize,
}

impl Inbox {
    /// Returns true if no question waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a datagram. Returns false if this datagram or another one was dropped.
    pub fn push(&mut self, datagram: Datagram) -> bool {
        let client = datagram.from.ip();
        let has_room = self.len < MOST;
        if !has_room && !self.make_room(client) {
            return false;
        }
        let waiting = self.by_client.entry(client).or_default();
        if waiting.is_empty() {
            self.turns.push_back(client);
        }
        waiting.push_back(datagram);
        self.len += 1;
        has_room
    }

    /// Drops the newest question of the client with the most questions. Returns false, and drops nothing, if `newcomer`
    /// has as many questions itself.
    fn make_room(&mut self, newcomer: IpAddr) -> bool {
        let most = self.by_client.iter().max_by_key(|(_, all)| all.len());
        let Some((most, count)) = most.map(|(ip, all)| (*ip, all.len())) else {
            return false;
        };
        let own = self.by_client.get(&newcomer).map_or(0, VecDeque::len);
        if own >= count {
            return false;
        }
        if let Some(waiting) = self.by_client.get_mut(&most) {
            waiting.pop_back();
            self.len -= 1;
            // The queue is empty only if every client has one question and `newcomer` has none.
            if waiting.is_empty() {
                self.by_client.remove(&most);
                self.turns.retain(|ip| *ip != most);
            }
        }
        true
    }

    /// Takes the next datagram, from the client whose turn it is.
    pub fn pop(&mut self) -> Option<Datagram> {
        let client = self.turns.pop_front()?;
        let waiting = self.by_client.get_mut(&client)?;
        let next = waiting.pop_front()?;
        self.len -= 1;
        match waiting.is_empty() {
            true => drop(self.by_client.remove(&client)),
            false => self.turns.push_back(client),
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: u8, number: u8) -> Datagram {
        Datagram {
            listener: 0,
            from: ([10, 244, 0, client], 1000).into(),
            bytes: vec![client, number],
        }
    }

    fn all(inbox: &mut Inbox) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| inbox.pop().map(|d| d.bytes)).collect()
    }

    #[test]
    fn clients_take_turns_and_each_has_its_own_order() {
        let mut inbox = Inbox::default();
        for (client, number) in [(1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (2, 1)] {
            assert!(inbox.push(of(client, number)));
        }
        let expected = [[1, 0], [2, 0], [3, 0], [1, 1], [2, 1], [1, 2]];
        assert_eq!(all(&mut inbox), expected);
        assert!(inbox.is_empty() && inbox.turns.is_empty() && inbox.by_client.is_empty());
    }

    #[test]
    fn the_client_with_the_most_questions_gives_way() {
        let mut inbox = Inbox::default();
        for _ in 0..MOST {
            assert!(inbox.push(of(1, 0)));
        }
        assert!(!inbox.push(of(1, 1)), "a client that is alone has it all");
        for n in 0..5 {
            assert!(!inbox.push(of(2, n)), "somebody has given way");
        }
        assert_eq!(inbox.len, MOST);
        let got = all(&mut inbox);
        let of_two = got.iter().filter(|d| d[0] == 2).count();
        assert_eq!((got.len(), of_two), (MOST, 5));
        assert!(got[..10].iter().filter(|d| d[0] == 2).count() == 5);
        assert!(inbox.is_empty() && inbox.turns.is_empty() && inbox.by_client.is_empty());
    }

    #[test]
    fn many_clients_with_one_question_each_take_what_there_is() {
        let mut inbox = Inbox::default();
        let client = |n: usize| Datagram {
            from: (std::net::Ipv4Addr::from(n as u32 + 1), 1000).into(),
            ..of(0, 0)
        };
        let taken = (0..2 * MOST).filter(|n| inbox.push(client(*n))).count();
        assert_eq!((taken, all(&mut inbox).len()), (MOST, MOST));
        assert!(inbox.turns.is_empty() && inbox.by_client.is_empty());
    }
}
