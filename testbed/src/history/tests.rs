//! Tests of the judges: each way of being wrong beside its right neighbour, and any history against a naive twin.

mod by_hand;
mod journal;
mod random;
mod recording;
mod script;
mod simulation;
mod twin;
