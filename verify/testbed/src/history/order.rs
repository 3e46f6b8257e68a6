//! The rule that conflicting turns happen in the order of their tokens.
//!
//! A turn is a hold or a place in the queue. It has a token, begins within a window of time, and lasts at least to some
//! instant. Two turns conflict if one of them is exclusive. Of two conflicting turns, the one with the smaller token
//! must be over when the other begins.

/// A turn, of the hold with this index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) hold: usize,
    pub(super) token: i64,
    pub(super) exclusive: bool,
    /// The earliest instant at which it began.
    pub(super) from: u64,
    /// The latest instant at which it began.
    pub(super) by: u64,
    /// The earliest instant at which it ended, unless it began later.
    pub(super) until: u64,
    /// The earliest instant at which it ceased to be exclusive.
    pub(super) exclusive_until: u64,
}

/// The turns whose token is not above the largest token of the turns that certainly came before, each with that turn.
pub(super) fn falling(turns: &[Turn]) -> Vec<(Turn, Turn)> {
    let mut by_begin = turns.to_vec();
    by_begin.sort_by_key(|turn| turn.by);
    // The largest tokens of all turns, and of exclusive ones, up to each position.
    let mut largest = Vec::<[Option<Turn>; 2]>::with_capacity(turns.len() + 1);
    let mut now = [None; 2];
    largest.push(now);
    for turn in &by_begin {
        for (seen, counts) in now.iter_mut().zip([true, turn.exclusive]) {
            if counts && seen.is_none_or(|seen: Turn| seen.token < turn.token) {
                *seen = Some(*turn);
            }
        }
        largest.push(now);
    }
    let before = |turn: &Turn| {
        // A conflicting turn that began before this one ended was over before this one began. If that is true both ways,
        // the later turn is to blame.
        let surely = turn.until.min(turn.by);
        let [all, exclusive] = largest[by_begin.partition_point(|other| other.by < surely)];
        let last = if turn.exclusive { all } else { exclusive };
        last.filter(|last| last.token >= turn.token)
    };
    by_begin.iter().filter_map(|turn| Some((*turn, before(turn)?))).collect()
}

/// The turns that began too early for any choice of instants, each with a turn whose token is not above its own, and
/// which was not over.
///
/// Every turn begins and ends as early as possible after those with smaller tokens. If that is too late for a turn, no
/// other choice helps, because a later begin only delays later turns.
pub(super) fn late(turns: &[Turn]) -> Vec<(Turn, Turn)> {
    let mut by_token = turns.to_vec();
    by_token.sort_by_key(|turn| turn.token);
    let mut found = Vec::new();
    // The latest ends so far, of all turns and of exclusive turns, and the last turn of each kind.
    let (mut ends, mut last) = ([(0, None); 2], [None; 2]);
    for turn in by_token {
        let kind = usize::from(!turn.exclusive);
        let (free, holder): (u64, Option<Turn>) = ends[kind];
        let same = last[kind].filter(|last: &Turn| last.token == turn.token);
        if let Some(other) = same.or(holder.filter(|_| free > turn.by)) {
            found.push((turn, other));
        }
        let begin = turn.from.max(free).min(turn.by);
        let over = [begin.max(turn.until), begin.max(turn.exclusive_until)];
        for kind in if turn.exclusive { 0..2 } else { 0..1 } {
            last[kind] = Some(turn);
            if ends[kind].1.is_none() || over[kind] > ends[kind].0 {
                ends[kind] = (over[kind], Some(turn));
            }
        }
    }
    found
}
