//! The table: a row for each operation, with the range over the sessions and then each of them.

use crate::operations::Cost;

/// One column for each session; all have the same operations.
pub(crate) fn of(sessions: &[Vec<Cost>]) -> String {
    let mut text = format!("{:<32}{:>6}{:>8}{:>6}   each session", "round trips", "min", "median", "max");
    for (row, cost) in sessions[0].iter().enumerate() {
        let each: Vec<_> = sessions.iter().map(|costs| costs[row].round_trips).collect();
        let mut sorted = each.clone();
        sorted.sort_by(f64::total_cmp);
        let [least, greatest] = [sorted[0], sorted[sorted.len() - 1]];
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        text += &format!("\n{:<32}{least:>6.2}{median:>8.2}{greatest:>6.2}  ", cost.operation);
        text.extend(each.iter().map(|round_trips| format!(" {round_trips:>4.2}")));
    }
    text
}
