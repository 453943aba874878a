//! The network: packets under way, and links that are cut in one direction.

use std::collections::{BTreeMap, BTreeSet};

use siltstone_testkit::TestRng;

use crate::Envelope;

pub(super) struct Network {
    /// By time of arrival and a number that makes it unique.
    under_way: BTreeMap<(u64, u64), Envelope>,
    sent: u64,
    /// Directions that lose everything.
    cut: BTreeSet<(u64, u64)>,
    /// Of a thousand packets.
    lost: u64,
    repeated: u64,
    max_delay: u64,
}

impl Network {
    pub(super) fn new(rng: &mut TestRng) -> Self {
        Network {
            under_way: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            lost: *rng.pick(&[0, 10, 50, 200]),
            repeated: *rng.pick(&[0, 20, 100]),
            max_delay: *rng.pick(&[1, 2, 4, 8]),
        }
    }

    pub(super) fn send(&mut self, now: u64, envelope: Envelope, rng: &mut TestRng) {
        let copies = 1 + u64::from(rng.below(1000) < self.repeated);
        for _ in 0..copies {
            let delay = match rng.one_in(50) {
                true => rng.below(10 * self.max_delay),
                false => rng.below(self.max_delay),
            };
            if rng.below(1000) >= self.lost {
                self.sent += 1;
                self.under_way.insert((now + 1 + delay, self.sent), envelope.clone());
            }
        }
    }

    /// The packets that arrive by now.
    pub(super) fn arrivals(&mut self, now: u64) -> Vec<Envelope> {
        let later = self.under_way.split_off(&(now + 1, 0));
        let due = std::mem::replace(&mut self.under_way, later);
        let is_open =
            |Envelope { packet, .. }: &Envelope| !self.cut.contains(&(packet.from(), packet.to()));
        due.into_values().filter(is_open).collect()
    }

    /// Cuts links: between two sides, around one node, or in one direction.
    pub(super) fn cut_some(&mut self, nodes: &[u64], rng: &mut TestRng) {
        let one = *rng.pick(nodes);
        let side: BTreeSet<u64> = match rng.below(3) {
            0 => nodes.iter().copied().filter(|_| rng.one_in(2)).collect(),
            _ => BTreeSet::from([one]),
        };
        let directions = rng.below(3);
        for &from in nodes {
            for &to in nodes {
                let is_out = side.contains(&from) && !side.contains(&to);
                let is_in = side.contains(&to) && !side.contains(&from);
                if (is_out && directions != 0) || (is_in && directions != 1) {
                    self.cut.insert((from, to));
                }
            }
        }
    }

    pub(super) fn mend(&mut self) {
        self.cut.clear();
    }

    /// What a node has sent arrives now, though in any order, or never.
    pub(super) fn hurry(&mut self, now: u64, node: u64) {
        let is_of_node = |_: &(u64, u64), of: &mut Envelope| of.packet.from() == node;
        let hurried: Vec<_> = self.under_way.extract_if(.., is_of_node).collect();
        self.under_way.extend(hurried.into_iter().map(|((_, id), of)| ((now + 1, id), of)));
    }

    /// No loss and short delays from now on.
    pub(super) fn heal(&mut self) {
        self.mend();
        (self.lost, self.repeated, self.max_delay) = (0, 0, 1);
    }
}
