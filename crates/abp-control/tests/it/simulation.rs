//! F13: runs, leases and followers in a simulated world, with crashes, pauses, lost answers, repeated and
//! reordered messages, and writes of which nobody learns whether they were made.
//!
//! The parts under test are the real ones: the life of a run and the decision after an interruption
//! ([`abp_control::lifecycle`]), and the tail that followers read ([`abp_stream::EventTail`]). Everything
//! around them is simulated, from one seed: a store that takes one message at a time, nodes that claim runs
//! and carry them out, and followers that only remember a number. `ABP_SIM_SEED=N` replays a seed,
//! `ABP_SIM_SEEDS=N` tries that many.

use std::collections::BTreeMap;

use abp_control::RunState;
use abp_control::lifecycle::{Ending, LifecycleStep, Recovery, RunStanding};
use abp_stream::{EventTail, FollowStep};

const NODES: usize = 3;
const LEASE: u64 = 60;
const FAULTS_UNTIL: u64 = 400;
const ALL_ENDED_BY: u64 = 6_000;
const MAX_ATTEMPTS: u32 = 3;

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// An event, known by who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    epoch: u64,
    text: u64,
}

/// A run, as the store has it.
struct StoredRun {
    standing: RunStanding,
    /// The life of a node that holds the lease.
    owner: Option<u64>,
    until: u64,
    attempt: u32,
    is_cancelled: bool,
    can_resume: bool,
    events: Vec<Written>,
    receipts: Vec<u64>,
    /// Whether the question it asks is answered.
    answered: bool,
}

/// What a node asks of the store. Every write carries the epoch of its lease.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Claim,
    TakeOver {
        run: usize,
    },
    GiveBack {
        run: usize,
        epoch: u64,
    },
    Append {
        run: usize,
        epoch: u64,
        first: usize,
        text: u64,
    },
    Renew {
        run: usize,
        epoch: u64,
    },
    Question {
        run: usize,
        epoch: u64,
    },
    Settle {
        run: usize,
        epoch: u64,
    },
    Finish {
        run: usize,
        epoch: u64,
        ending: Ending,
    },
}

/// What the store answers.
#[derive(Debug, Clone, Copy)]
enum Reply {
    Leased {
        run: usize,
        epoch: u64,
        next: usize,
        attempt: u32,
        is_cancelled: bool,
    },
    Done,
    /// The lease is lost, or the message came twice.
    Refused,
    Nothing,
}

/// A message on its way.
#[derive(Clone, Copy)]
struct Message {
    at: u64,
    /// The life of the node that sent it; a reply to a life that is over is heard by nobody.
    life: u64,
    node: usize,
    ask: Ask,
}

/// A run that a node carries out.
struct Carried {
    run: usize,
    epoch: u64,
    next: usize,
    left: u64,
    tail: EventTail<Written>,
    has_ended: bool,
    waits: Waits,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Waits {
    Nothing,
    Reply,
    Person,
}

struct Node {
    life: u64,
    is_up: bool,
    paused_until: u64,
    renewed_at: u64,
    carried: Option<Carried>,
    is_claiming: bool,
}

/// A reader of one run, at a node or in a process of its own.
struct Follower {
    run: usize,
    node: Option<usize>,
    seen: Vec<Written>,
    has_ended: bool,
}

struct World {
    chance: Chance,
    now: u64,
    lives: u64,
    runs: Vec<StoredRun>,
    nodes: Vec<Node>,
    followers: Vec<Follower>,
    messages: Vec<Message>,
    replies: Vec<(u64, usize, u64, Ask, Reply)>,
    texts: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let count = 1 + chance.below(3);
        let runs = (0..count).map(|_| StoredRun {
            standing: RunStanding::QUEUED,
            owner: None,
            until: 0,
            attempt: 0,
            is_cancelled: false,
            can_resume: chance.one_in(2),
            events: Vec::new(),
            receipts: Vec::new(),
            answered: false,
        });
        let runs: Vec<StoredRun> = runs.collect();
        let followers = (0..2 + chance.below(3)).map(|_| Follower {
            run: usize::try_from(chance.below(count)).unwrap(),
            node: (!chance.one_in(3)).then(|| usize::try_from(chance.below(NODES as u64)).unwrap()),
            seen: Vec::new(),
            has_ended: false,
        });
        let followers = followers.collect();
        let nodes = (0..NODES).map(|life| Node {
            life: life as u64,
            is_up: true,
            paused_until: 0,
            renewed_at: 0,
            carried: None,
            is_claiming: false,
        });
        Self {
            nodes: nodes.collect(),
            runs,
            followers,
            chance,
            now: 0,
            lives: NODES as u64,
            messages: Vec::new(),
            replies: Vec::new(),
            texts: 0,
        }
    }

    fn has_faults(&self) -> bool {
        self.now < FAULTS_UNTIL
    }

    /// One tick of time: faults, messages, nodes, followers; and what must always hold.
    fn tick(&mut self) {
        self.now += 1;
        if self.has_faults() {
            self.strike();
        }
        self.deliver();
        for node in 0..NODES {
            self.act(node);
        }
        for follower in 0..self.followers.len() {
            if self.chance.one_in(3) {
                self.follow(follower);
            }
        }
        self.check();
    }

    /// Somewhere something goes wrong.
    fn strike(&mut self) {
        let node = usize::try_from(self.chance.below(NODES as u64)).unwrap();
        match self.chance.below(60) {
            0 => self.crash(node),
            1 => {
                let pause = self.chance.below(3 * LEASE);
                self.nodes[node].paused_until = self.now + pause;
            }
            2 => {
                let run = usize::try_from(self.chance.below(self.runs.len() as u64)).unwrap();
                self.runs[run].is_cancelled |= self.chance.one_in(4);
            }
            _ => {}
        }
        if !self.nodes[node].is_up && self.chance.one_in(20) {
            self.restart(node);
        }
    }

    /// A node is gone with everything it did not store. What it sent may or may not still arrive.
    fn crash(&mut self, node: usize) {
        let life = self.nodes[node].life;
        self.nodes[node].is_up = false;
        self.nodes[node].carried = None;
        self.nodes[node].is_claiming = false;
        let keeps = self.chance.one_in(2);
        self.messages
            .retain(|message| message.life != life || keeps);
    }

    fn restart(&mut self, node: usize) {
        self.lives += 1;
        let one = &mut self.nodes[node];
        one.life = self.lives;
        one.is_up = true;
        one.paused_until = 0;
        one.renewed_at = self.now;
    }

    fn send(&mut self, node: usize, ask: Ask) {
        let message = Message {
            at: self.now + 1 + self.chance.below(4),
            life: self.nodes[node].life,
            node,
            ask,
        };
        self.messages.push(message);
        // It may arrive twice, the second time much later.
        if self.has_faults() && self.chance.one_in(12) {
            let at = message.at + self.chance.below(2 * LEASE);
            self.messages.push(Message { at, ..message });
        }
    }

    /// The store takes the messages that have arrived, in any order, each whole.
    fn deliver(&mut self) {
        let (mut due, later): (Vec<Message>, Vec<Message>) = self
            .messages
            .drain(..)
            .partition(|message| message.at <= self.now);
        self.messages = later;
        while !due.is_empty() {
            let place = usize::try_from(self.chance.below(due.len() as u64)).unwrap();
            let message = due.swap_remove(place);
            let reply = self.store(message.life, message.ask);
            // An answer takes its time, too; who is gone does not get it.
            let at = self.now + 1 + self.chance.below(3);
            self.replies
                .push((at, message.node, message.life, message.ask, reply));
        }
        let (arrived, later): (Vec<_>, Vec<_>) =
            self.replies.drain(..).partition(|(at, ..)| *at <= self.now);
        self.replies = later;
        for (_, node, life, ask, reply) in arrived {
            let one = &self.nodes[node];
            if one.is_up && one.life == life {
                // A node that is paused hears of it when it goes on.
                if one.paused_until > self.now {
                    self.replies
                        .push((one.paused_until, node, life, ask, reply));
                } else {
                    self.hear(node, ask, reply);
                }
            }
        }
    }

    /// The store: each message is taken whole or not at all, and by the real state machine.
    fn store(&mut self, life: u64, ask: Ask) -> Reply {
        let now = self.now;
        match ask {
            Ask::Claim => {
                let claimable = |run: &StoredRun| run.standing.state == RunState::Queued;
                let Some(run) = self.runs.iter().position(claimable) else {
                    return Reply::Nothing;
                };
                self.lease(run, life, LifecycleStep::Claim)
            }
            Ask::TakeOver { run } => {
                let is_alive = self
                    .nodes
                    .iter()
                    .any(|node| node.is_up && Some(node.life) == self.runs[run].owner);
                let stored = &self.runs[run];
                let is_interrupted = !is_alive || stored.until < now;
                if stored.owner == Some(life) || !is_interrupted {
                    return Reply::Nothing;
                }
                self.lease(run, life, LifecycleStep::TakeOver)
            }
            Ask::GiveBack { run, epoch } => {
                let stored = &mut self.runs[run];
                match stored.standing.step(LifecycleStep::GiveBack, epoch) {
                    Ok(next) => {
                        stored.standing = next;
                        stored.owner = None;
                        Reply::Done
                    }
                    Err(_) => Reply::Refused,
                }
            }
            Ask::Append {
                run,
                epoch,
                first,
                text,
            } => {
                let stored = &mut self.runs[run];
                let is_held = holds(stored, epoch);
                if !is_held || first != stored.events.len() {
                    return Reply::Refused;
                }
                stored.events.push(Written { epoch, text });
                Reply::Done
            }
            Ask::Renew { run, epoch } => {
                let stored = &mut self.runs[run];
                if !holds(stored, epoch) {
                    return Reply::Refused;
                }
                stored.until = now + LEASE;
                Reply::Done
            }
            Ask::Question { run, epoch } => self.change(run, epoch, LifecycleStep::Ask),
            Ask::Settle { run, epoch } => self.change(run, epoch, LifecycleStep::Settle),
            Ask::Finish { run, epoch, ending } => {
                let reply = self.change(run, epoch, LifecycleStep::Finish(ending));
                if matches!(reply, Reply::Done) {
                    self.runs[run].receipts.push(epoch);
                }
                reply
            }
        }
    }

    fn lease(&mut self, run: usize, life: u64, step: LifecycleStep) -> Reply {
        let now = self.now;
        let stored = &mut self.runs[run];
        let Ok(next) = stored.standing.step(step, stored.standing.epoch) else {
            return Reply::Nothing;
        };
        stored.standing = next;
        stored.owner = Some(life);
        stored.until = now + LEASE;
        stored.attempt += u32::from(step == LifecycleStep::Claim);
        Reply::Leased {
            run,
            epoch: next.epoch,
            next: stored.events.len(),
            attempt: stored.attempt,
            is_cancelled: stored.is_cancelled,
        }
    }

    fn change(&mut self, run: usize, epoch: u64, step: LifecycleStep) -> Reply {
        let stored = &mut self.runs[run];
        match stored.standing.step(step, epoch) {
            Ok(next) => {
                stored.standing = next;
                stored.answered = false;
                Reply::Done
            }
            Err(_) => Reply::Refused,
        }
    }

    /// A node hears an answer.
    fn hear(&mut self, node: usize, ask: Ask, reply: Reply) {
        match (ask, reply) {
            (Ask::Claim, reply) => {
                self.nodes[node].is_claiming = false;
                // An answer to a message that came twice: the node has a run already, and leaves the other
                // to its lease.
                if let Reply::Leased {
                    run,
                    epoch,
                    next,
                    is_cancelled,
                    ..
                } = reply
                    && self.nodes[node].carried.is_none()
                {
                    let left = if is_cancelled {
                        0
                    } else {
                        1 + self.chance.below(8)
                    };
                    self.nodes[node].renewed_at = self.now;
                    self.nodes[node].carried = Some(Carried {
                        run,
                        epoch,
                        next,
                        left,
                        tail: EventTail::starting_at(next as u64, 3),
                        has_ended: false,
                        waits: Waits::Nothing,
                    });
                }
            }
            (
                Ask::TakeOver { .. },
                Reply::Leased {
                    run,
                    epoch,
                    attempt,
                    is_cancelled,
                    ..
                },
            ) => {
                let stored = &self.runs[run];
                let most = if stored.can_resume { MAX_ATTEMPTS } else { 1 };
                let ask = match Recovery::decide(attempt, most, true, is_cancelled) {
                    Recovery::GiveBack => Ask::GiveBack { run, epoch },
                    Recovery::End => {
                        let ending = if is_cancelled {
                            Ending::Cancelled
                        } else {
                            Ending::Failed
                        };
                        Ask::Finish { run, epoch, ending }
                    }
                };
                self.send(node, ask);
            }
            (Ask::TakeOver { .. } | Ask::GiveBack { .. }, _) => {}
            (ask, reply) => self.hear_of_run(node, ask, reply),
        }
    }

    fn hear_of_run(&mut self, node: usize, ask: Ask, reply: Reply) {
        let Some(carried) = &mut self.nodes[node].carried else {
            return;
        };
        let (run, epoch) = match ask {
            Ask::Append { run, epoch, .. }
            | Ask::Renew { run, epoch }
            | Ask::Question { run, epoch }
            | Ask::Settle { run, epoch }
            | Ask::Finish { run, epoch, .. } => (run, epoch),
            Ask::Claim | Ask::TakeOver { .. } | Ask::GiveBack { .. } => return,
        };
        if (run, epoch) != (carried.run, carried.epoch) {
            return;
        }
        match (ask, reply) {
            (Ask::Append { first, text, .. }, Reply::Done) if first == carried.next => {
                carried.tail.push(first as u64, Written { epoch, text }, 1);
                carried.next += 1;
                carried.waits = Waits::Nothing;
            }
            // The second arrival of a message whose first one was taken.
            (Ask::Append { first, .. }, Reply::Refused) if first < carried.next => {}
            (Ask::Question { .. }, Reply::Done) => carried.waits = Waits::Person,
            (Ask::Settle { .. }, Reply::Done) => carried.waits = Waits::Nothing,
            (Ask::Renew { .. }, Reply::Done) => {}
            (Ask::Finish { .. }, _) | (_, Reply::Refused) => {
                carried.has_ended = true;
                self.nodes[node].carried = None;
            }
            _ => {}
        }
    }

    /// What a node does by itself.
    fn act(&mut self, node: usize) {
        let one = &self.nodes[node];
        if !one.is_up {
            if !self.has_faults() {
                self.restart(node);
            }
            return;
        }
        if one.paused_until > self.now {
            return;
        }
        if self.chance.one_in(15) {
            let run = usize::try_from(self.chance.below(self.runs.len() as u64)).unwrap();
            if !self.runs[run].standing.state.is_final() {
                self.send(node, Ask::TakeOver { run });
            }
        }
        let Some(carried) = &self.nodes[node].carried else {
            if !self.nodes[node].is_claiming && self.chance.one_in(4) {
                self.nodes[node].is_claiming = true;
                self.send(node, Ask::Claim);
            }
            return;
        };
        let (run, epoch, next) = (carried.run, carried.epoch, carried.next);
        let (waits, left) = (carried.waits, carried.left);
        if self.now >= self.nodes[node].renewed_at + LEASE / 4 {
            self.nodes[node].renewed_at = self.now;
            self.send(node, Ask::Renew { run, epoch });
        }
        match waits {
            Waits::Reply => {}
            Waits::Person => {
                if self.chance.one_in(6) {
                    self.wait_for_reply(node);
                    self.send(node, Ask::Settle { run, epoch });
                }
            }
            Waits::Nothing if left == 0 => {
                let is_cancelled = self.runs[run].is_cancelled;
                let ending = if is_cancelled {
                    Ending::Cancelled
                } else {
                    Ending::Complete
                };
                self.wait_for_reply(node);
                self.send(node, Ask::Finish { run, epoch, ending });
            }
            Waits::Nothing if self.chance.one_in(6) => {
                self.wait_for_reply(node);
                self.send(node, Ask::Question { run, epoch });
            }
            Waits::Nothing => {
                self.texts += 1;
                let text = self.texts;
                if let Some(carried) = &mut self.nodes[node].carried {
                    carried.left -= 1;
                }
                self.wait_for_reply(node);
                self.send(
                    node,
                    Ask::Append {
                        run,
                        epoch,
                        first: next,
                        text,
                    },
                );
            }
        }
    }

    fn wait_for_reply(&mut self, node: usize) {
        if let Some(carried) = &mut self.nodes[node].carried {
            carried.waits = Waits::Reply;
        }
    }

    /// A follower looks, as [`abp_runtime::EventStream`] does: at the tail of its process where the run is
    /// live there, at the store otherwise. It may be woken late, or not at all and look by itself.
    fn follow(&mut self, follower: usize) {
        let limit = 1 + usize::try_from(self.chance.below(3)).unwrap();
        let one = &self.followers[follower];
        if one.has_ended {
            return;
        }
        let (run, next) = (one.run, one.seen.len());
        let live = one.node.and_then(|node| self.nodes[node].carried.as_ref());
        let live = live.filter(|carried| carried.run == run);
        if let Some(carried) = live {
            let from = next as u64;
            match carried.tail.follow(from, limit, carried.has_ended, false) {
                FollowStep::Give(items) => {
                    for (seq, written) in items {
                        assert_eq!(seq, self.followers[follower].seen.len() as u64, "a gap");
                        self.followers[follower].seen.push(written);
                    }
                    return;
                }
                FollowStep::Wait => return,
                FollowStep::ReadJournal | FollowStep::Leave => {}
            }
        }
        // The state is read before the events.
        let has_ended = self.runs[run].standing.state.is_final();
        let page: Vec<Written> = self.runs[run]
            .events
            .iter()
            .skip(next)
            .take(limit)
            .copied()
            .collect();
        let one = &mut self.followers[follower];
        one.has_ended = has_ended && page.is_empty() && live_is_gone(&self.nodes, one);
        one.seen.extend(page);
    }

    /// What holds at every moment.
    fn check(&self) {
        for run in &self.runs {
            assert!(run.receipts.len() <= 1, "two receipts");
            assert_eq!(run.standing.state.is_final(), run.receipts.len() == 1);
            let epochs = run.events.iter().map(|event| event.epoch);
            assert!(epochs.is_sorted(), "an event of a lease that was lost");
            let newest = run.events.last().map_or(0, |event| event.epoch);
            assert!(newest <= run.standing.epoch);
            let most = if run.can_resume { MAX_ATTEMPTS } else { 1 };
            assert!(run.attempt <= most, "{} attempts", run.attempt);
            let texts: BTreeMap<u64, ()> =
                run.events.iter().map(|event| (event.text, ())).collect();
            assert_eq!(texts.len(), run.events.len(), "an event twice");
        }
        for follower in &self.followers {
            let events = &self.runs[follower.run].events;
            assert!(events.starts_with(&follower.seen), "not what was recorded");
        }
    }

    fn is_over(&self) -> bool {
        let ended = self.runs.iter().all(|run| run.standing.state.is_final());
        ended && self.followers.iter().all(|follower| follower.has_ended)
    }
}

/// Whether a node with that epoch holds a run that has not ended.
fn holds(run: &StoredRun, epoch: u64) -> bool {
    // Any step of the holder would do: whether it is refused is what is asked.
    run.standing.step(LifecycleStep::Settle, epoch).is_ok()
}

/// Whether the tail that a follower reads is gone, or was never there.
fn live_is_gone(nodes: &[Node], follower: &Follower) -> bool {
    let carried = follower.node.and_then(|node| nodes[node].carried.as_ref());
    carried.is_none_or(|carried| carried.run != follower.run || carried.has_ended)
}

fn simulate(seed: u64) {
    let mut world = World::new(seed);
    while !world.is_over() {
        assert!(
            world.now < ALL_ENDED_BY,
            "a run does not end, or a follower does not notice"
        );
        world.tick();
    }
    for follower in &world.followers {
        assert_eq!(
            follower.seen, world.runs[follower.run].events,
            "an event is missing"
        );
    }
}

#[test]
fn f13_ten_thousand_seeds_of_crashes_and_delays() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("ABP_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("ABP_SIM_SEEDS").unwrap_or(10_000),
    };
    for seed in seeds {
        let simulated = std::panic::catch_unwind(|| simulate(seed));
        assert!(
            simulated.is_ok(),
            "seed {seed} fails; replay it with ABP_SIM_SEED={seed}"
        );
    }
}
