//! Guides: which recipe to take, what can go wrong, how to run it. They are the pages of `docs/` in the repository.
//!
//! Begin with [choosing], [what can go wrong](what_can_go_wrong) and [fencing]; [incidents] is for the day on which something is wrong.

// A page links to others with labels: `[text][fencing.md]`. Its last lines define them for a reader of the repository. Here `links.md`
// stands before the page, and the first definition of a label counts.

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/choosing.md")]
pub mod choosing {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/what-can-go-wrong.md")]
pub mod what_can_go_wrong {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/incidents.md")]
pub mod incidents {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/limits.md")]
pub mod limits {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/acls.md")]
pub mod acls {}

#[cfg(any(not(doctest), feature = "sasl-digest-md5"))]
#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/sasl.md")]
pub mod sasl {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/tls.md")]
pub mod tls {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/kubernetes.md")]
pub mod kubernetes {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/mixed-fleets.md")]
pub mod mixed_fleets {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/curator.md")]
pub mod curator {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/coming-from.md")]
pub mod coming_from {}

#[doc = include_str!("guide/links.md")]
#[doc = ""]
#[doc = include_str!("../docs/design/trust.md")]
pub mod trust {}
