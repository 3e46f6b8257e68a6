//! Owns [`Rules`]: every condition that the queue relies on, each of which can be switched off.

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The conditions, by name. One that is switched off is left out of the steps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Rules {
            $($(#[doc = $doc])+ pub(crate) $name: bool,)+
        }

        impl Rules {
            const ALL: Self = Self { $($name: true,)+ };

            /// All names, with what each means.
            pub(crate) const NAMES: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),+)),)+];

            /// Switches one rule off.
            pub(crate) fn without(mut self, name: &str) -> Self {
                match name {
                    $(stringify!($name) => self.$name = false,)+
                    _ => panic!("there is no rule {name}"),
                }
                self
            }
        }
    };
}

rules! {
    /// A search waits for an answer from a quorum before it lists.
    barrier,
    /// A search is done again when no lost request can be applied any more.
    second_search,
    /// A listing counts only for a create that was sent before it.
    listing_after_create,
    /// A listing without our own node shows no position.
    own_node_listed,
    /// A waiter whose predecessor is gone when it sets the watch looks again.
    look_after_missing,
    /// A waiter whose watch fires looks again.
    look_after_event,
    /// A node that is found is ours only if the present session owns it.
    owner_checked,
    /// A hold ends before the servers may end its session.
    trust_ends_first,
    /// A session that is not trusted proves itself before a grant.
    proof_before_grant,
    /// A first delete that finds no node reports a loss.
    absent_is_lost,
    /// A delete with an unknown outcome is repeated.
    delete_until_certain,

    /// The undisturbed mutex (item 2) is used.
    undisturbed,
    /// Item 2: an expectation is fixed when the create is sent, and used up by it.
    used_up_once,
    /// Item 2: the delete of our last node was answered Ok.
    delete_answered_ok,
    /// Item 2: the watch on the path is known to be on the path of our last node.
    arm_proved,
    /// Item 2: any event ends the watch on the path.
    event_ends_arm,
    /// Item 2: the watch was set before the delete of our last node was sent.
    arm_before_delete,
    /// Item 2: one connection from the watch to the grant.
    one_connection,
    /// Item 2: nobody was ahead of or behind our last node.
    alone,
    /// Item 2: mutex queues only.
    mutex_only,
    /// Item 2: the first Stat counts only if its pzxid is the czxid of our node.
    stat_by_pzxid,
    /// The client sets its watches again before it sends requests after a reconnect.
    watches_first,

    /// The hand-over between sessions without a second listing (item 4) is used.
    handover,
    /// Item 4: the predecessor is the only contender ahead.
    only_one_ahead,
    /// Item 4: the predecessor is neither a reader nor a writer.
    predecessor_is_mutex,
    /// Item 4: the predecessor belongs to another session.
    other_session,
    /// Item 4: our own watch is answered and has not fired.
    own_watch,
    /// Item 4: one connection since the listing.
    handover_one_connection,

    /// The neighbour in one process (item 3) is used.
    neighbour,
    /// Item 3: a neighbour is in the register of this link, not only of the same session.
    by_link,
    /// Item 3: a neighbour is one whose place is still live when the waiter enters the register.
    live_in_register,
    /// Item 3: all waiters behind the holder are woken.
    wake_all,
    /// Item 3: a downgrade wakes the waiters.
    wake_at_downgrade,
    /// Item 3: the loss of a hold wakes the waiters.
    wake_at_loss,
    /// Item 3: a waiter that leaves the queue wakes those behind it.
    wake_at_leaving,
    /// Item 3: the event of a node that our own downgrade deletes is no loss.
    change_known,
    /// Item 3: the node of a holder with a waiter in memory is watched.
    watch_holder,
    /// Item 3: the waiter's own watch is answered and has not fired, or the release reads its node behind the delete.
    own_watch_in_memory,
}

impl Rules {
    /// The queue as it is.
    pub(crate) const TODAY: Self = Self { undisturbed: false, handover: false, neighbour: false, ..Self::ALL };

    /// With the undisturbed mutex.
    pub(crate) const ITEM_2: Self = Self { undisturbed: true, ..Self::TODAY };

    /// With the neighbour in one process.
    pub(crate) const ITEM_3: Self = Self { neighbour: true, ..Self::TODAY };

    /// With the hand-over between sessions.
    pub(crate) const ITEM_4: Self = Self { handover: true, ..Self::TODAY };

    /// With all of them.
    pub(crate) const NEW: Self = Self::ALL;
}
