//! Medians and ranges of what was measured in rounds.

/// A median, and the range without the lowest and the highest tenth: one round in which the machine stalled changes
/// neither much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    /// None of no values. Java counts CPU time in steps of 10 ms, so ratios to it may be infinite in a short round; they
    /// are left out.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let part = |part| quantile(&values, part);
        (!values.is_empty()).then(|| Self { median: part(0.5), low: part(0.1), high: part(0.9) })
    }
}

/// Between two values it is interpolated.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}
