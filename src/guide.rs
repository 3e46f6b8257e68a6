//! Guides: which recipe to choose, what can go wrong, how to operate it. They are the pages of `docs/` in the
//! repository.
//!
//! Begin with [choosing], [what can go wrong](what_can_go_wrong) and [fencing]; read [incidents] when something is
//! wrong.

// A page links to others by labels: `[text][fencing.md]`. The last lines of the page define the labels for the
// repository. Here `links.md` comes before the page, because Markdown uses the first definition of a label.

macro_rules! guides {
    ($($(#[$cfg:meta])? $name:ident: $page:literal,)*) => {$(
        $(#[$cfg])?
        #[doc = include_str!("guide/links.md")]
        #[doc = ""]
        #[doc = include_str!($page)]
        pub mod $name {}
    )*};
}

guides! {
    choosing: "../docs/choosing.md",
    what_can_go_wrong: "../docs/what-can-go-wrong.md",
    fencing: "../docs/fencing.md",
    operating: "../docs/operating.md",
    monitoring: "../docs/monitoring.md",
    incidents: "../docs/incidents.md",
    limits: "../docs/limits.md",
    acls: "../docs/acls.md",
    #[cfg(any(not(doctest), feature = "sasl-digest-md5"))]
    sasl: "../docs/sasl.md",
    tls: "../docs/tls.md",
    kubernetes: "../docs/kubernetes.md",
    mixed_fleets: "../docs/mixed-fleets.md",
    curator: "../docs/curator.md",
    coming_from: "../docs/coming-from.md",
    moving: "../docs/moving.md",
    trust: "../docs/design/trust.md",
}
