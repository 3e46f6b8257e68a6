//! Owns the cases: which scenarios hold, and which rule is needed in which.

use crate::order::Kind;
use crate::rules::Rules;
use crate::scenario::{Budget, Contender, Scenario, mutex, reader, writer};

/// What a case is expected to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// All properties hold.
    Holds,
    /// A property fails.
    Fails,
    /// All properties hold, although a rule is off; this is why.
    NotNeeded(&'static str),
    /// A property fails with all rules on; this is where it is documented.
    Known(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) rules: Rules,
    pub(crate) of: &'static str,
    pub(crate) off: &'static [&'static str],
    pub(crate) scenario: Scenario,
    pub(crate) expected: Expected,
}

const NO: Budget = Budget {
    cuts: 0,
    expiries: 0,
    hand: 0,
    cancels: 0,
    refusals: 0,
    remakes: 0,
    unseen: 0,
    downgrades: 0,
    creates: 0,
    closes: 0,
    replaced: 0,
};
const CUT: Budget = Budget { cuts: 1, ..NO };
const HAND: Budget = Budget { hand: 1, ..NO };
const EXPIRY: Budget = Budget { expiries: 1, ..NO };
const CANCEL: Budget = Budget { cancels: 1, ..NO };
const ALL: Budget = Budget { cuts: 1, expiries: 1, hand: 1, ..NO };
const REMAKE: Budget = Budget { hand: 1, remakes: 1, ..NO };

const fn scenario(name: &'static str, sessions: &'static [&'static [Contender]], budget: Budget) -> Scenario {
    let waits_end = budget.unseen == 0 && budget.refusals == 0;
    Scenario { name, sessions, budget, waits_end }
}

const TWO: &[&[Contender]] = &[&[mutex(1)], &[mutex(1)]];
const TWICE: &[&[Contender]] = &[&[mutex(2)], &[mutex(2)]];
const AGAIN: &[&[Contender]] = &[&[mutex(2)], &[mutex(1)]];
const THREE: &[&[Contender]] = &[&[mutex(1)], &[mutex(1)], &[mutex(1)]];
const THREE_TWICE: &[&[Contender]] = &[&[mutex(2)], &[mutex(2)], &[mutex(2)]];
const TASKS: &[&[Contender]] = &[&[mutex(2), mutex(1)]];
const TASKS_AND_ONE: &[&[Contender]] = &[&[mutex(1), mutex(1)], &[mutex(1)]];
const THREE_TASKS: &[&[Contender]] = &[&[mutex(1), mutex(1), mutex(1)]];
const TWO_TASKS: &[&[Contender]] = &[&[mutex(1), mutex(1)]];
const LINKS: &[&[Contender]] = &[&[mutex(1), Contender { kind: Kind::Lock, link: 1, times: 1 }]];
const WRITER_AND_READERS: &[&[Contender]] = &[&[writer(1), reader(1), reader(1)]];
const WRITERS: &[&[Contender]] = &[&[writer(1)], &[mutex(1)]];
const MIXED: &[&[Contender]] = &[&[reader(1), writer(1)], &[reader(1)]];
const WRITERS_AGAIN: &[&[Contender]] = &[&[writer(2)], &[writer(1)]];

/// The cases of the queue as it is.
pub(crate) const TODAY: &[Case] = &[
    today(&[], scenario("3 sessions x 2", THREE_TWICE, NO), Expected::Holds),
    today(&[], scenario("3 x 1, 1 cut", THREE, CUT), Expected::Holds),
    today(&[], scenario("3 x 1, 1 expiry, 1 by hand", THREE, Budget { hand: 1, ..EXPIRY }), Expected::Holds),
    today(&[], scenario("2 x 2, 1 cut", TWICE, CUT), Expected::Holds),
    today(&[], scenario("2 x 1, 2 cuts", TWO, Budget { cuts: 2, ..NO }), Expected::Holds),
    today(&[], scenario("2 x 1, 1 cut, 1 expiry, 1 by hand", TWO, ALL), Expected::Holds),
    today(&["barrier"], scenario("2 x 1, 1 cut, 1 given up", TWO, Budget { cuts: 1, ..CANCEL }), Expected::Fails),
    today(&["second_search"], scenario("2 x 1, 1 cut", TWO, CUT), Expected::Fails),
    today(
        &["listing_after_create"],
        scenario("2 x 2, 1 cut", TWICE, CUT),
        Expected::NotNeeded("own_node_listed refuses that listing"),
    ),
    today(
        &["own_node_listed"],
        scenario("2 x 2, 1 cut", TWICE, CUT),
        Expected::NotNeeded("listing_after_create makes it listed"),
    ),
    today(&["listing_after_create", "own_node_listed"], scenario("2 x 1", TWO, NO), Expected::Fails),
    today(&["look_after_missing"], scenario("2 x 1", TWO, NO), Expected::Fails),
    today(&["look_after_event"], scenario("3 x 1, 1 given up", THREE, CANCEL), Expected::Fails),
    today(
        &["owner_checked"],
        scenario("2 x 1, 1 cut, 1 session replaced", TWO, Budget { replaced: 1, ..CUT }),
        Expected::Fails,
    ),
    today(&["trust_ends_first"], scenario("2 x 1, 1 expiry", TWO, EXPIRY), Expected::Fails),
    today(&["proof_before_grant"], scenario("2 and 1, 1 expiry", AGAIN, EXPIRY), Expected::Fails),
    today(&["absent_is_lost"], scenario("2 x 1, 1 by hand", TWO, HAND), Expected::Fails),
    today(&["delete_until_certain"], scenario("2 x 1, 1 cut", TWO, CUT), Expected::Fails),
];

const fn today(off: &'static [&'static str], scenario: Scenario, expected: Expected) -> Case {
    Case { rules: Rules::TODAY, of: "today", off, scenario, expected }
}

const fn item_2(off: &'static [&'static str], scenario: Scenario, expected: Expected) -> Case {
    Case { rules: Rules::ITEM_2, of: "item 2", off, scenario, expected }
}

const fn item_3(off: &'static [&'static str], scenario: Scenario, expected: Expected) -> Case {
    Case { rules: Rules::ITEM_3, of: "item 3", off, scenario, expected }
}

const fn item_4(off: &'static [&'static str], scenario: Scenario, expected: Expected) -> Case {
    Case { rules: Rules::ITEM_4, of: "item 4", off, scenario, expected }
}

const fn all_new(off: &'static [&'static str], scenario: Scenario, expected: Expected) -> Case {
    Case { rules: Rules::NEW, of: "2, 3, 4", off, scenario, expected }
}

/// The cases of the new ways.
pub(crate) const NEW: &[Case] = &[
    item_2(&[], scenario("2 x 2", TWICE, NO), Expected::Holds),
    item_2(&[], scenario("2 x 2, 1 cut", TWICE, CUT), Expected::Holds),
    item_2(&[], scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE), Expected::Holds),
    item_2(&[], scenario("1 session, 2 and 1, path made again", TASKS, REMAKE), Expected::Holds),
    item_2(&[], scenario("2 and 1, 1 expiry, 1 by hand", AGAIN, Budget { hand: 1, ..EXPIRY }), Expected::Holds),
    item_2(&[], scenario("2 and 1, a delete refused", AGAIN, Budget { refusals: 1, ..NO }), Expected::Holds),
    item_2(&[], scenario("2 and 1, a node put in", AGAIN, Budget { creates: 1, ..NO }), Expected::Holds),
    item_2(
        &[],
        scenario("2 and 1, path made again unseen", AGAIN, Budget { unseen: 1, ..REMAKE }),
        Expected::Known("READ taken, then the path deleted"),
    ),
    item_2(&["used_up_once"], scenario("1 session, 2 and 1", TASKS, NO), Expected::Fails),
    item_2(
        &["delete_answered_ok"],
        scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE),
        Expected::NotNeeded("a watch proved by its pzxid covers it"),
    ),
    item_2(
        &["delete_answered_ok"],
        scenario("2 and 1, a delete refused", AGAIN, Budget { refusals: 1, ..NO }),
        Expected::NotNeeded("listings hide a given up node, too"),
    ),
    item_2(
        &["arm_proved"],
        scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE),
        Expected::NotNeeded("a delete answered Ok proves it"),
    ),
    item_2(
        &["delete_answered_ok", "arm_proved"],
        scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE),
        Expected::Fails,
    ),
    item_2(&["event_ends_arm"], scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE), Expected::Fails),
    item_2(
        &["one_connection"],
        scenario("2 and 1, 1 cut, path made again", AGAIN, Budget { cuts: 1, remakes: 1, ..NO }),
        Expected::NotNeeded("watches are set again first"),
    ),
    item_2(
        &["one_connection", "watches_first"],
        scenario("2 and 1, 1 cut, path made again", AGAIN, Budget { cuts: 1, remakes: 1, ..NO }),
        Expected::Fails,
    ),
    item_2(
        &["delete_answered_ok", "stat_by_pzxid"],
        scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE),
        Expected::Fails,
    ),
    item_2(
        &["arm_before_delete"],
        scenario("1 session, 2 and 1, path made again", TASKS, REMAKE),
        Expected::Fails,
    ),
    item_2(
        &["alone"],
        scenario("2 x 2, 1 by hand, path made again", TWICE, REMAKE),
        Expected::NotNeeded("the number shows who came"),
    ),
    item_2(
        &["alone"],
        scenario("reader and writer of 1 session, reader", MIXED, NO),
        Expected::NotNeeded("mutexes only: the number shows it"),
    ),
    item_2(
        &["mutex_only"],
        scenario("writers 2 and 1, 1 downgrade", WRITERS_AGAIN, Budget { downgrades: 1, ..NO }),
        Expected::NotNeeded("a downgrade is counted, too"),
    ),
    item_2(
        &["mutex_only"],
        scenario("reader and writer of 1 session, reader", MIXED, NO),
        Expected::NotNeeded("a reader beside others is not alone"),
    ),
    item_2(
        &["alone", "mutex_only"],
        scenario("reader and writer of 1 session, reader", MIXED, NO),
        Expected::Fails,
    ),
    item_2(&["stat_by_pzxid"], scenario("2 and 1, 1 by hand, path made again", AGAIN, REMAKE), Expected::Fails),
    item_4(&[], scenario("3 x 1, 1 given up", THREE, CANCEL), Expected::Holds),
    item_4(&[], scenario("3 x 1, 1 by hand", THREE, HAND), Expected::Holds),
    item_4(&[], scenario("2 x 1, 1 cut, 1 by hand", TWO, Budget { hand: 1, ..CUT }), Expected::Holds),
    item_4(
        &[],
        scenario("2 tasks and 1, 1 closed by another", TASKS_AND_ONE, Budget { closes: 1, ..NO }),
        Expected::Holds,
    ),
    item_4(
        &[],
        scenario("writer and mutex, 1 downgrade", WRITERS, Budget { downgrades: 1, ..NO }),
        Expected::Holds,
    ),
    item_4(
        &[],
        scenario("2 x 1, deleted unseen", TWO, Budget { hand: 1, unseen: 1, ..NO }),
        Expected::Known("READ taken from our own node, then that deleted"),
    ),
    item_4(
        &[],
        scenario("3 x 1, 1 given up, a node put in", THREE, Budget { creates: 1, ..CANCEL }),
        Expected::Known("a node put in under an older name"),
    ),
    item_4(&["only_one_ahead"], scenario("3 x 1, 1 given up", THREE, CANCEL), Expected::Fails),
    item_4(
        &["predecessor_is_mutex"],
        scenario("writer and mutex, 1 downgrade", WRITERS, Budget { downgrades: 1, ..NO }),
        Expected::Fails,
    ),
    item_4(
        &["other_session"],
        scenario("2 tasks and 1, 1 closed by another", TASKS_AND_ONE, Budget { closes: 1, ..NO }),
        Expected::Fails,
    ),
    item_4(
        &["other_session"],
        scenario("2 tasks and 1, 1 expiry", TASKS_AND_ONE, EXPIRY),
        Expected::NotNeeded("trust ends before the session"),
    ),
    item_4(&["own_watch"], scenario("2 x 1, 1 by hand", TWO, HAND), Expected::Fails),
    item_4(
        &["handover_one_connection"],
        scenario("2 x 1, 1 cut, 1 by hand", TWO, Budget { hand: 1, ..CUT }),
        Expected::Fails,
    ),
    item_3(&[], scenario("3 tasks, 1 given up", THREE_TASKS, CANCEL), Expected::Holds),
    item_3(&[], scenario("2 tasks and 1, 1 by hand", TASKS_AND_ONE, HAND), Expected::Holds),
    item_3(&[], scenario("2 tasks, 1 cut, 1 by hand", TWO_TASKS, Budget { hand: 1, ..CUT }), Expected::Holds),
    item_3(&[], scenario("2 tasks and 1, 1 expiry", TASKS_AND_ONE, EXPIRY), Expected::Holds),
    item_3(&[], scenario("2 links of one session", LINKS, HAND), Expected::Holds),
    item_3(
        &[],
        scenario("writer and 2 readers, 1 downgrade", WRITER_AND_READERS, Budget { downgrades: 1, ..NO }),
        Expected::Holds,
    ),
    item_3(&["by_link"], scenario("2 links of one session", LINKS, NO), Expected::Fails),
    item_3(&["live_in_register"], scenario("3 tasks, 1 given up", THREE_TASKS, CANCEL), Expected::Fails),
    item_3(&["wake_all"], scenario("writer and 2 readers", WRITER_AND_READERS, NO), Expected::Fails),
    item_3(
        &["wake_at_downgrade"],
        scenario("writer and 2 readers, 1 downgrade", WRITER_AND_READERS, Budget { downgrades: 1, ..NO }),
        Expected::Fails,
    ),
    item_3(
        &["change_known"],
        scenario("writer and 2 readers, 1 downgrade", WRITER_AND_READERS, Budget { downgrades: 1, ..NO }),
        Expected::Fails,
    ),
    item_3(&["wake_at_loss"], scenario("2 tasks and 1, 1 by hand", TASKS_AND_ONE, HAND), Expected::Fails),
    item_3(&["wake_at_leaving"], scenario("3 tasks, 1 given up", THREE_TASKS, CANCEL), Expected::Fails),
    item_3(&["watch_holder"], scenario("2 tasks and 1, 1 by hand", TASKS_AND_ONE, HAND), Expected::Fails),
    item_3(&["own_watch_in_memory"], scenario("2 tasks and 1, 1 by hand", TASKS_AND_ONE, HAND), Expected::Fails),
    all_new(&[], scenario("2 x 2, 1 by hand", TWICE, HAND), Expected::Holds),
    all_new(&[], scenario("2 tasks and 1, 1 by hand", TASKS_AND_ONE, HAND), Expected::Holds),
    all_new(&[], scenario("2 x 2, 1 cut", TWICE, CUT), Expected::Holds),
    all_new(&[], scenario("2 tasks, 1 cut, 1 by hand", TWO_TASKS, Budget { hand: 1, ..CUT }), Expected::Holds),
];

/// Larger cases, each of which is stopped after ten minutes.
pub(crate) const LARGE: &[Case] = &[
    today(&[], scenario("3 x 1, 1 cut, 1 expiry, 1 by hand", THREE, ALL), Expected::Holds),
    today(&[], scenario("2 x 1, 2 cuts, 1 expiry, 1 by hand", TWO, Budget { cuts: 2, ..ALL }), Expected::Holds),
    today(&[], scenario("3 x 2, 1 cut", THREE_TWICE, CUT), Expected::Holds),
    item_2(
        &[],
        scenario("2 and 1, 1 cut, 1 by hand, path again", AGAIN, Budget { cuts: 1, ..REMAKE }),
        Expected::Holds,
    ),
    item_3(&[], scenario("2 tasks and 1, 1 cut", TASKS_AND_ONE, CUT), Expected::Holds),
    all_new(&[], scenario("2 tasks and 1, 1 cut", TASKS_AND_ONE, CUT), Expected::Holds),
];

/// A case of the queue as it is, or of all new ways: sessions, acquisitions, cuts, expiries, deletions by hand.
pub(crate) fn of_size([sessions, times, cuts, expiries, hand]: [u8; 5], new: bool) -> Case {
    // It lives as long as the program, of which it is an argument.
    let tasks: &'static [Contender] = Vec::leak(vec![mutex(times)]);
    let all: &'static [&'static [Contender]] = Vec::leak(vec![tasks; usize::from(sessions)]);
    let name = format!("{sessions} x {times}, {cuts} cuts, {expiries} expiries, {hand} by hand");
    let scenario = scenario(String::leak(name), all, Budget { cuts, expiries, hand, ..NO });
    if new { all_new(&[], scenario, Expected::Holds) } else { today(&[], scenario, Expected::Holds) }
}
