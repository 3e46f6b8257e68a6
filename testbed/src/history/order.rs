//! The rule that what excludes each other happens in the order of its tokens.
//!
//! A turn is anything that begins within a window of time, lasts to an instant at least, and has a token: a hold, or
//! a place in line. Two turns conflict if one of them is exclusive; of two that conflict, the one with the smaller
//! token has to be over when the other begins.

/// A turn, of the hold with this index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) hold: usize,
    pub(super) token: i64,
    pub(super) exclusive: bool,
    /// Not before this did it begin,
    pub(super) from: u64,
    /// nor after this.
    pub(super) by: u64,
    /// Not before this did it end, nor before it began.
    pub(super) until: u64,
    /// Not before this did it end to be exclusive.
    pub(super) exclusive_until: u64,
}

/// The turns, if any, that have a token not above the largest of those that certainly went before: each with that one.
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
        // Whoever began before this one ended was over before it began, because they exclude each other. Of two that
        // can be told so of each other, the one that came later is to blame.
        let surely = turn.until.min(turn.by);
        let [all, exclusive] = largest[by_begin.partition_point(|other| other.by < surely)];
        let last = if turn.exclusive { all } else { exclusive };
        last.filter(|last| last.token >= turn.token)
    };
    by_begin.iter().filter_map(|turn| Some((*turn, before(turn)?))).collect()
}

/// The turns that began too early, whenever the lock let each begin and end: each with one that has a token not above
/// its own, and was not over.
///
/// It lets every turn begin, and end, as early as it can after those with smaller tokens. If that is too late for
/// one, no other choice does better: nothing is gained by beginning later.
pub(super) fn late(turns: &[Turn]) -> Vec<(Turn, Turn)> {
    let mut by_token = turns.to_vec();
    by_token.sort_by_key(|turn| turn.token);
    let mut found = Vec::new();
    // The latest ends so far, of all turns and of exclusive ones, and the last turn of each kind.
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
