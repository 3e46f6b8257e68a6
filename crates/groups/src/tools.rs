//! For tools that show or direct a group with [shards](crate::shards): the announcements of its members, the rules of operators,
//! and the plan that follows from both.

mod announcement;
mod plan;
mod rules;
mod score;

pub use crate::tools::announcement::Announcement;
pub use crate::tools::plan::Plan;
pub use crate::tools::rules::Rules;

/// The most shards of a group. If the group's path has at most 48 bytes, one session has room for the nodes of all of them.
pub(crate) const MOST: u32 = 8_192;
