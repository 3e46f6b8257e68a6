//! Each violation, beside a similar correct history.

mod losses;
mod mutex;
mod owners;
mod queue;
mod sharing;

use super::super::{History, Model, Report};
use super::script::events;
use super::twin;

const EXCLUSIVE: [Model; 5] =
    [Model::Mutex, Model::FencedMutex, Model::ReentrantMutex, Model::ReadWrite, Model::Fifo];
const FENCED: [Model; 4] = [Model::FencedMutex, Model::ReentrantMutex, Model::ReadWrite, Model::Fifo];
const SHARING: [Model; 2] = [Model::ReadWrite, Model::Fifo];

fn judge(script: &str, model: Model) -> Report {
    History::from_events(events(script)).judge(model)
}

#[track_caller]
fn accepts(models: &[Model], script: &str) {
    for model in models {
        judge(script, *model).assert_clean();
        assert!(twin::explains(&events(script), *model), "{model:?}: the twin refuses");
    }
}

/// Expects a single violation with this sentence.
#[track_caller]
fn refuses(models: &[Model], script: &str, sentence: &str) {
    refuses_outright(models, script, sentence);
    for model in models {
        assert!(!twin::explains(&events(script), *model), "{model:?}: the twin accepts");
    }
}

/// As above, for histories that the twin cannot judge.
#[track_caller]
fn refuses_outright(models: &[Model], script: &str, sentence: &str) {
    for model in models {
        assert_eq!(judge(script, *model).violations, [format!("/l: {sentence}")], "{model:?}");
    }
}
