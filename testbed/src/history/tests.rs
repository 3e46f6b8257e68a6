//! Tests of the recorder.

mod recording;
mod script;
