//! Everything as JSON, with the steps of every run.

use serde_json::{Value, json};

use crate::Outcome;
use crate::faults::{About, FAULTS};
use crate::machine::Machine;
use crate::play::{Results, product};
use crate::ways::{LEASE, Way};

/// One document.
///
/// # Errors
///
/// If something cannot be JSON.
pub fn document(ways: &[&Way], results: &Results, machine: &Machine) -> Outcome<String> {
    let ways: Vec<_> = ways.iter().map(|way| about(way)).collect();
    let document = json!({
        "machine": machine,
        "versions": results.versions,
        "lease_s": LEASE.as_secs_f64(),
        "ways": ways,
        "faults": FAULTS.iter().map(About::from).collect::<Vec<_>>(),
        "work": results.loads,
        "not_run": results.failures,
        "cells": results.cells,
    });
    Ok(serde_json::to_string_pretty(&document)?)
}

fn about(way: &Way) -> Value {
    json!({ "id": way.id, "title": way.title, "server": product(way.kind), "tokens": way.tokens })
}
